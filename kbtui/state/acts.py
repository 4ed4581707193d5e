"""What people did to a run and can take back: each act with what it replaced.

An act leaves the list once it has had its effect (a force that was played, a version that was queued and is a candidate
now), for then there is nothing to take back. The newest act is taken back first, so that what it replaced is what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

import msgspec

from kbtui.state import events as e

if TYPE_CHECKING:
    from kbtui.state.run_state import RunState

ActEvent = Union[  # noqa: UP007
    e.RunPaused, e.Forced, e.Banned, e.Unbanned, e.Injected, e.Pinned, e.BudgetChanged, e.Tagged, e.Hinted
]
BUDGETS = ("iterations", "budget_usd", "budget_tokens", "budget_s", "patience")
MOST_ACTS = 200
"""Acts that can be taken back; older ones stay as they are."""


class Act(msgspec.Struct, frozen=True):
    """`text` says what was done ("ada@pts/3 banned fusion"); `before` holds the values that it replaced, by name."""

    event: ActEvent
    text: str
    before: dict[str, Any] = {}

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def by(self) -> str:
        return self.event.by


def last_act(state: RunState) -> Act | None:
    """The act that would be taken back next."""
    return next(reversed(state.acts.values()), None)


def nothing_left(state: RunState) -> str:
    """Why there is no act to take back, in a sentence: the last one may have begun to have its effect."""
    for candidate in reversed(state.candidates.values()):
        if candidate.generator == "inject" and candidate.status in ("generated", "compiled", "verified"):
            name = candidate.move or "the version"
            return f"there is nothing to take back: {name} is being judged already, as #{candidate.id}"
    selected = state.selected
    if selected is not None and selected.forced is not None:
        pull = state.pulls.get(selected.pull)
        if pull is not None and not pull.ended:
            return f"there is nothing to take back: pull {selected.pull} plays the forced {selected.strategy} already"
    return "there is nothing to take back"


def remember(state: RunState, event: ActEvent, text: str, **before: Any) -> None:
    """Put an act on the list."""
    state.acts[event.seq] = Act(event, text, before)
    while len(state.acts) > MOST_ACTS:
        del state.acts[next(iter(state.acts))]


def forget(state: RunState, *kinds: type[e.Event]) -> None:
    """Acts of these kinds have been overtaken: they cannot be taken back any more."""
    for seq in [seq for seq, act in state.acts.items() if isinstance(act.event, kinds)]:
        del state.acts[seq]


def take_back(state: RunState, seq: int) -> Act | None:
    """Make what an act changed as it was before it; the act, or None when it is not on the list."""
    act = state.acts.pop(seq, None)
    if act is not None:
        _TAKE_BACK[type(act.event)](state, act)
    return act


def _pause(state: RunState, act: Act) -> None:  # noqa: ARG001  (every one takes the act)
    state.status = "running"
    state.steps = 0
    state.pause_reason, state.pause_owner = "", None


def _force(state: RunState, act: Act) -> None:
    state.forces.pop(act.seq, None)


def _ban(state: RunState, act: Act) -> None:
    assert isinstance(act.event, e.Banned)
    state.bans.discard((act.event.cluster, act.event.strategy))


def _unban(state: RunState, act: Act) -> None:
    assert isinstance(act.event, e.Unbanned)
    state.bans.add((act.event.cluster, act.event.strategy))


def _injection(state: RunState, act: Act) -> None:
    state.injections.pop(act.seq, None)


def _pin(state: RunState, act: Act) -> None:
    state.pinned = act.before["pinned"]


def _budget(state: RunState, act: Act) -> None:
    for name in BUDGETS:
        setattr(state, name, act.before[name])
    state.budget_spent = ""


def _tag(state: RunState, act: Act) -> None:
    assert isinstance(act.event, e.Tagged)
    candidate = state.candidates[act.event.candidate_id]
    candidate.tags = list(act.before["tags"])
    candidate.note = act.before["note"]


def _hint(state: RunState, act: Act) -> None:
    state.hint = act.before["hint"]


_TAKE_BACK: dict[type, Callable[[RunState, Act], None]] = {
    e.RunPaused: _pause,
    e.Forced: _force,
    e.Banned: _ban,
    e.Unbanned: _unban,
    e.Injected: _injection,
    e.Pinned: _pin,
    e.BudgetChanged: _budget,
    e.Tagged: _tag,
    e.Hinted: _hint,
}
