"""`RunState`: what follows from a run's events. A fold that copies and adds, and decides nothing.

The engine, the cockpit, `attach`, resume, replay and the tests all build their state here, by applying the same
events in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

import msgspec

from kbtui.state import acts
from kbtui.state import events as e
from kbtui.state.records import (
    BASELINE_ID,
    EMPTY_START,
    ArmScore,
    Compilation,
    DeviceInfo,
    NumberChange,
    Owner,
    Signature,
    Strategy,
    Summary,
    Timing,
    Verification,
)
from kbtui.text import clean_line, plural

LOG_LINES = 2000
"""Log lines kept in memory; the journal has them all."""


class Candidate(msgspec.Struct, kw_only=True):
    """One version of the kernel and all that is known of it. `stage` says how far it came: generated, pruned,
    compiled, verified, timed, killed."""

    id: int
    parent_id: int | None
    pull: int
    strategy: Strategy | None
    generator: str
    move: str
    source: str
    source_digest: str
    syntax_digest: str
    detail: str = ""
    by: str = ""
    born: float = 0.0
    stage: str = "generated"
    pruned: e.Pruned | None = None
    compilation: Compilation | None = None
    verification: Verification | None = None
    confirmation: Verification | None = None
    """The verdict of the hidden stage, which only what would become the best comes to."""
    timing: Timing | None = None
    """The one that counts: its only one; of several, the newest that has a figure, and the baseline's first."""
    device: str = ""
    """Where that was measured; "" in a run on one device."""
    timings: dict[str, Timing] = {}
    """In a run on several devices, the newest timing on each."""
    worked_on: str = ""
    """The device that last did something for it, and may have it compiled already."""
    felled: int = 0
    """How many devices fell out while they judged it."""
    signature: Signature | None = None
    moves: dict[str, int] = {}
    cluster: int | None = None
    reward: float | None = None
    cost_usd: float = 0.0
    tokens: int = 0
    path: str = ""
    model: str = ""
    reflection: str = ""
    repairs: int | None = None
    change: NumberChange | None = None
    parents: tuple[int, ...] = ()
    killed_by: str = ""
    """Who had it judged no further."""
    born_usd: float = 0.0
    """What the run had spent when this one was there, its own cost included."""
    born_elapsed: float = 0.0
    """The run's clock then."""
    tags: list[str] = []
    note: str = ""
    children: list[int] = []

    @property
    def empty(self) -> bool:
        """Whether it is the empty start of a run whose problem has no kernel."""
        return self.generator == EMPTY_START

    @property
    def correct(self) -> bool:
        """On the frontier: verified correct, and not found wrong in the hidden stage."""
        return self.verification is not None and self.verification.verdict == "correct" and not self.exposed

    @property
    def exposed(self) -> bool:
        """Found wrong in the hidden stage. Where that could not tell, the verification stands."""
        return self.confirmation is not None and self.confirmation.verdict not in ("correct", "unknown")

    def timing_on(self, device: str) -> Timing | None:
        """Its timing on that device; None where it has none there."""
        return self.timing if device == self.device else self.timings.get(device)

    @property
    def ratio(self) -> float | None:
        """Measured speedup over the baseline; None when modelled or untimed."""
        return self.timing.ratio if self.timing is not None else None

    @property
    def estimate(self) -> float | None:
        """Modelled ratio to the baseline; None when measured or untimed."""
        return self.timing.estimate if self.timing is not None else None

    @property
    def status(self) -> str:
        """One word for how it ended or how far it came; "empty" for a start that holds no kernel."""
        if self.empty:
            return "empty"
        if self.pruned is not None:
            return "pruned"
        if self.killed_by:
            return "killed"
        if self.compilation is not None and not self.compilation.ok:
            return self.compilation.outcome
        if self.verification is not None and self.verification.verdict != "correct":
            return self.verification.verdict
        if self.confirmation is not None and self.exposed:
            return self.confirmation.verdict
        if self.timing is not None:
            return self.timing.verdict
        return self.stage


class Pull(msgspec.Struct, kw_only=True):
    """One play of an arm. `ended` when rewarded or dropped."""

    number: int
    cluster: int
    strategy: Strategy
    parent_id: int
    forced: bool = False
    began: float = 0.0
    """The run's clock when it was chosen, in seconds."""
    took: float | None = None
    """Seconds from then to its end."""
    candidate_ids: list[int] = []
    reward: float | None = None
    outcome: str = ""
    ended: bool = False
    seen: bool = False
    """Whether the bandit sees it: rewarded, not dropped."""
    duplicates: int = 0
    """Known versions in a row for which it was dropped."""
    replies: list[e.Replied] = []
    calls: int = 0
    """Requests sent to models, whether they were answered or not."""
    refused: int = 0
    """Replies that held no version that could be used."""
    charged: bool = False
    """Whether its requests were journalled with their cost: then its candidates' costs are shares of it."""
    cost_usd: float = 0.0
    tokens: int = 0
    repair_ended: bool = False
    tuned: str = ""
    """The move that the numeric search chose for it."""


class Arm(msgspec.Struct, kw_only=True):
    cluster: int
    strategy: Strategy
    pulls: float
    mean: float


ACT = "act"
"""The level of log lines that say what a person did."""
OURSELVES = "kbtui"
"""`by` of what the program did by itself."""


class LogLine(msgspec.Struct, frozen=True):
    """`level`: info, act (what a person did), warning, error."""

    t: float
    level: str
    text: str


def device_text(started: e.RunStarted) -> str:
    """What a run evaluates on: "NVIDIA H200", or "2 x NVIDIA H200 as cuda:0, cuda:1"."""
    if not started.lanes:
        return started.device.name
    return f"{len(started.lanes)} x {started.device.name} as {', '.join(started.lanes)}"


def _budget_text(event: e.BudgetChanged) -> str:
    parts = [
        plural(event.iterations, "pull") if event.iterations is not None else "",
        f"${event.budget_usd:.2f}" if event.budget_usd is not None else "",
        plural(event.budget_tokens, "token") if event.budget_tokens is not None else "",
        f"{event.budget_s / 60:g} minutes" if event.budget_s is not None else "",
        f"{plural(event.patience, 'pull')} without a gain" if event.patience is not None else "",
    ]
    return ", ".join(part for part in parts if part)


class RunState:
    """The state of one run. Read its attributes; change it only by `apply`."""

    def __init__(self) -> None:
        self.started: e.RunStarted | None = None
        self.status: str = "starting"
        """starting, running, paused, stopped"""
        self.pause_reason: str = ""
        self.pause_owner: Owner | None = None
        """Whose fault the pause is, if it was not a person's wish."""
        self.seq: int = 0
        self.version: int = 0
        """Durable events folded: what follows from them holds as long as this stays."""
        self.first_t: float = 0.0
        self.last_t: float = 0.0
        self.elapsed: float = 0.0
        self.iterations: int = 0
        self.devices: dict[str, DeviceInfo] = {}
        """In a run on several devices, those that ever started, by name."""
        self.dropped: dict[str, str] = {}
        """The devices that fell out, and why."""
        self.budget_usd: float | None = None
        self.candidates: dict[int, Candidate] = {}
        self.touched: dict[int, int] = {}
        """Every candidate, with the version of the state that an event last said something of it; the last one at the end."""
        self.by_code: dict[str, list[int]] = {}
        """Candidates by the digests of the code that they compiled to."""
        self.correct_ids: list[int] = []
        """The frontier, by id."""
        self.apart_ids: list[int] = []
        """Candidates that belong to no pull, the oldest first: the first one, people's own, what picks among others."""
        self.pulls: dict[int, Pull] = {}
        self.open_numbers: list[int] = []
        """Pulls begun and not ended, in the order in which they began."""
        self.newest_pull: int = 0
        """The highest number of a pull; 0 before there is one."""
        self.ended_log: list[int] = []
        """Pulls that ended, in the order in which they did."""
        self.arms: dict[tuple[int, str], Arm] = {}
        self.labels: dict[int, int] = {}
        self.representatives: dict[int, int] = {}
        self.signatures: dict[int, Signature] = {}
        self.held: dict[int, dict[str, str]] = {}
        self.scores: tuple[ArmScore, ...] = ()
        self.selected: e.Selected | None = None
        self.bans: set[tuple[int | None, str]] = set()
        self.forces: dict[int, e.Forced] = {}
        """Forced events by seq that no selection has used yet, in order."""
        self.injections: dict[int, e.Injected] = {}
        """Injected events by seq that have no candidate yet, in order."""
        self.steps: int = 0
        """Pulls still allowed while paused."""
        self.pinned: int | None = None
        self.hint: str = ""
        """What coming prompts say besides."""
        self.acts: dict[int, acts.Act] = {}
        """What can be taken back, by seq, the newest last."""
        self.baseline_id: int | None = BASELINE_ID
        """What the others are compared with; None where there was no kernel to begin with and no correct one is there yet."""
        self.best_id: int | None = None
        self.curve: list[tuple[int, float]] = []
        """(pull, ratio or estimate of the best so far), one point per change."""
        self.curve_usd: list[float] = []
        self.curve_s: list[float] = []
        """What had been spent, and the run's clock, at each point of the curve."""
        self.cost_usd: float = 0.0
        self.tokens: int = 0
        self.budget_tokens: int | None = None
        self.budget_s: float | None = None
        self.patience: int | None = None
        self.asks: dict[tuple[int, int], e.Asked] = {}
        """Requests to models that nothing is known of yet, by (pull, call): in flight, or cut off by a crash."""
        self.reply_deltas: dict[int, e.ReplyDelta] = {}
        """The replies that are growing, by pull."""
        self.read_replies: set[tuple[int, int]] = set()
        """The replies that were looked at, by (pull, call)."""
        self.dropped_parameters: dict[str, set[str]] = {}
        """What each model refused."""
        self.budget_spent: str = ""
        """"budget" or "tokens" once what is left pays for no further request."""
        self.pulls_ended: int = 0
        self.last_clustered: e.Clustered | None = None
        self.summary: Summary | None = None
        self.stopped_by: str = ""
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.gpu: dict[str, e.GpuSampled] = {}
        self.progress: e.Progressed | None = None
        self.unmerged: set[tuple[int, ...]] = set()
        """Versions that no dispatching one could be made of."""
        self.digests: dict[str, int] = {}
        """Normalised syntax digest -> first candidate that has it."""

    # ------------------------------------------------------------ derived, for reading

    @property
    def baseline(self) -> Candidate | None:
        """The kernel that the others are compared with: candidate 0, or what `baseline_chosen` named where that is empty."""
        return self.candidates.get(self.baseline_id) if self.baseline_id is not None else None

    @property
    def start(self) -> Candidate | None:
        """Candidate 0: the baseline, or an empty start."""
        return self.candidates.get(BASELINE_ID)

    @property
    def from_scratch(self) -> bool:
        """Whether the run began without a kernel."""
        return self.start is not None and self.start.empty

    @property
    def parents(self) -> list[Candidate]:
        """What a pull may start from, by id: the frontier; the empty start until there is one."""
        found = self.frontier
        return [self.start] if not found and self.start is not None and self.start.empty else found

    @property
    def best(self) -> Candidate | None:
        return self.candidates.get(self.best_id) if self.best_id is not None else None

    @property
    def lanes(self) -> tuple[str, ...]:
        """The devices' names, as events use them; one, "", in a run on one device."""
        return (self.started.lanes if self.started is not None else ()) or ("",)

    @property
    def live_lanes(self) -> tuple[str, ...]:
        """The devices that have not fallen out."""
        return tuple(lane for lane in self.lanes if lane not in self.dropped)

    def device_of(self, candidate: Candidate) -> DeviceInfo:
        """The device that the candidate's timing was taken on, the run's first where it has none."""
        assert self.started is not None, "a candidate has a run"
        return self.devices.get(candidate.device, self.started.device)

    def baseline_beside(self, candidate: Candidate) -> Timing | None:
        """The baseline's timing on the device that the candidate's was taken on: what its times may be set against."""
        return self.baseline.timing_on(candidate.device) if self.baseline is not None else None

    @property
    def modelled(self) -> bool:
        """Whether the run's times are estimates."""
        return self.started is not None and self.started.timing == "modelled"

    @property
    def frontier(self) -> list[Candidate]:
        """The correct candidates, by id."""
        return [self.candidates[number] for number in self.correct_ids]

    def changed_since(self, version: int) -> list[int]:
        """The candidates that events said something of after that version of the state, by id. It looks at no others."""
        return sorted(takewhile(lambda number: self.touched[number] > version, reversed(self.touched)))

    @property
    def open_pulls(self) -> list[Pull]:
        """Pulls begun and not ended: in flight, or cut short by a crash."""
        return [self.pulls[number] for number in self.open_numbers]

    @property
    def reserved_usd(self) -> float:
        """The most that requests without a known end can cost."""
        return sum(asked.reserved_usd for asked in self.asks.values())

    @property
    def reserved_tokens(self) -> int:
        return sum(asked.reserved_tokens for asked in self.asks.values())

    def banned(self, cluster: int, strategy: str) -> bool:
        return (cluster, strategy) in self.bans or (None, strategy) in self.bans

    # ------------------------------------------------------------ the fold

    def apply(self, event: e.Event) -> None:
        """Fold one event. Transient events replace the last of their kind. Unknown kinds are a programming error (KeyError)."""
        self.version += type(event) not in _TRANSIENT
        if event.seq:
            self.seq = event.seq
            self.first_t = self.first_t or event.t
            self.last_t = event.t
            self.elapsed = max(self.elapsed, event.elapsed)
        _FOLD[type(event)](self, event)

    def apply_all(self, events: Iterable[e.Event]) -> RunState:
        for event in events:
            self.apply(event)
        return self

    def _touch(self, candidate: Candidate) -> None:
        """An event said something of the candidate that bears on what it is worth."""
        self.touched.pop(candidate.id, None)
        self.touched[candidate.id] = self.version
        at = bisect_left(self.correct_ids, candidate.id)
        listed = at < len(self.correct_ids) and self.correct_ids[at] == candidate.id
        if candidate.correct and not listed:
            self.correct_ids.insert(at, candidate.id)
        elif listed and not candidate.correct:
            del self.correct_ids[at]

    def _say(self, event: e.Event, text: str, level: str = "info") -> None:
        self.log.append(LogLine(event.t, level, text))

    def _did(self, event: acts.ActEvent, text: str, **before: Any) -> None:
        """A person did what can be taken back."""
        if event.by != OURSELVES:
            acts.remember(self, event, text, **before)
        self._say(event, text, ACT)

    def _run_started(self, event: e.RunStarted) -> None:
        self.started = event
        self.status = "running"
        self.iterations = event.iterations
        self.budget_usd = event.budget_usd
        self.budget_tokens = event.budget_tokens
        self.budget_s = event.budget_s
        self.patience = event.patience
        self.devices = {device.lane: device for device in event.devices}
        self._say(event, f"run {event.run_id} started: {event.problem.name} on {device_text(event)}")

    def _run_continued(self, event: e.RunContinued) -> None:
        self.status = "running"
        self.summary = None
        self.stopped_by = ""
        self.budget_spent = ""
        self.reply_deltas.clear()
        self.steps = 0
        acts.forget(self, e.RunPaused, e.BudgetChanged)
        self.dropped.clear()
        self.devices |= {device.lane: device for device in event.devices}
        if event.iterations is not None:
            self.iterations = event.iterations
        self._say(event, f"continued by process {event.pid}")

    def _device_dropped(self, event: e.DeviceDropped) -> None:
        self.dropped[event.device] = event.reason
        if event.candidate_id is not None:
            self.candidates[event.candidate_id].felled += 1
        left = ", ".join(self.live_lanes)
        goes_on = f"the run goes on with {left}" if left else "no device is left"
        self._say(event, f"{event.device} fell out, {goes_on}: {event.reason}", "warning")

    def _retry_devices(self) -> None:
        """Have those that fell out tried again, unless they never started."""
        for device in self.dropped.keys() & self.devices.keys():
            del self.dropped[device]

    def _run_paused(self, event: e.RunPaused) -> None:
        self.status = "paused"
        self.steps = 0
        self.pause_reason, self.pause_owner = event.reason, event.owner
        why = f": {event.reason}" if event.reason else ""
        if event.by == OURSELVES:
            acts.forget(self, e.RunPaused)
            self._say(event, f"paused by {event.by}{why}", "warning" if event.owner else "info")
        else:
            self._did(event, f"{event.by} paused the run{why}")

    def _run_resumed(self, event: e.RunResumed) -> None:
        self.status = "running"
        self.steps = 0
        self.pause_reason, self.pause_owner = "", None
        self._retry_devices()
        acts.forget(self, e.RunPaused)
        self._say(event, f"{event.by} resumed the run", ACT)

    def _run_stopped(self, event: e.RunStopped) -> None:
        self.status = "stopped"
        self.stopped_by = event.stopped_by
        self.summary = event.summary
        self.progress = None
        self._say(event, f"stopped by {event.stopped_by}")

    def _noted(self, event: e.Noted) -> None:
        if event.drops_force is not None:
            self.forces.pop(event.drops_force, None)
            self.acts.pop(event.drops_force, None)
        if event.drops_merge:
            self.unmerged.add(event.drops_merge)
        self._say(event, f"{event.source}: {event.text}" if event.source != "kbtui" else event.text, event.level)

    def _clustered(self, event: e.Clustered) -> None:
        self.last_clustered = event
        self.labels = dict(event.labels)
        self.representatives = dict(event.representatives)
        self.arms = {
            (a.cluster, a.strategy): Arm(cluster=a.cluster, strategy=a.strategy, pulls=a.pulls, mean=a.mean)
            for a in event.arms
        }
        for candidate in self.candidates.values():
            candidate.cluster = self.labels.get(candidate.id)
        self._say(
            event, f"{plural(len(set(event.labels.values())), 'cluster')} of {plural(len(event.labels), 'candidate')}"
        )

    def _masked(self, event: e.Masked) -> None:
        self.signatures = dict(event.signatures)
        self.held = {k: dict(v) for k, v in event.held.items()}

    def _selected(self, event: e.Selected) -> None:
        self.selected = event
        self.scores = event.scores
        self.newest_pull = max(self.newest_pull, event.pull)
        if event.pull not in self.open_numbers:
            self.open_numbers.append(event.pull)
        self.pulls[event.pull] = Pull(
            number=event.pull,
            cluster=event.cluster,
            strategy=event.strategy,
            parent_id=event.parent_id,
            forced=event.forced is not None,
            began=event.elapsed,
            tuned=event.tuned,
        )
        if event.forced is not None:
            self.forces.pop(event.forced, None)
            self.acts.pop(event.forced, None)
        if self.status == "paused" and self.steps:
            self.steps -= 1
        how = "forced " if event.forced is not None else ""
        self._say(event, f"pull {event.pull}: {how}c{event.cluster} {event.strategy} from #{event.parent_id}")

    def _rewarded(self, event: e.Rewarded) -> None:
        self.arms[event.cluster, event.strategy] = Arm(
            cluster=event.cluster, strategy=event.strategy, pulls=event.pulls, mean=event.mean
        )
        if event.candidate_id is not None and event.candidate_id in self.candidates:
            self.candidates[event.candidate_id].reward = event.reward
        pull = self.pulls.get(event.pull)
        if pull is not None and not pull.ended:
            pull.reward, pull.outcome, pull.seen = event.reward, event.outcome, True
            pull.took = event.elapsed - pull.began
            self.pulls_ended += 1
            self._end(pull)

    def _end(self, pull: Pull) -> None:
        pull.ended = True
        self.open_numbers.remove(pull.number)
        self.ended_log.append(pull.number)

    def _pull_dropped(self, event: e.PullDropped) -> None:
        pull = self.pulls.get(event.pull)
        if pull is not None and not pull.ended:
            pull.outcome, pull.duplicates = "dropped", event.duplicates
            self._end(pull)
            # A pull that made no candidate (duplicates only, a provider's failure) does not use up an iteration.
            self.pulls_ended += bool(pull.candidate_ids)
        self._pay(pull, event.cost_usd, event.tokens)
        self.reply_deltas.pop(event.pull, None)
        # said, since the numbers of the pulls run ahead of the count by it
        how = "dropped" if pull is not None and pull.candidate_ids else "dropped and not counted"
        self._say(event, f"pull {event.pull} {how}: {event.reason}", "warning")

    def _generated(self, event: e.Generated) -> None:
        self.candidates[event.candidate_id] = Candidate(
            id=event.candidate_id,
            parent_id=event.parent_id,
            pull=event.pull,
            strategy=event.strategy,
            generator=event.generator,
            move=event.move,
            source=event.source,
            source_digest=event.source_digest,
            syntax_digest=event.syntax_digest,
            detail=event.detail,
            by=event.by,
            born=event.t,
            cost_usd=event.cost_usd,
            tokens=event.tokens,
            model=event.model,
            reflection=event.reflection,
            repairs=event.repairs,
            change=event.change,
            parents=event.parents,
        )
        self._touch(self.candidates[event.candidate_id])
        if not event.pull:
            self.apart_ids.append(event.candidate_id)
        self.digests.setdefault(event.syntax_digest, event.candidate_id)
        if self.candidates[event.candidate_id].empty:
            self.baseline_id = None
            self._say(event, "there is no kernel yet: the first pulls write one")
        self._pay(self.pulls.get(event.pull), event.cost_usd, event.tokens)
        made = self.candidates[event.candidate_id]
        made.born_usd, made.born_elapsed = self.cost_usd, event.elapsed
        if event.parent_id is not None and event.parent_id in self.candidates:
            self.candidates[event.parent_id].children.append(event.candidate_id)
        pull = self.pulls.get(event.pull)
        if pull is not None:
            pull.candidate_ids.append(event.candidate_id)
        if event.generator == "inject":
            for seq, queued in list(self.injections.items()):
                if queued.name == event.move and queued.source == event.source:
                    del self.injections[seq]
                    self.acts.pop(seq, None)
                    break

    def _moves_found(self, event: e.MovesFound) -> None:
        candidate = self.candidates[event.candidate_id]
        candidate.moves = dict(event.moves)
        self._touch(candidate)

    def _pruned(self, event: e.Pruned) -> None:
        candidate = self.candidates[event.candidate_id]
        candidate.pruned, candidate.stage = event, "pruned"
        self._touch(candidate)
        self._say(event, f"#{event.candidate_id} pruned at {event.stage}: {event.reason}")

    def _compiled(self, event: e.Compiled) -> None:
        candidate = self.candidates[event.candidate_id]
        candidate.compilation, candidate.stage = event.compilation, "compiled"
        for digest in {kernel.code_digest for kernel in event.compilation.kernels}:
            self.by_code.setdefault(digest, []).append(candidate.id)
        self._touch(candidate)
        candidate.worked_on = event.device
        if not event.compilation.ok:
            self._say(
                event, f"#{event.candidate_id} {event.compilation.outcome}: {event.compilation.reason}", "warning"
            )

    def _verified(self, event: e.Verified) -> None:
        candidate = self.candidates[event.candidate_id]
        candidate.verification, candidate.stage = event.verification, "verified"
        self._touch(candidate)
        candidate.worked_on = event.device
        v = event.verification
        if v.verdict != "correct":
            self._say(event, f"#{event.candidate_id} {v.verdict} at {v.stage}: {v.reason}", "warning")

    def _timed(self, event: e.Timed) -> None:
        candidate = self.candidates[event.candidate_id]
        t = event.timing
        if event.device:
            candidate.timings[event.device] = t
        if candidate.timing is None or not event.device or self._supersedes(candidate, t):
            candidate.timing, candidate.signature, candidate.stage = t, event.signature, "timed"
            candidate.device = event.device
        self._touch(candidate)
        where = f" on {event.device}" if event.device else ""
        if t.ratio is not None:
            self._say(event, f"#{event.candidate_id} {t.verdict} {t.ratio:.2f}x{where}")
        elif t.estimate is not None:
            self._say(event, f"#{event.candidate_id} {t.verdict} ~{t.estimate:.2f} est, modelled{where}")
        else:
            self._say(event, f"#{event.candidate_id} {t.verdict}{where}")

    def _supersedes(self, candidate: Candidate, timing: Timing) -> bool:
        """Whether a timing on another device is the one that counts from now on."""
        has_figure = timing.ratio is not None or timing.estimate is not None
        return has_figure and candidate.id != self.baseline_id

    def _confirmed(self, event: e.Confirmed) -> None:
        candidate, found = self.candidates[event.candidate_id], event.verification
        candidate.confirmation = found
        self._touch(candidate)
        if found.verdict != "correct":
            self._say(event, f"#{event.candidate_id} {found.verdict} at {found.stage}: {found.reason}", "warning")

    def _baseline_chosen(self, event: e.BaselineChosen) -> None:
        self.baseline_id = event.candidate_id
        self._say(
            event, f"#{event.candidate_id} is the baseline: the first correct version, which others are compared with"
        )

    def _best_changed(self, event: e.BestChanged) -> None:
        self.best_id = event.candidate_id
        candidate = self.candidates[event.candidate_id]
        candidate.path = event.path
        if event.device in candidate.timings:
            candidate.timing, candidate.device = candidate.timings[event.device], event.device
        self._touch(candidate)
        figure = candidate.ratio if candidate.ratio is not None else candidate.estimate
        if figure is not None:
            # Not the candidate's own pull: an injected one has none, and the curve must not step back.
            self.curve.append((self.newest_pull, figure))
            self.curve_usd.append(self.cost_usd)
            self.curve_s.append(event.elapsed)
        if event.candidate_id != self.baseline_id:
            where = f" on {event.device}" if event.device else ""
            self._say(event, f"best is now #{event.candidate_id}{where}")

    def _forced(self, event: e.Forced) -> None:
        self.forces[event.seq] = event
        where = f"c{event.cluster} " if event.cluster is not None else ""
        source = f" from #{event.parent_id}" if event.parent_id is not None else ""
        self._did(event, f"{event.by} forced {where}{event.strategy}{source}")

    def _banned(self, event: e.Banned) -> None:
        self.bans.add((event.cluster, event.strategy))
        where = f"c{event.cluster} " if event.cluster is not None else ""
        self._did(event, f"{event.by} banned {where}{event.strategy}")

    def _unbanned(self, event: e.Unbanned) -> None:
        self.bans.discard((event.cluster, event.strategy))
        where = f"c{event.cluster} " if event.cluster is not None else ""
        self._did(event, f"{event.by} unbanned {where}{event.strategy}")

    def _stepped(self, event: e.Stepped) -> None:
        self.steps += 1
        if not self.live_lanes:
            self._retry_devices()
        self._say(event, f"{event.by} asked for one pull", ACT)

    def _injected(self, event: e.Injected) -> None:
        self.injections[event.seq] = event
        self._did(event, f"{event.by} injected {event.name}")

    def _pinned(self, event: e.Pinned) -> None:
        before, self.pinned = self.pinned, event.parent_id
        what = f"pinned #{event.parent_id}" if event.parent_id is not None else f"unpinned #{before}"
        self._did(event, f"{event.by} {what}", pinned=before)

    def _budget_changed(self, event: e.BudgetChanged) -> None:
        before = {name: getattr(self, name) for name in acts.BUDGETS}
        if event.iterations is not None:
            self.iterations = event.iterations
        if event.budget_usd is not None:
            self.budget_usd = event.budget_usd
        if event.budget_tokens is not None:
            self.budget_tokens = event.budget_tokens
        if event.budget_s is not None:
            self.budget_s = event.budget_s
        if event.patience is not None:
            self.patience = event.patience
        self.budget_spent = ""
        self._did(event, f"{event.by} changed the budget: {_budget_text(event)}", **before)

    def _killed(self, event: e.Killed) -> None:
        candidate = self.candidates[event.candidate_id]
        candidate.killed_by, candidate.stage = event.by, "killed"
        self._touch(candidate)
        self._say(event, f"{event.by} killed #{event.candidate_id}", ACT)

    def _tagged(self, event: e.Tagged) -> None:
        candidate = self.candidates[event.candidate_id]
        before = {"tags": tuple(candidate.tags), "note": candidate.note}
        if event.tag and event.tag not in candidate.tags:
            candidate.tags.append(event.tag)
        candidate.note = event.note or candidate.note
        what = f"tagged #{event.candidate_id} {event.tag}" if event.tag else f"noted on #{event.candidate_id}"
        self._did(event, f"{event.by} {what}" + (f": {event.note}" if event.note else ""), **before)

    def _hinted(self, event: e.Hinted) -> None:
        before, self.hint = self.hint, event.text
        what = f"hinted: {clean_line(event.text, 80)}" if event.text else "took the hint back"
        self._did(event, f"{event.by} {what}", hint=before)

    def _undone(self, event: e.Undone) -> None:
        act = acts.take_back(self, event.act)
        what = act.text if act is not None else event.text
        self._say(event, f"{event.by} took back: {what}", ACT)

    # ------------------------------------------------------------ models

    def _pay(self, pull: Pull | None, cost_usd: float, tokens: int) -> None:
        """Count what a candidate or a dropped pull cost, unless the requests behind it were charged already."""
        if pull is not None and pull.charged:
            return
        self.cost_usd += cost_usd
        self.tokens += tokens
        if pull is not None:
            pull.cost_usd += cost_usd
            pull.tokens += tokens

    def _charge(self, pull: Pull | None, cost_usd: float, tokens: int) -> None:
        self.cost_usd += cost_usd
        self.tokens += tokens
        if pull is not None:
            pull.charged = True
            pull.cost_usd += cost_usd
            pull.tokens += tokens

    def _asked(self, event: e.Asked) -> None:
        self.asks[event.pull, event.call] = event
        if event.pull in self.pulls:
            self.pulls[event.pull].calls = event.call

    def _replied(self, event: e.Replied) -> None:
        self.asks.pop((event.pull, event.call), None)
        self.reply_deltas.pop(event.pull, None)
        pull = self.pulls.get(event.pull)
        if pull is not None:
            pull.replies.append(event)
            pull.calls = max(pull.calls, event.call)
        self._charge(pull, event.cost_usd or 0.0, event.prompt_tokens + event.completion_tokens)

    def _ask_failed(self, event: e.AskFailed) -> None:
        self.asks.pop((event.pull, event.call), None)
        self.reply_deltas.pop(event.pull, None)
        self._charge(self.pulls.get(event.pull), event.cost_usd, event.tokens)
        self._say(event, f"pull {event.pull}: {event.model}: {event.reason}", "warning")

    def _reply_read(self, event: e.ReplyRead) -> None:
        self.read_replies.add((event.pull, event.call))
        if event.refused:
            if event.pull in self.pulls:
                self.pulls[event.pull].refused += 1
            self._say(
                event, f"pull {event.pull}: reply {event.call} refused, {event.refused}: {event.reason}", "warning"
            )

    def _repair_ended(self, event: e.RepairEnded) -> None:
        if event.pull in self.pulls:
            self.pulls[event.pull].repair_ended = True
        self._say(event, f"#{event.candidate_id} is not repaired: {event.reason}")

    def _parameter_dropped(self, event: e.ParameterDropped) -> None:
        self.dropped_parameters.setdefault(event.model, set()).add(event.parameter)
        self._say(event, f"{event.model} refuses {event.parameter}, which is not sent to it any more", "warning")

    def _budget_spent(self, event: e.BudgetSpent) -> None:
        self.budget_spent = event.budget
        self._say(event, event.reason)

    def _reply_delta(self, event: e.ReplyDelta) -> None:
        self.reply_deltas[event.pull] = event

    def _gpu_sampled(self, event: e.GpuSampled) -> None:
        self.gpu[event.uuid or event.device] = event

    def _progressed(self, event: e.Progressed) -> None:
        self.progress = event


_TRANSIENT = frozenset((e.GpuSampled, e.Progressed, e.ReplyDelta))
_FOLD: dict[type, Callable[[RunState, Any], None]] = {
    e.RunStarted: RunState._run_started,
    e.RunContinued: RunState._run_continued,
    e.RunPaused: RunState._run_paused,
    e.RunResumed: RunState._run_resumed,
    e.RunStopped: RunState._run_stopped,
    e.DeviceDropped: RunState._device_dropped,
    e.Noted: RunState._noted,
    e.Clustered: RunState._clustered,
    e.Masked: RunState._masked,
    e.Selected: RunState._selected,
    e.Rewarded: RunState._rewarded,
    e.PullDropped: RunState._pull_dropped,
    e.Generated: RunState._generated,
    e.MovesFound: RunState._moves_found,
    e.Pruned: RunState._pruned,
    e.Compiled: RunState._compiled,
    e.Verified: RunState._verified,
    e.Timed: RunState._timed,
    e.Confirmed: RunState._confirmed,
    e.BaselineChosen: RunState._baseline_chosen,
    e.BestChanged: RunState._best_changed,
    e.Forced: RunState._forced,
    e.Banned: RunState._banned,
    e.Unbanned: RunState._unbanned,
    e.Stepped: RunState._stepped,
    e.Injected: RunState._injected,
    e.Pinned: RunState._pinned,
    e.BudgetChanged: RunState._budget_changed,
    e.Killed: RunState._killed,
    e.Tagged: RunState._tagged,
    e.Hinted: RunState._hinted,
    e.Undone: RunState._undone,
    e.GpuSampled: RunState._gpu_sampled,
    e.Progressed: RunState._progressed,
    e.Asked: RunState._asked,
    e.Replied: RunState._replied,
    e.AskFailed: RunState._ask_failed,
    e.ReplyRead: RunState._reply_read,
    e.RepairEnded: RunState._repair_ended,
    e.ParameterDropped: RunState._parameter_dropped,
    e.BudgetSpent: RunState._budget_spent,
    e.ReplyDelta: RunState._reply_delta,
}
