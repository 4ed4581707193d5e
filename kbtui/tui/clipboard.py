"""Copying out of the terminal: OSC 52, and a file where that would not arrive."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

OSC52_LIMIT = 74_994
"""Bytes of text that terminals accept at most (100,000 of base64 with the escape around it)."""


def osc52(text: str, environment: dict[str, str] | None = None) -> str | None:
    """The escape sequence that copies `text`, wrapped for tmux or screen; None when it is too long to arrive."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > OSC52_LIMIT:
        return None
    env = os.environ if environment is None else environment
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\a"
    if env.get("TMUX"):
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if env.get("TERM", "").startswith("screen"):
        # screen takes strings of 768 bytes at most, so the sequence goes in pieces
        pieces = [sequence[i : i + 700] for i in range(0, len(sequence), 700)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


def to_file(text: str, name: str) -> Path:
    """Write `text` to a new private file in the temporary folder. Raises OSError."""
    handle, path = tempfile.mkstemp(prefix="kbtui-", suffix=f"-{name}")
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
    return Path(path)
