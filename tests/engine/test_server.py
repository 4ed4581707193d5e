"""The socket: no client can hold up the run, whatever it does or leaves undone."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kbtui.engine import server as serving
from kbtui.engine.client import RunClient, send
from kbtui.engine.server import Server
from kbtui.errors import EnvironmentFailure, ProtocolError
from kbtui.paths import socket_file
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.commands import Advanced, Hello, Live, Reply, Request, decode_server, encode

RUN = "server-test-run"


def hello(protocol: int = c.PROTOCOL_VERSION) -> Hello:
    return Hello(protocol=protocol, kbtui="0", run_id=RUN, pid=os.getpid(), journal="/nowhere", seq=7)


@asynccontextmanager
async def served(stall_s: float = 30.0, protocol: int = c.PROTOCOL_VERSION) -> AsyncIterator[Server]:
    def handle(command: c.AnyCommand) -> tuple[bool, str]:
        return isinstance(command, c.Pause), f"heard {type(command).__name__} of {command.by}"

    server = Server(socket_file(RUN), lambda: hello(protocol), handle, stall_s=stall_s)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def progress(text: str) -> e.Progressed:
    return e.Progressed(stage="generating", text=text)


def note(seq: int) -> e.Noted:
    return e.Noted(seq=seq, level="info", text="x")


async def raw() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(socket_file(RUN)))
    assert isinstance(decode_server.decode(await reader.readline()), Hello)
    return reader, writer


async def test_the_socket_is_the_owners_alone() -> None:
    async with served():
        mode = os.stat(socket_file(RUN)).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert stat.S_IMODE(os.stat(socket_file(RUN).parent).st_mode) == 0o700
    assert not socket_file(RUN).exists()


async def test_another_user_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_peer_uid", lambda _: os.getuid() + 1)
    async with served():
        reader, writer = await asyncio.open_unix_connection(str(socket_file(RUN)))
        assert await reader.read() == b""
        writer.close()


async def test_what_a_client_hears() -> None:
    async with served() as server:
        reader, writer = await raw()
        writer.write(encode(Request(5, c.Pause(by="me"))) + b"\n")
        assert decode_server.decode(await reader.readline()) == Reply(5, True, "heard Pause of me")
        writer.write(encode(Request(6, c.Resume(by="me"))) + b"\n")
        assert decode_server.decode(await reader.readline()) == Reply(6, False, "heard Resume of me")
        server.tell(note(8))
        assert decode_server.decode(await reader.readline()) == Advanced(8)
        server.tell(progress("x"))
        assert decode_server.decode(await reader.readline()) == Live(progress("x"))
        writer.close()


async def test_what_comes_at_once_is_told_once() -> None:
    async with served() as server:
        reader, writer = await raw()
        await asyncio.sleep(0.05)
        for seq in range(1, 500):
            server.tell(note(seq))
            server.tell(progress(f"token {seq}"))
        assert decode_server.decode(await reader.readline()) == Advanced(499)
        assert decode_server.decode(await reader.readline()) == Live(progress("token 499"))
        writer.close()


async def test_a_stalled_client_costs_nobody_and_is_dropped() -> None:
    async with served(stall_s=0.5) as server:
        stalled = socket.socket(socket.AF_UNIX)
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().run_in_executor(None, stalled.connect, str(socket_file(RUN)))
        reader, writer = await raw()
        began = asyncio.get_running_loop().time()
        heard = 0
        for seq in range(1, 400):
            server.tell(note(seq))
            server.tell(progress("x" * 20_000))
            while heard < seq:
                message = decode_server.decode(await asyncio.wait_for(reader.readline(), 5))
                heard = message.seq if isinstance(message, Advanced) else heard
        assert asyncio.get_running_loop().time() - began < 5
        async with asyncio.timeout(5):
            while len(server._clients) > 1:
                server.tell(progress("y" * 20_000))
                await asyncio.sleep(0.05)
        stalled.close()
        writer.close()


async def test_a_client_that_asks_and_never_reads_is_dropped() -> None:
    async with served(stall_s=0.3) as server:
        reader, writer = await raw()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        line = encode(Request(1, c.Pause(by="x" * 10_000))) + b"\n"

        async def flood() -> None:
            while True:
                writer.write(line)
                await writer.drain()

        flooding = asyncio.ensure_future(flood())
        async with asyncio.timeout(10):
            while server._clients:
                await asyncio.sleep(0.05)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        assert reader is not None
        writer.close()


async def test_a_line_without_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LINE_LIMIT", 1000)
    async with served() as server:
        reader, writer = await raw()
        writer.write(b"x" * 5000)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        async with asyncio.timeout(5):
            while server._clients:
                await asyncio.sleep(0.01)
        reader, writer = await raw()  # and the next client is served
        writer.close()


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"{}\n",
        b'{"message":"request","id":3,"command":{"type":"explode","by":"x"}}\n',
        b'{"message":"request","id":3,"command":{"type":"force","by":"x","strategy":"teleport"}}\n',
        b'{"message":"request","id":3,"command":{"type":"pause"}}\n',
        b"\xff\xfe\n",
    ],
)
async def test_what_is_no_request_is_answered_so(line: bytes) -> None:
    async with served():
        reader, writer = await raw()
        writer.write(line)
        reply = decode_server.decode(await asyncio.wait_for(reader.readline(), 5))
        assert isinstance(reply, Reply)
        assert not reply.ok
        assert reply.id == (3 if b'"id":3' in line else 0)
        writer.write(encode(Request(9, c.Pause(by="me"))) + b"\n")
        assert decode_server.decode(await asyncio.wait_for(reader.readline(), 5)) == Reply(9, True, "heard Pause of me")
        writer.close()


async def test_the_socket_of_a_dead_process_is_replaced() -> None:
    path = socket_file(RUN)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    async with served():
        client = await RunClient.connect(RUN)
        client.close()


async def test_the_socket_of_a_live_process_is_not() -> None:
    async with served():
        with pytest.raises(EnvironmentFailure, match="belongs to a live process"):
            async with served():
                pass
        client = await RunClient.connect(RUN)
        client.close()


async def test_a_full_house(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CLIENT_LIMIT", 2)
    async with served():
        held = [await raw(), await raw()]
        reader, writer = await asyncio.open_unix_connection(str(socket_file(RUN)))
        assert await reader.read() == b""
        for _, one in [*held, (reader, writer)]:
            one.close()


async def test_another_protocol_is_said_so() -> None:
    async with served(protocol=99):
        with pytest.raises(ProtocolError, match="speaks protocol 99"):
            await RunClient.connect(RUN)
        with pytest.raises(ProtocolError, match="speaks protocol 99"):
            await asyncio.to_thread(send, RUN, c.Pause(by="me"))


async def test_the_end_is_told_before_the_socket_closes() -> None:
    async with served() as server:
        reader, writer = await raw()
        server.tell(note(42))
        await server.close()
        assert decode_server.decode(await reader.readline()) == Advanced(42)
        assert await reader.read() == b""
        writer.close()


def test_a_long_home_does_not_make_a_long_socket_path(private_home: Path) -> None:
    assert private_home.exists()
    assert len(os.fsencode(socket_file("x" * 60))) <= 107
