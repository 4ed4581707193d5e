"""Which lane serves which device."""

from __future__ import annotations

from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.cuda import CudaLane
from kbtui.evaluate.lane import Lane, LaneSpec


def open_lane(spec: LaneSpec) -> Lane:
    """The lane for `spec.device`, not yet started; with `spec.cluster` one in that Ray cluster."""
    if spec.cluster:
        from kbtui.evaluate.ray_lane import RayLane  # ray takes seconds, and is an extra

        return RayLane(spec)
    return CpuLane(spec) if spec.device == "cpu" else CudaLane(spec)
