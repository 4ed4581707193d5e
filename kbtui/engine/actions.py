"""The actions of a run: what `plan` derives and `Loop` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kbtui.engine.dispatching import Merge
from kbtui.state.events import Pruned
from kbtui.state.run_state import Candidate, Pull

INJECTED = "inject"
"""The generator's name on a person's own version."""
TUNED = "numbers"
"""On one that the numeric search made."""
DISPATCH = "dispatch"
"""On one that picks among others by the sizes of its inputs."""


@dataclass(frozen=True)
class WriteBaseline:
    """Make the problem's kernel candidate 0."""


@dataclass(frozen=True)
class Compile:
    """Check a candidate's source and compile it. `device` here and below: "" is any that is free, or the run's only one."""

    candidate: Candidate
    device: str = ""


@dataclass(frozen=True)
class Prune:
    """Record that a candidate which compiled cannot win."""

    candidate: Candidate
    pruned: Pruned


@dataclass(frozen=True)
class Verify:
    """Run a candidate against the oracle."""

    candidate: Candidate
    device: str = ""


@dataclass(frozen=True)
class Time:
    """Time a candidate against the baseline on the device."""

    candidate: Candidate
    device: str = ""


@dataclass(frozen=True)
class TimeBaseline:
    """Check and time the baseline on one more device, so that candidates can be timed there."""

    candidate: Candidate
    device: str


@dataclass(frozen=True)
class FindMoves:
    """Ask the generator what it could do with a correct candidate."""

    candidate: Candidate


@dataclass(frozen=True)
class Confirm:
    """Put what would become the best through the hidden stage."""

    candidate: Candidate
    device: str = ""


@dataclass(frozen=True)
class ChooseBaseline:
    """In a run that began without a kernel: the candidate is what the others are compared with."""

    candidate: Candidate


@dataclass(frozen=True)
class Promote:
    """Export a candidate: it is the best now."""

    candidate: Candidate


@dataclass(frozen=True)
class Generate:
    """Have a new candidate written for a pull."""

    pull: Pull


@dataclass(frozen=True)
class Repair:
    """Have the pull's last candidate, which failed, mended."""

    pull: Pull
    candidate: Candidate


@dataclass(frozen=True)
class EndPull:
    """Reward the arm, or drop the pull when nobody is to blame."""

    pull: Pull
    candidate: Candidate


@dataclass(frozen=True)
class TakeInjection:
    """Make the first injected source a candidate. `seq` is its Injected event's."""

    seq: int


@dataclass(frozen=True)
class Combine:
    """Have one version written that picks among others by the sizes of its inputs."""

    merge: Merge


@dataclass(frozen=True)
class Choose:
    """Begin the pull of that number: cluster if due, mask, select."""

    pull: int


@dataclass(frozen=True)
class Finish:
    """The run is over, and why: one of the reasons in `stops`."""

    stopped_by: str


@dataclass(frozen=True)
class GiveUp:
    """The baseline did not pass; there is nothing to compare with."""

    reason: str


Judge = Compile | Prune | Verify | Time | ChooseBaseline | FindMoves | Confirm | Promote
"""A step of a candidate through the judge."""
OnDevice = Compile | Verify | Time | TimeBaseline | Confirm
"""What a device's lane does."""
Action = (
    Judge
    | TimeBaseline
    | WriteBaseline
    | Generate
    | Repair
    | EndPull
    | TakeInjection
    | Combine
    | Choose
    | Finish
    | GiveUp
)
Resource = Literal["lane", "compiler", ""]


def subject(action: Action) -> tuple[str, int]:
    """What an action works on: a pull, a candidate of no pull, or the run itself. There is one action per subject at a
    time."""
    match action:
        case Generate(pull) | Repair(pull, _) | EndPull(pull, _):
            return "pull", pull.number
        case TimeBaseline(_, device):
            return f"baseline on {device}", 0
        case WriteBaseline() | TakeInjection() | Combine() | Choose() | Finish() | GiveUp():
            return "run", 0
    candidate = action.candidate
    return ("pull", candidate.pull) if candidate.pull else ("candidate", candidate.id)


def pull_of(action: Action) -> int | None:
    """The number of the pull that an action works on; None when on none."""
    kind, number = subject(action)
    return number if kind == "pull" else None


def candidate_of(action: Action) -> Candidate | None:
    """The candidate that an action judges; None when it judges none."""
    return action.candidate if isinstance(action, Judge) else None


def needs(action: Action) -> Resource:
    """The resource that an action holds while it runs, "" for none of which there are too few."""
    match action:
        case Verify() | Time() | TimeBaseline() | Confirm():
            return "lane"
        case Compile():
            return "compiler"
    return ""
