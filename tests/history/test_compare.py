"""Runs side by side."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui.errors import UsageError
from kbtui.history.compare import compare
from kbtui.history.comparison_file import COMPARISONS, markdown, write_comparison
from kbtui.state import events as e
from kbtui.state.run_state import RunState

MakeRun = Callable[..., list[e.Event]]


def state(events: list[e.Event], **changes: Any) -> RunState:
    events = [msgspec.structs.replace(events[0], **changes), *events[1:]]
    return RunState().apply_all(msgspec.structs.replace(event, seq=i) for i, event in enumerate(events, 1))


def faster(events: list[e.Event], ratio: float) -> list[e.Event]:
    """The same run with another ratio of its best."""
    return [
        msgspec.structs.replace(
            event,
            timing=msgspec.structs.replace(event.timing, ratio=ratio, low=ratio - 0.1, high=ratio + 0.1),
        )
        if isinstance(event, e.Timed) and event.candidate_id == 1
        else event
        for event in events
    ]


def test_best_cost_cases_and_yield_of_each(make_run: MakeRun) -> None:
    found = compare([state(make_run("a")), state(make_run("b"))])
    first = found.runs[0]
    assert (first.run_id, first.speedup, first.low, first.high, first.estimate) == ("a", 1.5, 1.4, 1.6, None)
    assert (first.verdict, first.best_id, first.best_move, first.best_at_pull) == ("faster", 1, "move 1", 1)
    assert (first.pulls, first.candidates, first.correct, first.elapsed_s) == (2, 3, 2, 26.0)
    assert first.cost_usd == 0.75
    assert [(case.case, case.ratio) for case in first.cases] == [("small", 1.5), ("large", 1.5)]
    tiling = next(s for s in first.strategies if s.strategy == "tiling")
    assert (tiling.pulls, tiling.rewarded, tiling.mean_reward) == (1, 1, pytest.approx(1 / 3))
    fusion = next(s for s in first.strategies if s.strategy == "fusion")
    assert (fusion.pulls, fusion.rewarded, fusion.mean_reward) == (1, 0, 0.0)
    assert next(s for s in first.strategies if s.strategy == "pipeline").mean_reward is None
    assert found.differences == ()
    assert found.notes == ()


def test_only_intervals_that_lie_apart_put_a_run_ahead(make_run: MakeRun) -> None:
    near = compare([state(faster(make_run("a"), 1.5)), state(faster(make_run("b"), 1.6))]).groups
    assert [(g.ahead, g.run_ids) for g in near] == [("", ("a", "b"))]
    assert "b and a cannot be told apart" in near[0].why
    apart = compare([state(faster(make_run("a"), 1.5)), state(faster(make_run("b"), 1.9))]).groups
    assert apart[0].ahead == "b"


def test_modelled_and_measured_are_never_in_one_group(make_run: MakeRun) -> None:
    found = compare([state(make_run("a")), state(make_run("b", "modelled")), state(make_run("c", "modelled"))])
    assert [(g.run_ids, g.timing) for g in found.groups] == [(("a",), "measured"), (("b", "c"), "modelled")]
    assert all(group.ahead == "" for group in found.groups)
    assert found.notes == ("the times of b, c are modelled: they are not compared with measured ones",)
    modelled = found.runs[1]
    assert (modelled.speedup, modelled.low, modelled.estimate) == (None, None, 1.5)
    assert all(case.ms is None and case.ratio is None for case in modelled.cases)
    assert next(d for d in found.differences if d.setting == "timing").values == ("measured", "modelled", "modelled")


def test_a_higher_estimate_is_not_called_faster(make_run: MakeRun) -> None:
    low = [event for event in make_run("b", "modelled") if not isinstance(event, e.BestChanged)]
    low.append(e.BestChanged(candidate_id=0, path=""))
    group = compare([state(make_run("a", "modelled")), state(low)]).groups[0]
    assert group.ahead == ""
    assert "a has the higher estimate, which is modelled" in group.why


def test_other_problems_versions_and_devices_are_told(make_run: MakeRun) -> None:
    base = make_run("b")
    started = base[0]
    assert isinstance(started, e.RunStarted)
    other = state(base, problem=msgspec.structs.replace(started.problem, digest="e" * 64))
    assert compare([state(make_run("a")), other]).notes == (
        "the runs are of different versions of softmax: ratios are compared within one only",
    )
    elsewhere = state(base, device=msgspec.structs.replace(started.device, name="A100"))
    assert "different devices" in compare([state(make_run("a")), elsewhere]).notes[0]
    renamed = state(base, problem=msgspec.structs.replace(started.problem, digest="e" * 64, name="rope"))
    assert "different problems" in compare([state(make_run("a")), renamed]).notes[0]


def test_what_differs_is_listed_with_a_value_per_run(make_run: MakeRun) -> None:
    found = compare(
        [state(make_run("a")), state(make_run("b"), seed=8, policy_parameters={"c": 1.0, "decay": 0.5}, model="m")]
    )
    assert {d.setting: d.values for d in found.differences} == {
        "seed": ("7", "8"), "model": ("", "m"), "policy c": ("2.0", "1.0"), "policy decay": ("", "0.5"),
    }  # fmt: skip


def test_what_cannot_be_compared_is_refused(make_run: MakeRun) -> None:
    one = state(make_run("a"))
    with pytest.raises(UsageError, match="2 to 8 runs, not 1"):
        compare([one])
    with pytest.raises(UsageError, match="a is named twice"):
        compare([one, one])
    with pytest.raises(UsageError, match="no start of a run"):
        compare([one, RunState()])


def test_a_file_has_measured_and_modelled_figures_in_columns_of_their_own(make_run: MakeRun, tmp_path: Path) -> None:
    found = compare([state(make_run("a")), state(make_run("b", timing="modelled"))])
    files = {suffix: tmp_path / f"both{suffix}" for suffix in COMPARISONS}
    for file in files.values():
        write_comparison(found, file)
    with files[".csv"].open(newline="") as lines:
        first, second = csv.DictReader(lines)
    assert (first["run_id"], first["speedup"], first["estimate"], first["ratio small"]) == ("a", "1.5", "", "1.5")
    assert (second["speedup"], second["estimate"], second["ratio small"], second["estimate small"]) == (
        "",
        "1.5",
        "",
        "1.5",
    )
    assert json.loads(files[".json"].read_text()) == json.loads(msgspec.json.encode(found))
    text = files[".md"].read_text()
    assert text.startswith("| run | a | b |\n| --- | --- | --- |\n| problem |")
    assert "| best | #1 1.50x | #1 ~1.50 est |" in text
    assert "- the times of b are modelled" in text
    with pytest.raises(UsageError, match="cannot be written"):
        write_comparison(found, tmp_path / "none" / "both.md")


def test_a_name_with_a_bar_stays_in_its_cell(make_run: MakeRun) -> None:
    found = compare([state(make_run("a"), host="x|y"), state(make_run("b"))])
    assert "| host | x\\|y |" in markdown(found)
