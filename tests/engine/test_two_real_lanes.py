"""Two real lanes in one run, each with its own oracle and compilers: `--device cpu,cpu`. One falls out on the way."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path

import pytest

from kbtui import paths
from kbtui.engine.run_process import default_parts, run_in_foreground
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate.lane import Lane, LaneSpec, Report
from kbtui.evaluate.lanes import open_lane
from kbtui.history.journal import read_journal
from kbtui.state import events as e
from kbtui.state.records import KernelFacts, Verification
from kbtui.state.run_state import RunState

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra kbtui[torch]"),
]
DIES_AT = 3


def test_a_run_uses_both_and_goes_on_with_one() -> None:
    seen_dead: list[Path] = []

    def make(spec: LaneSpec) -> Lane:
        lane = open_lane(spec)
        if spec.scratch.name != "cpu-1":
            return lane
        verify, calls = lane.verify, iter(range(1, 100))

        def dying(source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
            if next(calls) == DIES_AT:
                seen_dead.append(spec.scratch)
                raise EnvironmentFailure("the processor fell off the bus")
            return verify(source, kernels, report)

        lane.verify = dying  # type: ignore[method-assign]
        return lane

    left: list[bool] = []

    def look(event: e.Event) -> None:
        # Some events after it fell out, so that its processes had time to end.
        if seen_dead and isinstance(event, e.Rewarded):
            left.append(seen_dead[0].exists())

    spec = RunSpec(problem="vector_add", run_id="two", device="cpu,cpu", iterations=8)
    summary = run_in_foreground(spec, look, dataclasses.replace(default_parts(), make_lane=make))
    assert (summary.stopped_by, summary.pulls) == ("iterations", 8)
    assert (summary.devices, summary.dropped) == (("cpu:0", "cpu:1"), ("cpu:1",))
    events = read_journal(paths.journal_file("two"))
    state = RunState().apply_all(events)
    baseline = state.candidates[0]
    first, second = baseline.timing_on("cpu:0"), baseline.timing_on("cpu:1")
    assert first is not None
    assert second is not None
    assert first.cases == second.cases, "one model, two oracles: the same counted work"
    (fell,) = [x for x in events if isinstance(x, e.DeviceDropped)]
    assert (fell.device, fell.reason) == ("cpu:1", "the processor fell off the bus")
    before = [x for x in events if x.seq < fell.seq]
    assert "cpu:1" in {x.device for x in before if isinstance(x, e.Verified)}, "it did its share until then"
    after = [x for x in events if x.seq > fell.seq]
    assert {x.device for x in after if isinstance(x, e.Compiled | e.Verified | e.Timed | e.Confirmed)} == {"cpu:0"}
    assert fell.candidate_id is not None
    redone = state.candidates[fell.candidate_id]
    assert redone.verification is not None, "what it was doing was done on the other"
    assert left[-1] is False, "its processes and its folder are gone while the run goes on"
