"""The processes of one measurement: fresh pairs of baseline and candidate, or the candidate alone; gone afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.checks import CandidateCheck, Supplier
from kbtui.evaluate.job import JobOrder
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.pairs import Contestant
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.turns import Player, PlayerLost
from kbtui.evaluate.zygotes import Zygote

EARLY_S = 20.0
"""Age at which processes that were started ahead are given up for new ones: a run may have been paused in between."""


@dataclass
class Match:
    """`recheck()` makes the check of one candidate process's outputs; `keys[i]` is case i of both orders.

    `wrong` says, once a process ended for it, what was wrong with the candidate's outputs when they were looked at again.
    """

    zygote: Zygote
    oracle: Oracle
    recheck: Callable[[], CandidateCheck]
    keys: tuple[wire.CaseKey, ...]
    baseline: JobOrder
    candidate: JobOrder
    wrong: str = ""
    _early: list[Player] = field(default_factory=list)
    _early_check: CandidateCheck | None = None
    _begun: float = 0.0

    def begin(self) -> None:
        """Start the next pair's processes without waiting for them: they load their source and wait for turns while something
        else has the device. Raises ProcessGone."""
        self._begun = clock.monotonic()
        self._early_check = self.recheck()
        self._add(self._early, self._early_check)

    @property
    def begun(self) -> bool:
        """Whether processes wait that were started ahead."""
        return bool(self._early)

    @contextlib.contextmanager
    def pair(self, swapped: bool) -> Iterator[tuple[Contestant, Contestant]]:
        """(baseline, candidate), started in the order of their turns. Raises PlayerLost; ProcessGone with the zygote."""
        if clock.monotonic() - self._begun > EARLY_S:
            self.abandon()
        players, self._early = self._early, []
        check = self._early_check if players and self._early_check is not None else self.recheck()
        with self._playing(players, check):
            if not players:
                self._add(players, check)
            for player in players[::-1] if swapped else players:
                player.start()
            yield players[0], players[1]

    def _add(self, players: list[Player], check: CandidateCheck) -> None:
        """Start baseline and candidate; those that were started are in `players` whatever happens."""
        players.append(Player("baseline", self.zygote, self.baseline, Supplier(self.oracle, self.keys)))
        players.append(Player("candidate", self.zygote, self.candidate, check))

    def abandon(self) -> None:
        """End what was started ahead and not taken."""
        early, self._early = self._early, []
        _abandon(early)

    @contextlib.contextmanager
    def alone(self, **parameters: Any) -> Iterator[Player]:
        """The candidate, started, with these parameters of its job on top. Raises as `pair`."""
        check = self.recheck()
        order = msgspec.structs.replace(self.candidate, parameters={**self.candidate.parameters, **parameters})
        players: list[Player] = []
        with self._playing(players, check):
            players.append(Player("candidate", self.zygote, order, check))
            players[0].start()
            yield players[0]

    @contextlib.contextmanager
    def _playing(self, players: list[Player], check: CandidateCheck) -> Iterator[None]:
        try:
            yield
            remaining = [player for player in players if not player.discarded]
            for player in remaining:
                player.dismiss()
            for player in remaining:
                outcome = player.outcome()
                if outcome.kind != "done":
                    raise PlayerLost(player.name, outcome)
        finally:
            _abandon(players)
            if check.verdict is not None:
                self.wrong = f"{check.verdict.reason} (after timing)"


def _abandon(players: list[Player]) -> None:
    for player in players:
        with contextlib.suppress(ProcessGone):
            player.abandon()


class Matches:
    """The matches of a lane, `make(baseline source, source)` each. While a source is checked, the first pair of its match may
    start already."""

    def __init__(self, make: Callable[[str, str], Match]) -> None:
        self._make = make
        self._reference = ""
        self._source = ""
        self._ahead: Match | None = None

    def begin(self, source: str) -> bool:
        """Start the first pair for `source` against the baseline that the last candidate was measured against; whether there
        is one. Raises ProcessGone."""
        self.drop()
        if not self._reference or source == self._reference:
            return False
        self._source, self._ahead = source, self._make(self._reference, source)
        self._ahead.begin()
        return True

    def take(self, source: str, baseline_source: str | None) -> Match:
        """The match for `source`, begun if it was ahead. `baseline_source` None: it is the baseline, which is measured against
        itself."""
        ahead, self._ahead = self._ahead, None
        self._reference = baseline_source or self._reference
        if ahead is not None and (self._source, ahead.baseline.source) == (source, baseline_source):
            return ahead
        if ahead is not None:
            ahead.abandon()
        return self._make(baseline_source or source, source)

    def drop(self) -> None:
        """End what was started ahead, if anything."""
        if self._ahead is not None:
            self._ahead.abandon()
            self._ahead = None
