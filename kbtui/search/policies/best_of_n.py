"""`--policy best_of_n`: many versions of one parent, then on from the best. What a search over chains must beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board
from kbtui.search.settings import SoftSettings
from kbtui.search.soft_policy import SoftPolicy
from kbtui.state.records import ArmScore, Strategy
from kbtui.state.run_state import Candidate


class BestOfNSettings(SoftSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    n: Annotated[int, msgspec.Meta(ge=1)] = 20
    """Versions of one parent; with as many as the run has pulls it is the plain best of N versions of the baseline."""


class BestOfNPolicy(SoftPolicy):
    """Rounds of `n` pulls from one parent, strategies drawn evenly. The first parent is the baseline; at the start of a
    round, and when the parent has nothing left to try, it is the fastest version so far that has."""

    name = "best_of_n"
    summary = "n versions of one parent by any strategy, then n of the best so far; no chain within a round"
    source = "in-tree"
    Settings = BestOfNSettings
    settings: BestOfNSettings

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        round_parent = self._round_parent(board)
        weights = [0.0] * len(arms)
        if round_parent is not None:
            cluster = board.clusters[round_parent.id]
            weights = [
                arm.prior.weight / (1 + arm.playing)
                if not arm.held and arm.cluster == cluster and _offers(board, round_parent, arm.strategy)
                else 0.0
                for arm in arms
            ]
        total = sum(weights)
        return [Rating(score=weight, share=weight / total if total else 0.0) for weight in weights]

    def reason(self, chosen: ArmScore, arms: int) -> str:  # noqa: ARG002
        return f"drawn with a chance of {chosen.share or 0.0:.0%} for the parent of this round"

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:
        shares = np.array([score.share or 0.0 for score in eligible])
        return eligible[int(generator.choice(len(eligible), p=shares / shares.sum()))]

    def parent(self, board: Board, pull: int, cluster: int, strategy: Strategy) -> int:  # noqa: ARG002
        """The round's parent; where it is not the arm's (a person forced it), the fastest that is."""
        candidates = board.parents(cluster, strategy) or board.able(cluster, strategy)
        chosen = self._round_parent(board)
        return chosen.id if chosen in candidates else _fastest(candidates).id

    def _round_parent(self, board: Board) -> Candidate | None:
        """Read off the pull log: what came of pulls of this round is no parent yet, unless nothing else has a move."""
        counted = sorted(pull.number for pull in board.state.pulls.values() if pull.seen or not pull.ended)
        begun = (board.t - 1) // self.settings.n * self.settings.n
        last = counted[min(begun, len(counted)) - 1] if begun and counted else 0
        usable = [
            candidate
            for cluster, here in board.members.items()
            for candidate in here
            if board.state.pinned in (None, candidate.id)
            and any(
                not board.state.banned(cluster, strategy) and _offers(board, candidate, strategy)
                for strategy in candidate.moves
            )
        ]
        older = [candidate for candidate in usable if candidate.pull <= last]
        return _fastest(older or usable) if usable else None


def _offers(board: Board, candidate: Candidate, strategy: str) -> bool:
    return candidate.moves.get(strategy, 0) > 0 and (candidate.id, strategy) not in board.resting


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    """The highest ratio or estimate; of equals the oldest."""
    return max(candidates, key=lambda one: ((one.ratio if one.ratio is not None else one.estimate) or 0.0, -one.id))
