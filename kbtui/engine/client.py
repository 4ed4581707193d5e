"""The other end of a run's socket: for the command line (`send`) and for the cockpit (`RunClient`).

Light on purpose: nothing of the engine, no numpy. Viewers read the journal themselves; the socket only says how far it
reaches, carries transient events, and takes commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator

import msgspec

from kbtui import paths
from kbtui.errors import KbtuiError, ProtocolError
from kbtui.state.commands import (
    PROTOCOL_VERSION,
    AnyCommand,
    Hello,
    Reply,
    Request,
    ServerMessage,
    decode_server,
    encode,
)

LINE_LIMIT = 4 << 20
"""Longest line in bytes, either way: room for an injected source, not for a flood."""
TIMEOUT_S = 5.0


class EngineGone(KbtuiError):
    """No process answers for the run."""


async def _read_message(reader: asyncio.StreamReader, run_id: str) -> ServerMessage | None:
    try:
        line = await reader.readline()
    except (ConnectionError, ValueError):
        return None
    return _decoded(line, run_id) if line else None


def _gone(run_id: str) -> EngineGone:
    return EngineGone(f"run {run_id} is not live: no process answers; go on with it by: kbtui run --continue {run_id}")


def _decoded(line: bytes, run_id: str) -> ServerMessage:
    try:
        return decode_server.decode(line)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ProtocolError(f"run {run_id} sent a message that this kbtui does not understand: {error}") from error


def _checked_hello(message: ServerMessage | None, run_id: str) -> Hello:
    if message is None:
        raise _gone(run_id)
    if not isinstance(message, Hello):
        raise ProtocolError(f"run {run_id} did not say hello first: use the same kbtui version as the run")
    if message.protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"run {run_id} speaks protocol {message.protocol} (kbtui {message.kbtui}), this kbtui speaks "
            f"{PROTOCOL_VERSION}: use the version that started the run"
        )
    return message


def send(run_id: str, command: AnyCommand, timeout_s: float = TIMEOUT_S) -> Reply:
    """Send one command to a live run and wait for its reply.

    A refusal is a Reply with `ok` False. Raises EngineGone when no process answers within `timeout_s` seconds, and
    ProtocolError when it speaks another version.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(paths.socket_file(run_id)))
            with connection.makefile("rwb") as stream:
                _checked_hello(_line(stream.readline(LINE_LIMIT), run_id), run_id)
                stream.write(encode(Request(1, command)) + b"\n")
                stream.flush()
                while True:
                    message = _line(stream.readline(LINE_LIMIT), run_id)
                    if message is None:
                        raise _gone(run_id)
                    if isinstance(message, Reply):
                        return message
        except TimeoutError as error:
            raise EngineGone(f"run {run_id} did not answer within {timeout_s:g} s: its process hangs") from error
        except OSError as error:
            raise _gone(run_id) from error


def _line(line: bytes, run_id: str) -> ServerMessage | None:
    return _decoded(line, run_id) if line else None


class RunClient:
    """One viewer's connection: `connect`, then iterate `messages` in one task and `send` from any other of the loop."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.hello: Hello | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    @classmethod
    async def connect(cls, run_id: str, timeout_s: float = TIMEOUT_S) -> RunClient:
        """Connect and take the server's Hello. Raises EngineGone or ProtocolError."""
        client = cls(run_id)
        try:
            async with asyncio.timeout(timeout_s):
                client._reader, client._writer = await asyncio.open_unix_connection(
                    str(paths.socket_file(run_id)), limit=LINE_LIMIT
                )
                client.hello = _checked_hello(await _read_message(client._reader, run_id), run_id)
        except TimeoutError as error:
            client.close()
            raise EngineGone(f"run {run_id} did not answer within {timeout_s:g} s: its process hangs") from error
        except OSError as error:
            raise _gone(run_id) from error
        except ProtocolError:
            client.close()
            raise
        return client

    async def messages(self) -> AsyncIterator[ServerMessage]:
        """What the server sends, replies included, until the connection ends. Must be running for `send` to return."""
        assert self._reader is not None, "connect first"
        try:
            while (message := await _read_message(self._reader, self.run_id)) is not None:
                if isinstance(message, Reply):
                    waiting = self._waiting.pop(message.id, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
                yield message
        finally:
            self._abandon()

    async def send(self, command: AnyCommand, timeout_s: float = TIMEOUT_S) -> Reply:
        """Send a command and wait for its reply. Raises EngineGone when the connection ends or nothing comes in time."""
        if self._writer is None or self._writer.is_closing():
            raise _gone(self.run_id)
        request = Request(next(self._ids), command)
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = waiting
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(encode(request) + b"\n")
                await self._writer.drain()
                return await waiting
        except TimeoutError as error:
            raise EngineGone(f"run {self.run_id} did not answer within {timeout_s:g} s: its process hangs") from error
        except ConnectionError as error:
            raise _gone(self.run_id) from error
        finally:
            self._waiting.pop(request.id, None)

    def close(self) -> None:
        """End the connection; may be called twice. The run does not care."""
        self._abandon()
        if self._writer is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be gone already
                self._writer.close()

    def _abandon(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_gone(self.run_id))
        self._waiting.clear()
