"""`kbtui run --continue` of a run whose pulls are used up: the remedy before anything starts, and no refusal of anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kbtui import paths
from kbtui.cli import main as program
from kbtui.cli.continuing import refuse_used_up
from kbtui.engine.spec import RunSpec
from kbtui.errors import UsageError
from kbtui.history.runs import load_state
from kbtui.state import events as e

RUN = "toy-20260102-0304-abc"
RunEvents = Callable[[str], list[e.Event]]


@pytest.fixture
def ended(run_events: RunEvents) -> Callable[..., None]:
    """A recorded run that had both of its pulls; `stopped_by`, or cut off within the second pull by `open_pull`."""

    def record(stopped_by: str = "iterations", *, open_pull: bool = False) -> None:
        *before, stopped = run_events("modelled")
        assert isinstance(stopped, e.RunStopped)
        pulls: list[e.Event] = []
        for pull in (1, 2):
            pulls.append(e.Selected(pull=pull, cluster=0, strategy="tiling", parent_id=0, scores=()))
            end = e.Rewarded(
                pull=pull,
                cluster=0,
                strategy="tiling",
                candidate_id=None,
                reward=0.0,
                mean=0.0,
                pulls=1.0,
                outcome="worse",
            )
            if not (open_pull and pull == 2):
                pulls.append(end)
        journal = [*before, *pulls, msgspec.structs.replace(stopped, stopped_by=stopped_by)]
        file = paths.journal_file(RUN)
        file.parent.mkdir(parents=True)
        numbered = (msgspec.structs.replace(event, seq=i, t=1.7e9 + i) for i, event in enumerate(journal, 1))
        file.write_bytes(b"".join(e.encode(event) + b"\n" for event in numbered))

    return record


def spec(**fields: Any) -> RunSpec:
    return RunSpec(problem="", run_id=RUN, continue_run=True, **fields)


@pytest.mark.parametrize("way", [["--headless"], ["--detach"]])
def test_the_sentence_names_the_flag(ended: Any, capsys: pytest.CaptureFixture[str], way: list[str]) -> None:
    ended()
    size = paths.journal_file(RUN).stat().st_size
    assert program.main(["run", "--continue", RUN, *way]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"run {RUN} has done all of its 2 pulls: say how many it may have in all, such as --iterations 4" in said
    assert paths.journal_file(RUN).stat().st_size == size, "nothing was started"


def test_as_many_as_before_are_no_more(ended: Any) -> None:
    ended()
    with pytest.raises(UsageError, match="such as --iterations 4"):
        refuse_used_up(spec(iterations=2), load_state(RUN))


def test_more_of_them_let_it_go_on(ended: Any) -> None:
    ended()
    refuse_used_up(spec(iterations=3), load_state(RUN))


@pytest.mark.parametrize("how", [{"stopped_by": "user"}, {"stopped_by": "budget"}, {"open_pull": True}])
def test_what_was_cut_short_goes_on(ended: Any, how: dict[str, Any]) -> None:
    ended(**how)
    refuse_used_up(spec(), load_state(RUN))
