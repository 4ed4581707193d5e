"""A lane that is new, after a crash or because another device verified, checks outputs after timing all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbtui.errors import ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane

pytest.importorskip("triton", reason="needs triton")
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
