"""What ends a run by itself. Read off the state before every choice, so that a continued run ends where an undisturbed
one would. Pulls in flight are finished first."""

from __future__ import annotations

from kbtui.evaluate.objective import CasePair, combine
from kbtui.state.run_state import RunState


def stop_reason(state: RunState) -> str:
    """What ends the run now, by the name that the summary shows; "" while nothing does.

    "speed of light", "iterations", "budget" (dollars), "tokens", "time" or "no gain".
    """
    if _at_the_speed_of_light(state):
        return "speed of light"
    if state.pulls_ended >= state.iterations:
        return "iterations"
    if state.budget_spent:
        return state.budget_spent
    if state.budget_usd is not None and state.cost_usd >= state.budget_usd and state.cost_usd > 0:
        return "budget"
    if state.budget_tokens is not None and state.tokens >= state.budget_tokens and state.tokens > 0:
        return "tokens"
    if state.budget_s is not None and state.elapsed >= state.budget_s:
        return "time"
    if state.patience is not None and pulls_without_gain(state) >= state.patience:
        return "no gain"
    return ""


def pulls_without_gain(state: RunState) -> int:
    """Rewarded pulls that began after the best last changed. Dropped ones are nobody's attempt and do not count."""
    last_change = state.curve[-1][0] if state.curve else 0
    return sum(pull.seen for pull in state.pulls.values() if pull.number > last_change)


def share_of_light(state: RunState) -> float | None:
    """The speed of light's time over the best candidate's by the run's objective, 1.0 at the limit.

    By `CaseTiming.limit_ms`. None where a case was not measured or its least time is not known, and for modelled times, which
    are no evidence.
    """
    best = state.best
    if state.started is None or best is None or best.timing is None or best.timing.kind != "measured":
        return None
    weights = {case.name: case.weight for case in state.started.problem.cases}
    cases = best.timing.cases
    if not cases or any(case.ms is None or case.floor_ms <= 0 or case.case not in weights for case in cases):
        return None
    pairs = [CasePair(weights[case.case], case.limit_ms, case.ms) for case in cases]
    return combine(pairs, state.started.objective)


def _at_the_speed_of_light(state: RunState) -> bool:
    started = state.started
    if started is None or started.speed_of_light_percent is None or started.device.kind != "cuda":
        return False
    share = share_of_light(state)
    return share is not None and 100 * share >= started.speed_of_light_percent
