"""Plain printing: lines, tables and JSON. Foreign text is cleaned here, and nothing is parsed as markup."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence

import msgspec

from kbtui.text import clean_line

_LEAST = 6
"""No column is cut below this many cells, however narrow the terminal."""


class Column(msgspec.Struct, frozen=True):
    """A column's heading, the side numbers lean to, and whether it gives way when the terminal is narrow."""

    title: str
    right: bool = False
    gives: bool = False


def prepare() -> None:
    """Make the streams take any text: what the terminal's encoding lacks is shown as `?` instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # absent where a test or an embedder put its own stream
        if reconfigure is not None:
            reconfigure(errors="replace")


def discard() -> None:
    """Send what is still buffered nowhere: the reader is gone, and the interpreter flushes once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def line(text: str = "") -> None:
    """One line on stdout, cleaned."""
    sys.stdout.write(clean_line(text) + "\n")


def problem(text: str) -> None:
    """One line on stderr for what went wrong, cleaned."""
    sys.stderr.write(f"kbtui: {clean_line(text)}\n")


def note(text: str) -> None:
    """One line on stderr that is not part of the command's output."""
    sys.stderr.write(clean_line(text) + "\n")
    sys.stderr.flush()


def json(value: object) -> None:
    """`value` as one line of JSON on stdout, flushed, so that a reader can follow."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def width(text: str) -> int:
    """Terminal cells that `text` takes: wide characters two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Columns two cells apart. On a terminal too narrow, columns that give way are cut; in a pipe nothing is."""
    cells = [[clean_line(cell) for cell in row] for row in rows]
    widths = [max([width(column.title), *(width(row[i]) for row in cells)]) for i, column in enumerate(columns)]
    if sys.stdout.isatty():
        _shrink(columns, widths, shutil.get_terminal_size().columns)
    for row in ([column.title for column in columns], *cells):
        pieces = [_fit(cell, widths[i], columns[i].right) for i, cell in enumerate(row)]
        sys.stdout.write("  ".join(pieces).rstrip() + "\n")


def _shrink(columns: Sequence[Column], widths: list[int], room: int) -> None:
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for i in sorted((i for i, c in enumerate(columns) if c.gives), key=lambda i: -widths[i]):
        cut = min(max(excess, 0), max(widths[i] - _LEAST, 0))
        widths[i] -= cut
        excess -= cut


def _fit(text: str, cells: int, right: bool) -> str:
    if width(text) > cells:
        while text and width(text) > cells - 1:
            text = text[:-1]
        text += "…"
    space = " " * (cells - width(text))
    return space + text if right else text + space
