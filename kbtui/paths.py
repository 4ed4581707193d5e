"""Every path kbtui reads or writes outside a problem's folder.

`KBTUI_HOME` moves the data; `XDG_CONFIG_HOME` moves the configuration (platformdirs). Sockets do not live in the data
folder:
a path over 107 bytes cannot be bound, and NFS has no sockets.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from kbtui.errors import EnvironmentFailure


def data_dir() -> Path:
    """`$KBTUI_HOME`, else the platform's user data folder. Not created here."""
    home = os.environ.get("KBTUI_HOME")
    if home:
        return Path(home).expanduser().resolve()
    import platformdirs

    return Path(platformdirs.user_data_dir("kbtui", appauthor=False))


def config_dir() -> Path:
    """The platform's user configuration folder for kbtui. Not created here."""
    import platformdirs

    return Path(platformdirs.user_config_dir("kbtui", appauthor=False))


def config_file() -> Path:
    """The user's configuration file, which need not exist."""
    return config_dir() / "config.toml"


def runs_dir() -> Path:
    """Where each run has its folder."""
    return data_dir() / "runs"


def run_dir(run_id: str) -> Path:
    """The folder of one run: `journal.jsonl`, `lock`, `run.log`, `problem/`, `best/`."""
    return runs_dir() / run_id


def journal_file(run_id: str) -> Path:
    """The run's journal: append-only JSON lines, the truth about the run."""
    return run_dir(run_id) / "journal.jsonl"


def history_file() -> Path:
    """The DuckDB file derived from the journals."""
    return data_dir() / "history.duckdb"


def socket_dir() -> Path:
    """`/tmp/kbtui-<uid>`, created with mode 0700.

    Raises EnvironmentFailure when it exists and belongs to someone else or is open to others.
    """
    path = Path("/tmp") / f"kbtui-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    seen = os.lstat(path)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise EnvironmentFailure(f"{path} is not a folder of yours: remove it or ask its owner to, then try again")
    if stat.S_IMODE(seen.st_mode) != 0o700:
        os.chmod(path, 0o700)
    return path


def socket_file(run_id: str) -> Path:
    """The run process's socket. The name is short because a Unix socket's path may have 107 bytes at most.

    It holds a digest of the data folder, since runs of different folders may have the same id.
    """
    home = hashlib.sha256(os.fsencode(data_dir())).hexdigest()[:8]
    return socket_dir() / f"{run_id[-40:]}.{home}.sock"


def hints_file() -> Path:
    """Which hints for newcomers were shown."""
    return data_dir() / "hints-seen"


def themes_dir() -> Path:
    """The theme files that came with kbtui: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    shipped = package / "themes"
    return shipped if shipped.is_dir() else package.parent / "themes"


def user_themes_dir() -> Path:
    """Theme files of the user's own."""
    return config_dir() / "themes"


def problems_dir() -> Path:
    """Problems that `kbtui import` made, by suite."""
    return data_dir() / "problems"


def benchmarks_dir() -> Path:
    """Where `kbtui bench` keeps its rows and tables, one folder per benchmark."""
    return data_dir() / "benchmarks"


def library_dir() -> Path:
    """The bundled problems."""
    return Path(__file__).resolve().parent / "problems" / "library"
