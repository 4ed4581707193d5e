"""The whole program without a terminal: a run to its end, its history, and a run that is killed and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui import paths
from kbtui.problems.folder import find_problem
from kbtui.state.events import decode
from kbtui.state.records import Summary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUN = ["run", "vector_add", "--device", "cpu", "--headless", "--json", "--seed", "0"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def events_and_summary(printed: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    lines = [json.loads(line) for line in printed.splitlines()]
    return lines[:-1], lines[-1]


def pulls(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a seed decides: arm, parent and move of every pull, in order."""
    chosen = [
        ("selected", e["pull"], e["cluster"], e["strategy"], e["parent_id"]) for e in events if e["type"] == "selected"
    ]
    written = [("generated", e["pull"], e["move"], e["source_digest"]) for e in events if e["type"] == "generated"]
    return chosen + written


def test_a_run_to_its_end(program: Any, processes: Any) -> None:
    done = program(*RUN, "--iterations", "3", seconds=400)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    events, summary = events_and_summary(done.stdout)

    assert all(line.startswith('{"type":') for line in done.stdout.splitlines()[:-1])
    assert [e["type"] for e in (events[0], events[-1])] == ["run_started", "run_stopped"]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    for event in events:
        decode(json.dumps(event))

    parsed = msgspec.convert(summary, Summary)
    assert list(summary) == [
        "run_id", "problem", "device", "timing", "pulls", "candidates", "correct", "best", "baseline_ms", "cost_usd",
        "tokens", "stopped_by", "baseline_id", "devices", "dropped",
    ]  # fmt: skip
    assert (summary["devices"], summary["dropped"]) == (["cpu"], [])
    assert (parsed.problem, parsed.timing, parsed.pulls, parsed.stopped_by) == (
        "vector_add",
        "modelled",
        3,
        "iterations",
    )
    assert parsed.candidates >= 2
    assert 1 <= parsed.correct <= parsed.candidates
    assert parsed.cost_usd == 0
    best = parsed.best
    assert best is not None
    assert best.estimate is not None, "the cpu lane models"
    assert (best.speedup, best.low, best.high, parsed.baseline_ms) == (None, None, None, None), "and never measures"
    exported = Path(best.path).read_text()
    compile(exported, best.path, "exec")
    assert "modelled and not measured" in exported
    assert processes.gone() == {}

    the_history_of_that_run(program, parsed)
    the_files_of_that_run(program, parsed)


def the_history_of_that_run(program: Any, summary: Summary) -> None:
    counted = program.json("history", "sql", "select strategy, count(*) as n, avg(reward) as r from pulls group by 1")
    assert sum(row["n"] for row in counted) == summary.pulls
    assert all(row["strategy"] for row in counted)

    (entry,) = program.json("history", "list")
    assert (entry["run_id"], entry["status"], entry["pulls"]) == (summary.run_id, "stopped", summary.pulls)
    assert program.json("runs") == []
    shown = program("history", "show")
    assert summary.run_id in shown.stdout
    assert "modelled" in shown.stdout
    refused = program("history", "sql", "drop table pulls")
    assert (refused.returncode, refused.stdout) == (1, "")

    rebuilt = program("history", "rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert program.json("history", "sql", "select count(*) as n from pulls") == [{"n": summary.pulls}]
    assert program("history", "export", "pulls.csv").returncode == 0
    assert len(Path("pulls.csv").read_text().splitlines()) == summary.pulls + 1


def the_files_of_that_run(program: Any, summary: Summary) -> None:
    assert summary.best is not None
    written = program("export", "vector_add", "--output", "best.py")
    assert written.returncode == 0, written.stderr
    text = Path("best.py").read_text()
    assert "modelled and not measured" in text
    assert text.endswith(Path(summary.best.path).read_text())
    assert program("export", "vector_add", "--output", "best.py").returncode == 2, "nothing is overwritten unasked"


def test_same_seed_same_pulls(program: Any) -> None:
    first, second = (events_and_summary(program(*RUN, "--iterations", "2", seconds=300).stdout)[0] for _ in range(2))
    assert len(pulls(first)) >= 4
    assert pulls(first) == pulls(second)


def test_lines_for_people_say_modelled_and_where_the_kernel_is(program: Any) -> None:
    done = program("run", "vector_add", "--device", "cpu", "--headless", "--iterations", "1", seconds=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("exported to ")
    assert Path(lines[-1].removeprefix("exported to ")).is_file()
    assert "modelled, not measured" in lines[-2]
    assert not any(f"{n}x" in lines[-2] for n in range(10)), "an estimate never looks like a measured ratio"


def test_killed_and_continued(program: Any, processes: Any) -> None:
    started = program("run", "vector_add", "--device", "cpu", "--seed", "0", "--iterations", "3", "--detach")
    assert started.returncode == 0, started.stderr
    run_id = started.stdout.strip()
    pid = wait_for_a_pull(program, run_id)
    assert len(processes.look()) >= 3, "a run process and its lane"
    os.kill(pid, signal.SIGKILL)
    assert processes.gone() == {}, "the lane ends with its run process"

    (crashed,) = program.json("runs")
    assert (crashed["status"], crashed["pid"]) == ("crashed", None)
    before = program.json("history", "sql", f"select count(*) as n from candidates where run_id = '{run_id}'")
    assert before[0]["n"] >= 1, "what was finished is not lost"
    refused = program("pause", run_id)
    assert refused.returncode == 1
    assert "--continue" in refused.stderr

    done = program("run", "--continue", run_id, "--headless", "--json", seconds=400)
    assert done.returncode == 0, done.stderr
    events, summary = events_and_summary(done.stdout)
    assert "run_continued" in [e["type"] for e in events]
    assert (summary["run_id"], summary["pulls"], summary["stopped_by"]) == (run_id, 3, "iterations")
    numbers = [e["pull"] for e in events if e["type"] == "rewarded"]
    assert len(numbers) == len(set(numbers)), "no pull is rewarded twice"
    assert processes.gone() == {}


def test_steered_from_the_command_line(program: Any, processes: Any) -> None:
    """Every command of a live run, and what the run makes of each, read from its journal."""
    started = program("run", "vector_add", "--device", "cpu", "--iterations", "9", "--detach", "--json")
    run_id = json.loads(started.stdout)["run_id"]
    wait_for_a_pull(program, run_id)
    Path("mine.py").write_text("# mine\n" + find_problem("vector_add").kernel_source.replace("1024", "512"))

    def say(*arguments: str, status: int = 0) -> str:
        done = program(arguments[0], run_id, *arguments[1:])
        assert done.returncode == status, done
        return str(done.stdout + done.stderr)

    say("pause", "--reason", "to look at it")
    say("ban", "--strategy", "tiling")
    assert "banned" in say("force", "--strategy", "tiling", status=1)
    say("unban", "--strategy", "tiling")
    say("inject", "mine.py")
    say("pin", "0")
    assert "99" in say("pin", "99", status=1)
    say("unpin")
    say("step")
    say("stop")
    assert processes.gone() == {}

    events = [json.loads(line) for line in paths.journal_file(run_id).read_text().splitlines()]
    acts = [event["type"] for event in events if "by" in event and event["type"] != "generated"]
    assert acts == ["run_paused", "banned", "unbanned", "injected", "pinned", "pinned", "stepped"]
    assert all(event["by"].endswith("@script") for event in events if event["type"] in acts)
    assert events[-1]["stopped_by"] == "user"
    assert "not live" in say("pause", status=1)


def wait_for_a_pull(program: Any, run_id: str) -> int:
    """Wait until the run has ended a pull and is not over; its process id."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        (entry,) = [run for run in program.runs() if run["run_id"] == run_id]
        assert entry["status"] in ("live", "paused"), entry
        if entry["candidates"] >= 2:
            return int(entry["pid"])
        time.sleep(0.3)
    raise AssertionError(f"no pull within 240 s: {entry}")


def test_interrupted_headless_run_ends_in_good_order(processes: Any) -> None:
    command = [sys.executable, "-m", "kbtui", "run", "vector_add", "--device", "cpu", "--headless", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if '"type":"selected"' in line:
            break
    processes.look()
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert '"type":"run_stopped"' in rest
    assert processes.gone() == {}
