"""What each command of a person does: the events it becomes and the sentence that answers it, or a refusal. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kbtui.config import MOST_PULLS, MOST_WHOLE
from kbtui.engine.plan import judge, next_pull
from kbtui.engine.stops import pulls_without_gain
from kbtui.errors import UsageError
from kbtui.generate.inject import injected
from kbtui.search.policy import Policy
from kbtui.state import acts
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import plural

MOST_HINT = 2000
"""Characters of a hint: it goes into every prompt and is paid for each time."""
MOST_TAG, MOST_NOTE = 40, 400


class Answer(msgspec.Struct, frozen=True):
    """`text` is one sentence for the person who asked; `stop` ends the run after the events."""

    text: str
    events: tuple[e.Event, ...] = ()
    stop: bool = False


class Refused(UsageError):
    """The command makes no sense now; the sentence says why."""


def answer(state: RunState, policy: Policy, command: c.Command) -> Answer:
    """What `command` does to a run in `state`. Raises UsageError with the sentence for who asked; changes nothing itself."""
    if state.status == "starting":
        raise Refused("the run is only starting: ask again")
    if state.status == "stopped":
        raise Refused(f"the run has stopped ({state.stopped_by}): continue it first")
    return _ANSWERS[type(command)](state, policy, command)


def _pause(state: RunState, _: Policy, command: c.Pause) -> Answer:
    if state.status == "paused":
        raise Refused("the run is paused already")
    numbers = [str(pull.number) for pull in state.open_pulls]
    if len(numbers) > 1:
        text = f"; pulls {', '.join(numbers)} are finished first"
    else:
        text = "".join(f"; pull {number} is finished first" for number in numbers)
    return Answer(f"paused{text}", (e.RunPaused(by=command.by, reason=command.reason),))


def _resume(state: RunState, _: Policy, command: c.Resume) -> Answer:
    _require_paused(state, "there is nothing to resume")
    return Answer("resumed", (e.RunResumed(by=command.by),))


def _step(state: RunState, _: Policy, command: c.Step) -> Answer:
    _require_paused(state, "pause it, then step")
    return Answer("one pull goes next, then the run holds again", (e.Stepped(by=command.by),))


def _stop(state: RunState, _: Policy, __: c.Stop) -> Answer:
    kept = f"; the best kernel is {state.best.path}" if state.best is not None else ""
    return Answer(f"stopping{kept}", stop=True)


def _force(state: RunState, policy: Policy, command: c.Force) -> Answer:
    arm = arm_name(command.cluster, command.strategy)
    _require_cluster(state, command.cluster)
    if (None, command.strategy) in state.bans or (command.cluster, command.strategy) in state.bans:
        raise Refused(f"{arm} is banned: unban it first")
    if command.parent_id is not None:
        _require_correct(state, command.parent_id)
    choice = policy.force(state, next_pull(state), command.strategy, command.cluster, command.parent_id)
    if choice is None:
        whose = "any candidate" if command.parent_id is None else f"#{command.parent_id}"
        raise Refused(f"{arm} cannot be played: no move of that kind is left for {whose}")
    forced = e.Forced(by=command.by, strategy=command.strategy, cluster=command.cluster, parent_id=command.parent_id)
    turn = f"after {len(state.forces)} others forced before it" if state.forces else "next"
    return Answer(f"c{choice.cluster} {command.strategy} from #{choice.parent_id} goes {turn}", (forced,))


def _ban(state: RunState, _: Policy, command: c.Ban) -> Answer:
    arm = arm_name(command.cluster, command.strategy)
    _require_cluster(state, command.cluster)
    if (command.cluster, command.strategy) in state.bans or (None, command.strategy) in state.bans:
        raise Refused(f"{arm} is banned already")
    event = e.Banned(by=command.by, strategy=command.strategy, cluster=command.cluster)
    return Answer(f"{arm} is banned until you unban it", (event,))


def _unban(state: RunState, _: Policy, command: c.Unban) -> Answer:
    arm = arm_name(command.cluster, command.strategy)
    if (command.cluster, command.strategy) not in state.bans:
        if (None, command.strategy) in state.bans:
            raise Refused(f"{command.strategy} is banned in every cluster: unban it without naming one")
        raise Refused(f"{arm} is not banned")
    event = e.Unbanned(by=command.by, strategy=command.strategy, cluster=command.cluster)
    return Answer(f"{arm} may be played again", (event,))


def _inject(state: RunState, _: Policy, command: c.Inject) -> Answer:
    assert state.started is not None, "answer refuses before the start"
    injected(command.source, state.started.problem.entry, command.name)
    when = "when the run goes on" if state.status == "paused" else "next, before another pull"
    event = e.Injected(by=command.by, name=command.name, source=command.source)
    return Answer(f"{command.name} is judged {when}", (event,))


def _pin(state: RunState, _: Policy, command: c.Pin) -> Answer:
    if command.parent_id is None:
        if state.pinned is None:
            raise Refused("nothing is pinned")
        text = f"#{state.pinned} is no longer pinned"
    else:
        _require_correct(state, command.parent_id)
        text = f"pulls start from #{command.parent_id} until you unpin it"
    return Answer(text, (e.Pinned(by=command.by, parent_id=command.parent_id),))


def _kill(state: RunState, _: Policy, command: c.Kill) -> Answer:
    candidate = _existing(state, command.candidate_id)
    if candidate.id == state.baseline_id:
        raise Refused("the baseline is what all others are compared with: stop the run instead")
    if candidate.killed_by or judge(state, candidate) is None:
        raise Refused(f"#{candidate.id} is done ({candidate.status}): there is nothing to kill")
    return Answer(f"#{candidate.id} is judged no further", (e.Killed(by=command.by, candidate_id=candidate.id),))


def _cancel(state: RunState, _: Policy, command: c.Cancel) -> Answer:
    asked = sorted({number for number, _ in state.asks if not state.pulls[number].ended})
    if command.pull is not None and command.pull not in asked:
        raise Refused(f"pull {command.pull} waits for no model's reply")
    if not asked:
        raise Refused("no model is asked for anything now")
    given_up = asked if command.pull is None else [command.pull]
    reason = f"cancelled by {command.by}"
    events = tuple(e.PullDropped(pull=number, owner=None, reason=reason) for number in given_up)
    pulls = ", ".join(map(str, given_up))
    return Answer(f"the reply to pull {pulls} is given up; what had arrived is charged", events)


def _set_budget(state: RunState, _: Policy, command: c.SetBudget) -> Answer:
    given = (command.iterations, command.budget_usd, command.tokens, command.minutes, command.patience)
    if all(one is None for one in given):
        raise Refused("say how many iterations, dollars, tokens or minutes the run may use, or its patience")
    parts = []
    if command.iterations is not None:
        _require(command.iterations >= 1, f"{command.iterations} iterations: a run needs at least 1")
        _require(command.iterations <= MOST_PULLS, f"{command.iterations} iterations: at most {MOST_PULLS:,}")
        parts.append(f"{plural(command.iterations, 'pull')}, {state.pulls_ended} done")
    if command.budget_usd is not None:
        _require(command.budget_usd >= 0, f"{command.budget_usd} dollars: a budget cannot be negative")
        parts.append(f"${command.budget_usd:.2f}, ${state.cost_usd:.2f} spent")
    if command.tokens is not None:
        _require(command.tokens >= 1, f"{command.tokens} tokens: a budget needs at least 1")
        _require(command.tokens <= MOST_WHOLE, f"{command.tokens} tokens: at most {MOST_WHOLE:,}")
        parts.append(f"{plural(command.tokens, 'token')}, {state.tokens:,} spent")
    if command.minutes is not None:
        _require(command.minutes > 0, f"{command.minutes:g} minutes: a run needs some time")
        parts.append(f"{command.minutes:g} minutes, {state.elapsed / 60:.1f} gone")
    if command.patience is not None:
        _require(command.patience >= 1, f"{command.patience} pulls without a gain: a run needs at least 1")
        _require(command.patience <= MOST_PULLS, f"{command.patience} pulls without a gain: at most {MOST_PULLS:,}")
        parts.append(f"{plural(command.patience, 'pull')} without a gain, {pulls_without_gain(state)} so far")
    event = e.BudgetChanged(
        by=command.by,
        iterations=command.iterations,
        budget_usd=command.budget_usd,
        budget_tokens=command.tokens,
        budget_s=None if command.minutes is None else 60 * command.minutes,
        patience=command.patience,
    )
    return Answer(f"the run may use {' and '.join(parts)}", (event,))


def _tag(state: RunState, _: Policy, command: c.Tag) -> Answer:
    _existing(state, command.candidate_id)
    tag, note = command.tag.strip(), command.note.strip()
    _require(bool(tag or note), "give a tag or a note")
    _require(
        len(tag) <= MOST_TAG, f"the tag has {len(tag)} characters: a tag has {MOST_TAG} at most, a note {MOST_NOTE}"
    )
    _require(len(note) <= MOST_NOTE, f"the note has {len(note)} characters: {MOST_NOTE} at most")
    event = e.Tagged(by=command.by, candidate_id=command.candidate_id, tag=tag, note=note)
    what = f"tagged {tag}" if tag else "noted"
    return Answer(f"#{command.candidate_id} is {what}" + (f": {note}" if tag and note else ""), (event,))


def _hint(state: RunState, _: Policy, command: c.Hint) -> Answer:
    assert state.started is not None, "answer refuses before the start"
    text = command.text.strip()
    generator = state.started.generator
    _require(generator == "llm", f"the generator {generator} reads no hints: they go into the prompts of llm")
    _require(
        len(text) <= MOST_HINT, f"the hint has {len(text)} characters, {MOST_HINT} at most: every prompt carries it"
    )
    _require(text != state.hint, "coming prompts say that already" if text else "there is no hint to take back")
    what = "every coming prompt says so" if text else "coming prompts carry no hint any more"
    return Answer(what, (e.Hinted(by=command.by, text=text),))


def _undo(state: RunState, _: Policy, command: c.Undo) -> Answer:
    act = acts.last_act(state)
    if act is None:
        raise Refused(acts.nothing_left(state))
    if command.act is not None and command.act != act.seq:
        raise Refused(f"something else came after it: {act.text}; look again, then take that back first")
    return Answer(f"taken back: {act.text}", (e.Undone(by=command.by, act=act.seq, text=act.text),))


def arm_name(cluster: int | None, strategy: str) -> str:
    """As people read it: "c1 fusion", or "fusion" for every cluster."""
    return strategy if cluster is None else f"c{cluster} {strategy}"


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Refused(otherwise)


def _existing(state: RunState, candidate_id: int) -> Candidate:
    if candidate_id not in state.candidates:
        raise Refused(f"there is no candidate #{candidate_id}")
    return state.candidates[candidate_id]


def _require_paused(state: RunState, remedy: str) -> None:
    if state.status != "paused":
        raise Refused(f"the run is not paused: {remedy}")


def _require_correct(state: RunState, candidate_id: int) -> None:
    candidate = _existing(state, candidate_id)
    if not candidate.correct:
        raise Refused(f"#{candidate_id} is {candidate.status}: only a correct candidate can be a parent")


def _require_cluster(state: RunState, cluster: int | None) -> None:
    known = {0, *state.labels.values(), *(score.cluster for score in state.scores)}
    if cluster is not None and cluster not in known:
        names = ", ".join(f"c{number}" for number in sorted(known))
        raise Refused(f"there is no cluster c{cluster}: the run has {names}")


_ANSWERS: dict[type[c.Command], Callable[[RunState, Policy, Any], Answer]] = {
    c.Pause: _pause,
    c.Resume: _resume,
    c.Step: _step,
    c.Stop: _stop,
    c.Force: _force,
    c.Ban: _ban,
    c.Unban: _unban,
    c.Inject: _inject,
    c.Pin: _pin,
    c.Kill: _kill,
    c.Cancel: _cancel,
    c.SetBudget: _set_budget,
    c.Tag: _tag,
    c.Hint: _hint,
    c.Undo: _undo,
}
