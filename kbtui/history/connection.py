"""Opening the history database for one use: nobody keeps it open, since one reader already shuts out the writer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbtui import clock
from kbtui.errors import HistoryError

if TYPE_CHECKING:
    import duckdb

WAIT_S = 3.0
"""How long a call waits for another process to close the file; a use takes 15-30 ms."""
_PAUSE_S = 0.02
_WRITER_MEMORY = "512MB"
"""What a transaction may hold in memory; the rest waits in files beside the database."""
_LOCKED = "Could not set lock on file"
_HOLDER = re.compile(r"PID (\d+)")
# DuckDB refuses one file opened twice in a process with different rights, so threads take turns.
_turn = threading.RLock()

Mode = Literal["read", "write", "export"]


class DamagedHistoryError(HistoryError):
    """The file is no database, or not one that this DuckDB reads."""


@contextmanager
def connect(
    path: Path, mode: Mode, wait_s: float = WAIT_S, *, target: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database at `path` for the length of a `with` block.

    `read` needs an existing file and can neither change it nor touch any other file; `write` creates it and lets no
    query reach other files either, but for `target` where that is given; `export` is `read`, with leave to write the
    file `target`. Raises HistoryError when
    another process holds the file for longer than `wait_s`, DamagedHistoryError when the file is no database that this
    DuckDB reads.
    """
    with _turn:
        named_later = mode == "export" or target is not None
        connection = _open(path, mode, wait_s, closed=not named_later)
        try:
            # Where Python has no script (an interactive one, `python -c`), DuckDB draws a bar on standard output after
            # two seconds, across a screen or between lines of JSON.
            connection.execute("set enable_progress_bar = false")
            if named_later:
                _allow_only(connection, target)
            yield connection
        finally:
            connection.close()


def _allow_only(connection: duckdb.DuckDBPyConnection, target: Path | None) -> None:
    """Leave to reach the file `target` and no other; a query cannot widen it."""
    allowed = "'" + str(target).replace("'", "''") + "'" if target is not None else ""
    connection.execute(f"set allowed_paths = [{allowed}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _open(path: Path, mode: Mode, wait_s: float, *, closed: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    # No extension is fetched from the network and no query reads or writes files beside the database.
    config: dict[str, str | bool | int | float | list[str]] = {"autoinstall_known_extensions": "false"}
    if mode == "write":
        config["threads"] = 1  # what is written is one short file after the other: more would only wait for each other
        config["memory_limit"] = _WRITER_MEMORY
    if closed:  # else it is switched off once the one file is named: DuckDB takes no names afterwards
        config["enable_external_access"] = "false"
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = clock.monotonic() + wait_s
    while True:
        try:
            return duckdb.connect(str(path), read_only=mode != "write", config=config)
        except duckdb.Error as error:
            if _LOCKED not in str(error):
                raise damaged(path, error) from error
            if clock.monotonic() >= deadline:
                raise HistoryError(
                    f"{path} is held by {_holder(str(error))}: close it there, then try again"
                ) from error
        time.sleep(_PAUSE_S)


def damaged(path: Path, error: Exception) -> DamagedHistoryError:
    """The error for a file at `path` on which DuckDB failed with `error`."""
    return DamagedHistoryError(
        f"{path} cannot be used ({first_line(error)}): `kbtui history rebuild` makes it anew from the runs' journals"
    )


def first_line(error: Exception) -> str:
    """The first line of a DuckDB message, which goes on with hints and the query."""
    return str(error).strip().partition("\n")[0]


def _holder(message: str) -> str:
    found = _HOLDER.search(message)
    if found is None:
        return "another process"
    pid = found.group(1)
    try:
        words = (Path("/proc") / pid / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    command = b" ".join(words).decode(errors="replace").strip()
    return f"process {pid} ({command[:60]})" if command else f"process {pid}"
