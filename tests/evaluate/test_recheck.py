"""A lane that is new, after a crash or because another device verified, checks outputs after timing all the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[CpuLane]:
    """A lane that has judged nothing yet."""
    opened = open_lane(
        LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=tmp_path / "lane", deadline_s=600)
    )
    assert isinstance(opened, CpuLane)
    try:
        opened.start()
        yield opened
    finally:
        opened.close()


def quiet(stage: str, text: str) -> None:
    """Nobody watches."""


def test_a_lane_that_verified_nothing_yet_learns_the_contract(lane: CpuLane) -> None:
    verifier = lane._verifier
    keys = verifier.boundary(())[:2]
    assert keys
    assert not any(key in verifier._passed for key in keys)
    assert verifier.untimeable(keys) == {}
    assert all(verifier._passed[key].errors for key in keys)
    bad = wire.CaseKey(fields={**keys[0].fields, "dtype": "no such dtype"})
    with pytest.raises(ProblemError):
        verifier.untimeable((bad,))


def test_a_process_in_which_cuda_did_not_start_is_run_once_more_and_nobodys_fault(
    lane: CpuLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Error 304 while another process took all there was was a crash of the candidate."""
    run_job, failures = lane._verifier._run_job, [2]
    source = (PROBLEM / "kernel.py").read_text()
    fault = wire.Fault(outcome="unknown", stage=NO_DEVICE, reason="CUDA did not start: error 304", detail="")

    def failing(order, respond, report):
        if failures[0] and order.source == source + "\n":
            failures[0] -= 1
            return Outcome(kind="fault", stage=NO_DEVICE, reason=fault.reason, fault=fault)
        return run_job(order, respond, report)

    monkeypatch.setattr(lane._verifier, "_run_job", failing)
    assert lane.verify(source, (), quiet).verdict == "correct"
    found = lane.verify(source + "\n", (), quiet)
    assert (found.verdict, found.owner, found.worst_case) == ("unknown", "environment", "")
    assert found.reason == "CUDA did not start: error 304"
    failures[0] = 1
    assert lane.verify(source + "\n", (), quiet).verdict == "correct"
    assert failures == [0]


def test_a_candidate_that_compiled_slowly_is_given_more_time(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not compiled ahead compiles on the way: a kernel whose registers spill was called a hang."""
    verifier, deadlines = lane._verifier, []
    run_job, source = verifier._run_job, (PROBLEM / "kernel.py").read_text()

    def noting(order, respond, report):
        deadlines.append(order.deadline_s)
        return run_job(order, respond, report)

    monkeypatch.setattr(verifier, "_run_job", noting)
    for compile_s in (0.0, 4.0, 400.0):
        assert verifier.verify(source + "\n", (), quiet, compile_s=compile_s).verdict == "correct"
    plain, slow, most = deadlines[-3:]
    assert slow == pytest.approx(plain + 12.0)
    assert most == 600, "never more than the lane's own"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_device_that_is_not_there_is_nobodys_fault() -> None:
    from kbtui.evaluate.inlane import device
    from kbtui.evaluate.inlane.candidate import CandidateFault

    with pytest.raises(CandidateFault, match="CUDA did not start") as raised:
        device.begin("cuda:0")
    assert (raised.value.outcome, raised.value.stage) == ("unknown", NO_DEVICE)
