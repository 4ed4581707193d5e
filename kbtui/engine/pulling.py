"""A pull from its choice to its reward. Each step emits events of which every prefix leads on to the rest (plan.py)."""

from __future__ import annotations

import asyncio
import importlib

from kbtui.engine import numbers
from kbtui.engine.actions import INJECTED, TUNED
from kbtui.engine.commands import arm_name
from kbtui.engine.outcomes import failed, unjudged
from kbtui.engine.tools import Tools
from kbtui.generate.digest import source_digest, syntax_digest
from kbtui.generate.generator import BudgetSpent, Exhausted, Request, Unusable, Written
from kbtui.search import cluster, reward
from kbtui.search.arms import DUPLICATES
from kbtui.search.policy import Choice, Purpose
from kbtui.state import events as e
from kbtui.state.records import BASELINE_ID, EMPTY_START, Owner
from kbtui.state.run_state import Candidate, Pull
from kbtui.text import redact


def write_baseline(tools: Tools) -> None:
    """Candidate 0 is the problem's kernel as it is; where there is none, an empty start."""
    source = redact(tools.kernel_source)
    tools.emitter.emit(
        e.Generated(
            candidate_id=BASELINE_ID,
            parent_id=None,
            pull=0,
            strategy=None,
            generator="baseline" if source else EMPTY_START,
            move="baseline" if source else "empty start",
            source=source,
            source_digest=source_digest(source),
            syntax_digest=syntax_digest(source),
        )
    )


def take_injection(tools: Tools, seq: int) -> None:
    """Make a person's own version a candidate: a child of the pinned parent or the best, of no pull and no strategy."""
    state, injected = tools.state, tools.state.injections[seq]
    parent = state.pinned if state.pinned is not None else state.best_id
    tools.emitter.emit(
        e.Generated(
            candidate_id=next_id(tools),
            parent_id=parent,
            pull=0,
            strategy=None,
            generator=INJECTED,
            move=injected.name,
            source=injected.source,
            source_digest=source_digest(injected.source),
            syntax_digest=syntax_digest(injected.source),
            by=injected.by,
        )
    )


async def choose(tools: Tools, pull: int) -> bool:
    """Cluster if due, mask, and select an arm with a parent: a person's wish first, then the policy's. False: no arm is
    left, as far as the frontier goes now."""
    state = tools.state
    tools.show("selecting", "", pull)
    if cluster.due(state, pull):
        # scikit-learn takes a second or two to import; the clustering itself takes milliseconds.
        await asyncio.to_thread(importlib.import_module, "sklearn.cluster")
        if state.status == "paused" and not state.steps:
            return True  # a person paused the run meanwhile
        tools.emitter.emit(cluster.cluster(state, pull, tools.started.seed))
    masked = tools.policy.mask(state, pull)
    if (masked.signatures, masked.held) != (state.signatures, state.held):
        tools.emitter.emit(masked)
    while state.forces:
        forced = state.forces[min(state.forces)]
        choice = tools.policy.force(state, pull, forced.strategy, forced.cluster, forced.parent_id)
        if choice is not None and not state.banned(choice.cluster, choice.strategy):
            _select(tools, pull, choice, forced.seq)
            return True
        why = "no move of that kind is left" if choice is None else "it was banned since"
        text = f"{arm_name(forced.cluster, forced.strategy)}, forced by {forced.by}, cannot be played: {why}"
        tools.emitter.emit(e.Noted(level="warning", text=text, drops_force=forced.seq))
    tuned = await numbers.choose(tools, pull)
    if state.status == "paused" and not state.steps:
        return True  # a person paused the run meanwhile
    choices = [tuned] if tuned is not None else tools.policy.propose(state, pull, 1)
    if not choices and (step := await numbers.instead(tools, pull)) is not None:
        choices = [step]
    if choices:
        _select(tools, pull, choices[0], None)
    return bool(choices)


async def generate(tools: Tools, pull: Pull) -> None:
    """Have the pull's candidate written. What has been seen before costs no pull: the generator is asked again. After
    `DUPLICATES` in a row the pull is dropped and the arm rests for this parent; when the generator says that there is
    nothing more, the strategy is no arm for this parent any more."""
    state = tools.state
    parent = state.candidates[pull.parent_id]
    if pull.tuned:
        await _tune(tools, pull, parent)
        return
    tools.show("generating", f"{pull.strategy} from #{parent.id}", pull.number)
    duplicates: set[str] = set()
    cost, tokens = 0.0, 0
    for _ in range(DUPLICATES):
        tried = duplicates | {state.candidates[child].move for child in parent.children}  # other pulls make some, too
        try:
            written = await tools.generator.write(_request(tools, pull, parent, frozenset(tried)))
        except BudgetSpent as spent:
            tools.emitter.emit(e.BudgetSpent(budget=spent.budget, reason=str(spent)))
            tools.emitter.emit(e.PullDropped(pull=pull.number, owner=None, reason=str(spent)))
            return
        if isinstance(written, Unusable):
            _unusable(tools, pull, written)
            return
        if isinstance(written, Exhausted) and written.duplicates:
            _drop(tools, pull, parent, written.reason, cost, tokens, written.duplicates)
            return
        if isinstance(written, Exhausted):
            _exhausted(tools, pull, parent, written.reason, cost, tokens)
            return
        cost, tokens = cost + written.cost_usd, tokens + written.tokens
        source = redact(written.source)
        digest = syntax_digest(source)
        if digest not in state.digests:
            _generated(tools, pull, written, source, digest, cost, tokens)
            return
        duplicates.add(written.move)
    _drop(tools, pull, parent, f"{DUPLICATES} duplicates in a row", cost, tokens, DUPLICATES)


async def _tune(tools: Tools, pull: Pull, parent: Candidate) -> None:
    """Write the version that the numeric search chose: no generator is asked, no model paid."""
    tools.show("generating", f"{pull.tuned}, from #{parent.id}", pull.number)
    made = await numbers.make(tools, pull, parent)
    if made is None:
        _drop(tools, pull, parent, f"{pull.tuned} leads to nothing that the run has not seen", 0.0, 0)
        return
    digest, written = made
    _generated(tools, pull, written, written.source, digest, 0.0, 0)


async def repair(tools: Tools, pull: Pull, broken: Candidate) -> None:
    """Have the pull's last candidate mended: a further candidate of the same pull and parent, or the word that there is to
    be none."""
    parent = tools.state.candidates[pull.parent_id]
    tools.show("generating", f"#{broken.id} is repaired", pull.number)
    tried = frozenset(tools.state.candidates[child].move for child in parent.children)
    try:
        written = await tools.generator.repair(_request(tools, pull, parent, tried), broken)
    except BudgetSpent as spent:
        tools.emitter.emit(e.BudgetSpent(budget=spent.budget, reason=str(spent)))
        _end_repair(tools, pull, broken, str(spent))
        return
    if isinstance(written, Exhausted | Unusable):
        _end_repair(tools, pull, broken, written.reason)
        return
    source = redact(written.source)
    digest = syntax_digest(source)
    if digest in tools.state.digests:
        _end_repair(tools, pull, broken, f"the reply is the version of #{tools.state.digests[digest]} once more")
        return
    _generated(tools, pull, written, source, digest, written.cost_usd, written.tokens, broken.id)


def end_pull(tools: Tools, pull: Pull, candidate: Candidate) -> None:
    """Reward the arm; or drop the pull when the outcome says nothing about the candidate."""
    reason = unjudged(candidate)
    if reason:
        owner: Owner | None = None if candidate.killed_by else "environment"
        tools.emitter.emit(e.PullDropped(pull=pull.number, owner=owner, reason=reason))
        return
    parent = tools.state.candidates[pull.parent_id]
    earned = 0.0 if failed(candidate) else tools.policy.reward(parent, candidate)
    tools.emitter.emit(
        reward.rewarded(tools.state, pull.number, pull.cluster, pull.strategy, candidate.id, earned, candidate.status)
    )


def _select(tools: Tools, pull: int, choice: Choice, forced: int | None) -> None:
    tools.emitter.emit(
        e.Selected(
            pull=pull,
            cluster=choice.cluster,
            strategy=choice.strategy,
            parent_id=choice.parent_id,
            scores=choice.scores,
            runner_up=choice.runner_up,
            forced=forced,
            reason=choice.reason,
            tuned=choice.tuned,
        )
    )


def _request(tools: Tools, pull: Pull, parent: Candidate, tried: frozenset[str]) -> Request:
    started = tools.started
    return Request(
        problem=started.problem,
        device=started.device,
        parent=parent,
        strategy=pull.strategy,
        pull=pull.number,
        seed=(started.seed, pull.number, int(Purpose.MOVE)),
        seen=frozenset(tools.state.digests),
        tried=tried,
    )


def _end_repair(tools: Tools, pull: Pull, broken: Candidate, reason: str) -> None:
    tools.emitter.emit(e.RepairEnded(pull=pull.number, candidate_id=broken.id, reason=reason))


def _generated(
    tools: Tools,
    pull: Pull,
    written: Written,
    source: str,
    digest: str,
    cost: float,
    tokens: int,
    repairs: int | None = None,
) -> None:
    tools.emitter.emit(
        e.Generated(
            candidate_id=next_id(tools),
            parent_id=pull.parent_id,
            pull=pull.number,
            strategy=pull.strategy,
            generator=TUNED if pull.tuned else tools.generator.name,
            move=written.move,
            source=source,
            source_digest=source_digest(source),
            syntax_digest=digest,
            detail=written.detail,
            cost_usd=cost,
            tokens=tokens,
            model=written.model,
            reflection=written.reflection,
            repairs=repairs,
            change=written.change,
        )
    )


def _unusable(tools: Tools, pull: Pull, written: Unusable) -> None:
    """What was written is no version: the arm was played and earned nothing."""
    outcome = f"no version, {written.reason}"
    state = tools.state
    tools.emitter.emit(reward.rewarded(state, pull.number, pull.cluster, pull.strategy, None, 0.0, outcome))


def _exhausted(tools: Tools, pull: Pull, parent: Candidate, reason: str, cost: float, tokens: int) -> None:
    # First what keeps the arm from being chosen again, and only if it is not known: after a crash between the two, the
    # pull is still open and the second follows alone.
    if parent.moves.get(pull.strategy, 0):
        tools.emitter.emit(e.MovesFound(candidate_id=parent.id, moves={**parent.moves, pull.strategy: 0}))
    _drop(tools, pull, parent, reason, cost, tokens)


def _drop(
    tools: Tools, pull: Pull, parent: Candidate, reason: str, cost: float, tokens: int, duplicates: int = 0
) -> None:
    tools.emitter.emit(
        e.PullDropped(
            pull=pull.number,
            owner=None,
            reason=f"no new {pull.strategy} variant of #{parent.id}: {reason}",
            cost_usd=cost,
            tokens=tokens,
            duplicates=duplicates,
        )
    )


def next_id(tools: Tools) -> int:
    """The number of the candidate that is written next."""
    return max(tools.state.candidates, default=BASELINE_ID) + 1
