"""Candidates of the judge's suites, read from the tables beside this file, and the judge itself: a real lane of one problem."""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.evaluate.policy import static_policy
from kbtui.evaluate.profile import unknown
from kbtui.problems.folder import ProblemFolder, find_problem
from kbtui.state.records import Compilation, Timing, Verification

HERE = Path(__file__).parent


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate: the kernel of a bundled problem with `edits`, and `before` in front of its first `@triton.jit`; or a
    whole `source`. What is expected of it is in the other fields."""

    name: str
    problem: str
    edits: tuple[tuple[str, str], ...] = ()
    before: str = ""
    source: str = ""
    verdicts: tuple[str, ...] = ("correct",)
    stage: str = ""
    says: str = ""
    why: str = ""
    deadline_s: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_only: bool = False
    unseen_on_gpu: str = ""
    """Why nothing on a device can see it; the interpreter does."""

    def text(self) -> str:
        source = self.source or located(self.problem).kernel_source
        for old, new in self.edits:
            assert old in source, f"{self.name}: the kernel of {self.problem} has no {old!r}"
            source = source.replace(old, new)
        return (
            source.replace("@triton.jit", f"{self.before.strip(chr(10))}\n\n\n@triton.jit", 1)
            if self.before
            else source
        )


def located(problem: str) -> ProblemFolder:
    """A bundled problem by name, or one of the suite's own, whose path begins with a point."""
    return find_problem(str(HERE / problem) if problem.startswith(".") else problem)


def read(folder: str) -> list[Candidate]:
    """Every candidate of the tables in a folder, by file and place."""
    found: list[Candidate] = []
    for file in sorted((HERE / folder).glob("*.toml")):
        table = tomllib.loads(file.read_text("utf-8"))
        found += msgspec.convert(table["candidate"], list[Candidate])
    return found


@dataclass
class Judgement:
    verdict: str
    owner: str
    stage: str
    reason: str
    verification: Verification | None = None
    timing: Timing | None = None


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


class Judge:
    """A started lane and the way of a candidate through it: source, compiler, oracle, clock."""

    def __init__(self, problem: str, device: str, scratch: Path, to_come: Sequence[Candidate] = ()) -> None:
        self.folder = located(problem)
        self._ahead = ThreadPoolExecutor(1, "compiling ahead")
        self._compiled: dict[str, Future[Compilation]] = {}
        spec = LaneSpec(
            problem=self.folder.path, device=device, python=sys.executable, scratch=scratch, deadline_s=60.0
        )
        self.lane = open_lane(spec)
        self.lane.start()
        if (profiler := getattr(self.lane, "_profiler", None)) is not None:
            # why something is fast is not asked here, and takes ten seconds
            profiler.profile = profiler.sample = lambda *_: unknown("not asked")
        baseline = self.lane.compile(self.folder.kernel_source, quiet)
        assert baseline.ok, baseline.detail
        self.baseline_verified = self.lane.verify(self.folder.kernel_source, baseline.kernels, quiet)
        assert self.baseline_verified.verdict == "correct", self.baseline_verified
        source = self.folder.kernel_source
        self._baseline_kernels = baseline.kernels
        for candidate in to_come:
            if not static_policy(candidate.text(), source, self.folder.entry):
                self._compile(candidate.text())

    @functools.cached_property
    def baseline(self) -> Timing:
        """Measured when first needed: most cheats never come to a clock."""
        source = self.folder.kernel_source
        return self.lane.time(source, self._baseline_kernels, None, source, None, quiet).timing

    def close(self) -> None:
        self._ahead.shutdown(cancel_futures=True)
        self.lane.close()

    def _compile(self, source: str) -> Future[Compilation]:
        """Compiling needs no device and goes on beside the rest, as in a run."""
        if source not in self._compiled:
            self._compiled[source] = self._ahead.submit(self.lane.compile, source, quiet)
        return self._compiled[source]

    def judge(self, candidate: Candidate) -> Judgement:
        verifier = self.lane._verifier  # type: ignore[attr-defined]  # limits are the lane's own
        given = verifier._given
        limits = {
            name: value for name in ("deadline_s", "memory_bytes", "disk_bytes") if (value := getattr(candidate, name))
        }
        verifier._given = msgspec.structs.replace(given, **limits)
        try:
            return self._judge(candidate.text())
        finally:
            verifier._given = given

    def _judge(self, source: str) -> Judgement:
        entry, baseline = self.folder.entry, self.folder.kernel_source
        for finding in static_policy(source, baseline, entry):
            return Judgement(finding.outcome, "candidate", "static", finding.reason)
        compiled = self._compile(source).result()
        if not compiled.ok:
            return Judgement(compiled.outcome, compiled.owner, compiled.stage, compiled.reason)
        found = self.lane.verify(source, compiled.kernels, quiet)
        if found.verdict != "correct":
            return Judgement(found.verdict, found.owner, found.stage, found.reason, found)
        timed = self.lane.time(source, compiled.kernels, self.baseline, baseline, None, quiet).timing
        failed = next((case.failed for case in timed.cases if case.failed), "")
        if failed:
            return Judgement("unknown", "environment", "time", failed, found, timed)
        return Judgement("correct", found.owner, found.stage, found.reason, found, timed)
