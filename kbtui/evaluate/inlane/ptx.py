"""Reads how wide a kernel's accesses to global memory are from its PTX.

How many bytes one thread moves with one instruction (4 to 16) is the layout that the compiler chose, after alignment
and mask analysis: no look at the source tells it.
"""

from __future__ import annotations

_BULK_BYTES = 16
"""A bulk (TMA) copy moves whole tiles; it costs a thread no instruction, so it counts as the widest access."""


def access_bytes(ptx: str) -> float:
    """Mean bytes that one thread moves per global load, store or asynchronous copy in `ptx` (static mean; 0.0 if none)."""
    widths = [width for line in ptx.splitlines() if (width := _width(line)) > 0]
    return sum(widths) / len(widths) if widths else 0.0


def _width(line: str) -> int:
    words = line.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    if not words:
        return 0
    parts = words[0].rstrip(";").split(".")
    if parts[:3] == ["cp", "async", "bulk"]:
        return _BULK_BYTES
    if parts[:2] == ["cp", "async"] and "shared" in parts:
        return _copy_bytes(line)
    if parts[0] in ("ld", "st") and "global" in parts:
        return _vector(parts) * _bits(parts[-1]) // 8
    return 0


def _copy_bytes(line: str) -> int:
    """The size operand of `cp.async.cg.shared.global [dst], [src], 16, ...`."""
    operands = [operand.strip(" ;") for operand in line.split("],")[-1].split(",")]
    try:
        return int(operands[0], 0)
    except ValueError:
        return 0


def _vector(parts: list[str]) -> int:
    return next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)


def _bits(kind: str) -> int:
    digits = kind[1:]
    return int(digits) if digits.isdigit() else 0
