"""From the reply of the job "compile" to facts about kernels: strict schema, occupancy, one record per kernel and grid.

What comes from a candidate process is believed only as far as the schema goes; numbers outside what the hardware can
have are refused.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec

from kbtui.evaluate.targets import blocks_per_multiprocessor
from kbtui.state.records import CaseInfo, Compilation, Correctness, DeviceInfo, KernelFacts, Scalar

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Text = Annotated[str, msgspec.Meta(max_length=512)]

_WARP = 32
_REGISTER_UNIT = 256
"""Registers are given to a warp in units of so many (CUDA Occupancy Calculator, compute capability 7.0 and later)."""
_WARP_UNIT = 4
"""Warps are counted against the register file in groups of so many, one per scheduler (same source)."""
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024
"""Shared memory of a block is rounded to 128 bytes, and 1 KiB of it is the system's (compute capability 8.0 and later)."""


class _Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    registers: Annotated[int, msgspec.Meta(ge=0, le=256)]
    spill_bytes: Count
    shared_bytes: Count
    num_warps: Annotated[int, msgspec.Meta(ge=1, le=64)]
    num_stages: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    num_ctas: Annotated[int, msgspec.Meta(ge=1, le=64)]
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    source: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    constants: dict[Text, int | float | bool | Text]
    access_bytes: Annotated[float, msgspec.Meta(ge=0, le=64)]
    autotuned: bool


class _Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: Count
    grid: tuple[Count, Count, Count]


class _Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernels: Annotated[list[_Kernel], msgspec.Meta(max_length=4096)]
    cases: Annotated[list[list[list[_Choice]]], msgspec.Meta(max_length=4096)]


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """Resident blocks and warps of a multiprocessor, in percent of the warps it can hold, and what limits them.

    `limiter` is one of "threads", "blocks", "registers", "shared memory"; `blocks` 0 means that the kernel cannot run.
    """

    blocks: int
    warps: int
    percent: float
    limiter: str


def occupancy(registers: int, shared_bytes: int, threads: int, device: DeviceInfo) -> Occupancy:
    """Theoretical occupancy of one kernel by the rules of the CUDA Occupancy Calculator.

    `registers` per thread, `shared_bytes` and `threads` per block. A multiprocessor's shared memory is what a block may
    have plus the 1 KiB that the system reserves for it, on every architecture since 8.0.
    """
    warps = -(-threads // _WARP)
    most_warps = device.threads_per_multiprocessor // _WARP
    limits = {
        "threads": most_warps // warps,
        "blocks": blocks_per_multiprocessor(device.target),
        "registers": _by_registers(registers, warps, device.registers_per_multiprocessor),
        "shared memory": _by_shared(shared_bytes, device.shared_limit_bytes),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    percent = 100.0 * blocks * warps / most_warps if most_warps else 0.0
    return Occupancy(blocks=blocks, warps=blocks * warps, percent=percent, limiter=limiter)


def _by_registers(registers: int, warps: int, available: int) -> int:
    if registers == 0:
        return available
    per_warp = _round_up(registers * _WARP, _REGISTER_UNIT)
    resident = available // per_warp // _WARP_UNIT * _WARP_UNIT
    return resident // _round_up(warps, _WARP_UNIT) if warps >= _WARP_UNIT else resident // warps


def _by_shared(shared_bytes: int, limit: int) -> int:
    return (limit + _SHARED_RESERVED) // _round_up(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def target_properties(device: DeviceInfo) -> dict[str, Any]:
    """What a wrapper may ask of the device while it is compiled or counted for it; also Triton's names for some."""
    return {
        "name": device.name,
        "multiprocessor_count": device.multiprocessors,
        "max_shared_mem": device.shared_limit_bytes,
        "max_num_regs": device.registers_per_multiprocessor,
        "warpSize": _WARP,
        "memory_bytes": device.memory_bytes,
        "shared_per_multiprocessor": device.shared_limit_bytes + _SHARED_RESERVED,
        "threads_per_multiprocessor": device.threads_per_multiprocessor,
        "l2_bytes": device.l2_bytes,
    }


def compile_parameters(device: DeviceInfo, cases: int) -> dict[str, Any]:
    """The parameters of the jobs "compile" and "count" for `cases` timed cases."""
    digits = device.target.removeprefix("sm_").rstrip("af")
    return {
        "capability": [int(digits[:-1]), int(digits[-1])],
        "properties": target_properties(device),
        "cases": cases,
    }


def read_compilation(
    reply: dict[str, Any], device: DeviceInfo, cases: tuple[CaseInfo, ...], seconds: float
) -> Compilation:
    """The compilation that a successful job "compile" reports.

    A reply outside the schema is the candidate's doing (it shares a process with the code that made the reply) and
    comes back as "cheat"; a kernel that needs more than the device has comes back as "invalid".
    """
    try:
        parsed = msgspec.convert(reply, _Reply)
        kernels = _kernels(parsed, device, cases)
    except (msgspec.ValidationError, IndexError) as error:
        return _refused("cheat", "the candidate's process sent a malformed reply", str(error), seconds)
    for kernel in kernels:
        if kernel.shared_bytes > device.shared_limit_bytes and not kernel.autotuned:
            reason = f"needs {kernel.shared_bytes:,} B of shared memory, the target has {device.shared_limit_bytes:,} B"
            return _refused("invalid", reason, kernel.name, seconds)
    return Compilation(ok=True, kernels=kernels, seconds=seconds, outcome="unknown")


def _refused(outcome: Correctness, reason: str, detail: str, seconds: float) -> Compilation:
    return Compilation(ok=False, outcome=outcome, reason=reason, detail=detail, seconds=seconds)


def _kernels(reply: _Reply, device: DeviceInfo, cases: tuple[CaseInfo, ...]) -> tuple[KernelFacts, ...]:
    """One record per (kernel, grid), in order of first launch, with the cases that launch it so."""
    seen: dict[tuple[int, tuple[int, int, int]], dict[str, int]] = {}
    for case, launches in zip(cases, reply.cases, strict=True) if len(cases) == len(reply.cases) else ():
        for choice in (choice for choices in launches for choice in choices):
            if choice.kernel >= len(reply.kernels):
                raise IndexError(f"launch of kernel {choice.kernel} of {len(reply.kernels)}")
            by_case = seen.setdefault((choice.kernel, choice.grid), {})
            by_case[case.name] = by_case.get(case.name, 0) + 1
    if not seen:
        raise IndexError(f"launches of {len(reply.cases)} cases where {len(cases)} were asked for")
    return tuple(_facts(reply.kernels[index], grid, by_case, device) for (index, grid), by_case in seen.items())


def _facts(kernel: _Kernel, grid: tuple[int, int, int], by_case: dict[str, int], device: DeviceInfo) -> KernelFacts:
    threads = kernel.num_warps * _WARP
    constants: dict[str, Scalar] = dict(kernel.constants)
    launch = f"{kernel.digest} {threads} {kernel.shared_bytes} {kernel.num_ctas} {grid}"
    return KernelFacts(
        name=kernel.name,
        target=device.target,
        registers=kernel.registers,
        spill_bytes=kernel.spill_bytes,
        shared_bytes=kernel.shared_bytes,
        num_warps=kernel.num_warps,
        num_stages=kernel.num_stages,
        threads=threads,
        occupancy_percent=occupancy(kernel.registers, kernel.shared_bytes, threads, device).percent,
        code_digest=hashlib.sha256(launch.encode()).hexdigest(),
        constants=constants,
        grid=grid,
        launches=max(by_case.values()),
        cases=tuple(by_case),
        autotuned=kernel.autotuned,
        access_bytes=kernel.access_bytes,
        source_digest=kernel.source,
    )
