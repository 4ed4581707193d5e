"""Which of the actions that can begin do begin, and on which device: what there is to work with, shared out. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kbtui.engine import actions as a
from kbtui.engine.actions import Action, needs, subject
from kbtui.engine.best import arena
from kbtui.state.run_state import Candidate, RunState


@dataclass(frozen=True)
class Limits:
    """What there is to work with: places for `pulls` in flight, and `compilers` beside one another, over all devices together.
    The state knows the devices."""

    pulls: int = 1
    compilers: int = 1


def startable(
    state: RunState, actions: Iterable[Action], limits: Limits, running: Collection[Action]
) -> Iterator[Action]:
    """Those of `actions` whose subject nobody works on, as far as resources go, each with its device."""
    busy = {subject(action) for action in running}
    places = _Places(state, limits, running)
    for action in actions:
        if subject(action) in busy:
            continue
        placed = places.take(action)
        if placed is not None:
            busy.add(subject(action))
            yield placed


class _Places:
    """Devices that do nothing, and compilers that are left."""

    def __init__(self, state: RunState, limits: Limits, running: Collection[Action]) -> None:
        self._state = state
        at_work = [action for action in running if isinstance(action, a.OnDevice)]
        taken = {action.device for action in at_work if needs(action) == "lane"}
        self._free = [device for device in state.live_lanes if device not in taken]
        self._compilers = limits.compilers - sum(needs(action) == "compiler" for action in at_work)
        self._load = Counter(action.device for action in at_work)

    def take(self, action: Action) -> Action | None:
        """The action with the device that it takes; None while it has to wait."""
        if not isinstance(action, a.OnDevice):
            return action
        device = self._compiler() if needs(action) == "compiler" else self._lane(action)
        if device is None:
            return None
        self._load[device] += 1
        return action if action.device == device else dataclasses.replace(action, device=device)

    def _compiler(self) -> str | None:
        lanes = self._state.live_lanes
        if self._compilers < 1 or not lanes:
            return None
        self._compilers -= 1
        return min(lanes, key=lambda device: self._load[device])

    def _lane(self, action: a.OnDevice) -> str | None:
        possible = [device for device in self._possible(action) if device in self._free]
        if not possible:
            return None
        device = possible[0]
        self._free.remove(device)
        return device

    def _possible(self, action: a.OnDevice) -> list[str]:
        """Where it can be done, the best place first: where it will be compared, or where it is compiled already."""
        state, lanes = self._state, self._state.live_lanes
        liked = [action.candidate.worked_on]
        if isinstance(action, a.Time):
            lanes = self._calibrated(action.candidate)
            liked = [arena(state), *liked]
        if action.device:
            return [device for device in lanes if device == action.device]
        return sorted(lanes, key=lambda device: liked.index(device) if device in liked else len(liked))

    def _calibrated(self, candidate: Candidate) -> tuple[str, ...]:
        """Devices with a time of the baseline. Without a baseline, one: two that are timed at once would both be it."""
        baseline, lanes = self._state.baseline, self._state.live_lanes
        if baseline is None or baseline.id == candidate.id:
            return lanes[:1]
        return tuple(device for device in lanes if baseline.timing_on(device) is not None)
