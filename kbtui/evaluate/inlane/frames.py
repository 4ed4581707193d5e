"""Frames over a Unix stream socket: 8 bytes of header (length, descriptors), JSON, and file descriptors beside it.

Both ends of every socket of a lane use this. A reader keeps its own buffer and never blocks on half a frame, so that a
peer that stops in the middle of one costs nothing but its own deadline.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

HEADER = struct.Struct("!II")
MAX_FRAME = 1 << 20
"""Bytes of JSON in one frame. What is larger goes through a memfd."""
MAX_DESCRIPTORS = 4
_CHUNK = 1 << 16


class FrameError(Exception):
    """The peer sent something that is not a frame, or one over the limits."""


class PeerGone(Exception):
    """The peer closed its end."""


def encode(message: dict[str, Any]) -> bytes:
    """`message` as compact ASCII JSON. Text that is not valid Unicode is replaced, so that it cannot break the frame."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False, default=_plain).encode("ascii")


def _plain(value: object) -> object:
    raise TypeError(f"{type(value).__name__} does not go into a frame")


def send_frame(sock: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one frame. Raises FrameError when it is over the limits, PeerGone when nobody listens, TimeoutError."""
    body = encode(message)
    if len(body) > MAX_FRAME or len(descriptors) > MAX_DESCRIPTORS:
        raise FrameError(f"a frame of {len(body)} bytes and {len(descriptors)} descriptors is over the limits")
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    try:
        sent = sock.sendmsg([HEADER.pack(len(body), len(descriptors)), body], ancillary)
        rest = (HEADER.pack(len(body), len(descriptors)) + body)[sent:]
        if rest:
            sock.sendall(rest)
    except (BrokenPipeError, ConnectionResetError) as gone:
        raise PeerGone(str(gone)) from gone


class FrameReader:
    """Reads frames from one socket, blocking or not as the socket is.

    Descriptors belong to the frame whose header counts them; they arrive in order and no later than its last byte.
    """

    def __init__(self, sock: socket.socket, limit: int = MAX_FRAME) -> None:
        self._sock = sock
        self._limit = limit
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()

    def pump(self) -> list[tuple[bytes, list[int]]]:
        """One read; the frames that it completed, each as (JSON, descriptors), which are the caller's to close.

        Raises PeerGone at the end of the stream, FrameError for what is no frame, BlockingIOError when nothing waits.
        """
        # room for more than allowed, so that too many are seen here and closed instead of being cut by the kernel
        space = socket.CMSG_SPACE(array.array("i").itemsize * MAX_DESCRIPTORS * 2)
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_CHUNK, space)
        except ConnectionResetError as gone:
            raise PeerGone(str(gone)) from gone
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self._descriptors.extend(received)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > MAX_DESCRIPTORS * 2:
            self.close_descriptors()
            raise FrameError("more descriptors than a frame may carry")
        if not data:
            raise PeerGone("end of stream")
        self._buffer += data
        return self._complete()

    def next(self) -> tuple[dict[str, Any], list[int]]:
        """Block until one whole frame is there. For ends that trust their peer and expect one answer at a time."""
        while True:
            frames = self._complete(at_most=1) or self.pump_one()
            if frames:
                body, descriptors = frames[0]
                message = json.loads(body)
                if not isinstance(message, dict):
                    raise FrameError("a frame holds one JSON object")
                return message, descriptors

    def pump_one(self) -> list[tuple[bytes, list[int]]]:
        """Like `pump`, but leaves all frames after the first in the buffer."""
        frames = self.pump()
        for body, descriptors in reversed(frames[1:]):
            self._buffer[:0] = HEADER.pack(len(body), len(descriptors)) + body
            self._descriptors.extendleft(reversed(descriptors))
        return frames[:1]

    def _complete(self, at_most: int = 0) -> list[tuple[bytes, list[int]]]:
        frames: list[tuple[bytes, list[int]]] = []
        while len(self._buffer) >= HEADER.size and not (at_most and len(frames) == at_most):
            length, count = HEADER.unpack_from(self._buffer)
            if length > self._limit or count > MAX_DESCRIPTORS:
                self.close_descriptors()
                raise FrameError(f"a frame claims {length} bytes and {count} descriptors, over the limits")
            if len(self._buffer) < HEADER.size + length:
                break
            if len(self._descriptors) < count:
                self.close_descriptors()
                raise FrameError(f"a frame claims {count} descriptors and carries fewer")
            body = bytes(self._buffer[HEADER.size : HEADER.size + length])
            del self._buffer[: HEADER.size + length]
            frames.append((body, [self._descriptors.popleft() for _ in range(count)]))
        return frames

    def close_descriptors(self) -> None:
        """Close the descriptors that no frame has taken."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
