"""Frames, sealed memory and the schema of what a candidate process may say."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.evaluate import wire
from kbtui.evaluate.inlane import frames, memfd


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


Pair = tuple[socket.socket, socket.socket]


def test_a_frame_arrives_with_its_descriptors(pair: Pair) -> None:
    memory = memfd.create_sealed([(0, memoryview(b"abc"))], 3)
    frames.send_frame(pair[0], {"first": 1})
    frames.send_frame(pair[0], {"second": 2}, [memory])
    frames.send_frame(pair[0], {"third": 3})
    reader = frames.FrameReader(pair[1])
    assert reader.next() == ({"first": 1}, [])
    message, descriptors = reader.next()
    assert message == {"second": 2}
    assert os.pread(descriptors[0], 3, 0) == b"abc"
    assert reader.next() == ({"third": 3}, [])
    for descriptor in (memory, *descriptors):
        os.close(descriptor)


def test_half_a_frame_does_not_block(pair: Pair) -> None:
    pair[1].setblocking(False)
    reader = frames.FrameReader(pair[1])
    pair[0].sendall(struct.pack("!II", 10, 0) + b"{")
    assert reader.pump() == []
    with pytest.raises(BlockingIOError):
        reader.pump()
    pair[0].close()
    with pytest.raises(frames.PeerGone):
        reader.pump()


@pytest.mark.parametrize("header", [(1 << 31, 0), (frames.MAX_FRAME + 1, 0), (2, frames.MAX_DESCRIPTORS + 1), (2, 1)])
def test_frames_over_the_limits_are_refused(pair: Pair, header: tuple[int, int]) -> None:
    pair[0].sendall(struct.pack("!II", *header) + b"{}")
    with pytest.raises(frames.FrameError):
        frames.FrameReader(pair[1]).pump()


def test_a_flood_of_descriptors_is_refused_and_closed(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))
    null = os.open(os.devnull, os.O_RDONLY)
    socket.send_fds(pair[0], [struct.pack("!II", 2, 0) + b"{}"], [null] * 60)
    with pytest.raises(frames.FrameError):
        frames.FrameReader(pair[1]).pump()
    os.close(null)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_message_of_ours_that_is_too_large_is_refused(pair: Pair) -> None:
    with pytest.raises(frames.FrameError):
        frames.send_frame(pair[0], {"text": "x" * (frames.MAX_FRAME + 1)})


def test_sealed_memory_cannot_change() -> None:
    memory = memfd.create_sealed([(8, memoryview(b"tail"))], 12)
    memfd.check_sealed(memory, 12)
    assert os.pread(memory, 12, 0) == bytes(8) + b"tail"
    for change in (
        lambda: os.ftruncate(memory, 1),
        lambda: os.ftruncate(memory, 99),
        lambda: os.pwrite(memory, b"x", 0),
    ):
        with pytest.raises(PermissionError):
            change()
    mapped = memfd.map_private(memory, 12)
    mapped[0] = 1
    mapped.close()
    assert os.pread(memory, 1, 0) == b"\0"
    os.close(memory)


@pytest.mark.parametrize("missing", [fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE])
def test_a_missing_seal_is_noticed(missing: int) -> None:
    memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 8)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, memfd.SEALS & ~missing)
    with pytest.raises(memfd.SealError, match="sealed"):
        memfd.check_sealed(memory, 8)
    os.close(memory)


def test_another_size_or_no_memfd_is_noticed() -> None:
    memory = memfd.create_sealed([], 8)
    with pytest.raises(memfd.SealError, match="8 bytes where 9"):
        memfd.check_sealed(memory, 9)
    os.close(memory)
    reading, writing = os.pipe()
    with pytest.raises(memfd.SealError, match="not a memfd"):
        memfd.check_sealed(reading, 0)
    os.close(reading)
    os.close(writing)


def outputs(**changes: object) -> wire.Outputs:
    tensor = {"dtype": "float32", "shape": [2, 3], "strides": [3, 1], "span": 6, "offset": 0, **changes}
    message = {
        "type": "outputs", "case": 0, "call": 0, "size": 24, "names": ["0"], "tensors": [tensor],
        "changed": [], "shared": [-1], "launched": ["k"], "own": True,
    }  # fmt: skip
    found = wire.read_message(frames.encode(message))
    assert isinstance(found, wire.Outputs)
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"span": 5},
        {"offset": 4},
        {"dtype": "float64", "offset": 0},
        {"dtype": "object"},
        {"strides": [1]},
        {"shape": [1 << 40, 1], "span": 3 * ((1 << 40) - 1) + 1},
    ],
)
def test_a_description_beyond_its_memory_is_malformed(changes: dict[str, object]) -> None:
    memory = memfd.create_sealed([], 24)
    wire.check_outputs(outputs(), memory, 1 << 20)
    with pytest.raises(wire.Malformed):
        wire.check_outputs(outputs(**changes), memory, 1 << 20)
    with pytest.raises(wire.Malformed, match="allowed"):
        wire.check_outputs(outputs(), memory, 23)
    os.close(memory)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_malformed(body: bytes) -> None:
    try:
        found = wire.read_message(body)
    except wire.Malformed:
        return
    assert isinstance(found, wire.Say | wire.Ask | wire.Outputs | wire.Skipped | wire.Done | wire.Fault)


@pytest.mark.parametrize("body", [b"\xff", b'{"type":"say","stage":"\xed\xa0\x80","text":""}', b"[" * 50_000, b"null"])
def test_odd_bytes_are_malformed(body: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.read_message(body)
