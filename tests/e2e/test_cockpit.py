"""The real program in a pseudo-terminal: start, see the tree grow, pause, force an arm, detach, attach, stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbtui import paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

START = ["run", "softmax", "--device", "cpu", "--iterations", "6", "--seed", "0"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def journal(run_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paths.journal_file(run_id).read_text().splitlines()]


def header(text: str) -> str:
    """The first two lines of the screen, where the status stands."""
    return "\n".join(text.splitlines()[:2])


def branches(text: str) -> list[str]:
    """The lines of the tree that show a child of the baseline."""
    return [line for line in text.splitlines() if ("├" in line or "└" in line) and "#1" in line]


def the_run(program: Any) -> dict[str, Any]:
    (entry,) = program.runs()
    return dict(entry)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_from_start_to_stop(
    columns: int, lines: int, terminal: Callable[..., Any], program: Any, processes: Any
) -> None:
    first = terminal(*START, columns=columns, lines=lines)
    first.until("#0", 180)
    grown = first.until(branches, 180)
    assert "softmax" in header(grown)

    first.press("space")
    first.until(lambda text: "paused" in header(text), 90)
    run_id = the_run(program)["run_id"]
    forced = force_an_arm(first, run_id)

    first.press("s")
    first.until(lambda _: any(e["type"] == "selected" and e["forced"] == forced for e in journal(run_id)), 60)
    assert the_run(program)["status"] == "paused", "one step, then it waits again"

    first.press("q")
    assert first.ended() == 0
    entry = the_run(program)
    assert entry["status"] == "paused"
    assert Path(f"/proc/{entry['pid']}").is_dir(), "the run goes on without its cockpit"
    assert run_id in [run["run_id"] for run in program.json("runs")]

    second = terminal("attach", columns=columns, lines=lines)
    second.until(lambda text: "paused" in header(text) and branches(text), 60)
    second.press("space")
    second.until(lambda text: "live" in header(text), 60)
    assert processes.look()
    stopped = program("stop", run_id)
    assert stopped.returncode == 0, stopped.stderr
    second.until(lambda text: "stopped" in header(text), 60)
    second.press("q")
    assert second.ended() == 0

    assert the_run(program)["status"] == "stopped"
    assert journal(run_id)[-1]["stopped_by"] == "user"
    assert processes.gone() == {}


def force_an_arm(cockpit: Any, run_id: str) -> int:
    """Take the dialog's first arm; the `seq` of the event it made. It names who did it."""
    cockpit.press("f")
    cockpit.until(lambda text: "the next pull takes this arm" in text and "enter force it" in text, 20)
    cockpit.press("enter")
    cockpit.until(lambda _: any(e["type"] == "forced" for e in journal(run_id)), 30)
    (event,) = [e for e in journal(run_id) if e["type"] == "forced"]
    assert "@pts/" in event["by"]
    return int(event["seq"])


def test_a_closed_terminal_leaves_the_run_alive(terminal: Callable[..., Any], program: Any, processes: Any) -> None:
    """As when SSH drops: the cockpit ends, the run does not."""
    cockpit = terminal(*START)
    cockpit.until("#0", 180)
    pid = the_run(program)["pid"]
    cockpit.hang_up()
    assert cockpit.process.wait(timeout=20) is not None
    assert Path(f"/proc/{pid}").is_dir()
    assert the_run(program)["status"] in ("live", "paused")
    assert program("stop", "softmax").returncode == 0
    assert processes.gone() == {}


def test_home_quits(terminal: Callable[..., Any], processes: Any) -> None:
    home = terminal(columns=80, lines=24)
    home.until("kbtui", 20)
    home.press("q")
    assert home.ended() == 0
    assert processes.gone() == {}


@pytest.mark.parametrize("name", ["TERM=dumb", "NO_COLOR=1", "LC_ALL=C"])
def test_terminals_people_really_have(name: str, terminal: Callable[..., Any]) -> None:
    variable, _, value = name.partition("=")
    home = terminal(columns=80, lines=24, environment={variable: value})
    if value == "dumb":
        assert home.ended() == 2
        assert "TERM" in home.text or "dumb" in home.text
        return
    text = home.until("kbtui", 20)
    if variable == "LC_ALL":
        assert text.isascii()
    else:
        assert all(cell.fg == "default" for row in home.screen.buffer.values() for cell in row.values())
    home.press("q")
    assert home.ended() == 0


def test_foreign_text_reaches_no_terminal_raw(program: Any) -> None:
    """A folder's name with an escape sequence in it comes back in an error message."""
    evil = Path("x\x1b]52;c;aGk=\x07y")
    evil.mkdir()
    failed = program("run", str(evil), "--headless")
    assert failed.returncode == 2
    assert "\x1b" not in failed.stderr
