"""What the findings on a candidate mean for its pull and for the run. Pure."""

from __future__ import annotations

from kbtui.state.records import Timing, Verification
from kbtui.state.run_state import Candidate, Pull, RunState

MOST_FELLED = 2
"""Devices that fall out while they judge one candidate, before it is thought to be the cause and left alone."""


def failed(candidate: Candidate) -> bool:
    """Whether the candidate is out: pruned, not compiled, or not verified as correct."""
    return (
        candidate.pruned is not None
        or (candidate.compilation is not None and not candidate.compilation.ok)
        or (candidate.verification is not None and not candidate.correct)
    )


def unjudged(candidate: Candidate) -> str:
    """Why the outcome says nothing about the candidate, "" when it does: the bandit must not see it then."""
    if candidate.killed_by:
        return f"{candidate.killed_by} killed #{candidate.id}"
    if candidate.felled >= MOST_FELLED:
        return f"{candidate.felled} devices fell out while they judged #{candidate.id}"
    compilation, verification, timing = candidate.compilation, candidate.verification, candidate.timing
    if compilation is not None and not compilation.ok and compilation.owner != "candidate":
        return f"#{candidate.id} could not be compiled here: {compilation.reason}"
    if verification is not None and not candidate.correct and _nobodys_fault(verification):
        return f"#{candidate.id} could not be checked here: {verification.reason}"
    if timing is not None and timing.ratio is None and timing.estimate is None:
        return f"#{candidate.id} could not be timed: {_why_untimed(timing)}"
    return ""


def mendable(state: RunState, pull: Pull, candidate: Candidate) -> bool:
    """Whether the pull's last candidate failed in a way that its author may mend, and has rounds left for it.

    A cheat is discarded, and what exists already is no failure to mend. Nor is what only the hidden stage found: its
    author must not learn from that.
    """
    if state.started is None or pull.repair_ended or len(pull.candidate_ids) > state.started.repairs:
        return False
    if candidate.pruned is not None and candidate.pruned.stage in ("duplicate", "code"):
        return False
    return failed(candidate) and not candidate.exposed and not unjudged(candidate) and candidate.status != "cheat"


def baseline_failure(baseline: Candidate) -> str:
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


def work_left_out(timing: Timing) -> str:
    """The first case whose work cannot have been done, with what is moved and what is needed; "" when there is none."""
    return next((f"{case.case}: {case.failed}" for case in timing.cases if case.work_left_out), "")


def overcounted(problem: str, left_out: str) -> str:
    """The sentence for a baseline that is correct and yet moves less than `traffic` says a case needs."""
    return (
        f"{problem}: traffic counts more than its baseline moves, which is correct all the same ({left_out}): "
        "correct traffic in problem.py"
    )


def _nobodys_fault(verification: Verification) -> bool:
    return verification.verdict == "unknown" or verification.owner != "candidate"


def _why_untimed(timing: Timing) -> str:
    return next((case.failed for case in timing.cases if case.failed), timing.verdict)
