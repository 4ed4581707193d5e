"""What `kbtui doctor` finds, and that it says what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kbtui import doctor
from kbtui.cli import main as program
from kbtui.config import Settings
from kbtui.doctor import Finding, lanes, machine, session


def interpreter(folder: Path, answer: str) -> str:
    """An executable that answers every question by `answer`."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\ncat <<'EOF'\n{answer}\nEOF\n")
    file.chmod(0o755)
    return str(file)


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def test_every_subject_is_looked_at_and_this_machine_is_fit() -> None:
    found = by_subject(doctor.examine(Settings()))
    assert {
        "kbtui",
        "lane",
        "torch",
        "triton",
        "ptxas",
        "gpu",
        "landlock",
        "network",
        "data",
        "history",
        "terminal",
    } <= set(found)
    assert {"clipboard", "logout", "keys"} <= set(found)
    assert not [finding for finding in found.values() if finding.state == "fails"]


def test_an_interpreter_that_is_not_there() -> None:
    (finding,) = lanes.lane_findings("/nowhere/python")
    assert finding.state == "fails"
    assert "--python" in finding.text


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    answer = json.dumps({"python": "3.12.1", "torch_error": "ModuleNotFoundError: \x1b[2J", "triton": "3.6.0"})
    found = by_subject(lanes.lane_findings(interpreter(tmp_path, answer)))
    assert found["torch"].state == "fails"
    assert "install torch 2.6 or newer" in found["torch"].text
    assert "\x1b" not in found["torch"].text
    assert found["triton"].state == "ok"


@pytest.mark.parametrize(("torch", "state"), [("2.5.9", "fails"), ("2.6.0+cu124", "ok"), ("10.0", "ok")])
def test_versions_are_compared_as_numbers(torch: str, state: str, tmp_path: Path) -> None:
    answer = json.dumps({"python": "3.12.1", "torch": torch, "triton": "3.9.0", "numpy": "2.4.0"})
    found = by_subject(lanes.lane_findings(interpreter(tmp_path, answer)))
    assert found["torch"].state == state


@pytest.mark.parametrize(("numpy", "named"), [("2.4.6", True), ("2.3.9", False)])
def test_the_interpreter_mode_of_triton_36_and_numpy(numpy: str, named: bool, tmp_path: Path) -> None:
    answer = json.dumps({"python": "3.12.1", "torch": "2.11.0", "triton": "3.6.0", "numpy": numpy})
    found = by_subject(lanes.lane_findings(interpreter(tmp_path, answer)))
    assert ("numpy" in found) == named


def test_an_interpreter_that_talks_nonsense(tmp_path: Path) -> None:
    (finding,) = lanes.lane_findings(interpreter(tmp_path, "hello"))
    assert finding.state == "fails"


def test_a_data_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_HOME", "/proc/nowhere")
    found = machine.data_finding()
    assert found.state == "fails"
    assert "KBTUI_HOME" in found.text


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/data/a/b", "nfs4"), ("/data", "nfs4"), ("/database", "ext4"), ("/my disk/x", "xfs"), ("/", "ext4")],
)
def test_file_system_of_a_path(path: str, kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "40 22 0:41 / /data rw - nfs4 server:/data rw\n"
        "41 22 8:2 / /my\\040disk rw shared:3 - xfs /dev/sdb1 rw\n"
    )
    assert machine.filesystem(Path(path), mounts) == kind


def test_a_network_file_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "filesystem", lambda _: "nfs4")
    assert machine.data_finding().state == "limits"


def test_the_command_fails_when_a_run_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.dumps({"python": "3.12.1", "triton": "3.6.0"})
    assert program.main(["doctor", "--python", interpreter(tmp_path, answer), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["python"]["origin"] == "--python"
    assert report["settings"]["seed"] == {"value": 0, "origin": "default"}
    assert {"subject", "state", "text"} == set(report["findings"][0])


def test_the_command_prints_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KBTUI_TARGET", "sm_80")
    assert program.main(["doctor", "--python", sys.executable]) == 0
    printed = capsys.readouterr().out
    assert any(line.split() == ["target", '"sm_80"', "KBTUI_TARGET"] for line in printed.splitlines())


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ({"ptxas": ["sm_80", "sm_90"], "targets": ["sm_90"]}, "ok", "knows sm_90"),
        ({"ptxas": ["sm_80", "sm_90"], "targets": ["sm_100"]}, "fails", "TRITON_PTXAS_PATH"),
        ({"ptxas": ["sm_80", "sm_90"]}, "ok", "knows sm_80"),
        ({"ptxas": ["sm_90"]}, "fails", "knows no sm_80"),
        ({"ptxas_error": "/x/ptxas: not found"}, "fails", "reinstall triton"),
    ],
)
def test_the_assembler_and_the_gpu(answer: dict[str, object], state: str, said: str, tmp_path: Path) -> None:
    known = {"python": "3.12.1", "torch": "2.11.0", "triton": "3.6.0", "numpy": "2.3.0"}
    found = by_subject(lanes.lane_findings(interpreter(tmp_path, json.dumps(known | answer)), "sm_80"))
    assert found["ptxas"].state == state
    assert said in found["ptxas"].text


def test_logout(tmp_path: Path) -> None:
    conf = tmp_path / "logind.conf"
    conf.write_text("[Login]\n#KillUserProcesses=no\n")
    nobody = tmp_path / "nobody"
    assert session.logout_finding({}, (str(conf),), nobody).state == "ok"
    conf.write_text("[Login]\nKillUserProcesses=yes\n")
    found = session.logout_finding({}, (str(conf),), nobody)
    assert found.state == "limits"
    assert "loginctl enable-linger" in found.text
    assert session.logout_finding({}, (str(conf),), tmp_path).state == "ok"
    (tmp_path / "later.conf").write_text("[Login]\nKillUserProcesses=no\n")
    assert (
        session.logout_finding({}, (str(conf), str(tmp_path)), nobody).state == "limits"
    )  # logind.conf sorts last there
    slurm = session.logout_finding({"SLURM_JOB_ID": "17"}, (), nobody)
    assert slurm.state == "limits"
    assert "Slurm job 17" in slurm.text


def test_keys_are_named_and_not_shown() -> None:
    found = session.keys_finding({"OPENAI_API_KEY": "sk-planted-secret", "EMPTY_API_KEY": "", "HOME": "/x"})
    assert found.text == "OPENAI_API_KEY"
    assert session.keys_finding({}).state == "absent"


def test_tmux_that_keeps_the_clipboard_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmux = tmp_path / "tmux"
    tmux.write_text('#!/bin/sh\nif [ "$1" = -V ]; then echo "tmux 3.3a"; else echo "set-clipboard $KEEP"; fi\n')
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("KEEP", "off")
    found = session.clipboard_finding({"TMUX": "/tmp/tmux-0/default,1,0"})
    assert found.state == "limits"
    assert "tmux set -g set-clipboard on" in found.text
    monkeypatch.setenv("KEEP", "external")
    assert session.clipboard_finding({"TMUX": "x"}).text == "tmux 3.3a, set-clipboard external"
