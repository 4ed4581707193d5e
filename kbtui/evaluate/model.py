"""How long one launch would take: a bottleneck model with latency, waves and overlap.

Four times are computed from counted work and compiled facts, then joined:

- DRAM and L2: sectors moved over the card's rates. Data that several programs read comes from DRAM once if it fits in
  half of the L2, else as often as a wave of programs does not share it.
- Multiprocessor: the busiest of its pipes (tensor cores, shared memory feeding them, fp32 lanes, special function
  units, instruction issue, L1). The busiest multiprocessor has ceil(programs / multiprocessors) programs to do.
- Latency: Little's law in its other form. A program waits for memory once per phase, several programs are resident,
  the grid needs ceil(programs / resident) rounds (Volkov, "Understanding Latency Hiding on GPUs", UC Berkeley 2016).
- Hong and Kim, "An analytical model for a GPU architecture", ISCA 2009, for taking memory and compute as parallel in
  proportion to resident warps.

It ranks candidates of one problem against each other; it does not predict a time to the percent. The constants below
are round figures from the sources named; none was fitted to a result.
"""

from __future__ import annotations

import math

import msgspec

from kbtui.evaluate.counts import CountedLaunch, TileWork
from kbtui.evaluate.facts import occupancy
from kbtui.evaluate.targets import Target, device_info
from kbtui.state.records import KernelFacts

DRAM_SUSTAINED = 0.92
"""Share of the data-sheet bandwidth that a plain copy reaches (refresh, turn-around of the bus)."""
TENSOR_SUSTAINED = 0.8
"""Share of the data-sheet peak that a large dense product reaches under the power limit."""
L2_USABLE = 0.5
"""Share of the L2 cache that holds data to be read again while other data streams through."""
L2_LATENCY_SHARE = 0.4
"""Latency of an L2 hit over that of a DRAM access."""
LANES_PER_CYCLE = 128
"""fp32 lanes of a multiprocessor; four schedulers issue one instruction of 32 lanes each per cycle."""
SPECIAL_PER_CYCLE = 16
"""Special function results per cycle and multiprocessor (CUDA C++ Programming Guide, throughput of instructions)."""
SPECIAL_EXTRA = 4
"""Ordinary instructions around one special function (range reduction, rounding, the Newton step of a division)."""
ACCESS_EXTRA = 5
"""Ordinary instructions around one access to global memory (address, predicate, conversion to the tile's layout)."""
CACHE_BYTES_PER_CYCLE = 128
"""L1 and shared memory, bytes per cycle and multiprocessor (NVIDIA tuning guides, Ampere and Hopper)."""
L1_BYTES = 256 * 1024
"""L1 and shared memory together, of an A100 or H100 multiprocessor; smaller ones have 128 KiB."""
SATURATING_WARPS = 10
"""Warps that keep four schedulers busy, at a dependent-issue latency of 5 cycles and two independent instructions."""
LAUNCH_S = 2.0e-6
"""From the end of one kernel to work in the next in a CUDA graph, and the drain at the end."""
BLOCK_START_CYCLES = 200
"""From a free slot to the first instruction of the next block."""
BARRIER_CYCLES = 60
"""A reduction across warps: shared memory out, barrier, shared memory in."""
SHARPNESS = 4.0
"""Exponent of the norm that joins times that overlap: near saturation both bounds are felt (queues), far from it one."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a whole launch."""

    dram: float
    l2: float
    l1: float


class LaunchTime(msgspec.Struct, frozen=True, kw_only=True):
    """Modelled seconds of one launch, and the shares of peak in 0..1 while it runs. `bound` is what limits it."""

    seconds: float
    bound: str
    dram_share: float
    l2_share: float
    sm_share: float


def launch_time(counted: CountedLaunch, kernel: KernelFacts, card: Target) -> LaunchTime | None:
    """The modelled time of one launch, or None when the kernel cannot run on the card (no block fits)."""
    fits = occupancy(kernel.registers, kernel.shared_bytes, kernel.threads, device_info(card))
    if fits.blocks == 0 or counted.programs == 0:
        return None
    share = -(-counted.programs // card.multiprocessors)
    resident = min(fits.blocks, share)
    depth = _pipeline_depth(counted, kernel)
    moved = traffic(counted, kernel, card, resident)
    busy = min(card.multiprocessors, counted.programs)
    # A multiprocessor's port to the rest of the chip is narrow: few programs cannot draw the full bandwidth.
    reach = min(1.0, busy * 64 * card.clock_hz / card.bytes_per_s)
    dram = moved.dram / (card.bytes_per_s * DRAM_SUSTAINED * reach)
    l2 = moved.l2 / min(card.l2_bytes_per_s, busy * 64 * card.clock_hz)
    pipes = multiprocessor_times(counted, kernel, card, moved, resident)
    pipe = max(pipes, key=lambda name: pipes[name])
    rounds = math.ceil(counted.programs / (card.multiprocessors * fits.blocks))
    latency = rounds * _program_latency(counted, card, moved, depth)
    memory = max(dram, l2)
    joined = _norm(memory, pipes[pipe], latency)
    running = joined + min(memory, pipes[pipe]) / (resident * depth)
    terms = {"DRAM": dram, "L2": l2, pipe: pipes[pipe], "latency": latency, "launch": LAUNCH_S}
    return LaunchTime(
        seconds=running + LAUNCH_S,
        bound=max(terms, key=lambda name: terms[name]),
        dram_share=min(1.0, moved.dram / card.bytes_per_s / running),
        l2_share=min(1.0, moved.l2 / card.l2_bytes_per_s / running),
        sm_share=min(1.0, pipes[pipe] / running),
    )


def _norm(*times: float) -> float:
    top = max(times)
    return top * sum((time / top) ** SHARPNESS for time in times) ** (1 / SHARPNESS) if top else 0.0


def traffic(counted: CountedLaunch, kernel: KernelFacts, card: Target, resident: int) -> Traffic:
    """What moves between the levels of memory over the whole launch, spilled registers included."""
    programs = counted.programs
    reused = sum(t.bytes for t in counted.tensors if t.bytes and t.loaded * programs > t.bytes)
    stays = reused <= L2_USABLE * card.l2_bytes
    dram = l2 = l1 = 0.0
    footprint = sum(t.loaded for t in counted.tensors)
    cached = footprint * resident <= max(0, L1_BYTES - kernel.shared_bytes * resident)
    wave_stays = footprint * resident * card.multiprocessors <= L2_USABLE * card.l2_bytes
    for tensor in counted.tensors:
        loads = tensor.loaded * programs
        again = tensor.loaded_again * programs
        stores = tensor.stored * programs
        least = min(loads, tensor.bytes) if tensor.bytes else loads
        dram += least if stays else min(loads, max(least, loads * tensor.distinct))
        dram += stores + (0.0 if cached or wave_stays else again)
        l2 += loads + stores + (0.0 if cached else again)
        l1 += loads + stores + again
    spilled = 2.0 * kernel.spill_bytes * kernel.threads * max(1.0, counted.phases) * programs
    held = kernel.spill_bytes * kernel.threads * resident <= max(0, L1_BYTES - kernel.shared_bytes * resident)
    return Traffic(dram=dram, l2=l2 + (0.0 if held else spilled), l1=l1 + spilled)


def multiprocessor_times(
    counted: CountedLaunch, kernel: KernelFacts, card: Target, moved: Traffic, resident: int
) -> dict[str, float]:
    """Seconds that the busiest multiprocessor's pipes need, by name."""
    programs = counted.programs
    share = -(-programs // card.multiprocessors)
    cycle = share / card.clock_hz
    warps = resident * kernel.num_warps
    busy = min(1.0, warps / SATURATING_WARPS)
    accesses = _access_instructions(counted, kernel)
    simple = counted.simple + 2 * counted.reduced + SPECIAL_EXTRA * counted.special
    lanes = simple + 32 * accesses * (1 + ACCESS_EXTRA)
    products = sum(_product_seconds(tile, card) for tile in counted.tiles)
    feeding = sum(_feeding_bytes(tile, kernel, card) * tile.times for tile in counted.tiles)
    return {
        "tensor cores": share * products,
        "shared memory": cycle * feeding / CACHE_BYTES_PER_CYCLE,
        "fp32": cycle * simple / LANES_PER_CYCLE / busy,
        "special functions": cycle * counted.special / SPECIAL_PER_CYCLE / busy,
        "issue": cycle * lanes / LANES_PER_CYCLE / busy,
        "L1": cycle * moved.l1 / programs / CACHE_BYTES_PER_CYCLE,
    }


def _access_instructions(counted: CountedLaunch, kernel: KernelFacts) -> float:
    """Load and store instructions of whole warps in one program; the compiler's access width decides, where known."""
    asked = sum(tensor.asked for tensor in counted.tensors)
    lanes = sum(tensor.lanes for tensor in counted.tensors)
    if kernel.access_bytes > 0:
        return asked / (kernel.access_bytes * 32)
    return lanes / 32


def _product_seconds(tile: TileWork, card: Target) -> float:
    """Tensor-core seconds of a tile on one multiprocessor; shapes below an instruction's are padded to it."""
    rate = card.ops_per_s.get(tile.dtype) or card.ops_per_s["fp32"]
    operations = 2.0 * max(tile.m, 16) * max(tile.n, 8) * max(tile.k, 16) * tile.times
    return operations * card.multiprocessors / (rate * TENSOR_SUSTAINED)


def _feeding_bytes(tile: TileWork, kernel: KernelFacts, card: Target) -> float:
    """Shared-memory bytes behind one product: written once, read as often as warps share the operands.

    Up to Ada each warp loads its operands (warps in a square: each row of warps reads B, each column A). From Hopper
    on, an instruction of 64 rows reads its operands from shared memory by itself.
    """
    left, right = tile.m * tile.k * tile.item_bytes, tile.k * tile.n * tile.item_bytes
    if card.capability >= (9, 0) and tile.m >= 64 and kernel.num_warps >= 4:
        return 2.0 * left + right * (1 + tile.m / 64)
    side = math.sqrt(kernel.num_warps)
    return left * (1 + side) + right * (1 + side)


def _pipeline_depth(counted: CountedLaunch, kernel: KernelFacts) -> float:
    """Phases whose loads are under way at once: more than one only where stages of them fit in the kernel's shared memory."""
    loaded = sum(tensor.loaded + tensor.loaded_again for tensor in counted.tensors)
    if not counted.tiles or counted.phases <= 1 or loaded == 0:
        return 1.0
    held = kernel.shared_bytes / (loaded / counted.phases)
    return max(1.0, min(kernel.num_stages - 1, held))


def _program_latency(counted: CountedLaunch, card: Target, moved: Traffic, depth: float) -> float:
    """Seconds one program spends waiting with nothing of its own to do, from its start to its end."""
    far = min(1.0, moved.dram / moved.l2) if moved.l2 else 1.0
    wait = card.memory_latency_s * (far + (1 - far) * L2_LATENCY_SHARE)
    cycles = BLOCK_START_CYCLES + counted.barriers * BARRIER_CYCLES
    return counted.phases / depth * wait + cycles / card.clock_hz
