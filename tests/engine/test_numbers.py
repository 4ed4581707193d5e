"""The numeric search in a run: pulls of its own between the generator's, on a real kernel's source, with a fake lane."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

import pytest
from engine_fakes import FakeLane, Run, journal, sequence, spec

from kbtui.engine.engine import Parts
from kbtui.evaluate.lane import Evaluated
from kbtui.generate.generator import Exhausted, Generator, Request, Written
from kbtui.search.registry import make_policy
from kbtui.state import events as e
from kbtui.state.records import CaseTiming, Compilation, KernelFacts, Signature, Timing, Verification
from kbtui.state.run_state import RunState


def numbers_of(source: str) -> tuple[int, int]:
    """(BLOCK, num_warps) of a version of the bundled vector_add."""
    tree = ast.parse(source)
    block = next(
        (
            node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "BLOCK"
            and isinstance(node.value, ast.Constant)
        ),
        0,
    )
    keywords = {one.arg: one.value for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.keywords}
    if not block and isinstance(keywords.get("BLOCK"), ast.Constant):
        block = keywords["BLOCK"].value
    warps = keywords.get("num_warps")
    return int(block), int(warps.value) if isinstance(warps, ast.Constant) else 4


class NumericLane(FakeLane):
    """BLOCK 4096 and 2 warps are the best; each doubling away costs the square of it in percent, 3 % for a block."""

    def compile(self, source, report):
        report("compile", "")
        kernel = KernelFacts(
            name="k", target="sm_90", registers=32, spill_bytes=0, shared_bytes=0, num_warps=4, num_stages=3,
            threads=128, occupancy_percent=50.0, code_digest=str(numbers_of(source)),
        )  # fmt: skip
        return Compilation(ok=True, kernels=(kernel,))

    def verify(self, source, kernels, report):
        return Verification(verdict="correct", stage="done")

    confirm = verify

    def time(self, source, kernels, baseline, baseline_source, parent, report):
        block, warps = numbers_of(source)
        loss = 0.03 * math.log2(block / 4096) ** 2 + 0.01 * math.log2(warps / 2) ** 2
        ratio = math.exp(0.03 * 4 + 0.01 - loss)
        cases = (CaseTiming(case="n=1024", ms=1 / ratio, ratio=ratio),)
        verdict = "faster" if ratio > 1.001 else "slower"
        timing = Timing(kind="measured", verdict=verdict, cases=cases, ratio=ratio, low=ratio, high=ratio)
        return Evaluated(timing=timing, signature=Signature())


class Nothing(Generator):
    """Asked for versions, and paid for them, but there are none."""

    name = "nothing"

    def __init__(self) -> None:
        self.asked = 0

    def moves(self, source: str, entry: str) -> dict[str, int]:
        return {"tiling": 1}

    async def write(self, request: Request) -> Written | Exhausted:
        self.asked += 1
        return Exhausted("nothing comes to mind")


@dataclass
class NumericRun(Run):
    def parts(self) -> Parts:
        self.nothing = Nothing()
        return Parts(
            make_lane=lambda made: NumericLane(made, self.script),
            make_generator=lambda _: self.nothing,
            make_policy=lambda made: make_policy(made.policy, made.policy_parameters),
            ingest=lambda: 0,
            harden=lambda: "off: tests",
        )


def run_of(run_id: str = "fake-1", **changes: object) -> NumericRun:
    return NumericRun(spec(run_id, iterations=12, policy_parameters={"tune": 2, "period": 50}, **changes))


def tuned(state: RunState) -> list[str]:
    return [state.candidates[number].move for number in state.candidates if state.candidates[number].change is not None]


async def test_numbers_are_searched_to_their_best_without_the_generator():
    state = await run_of().go()
    assert state.best is not None
    assert numbers_of(state.best.source) == (4096, 2)
    made = [one for one in state.candidates.values() if one.id]
    assert {one.generator for one in made} == {"numbers"}
    assert len({one.syntax_digest for one in made}) == len(made)
    for one in made:
        pull = state.pulls[one.pull]
        assert pull.tuned == one.move
        assert pull.strategy == one.strategy
        assert pull.seen
    strategies = {one.move.split(" ")[0]: one.strategy for one in made}
    assert strategies["BLOCK"] == "tiling"
    assert all(one.cost_usd == 0 for one in made)


async def test_it_is_off_unless_asked_for():
    run = run_of(policy="paper")
    run.spec.policy_parameters = {}
    state = await run.go()
    assert tuned(state) == []
    assert state.stopped_by == "no arms"
    assert run.nothing.asked == 1


@pytest.mark.parametrize("cut_after", [3, 4, 5])
async def test_a_run_cut_off_makes_the_same_steps(cut_after):
    whole = await run_of().go()
    run = run_of("fake-2")

    class Cut(Exception):
        pass

    def cut(event: e.Event) -> None:
        if isinstance(event, e.Selected) and event.pull == cut_after:
            raise Cut

    run.on_event = cut
    with pytest.raises(Cut):
        await run.go()
    state = await NumericRun(spec("fake-2", problem="", continue_run=True)).go()
    assert tuned(state) == tuned(whole)
    left = [line for line in sequence(journal("fake-2")) if line[0] == "Generated"]
    assert left == [line for line in sequence(journal("fake-1")) if line[0] == "Generated"]
