"""Texts that people keep under a name: filters over runs, queries. One JSON file each, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kbtui.errors import HistoryError, UsageError
from kbtui.paths import data_dir

NAME_LIMIT = 40
"""Characters of a name: what a line of a list has room for."""


def saved_filters() -> Saved:
    """Filters over runs."""
    return Saved(data_dir() / "filters.json", "filter")


def saved_queries() -> Saved:
    """Queries to the history database."""
    return Saved(data_dir() / "queries.json", "query")


class Saved:
    """Named texts in the file at `path`. `noun` is what messages call one.

    Every method reads the file anew, so that two terminals see each other's. All raise HistoryError when the file
    cannot be read or written.
    """

    def __init__(self, path: Path, noun: str) -> None:
        self.path = path
        self.noun = noun

    def all(self) -> dict[str, str]:
        """Name -> text, by name."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise HistoryError(f"{self.path} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HistoryError(
                f"{self.path} is no list of names and texts ({error}): mend it, or move it away to start anew"
            ) from error
        return dict(sorted(found.items()))

    def get(self, name: str) -> str:
        """The text of that name. Raises UsageError when there is none."""
        known = self.all()
        if name not in known:
            names = ", ".join(known) or "none is saved yet"
            raise UsageError(f"no {self.noun} is saved as {name}: {names}")
        return known[name]

    def put(self, name: str, text: str) -> None:
        """Save `text` under `name`, in place of what had that name. Raises UsageError for a name that cannot be one."""
        name = name.strip()
        if not name or len(name) > NAME_LIMIT or not name.isprintable():
            raise UsageError(f"a name has 1 to {NAME_LIMIT} printable characters")
        self._write({**self.all(), name: text})

    def remove(self, name: str) -> None:
        """Forget a name. Raises UsageError when there is none."""
        self.get(name)
        self._write({known: text for known, text in self.all().items() if known != name})

    def _write(self, texts: dict[str, str]) -> None:
        # Beside it and then in its place: a crash leaves the old file or the new one, never half of one.
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(texts), indent=2) + b"\n")
                out.flush()
                os.fsync(out.fileno())
            os.replace(beside, self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise HistoryError(f"{self.path} cannot be written: {error.strerror}") from error
