"""What is known of each compile target: one named card per architecture, with its data-sheet rates.

The `cpu` lane models candidates for one of these. Rates are dense (without structured sparsity), in bytes/s and
operations/s (a fused multiply-add is two). Sources: limits of a multiprocessor from the CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"; bandwidth and peaks from NVIDIA's data sheets (A100 80GB SXM, 2021;
A10, 2021; L40S, 2023; H200 SXM, 2024; HGX B200, 2025). Cache rates and latencies are no data-sheet values: they are
round figures for what published micro-benchmarks saw (Jia et al., arXiv 1804.06826, for the method; Luo et al., arXiv
2402.13499, for Ampere, Ada and Hopper), good to perhaps 20 %.
"""

from __future__ import annotations

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import DeviceInfo

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One card. `shared_block_bytes` is the most a block may opt in to, `shared_bytes` what a multiprocessor has.

    `clock_hz` is the boost clock behind the peaks. `memory_latency_s` is from a load to its data out of DRAM, unloaded.
    """

    target: str
    name: str
    multiprocessors: int
    shared_block_bytes: int
    shared_bytes: int
    registers: int
    threads: int
    blocks: int
    l2_bytes: int
    memory_bytes: int
    bytes_per_s: float
    l2_bytes_per_s: float
    memory_latency_s: float
    clock_hz: float
    ops_per_s: dict[str, float]

    @property
    def capability(self) -> tuple[int, int]:
        digits = self.target.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])


TARGETS: dict[str, Target] = {
    card.target: card
    for card in (
        Target(
            target="sm_80",
            name="A100 80GB SXM",
            multiprocessors=108,
            shared_block_bytes=163 * KIB,
            shared_bytes=164 * KIB,
            registers=65536,
            threads=2048,
            blocks=32,
            l2_bytes=40 * MIB,
            memory_bytes=80 * GIB,
            bytes_per_s=2.039e12,
            l2_bytes_per_s=4.5e12,
            memory_latency_s=570e-9,
            clock_hz=1.41e9,
            ops_per_s={
                "fp64": 9.7e12, "fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12, "int8": 624e12,
            },
        ),
        Target(
            target="sm_86",
            name="A10",
            multiprocessors=72,
            shared_block_bytes=99 * KIB,
            shared_bytes=100 * KIB,
            registers=65536,
            threads=1536,
            blocks=16,
            l2_bytes=6 * MIB,
            memory_bytes=24 * GIB,
            bytes_per_s=0.6e12,
            l2_bytes_per_s=2.0e12,
            memory_latency_s=500e-9,
            clock_hz=1.695e9,
            ops_per_s={
                "fp64": 0.49e12, "fp32": 31.2e12, "tf32": 62.5e12, "fp16": 125e12, "bf16": 125e12, "int8": 250e12,
            },
        ),
        Target(
            target="sm_89",
            name="L40S",
            multiprocessors=142,
            shared_block_bytes=99 * KIB,
            shared_bytes=100 * KIB,
            registers=65536,
            threads=1536,
            blocks=24,
            l2_bytes=96 * MIB,
            memory_bytes=48 * GIB,
            bytes_per_s=0.864e12,
            l2_bytes_per_s=4.5e12,
            memory_latency_s=560e-9,
            clock_hz=2.52e9,
            ops_per_s={
                "fp64": 1.43e12, "fp32": 91.6e12, "tf32": 183e12, "fp16": 362e12, "bf16": 362e12, "fp8": 733e12,
                "int8": 733e12,
            },
        ),
        Target(
            target="sm_90",
            name="H200 SXM",
            multiprocessors=132,
            shared_block_bytes=227 * KIB,
            shared_bytes=228 * KIB,
            registers=65536,
            threads=2048,
            blocks=32,
            l2_bytes=50 * MIB,
            memory_bytes=141 * 10**9,
            bytes_per_s=4.8e12,
            l2_bytes_per_s=7.0e12,
            memory_latency_s=650e-9,
            clock_hz=1.98e9,
            ops_per_s={
                "fp64": 34e12, "fp32": 67e12, "tf32": 494e12, "fp16": 989e12, "bf16": 989e12, "fp8": 1979e12,
                "int8": 1979e12,
            },
        ),
        Target(
            target="sm_100",
            name="B200",
            multiprocessors=148,
            shared_block_bytes=227 * KIB,
            shared_bytes=228 * KIB,
            registers=65536,
            threads=2048,
            blocks=32,
            l2_bytes=126 * MIB,
            memory_bytes=180 * 10**9,
            bytes_per_s=8.0e12,
            l2_bytes_per_s=12.0e12,
            memory_latency_s=750e-9,
            clock_hz=1.965e9,
            ops_per_s={
                "fp64": 37e12, "fp32": 75e12, "tf32": 1125e12, "fp16": 2250e12, "bf16": 2250e12, "fp8": 4500e12,
                "int8": 4500e12,
            },
        ),
    )
}  # fmt: skip
"""By target name."""

_BLOCKS = {"sm_75": 16, "sm_80": 32, "sm_86": 16, "sm_87": 16, "sm_89": 24, "sm_90": 32, "sm_100": 32, "sm_120": 24}
"""Most resident blocks of a multiprocessor, by compute capability (CUDA C++ Programming Guide)."""


def find_target(name: str) -> Target:
    """The card modelled for `name` such as "sm_90". Raises UsageError that names the known ones."""
    try:
        return TARGETS[name]
    except KeyError:
        known = ", ".join(f"{target} ({card.name})" for target, card in TARGETS.items())
        raise UsageError(f"nothing is known of target {name!r}: choose one of {known}") from None


def device_info(card: Target, lane: str = "cpu") -> DeviceInfo:
    """The device of a `cpu` lane that models `card`."""
    return DeviceInfo(
        lane=lane,
        kind="cpu",
        name=f"{card.name} (modelled)",
        target=card.target,
        multiprocessors=card.multiprocessors,
        shared_limit_bytes=card.shared_block_bytes,
        registers_per_multiprocessor=card.registers,
        threads_per_multiprocessor=card.threads,
        l2_bytes=card.l2_bytes,
        peak_bytes_per_s=card.bytes_per_s,
        peak_ops_per_s=dict(card.ops_per_s),
        nominal=True,
        memory_bytes=card.memory_bytes,
    )


def blocks_per_multiprocessor(target: str) -> int:
    """Most resident blocks; 32 for an architecture that is not in the table (true of every data-centre part so far)."""
    return _BLOCKS.get(target, 32)
