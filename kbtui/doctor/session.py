"""The terminal, and what happens to a run at logout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kbtui.doctor.finding import Finding
from kbtui.errors import KbtuiError
from kbtui.text import is_secret_name

LOGIND = ("/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d", "/usr/lib/systemd/logind.conf.d")
_OSC52_OFF = re.compile(r"set-clipboard\s+off")


def terminal_finding() -> Finding:
    """What the cockpit would find here."""
    from kbtui.tui.terminal import describe_terminal, require_terminal

    size = shutil.get_terminal_size()
    try:
        require_terminal("kbtui", "`kbtui run --headless` works without one")
    except KbtuiError as error:
        return Finding("terminal", "absent", str(error))
    seen = describe_terminal()
    glyphs = "ASCII glyphs" if seen.ascii else "UTF-8"
    return Finding(
        "terminal", "ok", f"TERM={os.environ['TERM']}, {size.columns}x{size.lines}, {glyphs}, {seen.colours} colours"
    )


def clipboard_finding(environment: Mapping[str, str] = os.environ) -> Finding:
    """Whether copying out of the cockpit arrives: OSC 52 passes through tmux only where tmux lets it."""
    if not environment.get("TMUX"):
        text = "copied text goes out by OSC 52; where the terminal ignores that, into a file whose path is shown"
        return Finding("clipboard", "ok", text)
    version = _said("tmux", "-V")
    options = _said("tmux", "show-options", "-g", "set-clipboard")
    if _OSC52_OFF.search(options):
        return Finding("clipboard", "limits", f"{version}: set-clipboard is off, run `tmux set -g set-clipboard on`")
    return Finding("clipboard", "ok", f"{version or 'tmux'}, {options or 'set-clipboard unknown'}")


def logout_finding(
    environment: Mapping[str, str] = os.environ, files: tuple[str, ...] = LOGIND, lingering: Path | None = None
) -> Finding:
    """Whether a detached run outlives the login. systemd ends a user's processes at logout where `KillUserProcesses=yes`;
    Slurm ends a job's processes with the job."""
    if job := environment.get("SLURM_JOB_ID"):
        text = (
            f"inside Slurm job {job}: a detached run ends with the job, so give the job enough time and use --continue"
        )
        return Finding("logout", "limits", text)
    if not _kills_user_processes(files):
        return Finding("logout", "ok", "a detached run goes on")
    user = environment.get("USER", "")
    linger = lingering if lingering is not None else Path("/var/lib/systemd/linger") / user
    if linger.exists():
        return Finding("logout", "ok", "KillUserProcesses=yes, and lingering is on: a detached run goes on")
    return Finding(
        "logout",
        "limits",
        "KillUserProcesses=yes: a detached run ends at logout; run `loginctl enable-linger` once, or use tmux",
    )


def keys_finding(environment: Mapping[str, str] = os.environ) -> Finding:
    """Which keys of model providers are set: names only."""
    names = sorted(
        name for name, value in environment.items() if value and name.endswith("_API_KEY") and is_secret_name(name)
    )
    if not names:
        return Finding("keys", "absent", "no provider's key is set: `--generator rewrite` and local servers need none")
    return Finding("keys", "ok", ", ".join(names))


def _kills_user_processes(files: tuple[str, ...]) -> bool:
    """What the last of logind's files says; systemd's own default is no."""
    said = False
    for place in files:
        path = Path(place)
        for file in sorted(path.glob("*.conf")) if path.is_dir() else [path]:
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            for value in re.findall(r"(?m)^\s*KillUserProcesses\s*=\s*(\w+)", text):
                said = value.lower() in ("yes", "true", "on", "1")
    return said


def _said(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
