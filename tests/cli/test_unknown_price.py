"""A model whose price nobody knows: whoever sits at the terminal is asked, and without one the run does not begin."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kbtui import paths
from kbtui.cli import run as command
from kbtui.cli.main import main
from kbtui.engine.spec import RunSpec
from kbtui.errors import UnknownPriceError

RUN = ["run", "vector_add", "--generator", "llm", "--model", "openai/nobody-knows-it", "--device", "cpu"]
KEY = "sk-planted-0123456789abcdefgh"
needs_litellm = pytest.mark.skipif(find_spec("litellm") is None, reason="the extra kbtui[llm] is not installed")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """What `start_run` was asked for; it refuses a price that is unknown and not allowed."""
    asked: list[RunSpec] = []

    def start_run(spec: RunSpec) -> str:
        asked.append(spec)
        if not spec.generator_parameters["allow_unknown_price"]:
            raise UnknownPriceError("nobody knows what openai/nobody-knows-it costs")
        return "the-run"

    from kbtui.engine import launch

    monkeypatch.setattr(launch, "start_run", start_run)
    return asked


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, *, answer: bool) -> None:
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(command.typer, "confirm", lambda *_, **__: answer)


def test_yes_starts_the_run_with_the_price_allowed(
    started: list[RunSpec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_a_terminal(monkeypatch, answer=True)
    assert main([*RUN, "--detach"]) == 0
    assert [spec.generator_parameters["allow_unknown_price"] for spec in started] == [False, True]
    assert capsys.readouterr().out == "the-run\n"


def test_no_starts_nothing(started: list[RunSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, answer=False)
    assert main([*RUN, "--detach"]) == 1
    assert len(started) == 1


def test_without_a_terminal_nobody_is_asked(started: list[RunSpec], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--detach"]) == 2
    assert "nobody knows what openai/nobody-knows-it costs" in capsys.readouterr().err
    assert len(started) == 1


# ---------------------------------------------------------------- the program itself


def environment() -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": KEY, "TERM": "xterm-256color"}


@needs_litellm
def test_headless_the_program_ends_with_status_2_and_leaves_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbtui", *RUN, "--headless"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "nobody knows what openai/nobody-knows-it costs" in line
    assert "--budget-tokens N" in line
    assert "--allow-unknown-price" in line
    assert done.stdout == ""
    assert not list(paths.data_dir().glob("runs/*"))


@needs_litellm
def test_at_a_real_terminal_no_is_taken_for_an_answer(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kbtui", *RUN, "--detach"],
        env=environment(),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(master, 4096)
        os.write(master, b"n\n")
        while b"nothing was started" not in seen:
            seen += os.read(master, 4096)
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
        os.close(master)
    text = seen.decode()
    assert "nobody knows what openai/nobody-knows-it costs" in text
    assert "Ask it anyway" in text
    assert not list(paths.data_dir().glob("runs/*"))
