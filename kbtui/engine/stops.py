"""What ends a run by itself. Read off the state before every choice, so that a continued run ends where an undisturbed
one would."""

from __future__ import annotations

from kbtui.state.run_state import RunState


def stop_reason(state: RunState) -> str:
    """What ends the run now, by the name that the summary shows; "" while nothing does."""
    if state.pulls_ended >= state.iterations:
        return "iterations"
    if state.budget_spent:
        return state.budget_spent
    if state.budget_usd is not None and state.cost_usd >= state.budget_usd and state.cost_usd > 0:
        return "budget"
    return ""
