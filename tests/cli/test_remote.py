"""Attaching to a run on another machine. `ssh` is a script here that runs what it is given on this one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kbtui.cli.remote import attach_over_ssh, split_target
from kbtui.errors import EnvironmentFailure, UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("softmax-20260101-120000-ab12", None),
        ("gpu1:softmax", ("gpu1", "softmax")),
        ("me@gpu-1.example.org:softmax-2", ("me@gpu-1.example.org", "softmax-2")),
        ("gpu1:", ("gpu1", None)),
        ("me@[fe80::1]:softmax", ("me@fe80::1", "softmax")),
    ],
)
def test_targets(text: str | None, expected: tuple[str, str | None] | None) -> None:
    assert split_target(text) == expected


@pytest.mark.parametrize("text", ["-oProxyCommand=touch x:run", ":run", "a b:run", "gpu;ls:run", "$(ls):run"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no host"):
        split_target(text)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ssh on the PATH; it keeps its arguments and runs the command in a shell, as sshd does."""
    script = tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, subprocess, sys\n"
        f"json.dump(sys.argv[1:], open({str(tmp_path / 'seen.json')!r}, 'w'))\n"
        "if sys.argv[-2] == 'down': sys.exit(255)\n"
        "sys.exit(subprocess.run(['sh', '-c', sys.argv[-1]]).returncode)\n"
    )
    script.chmod(0o755)
    kbtui = tmp_path / "bin" / "kbtui"
    kbtui.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"json.dump(sys.argv[1:], open({str(tmp_path / 'there.json')!r}, 'w'))\nsys.exit(7)\n"
    )
    kbtui.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_cockpit_runs_there_with_the_options_of_here(ssh: Path) -> None:
    assert attach_over_ssh("gpu1", "soft max; touch x", ["--read-only", "--theme", "kbtui-light"]) == 7
    seen = json.loads((ssh / "seen.json").read_text())
    assert seen[0] == "-t"
    assert seen[-3:-1] == ["--", "gpu1"]
    there = json.loads((ssh / "there.json").read_text())
    assert there == ["attach", "--read-only", "--theme", "kbtui-light", "soft max; touch x"]
    assert not (ssh / "x").exists()


def test_the_newest_run_there(ssh: Path) -> None:
    attach_over_ssh("gpu1", None, [])
    assert json.loads((ssh / "there.json").read_text()) == ["attach"]


def test_failures_name_host_and_remedy(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailure, match=r"ssh to down failed or was cut: the run goes on there"):
        attach_over_ssh("down", "run", [])
    with pytest.raises(EnvironmentFailure, match=r"gpu1 found no `/opt/none/kbtui`: .*--remote-kbtui"):
        attach_over_ssh("gpu1", "run", [], "/opt/none/kbtui")
    monkeypatch.setenv("PATH", str(ssh / "empty"))
    with pytest.raises(EnvironmentFailure, match="needs ssh, which is not on the PATH"):
        attach_over_ssh("gpu1", "run", [])
