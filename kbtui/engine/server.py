"""The run's socket: any number of viewers, none of which can hold up the run.

What is sent is small: viewers read the journal themselves. Each client has its own few values to send (how far the
journal reaches, the last of each kind of transient event, replies), and a task that sends them when the client reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from kbtui.errors import EnvironmentFailure
from kbtui.state import events as e
from kbtui.state.commands import Advanced, AnyCommand, Hello, Live, Reply, ServerMessage, decode_request, encode

LINE_LIMIT = 4 << 20
"""Longest request in bytes: room for an injected source."""
CLIENT_LIMIT = 64
PENDING_REPLIES = 64
"""A client that asks and never reads is dropped at so many unsent replies."""
STALL_S = 30.0
"""A client that reads nothing for so long is dropped."""

Handler = Callable[[AnyCommand], tuple[bool, str]]
"""Does a command and returns whether it was accepted, with a sentence."""


class Server:
    """Listens on `path` from `start` until `close`; `tell` is a listener for the run's events."""

    def __init__(self, path: Path, hello: Callable[[], Hello], handle: Handler, stall_s: float = STALL_S) -> None:
        self._path, self._hello, self._handle, self._stall_s = path, hello, handle, stall_s
        self._clients: set[_Client] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen. The caller holds the run's lock, so a socket file nobody answers is a dead process's and is
        replaced. Raises EnvironmentFailure when a live process answers there."""
        await _remove_dead_socket(self._path)
        self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=LINE_LIMIT)
        os.chmod(self._path, 0o600)

    def tell(self, event: e.Event) -> None:
        """Let every client know of an event when it has room. Never blocks."""
        for client in self._clients:
            if isinstance(event, e.GpuSampled | e.Progressed | e.ReplyDelta):
                client.show(event)
            else:
                client.advance(event.seq)

    async def close(self, grace_s: float = 1.0) -> None:
        """Send what is pending to whoever reads, for `grace_s` at most, then hang up and remove the socket file."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                for client in list(self._clients):
                    await client.emptied()
        for client in list(self._clients):
            client.drop()
        self._path.unlink(missing_ok=True)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENT_LIMIT or _peer_uid(writer) != os.getuid():
            writer.close()
            return
        client = _Client(writer, self._stall_s)
        client.reply(self._hello())
        self._clients.add(client)
        sending = asyncio.create_task(client.send_forever())
        try:
            while not client.dropped and (line := await reader.readline()):
                client.reply(self._answered(line))
        except (ConnectionError, ValueError):  # ValueError: a line over the limit; nothing after it can be trusted
            pass
        finally:
            sending.cancel()
            self._clients.discard(client)
            client.drop()

    def _answered(self, line: bytes) -> Reply:
        try:
            request = decode_request.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            return Reply(_id_of(line), False, f"this is no request that the run understands: {error}")
        accepted, text = self._handle(request.command)
        return Reply(request.id, accepted, text)


class _Client:
    """What one client has yet to be told: bounded, whatever it does."""

    def __init__(self, writer: asyncio.StreamWriter, stall_s: float) -> None:
        self._writer, self._stall_s = writer, stall_s
        # Then draining means that the kernel took everything, and a slow client holds one batch of ours, no more.
        writer.transport.set_write_buffer_limits(high=0)
        self._first: deque[ServerMessage] = deque()
        self._seq: int | None = None
        self._live: dict[str, e.GpuSampled | e.Progressed | e.ReplyDelta] = {}
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self.dropped = False

    def reply(self, message: Hello | Reply) -> None:
        if len(self._first) >= PENDING_REPLIES:
            self.drop()
            return
        self._first.append(message)
        self._wake()

    def advance(self, seq: int) -> None:
        self._seq = seq
        self._wake()

    def show(self, event: e.GpuSampled | e.Progressed | e.ReplyDelta) -> None:
        self._live[e.transient_key(event)] = event
        self._wake()

    def drop(self) -> None:
        """Hang up at once; what is unsent is lost."""
        self.dropped = True
        self._nothing.set()
        self._writer.transport.abort()

    async def emptied(self) -> None:
        """Wait until everything was handed to the kernel."""
        await self._nothing.wait()

    async def send_forever(self) -> None:
        """Send whenever there is something; hang up on a client that takes nothing for too long."""
        try:
            while True:
                await self._something.wait()
                self._something.clear()
                for message in self._take():
                    self._writer.write(encode(message) + b"\n")
                async with asyncio.timeout(self._stall_s):
                    await self._writer.drain()
                if not self._something.is_set():
                    self._nothing.set()
        except (TimeoutError, ConnectionError):
            self.drop()

    def _wake(self) -> None:
        self._nothing.clear()
        self._something.set()

    def _take(self) -> list[ServerMessage]:
        """Everything pending, the important first: replies, then the journal's reach, then transient events."""
        messages: list[ServerMessage] = list(self._first)
        if self._seq is not None:
            messages.append(Advanced(self._seq))
        messages.extend(Live(event) for event in self._live.values())
        self._first.clear()
        self._seq = None
        self._live.clear()
        return messages


class _Numbered(msgspec.Struct):
    id: int = 0


def _id_of(line: bytes) -> int:
    """The id of a request whose command is not understood, so that its sender gets the refusal; else 0."""
    try:
        return msgspec.json.decode(line, type=_Numbered).id
    except (msgspec.ValidationError, msgspec.DecodeError):
        return 0


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    connection: socket.socket = writer.get_extra_info("socket")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


async def _remove_dead_socket(path: Path) -> None:
    if not path.exists():
        return
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except (ConnectionError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return
    writer.close()
    raise EnvironmentFailure(f"{path} belongs to a live process that does not hold the run's lock: end it first")
