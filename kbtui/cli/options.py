"""From settings to the specification of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kbtui.config import Settings, parse_scalar
from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.engine.spec import RunSpec

CONTINUABLE = ("iterations", "budget_usd", "budget_tokens", "budget_minutes", "patience")
"""What may change when a run goes on; everything else is fixed by its journal."""


def pairs(texts: Sequence[str] | None) -> dict[str, int | float | str | bool] | None:
    """The `NAME=VALUE` arguments as a mapping; None when there are none. Raises UsageError."""
    if not texts:
        return None
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(f"--policy-parameter takes NAME=VALUE, such as c=0.5, not {text!r}")
        found[name.strip()] = parse_scalar(value.strip())
    return found


def fresh(problem: str, settings: Settings) -> RunSpec:
    """The specification of a new run. Raises ProblemError for the problem; the run itself refuses what else does not exist,
    before it starts anything."""
    from kbtui.engine.spec import RunSpec
    from kbtui.problems.folder import find_problem

    return RunSpec(
        problem=str(find_problem(problem).path),
        generator=settings.generator,
        model=settings.model,
        policy=settings.policy,
        policy_parameters=dict(settings.policy_parameters),
        iterations=settings.iterations,
        budget_usd=settings.budget_usd,
        budget_tokens=settings.budget_tokens or None,
        budget_minutes=settings.budget_minutes or None,
        patience=settings.patience or None,
        speed_of_light=settings.speed_of_light or None,
        objective=settings.objective,
        device=settings.device,
        target=settings.target,
        python=settings.interpreter,
        seed=settings.seed,
        parallel=settings.parallel,
        arguments=tuple(sys.argv[1:]),
    )


def continued(text: str, settings: Settings, origins: Mapping[str, str]) -> RunSpec:
    """The specification that goes on with a run. Raises UsageError for a flag that its journal has already decided.

    Only what was said on this command line counts: a default from a file must not change a run that exists.
    """
    from msgspec import UNSET

    from kbtui.engine.spec import RunSpec
    from kbtui.history.runs import find_run

    said = {key: origin for key, origin in origins.items() if origin.startswith("--")}
    for key, flag in said.items():
        if key not in CONTINUABLE:
            raise UsageError(f"{flag} was decided when the run started and stays; start a new run to change it")
    return RunSpec(
        problem="",
        run_id=find_run(text),
        continue_run=True,
        iterations=settings.iterations if "iterations" in said else None,
        budget_usd=settings.budget_usd if "budget_usd" in said else UNSET,
        budget_tokens=settings.budget_tokens if "budget_tokens" in said else UNSET,
        budget_minutes=settings.budget_minutes if "budget_minutes" in said else UNSET,
        patience=settings.patience if "patience" in said else UNSET,
        arguments=tuple(sys.argv[1:]),
    )
