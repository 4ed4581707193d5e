"""Sending styles with fewer bytes: only what changes from one piece of text to the next.

Textual sends each piece of a line as `style text reset`, with both colours whole: 42 bytes around a word of eight. Over SSH
that is most of what a cockpit sends. Here resets are held back until something depends on them, and a style is sent as
the difference from the one in force. What the terminal shows is the same; a test compares the two cell by cell.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_ONLY_MOVES = re.compile(r"(?:\r|\n|\x1b\[\d+;\d+H)*")


class Style:
    """What a sequence of SGR codes after a reset sets: at most two colours, and attributes."""

    __slots__ = ("attributes", "back", "fore")

    def __init__(self, codes: str) -> None:
        self.fore = self.back = ""
        attributes: list[str] = []
        parts = iter(codes.split(";"))
        for code in parts:
            if code in ("38", "48"):
                kind = next(parts, "")
                colour = ";".join((code, kind, *(next(parts, "") for _ in range(1 if kind == "5" else 3))))
            elif len(code) > 1 and code[:-1] in ("3", "4", "9", "10"):
                colour = "" if code in ("39", "49") else code
            else:
                attributes += [code] if code else []
                continue
            if code.startswith(("4", "10")):
                self.back = colour
            else:
                self.fore = colour
        self.attributes = frozenset(attributes)


class Thrift:
    """Rewrites the stream to one terminal, which it must see whole and in order."""

    def __init__(self) -> None:
        self._wanted = ""
        """The codes since the last reset, as Textual means them."""
        self._in_force: str | None = None
        """The codes in force at the terminal; None when unknown."""

    def forget(self) -> None:
        """Somebody else may have written to the terminal."""
        self._in_force = None

    def rewrite(self, data: str) -> str:
        """What to send instead of `data`."""
        pieces = _SGR.split(data)
        out: list[str] = []
        self._text(pieces[0], out)
        for codes, text in zip(pieces[1::2], pieces[2::2], strict=True):
            if codes in ("", "0"):
                self._wanted = ""
            else:
                self._wanted = f"{self._wanted};{codes}" if self._wanted else codes
            self._text(text, out)
        return "".join(out)

    def _text(self, text: str, out: list[str]) -> None:
        if not text:
            return
        # moving the cursor takes no style along; anything else may print, or erase in the colour in force
        if self._wanted != self._in_force and _ONLY_MOVES.fullmatch(text) is None:
            change = _full(self._wanted) if self._in_force is None else _change(self._in_force, self._wanted)
            if change:
                out.append(f"\x1b[{change}m")
            self._in_force = self._wanted
        out.append(text)


def _full(codes: str) -> str:
    return f"0;{codes}" if codes else "0"


@lru_cache(maxsize=4096)
def _change(before: str, after: str) -> str:
    """The codes that lead from one style to another; "" when they are the same."""
    old, new = Style(before), Style(after)
    if not after or (old.attributes - new.attributes):
        return _full(after)
    codes = sorted(new.attributes - old.attributes)
    if new.fore != old.fore:
        codes.append(new.fore or "39")
    if new.back != old.back:
        codes.append(new.back or "49")
    change = ";".join(codes)
    return change if len(change) <= len(_full(after)) else _full(after)
