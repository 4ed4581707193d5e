"""What policies over (cluster, strategy) arms share: which arms are held back and why, pulls in flight, ties, the parent."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import msgspec
import numpy as np

from kbtui.search.arms import ArmKey, cluster_of, in_flight, members, parents, statistics, time_step
from kbtui.search.mask import headroom
from kbtui.search.policy import Choice, Policy, Purpose, draw
from kbtui.search.settings import SearchSettings
from kbtui.state.records import STRATEGIES, ArmScore, Scalar, Signature, Strategy
from kbtui.state.run_state import Candidate, RunState


class ArmPolicy(Policy):
    """A policy that scores every arm and plays the one with the highest score.

    A subclass says what an arm's score is. Equal scores are decided by a seeded draw, since the first of equals would be
    the same strategy in every run. An arm is held back, in this order of reasons, because its cluster is empty, it is
    banned, no parent has a move for it, or it is masked. Its statistics count pulls in flight as played.
    """

    Settings: type[SearchSettings] = SearchSettings

    def __init__(self, settings: SearchSettings | None = None) -> None:
        self.settings = settings if settings is not None else self.Settings()

    @property
    def parameters(self) -> dict[str, Scalar]:
        return msgspec.structs.asdict(self.settings)

    @abstractmethod
    def rate(self, mean: float, pulls: float, t: int) -> tuple[float, float]:
        """(exploration bonus, score) of an arm with N = `pulls` and μ = `mean` at time step t."""

    @abstractmethod
    def reason(self, chosen: ArmScore, arms: int) -> str:
        """Why `chosen` was played, of `arms` arms that were not held back; for people."""

    def propose(self, state: RunState, pull: int, n: int = 1) -> list[Choice]:
        """As `Policy.propose`. Each choice counts as in flight for the next one, so that parallel pulls spread."""
        playing = in_flight(state)
        choices: list[Choice] = []
        for number in range(pull, pull + n):
            scores = self.scores(state, time_step(state) + len(choices), playing)
            eligible = [score for score in scores if not score.held]
            if not eligible:
                break
            chosen = self.pick(eligible, draw(self._seed(state), number, Purpose.TIE))
            choices.append(self._choice(state, number, chosen, scores))
            key = (chosen.cluster, chosen.strategy)
            playing[key] = playing.get(key, 0) + 1
        return choices

    def force(
        self, state: RunState, pull: int, strategy: Strategy, cluster: int | None, parent_id: int | None
    ) -> Choice | None:
        """As `Policy.force`. Masks do not hold a person; a pinned parent does, unless the person names another.

        Without a cluster, the parent's; without a parent either, the cluster whose arm has the highest score. None when
        no parent has a move, or when the named parent is not in the named cluster.
        """
        scores = self.scores(state, time_step(state), in_flight(state))
        clusters = [cluster] if cluster is not None else sorted({score.cluster for score in scores})
        if parent_id is not None:
            parent = state.candidates.get(parent_id)
            if parent is None or not parent.correct or not parent.moves.get(strategy, 0):
                return None
            clusters = [number for number in clusters if number == cluster_of(state, parent_id)]
        else:
            clusters = [number for number in clusters if parents(state, number, strategy)]
        wanted = [score for score in scores if score.strategy == strategy and score.cluster in clusters]
        if not wanted:
            return None
        allowed = [score for score in wanted if not state.banned(score.cluster, strategy)]
        chosen = max(allowed or wanted, key=lambda score: (score.score, -score.cluster))
        choice = self._choice(state, pull, chosen, scores, parent_id)
        return msgspec.structs.replace(choice, reason="forced by a person")

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:
        """The arm to play, of those that are not held back: the highest score, a draw among equals."""
        highest = max(score.score for score in eligible)
        best = [score for score in eligible if score.score == highest]
        return best[int(generator.integers(len(best)))]

    def scores(self, state: RunState, t: int, playing: dict[ArmKey, int]) -> tuple[ArmScore, ...]:
        """Every arm of the run, K x 6 of them, with its score and what holds it back."""
        numbers = sorted({*range(self.settings.clusters), *(cluster for cluster, _ in state.arms)})
        return tuple(self._score(state, number, strategy, t, playing) for number in numbers for strategy in STRATEGIES)

    def _score(self, state: RunState, cluster: int, strategy: Strategy, t: int, playing: dict[ArmKey, int]) -> ArmScore:
        pulls, mean = statistics(state, cluster, strategy)
        pulls += playing.get((cluster, strategy), 0)
        bonus, score = self.rate(mean, pulls, t)
        held, reason = _held(state, cluster, strategy)
        return ArmScore(
            cluster=cluster,
            strategy=strategy,
            pulls=pulls,
            mean=mean,
            bonus=bonus,
            score=score,
            held=held,
            reason=reason,
            headroom_percent=headroom(state.signatures.get(cluster, Signature()), strategy, self.settings),
        )

    def _choice(
        self,
        state: RunState,
        pull: int,
        chosen: ArmScore,
        scores: tuple[ArmScore, ...],
        parent_id: int | None = None,
    ) -> Choice:
        others = [score for score in scores if not score.held and score is not chosen]
        second = max(others, key=lambda score: score.score, default=None)
        if parent_id is None:
            parent_id = self.parent(state, pull, chosen.cluster, chosen.strategy)
        return Choice(
            cluster=chosen.cluster,
            strategy=chosen.strategy,
            parent_id=parent_id,
            scores=scores,
            runner_up=(second.cluster, second.strategy) if second is not None else None,
            reason=self.reason(chosen, len(others) + 1),
        )

    def parent(self, state: RunState, pull: int, cluster: int, strategy: Strategy) -> int:
        """A parent for the arm, drawn by `parent_shares`. The arm must have one."""
        candidates = parents(state, cluster, strategy)
        shares = parent_shares(candidates, strategy, self.settings)
        generator = draw(self._seed(state), pull, Purpose.PARENT)
        return candidates[int(generator.choice(len(candidates), p=shares))].id

    @staticmethod
    def _seed(state: RunState) -> int:
        return state.started.seed if state.started is not None else 0


def parent_shares(candidates: Sequence[Candidate], strategy: Strategy, settings: SearchSettings) -> list[float]:
    """Softmax over (θ − h)[target(strategy)] / 100 / temperature: the probability of each candidate, in order.

    Headrooms are fractions of peak: over percent points a softmax is an argmax. A candidate whose resource is unknown
    gets the mean of the known ones, so that not knowing neither helps nor harms it.
    """
    rooms = [headroom(candidate.signature or Signature(), strategy, settings) for candidate in candidates]
    known = [room for room in rooms if room is not None]
    neutral = math.fsum(known) / len(known) if known else 0.0
    exponents = [(neutral if room is None else room) / 100 / settings.temperature for room in rooms]
    highest = max(exponents)
    weights = [math.exp(exponent - highest) for exponent in exponents]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _held(state: RunState, cluster: int, strategy: Strategy) -> tuple[str, str]:
    """What holds an arm back and why, in words; two empty strings when nothing does."""
    if not members(state, cluster):
        return "empty", "no candidate is in this cluster"
    if state.banned(cluster, strategy):
        return "banned", "banned by a person"
    if not parents(state, cluster, strategy):
        pinned = f", and #{state.pinned} is pinned" if state.pinned is not None else ""
        return "no move", f"no candidate of this cluster has a move left{pinned}"
    reason = state.held.get(cluster, {}).get(strategy, "")
    return ("masked", reason) if reason else ("", "")
