"""Several devices in one run: a lane and a baseline each, nothing compared across two, and a device that falls out is missed
by nobody. The devices are stand-ins of different speeds."""

from __future__ import annotations

from collections import Counter

import pytest
from engine_fakes import (
    FakeGenerator,
    Run,
    Script,
    check_devices,
    environment_failure,
    journal,
    spec,
    value_of,
)

from kbtui.engine import devices
from kbtui.engine import opening as opening_module
from kbtui.engine.opening import lane_specs, limits
from kbtui.engine.placing import Limits
from kbtui.engine.plan import ready_actions
from kbtui.errors import EnvironmentFailure, UsageError
from kbtui.evaluate.lane import LaneSpec
from kbtui.problems.folder import find_problem
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import RunState
from kbtui.telemetry.nvml import GpuUnavailable

TWO, THREE = "cuda:0,cuda:1", "cuda:0,cuda:1,cuda:2"
ME = "me@test"


@pytest.fixture(autouse=True)
def no_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices are stand-ins, however many the machine has; so are its cores."""

    def count(_: object) -> int:
        raise GpuUnavailable("no driver")

    monkeypatch.setattr(devices, "gpu_count", count)
    monkeypatch.setattr(opening_module.os, "sched_getaffinity", lambda _: set(range(8)))


def several(asked: str = TWO, run_id: str = "fake-1", iterations: int | None = 20, **changes: object) -> Run:
    script = Script(kind="cuda", seconds={"compile": 0.004, "verify": 0.004, "time": 0.02})
    made = spec(run_id, iterations=iterations, device=asked, parallel=4)
    if iterations is None:
        made = spec(run_id, iterations=None, continue_run=True)
    run = Run(made, script=script, generator=FakeGenerator(seconds=0.001))
    for name, value in changes.items():
        setattr(run if hasattr(run, name) else run.script, name, value)
    return run


def best_where_it_is_compared(state: RunState) -> None:
    """No version that was timed where the best was is faster than it there."""
    assert state.best is not None
    figures = [
        (found.ratio or 0.0)
        for one in state.frontier
        if (found := one.timing_on(state.best.device)) is not None and found.verdict == "faster"
    ]
    assert state.best.ratio == max(figures)


async def test_both_devices_work_and_nothing_is_compared_across() -> None:
    run = several()
    state = check_devices((await run.go(), run.events)[1])
    best_where_it_is_compared(state)
    assert state.pulls_ended == 20
    assert run.script.most["lane"] == 2
    assert run.script.most["lane cuda:0"] == run.script.most["lane cuda:1"] == 1
    baseline = state.candidates[0]
    first, second = baseline.timing_on("cuda:0"), baseline.timing_on("cuda:1")
    assert first is not None
    assert second is not None
    assert (first.cases[0].ms, second.cases[0].ms) == (1.0, 1.1)
    assert {x.device for x in run.events if isinstance(x, e.Timed)} == {"cuda:0", "cuda:1"}
    assert {x.device for x in run.events if isinstance(x, e.Verified)} == {"cuda:0", "cuda:1"}
    assert {x.device for x in run.events if isinstance(x, e.Compiled)} == {"cuda:0", "cuda:1"}


async def test_what_was_timed_elsewhere_is_timed_again_before_it_rises() -> None:
    """Over several seeds: some version rises only after it was timed on the best's device too."""
    again = 0
    for seed in range(3):
        run = several(run_id=f"fake-{seed}")
        run.spec.seed = seed
        await run.go()
        state = check_devices(run.events)
        best_where_it_is_compared(state)
        again += sum(len(one.timings) == 2 for one in state.candidates.values() if one.id)
        for one in state.candidates.values():
            if one.id and len(one.timings) == 2:
                assert one.device == next(x.device for x in reversed(run.events)
                                          if isinstance(x, e.Timed) and x.candidate_id == one.id)  # fmt: skip
    assert again > 0


async def test_the_summary_and_the_start_name_the_devices() -> None:
    run = several()
    state = await run.go()
    assert state.started is not None
    assert state.started.lanes == ("cuda:0", "cuda:1")
    assert [one.lane for one in state.started.devices] == ["cuda:0", "cuda:1"]
    assert state.summary is not None
    assert (state.summary.devices, state.summary.dropped) == (("cuda:0", "cuda:1"), ())
    assert any("2 x fake sm_90 as cuda:0, cuda:1" in line.text for line in state.log)


async def test_one_device_is_as_before() -> None:
    run = Run(spec(device="cuda:0"), script=Script(kind="cuda"))
    state = await run.go()
    assert state.started is not None
    assert (state.started.lanes, state.started.devices, state.lanes) == ((), (), ("",))
    marks = {x.device for x in run.events if isinstance(x, e.Compiled | e.Verified | e.Timed | e.BestChanged)}
    assert marks == {""}
    assert all(one.timings == {} for one in state.candidates.values())
    assert state.summary is not None
    assert state.summary.devices == ("cuda:0",)


@pytest.mark.parametrize("method", ["compile", "verify", "time"])
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
async def test_a_device_that_dies_is_dropped_and_its_work_redone(device: str, method: str) -> None:
    nth = 1 if (device, method) == ("cuda:0", "compile") else 2  # with so little to do, cuda:0 is seldom the idler one
    run = several(fail_on={(device, method, nth): environment_failure()})
    await run.go()
    state = check_devices(run.events)
    other = {"cuda:0": "cuda:1", "cuda:1": "cuda:0"}[device]
    assert state.stopped_by == "iterations"
    assert state.pulls_ended == 20
    assert (state.dropped, state.live_lanes) == ({device: "the driver is gone"}, (other,))
    assert not [x for x in run.events if isinstance(x, e.PullDropped) and "driver" in x.reason], "its work is redone"
    (fell,) = [x for x in run.events if isinstance(x, e.DeviceDropped)]
    after = [x for x in run.events if x.seq > fell.seq]
    assert {x.device for x in after if isinstance(x, e.Timed | e.Verified | e.Compiled)} == {other}
    if fell.candidate_id is not None:
        redone = state.candidates[fell.candidate_id]
        assert redone.status not in ("generated", "compiled", "verified")
    assert state.summary is not None
    assert state.summary.dropped == (device,)
    assert run.script.closed >= 2, "the dead lane let go of its device"


@pytest.mark.parametrize("nth", [4, 6, 8])
async def test_whenever_the_device_of_the_best_dies_the_best_is_beaten_only_where_it_was_timed(nth: int) -> None:
    run = several(fail_on={("cuda:0", "time", nth): environment_failure()}, iterations=30)
    await run.go()
    check_devices(run.events)


async def test_a_device_that_does_not_start_is_left_out() -> None:
    run = several(start_fails={"cuda:0": [EnvironmentFailure("cuda:0 cannot be used: ECC error")]})
    await run.go()
    state = check_devices(run.events)
    assert state.stopped_by == "iterations"
    assert state.started is not None
    assert (state.started.device.lane, state.started.lanes) == ("cuda:1", ("cuda:0", "cuda:1"))
    assert [one.lane for one in state.started.devices] == ["cuda:1"]
    assert state.dropped == {"cuda:0": "cuda:0 cannot be used: ECC error"}
    assert any("cuda:0 fell out, the run goes on with cuda:1" in line.text for line in state.log)


async def test_where_no_device_starts_there_is_no_run() -> None:
    fails = {name: [EnvironmentFailure(f"{name} cannot be used")] for name in ("cuda:0", "cuda:1")}
    with pytest.raises(EnvironmentFailure, match="cuda:0 cannot be used"):
        await several(start_fails=fails).go()


async def test_a_baseline_that_fails_on_one_device_drops_that_device() -> None:
    run = several(fail_on={("cuda:1", "verify", 1): environment_failure()})
    await run.go()
    state = check_devices(run.events)
    (fell,) = [x for x in run.events if isinstance(x, e.DeviceDropped)]
    assert (fell.device, fell.candidate_id) == ("cuda:1", None)
    assert state.candidates[0].felled == 0
    assert state.pulls_ended == 20


async def test_without_a_device_left_the_run_ends_as_on_one() -> None:
    run = several(fail_on={("cuda:0", "time", 3): environment_failure(), ("cuda:1", "time", 3): environment_failure()})
    with pytest.raises(EnvironmentFailure, match="the driver is gone"):
        await run.go()
    state = check_devices(run.events)
    assert state.live_lanes == ()
    assert state.stopped_by.startswith("error: the driver is gone")
    assert [x.device for x in run.events if isinstance(x, e.DeviceDropped)] in (
        ["cuda:0", "cuda:1"], ["cuda:1", "cuda:0"])  # fmt: skip

    again = several(iterations=None)
    await again.go()
    events = journal("fake-1")
    state = check_devices(events)
    assert state.stopped_by == "iterations"
    assert state.live_lanes == ("cuda:0", "cuda:1")
    assert state.pulls_ended == 20
    assert {device for device, _ in again.script.done_on} == {"cuda:0", "cuda:1"}


async def test_a_paused_run_tries_its_devices_again_when_it_is_resumed() -> None:
    import asyncio

    run = several(fail_on={("cuda:0", "time", 3): environment_failure(), ("cuda:1", "time", 3): environment_failure()})
    run.attended = True
    engine = run.engine()
    told = asyncio.Event()

    def hear(event: e.Event) -> None:
        run.hear(event)
        if isinstance(event, e.RunPaused):
            told.set()

    task = asyncio.ensure_future(engine.run(hear, lambda: None))
    await asyncio.wait_for(told.wait(), 20)
    assert run.state.pause_owner == "environment"
    assert run.state.live_lanes == ()
    from kbtui.engine.client import send

    await asyncio.to_thread(send, "fake-1", c.Resume(by=ME))
    await asyncio.wait_for(task, 30)
    state = check_devices(run.events)
    assert state.stopped_by == "iterations"
    assert state.dropped == {}
    assert run.script.started == 4


async def test_what_fells_one_device_after_the_other_is_left_alone() -> None:
    run = several(THREE, poison_at=7)
    await run.go()
    state = check_devices(run.events)
    (bad,) = [one for one in state.candidates.values() if one.felled]
    assert (bad.felled, value_of(bad.source)) == (2, run.script.poison)
    assert len(state.live_lanes) == 1
    assert state.stopped_by == "iterations"
    ended = [x for x in run.events if isinstance(x, e.PullDropped) and x.owner == "environment"]
    assert [x.reason for x in ended if "fell" in x.reason] == [f"2 devices fell out while they judged #{bad.id}"]


@pytest.mark.slow
async def test_from_any_boundary_a_continued_run_keeps_what_holds() -> None:
    from kbtui import paths

    run = several(fail_on={("cuda:1", "time", 4): environment_failure()}, iterations=10)
    await run.go()
    whole = paths.journal_file("fake-1").read_bytes().splitlines(keepends=True)
    for cut in range(2, len(whole), 3):
        again_id = f"cut-{cut}"
        paths.run_dir(again_id).mkdir(parents=True)
        paths.journal_file(again_id).write_bytes(b"".join(whole[:cut]).replace(b"fake-1", again_id.encode()))
        again = several(run_id=again_id, iterations=None)
        await again.go()
        state = check_devices(journal(again_id))
        assert state.stopped_by == "iterations"
        assert state.pulls_ended == 10
        assert state.live_lanes == ("cuda:0", "cuda:1")


async def test_devices_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(UsageError, match=r"cuda:0 is fake sm_90 \(sm_90\) and cuda:1 is A100 .* devices of one kind"):
        await several(names={"cuda:1": "A100"}).go()
    with pytest.raises(UsageError, match=r"cuda:0 and cuda:1 are one GPU \(GPU-7\)"):
        await several(uuids={"cuda:0": "GPU-7", "cuda:1": "GPU-7"}).go()


async def test_a_run_does_not_go_on_where_its_devices_changed_places() -> None:
    run = several(uuids={"cuda:0": "GPU-1", "cuda:1": "GPU-2"}, iterations=4)
    await run.go()
    turned = several(uuids={"cuda:0": "GPU-2", "cuda:1": "GPU-1"}, iterations=None)
    turned.spec.iterations = 8
    with pytest.raises(EnvironmentFailure, match="cuda:0 was GPU-1 when the run started and is GPU-2 now"):
        await turned.go()


def test_compilers_are_bounded_over_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def cores(count: int) -> None:
        monkeypatch.setattr(opening_module.os, "sched_getaffinity", lambda _: set(range(count)))

    cores(8)
    assert limits(spec(parallel=16, device=TWO)) == Limits(pulls=16, compilers=6)
    assert limits(spec(parallel=3, device=TWO)) == Limits(pulls=3, compilers=3)
    cores(2)
    assert limits(spec(parallel=3, device=TWO)).compilers == 1
    problem = find_problem("vector_add")
    from pathlib import Path

    made: dict[str, LaneSpec] = lane_specs(spec(parallel=3, device=TWO), problem, Path("/s"))
    assert {name: (one.device, str(one.scratch), one.compilers) for name, one in made.items()} == {
        "cuda:0": ("cuda:0", "/s/cuda-0", 1),
        "cuda:1": ("cuda:1", "/s/cuda-1", 1),
    }
    processors = lane_specs(spec(device="cpu:0,cpu:1"), problem, Path("/s"))
    assert [one.device for one in processors.values()] == ["cpu", "cpu"]
    assert lane_specs(spec(device="cpu"), problem, Path("/s"))[""].scratch == Path("/s")


async def test_no_more_compile_at_once_than_all_devices_may(monkeypatch: pytest.MonkeyPatch) -> None:
    run = several()
    run.script.seconds["compile"] = 0.01
    run.spec.parallel = 6
    run.generator.seconds = 0.0
    monkeypatch.setattr(opening_module.os, "sched_getaffinity", lambda _: set(range(4)))
    await run.go()
    check_devices(run.events)
    assert run.script.most["compile"] == 2


async def test_there_are_at_least_as_many_pulls_as_devices() -> None:
    run = Run(spec(device=THREE, parallel=1), script=Script(kind="cuda"))
    state = await run.go()
    assert state.started is not None
    assert state.started.parallel == 3


async def test_the_journal_of_a_kill_between_two_events_says_what_comes_next() -> None:
    """At every boundary there is something to do, nothing twice, and each lane has at most one job."""
    run = several(fail_on={("cuda:0", "time", 4): environment_failure()}, iterations=10)
    await run.go()
    state, made = RunState(), Limits(pulls=3, compilers=3)
    for event in run.events[:-1]:
        state.apply(event)
        ready = ready_actions(state, made)
        assert ready, f"nothing to do after {event}"
        on = Counter(x.device for x in ready if hasattr(x, "device") and type(x).__name__ != "Compile")
        assert set(on.values()) <= {1}
        assert set(on) <= set(state.live_lanes)
