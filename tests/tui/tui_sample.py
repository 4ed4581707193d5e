"""A realistic run as events, measured or modelled, and a feed that plays events: what the cockpit's tests look at."""

from __future__ import annotations

import random

from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.commands import AnyCommand, Reply
from kbtui.tui.feed import RunFeed

KERNEL = '''\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out, x, stride, cols, BLOCK: tl.constexpr):
    """One row per program."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * stride + offsets, mask=mask, other=-float("inf"))
    values = values - tl.max(values, axis=0)  # for stability
    numerator = tl.exp(values)
    tl.store(out + row * stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](out, x, x.stride(0), cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)
    return out
'''
CASES = (
    r.CaseInfo(name="rows=4096 cols=1024 dtype=float32", fields={"rows": 4096}, bytes_moved=33_554_432),
    r.CaseInfo(name="rows=4096 cols=4096 dtype=float32", fields={"rows": 4096}, bytes_moved=134_217_728),
    r.CaseInfo(name="rows=1024 cols=32768 dtype=float16", fields={"rows": 1024}, bytes_moved=134_217_728),
)
BASE_MS = (0.0154, 0.0541, 0.0623)
START = 1_790_000_000.0
MOVES = {
    "tiling": ("BLOCK 1024 → 2048", "rows per program 1 → 4", "BLOCK 1024 → 512", "BLOCK 2048 → 4096"),
    "vectorization": ("loads of 128 bits", "contiguous hint"),
    "fusion": ("online maximum and sum", "one pass"),
    "pipeline": ("num_stages 1 → 3", "num_stages 3 → 2", "num_stages 2 → 4"),
    "reordering": ("num_warps 4 → 16", "num_warps 4 → 8", "grouped programs"),
    "access_layout": ("evict_first on loads", "evict_last on loads"),
}
BY = "ada@pts/3"


def device(timing: r.TimingKind) -> r.DeviceInfo:
    if timing == "modelled":
        return r.DeviceInfo(lane="cpu", kind="cpu", name="Triton interpreter", target="sm_90")
    return r.DeviceInfo(lane="cuda:0", kind="cuda", name="NVIDIA H200", target="sm_90", uuid="GPU-1", nominal=False)


class Script:
    """Collects events, numbering them as a journal would."""

    def __init__(self, timing: r.TimingKind = "measured", run_id: str = "softmax-20260921-1402-k3f") -> None:
        self.timing: r.TimingKind = timing
        self.run_id = run_id
        self.events: list[e.Event] = []
        self.now = 0.0
        self.ratios: dict[int, float] = {}
        self.best = (0, 1.0)

    def add(self, kind: type[e.Event], **fields: object) -> e.Event:
        self.now += 1.7
        event = kind(seq=len(self.events) + 1, t=START + self.now, elapsed=self.now, **fields)  # type: ignore[arg-type]
        self.events.append(event)
        return event

    def begin(self, iterations: int = 40) -> None:
        problem = r.ProblemInfo(
            name="softmax",
            path="/home/ada/softmax",
            entry="softmax",
            digest="d" * 64,
            cases=CASES,
            summary="row softmax",
        )
        self.add(
            e.RunStarted, journal_version=1, run_id=self.run_id, problem=problem, device=device(self.timing),
            timing=self.timing, policy="paper", policy_parameters={"c": 2.0}, generator="rewrite", objective="geomean",
            seed=0, iterations=iterations, budget_usd=1.0, parallel=1, versions={"triton": "3.6"}, isolation={},
            python="/usr/bin/python3",
        )  # fmt: skip
        self.generated(0, None, 0, None, "baseline")
        self.judged(0, 1.0)
        self.add(e.BestChanged, candidate_id=0, path="/data/best/kernel.py")

    def generated(
        self, number: int, parent: int | None, pull: int, strategy: r.Strategy | None, move: str, **fields: object
    ) -> None:
        source = KERNEL if number == 0 else KERNEL.replace("num_warps=4", f"num_warps={4 + number}")
        if strategy == "fusion":
            source = source.replace("# for stability", "# online\n    scale = tl.exp2(values * 1.44269504)")
        values: dict[str, object] = {
            "candidate_id": number, "parent_id": parent, "pull": pull, "strategy": strategy, "generator": "rewrite", "move": move,
            "source": source, "source_digest": f"s{number}", "syntax_digest": f"y{number}",
        }  # fmt: skip
        self.add(e.Generated, **(values | fields))

    def compiled(self, number: int, **fields: object) -> None:
        kernel = r.KernelFacts(
            name="softmax_kernel", target="sm_90", registers=32 + number % 7 * 8, spill_bytes=48 if number == 5 else 0,
            shared_bytes=2048, num_warps=4 + number % 3 * 4, num_stages=3, threads=128, occupancy_percent=62.5,
            code_digest=f"k{number}", constants={"BLOCK": 1024 << number % 3}, grid=(4096, 1, 1), launches=3,
        )  # fmt: skip
        values: dict[str, object] = {"ok": True, "kernels": (kernel,), "seconds": 0.31}
        self.add(e.Compiled, candidate_id=number, compilation=r.Compilation(**(values | fields)))  # type: ignore[arg-type]

    def judged(self, number: int, ratio: float) -> None:
        """Compiled, correct and timed."""
        self.compiled(number)
        self.add(e.Verified, candidate_id=number, verification=r.Verification(
            verdict="correct", stage="hidden shapes", cases_checked=12, error=3.1e-7, allowed=1e-5,
            not_checked=("races: not checked",) if self.timing == "modelled" else (),
        ))  # fmt: skip
        self.add(e.Timed, candidate_id=number, timing=self.timing_of(number, ratio), signature=r.Signature(
            sm=r.Reading(21.0, "ncu"), dram=r.Reading(83.0, "ncu"), l2=r.Reading(reason="not collected"),
        ))  # fmt: skip
        self.ratios[number] = ratio

    def timing_of(self, number: int, ratio: float) -> r.Timing:
        floors = [case.bytes_moved / 4.8e12 * 1e3 for case in CASES]
        if self.timing == "modelled":
            cases = tuple(
                r.CaseTiming(case=c.name, estimate_ms=ms / ratio, estimate_ratio=ratio, floor_ms=f, bound="DRAM")
                for c, ms, f in zip(CASES, BASE_MS, floors, strict=True)
            )
            verdict: r.SpeedVerdict = "unknown" if number == 0 else "not worse" if ratio >= 1 else "worse"
            return r.Timing(kind="modelled", verdict=verdict, cases=cases, estimate=ratio)
        cases = tuple(
            r.CaseTiming(
                case=c.name, ms=ms / ratio, low_ms=ms / ratio * 0.99, high_ms=ms / ratio * 1.01, ratio=ratio, floor_ms=f,
                bound="DRAM",
            )
            for c, ms, f in zip(CASES, BASE_MS, floors, strict=True)
        )  # fmt: skip
        verdict = "same" if abs(ratio - 1) < 0.01 else "faster" if ratio > 1 else "slower"
        return r.Timing(
            kind="measured", verdict=verdict, cases=cases, ratio=ratio, low=ratio - 0.03, high=ratio + 0.03, pairs=4,
            noise=0.003, parent_ratio=1.02,
            conditions=r.Conditions(sm_clock_mhz=(1980, 1975), memory_clock_mhz=(3201, 3201), temperature_c=(51, 52)),
        )  # fmt: skip

    def scores(self, pull: int, chosen: tuple[int, r.Strategy]) -> tuple[r.ArmScore, ...]:
        out = []
        for cluster in range(3):
            for index, strategy in enumerate(r.STRATEGIES):
                held, reason = "", ""
                if (cluster, strategy) == (2, "vectorization"):
                    held, reason = "masked", "DRAM saturated (83 % of 75 %)"
                elif (cluster + index) % 5 == 4:
                    held, reason = "no move", "no move on any parent"
                mean = 0.02 + 0.07 * ((cluster * 5 + index * 3 + pull) % 6)
                bonus = 0.1 + 0.05 * ((index + cluster) % 4) + (0.4 if (cluster, strategy) == chosen else 0)
                score = mean + bonus
                out.append(r.ArmScore(
                    cluster=cluster, strategy=strategy, pulls=float((index + cluster + pull) % 4 + 1), mean=mean,
                    bonus=bonus, score=score, held=held, reason=reason, headroom_percent=None if held else 22.0,
                ))  # fmt: skip
        return tuple(out)

    def pull(self, number: int, parent: int, strategy: r.Strategy, cluster: int = 0, **fields: object) -> None:
        scores = self.scores(number, (cluster, strategy))
        runner_up = ((cluster + 1) % 3, "tiling" if strategy != "tiling" else "pipeline")
        self.add(
            e.Selected, pull=number, cluster=cluster, strategy=strategy, parent_id=parent, scores=scores,
            runner_up=runner_up, **fields,
        )  # fmt: skip

    def rewarded(self, number: int, strategy: r.Strategy, cluster: int, candidate: int, outcome: str) -> None:
        reward = max(0.0, self.ratios.get(candidate, 0.0) - 1.0)
        self.add(
            e.Rewarded, pull=number, cluster=cluster, strategy=strategy, candidate_id=candidate, reward=reward,
            mean=0.1 + reward / 2, pulls=float(number % 4 + 1), outcome=outcome,
        )  # fmt: skip

    def better(self, number: int, ratio: float) -> None:
        if ratio > self.best[1]:
            self.best = (number, ratio)
            self.add(e.BestChanged, candidate_id=number, path=f"/data/best/c{number}.py")


def sample(timing: r.TimingKind = "measured", pulls: int = 30) -> Script:
    """A run in the middle of its work: a lineage of some depth, every kind of verdict, a clustering, a mask, a ban."""
    script = Script(timing)
    script.begin()
    random_source = random.Random(7)
    parents = [0]
    for number in range(1, pulls + 1):
        strategy = r.STRATEGIES[(number * 5 + number // 3) % 6]
        cluster = number % 3 if number > 8 else 0
        parent = parents[-1] if number % 3 else random_source.choice(parents)
        if number == 9:
            labels = {c: c % 3 for c in parents}
            script.add(
                e.Clustered, pull=9, labels=labels, representatives={c % 3: c for c in parents}, features={},
                arms=tuple(
                    r.ArmStatistics(cluster=k, strategy=s, pulls=1.0 + (k + i) % 3, mean=0.08 * ((k + i * 2) % 5))
                    for k in range(3) for i, s in enumerate(r.STRATEGIES)
                ),
            )  # fmt: skip
            script.add(e.Masked, pull=9, held={2: {"vectorization": "DRAM saturated (83 % of 75 %)"}}, signatures={
                0: r.Signature(dram=r.Reading(83.0, "ncu"), sm=r.Reading(21.0, "ncu")),
                1: r.Signature(sm=r.Reading(41.0, "ncu"), dram=r.Reading(38.0, "ncu")),
            })  # fmt: skip
        forced = None
        if number == 12:
            forced = script.add(e.Forced, by=BY, strategy="fusion", cluster=1, parent_id=parents[-1])
        script.pull(number, parent, strategy, cluster, forced=forced.seq if forced is not None else None)
        move = random_source.choice(MOVES[strategy])
        script.generated(number, parent, number, strategy, move)
        _judge(script, number, parents, random_source)
        script.rewarded(number, strategy, cluster, number, "done")
    script.add(e.Banned, by=BY, strategy="access_layout", cluster=1)
    script.add(e.Noted, level="warning", text="429, waiting 8 s (nothing charged to the arm)", source="provider")
    script.pull(pulls + 1, script.best[0], "fusion", 1)
    script.generated(pulls + 1, script.best[0], pulls + 1, "fusion", "one pass")
    script.compiled(pulls + 1)
    return script


def _judge(script: Script, number: int, parents: list[int], random_source: random.Random) -> None:
    kind = number % 10
    if kind == 3:
        script.compiled(number)
        script.add(e.Verified, candidate_id=number, verification=r.Verification(
            verdict="wrong", stage="boundary cases", reason="2 of 4097 values differ", cases_checked=3, error=0.21,
            allowed=1e-5, worst_case="rows=1 cols=1025 dtype=float32", first_wrong_index=(0, 1024),
            detail="expected 0.00097, got 0.21\nat [0, 1024] and [0, 1025]",
        ))  # fmt: skip
    elif kind == 5:
        script.add(e.Pruned, candidate_id=number, stage="duplicates", reason="same machine code as #2")
    elif kind == 7 and number < 10:
        script.add(e.Verified, candidate_id=number, verification=r.Verification(
            verdict="cheat", stage="static", reason="calls torch.softmax",
        ))  # fmt: skip
    elif kind == 8:
        script.compiled(
            number, ok=False, kernels=(), reason="shapes (4, 128) and (128,) do not match",
            detail="kernel.py:12:\n    values = values - tl.max(values, axis=1)\n             ^",
        )  # fmt: skip
    else:
        top = script.best[1]
        ratio = top + random_source.uniform(0.01, 0.06) if number % 4 == 0 else random_source.uniform(0.85, top)
        script.judged(number, round(ratio, 3))
        parents.append(number)
        script.better(number, round(ratio, 3))


def gpu(busy: float, t: float = START) -> e.GpuSampled:
    return e.GpuSampled(
        t=t, device="NVIDIA H200", uuid="GPU-1",
        values={
            "busy_percent": busy, "memory_used_bytes": 2.1e9, "memory_total_bytes": 1.5e11, "power_w": 300 + busy,
            "power_limit_w": 700.0, "temperature_c": 52.0, "sm_clock_mhz": 1980.0, "sm_clock_max_mhz": 1980.0,
            "sm_active_percent": busy / 2, "dram_active_percent": min(busy + 14, 100), "throttle": 0.0,
        },
    )  # fmt: skip


class ScriptedFeed(RunFeed):
    """Plays events it was given; remembers the commands it got and answers them."""

    def __init__(
        self, events: list[e.Event], *, run_id: str = "softmax-20260921-1402-k3f", connected: bool = True
    ) -> None:
        self.run_id = run_id
        self.connected = connected
        self.held = connected
        self.waiting = list(events)
        self.commands: list[AnyCommand] = []
        self.answer = (True, "done as you asked")
        self.asked: dict[int, list[e.Asked]] = {}
        """What the journal holds of requests to models, by pull."""
        self.closed = False

    async def start(self) -> None:
        self.closed = False

    async def poll(self) -> list[e.Event]:
        events, self.waiting = self.waiting, []
        return events

    async def send(self, command: AnyCommand) -> Reply:
        self.commands.append(command)
        return Reply(len(self.commands), *self.answer)

    async def requests(self, pull: int) -> list[e.Asked]:
        return self.asked.get(pull, [])

    async def close(self) -> None:
        self.closed = True
