"""The method `torch-compile`: no run, but the problem's reference under `torch.compile`, timed beside the kernel by the judge."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import msgspec

from kbtui import clock, syntax
from kbtui.bench.limits import Limit
from kbtui.bench.rows import Row, sum_over_sum
from kbtui.engine.best import mean_ms
from kbtui.engine.scratch import scratch, sweep
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.evaluate import isolation
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.reference import ReferenceLane
from kbtui.problems.folder import ProblemFolder, find_problem
from kbtui.state.records import Timing, Verification

NO_REFERENCE = "no PyTorch reference: the gold kernel is the oracle"


def time_reference(spec: RunSpec, row: Row, limit: Limit) -> Row:
    """The row of a kernel. Raises ProblemError, also where what it is compared with is not right, and EnvironmentFailure."""
    problem = find_problem(spec.problem)
    if is_kernel(problem):
        return _not_applicable(row)
    sweep()
    with scratch(f"bench-{os.getpid()}") as place:
        lane = ReferenceLane(_lane_spec(spec, problem.path, place))
        isolation.harden_run_process()
        try:
            with limit.watching(lane.cancel):
                lane.start()
                found = _timed(lane, row)
        except KbtuiError:
            if not limit.over:
                raise
            found = row
        finally:
            lane.close()
    if limit.over and found.status != "not applicable":
        # what was cancelled has the looks of a failure
        return msgspec.structs.replace(row, status="stopped", reason=f"{limit.over} before it was timed")
    return found


def is_kernel(problem: ProblemFolder) -> bool:
    """Whether problem.py says, by `own_precision = True`, that its reference is a kernel itself."""
    for statement in syntax.parse(problem.problem_file.read_text("utf-8-sig")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            named = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if "own_precision" in named:
                return bool(statement.value.value)
    return False


def _lane_spec(spec: RunSpec, problem: Path, place: Path) -> LaneSpec:
    return LaneSpec(
        problem=problem,
        device=spec.device,
        target=spec.target,
        python=spec.python,
        scratch=place,
        seed=spec.seed,
        objective=spec.objective,
    )


def _timed(lane: ReferenceLane, row: Row) -> Row:
    row = msgspec.structs.replace(row, device=lane.facts.device.name, timing=lane.facts.timing)
    if lane.own_precision:
        return _not_applicable(row)
    baseline = lane.baseline(_unheard)
    found = lane.time_reference(baseline, _unheard)
    if found.verification.owner == "environment":
        raise EnvironmentFailure(f"torch.compile could not be judged: {found.verification.reason}")
    done = msgspec.structs.replace(
        row, status="done", baseline_ms=mean_ms(baseline), candidates=2, finished_at=clock.wall()
    )
    if found.timing is None:
        return _wrong(done, found.verification)
    return _compared(done, found.timing, lane.beside)


def _compared(row: Row, timing: Timing, beside: str) -> Row:
    failed = next((case.failed for case in timing.cases if case.failed), "")
    if timing.ratio is None:
        return msgspec.structs.replace(row, verdict=timing.verdict, reason=f"torch.compile has no time: {failed}")
    return msgspec.structs.replace(
        row,
        verdict=timing.verdict,
        ratio=timing.ratio,
        low=timing.low,
        high=timing.high,
        sum_ratio=sum_over_sum(timing),
        correct=1,
        reason=f"beside {beside}",
    )


def _wrong(row: Row, verification: Verification) -> Row:
    case = verification.worst_case
    where = f" on {case}" if case and not verification.reason.endswith(f" on {case}") else ""
    reason = f"torch.compile of the reference: {verification.reason}{where}"
    return msgspec.structs.replace(row, verdict=verification.verdict, reason=reason)


def _not_applicable(row: Row) -> Row:
    return msgspec.structs.replace(row, status="not applicable", reason=NO_REFERENCE, finished_at=clock.wall())


def _unheard(stage: str, text: str) -> None:
    """Progress that nobody watches."""
    del stage, text
