"""`kbtui run --continue` of a run whose pulls are used up: what lets it go on is said before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import UsageError
from kbtui.text import plural

if TYPE_CHECKING:
    from kbtui.engine.spec import RunSpec
    from kbtui.state.run_state import RunState


def refuse_used_up(spec: RunSpec, state: RunState) -> None:
    """Raise UsageError where the run ended with its last pull and has no more under `spec`: it would start its lanes and end.

    What was cut short, also within its last pull, goes on. `state` is what the run was so far.
    """
    if state.status != "stopped" or state.stopped_by != "iterations" or state.open_pulls:
        return
    done = state.pulls_ended
    if done >= (state.iterations if spec.iterations is None else spec.iterations):
        raise UsageError(
            f"run {spec.run_id} has done all of its {plural(done, 'pull')}: say how many it may have in all, "
            f"such as --iterations {2 * done}"
        )
