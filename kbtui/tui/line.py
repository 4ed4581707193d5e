"""Lines as the panes make them: spans of safe text, each with a role that the theme gives a style.

`LineBuilder` is the only maker of lines, and it cleans what it is given. So nothing a terminal acts upon gets into a
line, wherever the text comes from.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple, Protocol

from rich.cells import cell_len, set_cell_size

from kbtui.text import clean_line

ROLES: tuple[str, ...] = (
    "text", "dim", "faint", "strong", "label", "accent", "good", "bad", "warn", "info", "est", "mask", "ban",
    "curve", "sol", "trial", "title", "title-focus", "title-bar", "title-bar-focus", "key", "cursor",
    "cursor-blurred", "select", "tab", "tab-active", "add", "del", "hunk", "syn-keyword", "syn-name", "syn-string",
    "syn-number", "syn-comment", "syn-decorator",
)  # fmt: skip
"""Every role; `styles/roles.tcss` gives each its look, a test holds the two equal."""


class Span(NamedTuple):
    """Text of one role. `action` is the id of an action that a click on the span runs; never taken from content."""

    text: str
    role: str = "text"
    action: str = ""


_WORD = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")
"""A word with the blanks before it, and those behind the last."""
Line = tuple[Span, ...]
EMPTY: Line = ()


class Source(Protocol):
    """What a pane shows: lines made on demand, so that 5,000 candidates cost what is on the screen."""

    def __len__(self) -> int: ...

    def line(self, index: int, width: int) -> Line:
        """Line `index` for a pane `width` cells wide; longer lines are cut or scrolled by the pane."""
        ...


class Lines:
    """A source of lines that exist already. `wide` is the width of the longest, 0 when no line is meant to be scrolled to."""

    def __init__(self, lines: list[Line], *, wide: int = 0) -> None:
        self._lines = lines
        self.wide = wide

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:  # noqa: ARG002  (a source's signature)
        return self._lines[index]


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells: padded on the right, or cut with an ellipsis."""
    if width <= 0:
        return ""
    size = cell_len(text)
    if size <= width:
        return text + " " * (width - size)
    return set_cell_size(text, width - 1) + "…"


class LineBuilder:
    """Builds one line from left to right."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.cells = 0

    def add(self, text: str, role: str = "text", action: str = "") -> LineBuilder:
        """Append `text`, made safe."""
        safe = clean_line(text)
        if safe:
            self._spans.append(Span(safe, role, action))
            self.cells += cell_len(safe)
        return self

    def left(self, text: str, width: int, role: str = "text", action: str = "") -> LineBuilder:
        """Append `text` in exactly `width` cells, flush left."""
        return self.add(fit(clean_line(text), width), role, action)

    def right(self, text: str, width: int, role: str = "text") -> LineBuilder:
        """Append `text` in exactly `width` cells, flush right."""
        safe = clean_line(text)
        return self.add(" " * max(0, width - cell_len(safe)) + fit(safe, min(width, cell_len(safe))), role)

    def gap(self, cells: int = 1) -> LineBuilder:
        return self.add(" " * cells)

    def to(self, column: int, fill: str = " ", role: str = "text") -> LineBuilder:
        """Fill up to `column`; nothing when the line is that long already."""
        return self.add(fill * (column - self.cells), role) if column > self.cells else self

    def extend(self, line: Line) -> LineBuilder:
        """Append a line made by another builder."""
        self._spans.extend(line)
        self.cells += sum(cell_len(span.text) for span in line)
        return self

    def line(self) -> Line:
        return tuple(self._spans)


def text_line(text: str, role: str = "text") -> Line:
    """A line of one span."""
    return LineBuilder().add(text, role).line()


def both_ends(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of a line; where both do not fit, `right` stays and `left` is cut."""
    room = width - width_of(right) - 1
    return LineBuilder().extend(crop(left, max(room, 0))).to(room + 1).extend(right).line()


def width_of(line: Line) -> int:
    """Cells of a line."""
    return sum(cell_len(span.text) for span in line)


def crop(line: Line, width: int) -> Line:
    """The first `width` cells of a line, with an ellipsis where it was cut."""
    if width_of(line) <= width:
        return line
    out: list[Span] = []
    room = width
    for span in line:
        size = cell_len(span.text)
        if size < room:
            out.append(span)
            room -= size
            continue
        if room > 0:
            out.append(span._replace(text=fit(span.text + " ", room)))
        break
    return tuple(out)


def wrap(line: Line, width: int, *, rows: int, indent: int = 3) -> list[Line]:
    """A line in at most `rows` lines of `width` cells, broken where it has two blanks or, where that does not do, between
    words; the last is cut where that is not enough. Lines behind the first begin with `indent` blanks."""
    words = [span._replace(text=word) for span in line for word in _WORD.findall(span.text)]
    out = [LineBuilder()]
    for at, word in enumerate(words):
        size = cell_len(word.text.rstrip())
        if word.text.startswith("  "):
            whole = size + sum(
                cell_len(one.text) for one in takewhile(lambda one: one.text[:2] != "  ", words[at + 1 :])
            )
            size = whole if whole + indent <= width else size
        if size and out[-1].cells and out[-1].cells + size > width and len(out) < rows:
            out.append(LineBuilder().gap(indent))
        fresh = len(out) > 1 and out[-1].cells == indent
        out[-1].add(word.text.lstrip() if fresh else word.text, word.role, word.action)
    return [crop(one.line(), width) for one in out]


def changed_cells(old: Line, new: Line) -> tuple[int, int]:
    """The cells from the first to behind the last in which two lines differ; (0, 0) when they look the same.

    Behind the end of the shorter line a pane paints blanks, so these count as cells of it.
    """
    start = _alike(old, new)
    wide_old, wide_new = width_of(old), width_of(new)
    if wide_old != wide_new:
        return start, max(wide_old, wide_new)
    if start == wide_new:
        return 0, 0
    mirrored = [tuple(span._replace(text=span.text[::-1]) for span in reversed(line)) for line in (old, new)]
    return start, max(start, wide_new - _alike(mirrored[0], mirrored[1]))


def _alike(one: Line, other: Line) -> int:
    """Cells that two lines have in common at their beginning, roles included."""
    cells = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine == theirs:
            cells += cell_len(mine.text)
            continue
        if mine.role == theirs.role:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(mine.text, theirs.text, strict=False))
            cells += cell_len("".join(letter for letter, _ in same))
        break
    return cells


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)
