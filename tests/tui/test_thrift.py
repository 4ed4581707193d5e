"""Fewer bytes, the same cells: what is sent instead of Textual's output looks the same in a terminal."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st

from kbtui.tui.thrift import Thrift

CODES = (
    "1",
    "2",
    "3",
    "4",
    "7",
    "9",
    "31",
    "97",
    "44",
    "103",
    "38;5;123",
    "48;5;7",
    "38;2;1;2;3",
    "48;2;40;41;42",
    "39",
    "49",
)
segments = st.tuples(st.lists(st.sampled_from(CODES), max_size=4), st.text("ab ★│", max_size=4))
moves = st.builds(lambda y, x: f"\x1b[{y};{x}H", st.integers(1, 5), st.integers(1, 20))
other = st.sampled_from(["\r\n", "\x1b[?2026h", "\x1b[?2026l", "\x1b[K", "\x1b[2J", "\x1b[m", "\x1b[0m", "plain", ""])


def spelled(segment: tuple[list[str], str]) -> str:
    codes, text = segment
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text


stream = st.lists(st.one_of(segments.map(spelled), segments.map(spelled), moves, other), max_size=30)


def cells(chunks: list[str]) -> list[list[tuple[object, ...]]]:
    screen = pyte.Screen(20, 5)
    feed = pyte.Stream(screen)
    for chunk in chunks:
        feed.feed(chunk)
    return [[tuple(screen.buffer[y][x]) for x in range(20)] for y in range(5)]


@given(st.lists(stream, max_size=4))
def test_every_cell_is_the_same(writes: list[list[str]]) -> None:
    sent = ["".join(pieces) for pieces in writes]
    thrift = Thrift()
    assert cells([thrift.rewrite(data) for data in sent]) == cells(sent)


def test_a_style_is_sent_as_its_difference() -> None:
    thrift = Thrift()
    dark = "48;2;17;21;28"
    sent = thrift.rewrite(
        f"\x1b[38;2;1;2;3;{dark}mone\x1b[0m\x1b[38;2;1;2;3;{dark}m two\x1b[0m\x1b[38;2;9;9;9;{dark}m!\x1b[0m"
    )
    assert sent == f"\x1b[0;38;2;1;2;3;{dark}mone two\x1b[38;2;9;9;9m!"
    assert thrift.rewrite(f"\r\n\x1b[3;1H\x1b[38;2;9;9;9;{dark}m?\x1b[0m") == "\r\n\x1b[3;1H?"


def test_what_may_erase_or_leave_gets_its_reset_first() -> None:
    thrift = Thrift()
    thrift.rewrite("\x1b[7mx\x1b[0m")
    assert thrift.rewrite("\x1b[?1049l") == "\x1b[0m\x1b[?1049l"


def test_after_another_program_nothing_is_taken_for_granted() -> None:
    thrift = Thrift()
    thrift.rewrite("\x1b[1mx\x1b[0m")
    thrift.forget()
    assert thrift.rewrite("\x1b[1my\x1b[0m") == "\x1b[0;1my"
