"""A lane that is new, after a crash or because another device verified, checks outputs after timing all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbtui.errors import ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.inlane.faults import NO_DEVICE
from kbtui.evaluate.job import Outcome
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane

pytest.importorskip("triton", reason="needs triton")
torch = pytest.importorskip("torch", reason="needs torch")
PROBLEM = Path(__file__).with_name("data") / "scale"


def test_a_lane_that_verified_nothing_yet_learns_the_contract(tmp_path: Path) -> None:
    lane = open_lane(
        LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=tmp_path / "lane", deadline_s=30)
    )
    assert isinstance(lane, CpuLane)
    try:
        lane.start()
        verifier = lane._verifier
        keys = verifier.boundary(())[:2]
        assert keys
        assert not any(key in verifier._passed for key in keys)
        assert verifier.untimeable(keys) == {}
        assert all(verifier._passed[key].errors for key in keys)
        bad = wire.CaseKey(fields={**keys[0].fields, "dtype": "no such dtype"})
        with pytest.raises(ProblemError):
            verifier.untimeable((bad,))
    finally:
        lane.close()


def deadlines(lane: CpuLane, source: str, compile_s: float = 0.0) -> float:
    """What the check of a candidate is given, in seconds."""
    verifier, found = lane._verifier, []
    run_job = verifier._run_job

    def noting(order, respond, report):
        found.append(order.deadline_s)
        return run_job(order, respond, report)

    verifier._run_job = noting
    try:
        assert verifier.verify(source, (), lambda *_: None, compile_s=compile_s).verdict == "correct"
    finally:
        verifier._run_job = run_job
    return found[-1]


def test_a_process_in_which_cuda_did_not_start_is_run_once_more_and_nobodys_fault(tmp_path: Path) -> None:
    """Error 304 while another process took all there was was a crash of the candidate."""
    lane = open_lane(
        LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=tmp_path / "lane", deadline_s=600)
    )
    assert isinstance(lane, CpuLane)
    try:
        lane.start()
        verifier, source = lane._verifier, (PROBLEM / "kernel.py").read_text()
        run_job, failures = verifier._run_job, [2]
        fault = wire.Fault(outcome="unknown", stage=NO_DEVICE, reason="CUDA did not start: error 304", detail="")

        def failing(order, respond, report):
            if failures[0] and order.source == source + "\n":
                failures[0] -= 1
                return Outcome(kind="fault", stage=NO_DEVICE, reason=fault.reason, fault=fault)
            return run_job(order, respond, report)

        verifier._run_job = failing
        assert lane.verify(source, (), lambda *_: None).verdict == "correct"
        found = lane.verify(source + "\n", (), lambda *_: None)
        assert (found.verdict, found.owner, found.worst_case) == ("unknown", "environment", "")
        assert found.reason == "CUDA did not start: error 304"
        assert deadlines(lane, source + "\n") == pytest.approx(
            deadlines(lane, source + "\n\n", compile_s=4.0) - 12.0, abs=2
        )
        assert deadlines(lane, source + "\n", compile_s=400.0) == 600, "never more than the lane's own"
        failures[0] = 1
        assert lane.verify(source + "\n", (), lambda *_: None).verdict == "correct"
        assert failures == [0]
    finally:
        lane.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_device_that_is_not_there_is_nobodys_fault() -> None:
    from kbtui.evaluate.inlane import device
    from kbtui.evaluate.inlane.candidate import CandidateFault

    with pytest.raises(CandidateFault, match="CUDA did not start") as raised:
        device.begin("cuda:0")
    assert (raised.value.outcome, raised.value.stage) == ("unknown", NO_DEVICE)
