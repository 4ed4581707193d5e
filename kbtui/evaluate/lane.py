"""The interface of a lane: one device that evaluates candidates, one job at a time.

All methods block; the engine calls them in a thread of the lane's own. Other threads may call `cancel`, and `compile`,
`spec.compilers` of them at once: compiling needs no device and goes on beside the rest.
Failures of a candidate are results; failures of the machine raise EnvironmentFailure; a malformed problem raises
ProblemError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import msgspec

from kbtui.evaluate.selftest import SelfTest
from kbtui.state.records import (
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Signature,
    Timing,
    TimingKind,
    Verification,
)

HIDDEN = "hidden"
"""Stage of a verdict on cases that nothing has seen before."""
LOCAL_CLUSTER = "local"
"""As an address: a new cluster on this machine, for this process alone."""
Report = Callable[[str, str], None]
"""`report(stage, text)`: progress for whoever watches."""


class LaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane is made from.

    `device` is "cpu" or "cuda:N"; `target` such as "sm_90" is used on `cpu` only. `python` is the interpreter that
    has torch and triton.
    `scratch` is a folder on a local disk, the lane's own. `compilers` sources are compiled beside one another. `lanes` is how
    many lanes of the run share the machine's processors. `cluster` is the address of a Ray cluster, "" for this machine.
    """

    problem: Path
    device: str
    target: str = "sm_90"
    python: str
    scratch: Path
    seed: int = 0
    objective: str = "geomean"
    deadline_s: float = 120.0
    compilers: int = 1
    lanes: int = 1
    cluster: str = ""


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a started lane says of itself."""

    device: DeviceInfo
    timing: TimingKind
    versions: dict[str, str]
    isolation: dict[str, str]
    problem: ProblemInfo


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    timing: Timing
    signature: Signature


class Lane(ABC):
    facts: LaneFacts

    @abstractmethod
    def start(self) -> LaneFacts:
        """Start oracle and zygotes and describe the problem. Raises EnvironmentFailure or ProblemError."""

    @abstractmethod
    def compile(self, source: str, report: Report) -> Compilation:
        """Compile every kernel that the timed cases launch."""

    @abstractmethod
    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        """Run against the oracle: boundary cases relative to the candidate's blocks, and (cuda) the timed cases."""

    @abstractmethod
    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        """The last stage of what would become the best: a fresh process, fresh values and shapes that nothing has seen. Its
        `stage` is "hidden", and `detail` names the seed."""

    @abstractmethod
    def selftest(self, report: Report) -> SelfTest:
        """Whether the oracle rejects wrong outputs, on the cases that were verified so far: the baseline's at least."""

    @abstractmethod
    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        """Measure (cuda) or model (cpu) against the baseline; `baseline` None means that this candidate is the baseline."""

    @abstractmethod
    def cancel(self, source: str | None = None) -> None:
        """Kill the jobs that run for `source`, or all with None: their methods return a result with verdict "unknown" and
        reason "cancelled". Does nothing when none runs, a job that is only starting included."""

    @abstractmethod
    def close(self) -> None:
        """End all processes of the lane and remove its scratch folder. Never raises; may be called twice."""
