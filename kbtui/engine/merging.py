"""The version that picks among others by the sizes of its inputs: written here, judged like any other."""

from __future__ import annotations

import asyncio

from kbtui.engine.actions import DISPATCH
from kbtui.engine.dispatching import Merge
from kbtui.engine.pulling import next_id
from kbtui.engine.tools import Tools
from kbtui.generate.digest import source_digest, syntax_digest
from kbtui.generate.moves.dispatch import Rule, dispatched
from kbtui.state import events as e
from kbtui.text import redact


async def combine(tools: Tools, merge: Merge) -> None:
    """Emits Generated, with all of its parents; or why there is no such version. It belongs to no pull of the policy's: no arm
    made it, and none learns from it."""
    state, names = tools.state, " and ".join(f"#{parent}" for parent in merge.parents)
    tools.show("generating", f"{names} in one file, picked by {merge.rule.size}")
    sources = [state.candidates[parent].source for parent in merge.parents]
    try:
        source = redact(await asyncio.to_thread(dispatched, sources, tools.started.problem.entry, merge.rule))
    except ValueError as refused:
        _refuse(tools, merge, f"{names} cannot be put into one file: {refused}")
        return
    digest = syntax_digest(source)
    if digest in state.digests:
        _refuse(tools, merge, f"{names} in one file are #{state.digests[digest]} once more")
        return
    modelled = "modelled, " if state.modelled else ""
    tools.emitter.emit(
        e.Generated(
            candidate_id=next_id(tools),
            parent_id=merge.parents[0],
            pull=0,
            strategy=None,
            generator=DISPATCH,
            move=told(merge.rule, merge.parents),
            source=source,
            source_digest=source_digest(source),
            syntax_digest=digest,
            detail=f"promises {merge.gain:.3f} of the best version's speed, {modelled}by each version's own times",
            parents=merge.parents,
        )
    )


def told(rule: Rule, parents: tuple[int, ...]) -> str:
    """ "x.shape[-1] up to 2048: #3, above: #7"."""
    pieces = [
        f"up to {each.most}: #{parents[each.version]}" if each.most is not None else f"above: #{parents[each.version]}"
        for each in rule.intervals
    ]
    return f"{rule.size} {', '.join(pieces)}"


def _refuse(tools: Tools, merge: Merge, text: str) -> None:
    tools.emitter.emit(e.Noted(level="warning", text=text, drops_merge=merge.parents))
