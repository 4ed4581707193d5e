"""The `cuda` lane: one GPU that verifies and measures candidates; compiling needs no device and happens beside it.

Two zygotes (one compiles, one forks the processes that use the GPU) and the oracle. A candidate initialises CUDA after
the fork, so an illegal address ends with its process; whether the device survived is asked before the next job.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import threading
from collections.abc import Iterator, Sequence

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import facts, timing, wire
from kbtui.evaluate.checks import Supplier
from kbtui.evaluate.compilers import Compilers, warming
from kbtui.evaluate.cpu import failed_compilation, restart
from kbtui.evaluate.device_jobs import DeviceJobs
from kbtui.evaluate.devices import keep_peaks, kept_peaks
from kbtui.evaluate.gpu import (
    Card,
    Gpu,
    State,
    TimingCancelled,
    checking_lock,
    conditions,
    measured,
    nominal,
    timing_lock,
)
from kbtui.evaluate.job import JobOrder, Outcome
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.match import Match, Matches
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.pairs import PairPlan
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.profile import unknown
from kbtui.evaluate.profiler import Profiler
from kbtui.evaluate.selftest import SelfTest
from kbtui.evaluate.turns import PlayerLost
from kbtui.evaluate.verify import Surroundings, Verifier
from kbtui.problems.folder import read_folder
from kbtui.state.records import CaseTiming, Compilation, KernelFacts, ProblemInfo, Signature, Timing, Verification

NOT_CHECKED = (
    "races: not checked (no race detector runs)",
    "reads outside a tensor: not checked (they show only where they change a value or fault)",
)
SLOW_COMPILE_S = 5.0
"""From here on a check is given more time for what still has to compile on the way."""
PAIR_S, PAIR_CASE_S = 60.0, 30.0
"""Deadline of a process of a pair: this, and this for each case (inputs, compile, tuning and its share of turns)."""


class CudaLane(Lane):
    """See `Lane`. `spec.device` is "cuda:N"."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._problem = read_folder(spec.problem)
        self._compilers = Compilers(spec.compilers, spec.python, spec.scratch)
        self._oracle = Oracle(spec.python, spec.scratch / "oracle", self._problem.path, spec.device, spec.seed)
        self._cancelled = threading.Event()
        self._jobs = DeviceJobs(spec, self._problem, self._cancelled)
        self._source = ""
        self._last_boundary: tuple[wire.CaseKey, ...] = ()
        self._matches = Matches(self._match)
        self._others: frozenset[int] = frozenset()
        """Processes on the device before the first pair of `_matches` was started ahead."""
        self._slow: dict[int, float] = {}
        """Seconds of compiling by hash of the source, of those that take more than SLOW_COMPILE_S."""
        self._gpu: Gpu | None = None
        self._closed = False

    # life

    def start(self) -> LaneFacts:
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> LaneFacts:
        for process in (self._oracle, self._jobs.zygote, self._compilers):
            process.launch()
        ready = self._jobs.zygote.await_ready()
        self._compilers.await_ready()
        # First of all: where the device cannot be used, that is the sentence to hear, and not the oracle's trouble with it.
        card = self._jobs.look(measure=False)
        described = self._oracle.open()
        gpu = self._gpu = _open_gpu(card.uuid)
        gpu.refuse_exclusive()
        self._physical = nominal(card, gpu, self._spec.device)
        self._info = measured(self._physical, self._peaks(card, ready.versions))
        self._cases = described.cases
        self._own_calls = described.own_precision
        self._keys = tuple(wire.CaseKey(fields=case.fields) for case in described.cases)
        self._verifier = Verifier(self._oracle, self._jobs.run, self._surroundings())
        self._profiler = Profiler(
            self._spec.python,
            self._spec.scratch / "profile",
            self._problem,
            self._spec.device,
            self._oracle,
            self._keys,
            self._jobs.caches.of,
        )
        self.facts = LaneFacts(
            device=self._info,
            timing="measured",
            versions=ready.versions,
            isolation={
                **ready.isolation,
                **self._jobs.isolation(),
                "device to device": self._jobs.rehearse(self._oracle),
            },
            problem=ProblemInfo(
                name=self._problem.name,
                path=str(self._problem.path),
                entry=self._problem.entry,
                digest=self._problem.digest,
                cases=described.cases,
                mutates=described.mutates,
                precision=described.precision,
                summary=self._problem.summary or described.summary,
            ),
        )
        return self.facts

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            entry=self._problem.entry,
            folder=self._problem.path,
            baseline_source=self._problem.kernel_source,
            device=self._spec.device,
            readable=self._jobs.readable,
            timed=self._keys,
            unchecked=NOT_CHECKED,
            lenient=self._own_calls,
            deadline_s=self._spec.deadline_s,
            memory_bytes=self._jobs.memory_bytes,
        )

    def _peaks(self, card: Card, versions: dict[str, str]) -> dict[str, float]:
        """Peaks measured on this device, now or in an earlier run with the same torch."""
        kept = kept_peaks(card.uuid, versions)
        if kept is None:
            with timing_lock(card.uuid, lambda _: None, lambda: False):
                kept = self._jobs.look(measure=True).peaks
            keep_peaks(card.uuid, versions, kept)
        return kept

    def _take(self, source: str) -> None:
        """Begin with a source; a cancel that came for the one before is void."""
        self._source = source
        self._cancelled.clear()
        self._jobs.zygote.take_cancelled()

    def cancel(self, source: str | None = None) -> None:
        self._compilers.cancel(source)
        if source in (None, self._source):
            self._cancelled.set()
            self._jobs.zygote.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._oracle.close()
        self._compilers.release()
        self._jobs.zygote.release()
        if self._gpu is not None:
            self._gpu.close()
        shutil.rmtree(self._spec.scratch, ignore_errors=True)

    # jobs

    def compile(self, source: str, report: Report) -> Compilation:
        began = clock.monotonic()
        order = self._compile_order(source)
        probe = msgspec.structs.replace(self._jobs.probe(), device="cpu", cache=None)
        # most changes leave the blocks as they are, and with them the cases of the check
        guessed = self._last_boundary
        ahead = self._warming(order, (*self._keys, *guessed))
        outcome = self._compilers.run(order, probe, Supplier(self._oracle, self._keys).respond, report, beside=ahead)
        if outcome.kind != "done":
            return failed_compilation(outcome)
        found = facts.read_compilation(outcome.value, self._info, self._cases, outcome.seconds)
        if found.ok:
            report("compile", "what it will be checked on")
            boundary = self._verifier.boundary(found.kernels)
            if not self._compilers.warm(self._warming(order, [key for key in boundary if key not in guessed])):
                return failed_compilation(Outcome(kind="cancelled", reason="cancelled"))
            self._last_boundary = boundary
        seconds = clock.monotonic() - began
        if seconds > SLOW_COMPILE_S:
            self._slow[hash(source)] = seconds
        return msgspec.structs.replace(found, seconds=seconds)

    def _slow_s(self, source: str) -> float:
        """Seconds that a slow compilation took; 0.0 of any other."""
        return self._slow.get(hash(source), 0.0)

    def _compile_order(self, source: str) -> JobOrder:
        """Into the cache that its processes on the device read: what is compiled here need not be compiled there."""
        parameters = {**facts.compile_parameters(self._info, len(self._keys)), "build_launchers": True}
        order = self._jobs.order("compile", source, parameters, self._spec.deadline_s)
        return msgspec.structs.replace(order, device="cpu")

    def _warming(self, order: JobOrder, keys: Sequence[wire.CaseKey]) -> list[JobOrder]:
        """Jobs that compile what these cases launch, beside whoever needs it."""
        return warming(order, [self._oracle.describe(key)["arguments"] for key in keys], self._spec.lanes)

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        self._take(source)
        with self._checking(report):
            self._begin_ahead(source)
            found = self._verifier.verify(source, kernels, report, compile_s=self._slow_s(source))
        if found.verdict != "correct":
            self._matches.drop()
        return found

    def _begin_ahead(self, source: str) -> None:
        """What times it starts while it is checked: a third of a second less for every candidate that is correct."""
        self._others = self._state().pids
        try:
            self._matches.begin(source)
        except ProcessGone:
            self._matches.drop()  # the check comes upon the same, and mends it

    # timing

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        self._take(source)
        self._matches.drop()
        salt = 1 + secrets.randbelow(1 << 30)
        with self._checking(report):
            hidden = self._verifier.hidden(kernels, salt)
        for one in (self._problem.kernel_source, source):
            if one:
                self._compilers.warm(self._warming(self._compile_order(one), hidden))
        with self._checking(report):
            return self._verifier.confirm(source, kernels, salt, report, compile_s=self._slow_s(source))

    def selftest(self, report: Report) -> SelfTest:
        with self._checking(report):
            return self._verifier.selftest(report)

    @contextlib.contextmanager
    def _checking(self, report: Report) -> Iterator[None]:
        """Keep out of the way of another run's measurement on this device. Once cancelled no job begins: no need to wait."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(TimingCancelled):
                waits = checking_lock(self._info.uuid, lambda text: report("waiting", text), self._cancelled.is_set)
                stack.enter_context(waits)
            yield

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        self._take(source)
        began = clock.monotonic()
        noise = baseline.noise if baseline is not None and baseline.noise is not None else 0.0
        with self._checking(report):
            match, plan = self.contest(source, baseline_source if baseline is not None else None, noise)
        try:
            with timing_lock(self._info.uuid, lambda text: report("waiting", text), self._cancelled.is_set):
                report("timing", "in turns with the baseline")
                alone, before = clock.monotonic(), self._state()
                if match.begun:
                    before = msgspec.structs.replace(before, pids=self._others)
                found = self._timed(match, plan, baseline, parent)
                found = msgspec.structs.replace(
                    found,
                    conditions=conditions(before, self._state(), self._own_pids()),
                    seconds=clock.monotonic() - alone,  # without the wait for others who measure on this device
                )
                report("profiling", "")
                signature = self._look(match, source, kernels, found, is_baseline=baseline is None)
        except TimingCancelled:
            match.abandon()
            return self._untimed("cancelled", began)
        except PlayerLost as lost:
            return self._lost(lost, match, began, is_baseline=baseline is None)
        except ProcessGone as gone:
            restart(self._jobs.zygote)
            return self._untimed(f"the process that forks died while it was timed ({gone})", began)
        return Evaluated(timing=found, signature=signature)

    def contest(self, source: str, baseline_source: str | None, noise: float) -> tuple[Match, PairPlan]:
        """The processes and the plan of a measurement of `source`, which compiled and was verified, against a baseline that was;
        None: against itself. `noise` is the noise floor as a log-ratio. Raises ProblemError where the baseline is not right."""
        plan = PairPlan(
            cases=self._cases,
            objective=self._spec.objective,
            noise=noise,
            memory_bytes=self._info.memory_bytes,
            skipped=self._verifier.untimeable(self._keys),
        )
        return self._matches.take(source, baseline_source), plan

    def _look(
        self, match: Match, source: str, kernels: tuple[KernelFacts, ...], found: Timing, *, is_baseline: bool
    ) -> Signature:
        """Why it is as fast as it is. ncu takes ten seconds: once a run, and where GPM leaves open why a gain is one. Of a loser
        nobody asks; the second that GPM takes is as long as its measurement."""
        if found.verdict == "slower":
            return unknown("slower: its counters were not looked at")
        look = self._profiler.profile if is_baseline else self._profiler.sample
        return look(self._info.uuid, match.alone, source, kernels, found)

    def _match(self, baseline_source: str, source: str) -> Match:
        deadline = PAIR_S + PAIR_CASE_S * len(self._keys)
        parameters = {"flush_bytes": max(2 * self._info.l2_bytes, 1 << 26)}
        return Match(
            zygote=self._jobs.zygote,
            oracle=self._oracle,
            recheck=lambda: self._verifier.recheck(self._keys),
            keys=self._keys,
            baseline=self._jobs.order("time", baseline_source, parameters, deadline),
            candidate=self._jobs.order("time", source, parameters, deadline),
        )

    def _timed(self, match: Match, plan: PairPlan, baseline: Timing | None, parent: Timing | None) -> Timing:
        def throttled() -> bool:
            return self._state().held_down

        if baseline is None:
            pairs = timing.measure_baseline(match.pair, plan, throttled)
            found = timing.baseline_timing(pairs, plan, self._info, self._physical)
            return timing.with_cold(found, self._cold(match, plan))
        pairs = timing.measure_candidate(match.pair, plan, throttled)
        return timing.candidate_timing(pairs, plan, self._info, self._physical, parent)

    def _cold(self, match: Match, plan: PairPlan) -> dict[int, float]:
        """Times out of a cold cache. Raises PlayerLost."""
        flush = max(timing.COLD_FLUSH_BYTES, 2 * self._info.l2_bytes)
        with match.alone(cold=True, flush_bytes=flush) as player:
            return timing.measure_cold(player, plan)

    def _state(self) -> State:
        assert self._gpu is not None
        return self._gpu.now()

    def _own_pids(self) -> frozenset[int]:
        """The oracle, and the processes of the pairs, which were alone on the device in their turns."""
        zygote = self._jobs.zygote
        return frozenset(pid for pid in (self._oracle.pid, zygote.pid, *zygote.forked) if pid is not None)

    def _lost(self, lost: PlayerLost, match: Match, began: float, *, is_baseline: bool) -> Evaluated:
        """A process did not survive its turns, or its outputs were wrong when they were looked at again."""
        if lost.outcome.kind in ("crash", "hang", "fault"):
            self._jobs.check()
        if lost.name == "baseline" and not is_baseline and lost.outcome.kind != "cancelled":
            raise EnvironmentFailure(f"the baseline's process ended while it was timed: {lost}")
        return self._untimed(match.wrong or str(lost), began)

    def _untimed(self, reason: str, began: float) -> Evaluated:
        cases = tuple(CaseTiming(case=case.name, failed=reason) for case in self._cases)
        found = Timing(kind="measured", verdict="unknown", cases=cases, seconds=clock.monotonic() - began)
        return Evaluated(timing=found, signature=unknown(reason))


def _open_gpu(uuid: str) -> Gpu:
    try:
        import pynvml
    except ImportError as error:
        raise EnvironmentFailure("nvidia-ml-py is not installed: pip install nvidia-ml-py") from error
    return Gpu(pynvml, uuid)
