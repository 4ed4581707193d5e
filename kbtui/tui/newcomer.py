"""Hints for newcomers: a line on each screen the first time it is opened, and never again once it was put away."""

from __future__ import annotations

import contextlib
from pathlib import Path

PUT_AWAY = "all"


class Newcomer:
    """Which screens a person has seen, kept in a small file. Without a file nothing is hinted."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._seen: set[str] = set()
        if file is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):  # not there: nothing was seen yet
                self._seen = set(file.read_text(encoding="utf-8").split())

    def meets(self, screen: str) -> bool:
        """Whether the hint of a screen is to be shown; it is only asked once for each, for then the screen was seen."""
        if self._file is None or screen in self._seen or PUT_AWAY in self._seen:
            return False
        self._keep(screen)
        return True

    def forget(self) -> None:
        """No hint any more."""
        if PUT_AWAY not in self._seen:
            self._keep(PUT_AWAY)

    def _keep(self, word: str) -> None:
        self._seen.add(word)
        if self._file is not None:
            with contextlib.suppress(OSError):  # a hint that comes once more is no reason to complain
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text("\n".join(sorted(self._seen)) + "\n", encoding="utf-8")
