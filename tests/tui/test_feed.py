"""Following real journals and a real socket: alone, live, gone, and back again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tui_sample import Script, gpu, sample

from kbtui import paths
from kbtui.errors import KbtuiError
from kbtui.history.journal import JournalReader, JournalWriter, RunLock
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.tui import feed as feeds
from kbtui.tui.feed import LiveFeed
from kbtui.tui.session import Session

RUN = "softmax-20260921-1402-k3f"


class Served:
    """A run process in miniature: the socket's protocol, and what it was asked."""

    def __init__(self) -> None:
        self.commands: list[c.AnyCommand] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.refuse = False
        self.protocol = c.PROTOCOL_VERSION
        self.server: asyncio.Server | None = None
        self.lock = RunLock(RUN)

    async def open(self) -> None:
        self.lock.acquire()
        paths.socket_file(RUN).unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self._serve, str(paths.socket_file(RUN)))

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            for writer in self.writers:
                writer.close()
            await self.server.wait_closed()
            self.server = None
            paths.socket_file(RUN).unlink(missing_ok=True)
            self.lock.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        hello = c.Hello(protocol=self.protocol, kbtui="0", run_id=RUN, pid=1, journal="", seq=0)
        writer.write(c.encode(hello) + b"\n")
        while line := await reader.readline():
            request = c.decode_request.decode(line)
            self.commands.append(request.command)
            writer.write(c.encode(c.Reply(request.id, not self.refuse, "as you wish")) + b"\n")
        writer.close()

    def say(self, *events: e.GpuSampled | e.Progressed) -> None:
        for event in events:
            self.writers[-1].write(c.encode(c.Live(event)) + b"\n")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    one = Served()
    yield one
    await one.close()


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journals here are written without a process: every poll is to look."""
    monkeypatch.setattr(feeds, "REST_S", 0.0)


@contextlib.asynccontextmanager
async def followed(read_only: bool = False) -> AsyncIterator[Session]:
    session = Session(LiveFeed(RUN), read_only=read_only)
    await session.feed.start()
    yield session
    await session.feed.close()


def journal(events: list[e.Event]) -> JournalWriter:
    writer = JournalWriter(paths.journal_file(RUN))
    for event in events:
        writer.append(event)
    return writer


async def until(condition, session: Session) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(10):
        while not condition():
            await session.advance()
            await asyncio.sleep(0.02)


async def test_a_run_without_a_process_is_read_from_its_journal() -> None:
    journal(sample().events).close()
    async with followed() as session:
        assert session.status == "loading"
        assert await session.advance()
        assert session.state.best_id == 24
        assert session.status == "crashed"
        assert not await session.advance()
        with pytest.raises(KbtuiError, match="kbtui run --continue"):
            await session.feed.send(c.Step(by="x"))
        assert await session.ask(c.Step(by="x")) == (False, session.why_no_commands)


async def test_a_journal_that_nobody_writes_is_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr(feeds, "REST_S", 60.0)
    monkeypatch.setattr(feeds, "RETRY_S", 0.02)
    script = Script()
    script.begin()
    writer = journal(script.events)
    reads = []
    read = JournalReader.read

    def counted(reader: JournalReader, limit: int | None = None) -> list[e.Event]:
        reads.append(limit)
        return read(reader, limit)

    monkeypatch.setattr(JournalReader, "read", counted)
    async with followed() as session:
        for _ in range(5):
            await session.advance()
        assert len(reads) == 1
        await served.open()
        await until(lambda: session.feed.connected, session)
        writer.append(e.Noted(level="info", text="live"))
        await until(lambda: session.state.log[-1].text == "live", session)
        # the last words of a process: written when it was last looked at, read when it is gone
        writer.append(e.Noted(level="info", text="last"))
        await served.close()
        async with asyncio.timeout(10):
            while session.feed.held or session.feed.connected:
                await asyncio.sleep(0.02)
        await session.advance()
        assert session.state.log[-1].text == "last"
        before = len(reads)
        for _ in range(5):
            await session.advance()
        assert len(reads) == before
    writer.close()


async def test_an_unknown_run_is_missing() -> None:
    async with followed() as session:
        await session.advance()
        assert session.status == "missing"


async def test_a_live_run_brings_events_transients_and_replies(served: Served) -> None:
    script = Script()
    script.begin()
    with journal(script.events) as writer:
        await served.open()
        async with followed() as session:
            await until(lambda: session.feed.connected, session)
            assert session.status == "live"
            served.say(gpu(10.0), gpu(64.0), e.Progressed(stage="timing", text="pair 2"))
            await until(lambda: session.state.progress is not None, session)
            assert session.state.gpu["GPU-1"].values["busy_percent"] == 64.0
            writer.append(e.Noted(level="info", text="more"))
            await until(lambda: session.state.log[-1].text == "more", session)
            assert await session.ask(c.Step(by="ada@x")) == (True, "as you wish")
            assert served.commands == [c.Step(by="ada@x")]
            assert session.replies[-1].text == "as you wish"
            served.refuse = True
            assert await session.ask(c.Pause(by="ada@x")) == (False, "as you wish")
            assert session.replies[-1].level == "warning"


async def test_read_only_never_sends(served: Served) -> None:
    journal(sample().events).close()
    await served.open()
    async with followed(read_only=True) as session:
        await until(lambda: session.feed.connected, session)
        done, text = await session.ask(c.Stop(by="x"))
        assert not done
        assert "read-only" in text
        assert served.commands == []


async def test_it_attaches_again_when_a_process_comes_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RETRY_S", 0.05)
    script = sample()
    with journal(script.events) as writer:
        await served.open()
        async with followed() as session:
            await until(lambda: session.status == "live", session)
            await served.close()
            await until(lambda: session.status == "crashed", session)
            await served.open()
            writer.append(e.RunContinued(pid=2))
            await until(lambda: session.status == "live", session)
            assert session.state.log[-1].text == "continued by process 2"
            assert (await session.ask(c.Step(by="x")))[0]


async def test_another_protocol_is_stale_and_says_why(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RETRY_S", 0.05)
    journal(sample().events).close()
    served.protocol = 99
    await served.open()
    async with followed() as session:
        await until(lambda: bool(session.feed.refusal), session)
        assert session.status == "stale"
        assert "protocol 99" in session.why_no_commands


async def test_a_torn_last_line_waits_for_its_end() -> None:
    script = Script()
    script.begin()
    journal(script.events).close()
    async with followed() as session:
        await session.advance()
        line = e.encode(msgspec.structs.replace(e.Noted(level="info", text="torn"), seq=len(script.events) + 1))
        with open(paths.journal_file(RUN), "ab", buffering=0) as file:
            file.write(line[:10])
            assert not await session.advance()
            file.write(line[10:] + b"\n")
            assert await session.advance()
        assert session.state.log[-1].text == "torn"


async def test_a_damaged_journal_is_one_sentence_and_not_read_again() -> None:
    journal(sample().events).close()
    async with followed() as session:
        await session.advance()
        with open(paths.journal_file(RUN), "ab") as file:
            file.write(b"not an event\n")
        assert await session.advance()
        assert "journal.jsonl, line" in session.error
        assert session.state.best_id == 24
        assert not await session.advance()


async def test_a_long_journal_does_not_hold_the_loop() -> None:
    script = Script()
    script.begin()
    for number in range(12_000):
        script.add(e.Noted, level="info", text=f"note {number}")
    journal(script.events).close()
    async with followed() as session:
        longest, before = 0.0, asyncio.get_running_loop().time()
        task = asyncio.create_task(session.advance())
        while not task.done():
            await asyncio.sleep(0)
            now = asyncio.get_running_loop().time()
            longest, before = max(longest, now - before), now
        assert session.state.seq == len(script.events)
        # a generous bound for a loaded machine; folding it at a stretch in one go is what this would catch
        assert longest < 0.5
