"""The nouns of a run, as frozen records that events carry.

Units: times in milliseconds (`ms`), sizes in bytes, rates in bytes/s or operations/s, shares in percent where the
name says so.
A number that was modelled lives in a field whose name says `estimate`; it never shares a field with a measured one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Strategy = Literal["tiling", "vectorization", "fusion", "pipeline", "reordering", "access_layout"]
STRATEGIES: tuple[Strategy, ...] = ("tiling", "vectorization", "fusion", "pipeline", "reordering", "access_layout")

Owner = Literal["candidate", "environment", "provider"]
TimingKind = Literal["measured", "modelled"]
Correctness = Literal["correct", "wrong", "cheat", "crash", "hang", "invalid", "unknown"]
"""`invalid`: does not parse, compile or keep its contract. `unknown`: could not be checked here, nobody's fault."""
SpeedVerdict = Literal["faster", "slower", "same", "ambiguous", "not worse", "worse", "unknown"]
"""The first four are measured; `not worse` and `worse` are modelled; `unknown` is either."""
ReadingSource = Literal["ncu", "gpm", "model", "unknown"]
Scalar = int | float | str | bool
PRIOR_PULLS = 1.0
"""N of an arm that was never played, and so in the N of every arm."""
BASELINE_ID = 0
EMPTY_START = "empty"
"""The generator's name on candidate 0 of a run whose problem has no kernel."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records."""


class CaseInfo(Record, frozen=True, kw_only=True):
    """One timed input case of a problem.

    `fields` are the case's own parameters (rows, cols, dtype, ...). `bytes_moved` and `operations` are the least the
    case needs,
    0 where the problem gives no `traffic`. `dtypes` are those of its input tensors, by torch's names: what the hardware's
    rate depends on; `shapes` those of its inputs by position, None for what is no tensor.
    """

    name: str
    fields: dict[str, Scalar]
    weight: float = 1.0
    bytes_moved: int = 0
    operations: int = 0
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...] | None, ...] = ()


class ProblemInfo(Record, frozen=True, kw_only=True):
    """A problem as its oracle describes it. `digest` is over kernel.py and problem.py (sha256, hex)."""

    name: str
    path: str
    entry: str
    digest: str
    cases: tuple[CaseInfo, ...]
    mutates: tuple[str, ...] = ()
    precision: str = "ieee"
    summary: str = ""


class DeviceInfo(Record, frozen=True, kw_only=True):
    """What evaluates the candidates. `kind` "cpu" means interpreter and estimate for `target`.

    Peaks are bytes/s and operations/s, 0 where unknown (then there is no speed of light). `nominal` says that they come
    from the target's data sheet and not from a measurement on the device.
    """

    lane: str
    kind: Literal["cuda", "cpu"]
    name: str
    target: str
    uuid: str = ""
    multiprocessors: int = 0
    shared_limit_bytes: int = 0
    registers_per_multiprocessor: int = 0
    threads_per_multiprocessor: int = 0
    l2_bytes: int = 0
    peak_bytes_per_s: float = 0.0
    peak_ops_per_s: dict[str, float] = {}
    nominal: bool = True
    memory_bytes: int = 0


class KernelFacts(Record, frozen=True, kw_only=True):
    """One compiled kernel, read from the compiled object and never from the source text.

    `block` holds the constexpr integers of the launch; `code_digest` is over the machine code and constants, so that
    two candidates
    with the same machine code show it; `occupancy_percent` is theoretical: resident warps over the most the
    multiprocessor holds.
    """

    name: str
    target: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    threads: int
    occupancy_percent: float
    code_digest: str
    constants: dict[str, Scalar] = {}
    grid: tuple[int, int, int] = (1, 1, 1)
    launches: int = 1
    cases: tuple[str, ...] = ()
    """The timed cases that launch it on this grid, by name; `launches` is the most in one of them."""
    autotuned: bool = False
    """One of several configurations that an autotuner chooses from."""
    access_bytes: float = 0.0
    """Mean bytes that one thread moves per access to global memory, read from PTX; 0 when unknown."""
    source_digest: str = ""
    """Over the kernel's own function as Python compiles it; "" when unknown. It tells whether what was checked is what was
    compiled."""


class Compilation(Record, frozen=True, kw_only=True):
    """The compiled kernels of a candidate over the timed cases. `ok` False: `reason` is the compiler's last line,
    `detail` its message."""

    ok: bool
    kernels: tuple[KernelFacts, ...] = ()
    reason: str = ""
    detail: str = ""
    stage: str = "compile"
    outcome: Correctness = "invalid"
    owner: Owner = "candidate"
    seconds: float = 0.0


class Verification(Record, frozen=True, kw_only=True):
    """How a candidate fared against the oracle.

    `error` is the worst |y - ref| / (|ref| + RMS of the row) seen, `allowed` its limit at that place. `not_checked`
    lists what
    could not be checked on this lane and why ("races: not checked").
    """

    verdict: Correctness
    stage: str
    owner: Owner = "candidate"
    reason: str = ""
    detail: str = ""
    cases_checked: int = 0
    error: float | None = None
    allowed: float | None = None
    worst_case: str = ""
    first_wrong_index: tuple[int, ...] | None = None
    not_checked: tuple[str, ...] = ()
    seconds: float = 0.0


class CaseTiming(Record, frozen=True, kw_only=True):
    """One case's time. Exactly one of `ms` (measured, with its interval `low`..`high`) and `estimate_ms` (modelled)
    is set, or none
    where the case failed. `ratio` = baseline time / candidate time for measured, `estimate_ratio` the same for
    modelled.
    `called_ms` is the time of a plain call, the wrapper's CPU work included; `cold_ms` that of one on the device with the L2
    cache flushed before it, which only the baseline has.
    `floor_ms` is the speed of light, 0 when unknown."""

    case: str
    ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    ratio: float | None = None
    called_ms: float | None = None
    cold_ms: float | None = None
    estimate_ms: float | None = None
    estimate_ratio: float | None = None
    floor_ms: float = 0.0
    bound: str = ""
    failed: str = ""
    work_left_out: bool = False
    """What it moves cannot be the case's work: `failed` has both amounts, and the candidate is wrong."""

    @property
    def limit_ms(self) -> float:
        """The speed of light in ms, at most the measured time: a case that fits in the L2 cache can be faster than the memory
        allows; it counts as at its limit, and makes up for no other. 0.0 when either is unknown."""
        return min(self.floor_ms, self.ms or 0.0)


class Conditions(Record, frozen=True, kw_only=True):
    """The device's state around a measurement: (before, after) pairs; None where it could not be read."""

    sm_clock_mhz: tuple[int | None, int | None] = (None, None)
    memory_clock_mhz: tuple[int | None, int | None] = (None, None)
    temperature_c: tuple[int | None, int | None] = (None, None)
    reasons: tuple[str, ...] = ()
    other_processes: int = 0


class Timing(Record, frozen=True, kw_only=True):
    """Times of a candidate over the problem's cases, and the verdict against the baseline.

    Measured: `ratio` is the objective's speedup over the baseline with the interval `low`..`high` over `pairs` fresh
    process pairs;
    `parent_ratio` the same against the parent. Modelled: `estimate` and `parent_estimate` instead, and never a ratio.
    """

    kind: TimingKind
    verdict: SpeedVerdict
    cases: tuple[CaseTiming, ...]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    parent_ratio: float | None = None
    estimate: float | None = None
    parent_estimate: float | None = None
    pairs: int = 0
    noise: float | None = None
    suspicious: tuple[str, ...] = ()
    conditions: Conditions | None = None
    seconds: float = 0.0


class Reading(Record, frozen=True):
    """A share of peak in percent, None when unknown; `source` says who read it, `reason` why it is unknown."""

    percent: float | None = None
    source: ReadingSource = "unknown"
    reason: str = ""


class Signature(Record, frozen=True, kw_only=True):
    """The hardware signature: SM, DRAM and L2 throughput in percent of peak."""

    sm: Reading = Reading()
    dram: Reading = Reading()
    l2: Reading = Reading()


class Features(Record, frozen=True, kw_only=True):
    """Behaviour features of a candidate before z-scoring (KernelBand, section on clustering)."""

    log_latency: float
    registers: float
    shared_kib: float
    log2_block: float
    occupancy_percent: float


class NumberChange(Record, frozen=True):
    """A number of the source and its change: "num_warps of softmax_kernel" from 4 to 8."""

    parameter: str
    old: int
    new: int


class Message(Record, frozen=True):
    """One message of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    text: str


class ArmStatistics(Record, frozen=True, kw_only=True):
    """What the bandit believes of one arm: `pulls` counts the prior one too under `paper` (N starts at 1, mean at 0.5)."""

    cluster: int
    strategy: Strategy
    pulls: float
    mean: float


class ArmScore(Record, frozen=True, kw_only=True):
    """One arm at one choice: its statistics, exploration bonus, score, and why it is held back if it is.

    `held` is "" for an eligible arm, else "masked", "banned", "no move", "empty" or "resting", with `reason` for people and
    `headroom_percent` = threshold minus the resource's reading (None: unknown).
    """

    cluster: int
    strategy: Strategy
    pulls: float
    mean: float
    bonus: float
    score: float
    held: str = ""
    reason: str = ""
    headroom_percent: float | None = None
    share: float | None = None


class Summary(Record, frozen=True, kw_only=True):
    """The last line of `run --headless --json`."""

    run_id: str
    problem: str
    device: str
    timing: TimingKind
    pulls: int
    candidates: int
    correct: int
    best: BestSummary | None
    baseline_ms: float | None
    cost_usd: float
    tokens: int
    stopped_by: str
    baseline_id: int | None = BASELINE_ID
    """The candidate that the others are compared with; None where a run without a kernel found no correct one."""
    devices: tuple[str, ...] = ()
    """Names of the lanes, such as "cuda:0"."""
    dropped: tuple[str, ...] = ()
    """Those of them that had fallen out at the end."""


class BestSummary(Record, frozen=True, kw_only=True):
    """The best candidate: measured `speedup` with interval, or a modelled `estimate`; never both. `path` is the exported file."""

    candidate_id: int
    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    estimate: float | None
    path: str
