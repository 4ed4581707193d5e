"""Jobs of a `cuda` lane that run on its device: each in a process of its own, with the cache of its source."""

from __future__ import annotations

import os
import threading
from typing import Any

import msgspec

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import isolation
from kbtui.evaluate.caches import Caches
from kbtui.evaluate.cpu import restart
from kbtui.evaluate.gpu import Card
from kbtui.evaluate.job import Answer, JobOrder, Outcome, Responder
from kbtui.evaluate.lane import LaneSpec, Report
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.zygotes import Zygote
from kbtui.problems.folder import ProblemFolder
from kbtui.text import is_secret_name

PROBE_S = 60.0


class DeviceJobs:
    """`zygote` forks the processes that use the device; `cancelled`, while set, keeps jobs from starting."""

    def __init__(self, spec: LaneSpec, problem: ProblemFolder, cancelled: threading.Event) -> None:
        self.zygote = Zygote("device", spec.python, spec.scratch / "device")
        self.caches = Caches(spec.scratch / "triton", problem.kernel_source)
        self.readable = tuple(isolation.readable_around(problem.path))
        self.memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        self._device = spec.device
        self._problem = problem
        self._cancelled = cancelled

    def order(
        self, kind: str, source: str = "", parameters: dict[str, Any] | None = None, deadline_s: float = PROBE_S
    ) -> JobOrder:
        """A job on the device; one without a source runs no candidate. Raises EnvironmentFailure when the disk is full."""
        return JobOrder(
            kind=kind,
            source=source,
            entry=self._problem.entry,
            problem_folder=self._problem.path,
            parameters=parameters or {},
            device=self._device,
            deadline_s=deadline_s,
            memory_bytes=self.memory_bytes,
            readable=self.readable,
            cache=self.caches.of(source) if source else self.caches.own(),
        )

    def run(self, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        """Run a candidate's job. Raises EnvironmentFailure when the device does not survive it."""
        given = order if order.cache is not None else msgspec.structs.replace(order, cache=self.caches.of(order.source))
        outcome = self._run(given, respond, report)
        crashed = outcome.fault is not None and outcome.fault.outcome == "crash"
        if crashed or outcome.kind in ("crash", "hang"):
            self.check()
        return outcome

    def _run(self, order: JobOrder, respond: Responder, report: Report | None) -> Outcome:
        if self._cancelled.is_set():
            return Outcome(kind="cancelled", reason="cancelled")
        try:
            return self.zygote.run(order, respond, report)
        except ProcessGone as gone:
            restart(self.zygote)
            return Outcome(kind="crash", stage=order.kind, reason=f"the process that forks died while it ran ({gone})")

    def check(self) -> None:
        """Raise EnvironmentFailure when the device no longer works; a cancelled look says nothing."""
        outcome = self._run(self.order("device", parameters={"measure": False}), _refuse, None)
        if outcome.kind not in ("done", "cancelled"):
            raise EnvironmentFailure(f"{self._device} no longer works: {outcome.reason}")

    def look(self, *, measure: bool) -> Card:
        """What the device is, and with `measure` its peaks. Raises EnvironmentFailure when it cannot be used."""
        outcome = self._run(self.order("device", parameters={"measure": measure}), _refuse, None)
        if outcome.kind != "done":
            raise EnvironmentFailure(f"{self._device} cannot be used: {outcome.reason.removeprefix('RuntimeError: ')}")
        return msgspec.convert(outcome.value, Card)

    def isolation(self) -> dict[str, str]:
        """The isolation that holds in a candidate process, found by trying in one. Raises EnvironmentFailure."""
        outcome = self._run(self.probe(), _refuse, None)
        if outcome.kind != "done":
            raise EnvironmentFailure(f"a process of the lane cannot do anything here: {outcome.reason}")
        leaked = [name for name in outcome.value["environment"] if is_secret_name(name)]
        found: dict[str, str] = dict(outcome.value["isolation"])
        return {**found, "environment": f"off: {', '.join(leaked)} got through" if leaked else "on"}

    def probe(self) -> JobOrder:
        """The job that looks around in its process."""
        return self.order("probe", parameters={"run_pid": os.getpid()})

    def rehearse(self, oracle: Oracle) -> str:
        """Try to hand a tensor over by device memory, and let the oracle do so if it works: "on", or why everything goes
        through the host on this machine."""
        refused = ""

        def lend(*_: object) -> Answer | None:
            nonlocal refused
            answer, descriptors = oracle.rehearse()
            refused = str(answer.get("refused", ""))
            return None if refused else (answer, descriptors)

        outcome = self._run(self.order("rehearse"), lend, None)
        oracle.by_device = outcome.kind == "done" and outcome.value == {"right": True}
        if oracle.by_device:
            return "on"
        return f"off: {refused or outcome.reason or 'other values arrived than were sent'}"


def _refuse(job: object, message: object, descriptors: object) -> None:
    """The responder of jobs that ask nothing: whoever does is ended."""
    del job, message, descriptors
