"""The numeric search: whose turn it is, what it believes of a step, and what it never does."""

from __future__ import annotations

import math

import pytest

from kbtui.search.registry import make_policy
from kbtui.search.tuning import (
    BEND,
    ERROR,
    FAILURE,
    SLOPE,
    Evidence,
    Step,
    earned,
    evidence,
    hoped,
    its_turn,
    promise,
    tuned_parent,
)
from kbtui.state import events as e
from kbtui.state.records import CaseTiming, Compilation, NumberChange, Signature, Timing, Verification
from kbtui.state.run_state import RunState

UP = Step(strategy="reordering", move="num_warps 4 → 8", change=NumberChange("num_warps", 4, 8))
DOWN = Step(strategy="vectorization", move="num_warps 4 → 2", change=NumberChange("num_warps", 4, 2))
BLOCK = Step(strategy="tiling", move="BLOCK 64 → 128", change=NumberChange("BLOCK", 64, 128))


class Play:
    """A run of `policy`: each version is (parent, change, speed), None for one that is wrong."""

    def __init__(self, sample, name: str = "ucb", **parameters: float) -> None:
        self.policy = make_policy(name, {"tune": 2, **parameters})
        self.state = RunState()
        started = sample(policy_parameters=self.policy.parameters)
        self.state.apply(started)
        self.add(None, None, 1.0)

    def add(self, parent: int | None, change: NumberChange | None, speed: float | None, tuned: str = "") -> int:
        apply, number = self.state.apply, len(self.state.candidates)
        if number:
            apply(e.Selected(pull=number, cluster=0, strategy="tiling", parent_id=parent or 0, scores=(), tuned=tuned))
        apply(
            e.Generated(
                candidate_id=number, parent_id=parent, pull=number, strategy="tiling" if number else None,
                generator="fake", move=f"move {number}", source=f"# {number}", source_digest="",
                syntax_digest=str(number), change=change,
            )
        )  # fmt: skip
        apply(e.Compiled(candidate_id=number, compilation=Compilation(ok=True)))
        verdict = "wrong" if speed is None else "correct"
        apply(e.Verified(candidate_id=number, verification=Verification(verdict=verdict, stage="done")))
        if speed is not None:
            cases = (CaseTiming(case="n", ms=1 / speed),)
            timing = Timing(kind="measured", verdict="same", cases=cases, ratio=speed)
            apply(e.Timed(candidate_id=number, timing=timing, signature=Signature()))
            apply(e.MovesFound(candidate_id=number, moves={"tiling": 3, "reordering": 3, "vectorization": 3}))
        if number:
            apply(
                e.Rewarded(
                    pull=number, cluster=0, strategy="tiling", candidate_id=number, reward=0.0, mean=0.0, pulls=1.0,
                    outcome="same",
                )
            )  # fmt: skip
        return number


@pytest.fixture
def sample():
    from kbtui.state.records import CaseInfo, DeviceInfo, ProblemInfo

    def started(policy_parameters):
        return e.RunStarted(
            journal_version=1, run_id="r", timing="measured", policy="ucb", policy_parameters=policy_parameters,
            generator="fake", objective="geomean", seed=3, iterations=9, budget_usd=None, parallel=1, versions={},
            isolation={}, python="", device=DeviceInfo(lane="cuda:0", kind="cuda", name="f", target="sm_90"),
            problem=ProblemInfo(name="p", path="", entry="f", digest="", cases=(CaseInfo(name="n", fields={}),)),
        )  # fmt: skip

    return started


def test_two_pulls_in_a_row_and_then_the_policys(sample):
    play = Play(sample)
    assert its_turn(play.state)
    assert tuned_parent(play.state).id == 0
    play.add(0, UP.change, 1.1, UP.move)
    assert its_turn(play.state)
    assert tuned_parent(play.state).id == 1
    play.add(1, NumberChange("num_warps", 8, 16), 0.9, "num_warps 8 → 16")
    assert not its_turn(play.state)
    play.add(1, None, 1.2)
    assert its_turn(play.state)
    assert tuned_parent(play.state).id == 3


def test_without_tune_all_pulls_are_the_policys(sample):
    assert not its_turn(Play(sample, tune=0).state)
    assert make_policy("paper", {}).parameters["tune"] == 0


def test_a_pinned_version_is_the_one_searched(sample):
    play = Play(sample)
    play.add(0, None, 1.5)
    play.state.apply(e.Pinned(by="ann", parent_id=0))
    assert tuned_parent(play.state).id == 0


def test_a_dropped_pull_is_nobodys_turn(sample):
    play = Play(sample)
    for number in (1, 2):
        play.state.apply(e.Selected(pull=number, cluster=0, strategy="tiling", parent_id=0, scores=(), tuned=UP.move))
        play.state.apply(e.PullDropped(pull=number, owner=None, reason="seen"))
    assert its_turn(play.state)


def test_evidence_is_the_slope_of_log_time_over_doublings(sample):
    play = Play(sample)
    play.add(0, NumberChange("num_warps", 4, 8), 1.2)
    play.add(0, NumberChange("num_warps", 4, 2), 1.1)
    play.add(0, NumberChange("BLOCK", 64, 128), None)
    play.add(0, None, 1.3)
    up, down, wrong = evidence(play.state)
    assert (up.parameter, up.place, up.slope) == ("num_warps", 2.5, pytest.approx(math.log(1.2)))
    assert (down.place, down.slope) == (1.5, pytest.approx(-math.log(1.1)))
    assert (wrong.parameter, wrong.slope) == ("BLOCK", FAILURE)


def test_what_nobody_could_judge_teaches_nothing(sample):
    play = Play(sample)
    number = play.add(0, UP.change, 1.2)
    play.state.apply(e.Killed(by="ann", candidate_id=number))
    assert evidence(play.state) == []


def test_the_belief_of_an_untried_step_is_the_prior():
    found = promise(UP, [])
    assert found.mean == pytest.approx(0.0)
    assert found.deviation == pytest.approx(SLOPE)


def test_one_look_at_the_same_step_is_the_mean_of_prior_and_look():
    found = promise(UP, [Evidence(parameter="num_warps", place=2.5, slope=0.2)])
    weight = SLOPE**2 / (SLOPE**2 + ERROR**2)
    assert found.mean == pytest.approx(0.2 * weight)
    assert found.deviation == pytest.approx(math.sqrt(SLOPE**2 * (1 - weight)))


def test_a_gain_speaks_for_another_step_the_same_way_and_against_one_back():
    seen = [Evidence(parameter="num_warps", place=1.5, slope=0.2)]  # 2 → 4
    assert promise(UP, seen).mean > 0.05 > -0.05 > promise(DOWN, seen).mean
    assert promise(BLOCK, seen) == promise(BLOCK, [])


def test_a_falling_slope_promises_a_loss_beyond_its_top():
    seen = [
        Evidence(parameter="num_warps", place=0.5, slope=0.2),
        Evidence(parameter="num_warps", place=1.5, slope=0.05),
    ]
    assert promise(UP, seen).mean < 0 < BEND


def test_hope_is_the_mean_of_the_gains_alone():
    assert hoped(promise(UP, [])) == pytest.approx(SLOPE / math.sqrt(2 * math.pi))


def test_the_step_that_promises_most_is_chosen_and_says_why(sample):
    play = Play(sample)
    play.add(0, NumberChange("num_warps", 2, 4), 1.2)
    choice = play.policy.tune(play.state, 2, play.state.candidates[1], [UP, DOWN])
    assert choice is not None
    assert (choice.tuned, choice.strategy, choice.parent_id, choice.cluster) == (UP.move, "reordering", 1, 0)
    assert "num_warps 4 → 8" in choice.reason
    again = play.policy.tune(play.state, 2, play.state.candidates[1], [DOWN, UP])
    assert again == choice


def test_banned_and_masked_strategies_are_left_alone(sample):
    play = Play(sample)
    play.state.apply(e.Banned(by="ann", strategy="reordering"))
    choice = play.policy.tune(play.state, 1, play.state.candidates[0], [UP, DOWN])
    assert choice is not None
    assert choice.tuned == DOWN.move
    play.state.apply(e.Banned(by="ann", strategy="vectorization"))
    assert play.policy.tune(play.state, 1, play.state.candidates[0], [UP, DOWN]) is None


def test_a_step_that_is_worth_less_than_the_policys_pulls_is_left(sample):
    play = Play(sample)
    play.state.apply(e.Selected(pull=1, cluster=0, strategy="fusion", parent_id=0, scores=()))
    play.state.apply(
        e.Rewarded(
            pull=1, cluster=0, strategy="fusion", candidate_id=None, reward=0.5, mean=0.5, pulls=1.0, outcome="x"
        )
    )
    assert earned(play.state) == pytest.approx(0.265)
    assert play.policy.tune(play.state, 2, play.state.candidates[0], [UP, DOWN, BLOCK]) is None


def test_equal_steps_are_drawn_by_the_seed_and_the_pull(sample):
    play = Play(sample)
    drawn = {play.policy.tune(play.state, pull, play.state.candidates[0], [UP, BLOCK]).tuned for pull in range(1, 20)}
    assert drawn == {UP.move, BLOCK.move}
