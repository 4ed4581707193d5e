"""A lane and a generator whose results follow from the source alone, so that a run needs no torch and two runs
that make the same choices are equal."""

from __future__ import annotations

import ast
import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kbtui import syntax
from kbtui.engine.engine import Engine, Parts
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, ProviderFailure
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.selftest import SelfTest
from kbtui.generate.generator import Exhausted, Generator, Request, Written
from kbtui.history.journal import read_journal
from kbtui.paths import journal_file
from kbtui.search.registry import make_policy
from kbtui.state import events as e
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Reading,
    Signature,
    Timing,
    Verification,
)
from kbtui.state.run_state import RunState

PROBLEM = "vector_add"
SHARED_LIMIT = 232448
OFFERS: dict[str, int] = {"tiling": 12, "vectorization": 8, "pipeline": 3}
"""Moves on every source; the other strategies are no arms."""


def value_of(source: str) -> int:
    """The number that a written candidate carries in its kernel; 0 for the baseline."""
    for node in syntax.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "add_kernel" and node.args.defaults:
            return int(ast.literal_eval(node.args.defaults[0]))
    return 0


def variant(value: int) -> str:
    return (
        f"import triton\n\n\n@triton.jit\ndef add_kernel(x, value={value}): ...\n\n\n"
        "def vector_add(x, y):\n    return launch(x, y)\n"
    )


def speed_of(device: str) -> float:
    """Milliseconds of the baseline: each GPU of one kind is a little faster or slower than the next."""
    return 1.0 + 0.1 * int(device.removeprefix("cuda:")) if device.startswith("cuda:") else 1.0


def ratio_of(value: int, device: str) -> float:
    """A version's speedup, a few percent more or less from device to device, so that the order of two may turn."""
    number = int(device.removeprefix("cuda:")) if device.startswith("cuda:") else 0
    return 0.8 + (value % 7) / 10 + (number * (value * 13 % 11 - 5) * 0.008)


@dataclass
class Script:
    """What goes wrong. `fail_at` maps (method, value) to the error to raise, once each; `fail_nth` (method, how many times
    it was called). `block` holds a method back for all but the baseline until `go` is set or the job is cancelled.
    `hidden` maps values to the verdict of the hidden stage. `seconds` is how long each method takes; `most` says how many
    of each ran at once, "lane" being all but compile.
    """

    timing: str = "measured"
    kind: str = "cpu"
    floor_ms: float = 0.0
    short: frozenset[int] = frozenset()
    """Values whose traffic is less than the case's work."""
    hidden: dict[int, str] = field(default_factory=dict)
    fail_at: dict[tuple[str, int], Exception] = field(default_factory=dict)
    fail_nth: dict[tuple[str, int], Exception] = field(default_factory=dict)
    baseline_verdict: str = "correct"
    start_errors: list[Exception] = field(default_factory=list)
    block: str = ""
    go: threading.Event = field(default_factory=threading.Event)
    blocked: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    calls: list[tuple[str, int]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    at_work: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    cancels: list[int | None] = field(default_factory=list)
    start_fails: dict[str, list[Exception]] = field(default_factory=dict)
    """By device: what its lane raises as it starts, once each."""
    fail_on: dict[tuple[str, str, int], Exception] = field(default_factory=dict)
    """(device, method, how many times it was called there): raised in the middle of the work."""
    poison_at: int = 0
    """What is timed as the so-many-th (the next, if that is the baseline) takes the device with it, and every other one that it
    is timed on."""
    poison: int = 0
    names: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    done_on: Counter[tuple[str, str]] = field(default_factory=Counter)
    started: int = 0
    closed: int = 0


class FakeLane(Lane):
    """Value modulo 10 decides: 1 does not compile, 2 is wrong, 3 needs too much shared memory, all with 4 compile to the
    same code, 5 cannot be checked here, the rest is correct and value % 7 decides its speed."""

    def __init__(self, spec: LaneSpec, script: Script) -> None:
        self.spec, self.script = spec, script

    def start(self) -> LaneFacts:
        self.script.started += 1
        if self.script.start_errors and (error := self.script.start_errors.pop(0)):
            raise error
        if failures := self.script.start_fails.get(self.spec.device):
            raise failures.pop(0)
        self.facts = LaneFacts(
            device=DeviceInfo(
                lane=self.spec.device,
                kind=self.script.kind,  # type: ignore[arg-type]
                name=self.script.names.get(self.spec.device, "fake sm_90"),
                uuid=self.script.uuids.get(self.spec.device, ""),
                target=self.spec.target,
                shared_limit_bytes=SHARED_LIMIT,
                threads_per_multiprocessor=2048,
            ),
            timing=self.script.timing,  # type: ignore[arg-type]
            versions={"torch": "2.0-fake"},
            isolation={"no new privileges": "on"},
            problem=ProblemInfo(
                name=self.spec.problem.name,
                path=str(self.spec.problem),
                entry="vector_add",
                digest="0" * 64,
                cases=(CaseInfo(name="n=1024", fields={"n": 1024}),),
            ),
        )
        return self.facts

    def _begin(self, method: str, source: str, report: Report) -> int:
        value = value_of(source)
        self.script.calls.append((method, value))
        report(method, f"value {value}")
        kind = method if method == "compile" else "lane"
        kinds = (kind, f"{kind} {self.spec.device}")
        with self.script.lock:
            self.script.done_on[self.spec.device, method] += 1
            for each in kinds:
                self.script.at_work[each] += 1
                self.script.most[each] = max(self.script.most[each], self.script.at_work[each])
        try:
            self._work(method, value)
        finally:
            with self.script.lock:
                for each in kinds:
                    self.script.at_work[each] -= 1
        return value

    def _work(self, method: str, value: int) -> None:
        if method in self.script.seconds:
            time.sleep(self.script.seconds[method])
        if self.script.block == method and value:
            self.script.blocked.set()
            self.script.go.wait(timeout=30)
        calls = sum(called == method for called, _ in self.script.calls)
        error = self.script.fail_at.pop((method, value), None) or self.script.fail_nth.pop((method, calls), None)
        here = (self.spec.device, method, self.script.done_on[self.spec.device, method])
        error = error or self.script.fail_on.pop(here, None)
        first = self.script.calls.count((method, value)) == 1
        if method == "time" and 0 < self.script.poison_at <= calls and first:
            self.script.poison = self.script.poison or value
        if method == "time" and value and value == self.script.poison:
            error = EnvironmentFailure(f"{self.spec.device} no longer works")
        if error is not None:
            raise error

    def compile(self, source: str, report: Report) -> Compilation:
        value = self._begin("compile", source, report)
        if value % 10 == 1:
            return Compilation(ok=False, reason=f"error: value {value}", detail="Traceback ...")
        kernel = KernelFacts(
            name="add_kernel",
            target="sm_90",
            registers=32 + value % 5,
            spill_bytes=0,
            shared_bytes=SHARED_LIMIT + 1 if value % 10 == 3 else 1024,
            num_warps=4,
            num_stages=3,
            threads=128,
            occupancy_percent=50.0 + value % 40,
            code_digest="code 4" if value % 10 == 4 else f"code {value}",
            constants={"BLOCK": 1024},
        )
        return Compilation(ok=True, kernels=(kernel,))

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        value = self._begin("verify", source, report)
        assert kernels
        if value == 0 and self.script.baseline_verdict != "correct":
            return Verification(verdict="wrong", stage="boundary", reason="differs", error=float("inf"), allowed=1e-5)
        if value % 10 == 2:
            return Verification(verdict="wrong", stage="boundary", reason="differs", error=float("inf"), allowed=1e-5)
        if value % 10 == 5:
            return Verification(verdict="unknown", stage="interpreter", owner="environment", reason="not interpretable")
        return Verification(verdict="correct", stage="done", cases_checked=9, error=1e-7, allowed=1e-5)

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        value = self._begin("confirm", source, report)
        assert kernels
        verdict = self.script.hidden.get(value, "correct")
        owner = "environment" if verdict == "unknown" else "candidate"
        return Verification(verdict=verdict, stage="hidden", owner=owner, reason="differs")  # type: ignore[arg-type]

    def selftest(self, report: Report) -> SelfTest:
        report("self-test", "")
        return SelfTest(rejected={"zeros": "differs"}, survivors=(), inapplicable=())

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        value = self._begin("time", source, report)
        assert value_of(baseline_source) == 0
        assert (baseline is None) == (value == 0)
        signature = Signature(sm=Reading(20.0 + value % 50, "ncu"), dram=Reading(30.0 + value % 60, "ncu"))
        ratio = 1.0 if baseline is None else ratio_of(value, self.spec.device)
        for other in (baseline, parent):
            assert other is None or other.cases[0].bound == self.spec.device, "a time of another device"
        if value in self.script.short:
            case = CaseTiming(case="n=1024", failed="it moves 67.2 MB where the case needs 134 MB", work_left_out=True)
            timing = Timing(kind="modelled", verdict="unknown", cases=(case,), estimate=ratio)
            return Evaluated(timing=timing, signature=signature)
        if self.script.timing == "modelled":
            verdict = "not worse" if ratio >= 1 else "worse"
            timing = Timing(
                kind="modelled",
                verdict=verdict,  # type: ignore[arg-type]
                cases=(CaseTiming(case="n=1024", estimate_ms=1 / ratio, estimate_ratio=ratio, bound=self.spec.device),),
                estimate=ratio,
                parent_estimate=ratio / (parent.estimate or 1.0) if parent else None,
            )
            return Evaluated(timing=timing, signature=signature)
        verdict = "faster" if ratio > 1.05 else "slower" if ratio < 0.95 else "same"
        timing = Timing(
            kind="measured",
            verdict=verdict,  # type: ignore[arg-type]
            cases=(
                CaseTiming(
                    case="n=1024",
                    ms=speed_of(self.spec.device) / ratio,
                    low_ms=0.99 * speed_of(self.spec.device) / ratio,
                    high_ms=1.01 * speed_of(self.spec.device) / ratio,
                    ratio=ratio,
                    floor_ms=self.script.floor_ms,
                    bound=self.spec.device,
                ),
            ),
            ratio=ratio,
            low=ratio * 0.99,
            high=ratio * 1.01,
            parent_ratio=ratio / (parent.ratio or 1.0) if parent else None,
            pairs=3,
        )
        return Evaluated(timing=timing, signature=signature)

    def cancel(self, source: str | None = None) -> None:
        self.script.cancels.append(None if source is None else value_of(source))
        self.script.cancelled.set()
        self.script.go.set()

    def close(self) -> None:
        self.script.closed += 1


class FakeGenerator(Generator):
    """Numbers drawn from few, so that duplicates happen. `fail_pulls` maps a pull to the error to raise, once. A
    version takes `seconds` to write, times 1 to 3 by its pull."""

    name = "fake"

    def __init__(self, values: int = 200, fail_pulls: dict[int, Exception] | None = None, seconds: float = 0.0) -> None:
        self.values = values
        self.seconds = seconds
        self.fail_pulls = fail_pulls or {}
        self.written: list[int] = []

    def moves(self, source: str, entry: str) -> dict[str, int]:
        assert entry == "vector_add"
        syntax.parse(source)
        return dict(OFFERS)

    async def write(self, request: Request) -> Written | Exhausted:
        error = self.fail_pulls.pop(request.pull, None)
        if error is not None:
            raise error
        if self.seconds:
            await asyncio.sleep(self.seconds * (1 + request.pull % 3))
        rng = np.random.default_rng([*request.seed, len(request.tried)])
        value = int(rng.integers(1, self.values))
        self.written.append(value)
        if value % 23 == 0:
            return Exhausted("nothing left to try")
        return Written(source=variant(value), move=f"value {value}", cost_usd=0.01, tokens=10)


@dataclass
class Run:
    """One run with fakes: `await run.go()`; then look at `events` (durable) and `state`."""

    spec: RunSpec
    script: Script = field(default_factory=Script)
    generator: FakeGenerator = field(default_factory=FakeGenerator)
    attended: bool = False
    events: list[e.Event] = field(default_factory=list)
    ingested: int = 0
    ingest_error: Exception | None = None
    on_event: Callable[[e.Event], None] | None = None

    def parts(self) -> Parts:
        return Parts(
            make_lane=lambda spec: FakeLane(spec, self.script),
            make_generator=lambda _: self.generator,
            make_policy=lambda made: make_policy(made.policy, made.policy_parameters),
            ingest=self._ingest,
            harden=lambda: "off: tests",
        )

    def engine(self) -> Engine:
        return Engine(self.spec, self.parts(), attended=self.attended)

    async def go(self) -> RunState:
        await self.engine().run(self.hear, lambda: None)
        return self.state

    def hear(self, event: e.Event) -> None:
        if e.is_durable(event):
            self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    @property
    def state(self) -> RunState:
        return RunState().apply_all(read_journal(journal_file(self.spec.run_id)))

    def _ingest(self) -> int:
        self.ingested += 1
        if self.ingest_error is not None:
            raise self.ingest_error
        return 0


def spec(run_id: str = "fake-1", **changes: object) -> RunSpec:
    """A specification on the bundled vector_add and the cpu lane."""
    fields: dict[str, object] = {"problem": PROBLEM, "run_id": run_id, "iterations": 8, "device": "cpu"}
    fields |= {"policy_parameters": {"period": 4, "clusters": 2}, **changes}
    return RunSpec(**fields)  # type: ignore[arg-type]


def journal(run_id: str) -> list[e.Event]:
    return read_journal(journal_file(run_id))


def check_devices(events: list[e.Event]) -> RunState:
    """What holds for every run on several devices, however it went. Returns its state."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    state = RunState()
    for event in events:
        match event:
            case e.Timed(candidate_id=number, device=device):
                assert device in state.live_lanes, "timed on a device that has fallen out"
                assert number == 0 or state.candidates[0].timing_on(device) is not None, "timed before the baseline was"
            case e.BestChanged(candidate_id=number, device=device) if number:
                risen, best = state.candidates[number].timing_on(device), state.best
                assert risen is not None, "not timed where it was compared"
                assert risen.ratio == ratio_of(value_of(state.candidates[number].source), device)
                assert best is not None
                beaten = best.timing_on(device)
                assert beaten is not None, f"the best was not timed on {device}"
                assert beaten.ratio is not None
                assert risen.ratio is not None
                # of equals the older stays
                assert (risen.ratio, -number) > (beaten.ratio, -best.id)
        state.apply(event)
    timed = Counter((x.candidate_id, x.device) for x in events if isinstance(x, e.Timed))
    assert set(timed.values()) == {1}, "once on each device"
    for kind in (e.Generated, e.Compiled, e.Pruned, e.Verified):
        judged = Counter(x.candidate_id for x in events if isinstance(x, kind))  # type: ignore[attr-defined]
        assert set(judged.values()) <= {1}, kind
    ends = Counter(x.pull for x in events if isinstance(x, e.Rewarded | e.PullDropped))
    assert set(ends.values()) == {1}
    if state.stopped_by == "iterations":
        assert state.open_pulls == []
    return state


def environment_failure() -> EnvironmentFailure:
    return EnvironmentFailure("the driver is gone")


def provider_failure() -> ProviderFailure:
    return ProviderFailure("429: too many requests")


def sequence(events: list[e.Event]) -> list[tuple[object, ...]]:
    """What matters of a run's course: every event but the lifecycle's, without numbers and times."""
    import msgspec

    return [
        (type(event).__name__, msgspec.to_builtins(msgspec.structs.replace(event, seq=0, t=0.0, elapsed=0.0)))
        for event in events
        if not isinstance(event, e.RunStarted | e.RunContinued | e.RunStopped | e.Noted)
    ]


def first_lines(path: Path, count: int) -> bytes:
    return b"".join(path.read_bytes().splitlines(keepends=True)[:count])
