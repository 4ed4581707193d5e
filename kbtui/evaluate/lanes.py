"""Which lane serves which device."""

from __future__ import annotations

from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.cuda import CudaLane
from kbtui.evaluate.lane import Lane, LaneSpec


def open_lane(spec: LaneSpec) -> Lane:
    """The lane for `spec.device`, not yet started."""
    return CpuLane(spec) if spec.device == "cpu" else CudaLane(spec)
