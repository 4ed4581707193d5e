"""How a run stands, as the bandit sees it: kept up to date event by event, so that a choice late in a long run takes as long
as an early one.

Everything here follows from the state and could be made anew at any time; it is, whenever an event comes that does not
merely add to it (a new partition, a verdict that changed).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from weakref import WeakKeyDictionary

import msgspec

from kbtui.search.features import features
from kbtui.search.settings import settings_of
from kbtui.state.events import Clustered
from kbtui.state.records import STRATEGIES, Features, Strategy
from kbtui.state.run_state import Candidate, Pull, RunState

DUPLICATES = 3
"""So many known versions in a row, and the arm rests for that parent."""

ArmKey = tuple[int, str]
_by_id = attrgetter("id")


class Play(msgspec.Struct, frozen=True):
    """A rewarded pull, as its arm remembers it. `t` is its place among the pulls that the bandit saw, from 1; `valid`
    says that it made a correct candidate."""

    t: int
    reward: float
    valid: bool


class Standing:
    """What `standing_of` returns. It changes with the state: read it, and ask again after the next event."""

    def __init__(self) -> None:
        self._version = -1
        self._partition: Clustered | None = None
        self._features: dict[int, Features | None] = {}
        self._start_over()

    def follow(self, state: RunState) -> None:
        """Take in the events since the last time."""
        if state.version == self._version:
            return
        for number in state.changed_since(self._version):
            self._features.pop(number, None)
        if self._version < 0 or state.last_clustered is not self._partition or not self._add(state):
            self._start_over()
            self._partition = state.last_clustered
            self._add_candidates(state, state.candidates)
            self._add_pulls(state, state.ended_log)
        self._version = state.version

    def resting(self, state: RunState) -> frozenset[tuple[int, Strategy]]:
        """(parent id, strategy) of which three versions in a row were known already.

        Rests are counted in rewarded pulls: counted in all, pulls that are dropped for duplicates would end them.
        """
        if not self._rests:
            return frozenset()
        rest = settings_of(state).rest
        return frozenset(
            key for key, number in self._rests.items() if len(self.seen) - bisect_right(self.seen, number) < rest
        )

    def features(self, candidate: Candidate) -> Features | None:
        """Its behaviour features; None where they are not all known."""
        if candidate.id not in self._features:
            self._features[candidate.id] = features(candidate)
        return self._features[candidate.id]

    # ------------------------------------------------------------ keeping it

    def _start_over(self) -> None:
        self.clusters: dict[int, int] = {}
        """The cluster of every candidate, by id: its label, or its nearest labelled ancestor's while it is younger than the
        partition; else 0."""
        self.members: dict[int, list[Candidate]] = {}
        """What pulls may start from by cluster, by id: the frontier's candidates, or an empty start before there are any."""
        self.able: dict[ArmKey, list[Candidate]] = {}
        """Members with a move of the strategy, by arm, by id."""
        self.log: dict[ArmKey, list[Play]] = {}
        """Rewarded pulls by arm under the present partition, the oldest first."""
        self.seen: list[int] = []
        """Pulls that the bandit saw, by number."""
        self._member_ids: set[int] = set()
        self._valid: dict[int, bool] = {}
        """Candidates of rewarded pulls, and whether they were correct when that was looked at."""
        self._latest: dict[tuple[int, Strategy], int] = {}
        """The newest pull that ended, by parent and strategy."""
        self._rests: dict[tuple[int, Strategy], int] = {}
        """Those of them that were dropped for known versions."""
        self._keys: list[ArmKey] = []
        """The arm of each of `seen`."""
        self._ended = 0

    def _add(self, state: RunState) -> bool:
        """Add what is new; False when that is not enough."""
        start, changed = state.start, state.changed_since(self._version)
        if any(number in self._valid and self._valid[number] != state.candidates[number].correct for number in changed):
            return False
        if start is not None and start.empty and (start.id in self._member_ids or not state.correct_ids):
            return False  # what pulls start from is another matter until something is correct
        self._add_candidates(state, changed)
        self._add_pulls(state, state.ended_log[self._ended :])
        return True

    def _add_candidates(self, state: RunState, numbers: Iterable[int]) -> None:
        """A parent is older than its children, so one pass in the order of ids does."""
        for number in sorted(numbers):
            candidate = state.candidates[number]
            above = self.clusters.get(candidate.parent_id, 0) if candidate.parent_id is not None else 0
            cluster = self.clusters[number] = state.labels.get(number, above) if state.labels else 0
            if candidate.correct or (candidate.empty and not state.correct_ids):
                _put(self.members.setdefault(cluster, []), candidate)
                self._member_ids.add(number)
                for strategy in STRATEGIES:
                    has = _put if candidate.moves.get(strategy, 0) > 0 else _take
                    has(self.able.setdefault((cluster, strategy), []), candidate)
            elif number in self._member_ids:
                self._leave(candidate, cluster)

    def _leave(self, candidate: Candidate, cluster: int) -> None:
        self._member_ids.discard(candidate.id)
        for strategy in STRATEGIES:
            _take(self.able[cluster, strategy], candidate)
        _take(self.members[cluster], candidate)
        if not self.members[cluster]:
            del self.members[cluster]

    def _add_pulls(self, state: RunState, numbers: Sequence[int]) -> None:
        """Pulls in flight together may end in another order than that of their numbers, which is the order here."""
        self._ended += len(numbers)
        for number in sorted([*numbers, *self._younger_than(min(numbers, default=0))]):
            pull = state.pulls[number]
            self._note_rest(pull)
            if not pull.seen:
                continue
            candidate = state.candidates.get(pull.candidate_ids[-1]) if pull.candidate_ids else None
            valid = candidate is not None and candidate.correct
            if candidate is not None:
                self._valid[candidate.id] = valid
            key = (self.clusters.get(pull.parent_id, 0), pull.strategy)
            self.seen.append(number)
            self._keys.append(key)
            self.log.setdefault(key, []).append(Play(len(self.seen), pull.reward or 0.0, valid))

    def _younger_than(self, number: int) -> list[int]:
        """Take the rewarded pulls after `number` out again; which they were. None for 0."""
        taken: list[int] = []
        while number and self.seen and self.seen[-1] > number:
            taken.append(self.seen.pop())
            self.log[self._keys.pop()].pop()
        return taken

    def _note_rest(self, pull: Pull) -> None:
        key = (pull.parent_id, pull.strategy)
        if self._latest.get(key, 0) > pull.number:
            return
        self._latest[key] = pull.number
        if pull.duplicates >= DUPLICATES:
            self._rests[key] = pull.number
        else:
            self._rests.pop(key, None)


def _put(held: list[Candidate], candidate: Candidate) -> None:
    """Have the candidate in the list, which goes by id."""
    if not held or held[-1].id < candidate.id:
        held.append(candidate)
        return
    at = bisect_left(held, candidate.id, key=_by_id)
    if at == len(held) or held[at].id != candidate.id:
        held.insert(at, candidate)


def _take(held: list[Candidate], candidate: Candidate) -> None:
    """Have the candidate not in the list."""
    at = bisect_left(held, candidate.id, key=_by_id)
    if at < len(held) and held[at].id == candidate.id:
        del held[at]


_standings: WeakKeyDictionary[RunState, Standing] = WeakKeyDictionary()


def standing_of(state: RunState) -> Standing:
    """How the run stands now."""
    found = _standings.get(state)
    if found is None:
        found = _standings[state] = Standing()
    found.follow(state)
    return found
