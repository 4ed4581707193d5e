"""What is kept from event to event is what the whole state says: how the bandit sees the run, and who is ahead."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from kbtui.engine.best import best_of, promoting_figure
from kbtui.search.cluster import cluster
from kbtui.search.features import features
from kbtui.search.reward import rewarded
from kbtui.search.settings import settings_of
from kbtui.search.standing import DUPLICATES, Standing, standing_of
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import Candidate, RunState


def started(empty: bool) -> e.RunStarted:
    return e.RunStarted(
        journal_version=1, run_id="r", timing="measured", policy="paper", policy_parameters={"rest": 4}, generator="rewrite",
        objective="geomean", seed=0, iterations=99, budget_usd=None, parallel=4, versions={}, isolation={}, python="python",
        problem=r.ProblemInfo(name="p", path="/p", entry="p", digest="d", cases=(r.CaseInfo(name="a", fields={}),)),
        device=r.DeviceInfo(lane="cuda:0", kind="cuda", name="GPU", target="sm_90"), host="empty" if empty else "",
    )  # fmt: skip


class Walk:
    """A run of random events in an order that an engine could emit them, several pulls in flight."""

    def __init__(self, seed: int, empty: bool) -> None:
        self.state, self._draw, self._empty, self._seq = RunState(), random.Random(seed), empty, 0

    def events(self, count: int) -> Iterator[e.Event]:
        if not self._seq:
            yield from self._one(started(self._empty))
            yield from self._generated(0, None, 0)
            if not self._empty:
                verified = r.Verification(verdict="correct", stage="cases")
                yield from self._one(e.Verified(candidate_id=0, verification=verified))
        while self._seq < count:
            yield from self._step()

    def _one(self, event: e.Event) -> Iterator[e.Event]:
        self._seq += 1
        event = msgspec.structs.replace(event, seq=self._seq)
        self.state.apply(event)
        yield event

    def _generated(self, number: int, parent: int | None, pull: int) -> Iterator[e.Event]:
        yield from self._one(
            e.Generated(
                candidate_id=number, parent_id=parent, pull=pull, strategy=None, move="m", source="", source_digest="",
                generator="empty" if self._empty and number == 0 else "rewrite", syntax_digest=f"t{number}",
            )
        )  # fmt: skip

    def _step(self) -> Iterator[e.Event]:
        state, draw = self.state, self._draw
        some = draw.choice(list(state.candidates))
        open_pull = draw.choice(state.open_pulls) if state.open_pulls else None
        match draw.randrange(11):
            case 0 | 1 if state.parents and len(state.open_pulls) < 4:
                parent = draw.choice(state.parents)
                yield from self._one(
                    e.Selected(
                        pull=state.newest_pull + 1, cluster=0, strategy=draw.choice(r.STRATEGIES[:2]), parent_id=parent.id,
                        scores=(),
                    )
                )  # fmt: skip
            case 2 | 3 if open_pull is not None:
                yield from self._generated(len(state.candidates), open_pull.parent_id, open_pull.number)
            case 4 if open_pull is not None and draw.random() < 0.5:
                duplicates = draw.choice((0, DUPLICATES))
                yield from self._one(
                    e.PullDropped(pull=open_pull.number, owner=None, reason="seen", duplicates=duplicates)
                )
            case 4 | 5 if open_pull is not None:
                made = open_pull.candidate_ids[-1] if open_pull.candidate_ids else None
                yield from self._one(rewarded(state, open_pull.number, 0, open_pull.strategy, made, draw.random(), "x"))
            case 6 if some or not self._empty:
                good = some == state.baseline_id or draw.random() < 0.75
                verdict: r.Correctness = "correct" if good else "wrong"
                yield from self._one(
                    e.Verified(candidate_id=some, verification=r.Verification(verdict=verdict, stage="cases"))
                )
            case 7 if some or not self._empty:
                if state.baseline is not None and state.baseline.timing is None:
                    some = state.baseline.id
                ratio = draw.choice((0.5, 1.0, 1.5, 1.5, 2.0))
                timing = r.Timing(
                    kind="measured", verdict="faster" if ratio > 1 else "slower", ratio=ratio,
                    cases=(r.CaseTiming(case="a", ms=1 / ratio),),
                )  # fmt: skip
                yield from self._one(self._compiled(some))
                yield from self._one(e.Timed(candidate_id=some, timing=timing, signature=r.Signature()))
                if self._empty and state.baseline is None and state.candidates[some].correct:
                    yield from self._one(e.BaselineChosen(candidate_id=some))
            case 8:
                moves: dict[str, int] = {strategy: draw.randrange(3) for strategy in r.STRATEGIES}
                yield from self._one(e.MovesFound(candidate_id=some, moves=moves))
            case 9 if some not in (0, state.baseline_id) and draw.random() < 0.3:
                found = r.Verification(verdict=draw.choice(("correct", "wrong")), stage="hidden")
                yield from self._one(
                    draw.choice(
                        (e.Confirmed(candidate_id=some, verification=found), e.Killed(by="ann", candidate_id=some))
                    )
                )
            case 10 if len(state.frontier) >= 4 and draw.random() < 0.3:
                yield from self._one(cluster(state, state.newest_pull + 1, 0))

    def _compiled(self, number: int) -> e.Compiled:
        kernel = r.KernelFacts(
            name="k", target="sm_90", registers=self._draw.choice((16, 32, 64)), spill_bytes=0, shared_bytes=0, num_warps=4,
            num_stages=1, threads=128, occupancy_percent=50.0, code_digest="",
        )  # fmt: skip
        return e.Compiled(candidate_id=number, compilation=r.Compilation(ok=True, kernels=(kernel,)))


def cluster_by_ancestors(state: RunState, number: int) -> int:
    here: int | None = number
    while here is not None and state.labels:
        if here in state.labels:
            return state.labels[here]
        here = state.candidates[here].parent_id
    return 0


def check(state: RunState, kept: Standing) -> None:
    """Everything that is kept, made anew from candidates and pulls."""
    frontier = [one for one in state.candidates.values() if one.correct]
    assert state.frontier == frontier
    assert state.open_pulls == [one for one in state.pulls.values() if not one.ended]
    clusters = {number: cluster_by_ancestors(state, number) for number in state.candidates}
    assert kept.clusters == clusters
    members: dict[int, list[int]] = {}
    able: dict[tuple[int, str], list[int]] = {}
    for one in frontier or [one for one in state.candidates.values() if one.empty]:
        members.setdefault(clusters[one.id], []).append(one.id)
        for strategy in r.STRATEGIES:
            if one.moves.get(strategy, 0):
                able.setdefault((clusters[one.id], strategy), []).append(one.id)
    assert {number: ids(held) for number, held in kept.members.items()} == members
    assert {key: ids(held) for key, held in kept.able.items() if held} == able
    seen = sorted((one for one in state.pulls.values() if one.seen), key=lambda one: one.number)
    log: dict[tuple[int, str], list[tuple[int, float, bool]]] = {}
    for t, pull in enumerate(seen, 1):
        valid = bool(pull.candidate_ids) and state.candidates[pull.candidate_ids[-1]].correct
        log.setdefault((clusters[pull.parent_id], pull.strategy), []).append((t, pull.reward or 0.0, valid))
    plays = {key: [(play.t, play.reward, play.valid) for play in held] for key, held in kept.log.items() if held}
    assert plays == log
    assert kept.seen == [pull.number for pull in seen]
    assert kept.resting(state) == resting(state)
    for one in frontier:
        assert kept.features(one) == features(one)


def ids(candidates: list[Candidate]) -> list[int]:
    return [one.id for one in candidates]


def resting(state: RunState) -> frozenset[tuple[int, str]]:
    latest = {}
    for number in sorted(state.pulls):
        pull = state.pulls[number]
        if pull.ended:
            latest[pull.parent_id, pull.strategy] = pull
    since = {
        key: sum(one.seen and one.number > pull.number for one in state.pulls.values()) for key, pull in latest.items()
    }
    rest = settings_of(state).rest
    return frozenset(key for key, pull in latest.items() if pull.duplicates >= DUPLICATES and since[key] < rest)


def ahead(state: RunState) -> int | None:
    baseline = state.baseline
    if baseline is None or not baseline.correct or baseline.timing is None:
        return None
    figures = {
        one.id: promoting_figure(one, "") for one in state.candidates.values() if one.correct and one is not baseline
    }
    above = {number: figure for number, figure in figures.items() if figure is not None and figure > 1.0}
    return max(above, key=lambda number: (above[number], -number)) if above else baseline.id


@pytest.mark.parametrize("empty", [False, True], ids=["kernel", "scratch"])
@pytest.mark.parametrize("seed", range(6))
def test_after_every_event(seed: int, empty: bool) -> None:
    walk = Walk(seed, empty)
    followed = RunState()
    partitions = rests = changes = 0
    before = None
    for event in walk.events(700):
        followed.apply(event)
        check(followed, standing_of(followed))
        assert best_of(followed) == ahead(followed)
        partitions += isinstance(event, e.Clustered)
        rests += bool(standing_of(followed).resting(followed))
        changes += best_of(followed) != before
        before = best_of(followed)
    assert min(partitions, rests, changes) > 0, "the walk came by everything"
    assert len(followed.pulls) > 30


def test_looked_at_now_and_then() -> None:
    walk, draw = Walk(11, False), random.Random(11)
    for event in walk.events(1500):
        del event
        if draw.random() < 0.05:
            check(walk.state, standing_of(walk.state))
            assert best_of(walk.state) == ahead(walk.state)


def test_what_changed_is_what_events_spoke_of() -> None:
    walk = Walk(3, False)
    list(walk.events(200))
    version = walk.state.version
    assert walk.state.changed_since(version) == []
    silent = (e.Rewarded, e.PullDropped, e.Selected, e.Clustered)
    spoken = {getattr(event, "candidate_id", None) for event in walk.events(240) if not isinstance(event, silent)}
    assert walk.state.changed_since(version) == sorted(spoken)
    assert walk.state.version == version + 40
