"""The `cpu` lane: values from Triton's interpreter, facts from a real compile for a target, times modelled.

Two zygotes, since interpreter mode is bound when triton is imported, and the oracle.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import facts, isolation, wire
from kbtui.evaluate.checks import Supplier
from kbtui.evaluate.compilers import Compilers, warming
from kbtui.evaluate.estimate import model_candidate
from kbtui.evaluate.inlane.calls import AUDITED_IDLE, TWICE
from kbtui.evaluate.inlane.faults import CALL
from kbtui.evaluate.job import JobOrder, Outcome, Responder
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.oracle import Described, Oracle
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.selftest import SelfTest
from kbtui.evaluate.targets import device_info, find_target
from kbtui.evaluate.verify import Surroundings, Verifier
from kbtui.evaluate.zygotes import Zygote
from kbtui.problems.folder import ProblemFolder, read_folder
from kbtui.state.records import (
    CaseTiming,
    Compilation,
    Correctness,
    KernelFacts,
    ProblemInfo,
    Reading,
    Signature,
    Timing,
    Verification,
)
from kbtui.text import is_secret_name

MEMORY_BYTES = 8 << 30
"""Resident memory of one candidate; half of what the machine has if that is less."""
CANDIDATE_ACCESSES, BASELINE_ACCESSES = 1000, 250
"""Loads, stores and atomics of a case under the interpreter, one to two milliseconds each with what is between them.
Counted instead of timed, so that every machine checks the same cases."""
OWN_FACTOR = 8
"""So many times as many where the problem's own inputs are all there is to check, and cannot be made smaller."""
NOT_CHECKED = (
    "races: not checked (the interpreter runs programs one after another)",
    "timed shapes: not checked (too large for the interpreter)",
)
UNCHECKED_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
"""The interpreter computes with the raw bits of these."""
COUNT_S = 120.0
PATIENCE_S = 90.0
"""These end only what hangs: work is bounded by counting it, and a machine twenty times as busy comes to the same verdict."""
PROBE_S = 30.0


class CpuLane(Lane):
    """See `Lane`. The lane's times are modelled for `spec.target`."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._card = find_target(spec.target)
        self._device = device_info(self._card)
        self._problem: ProblemFolder = read_folder(spec.problem)
        self._interpret = Zygote("interpret", spec.python, spec.scratch / "interpret")
        self._compilers = Compilers(spec.compilers, spec.python, spec.scratch)
        self._oracle = Oracle(
            spec.python, spec.scratch / "oracle", self._problem.path, "cpu", spec.seed, self._pretend()
        )
        self._memory = min(MEMORY_BYTES, _memory_bytes() // 2)
        self._readable = tuple(isolation.readable_around(self._problem.path))
        self._cancelled = threading.Event()
        self._source = ""
        self._closed = False

    def start(self) -> LaneFacts:
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> LaneFacts:
        for process in (self._oracle, self._interpret, self._compilers):
            process.launch()  # all at once: each takes seconds to import torch
        described = self._oracle.open()
        ready = self._interpret.await_ready()
        self._compilers.await_ready()
        self._try_interpreter(ready.versions)
        self._described = described
        self._keys = tuple(wire.CaseKey(fields=case.fields) for case in described.cases)
        self._verifier = Verifier(self._oracle, self._run_interpreted, self._surroundings())
        self.facts = LaneFacts(
            device=self._device,
            timing="modelled",
            versions=ready.versions,
            isolation={**ready.isolation, **self._look_around()},
            problem=self._problem_info(described),
        )
        return self.facts

    def _problem_info(self, described: Described) -> ProblemInfo:
        problem = self._problem
        return ProblemInfo(
            name=problem.name,
            path=str(problem.path),
            entry=problem.entry,
            digest=problem.digest,
            cases=described.cases,
            mutates=described.mutates,
            precision=described.precision,
            summary=problem.summary or described.summary,
        )

    def _pretend(self) -> dict[str, Any]:
        """What a wrapper is told of the GPU that it does not run on."""
        parameters = facts.compile_parameters(self._device, 0)
        return {key: parameters[key] for key in ("capability", "properties")}

    def _surroundings(self) -> Surroundings:
        pretend = self._pretend()
        factor = OWN_FACTOR if self._described.own_precision else 1
        return Surroundings(
            entry=self._problem.entry,
            folder=self._problem.path,
            baseline_source=self._problem.kernel_source,
            device="cpu",
            readable=self._readable,
            parameters={"pretend": pretend, "most_accesses": CANDIDATE_ACCESSES * factor},
            baseline_parameters={"pretend": pretend, "most_accesses": BASELINE_ACCESSES * factor},
            unchecked=NOT_CHECKED,
            unchecked_dtypes=UNCHECKED_DTYPES,
            audits=(AUDITED_IDLE, TWICE),
            deadline_s=self._spec.deadline_s,
            patience_s=PATIENCE_S,
            memory_bytes=self._memory,
        )

    def _try_interpreter(self, versions: dict[str, str]) -> None:
        """Run a known kernel, so that a broken interpreter is not blamed on every candidate. Raises EnvironmentFailure."""
        outcome = self._run_interpreted(self._order("selftest", "", {}, 30.0), _refuse, None)
        if outcome.kind != "done" or outcome.value != {"right": True}:
            raise EnvironmentFailure(
                f"Triton {versions['triton']}'s interpreter does not work with numpy {versions['numpy']} "
                f"({outcome.reason or 'a wrong sum'}): install numpy<2.4 or a newer triton for {self._spec.python}"
            )

    def _look_around(self) -> dict[str, str]:
        """The isolation that holds in a candidate process, found by trying in one."""
        outcome = self._run_interpreted(self._order("probe", "", {"run_pid": os.getpid()}, PROBE_S), _refuse, None)
        if outcome.kind != "done":
            raise EnvironmentFailure(
                f"a process of the lane cannot do anything here ({outcome.reason}): {outcome.output[-500:]}"
            )
        found = dict(outcome.value["isolation"])
        leaked = [name for name in outcome.value["environment"] if is_secret_name(name)]
        found["environment"] = f"off: {', '.join(leaked)} got through" if leaked else "on"
        return found

    # jobs

    def _order(self, kind: str, source: str, parameters: dict[str, Any], deadline_s: float) -> JobOrder:
        return JobOrder(
            kind=kind,
            source=source,
            entry=self._problem.entry,
            problem_folder=self._problem.path,
            parameters=parameters,
            deadline_s=deadline_s,
            memory_bytes=self._memory,
            readable=self._readable,
        )

    def _run_interpreted(self, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        return self._run(self._interpret, order, respond, report)

    def _run(self, zygote: Zygote, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        """Run a job; a zygote that died is started again, once. Raises EnvironmentFailure when that does not help."""
        if self._cancelled.is_set():
            return Outcome(kind="cancelled", reason="cancelled")
        try:
            return zygote.run(order, respond, report)
        except ProcessGone:
            restart(zygote)
        try:
            return zygote.run(order, respond, report)
        except ProcessGone as gone:
            restart(zygote)
            if order.kind == "probe":
                raise EnvironmentFailure(f"the {zygote.role} died three times: {gone}") from gone
            self._look_around()  # a zygote that runs other jobs was ended by this one
            return Outcome(kind="crash", stage=order.kind, reason="the process that forks died twice while it ran")

    def compile(self, source: str, report: Report) -> Compilation:
        parameters = facts.compile_parameters(self._device, len(self._keys))
        order = self._order("compile", source, parameters, self._spec.deadline_s)
        supplier = Supplier(self._oracle, self._keys)
        probe = self._order("probe", "", {"run_pid": os.getpid()}, PROBE_S)
        with tempfile.TemporaryDirectory(prefix="triton-", dir=self._spec.scratch, ignore_cleanup_errors=True) as cache:
            order = msgspec.structs.replace(order, cache=Path(cache))
            calls = [self._oracle.describe(key)["arguments"] for key in self._keys]
            ahead = warming(order, calls, self._spec.lanes)
            outcome = self._compilers.run(order, probe, supplier.respond, report, beside=ahead, wait=False)
        if outcome.kind == "done":
            return facts.read_compilation(outcome.value, self._device, self._described.cases, outcome.seconds)
        return failed_compilation(outcome)

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        self._take(source)
        return self._verifier.verify(source, kernels, report)

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        self._take(source)
        return self._verifier.confirm(source, kernels, 1 + secrets.randbelow(1 << 30), report)

    def selftest(self, report: Report) -> SelfTest:
        return self._verifier.selftest(report)

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        del baseline_source  # an estimate does not need to run the baseline beside the candidate
        self._take(source)
        began = clock.monotonic()
        parameters = facts.compile_parameters(self._device, len(self._keys))
        order = self._order("count", source, parameters, min(COUNT_S, self._spec.deadline_s))
        supplier = Supplier(self._oracle, self._keys)
        outcome = self._run(self._interpret, order, supplier.respond, report)
        if outcome.kind != "done":
            return self._not_modelled(outcome, clock.monotonic() - began)
        found = model_candidate(
            outcome.value, kernels, self._device, self.facts.problem, baseline, parent, self._spec.objective
        )
        return msgspec.structs.replace(
            found, timing=msgspec.structs.replace(found.timing, seconds=clock.monotonic() - began)
        )

    def _not_modelled(self, outcome: Outcome, seconds: float) -> Evaluated:
        reason = outcome.reason or outcome.kind
        cases = tuple(CaseTiming(case=case.name, failed=reason) for case in self._described.cases)
        unknown = Reading(reason=reason)
        return Evaluated(
            timing=Timing(kind="modelled", verdict="unknown", cases=cases, seconds=seconds),
            signature=Signature(sm=unknown, dram=unknown, l2=unknown),
        )

    def _take(self, source: str) -> None:
        """Begin with a source; a cancel that came for the one before is void."""
        self._source = source
        self._cancelled.clear()

    def cancel(self, source: str | None = None) -> None:
        self._compilers.cancel(source)
        if source in (None, self._source):
            self._cancelled.set()
            self._interpret.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._oracle.close()
        self._interpret.release()
        self._compilers.release()
        shutil.rmtree(self._spec.scratch, ignore_errors=True)


def restart(zygote: Zygote) -> None:
    """Start a zygote anew. Raises EnvironmentFailure."""
    zygote.launch()
    zygote.await_ready()


def failed_compilation(outcome: Outcome) -> Compilation:
    """What a compile job that returned nothing means for its candidate."""
    by_kind: dict[str, Correctness] = {"hang": "hang", "malformed": "cheat", "cancelled": "unknown"}
    verdict: Correctness = outcome.fault.outcome if outcome.fault is not None else by_kind.get(outcome.kind, "crash")
    reason = outcome.reason
    if outcome.kind == "crash" and outcome.stage == CALL and outcome.status is not None:
        # nothing of it is left that could name the line
        reason = f"a call of its entry ended the process with status {outcome.status}, as os._exit does"
    return Compilation(
        ok=False,
        outcome=verdict,
        owner="environment" if verdict == "unknown" else "candidate",
        stage=outcome.stage,
        reason=reason,
        detail=outcome.fault.detail if outcome.fault is not None else outcome.output[-4000:],
        seconds=outcome.seconds,
    )


def _refuse(job: object, message: object, descriptors: object) -> None:
    """The responder of jobs that ask nothing: whoever does is ended."""
    del job, message, descriptors


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
