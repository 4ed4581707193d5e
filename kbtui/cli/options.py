"""From settings to the specification of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.config import Settings, parse_scalar
from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.engine.spec import RunSpec

CONTINUABLE = ("iterations", "budget_usd", "budget_tokens", "budget_minutes", "patience", "address")
"""What may change when a run goes on; everything else is fixed by its journal."""
OF_MODELS = {
    "model": "--model",
    "model_parameters": "--model-parameter",
    "api_base": "--api-base",
    "allow_unknown_price": "--allow-unknown-price",
}
"""Settings that mean nothing to a generator that asks no model, and their flags."""


def pairs(texts: Sequence[str] | None, flag: str = "--policy-parameter") -> dict[str, int | float | str | bool] | None:
    """The `NAME=VALUE` arguments as a mapping; None when there are none. Raises UsageError."""
    if not texts:
        return None
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(f"{flag} takes NAME=VALUE, such as c=0.5, not {text!r}")
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
        generator_parameters=generator_parameters(settings),
        policy=settings.policy,
        policy_parameters=dict(settings.policy_parameters),
        iterations=settings.iterations,
        budget_usd=settings.budget_usd,
        budget_tokens=settings.budget_tokens or None,
        budget_minutes=settings.budget_minutes or None,
        patience=settings.patience or None,
        speed_of_light=settings.speed_of_light or None,
        objective=settings.objective,
        dispatch=settings.dispatch,
        device=settings.device,
        target=settings.target,
        python=settings.interpreter,
        seed=settings.seed,
        parallel=settings.parallel,
        cluster=cluster(settings),
        arguments=tuple(sys.argv[1:]),
    )


def cluster(settings: Settings) -> str:
    """Address of the Ray cluster that the lanes are in; "" for lanes on this machine."""
    return (settings.address or "auto") if settings.lanes == "ray" else ""


def refuse_unused_place(settings: Settings, origins: Mapping[str, str]) -> None:
    """Raise UsageError for a flag of a cluster where none is used, and the other way round: whoever gives it thinks that it
    works there."""
    if settings.lanes != "ray" and origins.get("address", "").startswith("--"):
        raise UsageError("--address is for --lanes ray: add that, or leave it out")
    if settings.lanes == "ray" and origins.get("python", "").startswith("--"):
        raise UsageError(
            "--python is for lanes on this machine: on a cluster's nodes it is the interpreter that runs Ray, leave it out"
        )


def refuse_unused(generator: str, origins: Mapping[str, str]) -> None:
    """Raise UsageError for a flag of models where none is asked: whoever names a model thinks that it writes. In a file such
    a setting waits for the runs that use it."""
    said = [flag for key, flag in OF_MODELS.items() if origins.get(key, "").startswith("--")]
    if said and generator != "llm":
        raise UsageError(f"{said[0]} is for --generator llm, and {generator} asks no model: add that, or leave it out")


def generator_parameters(settings: Settings) -> dict[str, int | float | str | bool]:
    """What the generator is set to: all of it, so that a journal says how its replies came about."""
    if settings.generator != "llm":
        return {}
    return {
        "api_base": settings.api_base,
        "local": settings.local,
        "allow_unknown_price": settings.allow_unknown_price,
        "choice": settings.model_choice,
        "prompts": str(Path(settings.prompts).expanduser().resolve()) if settings.prompts else "",
        "repairs": settings.repairs,
        "most_tokens": settings.reply_tokens,
        "prompt_tokens": settings.prompt_tokens,
        "silence_s": settings.reply_silence_s,
        "deadline_s": settings.reply_deadline_s,
        "requests_per_minute": settings.requests_per_minute,
        **{f"model.{name}": value for name, value in settings.model_parameters.items()},
    }


def replayed(spec: RunSpec, recording: str | None, origins: Mapping[str, str]) -> RunSpec:
    """The specification of a run that replays `recording` (a run or a file; None: the one that comes with kbtui).

    What was not said on the command line is as it was in the recorded run, so that the replay is the run once more; only
    the bundled one is judged on whatever device there is. Raises UsageError and RunNotFoundError.
    """
    import msgspec

    from kbtui.engine.recordings import RECORDING, bundled, named_recording, recorded_start
    from kbtui.history.runs import find_run

    named = recording or ""
    if named and not Path(named).expanduser().is_file():
        named = find_run(named)  # its full id: what "the latest" means changes
    elif named:
        named = str(Path(named).expanduser().resolve())
    spec = msgspec.structs.replace(spec, generator_parameters={RECORDING: named})
    started = recorded_start(named_recording(named) if named else bundled(Path(spec.problem).name))
    if started is None:
        return spec
    recorded = {
        "policy": started.policy,
        "policy_parameters": started.policy_parameters,
        "iterations": started.iterations,
        "seed": started.seed,
    }
    if named:
        recorded |= {
            "objective": started.objective,
            "parallel": started.parallel,
            "target": started.device.target,
            "device": ",".join(started.lanes) or started.device.lane,
        }
    unsaid = {key: value for key, value in recorded.items() if not origins.get(key, "").startswith("--")}
    return msgspec.structs.replace(spec, **unsaid)


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
        cluster=settings.address if "address" in said else "",
        arguments=tuple(sys.argv[1:]),
    )
