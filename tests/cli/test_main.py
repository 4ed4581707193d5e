"""How the program ends: exit statuses, one line for a failure, a report for a bug, silence for a closed pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbtui import __version__, paths
from kbtui.cli import main as program
from kbtui.cli.program import app
from kbtui.errors import EnvironmentFailure, UsageError

KBTUI = [sys.executable, "-m", "kbtui"]


def kbtui(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*KBTUI, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options
    )


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `kbtui runs` fail by `error`."""

    def fail() -> None:
        raise error

    monkeypatch.setattr("kbtui.history.runs.list_runs", fail)


def test_version() -> None:
    done = kbtui("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kbtui {__version__}\n", "")


def test_only_what_the_command_line_needs_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kbtui", "--version"], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert {"kbtui", "typer"} <= loaded
    assert (
        loaded & {"textual", "duckdb", "numpy", "sklearn", "libcst", "litellm", "torch", "triton", "asyncio"} == set()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["run", "softmax", "--nope"], "No such option"),
        (["run"], "name either a PROBLEM"),
        (["run", "softmax", "--continue", "x"], "name either a PROBLEM"),
        (["run", "softmax", "--iterations", "-1"], "--iterations must be a whole number of 1 or more, not -1"),
        (["run", "softmax", "--iterations", "few"], "Invalid value for '--iterations'"),
        (["run", "softmax", "--objective", "best"], "--objective must be one of geomean, total, worst"),
        (["run", "softmax", "--headless", "--detach"], "choose one"),
        (["run", "softmax", "--json"], "--headless"),
        (["run", "softmax", "--policy-parameter", "c"], "NAME=VALUE"),
        (["run", "softmax", "--headless", "--policy", "papier"], "paper"),
        (["run", "softmax", "--headless", "--policy-parameter", "zeta=3"], "zeta"),
        (["run", "softmax", "--headless", "--policy-parameter", "c=abc"], "c must be a number, not a text"),
        (["run", "softmax", "--headless", "--policy-parameter", "clusters=99"], "clusters must be a whole number <= 6"),
        (["run", "softmax", "--headless", "--model", "openai/gpt-5"], "--model is for --generator llm"),
        (["run", "softmax", "--headless", "--model-parameter", "top_p=1"], "--model-parameter is for --generator llm"),
        (["budget", "x"], "name what is to change"),
        (["run", "softmax", "--headless", "--generator", "monkeys"], "rewrite"),
        (["run", "softmax", "--headless", "--device", "abacus"], "abacus"),
        (["run", "softmax", "--headless", "--device", "cpu", "--target", "sm_1"], "sm_90"),
        (["run", "soft", "--headless"], "softmax"),
        (["run", "softmax"], "--headless"),
        (["attach"], "needs a terminal"),
        (["pause", "x"], "no runs yet"),
        (["export"], "no runs yet"),
        (["force", "x", "--strategy", "tilling"], "tiling, vectorization"),
        (["inject", "x", "/nowhere/kernel.py"], "cannot be read"),
    ],
)
def test_usage_errors_are_one_sentence_and_status_2(arguments: list[str], said: str) -> None:
    done = kbtui(*arguments)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert done.stdout == ""


def test_expected_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, EnvironmentFailure("the disk is full:\nfree some"))
    assert program.main(["runs"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "kbtui: the disk is full:␊free some\n"


def test_the_class_of_an_error_decides_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, UsageError("no"))
    assert program.main(["runs"]) == 2


@pytest.mark.parametrize("switch", ["flag", "variable"])
def test_debug_adds_the_traceback(
    switch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, EnvironmentFailure("no"))
    monkeypatch.setenv("KBTUI_DEBUG", "1" if switch == "variable" else "")
    assert program.main(["--debug", "runs"] if switch == "flag" else ["runs"]) == 1
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert captured.err.endswith("kbtui: no\n")


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert program.main(["runs"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_leaves_a_report_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    failing(monkeypatch, ZeroDivisionError("near very-secret-value"))
    assert program.main(["runs"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    (report,) = (paths.data_dir() / "crashes").iterdir()
    assert str(report) in captured.err
    text = report.read_text()
    assert "ZeroDivisionError" in text
    assert f"kbtui {__version__}" in text
    assert "very-secret-value" not in text + captured.err


def test_a_bug_with_nowhere_to_report_still_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBTUI_HOME", "/proc/nowhere")
    failing(monkeypatch, ZeroDivisionError("oh"))
    assert program.main(["runs"]) == 1
    assert "KBTUI_DEBUG=1" in capsys.readouterr().err


def test_a_closed_pipe_is_silent() -> None:
    process = subprocess.Popen([*KBTUI, "keys", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 0
    assert said == b""


def test_interrupted_from_the_keyboard(tmp_path: Path) -> None:
    """A real SIGINT, at a moment when the program waits."""
    fifo = tmp_path / "kernel.py"
    os.mkfifo(fifo)
    process = subprocess.Popen([*KBTUI, "inject", "x", str(fifo)], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stderr is not None
    writer = os.open(fifo, os.O_WRONLY)  # returns once the program has opened the other end, and now waits for text
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    os.close(writer)
    process.stderr.close()
    assert process.wait(timeout=30) == 130
    assert b"Traceback" not in said


def test_text_that_the_encoding_lacks_is_replaced() -> None:
    done = kbtui("keys", env={**os.environ, "PYTHONIOENCODING": "ascii:strict"})
    assert done.returncode == 0
    assert done.stderr == ""


def test_help_of_every_command() -> None:
    from typer.main import get_command

    names = list(get_command(app).commands)
    for name in names:
        assert program.main([name, "--help"]) == 0
    assert {"run", "runs", "attach", "history", "check", "doctor", "keys", "themes", "policies", "export"} <= set(names)


STEERING = ("pause", "resume", "step", "stop", "force", "ban", "unban", "inject", "pin", "unpin", "kill", "cancel", "tag",
            "hint", "budget", "undo")  # fmt: skip


@pytest.mark.parametrize("command", STEERING)
def test_every_steering_command_answers_as_json_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["hint", "x"], ["hint", "x", "use one warp", "--clear"]])
def test_a_hint_is_a_text_or_is_cleared(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 2
    assert "either the hint's text or --clear" in capsys.readouterr().err
