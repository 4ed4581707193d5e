"""What a run is made from: a fresh specification, or what a journal recorded."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

import kbtui
from kbtui import paths
from kbtui.engine.devices import choose_devices
from kbtui.engine.lane_pool import Started
from kbtui.engine.placing import Limits
from kbtui.engine.spec import DEFAULT_BUDGET_USD, DEFAULT_ITERATIONS, RunSpec, run_id_for
from kbtui.engine.stopping import Stopped
from kbtui.errors import EnvironmentFailure, KbtuiError, ProblemError, UsageError
from kbtui.evaluate.lane import LOCAL_CLUSTER, LaneFacts, LaneSpec
from kbtui.generate.generator import Generator
from kbtui.history.journal import read_journal
from kbtui.problems.folder import ProblemFolder
from kbtui.search.policy import Policy
from kbtui.state import events as e
from kbtui.state.records import DeviceInfo
from kbtui.state.run_state import RunState
from kbtui.text import redact

T = TypeVar("T", bound=float)
PULLS_PER_GPU = 2
"""In flight where nobody says otherwise: of a candidate on an H200 a third of the seconds is compiling, which needs no device."""


def named(spec: RunSpec) -> RunSpec:
    """The specification with an id. Raises UsageError for what no run could do."""
    spec.check()
    return msgspec.structs.replace(spec, run_id=spec.run_id or run_id_for(spec.problem))


def new_state(run_id: str) -> RunState:
    """The state of a run that is yet to start. Raises UsageError when it exists already."""
    if paths.journal_file(run_id).exists():
        raise UsageError(f"run {run_id} exists: continue it by kbtui run --continue {run_id}, or choose another id")
    return RunState()


def recorded_state(run_id: str) -> RunState:
    """The state to go on from. Raises UsageError when the run never started, JournalError for a damaged journal."""
    state = RunState().apply_all(read_journal(paths.journal_file(run_id)))
    if state.started is None:
        raise UsageError(f"run {run_id} never started: there is nothing to continue, start a new run")
    return state


def completed(spec: RunSpec, state: RunState) -> RunSpec:
    """The specification with devices and interpreter filled in; of a run that goes on, what its journal recorded. There are
    at least as many pulls as devices, or one of them would have nothing to do. Raises UsageError for a device that does
    not exist."""
    started = state.started
    if started is not None and spec.cluster and not started.cluster:
        raise UsageError(f"run {spec.run_id} has its lanes on this machine: continue it without --address")
    if started is None:
        devices = _named_devices(spec)
        return msgspec.structs.replace(
            spec,
            device=",".join(devices),
            parallel=max(spec.parallel or _enough(devices), len(devices)),
            python=spec.python or sys.executable,
        )
    return msgspec.structs.replace(
        spec,
        problem=started.problem.path,
        generator=started.generator,
        model=started.model,
        generator_parameters=started.generator_parameters,
        budget_tokens=spec.budget_tokens if spec.budget_tokens is not UNSET else state.budget_tokens,
        policy=started.policy,
        policy_parameters=started.policy_parameters,
        objective=started.objective,
        device=",".join(started.lanes) or started.device.lane,
        target=started.device.target,
        python=spec.python or started.python,
        seed=started.seed,
        parallel=started.parallel,
        cluster=spec.cluster or started.cluster,
    )


def _named_devices(spec: RunSpec) -> tuple[str, ...]:
    """The run's devices. Of a cluster's they are names only: which GPU is cuda:0, the cluster decides. A new cluster has what
    this machine has."""
    if spec.cluster in ("", LOCAL_CLUSTER):
        return choose_devices(spec.device)
    if spec.device:
        return choose_devices(spec.device, here=False)
    from kbtui.evaluate.ray_lane import cluster_devices

    return cluster_devices(spec.cluster)


def _enough(devices: Sequence[str]) -> int:
    """Pulls that keep the devices busy: while a GPU has one candidate, the next is written and compiled. On `cpu` both would want
    the same processors, and one at a time learns from the last."""
    return sum(1 if device.startswith("cpu") else PULLS_PER_GPU for device in devices)


@contextmanager
def discarded_unless_started(run_id: str) -> Iterator[None]:
    """Remove the run's folder when the block fails as expected before there is a journal: nothing happened in it. After
    an unexpected error it stays, with the traceback in run.log."""
    try:
        yield
    except (KbtuiError, Stopped):
        if not paths.journal_file(run_id).exists():
            shutil.rmtree(paths.run_dir(run_id), ignore_errors=True)
        raise


def require_start(problem: ProblemFolder, generator: Generator) -> None:
    """Raises UsageError for a problem without a kernel and a generator that only changes one."""
    if problem.empty and not generator.from_scratch:
        raise UsageError(
            f"{generator.name} changes a kernel and there is none: take --generator llm, which writes the first one, or put "
            f"one at {problem.kernel_file}"
        )


def keep_problem(run_id: str, problem: ProblemFolder) -> None:
    """Keep what the run is about beside its journal: the problem's files, as they were, without secrets."""
    folder = paths.run_dir(run_id) / "problem"
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in (problem.problem_file,) if problem.empty else (problem.kernel_file, problem.problem_file):
        (folder / file.name).write_text(redact(file.read_text(encoding="utf-8")), encoding="utf-8")


def lane_names(spec: RunSpec) -> tuple[str, ...]:
    """The run's devices by the names that events use: "" for the only one."""
    devices = tuple(spec.device.split(","))
    return devices if len(devices) > 1 else ("",)


def lane_specs(spec: RunSpec, problem: ProblemFolder, scratch: Path) -> dict[str, LaneSpec]:
    """How each of the run's lanes is made, by the device's name; several have a folder each in `scratch`."""
    names = lane_names(spec)
    # Shared out evenly, and one each at least, which waits for nothing: the plan bounds all of them together.
    compilers = -(-limits(spec).compilers // len(names))
    return {
        name: LaneSpec(
            problem=problem.path,
            device="cpu" if device.startswith("cpu") else device,
            target=spec.target,
            python=spec.python,
            scratch=scratch / device.replace(":", "-") if name else scratch,
            seed=spec.seed,
            objective=spec.objective,
            compilers=compilers,
            lanes=len(names),
            cluster=spec.cluster,
        )
        for name, device in zip(names, spec.device.split(","), strict=True)
    }


def limits(spec: RunSpec) -> Limits:
    """What the run works with at a time. A core is left to each lane and this process, since compiling beside a
    measurement must not take its processor."""
    cores = len(os.sched_getaffinity(0))
    return Limits(pulls=spec.parallel, compilers=max(1, min(spec.parallel, cores - len(lane_names(spec)))))


def started_event(spec: RunSpec, lanes: Started, policy: Policy, generator: Generator, hidden: str) -> e.RunStarted:
    """The first event of a new run. `hidden` says whether candidates cannot read this process's memory."""
    facts, several = lanes.first, len(lane_names(spec)) > 1
    return e.RunStarted(
        journal_version=e.JOURNAL_VERSION,
        run_id=spec.run_id,
        problem=facts.problem,
        device=facts.device,
        timing=facts.timing,
        policy=spec.policy,
        policy_parameters=policy.parameters,
        generator=spec.generator,
        model=spec.model,
        generator_parameters=spec.generator_parameters,
        repairs=generator.repairs,
        objective=spec.objective,
        seed=spec.seed,
        iterations=DEFAULT_ITERATIONS if spec.iterations is None else spec.iterations,
        budget_usd=DEFAULT_BUDGET_USD if spec.budget_usd is UNSET else spec.budget_usd,
        budget_tokens=_said(spec.budget_tokens),
        budget_s=_seconds(spec.budget_minutes),
        patience=_said(spec.patience),
        speed_of_light_percent=spec.speed_of_light,
        dispatch=spec.dispatch,
        parallel=spec.parallel,
        cluster=spec.cluster,
        versions=_versions(facts, generator),
        isolation={**facts.isolation, "run process not readable": hidden},
        python=spec.python,
        host=platform.node(),
        user=user(),
        arguments=spec.arguments,
        lanes=lane_names(spec) if several else (),
        devices=_devices(lanes) if several else (),
    )


def _devices(lanes: Started) -> tuple[DeviceInfo, ...]:
    return tuple(facts.device for facts in lanes.facts.values())


def continued_event(
    spec: RunSpec, lanes: Started, state: RunState, generator: Generator, cut_bytes: int
) -> e.RunContinued:
    """What says that a new process goes on. Raises ProblemError or EnvironmentFailure when the run would compare what
    cannot be compared: another problem, or measured times with modelled ones or with another device's."""
    started, facts = state.started, lanes.first
    assert started is not None, "only what started is continued"
    if facts.problem.digest != started.problem.digest:
        kept = paths.run_dir(started.run_id) / "problem"
        raise ProblemError(
            f"{started.problem.path} has changed since the run started: put back the files kept in {kept}, or start a "
            "new run"
        )
    if (facts.timing, facts.device.name) != (started.timing, started.device.name):
        raise EnvironmentFailure(
            f"the run's times are {started.timing} on {started.device.name}, here they would be {facts.timing} on "
            f"{facts.device.name}: continue it on the same device, or start a new run"
        )
    _require_same_devices(started, lanes, state)
    return e.RunContinued(
        pid=os.getpid(),
        cut_bytes=cut_bytes,
        versions=_versions(facts, generator),
        iterations=spec.iterations,
        devices=_devices(lanes) if started.lanes else (),
    )


def known_devices(state: RunState) -> dict[str, str]:
    """The UUIDs of the GPUs that a run in a cluster has had so far, by device name. On one machine, numbers say which they
    are."""
    started = state.started
    if started is None or not started.cluster:
        return {}
    devices = state.devices if started.lanes else {"": started.device}
    return {name: device.uuid for name, device in devices.items() if device.uuid}


def _require_same_devices(started: e.RunStarted, lanes: Started, state: RunState) -> None:
    """Raises EnvironmentFailure where a device's name would mean another GPU than its baseline was timed on."""
    if not started.lanes and not started.cluster:
        return  # one device of this machine: its name and kind have been compared
    before = state.devices if started.lanes else {"": started.device}
    remedy = (
        "Ray chose another of the cluster's, try again once the former is free"
        if started.cluster
        else "set CUDA_VISIBLE_DEVICES so that the GPUs have their numbers back"
    )
    for name, facts in lanes.facts.items():
        device = facts.device
        if name in before and before[name].uuid != device.uuid:
            raise EnvironmentFailure(
                f"{device.lane} was {before[name].uuid} when the run started and is {device.uuid} now: its baseline was timed on "
                f"the former; {remedy}, or start a new run"
            )


def changed_limits(spec: RunSpec, state: RunState) -> e.BudgetChanged | None:
    """What a continued run is said to stop at otherwise than before; None when nothing is."""
    said = {
        "budget_usd": _said(spec.budget_usd),
        "budget_tokens": _said(spec.budget_tokens),
        "budget_s": _seconds(spec.budget_minutes),
        "patience": _said(spec.patience),
    }
    new = {name: value for name, value in said.items() if value is not None and value != getattr(state, name)}
    return e.BudgetChanged(by=user(), **new) if new else None  # type: ignore[arg-type]


def _said(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _seconds(minutes: float | UnsetType | None) -> float | None:
    said = _said(minutes)
    return None if said is None else 60 * said


def _versions(facts: LaneFacts, generator: Generator) -> dict[str, str]:
    return {
        **facts.versions,
        **generator.versions(),
        "kbtui": kbtui.__version__,
        "run process python": platform.python_version(),
    }


def user() -> str:
    """The name of whoever runs this process, the uid where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose uid has no name
        return str(os.getuid())
