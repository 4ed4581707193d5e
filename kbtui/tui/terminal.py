"""What the terminal can do, asked before Textual is started."""

from __future__ import annotations

import codecs
import locale
import os
import sys
from dataclasses import dataclass

from kbtui.errors import UsageError

PLAIN_COLOURS = ("xterm-color", "linux", "ansi", "vt100", "screen", "xterm-16color", "rxvt", "cygwin")
"""`TERM` values of terminals with 8 or 16 colours."""


@dataclass(frozen=True)
class Terminal:
    """`ascii`: glyphs must be ASCII. `colours`: "none", "few" (8 or 16, the terminal's own) or "many"."""

    ascii: bool
    colours: str


def require_terminal(command: str, remedy: str) -> None:
    """Raise UsageError where a cockpit cannot be painted. `remedy` ends the sentence: what to do instead of `command`."""
    # Textual reads the keyboard from standard input and paints on standard error.
    for stream, name in ((sys.__stdin__, "standard input"), (sys.__stderr__, "standard error")):
        if stream is None or stream.closed or not stream.isatty():
            raise UsageError(f"`{command}` needs a terminal, and {name} is not one: {remedy}")
    term = os.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        raise UsageError(f"`{command}` cannot paint on a terminal of type {term or '(TERM is not set)'}: {remedy}")


def speaks_utf8() -> bool:
    """Whether both the locale and the stream that is painted on take UTF-8."""
    # not getpreferredencoding: under LC_ALL=C Python turns its UTF-8 mode on, and the terminal stays what it is
    names = (locale.getencoding(), getattr(sys.__stderr__, "encoding", None) or "ascii")
    try:
        return all(codecs.lookup(name).name == "utf-8" for name in names)
    except LookupError:
        return False


def describe_terminal() -> Terminal:
    """What the environment says of the terminal."""
    if "NO_COLOR" in os.environ:
        colours = "none"
    elif os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        colours = "many"
    else:
        term = os.environ.get("TERM", "")
        colours = "few" if term in PLAIN_COLOURS or term.endswith(("-color", "-16color")) else "many"
    return Terminal(ascii=not speaks_utf8(), colours=colours)
