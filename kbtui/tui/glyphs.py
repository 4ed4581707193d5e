"""The glyphs of the cockpit, all one cell wide, each with an ASCII twin of one character.

Where the terminal does not speak UTF-8, or `--ascii` asks for it, `to_ascii` is applied to every cell that is painted,
foreign text included; so the layout is the same in both.
"""

from __future__ import annotations

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
    "…": "~",
    "→": ">",
    "←": "<",
    "↑": "^",
    "×": "x",
    "µ": "u",
    "μ": "u",
    "±": "~",
    "°": "'",
    "Σ": "S",
    "≤": "<",
    "≥": ">",
    "█": "#",
    **dict(zip(SPARK, "_.-:=+*#", strict=True)),
}
"""Glyph -> twin. Every glyph that the cockpit paints of its own accord is here; a test holds that."""

_TABLE = str.maketrans(TWINS)


def to_ascii(text: str) -> str:
    """`text` in ASCII: known glyphs by their twins, C0 pictures as `^`, anything else as `?` per cell (two for wide ones)."""
    if text.isascii():
        return text
    from rich.cells import cell_len

    known = text.translate(_TABLE)
    if known.isascii():
        return known
    return "".join(c if c.isascii() else "^" if "\u2400" <= c <= "\u2421" else "?" * cell_len(c) for c in known)


def spark(values: list[float], top: float) -> str:
    """One cell per value, scaled from 0 to `top`; values outside are clipped. Empty when `top` is not positive."""
    if top <= 0:
        return ""
    last = len(SPARK) - 1
    return "".join(SPARK[min(last, max(0, round(v / top * last)))] for v in values)
