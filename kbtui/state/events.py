"""Everything that can happen in a run, as typed immutable events; and their JSON form.

Durable events are journalled and numbered (`seq` from 1). Transient ones have `seq` 0, are the last value per key,
and reach viewers
only when there is room. Choices are data: an event carries the numbers behind a choice, so that an old journal folds
the same under
a newer policy. In JSON the tag `type` comes first.
"""

from __future__ import annotations

from typing import Literal, Union

import msgspec

from kbtui.state.records import (
    ArmScore,
    ArmStatistics,
    Compilation,
    DeviceInfo,
    Features,
    Message,
    NumberChange,
    Owner,
    ProblemInfo,
    Scalar,
    Signature,
    Strategy,
    Summary,
    Timing,
    TimingKind,
    Verification,
)

JOURNAL_VERSION = 1
"""Raised when an older kbtui could no longer fold a new journal."""


def _tag(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_tag):
    """Base of all events. `t` is seconds since the epoch, `elapsed` the run's own clock in seconds (pauses of the
    process excluded)."""

    seq: int = 0
    t: float = 0.0
    elapsed: float = 0.0


# ---------------------------------------------------------------- life of the run


class RunStarted(Event, frozen=True, kw_only=True):
    """First event of every journal."""

    journal_version: int
    run_id: str
    problem: ProblemInfo
    device: DeviceInfo
    timing: TimingKind
    policy: str
    policy_parameters: dict[str, Scalar]
    generator: str
    objective: str
    seed: int
    iterations: int
    budget_usd: float | None
    parallel: int
    versions: dict[str, str]
    isolation: dict[str, str]
    python: str
    model: str = ""
    host: str = ""
    user: str = ""
    arguments: tuple[str, ...] = ()
    budget_tokens: int | None = None
    budget_s: float | None = None
    """Seconds of the run's own clock."""
    patience: int | None = None
    """Rewarded pulls without a new best."""
    speed_of_light_percent: float | None = None
    """The share of the speed of light at which the best is good enough; None never."""
    generator_parameters: dict[str, Scalar] = {}
    """What the generator was set to, as `RunSpec.generator_parameters`."""
    dispatch: bool = False
    """Whether a version that picks among others by the sizes of its inputs is tried at the end."""
    repairs: int = 0
    """How often a version that failed may be sent back to what wrote it, within its pull."""
    lanes: tuple[str, ...] = ()
    """The devices of a run on several, by the names that later events use; () in a run on one."""
    devices: tuple[DeviceInfo, ...] = ()
    """Those of them that started; `device` is the first."""
    cluster: str = ""
    """Address of the Ray cluster whose nodes have the lanes; "": they are on this machine."""


class RunContinued(Event, frozen=True, kw_only=True):
    """A new run process took over (`run --continue`). `cut_bytes` were behind the journal's last newline and were dropped."""

    pid: int
    cut_bytes: int = 0
    versions: dict[str, str] = {}
    iterations: int | None = None
    devices: tuple[DeviceInfo, ...] = ()
    """In a run on several devices: those that started this time."""


class DeviceDropped(Event, frozen=True, kw_only=True):
    """A device of a run on several fell out: what it was doing is redone on the others. It is tried again when a person
    resumes the run, if it had ever started, and when the run is continued.

    `candidate_id` is what was being judged when the device failed; None where nothing was, as at the start.
    """

    device: str
    reason: str
    candidate_id: int | None = None


class RunPaused(Event, frozen=True, kw_only=True):
    """No new pull starts. `by` is a person, or "kbtui" when a provider or the environment is at fault."""

    by: str
    reason: str = ""
    owner: Owner | None = None


class RunResumed(Event, frozen=True, kw_only=True):
    by: str


class RunStopped(Event, frozen=True, kw_only=True):
    """Last event of a finished run. `stopped_by`: "iterations", "budget" (dollars), "tokens", "time", "speed of light",
    "no gain", "no arms", "user" or "error: ..."."""

    stopped_by: str
    summary: Summary


class Noted(Event, frozen=True, kw_only=True):
    """A line for the log. `drops_force` is the `seq` of a Forced event that cannot be played any more, `drops_merge` are
    versions that no dispatching one can be made of."""

    level: Literal["info", "warning", "error"]
    text: str
    source: str = "kbtui"
    drops_force: int | None = None
    drops_merge: tuple[int, ...] = ()


# ---------------------------------------------------------------- the bandit


class Clustered(Event, frozen=True, kw_only=True):
    """A new partition of the frontier, with the arm statistics recomputed from the pull log under it."""

    pull: int
    labels: dict[int, int]
    representatives: dict[int, int]
    features: dict[int, Features]
    arms: tuple[ArmStatistics, ...]
    reason: str = ""


class Masked(Event, frozen=True, kw_only=True):
    """The signature of each cluster's representative, and what it holds back: cluster -> strategy -> reason ("" is
    never stored)."""

    pull: int
    signatures: dict[int, Signature]
    held: dict[int, dict[str, str]]


class Selected(Event, frozen=True, kw_only=True):
    """The choice of an arm and a parent for a pull. `scores` hold every arm, the held ones too; `forced` is the `seq`
    of the Forced event."""

    pull: int
    cluster: int
    strategy: Strategy
    parent_id: int
    scores: tuple[ArmScore, ...]
    runner_up: tuple[int, str] | None = None
    forced: int | None = None
    reason: str = ""
    tuned: str = ""
    """The move that the numeric search chose; "" where the generator is free to choose."""


class Rewarded(Event, frozen=True, kw_only=True):
    """End of a pull that the bandit sees. `mean` and `pulls` are the arm's after the update."""

    pull: int
    cluster: int
    strategy: Strategy
    candidate_id: int | None
    reward: float
    mean: float
    pulls: float
    outcome: str


class PullDropped(Event, frozen=True, kw_only=True):
    """End of a pull that the bandit does not see: the environment or a provider failed, a person cancelled, or no new
    variant existed. `cost_usd` and `tokens` are those of replies that became no candidate; `duplicates` counts the
    versions in a row that the run had already, if that is why."""

    pull: int
    owner: Owner | None
    reason: str
    cost_usd: float = 0.0
    tokens: int = 0
    duplicates: int = 0


# ---------------------------------------------------------------- models

Asking = Literal["write", "rewrite", "repair"]
"""Why a model is asked: for a new version; again, since its reply could not be used; to mend a version that failed."""


class Asked(Event, frozen=True, kw_only=True):
    """A request goes to a model. `call` counts the requests of a pull from 1; `about` is the candidate to mend.

    `reserved_usd` and `reserved_tokens` are the most that the request can cost; they count as spent until Replied or
    AskFailed says what it did cost. After a crash in between they stay reserved: the provider may have charged for it.
    """

    pull: int
    call: int
    model: str
    asking: Asking
    strategy: Strategy
    messages: tuple[Message, ...]
    prompt_digest: str
    most_tokens: int
    reserved_usd: float = 0.0
    reserved_tokens: int = 0
    about: int | None = None


class Replied(Event, frozen=True, kw_only=True):
    """A model's whole reply. `cost_usd` None: the price is unknown. `counted_by` says whose token counts these are.

    `first_token_s` and `seconds` count from the sending of the attempt that succeeded. `recorded` names the call of a
    recording ("RUN 3.1") when no model was asked.
    """

    pull: int
    call: int
    model: str
    asking: Asking
    strategy: Strategy
    prompt_digest: str
    text: str
    reasoning: str = ""
    finish: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    counted_by: Literal["provider", "tokenizer"] = "provider"
    cost_usd: float | None = None
    seconds: float = 0.0
    first_token_s: float | None = None
    about: int | None = None
    recorded: str = ""


class AskFailed(Event, frozen=True, kw_only=True):
    """A request came to nothing by its provider's fault, or a person cancelled it. `cost_usd` and `tokens` are what the
    part that arrived is charged with."""

    pull: int
    call: int
    model: str
    kind: str
    reason: str
    cost_usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


class ReplyRead(Event, frozen=True, kw_only=True):
    """What a reply was taken for: `refused` "" when it holds a version, else the name of what is wrong with it."""

    pull: int
    call: int
    refused: str = ""
    reason: str = ""


class RepairEnded(Event, frozen=True, kw_only=True):
    """A version that failed is not mended any further, before its rounds were used up."""

    pull: int
    candidate_id: int
    reason: str


class ParameterDropped(Event, frozen=True, kw_only=True):
    """A model refused a parameter; it is not sent to it again."""

    model: str
    parameter: str
    reason: str


class BudgetSpent(Event, frozen=True, kw_only=True):
    """What is left of a budget does not pay for another request. `budget` is "budget" (dollars) or "tokens"."""

    budget: Literal["budget", "tokens"]
    reason: str


# ---------------------------------------------------------------- candidates


class Generated(Event, frozen=True, kw_only=True):
    """A candidate's source exists. The baseline is candidate 0 with `pull` 0, no parent and no strategy; its `source` is ""
    and its `generator` `EMPTY_START` where the problem has no kernel."""

    candidate_id: int
    parent_id: int | None
    pull: int
    strategy: Strategy | None
    generator: str
    move: str
    source: str
    source_digest: str
    syntax_digest: str
    detail: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    by: str = ""
    model: str = ""
    reflection: str = ""
    """What the model itself said went wrong before, for later prompts."""
    repairs: int | None = None
    """The candidate of the same pull whose failure this one answers."""
    change: NumberChange | None = None
    """The one number that the version changes of its parent, where a known move did just that."""
    parents: tuple[int, ...] = ()
    """The versions that a dispatching one picks from; `parent_id` is the first of them."""


class MovesFound(Event, frozen=True, kw_only=True):
    """How many moves each strategy still offers on a candidate; a strategy missing or at 0 is no arm for this parent."""

    candidate_id: int
    moves: dict[str, int]


class Pruned(Event, frozen=True, kw_only=True):
    """A candidate that went no further, with the stage, the reason and the number behind it."""

    candidate_id: int
    stage: str
    reason: str
    value: float | None = None
    limit: float | None = None


class Compiled(Event, frozen=True, kw_only=True):
    candidate_id: int
    compilation: Compilation
    device: str = ""
    """Whose lane did it, here and below; "" in a run on one device."""


class Verified(Event, frozen=True, kw_only=True):
    candidate_id: int
    verification: Verification
    device: str = ""


class Timed(Event, frozen=True, kw_only=True):
    """Ratios are to the baseline on the same device. A candidate may be timed on several: the baseline on all, and what may
    become the best where the best was timed."""

    candidate_id: int
    timing: Timing
    signature: Signature
    device: str = ""


class Confirmed(Event, frozen=True, kw_only=True):
    """The last stage of what would become the best: fresh values and shapes that nothing has seen."""

    candidate_id: int
    verification: Verification
    device: str = ""


class BaselineChosen(Event, frozen=True, kw_only=True):
    """Where there was no kernel to begin with: the first candidate that is correct and timed, which the others are compared
    with from now on."""

    candidate_id: int


class BestChanged(Event, frozen=True, kw_only=True):
    """A candidate became the best of the run and was exported to `path`. `device` is where it was compared with the best
    before."""

    candidate_id: int
    path: str
    device: str = ""


# ---------------------------------------------------------------- what people did (`by`: user@tty or user@script)


class Forced(Event, frozen=True, kw_only=True):
    by: str
    strategy: Strategy
    cluster: int | None = None
    parent_id: int | None = None


class Banned(Event, frozen=True, kw_only=True):
    """No pull on the arm until unbanned; `cluster` None bans the strategy everywhere."""

    by: str
    strategy: Strategy
    cluster: int | None = None


class Unbanned(Event, frozen=True, kw_only=True):
    by: str
    strategy: Strategy
    cluster: int | None = None


class Stepped(Event, frozen=True, kw_only=True):
    """One pull while paused."""

    by: str


class Injected(Event, frozen=True, kw_only=True):
    """A person's own version was queued; its Generated event follows with the same `name`."""

    by: str
    name: str
    source: str


class Pinned(Event, frozen=True, kw_only=True):
    """Pulls take this parent; None unpins."""

    by: str
    parent_id: int | None


class BudgetChanged(Event, frozen=True, kw_only=True):
    """New limits; None leaves one as it is. The units are those of RunStarted."""

    by: str
    iterations: int | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_s: float | None = None
    patience: int | None = None


class Killed(Event, frozen=True, kw_only=True):
    """A candidate is judged no further. Its pull is dropped, since the bandit learns nothing from it."""

    by: str
    candidate_id: int


class Tagged(Event, frozen=True, kw_only=True):
    by: str
    candidate_id: int
    tag: str
    note: str = ""


class Hinted(Event, frozen=True, kw_only=True):
    """What coming prompts say besides; "" takes the hint before back."""

    by: str
    text: str


class Undone(Event, frozen=True, kw_only=True):
    """The act with the `seq` in `act` is taken back: what it changed is as it was before. `text` says what it was."""

    by: str
    act: int
    text: str = ""


# ---------------------------------------------------------------- transient


class GpuSampled(Event, frozen=True, kw_only=True):
    """GPU counters; a field that could not be read is absent from `values` and its reason is in `missing`.

    Keys: busy_percent, memory_used_bytes, memory_total_bytes, power_w, power_limit_w, temperature_c, sm_clock_mhz,
    sm_clock_max_mhz, memory_clock_mhz, sm_active_percent, dram_active_percent, throttle (1.0 when throttled).
    """

    device: str
    uuid: str
    values: dict[str, float]
    missing: dict[str, str] = {}
    reasons: tuple[str, ...] = ()


class Progressed(Event, frozen=True, kw_only=True):
    """What is being done right now: `stage` is one of selecting, generating, compiling, verifying, timing, profiling,
    waiting, idle."""

    stage: str
    text: str = ""
    pull: int = 0
    candidate_id: int | None = None


class ReplyDelta(Event, frozen=True, kw_only=True):
    """A reply as it grows: how long it is by now and its last lines. `tokens` is a guess from its length."""

    pull: int
    call: int
    model: str
    characters: int
    tokens: int
    tail: str = ""
    thinking: bool = False


Durable = Union[  # noqa: UP007  (msgspec reads a runtime union)
    RunStarted, RunContinued, RunPaused, RunResumed, RunStopped, DeviceDropped, Noted, Clustered, Masked, Selected, Rewarded,
    PullDropped,
    Generated, MovesFound, Pruned, Compiled, Verified, Timed, Confirmed, BestChanged, BaselineChosen, Forced, Banned, Unbanned,
    Stepped, Injected, Pinned, Killed,
    BudgetChanged, Tagged, Hinted, Undone,
    Asked, Replied, AskFailed, ReplyRead, RepairEnded, ParameterDropped, BudgetSpent,
]  # fmt: skip
Transient = Union[GpuSampled, Progressed, ReplyDelta]  # noqa: UP007
AnyEvent = Union[Durable, Transient]  # noqa: UP007

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """One line of JSON without the newline, `type` first."""
    return _encoder.encode(event)


def decode(line: bytes | str) -> AnyEvent:
    """The event of one line. Raises msgspec.ValidationError or msgspec.DecodeError for anything else."""
    return _decoder.decode(line)


def decode_lines(lines: bytes) -> list[AnyEvent]:
    """The events of whole lines. Raises as `decode`. Lines that are empty, or that hold two events, are not found out."""
    return _decoder.decode_lines(lines)


def is_durable(event: Event) -> bool:
    """Whether the event belongs in the journal."""
    return not isinstance(event, GpuSampled | Progressed | ReplyDelta)


def transient_key(event: GpuSampled | Progressed | ReplyDelta) -> str:
    """What a later transient event must share to replace this one."""
    match event:
        case GpuSampled():
            return f"gpu {event.uuid or event.device}"
        case ReplyDelta():
            return f"reply {event.pull}"
    return "progress"
