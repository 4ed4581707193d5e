"""The fastest rate that a device's data sheet, or a measurement of it, gives for a case. Pure."""

from __future__ import annotations

from kbtui.state.records import CaseInfo, DeviceInfo

_KEYS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"}


def peak_key(dtype: str) -> str:
    """The key of `peak_ops_per_s` for a torch dtype's name: "float16" -> "fp16"; "" when there is none."""
    return "fp8" if dtype.startswith("float8") else _KEYS.get(dtype, "")


def peak_of(case: CaseInfo, device: DeviceInfo) -> float:
    """Operations/s: the fastest rate for any of the inputs' dtypes; of all dtypes where those are unknown. 0.0: no rate is
    known.

    fp32 inputs may go through the tensor cores as TF32. The dtype that a case names is not asked: it may be the
    output's.
    """
    rates = device.peak_ops_per_s
    keys = {peak_key(dtype) for dtype in case.dtypes} - {""} or set(rates)
    if "fp32" in keys:
        keys.add("tf32")
    return max((rates.get(key, 0.0) for key in keys), default=0.0)
