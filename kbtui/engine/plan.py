"""What a run can do next, read off its state alone.

The engine has no other memory of where it is than this state and the actions under way, which it may lose at any moment.
So going on after a crash is not a special case: fold the journal, ask what can be done, do it. It also means that every
action must leave a trace in the state (else it would come next again), and that one action emits events which only make
sense together in an order where each prefix asks for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from kbtui.engine import actions as a
from kbtui.engine import cascade
from kbtui.engine.actions import DISPATCH, INJECTED, Action
from kbtui.engine.best import arena, best_of, compared_on, promoting_figure, worth_timing_again
from kbtui.engine.dispatching import Merge, merge_of
from kbtui.engine.outcomes import MOST_FELLED, baseline_failure, failed, mendable, unjudged
from kbtui.engine.placing import Limits, startable
from kbtui.engine.stops import stop_reason
from kbtui.generate.moves.dispatch import parameters
from kbtui.state.run_state import Candidate, Pull, RunState


def ready_actions(state: RunState, limits: Limits, running: Collection[Action] = ()) -> list[Action]:
    """Everything that can begin now beside what is `running`, the most urgent first.

    What has begun is finished first, paused or not, the older pull before the younger; then people's wishes; then the
    bandit. A pull takes one of the places, and so does a person's own version while it is judged. Verifying and timing
    take a device's lane. [] means that only what runs, or a person, brings the run further. Finish and GiveUp come alone, and
    only when nothing runs.
    """
    if state.start is not None and (failure := baseline_failure(state.start)):
        return [] if running else [a.GiveUp(failure)]
    if _machine_failed(state):
        return []
    actions: list[Action] = [_continue(state, pull) for pull in state.open_pulls]
    # The baseline and injected versions hold while paused, too: after a failure of the machine they are tried again,
    # and when, a person says.
    if state.status != "paused" or state.steps:
        actions += _begin(state, limits, running)
    if actions and not isinstance(actions[0], a.Finish):
        actions = [*_baselines(state), *actions]
    return list(startable(state, actions, limits, running))


def judge(state: RunState, candidate: Candidate) -> a.Judge | None:
    """The candidate's next stage; None when it came to its end."""
    if failed(candidate) or candidate.killed_by:
        return None
    if candidate.felled >= MOST_FELLED and candidate.id != state.baseline_id:
        return None
    if candidate.empty:
        return None if candidate.moves else a.FindMoves(candidate)
    if candidate.compilation is None:
        return a.Compile(candidate)
    if candidate.verification is None:
        pruned = cascade.after_compiling(state, candidate) if candidate.id != state.baseline_id else None
        return a.Prune(candidate, pruned) if pruned is not None else a.Verify(candidate)
    if candidate.timing is None:
        # What others are compared with has to stand the hidden stage, too; nothing vouches for it as for a given kernel.
        first = state.baseline is None and candidate.confirmation is None
        return a.Confirm(candidate) if first else a.Time(candidate)
    if state.baseline is None and not unjudged(candidate):
        return a.ChooseBaseline(candidate)
    if not candidate.moves:
        return a.FindMoves(candidate)
    if not _may_rise(state, candidate):
        return None
    if step := _compare(state, candidate):
        return step
    if best_of(state) == candidate.id:
        confirmed = candidate.id == state.baseline_id or candidate.confirmation is not None
        return a.Promote(candidate) if confirmed else a.Confirm(candidate)
    return None


def _may_rise(state: RunState, candidate: Candidate) -> bool:
    """What is known without a look at all the others, which takes longer the longer the run is."""
    if candidate.id in (state.baseline_id, state.best_id):
        return state.best_id is None
    return promoting_figure(candidate) is not None


def _compare(state: RunState, candidate: Candidate) -> a.Time | None:
    """What is to be timed on the device where the best and the candidate are compared: either that has no time there."""
    device, best = arena(state), state.best
    if not device or candidate.id in (state.baseline_id, state.best_id) or not worth_timing_again(state, candidate):
        return None
    if best is not None and not compared_on(state, device):
        return a.Time(best, device) if best.felled < MOST_FELLED else None
    return a.Time(candidate, device) if candidate.timing_on(device) is None else None


def _baselines(state: RunState) -> Iterator[a.TimeBaseline]:
    """The baseline on devices that have no time of it yet."""
    baseline = state.baseline
    if baseline is None or baseline.timing is None:
        return
    for device in state.live_lanes:
        if baseline.timing_on(device) is None:
            yield a.TimeBaseline(baseline, device)


def next_pull(state: RunState) -> int:
    """The number of the pull that begins next."""
    return state.newest_pull + 1


def _machine_failed(state: RunState) -> bool:
    """Whether the run holds because the machine failed: what is in flight would only fail as well."""
    return state.status == "paused" and state.pause_owner == "environment" and not state.steps


def _continue(state: RunState, pull: Pull) -> Action:
    if not pull.candidate_ids:
        return a.Generate(pull)
    candidate = state.candidates[pull.candidate_ids[-1]]
    if action := judge(state, candidate):
        return action
    return a.Repair(pull, candidate) if mendable(state, pull, candidate) else a.EndPull(pull, candidate)


def _begin(state: RunState, limits: Limits, running: Collection[Action]) -> list[Action]:
    """What is no step of a pull in flight. Until the start is judged, that and nothing else."""
    if state.start is None:
        return [a.WriteBaseline()]
    if action := judge(state, state.start):
        return [action]
    choosing = sum(isinstance(action, a.Choose) for action in running)
    places = max(limits.pulls - len(state.open_pulls) - choosing, 0)
    judging: list[Action] = list(islice(_strays(state), places))
    if len(judging) == places:
        return judging
    if state.injections:
        return [*judging, a.TakeInjection(min(state.injections))]
    if stop := stop_reason(state):
        if judging or state.open_pulls or running:
            return judging
        merge = last_merge(state) if stop not in ("speed of light", "time") else None
        return [a.Combine(merge) if merge is not None else a.Finish(stop)]
    if state.pulls_ended + len(state.open_pulls) >= state.iterations:
        return judging  # one in flight that ends without a candidate makes room for another
    return [*judging, a.Choose(next_pull(state))]


def last_merge(state: RunState) -> Merge | None:
    """What is tried at the end of a run that may: one version that picks among others by the sizes of its inputs."""
    best = state.best
    if state.started is None or not state.started.dispatch or best is None:
        return None
    return merge_of(state, parameters(best.source, state.started.problem.entry))


def _strays(state: RunState) -> Iterator[a.Judge]:
    """Steps of candidates that no pull in flight judges: of the best, where a better one was in its way while its own pull
    lasted and was then found wrong; of people's own versions; and of what picks among others."""
    best_id = best_of(state)
    best = state.candidates.get(best_id) if best_id is not None else None
    if best is not None and best.pull in state.pulls and state.pulls[best.pull].ended and (step := judge(state, best)):
        yield step
    for candidate in map(state.candidates.__getitem__, state.apart_ids):
        if candidate.generator in (INJECTED, DISPATCH) and (step := judge(state, candidate)):
            yield step
