"""The `cuda` lane: one GPU that verifies and measures candidates; compiling needs no device and happens beside it.

Two zygotes (one compiles, one forks the processes that use the GPU) and the oracle. A candidate initialises CUDA after
the fork, so an illegal address ends with its process; whether the device survived is asked before the next job.
"""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import facts, isolation, timing, wire
from kbtui.evaluate.caches import Caches
from kbtui.evaluate.checks import Supplier
from kbtui.evaluate.compilers import Compilers
from kbtui.evaluate.cpu import failed_compilation, restart
from kbtui.evaluate.devices import keep_peaks, kept_peaks
from kbtui.evaluate.gpu import Card, Gpu, State, TimingCancelled, conditions, measured, nominal, timing_lock
from kbtui.evaluate.job import Answer, JobOrder, Outcome, Responder
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.match import Match
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.pairs import PairPlan
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.profile import unknown
from kbtui.evaluate.profiler import Profiler
from kbtui.evaluate.turns import PlayerLost
from kbtui.evaluate.verify import Surroundings, Verifier
from kbtui.evaluate.zygotes import Zygote
from kbtui.problems.folder import read_folder
from kbtui.state.records import CaseTiming, Compilation, KernelFacts, ProblemInfo, Timing, Verification
from kbtui.text import is_secret_name

NOT_CHECKED = ("races: not checked (no race detector runs)",)
RUN_NO_CANDIDATE = ("device", "probe", "rehearse")
PROBE_S = 60.0
PAIR_S, PAIR_CASE_S = 60.0, 30.0
"""Deadline of a process of a pair: this, and this for each case (inputs, compile, tuning and its share of turns)."""


class CudaLane(Lane):
    """See `Lane`. `spec.device` is "cuda:N"."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._problem = read_folder(spec.problem)
        self._compilers = Compilers(spec.compilers, spec.python, spec.scratch)
        self._device = Zygote("device", spec.python, spec.scratch / "device")
        self._oracle = Oracle(spec.python, spec.scratch / "oracle", self._problem.path, spec.device, spec.seed)
        self._caches = Caches(spec.scratch / "triton", self._problem.kernel_source)
        self._readable = tuple(isolation.readable_around(self._problem.path))
        self._memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        self._cancelled = threading.Event()
        self._source = ""
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
        for process in (self._oracle, self._device, self._compilers):
            process.launch()
        ready = self._device.await_ready()
        self._compilers.await_ready()
        # First of all: where the device cannot be used, that is the sentence to hear, and not the oracle's trouble with it.
        card = self._look_at_device(measure=False)
        described = self._oracle.open()
        gpu = self._gpu = _open_gpu(card.uuid)
        gpu.refuse_exclusive()
        self._physical = nominal(card, gpu, self._spec.device)
        self._info = measured(self._physical, self._peaks(card, ready.versions))
        self._cases = described.cases
        self._keys = tuple(wire.CaseKey(fields=case.fields) for case in described.cases)
        self._verifier = Verifier(self._oracle, self._run_on_device, self._surroundings())
        self._profiler = Profiler(
            self._spec.python,
            self._spec.scratch / "profile",
            self._problem,
            self._spec.device,
            self._oracle,
            self._keys,
        )
        self.facts = LaneFacts(
            device=self._info,
            timing="measured",
            versions=ready.versions,
            isolation={**ready.isolation, **self._look_around(), "device to device": self._rehearse()},
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
            readable=self._readable,
            timed=self._keys,
            unchecked=NOT_CHECKED,
            deadline_s=self._spec.deadline_s,
            memory_bytes=self._memory,
        )

    def _peaks(self, card: Card, versions: dict[str, str]) -> dict[str, float]:
        """Peaks measured on this device, now or in an earlier run with the same torch."""
        kept = kept_peaks(card.uuid, versions)
        if kept is None:
            with timing_lock(card.uuid, lambda _: None, lambda: False):
                kept = self._look_at_device(measure=True).peaks
            keep_peaks(card.uuid, versions, kept)
        return kept

    def _look_at_device(self, *, measure: bool) -> Card:
        """What the device is; raises EnvironmentFailure when it cannot be used."""
        outcome = self._run_on_device(self._order("device", "", {"measure": measure}, PROBE_S), _refuse, None)
        if outcome.kind != "done":
            raise EnvironmentFailure(f"{self._spec.device} cannot be used: {outcome.reason}")
        return msgspec.convert(outcome.value, Card)

    def _look_around(self) -> dict[str, str]:
        """The isolation that holds in a candidate process, found by trying in one."""
        outcome = self._run_on_device(self._order("probe", "", {"run_pid": os.getpid()}, PROBE_S), _refuse, None)
        if outcome.kind != "done":
            raise EnvironmentFailure(f"a process of the lane cannot do anything here: {outcome.reason}")
        leaked = [name for name in outcome.value["environment"] if is_secret_name(name)]
        found: dict[str, str] = dict(outcome.value["isolation"])
        return {**found, "environment": f"off: {', '.join(leaked)} got through" if leaked else "on"}

    def _rehearse(self) -> str:
        """Try to hand a tensor over by device memory; "on", or why everything goes through the host on this machine."""
        refused = ""

        def lend(*_: object) -> Answer | None:
            nonlocal refused
            answer, descriptors = self._oracle.rehearse()
            refused = str(answer.get("refused", ""))
            return None if refused else (answer, descriptors)

        outcome = self._run_on_device(self._order("rehearse", "", {}, PROBE_S), lend, None)
        self._oracle.by_device = outcome.kind == "done" and outcome.value == {"right": True}
        if self._oracle.by_device:
            return "on"
        return f"off: {refused or outcome.reason or 'other values arrived than were sent'}"

    def _take(self, source: str) -> None:
        """Begin with a source; a cancel that came for the one before is void."""
        self._source = source
        self._cancelled.clear()

    def cancel(self, source: str | None = None) -> None:
        self._compilers.cancel(source)
        if source in (None, self._source):
            self._cancelled.set()
            self._device.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._oracle.close()
        self._compilers.release()
        self._device.release()
        if self._gpu is not None:
            self._gpu.close()
        shutil.rmtree(self._spec.scratch, ignore_errors=True)

    # jobs

    def _order(self, kind: str, source: str, parameters: dict[str, Any], deadline_s: float) -> JobOrder:
        return JobOrder(
            kind=kind,
            source=source,
            entry=self._problem.entry,
            problem_folder=self._problem.path,
            parameters=parameters,
            device="cpu" if kind == "compile" else self._spec.device,
            deadline_s=deadline_s,
            memory_bytes=self._memory,
            readable=self._readable,
        )

    def _with_cache(self, order: JobOrder) -> JobOrder:
        """The order with the cache of its source; jobs without one run no candidate."""
        cache = self._caches.of(order.source) if order.source else self._caches.own()
        return msgspec.structs.replace(order, cache=cache)

    def _run_on_device(self, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        outcome = self._run(self._device, self._with_cache(order), respond, report)
        crashed = outcome.fault is not None and outcome.fault.outcome == "crash"
        if (crashed or outcome.kind in ("crash", "hang")) and order.kind not in RUN_NO_CANDIDATE:
            self._look_at_device(measure=False)
        return outcome

    def _run(self, zygote: Zygote, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        if self._cancelled.is_set():
            return Outcome(kind="cancelled", reason="cancelled")
        try:
            return zygote.run(order, respond, report)
        except ProcessGone as gone:
            restart(zygote)
            return Outcome(kind="crash", stage=order.kind, reason=f"the process that forks died while it ran ({gone})")

    def compile(self, source: str, report: Report) -> Compilation:
        parameters = facts.compile_parameters(self._info, len(self._keys))
        order = self._order("compile", source, parameters, self._spec.deadline_s)
        probe = self._order("probe", "", {"run_pid": os.getpid()}, PROBE_S)
        outcome = self._compilers.run(order, probe, Supplier(self._oracle, self._keys).respond, report)
        if outcome.kind == "done":
            return facts.read_compilation(outcome.value, self._info, self._cases, outcome.seconds)
        return failed_compilation(outcome)

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        self._take(source)
        return self._verifier.verify(source, kernels, report)

    # timing

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
        plan = PairPlan(
            cases=self._cases, objective=self._spec.objective, noise=noise, memory_bytes=self._info.memory_bytes
        )
        match = self._match(baseline_source if baseline is not None else source, source)
        try:
            with timing_lock(self._info.uuid, lambda text: report("waiting", text), self._cancelled.is_set):
                report("timing", "in turns with the baseline")
                before = self._state()
                found = self._timed(match, plan, baseline, parent)
                found = msgspec.structs.replace(
                    found,
                    conditions=conditions(before, self._state(), self._own_pids()),
                    seconds=clock.monotonic() - began,
                )
                report("profiling", "")
                signature = self._profiler.profile(self._info.uuid, match.alone, source, kernels, found)
        except TimingCancelled:
            return self._untimed("cancelled", began)
        except PlayerLost as lost:
            return self._lost(lost, match, began, is_baseline=baseline is None)
        except ProcessGone as gone:
            restart(self._device)
            return self._untimed(f"the process that forks died while it was timed ({gone})", began)
        return Evaluated(timing=found, signature=signature)

    def _match(self, baseline_source: str, source: str) -> Match:
        deadline = PAIR_S + PAIR_CASE_S * len(self._keys)
        parameters = {"flush_bytes": max(2 * self._info.l2_bytes, 1 << 26)}
        return Match(
            zygote=self._device,
            oracle=self._oracle,
            recheck=lambda: self._verifier.recheck(self._keys),
            keys=self._keys,
            baseline=self._with_cache(self._order("time", baseline_source, parameters, deadline)),
            candidate=self._with_cache(self._order("time", source, parameters, deadline)),
        )

    def _timed(self, match: Match, plan: PairPlan, baseline: Timing | None, parent: Timing | None) -> Timing:
        def throttled() -> bool:
            return bool(self._state().throttled)

        if baseline is None:
            pairs = timing.measure_baseline(match.pair, plan, throttled)
            return timing.baseline_timing(pairs, plan, self._info, self._physical)
        pairs = timing.measure_candidate(match.pair, plan, throttled)
        return timing.candidate_timing(pairs, plan, self._info, self._physical, parent)

    def _state(self) -> State:
        assert self._gpu is not None
        return self._gpu.now()

    def _own_pids(self) -> frozenset[int]:
        """The oracle; processes of the pair are gone when this is asked, and were alone on the device in their turns."""
        return frozenset(pid for pid in (self._oracle.pid, self._device.pid) if pid is not None)

    def _lost(self, lost: PlayerLost, match: Match, began: float, *, is_baseline: bool) -> Evaluated:
        """A process did not survive its turns, or its outputs were wrong when they were looked at again."""
        if lost.outcome.kind in ("crash", "hang", "fault"):
            self._look_at_device(measure=False)
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


def _refuse(job: object, message: object, descriptors: object) -> None:
    """The responder of jobs that ask nothing: whoever does is ended."""
    del job, message, descriptors
