"""The glyphs of the cockpit, all one cell wide, each with an ASCII twin of one character.

Where the terminal does not speak UTF-8, or `--ascii` asks for it, `to_ascii` is applied to every cell that is painted,
foreign text included; so the layout is the same in both.
"""

from __future__ import annotations

import re

BEST = "★"
GOOD = "✓"
BAD = "✗"
ALARM = "⚠"
WORK = "↻"
NONE = "·"
MASKED = "▒"
BANNED = "⊘"
SAME = "≈"
SLOWER = "↓"
UNKNOWN = "?"
ORIGIN = "○"
PRUNED = "–"
LIVE = "●"
PAUSED = "‖"
STOPPED = "■"
FOLDED = "▸"
OPEN = "▾"
NEXT_LEFT = "»"
NEXT_RIGHT = "«"
BAR = "▌"
DOT = "•"
BY_PERSON = "›"
STEEP = "╱"
CUT = "…"
SPARK = "▁▂▃▄▅▆▇█"

TWINS: dict[str, str] = {
    BEST: "*",
    GOOD: "+",
    BAD: "x",
    ALARM: "!",
    WORK: "@",
    NONE: ".",
    MASKED: "#",
    BANNED: "b",
    SAME: "=",
    SLOWER: "v",
    ORIGIN: "o",
    PRUNED: "-",
    LIVE: "*",
    PAUSED: '"',
    STOPPED: "#",
    FOLDED: ">",
    OPEN: "v",
    NEXT_LEFT: ">",
    NEXT_RIGHT: "<",
    BAR: "|",
    DOT: "o",
    BY_PERSON: ">",
    STEEP: "/",
    "│": "|",
    "├": "|",
    "└": "`",
    "┘": "'",
    "─": "-",
    "╭": ".",
    "╮": ".",
    "╯": "'",
    "╰": "`",
    "┈": ".",
    "┌": ".",
    "┤": "|",
    "┬": "+",
    CUT: ".",
    "→": ">",
    "←": "<",
    "↑": "^",
    "×": "x",
    "µ": "u",
    "μ": "u",
    "±": "+",
    "°": "'",
    "Σ": "S",
    "≤": "<",
    "≥": ">",
    "█": "#",
    **dict(zip(SPARK, "_.-:=+*#", strict=True)),
}
"""Glyph -> twin. Every glyph that the cockpit paints of its own accord is here; a test holds that."""

_TABLE = str.maketrans(TWINS)
_CUT_END = re.compile(f"[!-~\u00b5]{CUT}(?= *$)")
"""The last character of one cell before the ellipsis of a cut, and that."""


def to_ascii(text: str) -> str:
    """`text` in ASCII: known glyphs by their twins, C0 pictures as `^`, anything else as `?` per cell (two for wide ones)."""
    if text.isascii():
        return text
    from rich.cells import cell_len

    # A tilde would look like a modelled number, and one dot like the end of a sentence; two keep the width.
    known = _CUT_END.sub("..", text).translate(_TABLE)
    if known.isascii():
        return known
    return "".join(c if c.isascii() else "^" if "\u2400" <= c <= "\u2421" else "?" * cell_len(c) for c in known)


def spark(values: list[float], top: float) -> str:
    """One cell per value, scaled from 0 to `top`; values outside are clipped. Empty when `top` is not positive."""
    if top <= 0:
        return ""
    last = len(SPARK) - 1
    return "".join(SPARK[min(last, max(0, round(v / top * last)))] for v in values)
