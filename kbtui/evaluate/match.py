"""The processes of one measurement: fresh pairs of baseline and candidate, or the candidate alone; gone afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kbtui.evaluate import wire
from kbtui.evaluate.checks import CandidateCheck, Supplier
from kbtui.evaluate.job import JobOrder
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.pairs import Contestant
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.turns import Player, PlayerLost
from kbtui.evaluate.zygotes import Zygote


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

    @contextlib.contextmanager
    def pair(self, swapped: bool) -> Iterator[tuple[Contestant, Contestant]]:
        """(baseline, candidate), started in the order of their turns. Raises PlayerLost; ProcessGone with the zygote."""
        check = self.recheck()
        players: list[Player] = []
        with self._playing(players, check):
            players.append(Player("baseline", self.zygote, self.baseline, Supplier(self.oracle, self.keys)))
            players.append(Player("candidate", self.zygote, self.candidate, check))
            for player in players[::-1] if swapped else players:
                player.start()
            yield players[0], players[1]

    @contextlib.contextmanager
    def alone(self) -> Iterator[Player]:
        """The candidate, started. Raises as `pair`."""
        check = self.recheck()
        players: list[Player] = []
        with self._playing(players, check):
            players.append(Player("candidate", self.zygote, self.candidate, check))
            players[0].start()
            yield players[0]

    @contextlib.contextmanager
    def _playing(self, players: list[Player], check: CandidateCheck) -> Iterator[None]:
        try:
            yield
            for player in players:
                outcome = player.end()
                if outcome.kind != "done":
                    raise PlayerLost(player.name, outcome)
        finally:
            for player in players:
                with contextlib.suppress(ProcessGone):
                    player.abandon()
            if check.verdict is not None:
                self.wrong = f"{check.verdict.reason} (after timing)"
