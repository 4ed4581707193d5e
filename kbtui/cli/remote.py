"""A run on another machine, through ssh: `kbtui attach HOST:RUN` runs `kbtui attach RUN` there, in this terminal.

The cockpit runs beside the run, so that both are of one version and only the screen crosses the network: no port is opened and
no file is copied. What ssh is told in its own configuration (user, port, key, jump host) holds here too.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

from kbtui.errors import EnvironmentFailure, UsageError

_HOST = re.compile(r"(?:[\w.%+-]+@)?[A-Za-z0-9_][\w.-]*|(?:[\w.%+-]+@)?\[[0-9A-Fa-f:.%\w]+\]")
_SSH_FAILED = 255
_NOT_FOUND = 127
REMEDY = "kbtui must be on the PATH there, or name it: --remote-kbtui /path/to/kbtui"


def split_target(text: str | None) -> tuple[str, str | None] | None:
    """`user@host:run` as (destination, run); the run is None in `host:`. None for what names no host.

    Raises UsageError for what has a colon and whose first part is no host name: one that starts with a dash would be
    an option of ssh.
    """
    if text is None or ":" not in text:
        return None
    host, _, run = text.rpartition(":")
    if not _HOST.fullmatch(host):
        raise UsageError(f"{text!r} names no host: write HOST:RUN, such as gpu1:softmax, or a run's id")
    return host.replace("[", "").replace("]", ""), run or None


def attach_over_ssh(host: str, run: str | None, options: list[str], program: str = "kbtui") -> int:
    """Run `kbtui attach` on `host` in this terminal and return its exit status.

    `options` go to the remote command as they are. Raises EnvironmentFailure when there is no ssh, when the host cannot be
    reached and when it has no kbtui.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        raise EnvironmentFailure(
            "attaching to another machine needs ssh, which is not on the PATH: install OpenSSH's client"
        )
    remote = shlex.join([*shlex.split(program), "attach", *options, *([run] if run else [])])
    status = subprocess.run([ssh, "-t", "-o", "ServerAliveInterval=15", "--", host, remote], check=False).returncode
    if status == _SSH_FAILED:
        raise EnvironmentFailure(
            f"ssh to {host} failed or was cut: the run goes on there; try `ssh {host}`, then attach again"
        )
    if status == _NOT_FOUND:
        raise EnvironmentFailure(f"{host} found no `{program}`: {REMEDY}")
    return status
