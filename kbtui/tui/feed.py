"""Where a viewer's events come from: the seam that lets every screen be driven by a script in tests.

A viewer reads the journal itself, from its own offset; the run's socket only adds the transient events and takes
commands. So a stalled or slow viewer blocks nobody, and a run without a process is shown from its journal alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kbtui import clock
from kbtui.errors import KbtuiError
from kbtui.state.events import Asked, Event, GpuSampled, Progressed, ReplyDelta

if TYPE_CHECKING:
    from kbtui.engine.client import RunClient
    from kbtui.state.commands import AnyCommand, Reply

CHUNK = 2 << 20
"""Bytes of the journal taken at a time: a long one is never in memory as a whole."""
RETRY_S = 1.0
"""How often a viewer looks whether a run process (again) listens."""
REST_S = 2.0
"""How often the journal of a run is looked at that no process holds: nobody writes it, or somebody who takes no lock."""


class RunFeed(ABC):
    """A run as a stream of events, and the way to its process.

    `connected` says whether a run process listens; `held` whether some process holds the run's lock, which without
    `connected` means that it does not answer.
    """

    run_id: str
    connected: bool = False
    held: bool = False
    behind: bool = False
    """Whether the last `poll` left events that are there already for the next one."""
    refusal: str = ""
    """Why a process that is there cannot be talked to, such as another protocol version."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to follow the run. Must not wait for a process."""

    @abstractmethod
    async def poll(self) -> list[Event]:
        """What happened since the last call, durable events in order and the last transient one per key.

        Raises JournalError when the journal cannot be read.
        """

    @abstractmethod
    async def send(self, command: AnyCommand) -> Reply:
        """Ask the run process for something. Raises KbtuiError with a sentence when none listens."""

    async def requests(self, pull: int) -> list[Asked]:
        """What models were asked in a pull, from the run's journal. Raises JournalError."""
        from kbtui.history.requests import requests_of
        from kbtui.paths import journal_file

        return await asyncio.to_thread(requests_of, journal_file(self.run_id), pull)

    @abstractmethod
    async def close(self) -> None:
        """Stop following; the run does not care."""


class LiveFeed(RunFeed):
    """A run of this machine: its journal, and its socket while a process serves it."""

    def __init__(self, run_id: str) -> None:
        from kbtui.history.journal import JournalReader
        from kbtui.paths import journal_file

        self.run_id = run_id
        self._reader = JournalReader(journal_file(run_id))
        self._client: RunClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._transient: dict[str, Event] = {}
        self._was_owned = True
        self._read_at = 0.0

    async def start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name=f"follow {self.run_id}")

    async def poll(self) -> list[Event]:
        owned, now = self.held or self.connected, clock.monotonic()
        if not (owned or self._was_owned or self.behind) and now - self._read_at < REST_S:
            return []
        self._was_owned, self._read_at = owned, now  # once more after the process has gone: its last words
        # In a thread: the first read of a long journal takes a while, and the disk may be a slow network one.
        events = await asyncio.to_thread(self._reader.read, CHUNK)
        self.behind = self._reader.behind
        transient, self._transient = self._transient, {}
        return [*events, *transient.values()]

    async def send(self, command: AnyCommand) -> Reply:
        if self._client is None or not self.connected:
            raise KbtuiError(
                f"no process listens for run {self.run_id}: go on with it by `kbtui run --continue {self.run_id}`"
            )
        return await self._client.send(command)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _follow(self) -> None:
        """Stay connected to whatever process serves the run: now, and after `--continue` started another."""
        from kbtui.engine.client import RunClient
        from kbtui.history.journal import RunLock

        while True:
            self.held = RunLock.holder(self.run_id) is not None
            if self.held:
                try:
                    self._client = await RunClient.connect(self.run_id)
                    self.refusal = ""
                    await self._listen(self._client)
                except KbtuiError as error:
                    self.refusal = str(error)
            await asyncio.sleep(RETRY_S)

    async def _listen(self, client: RunClient) -> None:
        from kbtui.state.commands import Live

        self.connected = True
        try:
            async for message in client.messages():
                if isinstance(message, Live):
                    self._transient[_key(message.event)] = message.event
        finally:
            self.connected = False
            self._client = None
            client.close()


def _key(event: GpuSampled | Progressed | ReplyDelta) -> str:
    """Transient events of one key replace each other."""
    if isinstance(event, GpuSampled):
        return f"gpu {event.uuid or event.device}"
    return f"reply {event.pull}" if isinstance(event, ReplyDelta) else "progress"
