"""What a headless run prints, from recorded events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kbtui import paths
from kbtui.cli.headless import EventLines, Progress, summary_lines
from kbtui.state.events import Event, Progressed, RunStopped, decode
from kbtui.state.records import Summary
from kbtui.state.run_state import RunState

RunEvents = Callable[[str], list[Event]]


def summary_of(events: list[Event]) -> Summary:
    assert isinstance(events[-1], RunStopped)
    return events[-1].summary


def test_json_lines_are_the_events_and_the_summary_last(
    run_events: RunEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    events = run_events("modelled")
    lines = EventLines()
    for event in [Progressed(stage="timing"), *events]:
        lines.show(event)
    lines.finish(summary_of(events))
    printed = capsys.readouterr().out.splitlines()
    assert [decode(line) for line in printed[:-1]] == events, "durable events alone, unchanged"
    assert all(line.startswith('{"type":') for line in printed[:-1])
    assert msgspec.convert(json.loads(printed[-1]), Summary) == summary_of(events)


def test_progress_prints_each_line_of_the_log_once_and_cleaned(
    run_events: RunEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    events = run_events("modelled")
    progress = Progress()
    for event in events:
        progress.show(event)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.count("#1 not worse ~1.42 est, modelled") == 1
    assert printed.count("warning: #2 wrong at boundary") == 1
    assert printed.count("best is now #1") == 1
    assert printed.count("#1 tiling · BLOCK 64 → 128, from #0") == 1


@pytest.mark.parametrize(
    ("kind", "figure"),
    [("modelled", "~1.42 est not worse (modelled, not measured)"), ("measured", "1.42x [1.39, 1.45] faster")],
)
def test_summary_for_people(kind: str, figure: str, run_events: RunEvents) -> None:
    lines = summary_lines(summary_of(run_events(kind)))
    assert lines[-2] == f"best #1  {figure}"
    assert lines[-1].startswith("exported ")


def test_the_path_of_another_machine_is_none_of_this_one(run_events: RunEvents, tmp_path: Path) -> None:
    """A run's folder that was copied here has its best kernel in it, and its journal says where that was."""
    summary = summary_of(run_events("modelled"))
    assert summary_lines(summary)[-1] == (
        f"exported elsewhere, to /data/best/kernel.py: `kbtui export {summary.run_id}` writes it here"
    )
    here = paths.run_dir(summary.run_id) / "best" / "kernel.py"
    here.parent.mkdir(parents=True)
    here.touch()
    assert summary_lines(summary)[-1] == f"exported to {here}"
    assert summary.best is not None
    (tmp_path / "kernel.py").touch()
    recorded = msgspec.structs.replace(summary.best, path=str(tmp_path / "kernel.py"))
    assert summary_lines(msgspec.structs.replace(summary, best=recorded))[-1] == f"exported to {tmp_path / 'kernel.py'}"


def test_summary_without_a_best(run_events: RunEvents) -> None:
    summary = msgspec.structs.replace(summary_of(run_events("modelled")), best=None, cost_usd=0.25, tokens=7)
    lines = summary_lines(summary)
    assert lines[-1] == "no candidate was verified and timed"
    assert "cost $0.25, 7 tokens" in lines


@pytest.mark.parametrize("kind", ["modelled", "measured"])
def test_a_run_that_goes_on_is_shown_from_any_point(
    run_events: RunEvents, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    events = run_events(kind)
    for cut in range(1, len(events)):
        progress = Progress(RunState().apply_all(events[:cut]))
        for event in events[cut:]:
            progress.show(event)
        printed = capsys.readouterr().out
        assert printed.splitlines()[-1].endswith(RunState().apply_all(events).log[-1].text), cut
