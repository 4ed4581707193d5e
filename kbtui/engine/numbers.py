"""The numeric search as the engine plays it: `search.tuning` says when and which, `generate.tuning` knows the source."""

from __future__ import annotations

import asyncio

from kbtui.engine.tools import Tools
from kbtui.generate.generator import Written
from kbtui.generate.tuning import numeric_steps
from kbtui.search.policy import Choice
from kbtui.search.settings import settings_of
from kbtui.search.tuning import Step, its_turn, tuned_parent
from kbtui.state.run_state import Candidate, Pull


async def choose(tools: Tools, pull: int) -> Choice | None:
    """The next pull, when it is the numeric search's turn and a step to an unseen version is worth it."""
    parent = tuned_parent(tools.state) if its_turn(tools.state) else None
    return await best_step(tools, pull, parent) if parent is not None else None


async def instead(tools: Tools, pull: int) -> Choice | None:
    """The next pull where the policy has no arm left: the numeric search may still know a step."""
    parent = tuned_parent(tools.state) if settings_of(tools.state).tune else None
    return await best_step(tools, pull, parent) if parent is not None else None


async def best_step(tools: Tools, pull: int, parent: Candidate) -> Choice | None:
    """The step on `parent` that is worth most, if one is worth a pull."""
    found = await asyncio.to_thread(numeric_steps, parent.source, tools.started.problem.entry)
    steps = [
        Step(strategy=strategy, move=written.move, change=written.change)
        for strategy, digest, written in found
        if written.change is not None and digest not in tools.state.digests
    ]
    # What is in the making is not in the journal yet.
    making = {one.tuned for one in tools.state.open_pulls if one.parent_id == parent.id}
    steps = [step for step in steps if step.move not in making]
    return tools.policy.tune(tools.state, pull, parent, steps) if steps else None


async def make(tools: Tools, pull: Pull, parent: Candidate) -> tuple[str, Written] | None:
    """The version of the step that the pull was chosen for, with the digest of its syntax tree. None when another pull made
    the same meanwhile, or this version of kbtui knows no such step."""
    found = await asyncio.to_thread(numeric_steps, parent.source, tools.started.problem.entry)
    for strategy, digest, written in found:
        if strategy == pull.strategy and written.move == pull.tuned and digest not in tools.state.digests:
            return digest, written
    return None
