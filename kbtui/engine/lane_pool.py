"""The lanes of a run, one for each of its devices, by the names that events use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kbtui.engine.lane_thread import LaneMaker, LaneThread
from kbtui.errors import EnvironmentFailure, UsageError
from kbtui.evaluate.lane import LaneFacts, LaneSpec


@dataclass(frozen=True)
class Started:
    """What came of starting the lanes: `facts` of those that did, in order and at least one; why the others did not."""

    facts: Mapping[str, LaneFacts]
    failed: Mapping[str, str]

    @property
    def first(self) -> LaneFacts:
        return next(iter(self.facts.values()))


class LanePool:
    """`specs` by device name; a run on one device has one, named ""."""

    def __init__(self, make: LaneMaker, specs: Mapping[str, LaneSpec]) -> None:
        self._lanes = {name: LaneThread(make, spec) for name, spec in specs.items()}
        self._releasing: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> LaneThread:
        return self._lanes[name]

    async def start(self, known: Mapping[str, str] | None = None) -> Started:
        """Start all lanes beside one another. One that its device fails is left out as long as another starts.

        `known` are GPUs by UUID that names stand for already: a cluster hands out the same ones in any order, and each gets
        its name back.

        Raises EnvironmentFailure when none starts, ProblemError, and UsageError for devices that do not belong together.
        """
        outcomes = await _all(lane.start() for lane in self._lanes.values())
        facts: dict[str, LaneFacts] = {}
        failures: dict[str, EnvironmentFailure] = {}
        for name, outcome in self._by_gpu(outcomes, {uuid: name for name, uuid in (known or {}).items()}).items():
            if isinstance(outcome, LaneFacts):
                facts[name] = _named(outcome, name)
            elif isinstance(outcome, EnvironmentFailure):
                failures[name] = outcome
            else:
                raise outcome
        if not facts:
            raise next(iter(failures.values()))
        _require_alike(facts)
        return Started(facts, {name: str(failure) for name, failure in failures.items()})

    def _by_gpu(self, outcomes: list[LaneFacts | BaseException], owners: Mapping[str, str]) -> dict[str, Any]:
        """Give the lanes, which have the outcomes in order, the names that own their GPUs; the others keep theirs, or take what
        is left. Returns the outcomes by name."""
        claimed = [owners.get(one.device.uuid, "") if isinstance(one, LaneFacts) else "" for one in outcomes]
        free = [name for name in self._lanes if name not in claimed]
        names: list[str] = []
        for claim, name in zip(claimed, self._lanes, strict=True):
            if claim not in self._lanes or claim in names:
                claim = free.pop(free.index(name) if name in free else 0)
            names.append(claim)
        renamed = dict(zip(names, zip(self._lanes.values(), outcomes, strict=True), strict=True))
        ordered = {name: renamed[name] for name in self._lanes}
        self._lanes = {name: lane for name, (lane, _) in ordered.items()}
        return {name: outcome for name, (_, outcome) in ordered.items()}

    def release(self, name: str) -> None:
        """Let go of a device that fell out, in the background: its processes may take their time to die."""
        task = asyncio.ensure_future(self._lanes[name].release())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def close(self) -> None:
        """End all lanes. May be called twice."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        for task in tuple(self._releasing):
            task.cancel()
        await asyncio.gather(*self._releasing, return_exceptions=True)


async def _all(starts: Any) -> list[LaneFacts | BaseException]:
    """What each returned or raised. A cancel reaches all of them."""
    coroutines: list[Coroutine[Any, Any, LaneFacts]] = list(starts)
    return await asyncio.gather(*coroutines, return_exceptions=True)


def _named(facts: LaneFacts, name: str) -> LaneFacts:
    """The facts with the device under the run's name for it: two lanes on `cpu` would else be one."""
    if not name:
        return facts
    return msgspec.structs.replace(facts, device=msgspec.structs.replace(facts.device, lane=name))


def _require_alike(facts: Mapping[str, LaneFacts]) -> None:
    """Raises UsageError where one run would not be about one kind of device: what is fast on one need not be on another."""
    (first_name, first), *others = facts.items()
    for name, other in others:
        one, two = first.device, other.device
        if (one.name, one.target) != (two.name, two.target):
            raise UsageError(
                f"{first_name} is {one.name} ({one.target}) and {name} is {two.name} ({two.target}): a run takes devices of "
                "one kind, start a run for each kind"
            )
        for what in ("torch", "triton"):
            ours, theirs = first.versions.get(what, ""), other.versions.get(what, "")
            if ours != theirs:
                raise UsageError(
                    f"{first_name} is used through {what} {ours or 'unknown'} and {name} through {what} {theirs or 'unknown'}: "
                    "what one compiles would not be what the other times, install one version on all nodes"
                )
        if one.uuid and one.uuid == two.uuid:
            raise UsageError(f"{first_name} and {name} are one GPU ({one.uuid}): name it once")
