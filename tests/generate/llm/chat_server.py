"""A local HTTP server that speaks chat completions, streamed or not, and misbehaves on demand.

It is a real server on a loopback port, in a thread of its own: what is tested is what goes over the wire.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

LONGEST_BODY = 16 << 20


@dataclass(frozen=True)
class Answer:
    """What the server does with one request.

    `status` other than 200 sends `error` as the body. `pieces` is into how many chunks a streamed reply is cut.
    `drop_after` hangs up after so many of them, without an end; `drop_before` hangs up before any byte. `garbage` puts a
    line that is no JSON in the middle of the stream. `usage` False leaves the counts out, `null` makes the content null.
    """

    text: str = ""
    reasoning: str = ""
    finish: str | None = "stop"
    status: int = 200
    error: dict[str, Any] | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    pause_s: float = 0.0
    pieces: int = 8
    drop_before: bool = False
    drop_after: int | None = None
    garbage: bool = False
    no_end: bool = False
    usage: bool = True
    null: bool = False
    prompt_tokens: int = 100
    completion_tokens: int = 50


@dataclass(frozen=True)
class Received:
    """One request as it came in. `number` counts from 1."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float

    @property
    def prompt(self) -> str:
        """Every message's text, one after the other."""
        return "\n".join(str(message["content"]) for message in self.body["messages"])


class ChatServer:
    """Answers each request with what `script` makes of it; use it as a context manager."""

    def __init__(self, script: Callable[[Received], Answer]) -> None:
        self._script = script
        self.received: list[Received] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.flight: list[tuple[float, int]] = []
        """(time, requests in flight) at every change."""
        self.abandoned = 0
        """Requests whose client hung up before the reply was whole."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="chat server")
        self._up = threading.Event()
        self.port = 0

    @property
    def base(self) -> str:
        """For `--api-base`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(server.wait_closed())
            self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (received := await self._read(reader)) is not None:
                self._count(+1)
                try:
                    whole = await self._answer(self._script(received), received, writer)
                finally:
                    self._count(-1)
                if not whole:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.abandoned += 1
        except asyncio.CancelledError:  # the server closes; whoever waits for an answer gets none
            pass
        finally:
            writer.close()

    def _count(self, change: int) -> None:
        self.in_flight += change
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.flight.append((time.monotonic(), self.in_flight))

    async def _read(self, reader: asyncio.StreamReader) -> Received | None:
        first = await reader.readline()
        if not first:
            return None
        headers: dict[str, str] = {}
        while (line := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        size = int(headers.get("content-length", "0"))
        assert size <= LONGEST_BODY
        body = json.loads(await reader.readexactly(size) or b"{}")
        received = Received(len(self.received) + 1, first.decode().split()[1], headers, body, time.monotonic())
        self.received.append(received)
        return received

    async def _answer(self, answer: Answer, received: Received, writer: asyncio.StreamWriter) -> bool:
        """Send the answer; False when the connection is to be cut."""
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if answer.drop_before:
            return False
        if answer.status != 200:
            self._send(writer, answer.status, answer.headers, json.dumps(answer.error or {}).encode())
        elif received.body.get("stream"):
            return await self._stream(answer, received, writer)
        else:
            self._send(writer, 200, answer.headers, json.dumps(_whole(answer, received)).encode())
        await writer.drain()
        return True

    @staticmethod
    def _send(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: bytes) -> None:
        lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def _stream(self, answer: Answer, received: Received, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number, data in enumerate(_chunks(answer, received)):
            if answer.drop_after is not None and number >= answer.drop_after:
                await writer.drain()
                return False
            if answer.garbage and number == 2:
                _put(writer, b"data: {this is no JSON\n\n")
            _put(writer, b"data: " + json.dumps(data).encode() + b"\n\n")
            await writer.drain()
            if answer.pause_s:
                await asyncio.sleep(answer.pause_s)
        if not answer.no_end:
            _put(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _put(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _head(received: Received, kind: str) -> dict[str, Any]:
    return {"id": f"r{received.number}", "object": kind, "created": 1, "model": received.body.get("model", "")}


def _whole(answer: Answer, received: Received) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if answer.null else answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    reply = _head(received, "chat.completion")
    reply["choices"] = [{"index": 0, "message": message, "finish_reason": answer.finish}]
    if answer.usage:
        reply["usage"] = _usage(answer)
    return reply


def _chunks(answer: Answer, received: Received) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return _head(received, "chat.completion.chunk") | {
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]
        }

    yield chunk({"role": "assistant", "content": None if answer.null else ""})
    if answer.reasoning:
        yield chunk({"reasoning_content": answer.reasoning})
    size = max(1, -(-len(answer.text) // answer.pieces))
    for start in range(0, len(answer.text), size):
        yield chunk({"content": answer.text[start : start + size]})
    if answer.finish is not None:
        yield chunk({}, answer.finish)
    if answer.usage and received.body.get("stream_options", {}).get("include_usage"):
        yield _head(received, "chat.completion.chunk") | {"choices": [], "usage": _usage(answer)}
