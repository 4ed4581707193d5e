"""From single events to rows of the history database: choices, partitions, what people did, notes. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, cast

from kbtui.history import light
from kbtui.state import events as e

Row: TypeAlias = dict[str, Any]
Kinds: TypeAlias = Mapping[type[e.Event], Sequence[e.Event]]
"""Events by their type, in order."""
E = TypeVar("E", bound=e.Event)
OURSELVES = "kbtui"
"""`by` of what the program did by itself."""


def by_kind(events: Iterable[e.Event]) -> Kinds:
    """One look at each event instead of one per table."""
    found: dict[type[e.Event], list[e.Event]] = defaultdict(list)
    for event in events:
        found[type(event)].append(event)
    return found


def of_kind(kinds: Kinds, kind: type[E]) -> Sequence[E]:
    """The events of one type, in order."""
    return cast(Sequence[E], kinds.get(kind, ()))


def in_order(kinds: Kinds, wanted: Iterable[type[e.Event]]) -> list[e.Event]:
    """The events of several types, in order."""
    return sorted(chain.from_iterable(kinds.get(kind, ()) for kind in wanted), key=attrgetter("seq"))


def choices(kinds: Kinds) -> list[Any]:
    """The choices of arms, in order, whether their scores are records or text (`light.Choice`)."""
    return [*kinds.get(e.Selected, ()), *kinds.get(light.Choice, ())]


def timestamp(t: float) -> int | None:
    """Seconds since the epoch as microseconds, which `loading` makes a UTC timestamp of; None for 0, which means unknown."""
    if not t:
        return None
    fraction, whole = math.modf(t)
    return int(whole) * 1_000_000 + round(fraction * 1e6)


def selections(run_id: str, kinds: Kinds) -> list[Row]:
    """One line per choice, with its arms as `records`: a row each."""
    return [
        {
            "run_id": run_id,
            "pull": event.pull,
            "chosen_cluster": event.cluster,
            "chosen_strategy": event.strategy,
            "records": event.scores,
        }
        for event in choices(kinds)
    ]


def partitions(run_id: str, kinds: Kinds, modelled: bool) -> list[Row]:
    """One row per candidate of every clustering; `modelled` says which kind of latency the features hold."""
    return [
        _member(run_id, event, candidate_id, modelled)
        for event in of_kind(kinds, e.Clustered)
        for candidate_id in event.labels
    ]


def _member(run_id: str, event: e.Clustered, candidate_id: int, modelled: bool) -> Row:
    cluster = event.labels[candidate_id]
    features = event.features.get(candidate_id)
    latency = features.log_latency if features else None
    return {
        "run_id": run_id,
        "seq": event.seq,
        "pull": event.pull,
        "candidate_id": candidate_id,
        "cluster": cluster,
        "representative": event.representatives.get(cluster) == candidate_id,
        "log_latency": None if modelled else latency,
        "log_latency_estimate": latency if modelled else None,
        "registers": features.registers if features else None,
        "shared_kib": features.shared_kib if features else None,
        "log2_block": features.log2_block if features else None,
        "occupancy_percent": features.occupancy_percent if features else None,
    }


def interventions(run_id: str, kinds: Kinds) -> list[Row]:
    """What people did, in order. What kbtui did by itself (a pause for a provider, say) is a note."""
    rows = []
    for event in in_order(kinds, _ACTS):
        act = _act(event)
        if act is not None and act["by_whom"] != OURSELVES:
            rows.append({"run_id": run_id, "seq": event.seq, "happened_at": timestamp(event.t), **act})
    return rows


_ACTS: frozenset[type[e.Event]] = frozenset(
    (
        e.RunPaused, e.RunResumed, e.Stepped, e.Forced, e.Banned, e.Unbanned, e.Injected, e.Pinned, e.Killed, e.BudgetChanged,
        e.Tagged, e.Hinted, e.Undone,
    )
)  # fmt: skip
"""What `_act` knows."""


def _act(event: e.Event) -> Row | None:
    match event:
        case e.RunPaused():
            return _person("pause", event.by, detail=event.reason)
        case e.RunResumed():
            return _person("resume", event.by)
        case e.Stepped():
            return _person("step", event.by)
        case e.Forced():
            return _person("force", event.by, event.strategy, event.cluster, event.parent_id)
        case e.Banned():
            return _person("ban", event.by, event.strategy, event.cluster)
        case e.Unbanned():
            return _person("unban", event.by, event.strategy, event.cluster)
        case e.Injected():
            return _person("inject", event.by, detail=event.name)
        case e.Pinned():
            return _person("unpin" if event.parent_id is None else "pin", event.by, candidate_id=event.parent_id)
        case e.Killed():
            return _person("kill", event.by, candidate_id=event.candidate_id)
        case e.BudgetChanged():
            return _person("budget", event.by, detail=_budget(event))
        case e.Tagged():
            detail = f"{event.tag}: {event.note}" if event.note else event.tag
            return _person("tag", event.by, candidate_id=event.candidate_id, detail=detail)
        case e.Hinted():
            return _person("hint", event.by, detail=event.text)
        case e.Undone():
            return _person("undo", event.by, detail=event.text)
        case _:
            return None


def _person(
    kind: str,
    by: str,
    strategy: str | None = None,
    cluster: int | None = None,
    candidate_id: int | None = None,
    detail: str = "",
) -> Row:
    return {
        "kind": kind,
        "by_whom": by,
        "strategy": strategy,
        "cluster": cluster,
        "candidate_id": candidate_id,
        "detail": detail,
    }


def _budget(event: e.BudgetChanged) -> str:
    parts = []
    if event.iterations is not None:
        parts.append(f"{event.iterations} iterations")
    if event.budget_usd is not None:
        parts.append(f"${event.budget_usd:g}")
    if event.budget_tokens is not None:
        parts.append(f"{event.budget_tokens} tokens")
    if event.budget_s is not None:
        parts.append(f"{event.budget_s / 60:g} minutes")
    if event.patience is not None:
        parts.append(f"{event.patience} pulls without a gain")
    return ", ".join(parts)


def requests(run_id: str, kinds: Kinds) -> list[Row]:
    """How each request to a model ended, in order."""
    ended = in_order(kinds, (e.Replied, e.AskFailed))
    return [_request(run_id, event) for event in ended if isinstance(event, e.Replied | e.AskFailed)]


def _request(run_id: str, event: e.Replied | e.AskFailed) -> Row:
    row = {"run_id": run_id, "seq": event.seq, "happened_at": timestamp(event.t)}
    row |= {name: getattr(event, name) for name in ("pull", "call", "model", "cost_usd", "seconds")}
    names = (
        "asking",
        "about",
        "finish",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "counted_by",
        "first_token_s",
    )
    if isinstance(event, e.AskFailed):
        return row | dict.fromkeys(names) | {"outcome": event.kind, "tokens": event.tokens, "recorded": ""}
    row |= {name: getattr(event, name) for name in names}
    return row | {
        "outcome": "reply",
        "tokens": event.prompt_tokens + event.completion_tokens,
        "recorded": event.recorded,
    }


def notes(run_id: str, kinds: Kinds) -> list[Row]:
    """The lines of the log that no other table has, in order."""
    rows = []
    for event in in_order(kinds, _LINES):
        line = _line(event)
        if line is not None:
            level, source, text = line
            rows.append(
                {
                    "run_id": run_id,
                    "seq": event.seq,
                    "happened_at": timestamp(event.t),
                    "level": level,
                    "source": source,
                    "text": text,
                }
            )
    return rows


_LINES: frozenset[type[e.Event]] = frozenset(
    (
        e.Noted, e.RunPaused, e.ReplyRead, e.ParameterDropped, e.RepairEnded, e.BudgetSpent, e.RunContinued, e.RunStopped,
    )
)  # fmt: skip
"""What `_line` knows."""


def _line(event: e.Event) -> tuple[str, str, str] | None:
    match event:
        case e.Noted():
            return event.level, event.source, event.text
        case e.RunPaused(by=by) if by == OURSELVES:
            return "warning", OURSELVES, f"paused: {event.reason}"
        case e.ReplyRead(refused=refused) if refused:
            return "warning", "reply", f"pull {event.pull}, reply {event.call}: {refused}: {event.reason}"
        case e.ParameterDropped():
            return "warning", "provider", f"{event.model} refuses {event.parameter}: {event.reason}"
        case e.RepairEnded():
            return "info", "repair", f"#{event.candidate_id} is not repaired: {event.reason}"
        case e.BudgetSpent():
            return "info", OURSELVES, event.reason
        case e.RunContinued():
            cut = f", after a torn line of {event.cut_bytes} bytes" if event.cut_bytes else ""
            return "info", OURSELVES, f"continued by process {event.pid}{cut}"
        case e.RunStopped():
            return "info", OURSELVES, f"stopped by {event.stopped_by}"
        case _:
            return None
