"""One version that picks among others by the sizes of its inputs: when it is tried, what it is made of, how it ends."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import msgspec
import pytest
from engine_fakes import FakeLane, Run, journal, spec, variant

from kbtui.engine.dispatching import merge_of
from kbtui.engine.engine import Parts
from kbtui.evaluate.lane import Evaluated, LaneFacts
from kbtui.generate.generator import Exhausted, Generator, Request, Written
from kbtui.generate.moves.dispatch import Interval, Rule
from kbtui.search.registry import make_policy
from kbtui.state import events as e
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Signature,
    Timing,
    Verification,
)
from kbtui.state.run_state import Candidate, RunState

SIZES = (256, 1024, 4096, 16384)
CASES = tuple(CaseInfo(name=f"n={n}", fields={"n": n}, shapes=((64, n), (n,))) for n in SIZES)
PROBLEM = ProblemInfo(name="p", path="", entry="vector_add", digest="", cases=CASES)
STARTED = e.RunStarted(
    journal_version=1, run_id="r", timing="measured", policy="ucb", policy_parameters={}, generator="fake",
    objective="geomean", seed=0, iterations=1, budget_usd=None, parallel=1, versions={}, isolation={}, python="",
    problem=PROBLEM, device=DeviceInfo(lane="cuda:0", kind="cuda", name="fake", target="sm_90"),
)  # fmt: skip


def state_of(times: dict[int, tuple[float, ...]], best: int, objective: str = "geomean") -> RunState:
    """Candidates by id with their milliseconds by case, all correct and measured."""
    state = RunState()
    state.started = msgspec.structs.replace(STARTED, objective=objective)
    for number, row in times.items():
        cases = tuple(CaseTiming(case=case.name, ms=ms) for case, ms in zip(CASES, row, strict=True))
        state.candidates[number] = Candidate(
            id=number, parent_id=None if number == 0 else 0, pull=number, strategy=None, generator="fake", move="",
            source=f"# {number}", source_digest="", syntax_digest=str(number),
            verification=Verification(verdict="correct", stage="done"),
            timing=Timing(kind="measured", verdict="faster", cases=cases, ratio=1.0),
        )  # fmt: skip
        state._touch(state.candidates[number])  # as the fold does, which keeps who is on the frontier
    state.best_id = best
    return state


APART = {0: (1.0, 1.0, 1.0, 1.0), 1: (0.5, 0.5, 1.0, 1.0), 2: (1.0, 1.0, 0.5, 0.5)}


def test_versions_that_win_on_sizes_of_their_own_are_merged_along_that_size():
    merge = merge_of(state_of(APART, best=1), ("x", "y"))
    assert merge is not None
    assert merge.rule == Rule("x.shape[-1]", (Interval(2048, 0), Interval(None, 1)))
    assert merge.parents == (1, 2)
    assert merge.gain == pytest.approx(2**0.5)


def test_the_best_version_comes_first_whichever_sizes_it_serves():
    merge = merge_of(state_of(APART, best=2), ("x", "y"))
    assert merge is not None
    assert merge.parents == (2, 1)
    assert merge.rule.intervals == (Interval(2048, 1), Interval(None, 0))


@pytest.mark.parametrize(("objective", "gain"), [("geomean", 2**0.5), ("total", 1.5), ("worst", 1.0)])
def test_the_gain_is_by_the_runs_objective(objective, gain):
    merge = merge_of(state_of(APART, best=1, objective=objective), ("x", "y"))
    assert (None if merge is None else merge.gain) == (None if gain < 1.02 else pytest.approx(gain))


def test_nothing_is_merged_for_less_than_two_percent_or_with_a_single_winner():
    assert merge_of(state_of({0: (1.0,) * 4, 1: (0.5,) * 4}, best=1), ("x",)) is None
    assert merge_of(state_of({0: (1.0,) * 4, 1: (0.99, 1.0, 1.0, 1.0)}, best=0), ("x",)) is None


def test_a_cut_that_adds_little_is_not_made():
    """Version 2 is faster at the largest size too, by less than a cut is worth."""
    times = {0: (1.0,) * 4, 1: (0.5, 0.5, 1.0, 1.0), 2: (1.0, 1.0, 0.5, 0.5), 3: (1.0, 1.0, 1.0, 0.499)}
    merge = merge_of(state_of(times, best=1), ("x",))
    assert merge is not None
    assert merge.parents == (1, 2)


def test_what_is_held_against_a_version_keeps_it_out():
    for spoil in ("suspicious", "exposed", "killed"):
        state = state_of(APART, best=1)
        second = state.candidates[2]
        if spoil == "suspicious":
            assert second.timing is not None
            second.timing = msgspec.structs.replace(second.timing, suspicious=("too fast",))
        elif spoil == "exposed":
            second.confirmation = Verification(verdict="wrong", stage="hidden")
        else:
            second.killed_by = "ann"
        assert merge_of(state, ("x", "y")) is None


def test_what_was_tried_once_is_not_tried_again():
    state = state_of(APART, best=1)
    state.unmerged.add((1, 2))
    assert merge_of(state, ("x", "y")) is None


# ---------------------------------------------------------------- in a run


class SizedLane(FakeLane):
    """Version 6 is twice as fast on small inputs, 7 on large ones; a file with both is as fast as what it picks, and `alike`
    has it as slow as the baseline. In between, `hidden` speaks of the file by its lesser number, 67."""

    alike = False

    def start(self) -> LaneFacts:
        self.facts = msgspec.structs.replace(
            super().start(), problem=msgspec.structs.replace(self.facts.problem, cases=CASES)
        )
        return self.facts

    def compile(self, source, report):
        report("compile", "")
        kernel = KernelFacts(
            name="add_kernel", target="sm_90", registers=32, spill_bytes=0, shared_bytes=0, num_warps=4, num_stages=3,
            threads=128, occupancy_percent=50.0, code_digest=str(sorted(values_in(source))),
        )  # fmt: skip
        return Compilation(ok=True, kernels=(kernel,))

    def verify(self, source, kernels, report):
        return Verification(verdict="correct", stage="done")

    def confirm(self, source, kernels, report):
        verdict = self.script.hidden.get(sum(values_in(source)), "correct")
        return Verification(verdict=verdict, stage="hidden", reason="differs")

    def time(self, source, kernels, baseline, baseline_source, parent, report):
        values = values_in(source)
        fast = [6 in values, 6 in values, 7 in values, 7 in values]
        ms = [0.5 if each and not (self.alike and len(values) > 1) else 1.0 for each in fast]
        ratio = 1.0
        for each in ms:
            ratio *= (1 / each) ** 0.25
        modelled = self.script.timing == "modelled"
        kind = {"estimate_ms": 1.0} if modelled else {"ms": 1.0}
        cases = tuple(
            CaseTiming(case=case.name, **dict.fromkeys(kind, each)) for case, each in zip(CASES, ms, strict=True)
        )
        if modelled:
            verdict = "not worse" if ratio >= 1 else "worse"
            timing = Timing(kind="modelled", verdict=verdict, cases=cases, estimate=ratio)
        else:
            verdict = "faster" if ratio > 1.05 else "same"
            timing = Timing(kind="measured", verdict=verdict, cases=cases, ratio=ratio, low=ratio, high=ratio)
        return Evaluated(timing=timing, signature=Signature())


class SlowMerge(SizedLane):
    alike = True


def values_in(source: str) -> set[int]:
    """The numbers of all kernels in a file."""
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {
        int(ast.literal_eval(node.args.defaults[0]))
        for node in nodes
        if node.name.startswith("add_kernel") and node.args.defaults
    }


class TwoVersions(Generator):
    """6, then 7, then nothing."""

    name = "two"

    def moves(self, source: str, entry: str) -> dict[str, int]:
        return {"tiling": 2}

    async def write(self, request: Request) -> Written | Exhausted:
        value = 6 if not any(move.startswith("value") for move in request.tried) else 7
        if len(request.tried) > 1 or request.parent.id:
            return Exhausted("both are written")
        # The entry mentions its kernel, so that a file with both versions has two entries as well.
        return Written(source=variant(value).replace("launch(x, y)", "launch(x, y, add_kernel)"), move=f"value {value}")


@dataclass
class SizedRun(Run):
    lane: type[SizedLane] = SizedLane

    def parts(self) -> Parts:
        return Parts(
            make_lane=lambda made: self.lane(made, self.script),
            make_generator=lambda _: TwoVersions(),
            make_policy=lambda made: make_policy(made.policy, made.policy_parameters),
            ingest=lambda: 0,
            harden=lambda: "off: tests",
        )


def merged(state: RunState) -> list[Candidate]:
    return [one for one in state.candidates.values() if one.parents]


async def test_a_run_ends_with_the_merged_version_as_its_best():
    run = SizedRun(spec(iterations=2))
    state = await run.go()
    (one,) = merged(state)
    assert one.parents == (1, 2)
    assert one.parent_id == 1
    assert one.pull == 0
    assert one.strategy is None
    assert one.generator == "dispatch"
    assert one.move == "x.shape[-1] up to 2048: #1, above: #2"
    assert one.confirmation is not None
    assert one.confirmation.verdict == "correct"
    assert state.best_id == one.id
    assert one.ratio == pytest.approx(2.0)
    assert state.pulls_ended == 2
    assert state.stopped_by == "iterations"
    scope: dict[str, object] = {"launch": lambda x, y, kernel: kernel}
    code = one.source.replace("import triton", "class triton:\n    jit = staticmethod(lambda f: f)")
    exec(compile(code, "merged", "exec"), scope)  # noqa: S102  the merged file is what is tested
    pick = scope["vector_add"]
    for n, expected in ((1, 6), (2048, 6), (2049, 7)):
        x = type("X", (), {"shape": (64, n)})()
        assert pick(x, None).__defaults__ == (expected,)  # type: ignore[operator]


async def test_the_merged_version_is_the_best_only_by_verdict():
    state = await SizedRun(spec(iterations=2), lane=SlowMerge).go()
    (one,) = merged(state)
    assert state.best_id == 1
    assert one.timing is not None
    assert one.timing.verdict == "same"
    run = SizedRun(spec("fake-2", iterations=2))
    run.script.hidden[13] = "wrong"
    state = await run.go()
    (one,) = merged(state)
    assert state.best_id == 1
    assert one.exposed


async def test_a_modelled_run_merges_by_its_estimates_and_says_so():
    run = SizedRun(spec(iterations=2))
    run.script.timing = "modelled"
    state = await run.go()
    (one,) = merged(state)
    assert state.best_id == one.id
    assert one.ratio is None
    assert one.estimate == pytest.approx(2.0)
    assert "modelled" in one.detail


async def test_a_run_without_arms_merges_too():
    state = await SizedRun(spec(iterations=9)).go()
    assert state.stopped_by == "no arms"
    assert len(merged(state)) == 1
    assert state.best_id == merged(state)[0].id


async def test_it_can_be_switched_off():
    state = await SizedRun(spec(iterations=2, dispatch=False)).go()
    assert merged(state) == []
    assert state.best_id == 1


async def test_a_run_cut_off_while_it_merges_goes_on_to_the_same_end():
    whole = await SizedRun(spec(iterations=2)).go()
    run = SizedRun(spec("fake-2", iterations=2))

    class Cut(Exception):
        pass

    def cut(event: e.Event) -> None:
        if isinstance(event, e.Generated) and event.parents:
            raise Cut

    run.on_event = cut
    with pytest.raises(Cut):
        await run.go()
    assert any(isinstance(event, e.Generated) and event.parents for event in journal("fake-2"))
    state = await SizedRun(spec("fake-2", problem="", continue_run=True)).go()
    assert len(merged(state)) == 1
    assert merged(state)[0].source == merged(whole)[0].source
    assert state.best_id == whole.best_id
