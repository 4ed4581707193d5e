"""What policies over (cluster, strategy) arms share: which arms are held back and why, pulls in flight, ties, the parent."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kbtui.search.arms import ArmKey, Board, Play, statistics
from kbtui.search.policy import Choice, Policy, Purpose, draw
from kbtui.search.prior import Prior
from kbtui.search.settings import SearchSettings
from kbtui.search.tuning import Step, earned, evidence, hoped, promise
from kbtui.state.records import STRATEGIES, ArmScore, Scalar, Strategy
from kbtui.state.run_state import Candidate, RunState


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm as a policy rates it. `pulls` is N with the prior pull and those in flight, `mean` is μ without the prior's
    weight; `playing` counts pulls in flight, `log` holds the rewarded ones, the oldest first."""

    cluster: int
    strategy: Strategy
    pulls: float
    mean: float
    playing: int
    log: Sequence[Play]
    prior: Prior
    held: str
    reason: str


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy thinks of an arm. `share` is the arm's probability where the policy draws."""

    score: float
    bonus: float = 0.0
    mean: float | None = None
    share: float | None = None


class ArmPolicy(Policy):
    """A policy that rates every arm and plays the one with the highest score.

    Equal scores are decided by a seeded draw, since the first of equals would be the same strategy in every run. An arm
    is held back, in this order of reasons, because its cluster is empty, it is banned, no parent has a move for it, every
    parent that has one rests, or it is masked. Pulls in flight count as played.
    """

    Settings: type[SearchSettings] = SearchSettings

    def __init__(self, settings: SearchSettings | None = None) -> None:
        self.settings = settings if settings is not None else self.Settings()

    @property
    def parameters(self) -> dict[str, Scalar]:
        return msgspec.structs.asdict(self.settings)

    @abstractmethod
    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:
        """The rating of each arm at time step `board.t`, in order; held arms are rated too. Draws are from `generator`."""

    @abstractmethod
    def reason(self, chosen: ArmScore, arms: int) -> str:
        """Why `chosen` was played, of `arms` arms that were not held back; for people."""

    @abstractmethod
    def parent_shares(self, candidates: Sequence[Candidate], strategy: Strategy) -> list[float]:
        """The probability of each candidate of being the parent, in order."""

    @abstractmethod
    def priors(self, state: RunState) -> Mapping[ArmKey, Prior]:
        """What the hardware says of the arms; one that is missing is as good as any."""

    def masked(self, state: RunState, cluster: int, strategy: Strategy) -> str:  # noqa: ARG002
        """Why the policy's mask refuses the arm, "" when it does not. Nothing is refused unless a policy says so."""
        return ""

    def propose(self, state: RunState, pull: int, n: int = 1) -> list[Choice]:
        """As `Policy.propose`. Each choice counts as in flight for the next one, so that parallel pulls spread."""
        board = Board(state)
        choices: list[Choice] = []
        for number in range(pull, pull + n):
            scores = self.scores(board, number)
            eligible = [score for score in scores if not score.held]
            if not eligible:
                break
            chosen = self.pick(eligible, draw(self._seed(state), number, Purpose.TIE))
            choices.append(self._choice(board, number, chosen, scores))
            board.begin(chosen.cluster, chosen.strategy)
        return choices

    def force(
        self, state: RunState, pull: int, strategy: Strategy, cluster: int | None, parent_id: int | None
    ) -> Choice | None:
        """As `Policy.force`. Masks and rests do not hold a person; a pinned parent does, unless the person names another.

        Without a cluster, the parent's; without a parent either, the cluster whose arm has the highest score. None when
        no parent has a move, or when the named parent is not in the named cluster.
        """
        board = Board(state)
        scores = self.scores(board, pull)
        clusters = [cluster] if cluster is not None else sorted({score.cluster for score in scores})
        if parent_id is not None:
            parent = state.candidates.get(parent_id)
            if parent is None or not parent.correct or not parent.moves.get(strategy, 0):
                return None
            clusters = [number for number in clusters if number == board.clusters[parent_id]]
        else:
            clusters = [number for number in clusters if board.able(number, strategy)]
        wanted = [score for score in scores if score.strategy == strategy and score.cluster in clusters]
        if not wanted:
            return None
        allowed = [score for score in wanted if not state.banned(score.cluster, strategy)]
        chosen = max(allowed or wanted, key=lambda score: (score.score, -score.cluster))
        choice = self._choice(board, pull, chosen, scores, parent_id)
        return msgspec.structs.replace(choice, reason="forced by a person")

    def tune(self, state: RunState, pull: int, parent: Candidate, steps: Sequence[Step]) -> Choice | None:
        """As `Policy.tune`. A saturated resource lowers what is hoped of its strategy's steps; equals are drawn."""
        board = Board(state)
        cluster, scores = board.clusters[parent.id], self.scores(board, pull)
        held = {score.strategy for score in scores if score.cluster == cluster and score.held in ("banned", "masked")}
        priors, seen = self.priors(state), evidence(state)
        worth = [
            (priors.get((cluster, step.strategy), Prior()).weight * hoped(promise(step, seen)), step)
            for step in steps
            if step.strategy not in held
        ]
        most = max((one for one, _ in worth), default=0.0)
        if most < earned(state):
            return None
        best = [step for one, step in worth if one == most]
        chosen = best[int(draw(self._seed(state), pull, Purpose.STEP).integers(len(best)))]
        return Choice(
            cluster=cluster,
            strategy=chosen.strategy,
            parent_id=parent.id,
            scores=scores,
            reason=f"numbers of #{parent.id}: {chosen.move} is worth {100 * most:.1f} %, by what its like did",
            tuned=chosen.move,
        )

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:
        """The arm to play, of those that are not held back: the highest score, a draw among equals."""
        highest = max(score.score for score in eligible)
        best = [score for score in eligible if score.score == highest]
        return best[int(generator.integers(len(best)))]

    def scores(self, board: Board, pull: int) -> tuple[ArmScore, ...]:
        """Every arm of the run, K x 6 of them, with its score and what holds it back."""
        numbers = sorted(
            {*range(self.settings.clusters), *(cluster for cluster, _ in board.state.arms), *board.members}
        )
        priors = self.priors(board.state)
        arms = [self._arm(board, (number, strategy), priors) for number in numbers for strategy in STRATEGIES]
        ratings = self.rate(board, arms, draw(self._seed(board.state), pull, Purpose.BELIEF))
        return tuple(_score(arm, rating) for arm, rating in zip(arms, ratings, strict=True))

    def parent(self, board: Board, pull: int, cluster: int, strategy: Strategy) -> int:
        """A parent for the arm, drawn by `parent_shares`; one that rests only where all do. The arm must have one."""
        candidates = board.parents(cluster, strategy) or board.able(cluster, strategy)
        shares = self.parent_shares(candidates, strategy)
        generator = draw(self._seed(board.state), pull, Purpose.PARENT)
        return candidates[int(generator.choice(len(candidates), p=shares))].id

    def _arm(self, board: Board, key: tuple[int, Strategy], priors: Mapping[ArmKey, Prior]) -> Arm:
        cluster, strategy = key
        playing = board.playing.get(key, 0)
        pulls, mean = statistics(board.state, cluster, strategy, self.settings.prior_mean)
        held, reason = self._held(board, cluster, strategy)
        return Arm(
            cluster=cluster,
            strategy=strategy,
            pulls=pulls + playing,
            mean=mean,
            playing=playing,
            log=board.log.get(key, ()),
            prior=priors.get(key, Prior()),
            held=held,
            reason=reason,
        )

    def _held(self, board: Board, cluster: int, strategy: Strategy) -> tuple[str, str]:
        """What holds an arm back and why, in words; two empty strings when nothing does."""
        state = board.state
        if not board.members.get(cluster):
            return "empty", "no candidate is in this cluster"
        if state.banned(cluster, strategy):
            return "banned", "banned by a person"
        if not board.parents(cluster, strategy):
            pinned = f", and #{state.pinned} is pinned" if state.pinned is not None else ""
            if board.able(cluster, strategy):
                return "resting", f"only known versions came lately{pinned}"
            return "no move", f"no candidate of this cluster has a move left{pinned}"
        reason = self.masked(state, cluster, strategy)
        return ("masked", reason) if reason else ("", "")

    def _choice(
        self, board: Board, pull: int, chosen: ArmScore, scores: tuple[ArmScore, ...], parent_id: int | None = None
    ) -> Choice:
        others = [score for score in scores if not score.held and score is not chosen]
        second = max(others, key=lambda score: score.score, default=None)
        if parent_id is None:
            parent_id = self.parent(board, pull, chosen.cluster, chosen.strategy)
        return Choice(
            cluster=chosen.cluster,
            strategy=chosen.strategy,
            parent_id=parent_id,
            scores=scores,
            runner_up=(second.cluster, second.strategy) if second is not None else None,
            reason=self.reason(chosen, len(others) + 1),
        )

    @staticmethod
    def _seed(state: RunState) -> int:
        return state.started.seed if state.started is not None else 0


def softmax(exponents: Sequence[float | None]) -> list[float]:
    """Shares that add up to 1. None gets the mean of the known ones, so that not knowing neither helps nor harms."""
    known = [exponent for exponent in exponents if exponent is not None]
    neutral = math.fsum(known) / len(known) if known else 0.0
    filled = [neutral if exponent is None else exponent for exponent in exponents]
    highest = max(filled)
    weights = [math.exp(exponent - highest) for exponent in filled]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _score(arm: Arm, rating: Rating) -> ArmScore:
    return ArmScore(
        cluster=arm.cluster,
        strategy=arm.strategy,
        pulls=arm.pulls,
        mean=arm.mean if rating.mean is None else rating.mean,
        bonus=rating.bonus,
        score=rating.score,
        held=arm.held,
        reason=arm.reason or arm.prior.reason,
        headroom_percent=arm.prior.headroom_percent,
        share=rating.share,
    )
