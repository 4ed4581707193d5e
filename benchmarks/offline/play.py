"""A policy played on a world, through the policy's own interface: the state is folded from the events that a run would emit.

What is left out is what no policy sees: compiling, checking, timing. Clusters are formed as in a run unless the world has
its own. `parallel` pulls are in flight, so that a pull's outcome is known only after the next `parallel - 1` choices.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kbtui.search import cluster
from kbtui.search.arms import DUPLICATES, Board
from kbtui.search.policy import Choice, Policy, Purpose, draw
from kbtui.search.reward import rewarded
from kbtui.search.tuning import its_turn, tuned_parent
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState
from offline.world import Version, World


@dataclass
class Played:
    """`best[t - 1]` is the highest speed after t pulls; `on_best[t - 1]` whether pull t was on an arm of which most could
    be expected (None where nothing could be)."""

    best: list[float] = field(default_factory=list)
    on_best: list[bool | None] = field(default_factory=list)


@dataclass(frozen=True)
class _Open:
    number: int
    parent: Version
    child: Version | None


class Play:
    """One play. Pulls that make nothing new are dropped and not counted, as in a run; the play ends early when no arm is left."""

    def __init__(self, world: World, policy: Policy, seed: int, parallel: int = 1) -> None:
        self._world, self._policy, self._seed, self._parallel = world, policy, seed, parallel
        self._versions: dict[int, Version] = {}
        self._known: set[str] = set()
        self._moves: dict[str, dict[str, int]] = {}
        self._expected: dict[tuple[str, str], float] = {}
        self.state = RunState()
        self.state.apply(_started(policy, world, seed))
        for number, version in enumerate(world.starts):
            self._judge(number, None, 0, None, version)
        if world.labels is not None:
            labels = dict(world.labels)
            first = {label: number for number, label in reversed(labels.items())}
            self.state.apply(e.Clustered(pull=0, labels=labels, representatives=first, features={}, arms=()))

    def run(self, pulls: int) -> Played:
        """Play until `pulls` counted pulls have ended."""
        played = Played()
        best = max(version.speed or 0.0 for version in self._world.starts)
        opened: deque[_Open] = deque()
        dry = False
        number = 0
        while len(played.best) < pulls and not (dry and not opened):
            while not dry and len(opened) < self._parallel and len(played.on_best) < pulls:
                number += 1
                begun = self._begin(number, played)
                dry = begun is None
                if begun is not None:
                    opened.append(begun)
            if not opened:
                break
            ended = opened.popleft()
            if self._end(ended):
                best = max(best, ended.child.speed or 0.0) if ended.child is not None else best
                played.best.append(best)
                dry = False
        played.best += [best] * (pulls - len(played.best))
        return played

    def _begin(self, number: int, played: Played) -> _Open | None:
        state = self.state
        if self._world.labels is None and cluster.due(state, number):
            state.apply(cluster.cluster(state, number, self._seed))
        masked = self._policy.mask(state, number)
        if (masked.signatures, masked.held) != (state.signatures, state.held):
            state.apply(masked)
        tuned = self._tuned(number)
        choices = [tuned[0]] if tuned is not None else self._policy.propose(state, number)
        if not choices:
            return None
        [choice] = choices
        best_arm = self._is_best(choice)
        state.apply(
            e.Selected(
                pull=number,
                cluster=choice.cluster,
                strategy=choice.strategy,
                parent_id=choice.parent_id,
                scores=(),
                tuned=choice.tuned,
            )
        )
        parent = self._versions[choice.parent_id]
        generator = draw(self._seed, number, Purpose.MOVE)
        child = tuned[1] if tuned is not None else self._world.pull(parent, choice.strategy, self._known, generator)
        if child is not None:
            self._known.add(child.key)
            played.on_best.append(best_arm)
        return _Open(number, parent, child)

    def _tuned(self, number: int) -> tuple[Choice, Version] | None:
        """The numeric search's choice and the version that it leads to; None when it is the policy's turn."""
        parent = tuned_parent(self.state) if its_turn(self.state) else None
        if parent is None:
            return None
        steps = self._world.steps(self._versions[parent.id], self._known)
        choice = self._policy.tune(self.state, number, parent, [step for step, _ in steps]) if steps else None
        if choice is None:
            return None
        return choice, next(version for step, version in steps if step.move == choice.tuned)

    def _end(self, ended: _Open) -> bool:
        """Whether the pull counts."""
        state, pull = self.state, self.state.pulls[ended.number]
        if ended.child is None:
            state.apply(e.PullDropped(pull=pull.number, owner=None, reason="nothing new", duplicates=DUPLICATES))
            moves = {**state.candidates[pull.parent_id].moves, pull.strategy: 0}
            state.apply(e.MovesFound(candidate_id=pull.parent_id, moves=moves))
            return False
        number = len(state.candidates)
        self._judge(number, pull.parent_id, pull.number, pull.strategy, ended.child)
        child = state.candidates[number]
        earned = self._policy.reward(state.candidates[pull.parent_id], child) if child.correct else 0.0
        state.apply(rewarded(state, pull.number, pull.cluster, pull.strategy, number, earned, child.status))
        return True

    def _judge(
        self, number: int, parent_id: int | None, pull: int, strategy: r.Strategy | None, version: Version
    ) -> None:
        self._versions[number] = version
        self._known.add(version.key)
        apply = self.state.apply
        apply(
            e.Generated(
                candidate_id=number, parent_id=parent_id, pull=pull, strategy=strategy, generator="offline", move="",
                source="", source_digest="", syntax_digest=version.key, change=version.change,
            )
        )  # fmt: skip
        kernels = (version.kernel,) if version.kernel is not None else ()
        apply(e.Compiled(candidate_id=number, compilation=r.Compilation(ok=True, kernels=kernels)))
        verdict: r.Correctness = "wrong" if version.speed is None else "correct"
        apply(e.Verified(candidate_id=number, verification=r.Verification(verdict=verdict, stage="offline")))
        if version.speed is None:
            return
        apply(e.Timed(candidate_id=number, timing=_timing(self._world, version), signature=version.signature))
        if version.key not in self._moves:
            self._moves[version.key] = self._world.moves(version)
        apply(e.MovesFound(candidate_id=number, moves=dict(self._moves[version.key])))

    def _is_best(self, choice: Choice) -> bool | None:
        """Whether no arm promises more than the chosen one, with parents drawn evenly."""
        board = Board(self.state)
        worth = {}
        for number in board.members:
            for strategy in r.STRATEGIES:
                parents = board.parents(number, strategy)
                if parents:
                    found = [self._worth(self._versions[parent.id], strategy) for parent in parents]
                    worth[number, strategy] = sum(found) / len(found)
        most = max(worth.values(), default=0.0)
        return None if most <= 0 else worth[choice.cluster, choice.strategy] >= most * (1 - 1e-9)

    def _worth(self, version: Version, strategy: r.Strategy) -> float:
        key = (version.key, strategy)
        if key not in self._expected:
            self._expected[key] = self._world.expected(version, strategy)
        return self._expected[key]


def _timing(world: World, version: Version) -> r.Timing:
    names = [case.name for case in world.cases]
    if world.timing == "measured":
        cases = tuple(r.CaseTiming(case=name, ms=ms) for name, ms in zip(names, version.ms, strict=True))
        return r.Timing(
            kind="measured", verdict="same", cases=cases, ratio=version.speed, low=version.low, high=version.high
        )
    cases = tuple(r.CaseTiming(case=name, estimate_ms=ms) for name, ms in zip(names, version.ms, strict=True))
    return r.Timing(kind="modelled", verdict="unknown", cases=cases, estimate=version.speed)


def _started(policy: Policy, world: World, seed: int) -> e.RunStarted:
    return e.RunStarted(
        journal_version=e.JOURNAL_VERSION, run_id="offline", timing=world.timing, policy=policy.name,
        policy_parameters=policy.parameters, generator="offline", objective="geomean", seed=seed, iterations=1,
        budget_usd=None, parallel=1, versions={}, isolation={}, python="", device=world.device,
        problem=r.ProblemInfo(name=world.name, path="", entry="", digest="", cases=world.cases),
    )  # fmt: skip
