"""Pulls as people count them: the header's `14/20`, which leaves out those that made no candidate."""

from __future__ import annotations

from kbtui.state.run_state import Pull, RunState


def counts(pull: Pull) -> bool:
    """Whether a pull uses up an iteration. One that was dropped without a candidate (known versions only, a provider's
    failure) does not; its number is not given to another one either."""
    return bool(pull.candidate_ids) or not (pull.ended and not pull.seen)


def iterations_by_pull(state: RunState) -> dict[int, int]:
    """Number of a pull -> how many iterations are used when it has ended; 0 -> 0.

    Pulls in flight are taken for ones that will count, unless the run has ended and nobody will play them.
    """
    used, out = 0, {0: 0}
    over = state.status == "stopped"
    for number in sorted(state.pulls):
        pull = state.pulls[number]
        used += counts(pull) and (pull.ended or not over)
        out[number] = used
    return out


def iterations_by_candidate(state: RunState, at: dict[int, int]) -> dict[int, int]:
    """Number of a candidate -> where it stands among the iterations `at` (`iterations_by_pull`): those of its own pull or, for
    a version that belongs to none (a person's, a dispatch), of the candidates before it."""
    reached, out = 0, {}
    for candidate in state.candidates.values():
        own = at.get(candidate.pull, 0) if candidate.pull else reached
        reached = max(reached, own)
        out[candidate.id] = own
    return out
