"""What a run does next, read off its state alone.

The engine has no other memory of where it is. So going on after a crash is not a special case: fold the journal, ask
what comes next, do it. It also means that every action must leave a trace in the state (else it would come next again),
and that one action emits events which only make sense together in an order where each prefix asks for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbtui.engine.best import best_of
from kbtui.state.records import Timing, Verification
from kbtui.state.run_state import Candidate, Pull, RunState

INJECTED = "inject"
"""The generator's name on a person's own version."""


@dataclass(frozen=True)
class WriteBaseline:
    """Make the problem's kernel candidate 0."""


@dataclass(frozen=True)
class Compile:
    """Check a candidate's source and compile it."""

    candidate: Candidate


@dataclass(frozen=True)
class Verify:
    """Prune what compiled and cannot win; run the rest against the oracle."""

    candidate: Candidate


@dataclass(frozen=True)
class Time:
    candidate: Candidate


@dataclass(frozen=True)
class FindMoves:
    """Ask the generator what it could do with a correct candidate."""

    candidate: Candidate


@dataclass(frozen=True)
class Promote:
    """Export a candidate: it is the best now."""

    candidate: Candidate


@dataclass(frozen=True)
class Generate:
    """Have a new candidate written for a pull."""

    pull: Pull


@dataclass(frozen=True)
class EndPull:
    """Reward the arm, or drop the pull when nobody is to blame."""

    pull: Pull
    candidate: Candidate


@dataclass(frozen=True)
class TakeInjection:
    """Make the first injected source a candidate. `seq` is its Injected event's."""

    seq: int


@dataclass(frozen=True)
class Choose:
    """Begin the pull of that number: cluster if due, mask, select."""

    pull: int


@dataclass(frozen=True)
class Wait:
    """Paused: nothing until a person says so."""


@dataclass(frozen=True)
class Finish:
    """The run is over, and why: "iterations", "budget", "no arms"."""

    stopped_by: str


@dataclass(frozen=True)
class GiveUp:
    """The baseline did not pass; there is nothing to compare with."""

    reason: str


Action = (
    WriteBaseline | Compile | Verify | Time | FindMoves | Promote | Generate | EndPull | TakeInjection | Choose | Wait
    | Finish | GiveUp
)  # fmt: skip


def next_action(state: RunState) -> Action:
    """What comes next. A pull in flight is finished first, paused or not; then people's wishes; then the bandit."""
    if state.baseline is not None and (failure := _baseline_failure(state.baseline)):
        return GiveUp(failure)
    if action := _finish_pull(state):
        return action
    # The baseline and injected versions hold while paused, too: after a failure of the machine they are tried again,
    # and when, a person says.
    if state.status == "paused" and not state.steps:
        return Wait()
    return _prepare_baseline(state) or _judge_injected(state) or _begin(state)


def _finish_pull(state: RunState) -> Action | None:
    for pull in state.open_pulls:
        if not pull.candidate_ids:
            return Generate(pull)
        candidate = state.candidates[pull.candidate_ids[-1]]
        return _judge(state, candidate) or EndPull(pull, candidate)
    return None


def _prepare_baseline(state: RunState) -> Action | None:
    return _judge(state, state.baseline) if state.baseline is not None else WriteBaseline()


def _judge_injected(state: RunState) -> Action | None:
    for candidate in state.candidates.values():
        if candidate.generator == INJECTED and (action := _judge(state, candidate)):
            return action
    return TakeInjection(min(state.injections)) if state.injections else None


def _judge(state: RunState, candidate: Candidate) -> Action | None:
    """The candidate's next stage; None when it came to its end."""
    if failed(candidate):
        return None
    if candidate.compilation is None:
        return Compile(candidate)
    if candidate.verification is None:
        return Verify(candidate)
    if candidate.timing is None:
        return Time(candidate)
    if not candidate.moves:
        return FindMoves(candidate)
    if best_of(state) == candidate.id != state.best_id:
        return Promote(candidate)
    return None


def _begin(state: RunState) -> Action:
    if state.pulls_ended >= state.iterations:
        return Finish("iterations")
    if state.budget_usd is not None and state.cost_usd >= state.budget_usd and state.cost_usd > 0:
        return Finish("budget")
    return Choose(next_pull(state))


def next_pull(state: RunState) -> int:
    """The number of the pull that begins next."""
    return max(state.pulls, default=0) + 1


def failed(candidate: Candidate) -> bool:
    """Whether the candidate is out: pruned, not compiled, or not verified as correct."""
    return (
        candidate.pruned is not None
        or (candidate.compilation is not None and not candidate.compilation.ok)
        or (candidate.verification is not None and not candidate.correct)
    )


def unjudged(candidate: Candidate) -> str:
    """Why the outcome says nothing about the candidate, "" when it does: the bandit must not see it then."""
    compilation, verification, timing = candidate.compilation, candidate.verification, candidate.timing
    if compilation is not None and not compilation.ok and compilation.owner != "candidate":
        return f"#{candidate.id} could not be compiled here: {compilation.reason}"
    if verification is not None and not candidate.correct and _nobodys_fault(verification):
        return f"#{candidate.id} could not be checked here: {verification.reason}"
    if timing is not None and timing.ratio is None and timing.estimate is None:
        return f"#{candidate.id} could not be timed: {_why_untimed(timing)}"
    return ""


def _nobodys_fault(verification: Verification) -> bool:
    return verification.verdict == "unknown" or verification.owner != "candidate"


def _baseline_failure(baseline: Candidate) -> str:
    """Why the run cannot go on from this baseline, in a sentence; "" when it can, as far as is known."""
    compilation, verification, timing = baseline.compilation, baseline.verification, baseline.timing
    if compilation is not None and not compilation.ok:
        return f"the baseline does not compile: {compilation.reason}; mend the problem's kernel.py"
    if verification is not None and not baseline.correct:
        return (
            f"the baseline fails its own check ({verification.verdict} at {verification.stage}: "
            f"{verification.reason}); mend kernel.py or the reference in problem.py"
        )
    if timing is not None and not any(case.ms or case.estimate_ms for case in timing.cases):
        return f"the baseline could not be timed on any case: {_why_untimed(timing)}"
    return ""


def _why_untimed(timing: Timing) -> str:
    return next((case.failed for case in timing.cases if case.failed), timing.verdict)
