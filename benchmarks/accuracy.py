"""How often the clock is wrong: fresh process pairs of a kernel against itself, and of kernels of known speed, on a GPU.

    python benchmarks/accuracy.py --pairs 200 --minutes 9 --raw pairs.jsonl      measure (repeat to add to the file)
    python benchmarks/accuracy.py --from pairs.jsonl --output results/x.md      the tables of what was measured so far

Against itself every `faster` and `slower` is false. Kernels of known speed do a known share of rows twice: one that does so is
slower, though by less than that share, since they are in the L2 cache then; one that is set against a baseline that does so is
faster. Pairs of all series are taken in turns
over the whole time, so that what the machine does meanwhile falls on all alike.

A verdict needs several pairs, as `kbtui.evaluate.timing` takes them, and a noise floor of five more. From the pairs both are
drawn at random (each order of the two processes from its own), many times; and once more without using any pair twice.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from kbtui.evaluate import timing, verdict
from kbtui.evaluate.cuda import CudaLane
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.match import Match
from kbtui.evaluate.pairs import Pair, PairCase, PairPlan, play
from kbtui.problems.folder import find_problem
from kbtui.state.records import CaseInfo

DRAWN = 20_000
SOFTMAX = 'Case(rows=4096, cols=4096, dtype="float32")'
RMS_NORM = 'Case(rows=4096, cols=4096, dtype="bfloat16")'
MATMUL = 'Case(m=4096, n=4096, k=4096, dtype="float16")'


@dataclass(frozen=True)
class Series:
    """`kernel` and `baseline` are the shares of rows that each does twice; `every` how many turns there are to one of this."""

    name: str
    problem: str
    case: str
    kernel: float = 0.0
    baseline: float = 0.0
    every: int = 1


SERIES = (
    Series("softmax 4096 x 4096 against itself", "softmax", SOFTMAX),
    Series("rms_norm 4096 x 4096 against itself", "rms_norm", RMS_NORM),
    Series("matmul 4096 x 4096 x 4096 against itself", "matmul", MATMUL),
    Series("softmax, 50 % more rows", "softmax", SOFTMAX, kernel=0.5, every=2),
    Series("softmax, 6 % more rows", "softmax", SOFTMAX, kernel=0.06, every=2),
    Series("softmax against 6 % more rows", "softmax", SOFTMAX, baseline=0.06, every=2),
)

ITSELF = {one.name for one in SERIES if one.kernel == one.baseline}
ADDED = (1.02, 0.98, 0.8)
"""Ratios that are added to pairs of a kernel with itself: gains and losses of a known size under the noise as it is. Racing
within a pair is left out of these."""


class Measured(msgspec.Struct, frozen=True):
    """One pair, as a line of the raw file. `log` is the natural logarithm of baseline over candidate time."""

    series: str
    swapped: bool
    log: float
    ms: float
    dropped: bool
    seconds: float


def with_rows(source: str, share: float) -> str:
    """softmax with a share of the rows done twice; its results stay the same."""
    if not share:
        return source
    kernel = "row = tl.program_id(0).to(tl.int64)"
    launch = "softmax_kernel[(rows,)]("
    assert kernel in source
    assert launch in source
    source = source.replace(kernel, "row = (tl.program_id(0) % rows).to(tl.int64)")
    source = source.replace("    cols,\n    BLOCK: tl.constexpr", "    cols,\n    rows,\n    BLOCK: tl.constexpr")
    source = source.replace("        cols,\n        BLOCK=BLOCK", "        cols,\n        rows,\n        BLOCK=BLOCK")
    return source.replace(launch, f"softmax_kernel[(rows + round({share} * rows),)](")


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


class Place:
    """A lane on one problem of one case, whose baseline is judged."""

    def __init__(self, series: Series, device: str, folder: Path) -> None:
        problem = find_problem(series.problem)
        folder.mkdir(parents=True)
        self.baseline = with_rows(problem.kernel_source, series.baseline)
        (folder / "kernel.py").write_text(self.baseline)
        text = problem.problem_file.read_text()
        (folder / "problem.py").write_text(f"{text}\n\ncases = [{series.case}]\n")
        spec = LaneSpec(problem=folder, device=device, python=sys.executable, scratch=folder / "lane")
        self.lane = CudaLane(spec)
        self.lane.start()
        self._kernel = problem.kernel_source

    def judge_baseline(self) -> None:
        compiled = self.lane.compile(self.baseline, quiet)
        found = self.lane.verify(self.baseline, compiled.kernels, quiet)
        if found.verdict != "correct":
            sys.exit(f"the baseline is {found.verdict}: {found.reason}")
        self.timing = self.lane.time(self.baseline, compiled.kernels, None, self.baseline, None, quiet).timing

    def candidate(self, series: Series) -> str:
        """The source of a series, verified; what makes it another source than the baseline is a comment, where nothing else."""
        source = with_rows(self._kernel, series.kernel) + f"\n# {series.name}\n"
        compiled = self.lane.compile(source, quiet)
        found = self.lane.verify(source, compiled.kernels, quiet)
        if found.verdict != "correct":
            sys.exit(f"{series.name} is {found.verdict}: {found.reason}")
        return source

    def begin(self, source: str) -> tuple[Match, PairPlan]:
        """Start the processes of a pair."""
        match, plan = self.lane.contest(source, self.baseline, self.timing.noise or 0.0)
        match.begin()
        return match, plan

    def pair(
        self, series: Series, begun: tuple[Match, PairPlan], following: Callable[[], None], *, swapped: bool
    ) -> Measured:
        """Play the pair that was begun; `following` begins the next one while the processes of this end."""
        began = time.perf_counter()
        match, plan = begun
        with match.pair(swapped) as (reference, candidate):
            found = play(reference, candidate, plan, swapped=swapped, audited=())
            following()
        log = found.log_ratio(plan.cases, plan.objective)
        seconds = time.perf_counter() - began
        return Measured(series.name, swapped, log, found.cases[0].ms, found.dropped, seconds)

    def close(self) -> None:
        self.lane.close()


def measure(device: str, pairs: int, minutes: float, raw: Path) -> None:
    """Pairs of all series in turns, appended to `raw` one by one, until there are `pairs` of each or the time is up."""
    until = time.monotonic() + 60 * minutes
    have = Counter(one.series for one in read(raw))
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as folder, ExitStack() as stack, raw.open("ab") as file:
        kinds = sorted({(one.problem, one.case, one.baseline) for one in SERIES})
        of = [next(one for one in SERIES if (one.problem, one.case, one.baseline) == kind) for kind in kinds]
        with ThreadPoolExecutor(len(of)) as pool:
            made = list(pool.map(lambda at: Place(of[at], device, Path(folder) / str(at)), range(len(of))))
        places = dict(zip(kinds, [stack.enter_context(closing(place)) for place in made], strict=True))
        for place in places.values():
            place.judge_baseline()
        where = {one.name: places[one.problem, one.case, one.baseline] for one in SERIES}
        sources = {one.name: where[one.name].candidate(one) for one in SERIES}
        print(f"{until - time.monotonic():.0f} s left for pairs", file=sys.stderr, flush=True)
        order = list(turns(have, pairs))
        begun = []

        def begin(number: int) -> None:
            if number < len(order):
                one = order[number]
                begun.append(where[one.name].begin(sources[one.name]))

        begin(0)
        for number, one in enumerate(order):
            if time.monotonic() > until:
                break
            found = where[one.name].pair(one, begun.pop(), partial(begin, number + 1), swapped=have[one.name] % 2 == 1)
            file.write(msgspec.json.encode(found) + b"\n")
            file.flush()
            have[one.name] += 1


def turns(have: Counter[str], pairs: int) -> Iterator[Series]:
    """The series in turns until there are `pairs` of each, fewer of those that come less often."""
    planned = Counter(have)
    turn = 0
    while any(planned[one.name] * one.every < pairs for one in SERIES):
        turn += 1
        for one in SERIES:
            if turn % one.every == 0 and planned[one.name] * one.every < pairs:
                planned[one.name] += 1
                yield one


def read(raw: Path) -> list[Measured]:
    if not raw.exists():
        return []
    return [msgspec.json.decode(line, type=Measured) for line in raw.read_bytes().splitlines()]


# ---------------------------------------------------------------- what it means

CASES = (CaseInfo(name="the case", fields={}),)


def as_pair(one: Measured) -> Pair:
    case = PairCase(reference_ms=one.ms * math.exp(one.log), ms=one.ms, called_ms=one.ms, in_graph=True)
    return Pair(cases={0: case}, swapped=one.swapped, dropped=one.dropped, suspicious=())


def in_turns(straight: Iterator[Measured], swapped: Iterator[Measured]) -> Iterator[Measured]:
    """One of each by turns, for as long as there are."""
    while True:
        for pool in (straight, swapped):
            one = next(pool, None)
            if one is None:
                return
            yield one


def floor_of(pairs: Iterator[Measured]) -> float | None:
    logs = [one.log for _, one in zip(range(verdict.PAIRS_FOR_FLOOR), pairs, strict=False)]
    return verdict.noise_floor(logs) if len(logs) == verdict.PAIRS_FOR_FLOOR else None


def decided(pairs: Iterator[Measured], noise: float) -> str | None:
    """The verdict, by as many of the pairs as it takes, as `timing.measure_candidate` takes them; None when they run out."""
    plan = PairPlan(cases=CASES, objective="geomean", noise=noise, memory_bytes=1)
    taken: list[Pair] = []
    for one in pairs:
        taken.append(as_pair(one))
        if one.dropped or timing.settled(taken, plan) or len(taken) == timing.MOST_PAIRS:
            return timing.judged(taken, plan).verdict
    return None


def split(pairs: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    return [one for one in pairs if not one.swapped], [one for one in pairs if one.swapped]


def forever(pool: Sequence[Measured], draw: random.Random) -> Iterator[Measured]:
    while True:
        yield draw.choice(pool)


def drawn(pairs: Sequence[Measured], floors: Sequence[Measured], draw: random.Random) -> Counter[str]:
    """Verdicts of DRAWN measurements, each with a floor of its own."""
    pools, floor_pools = split(pairs), split(floors)
    found: Counter[str] = Counter()
    for _ in range(DRAWN):
        noise = floor_of(in_turns(*(forever(pool, draw) for pool in floor_pools)))
        verdict_ = decided(in_turns(*(forever(pool, draw) for pool in pools)), noise or 0.0)
        found[verdict_ or "unknown"] += 1
    return found


def once(pairs: Sequence[Measured], floors: Sequence[Measured]) -> Counter[str]:
    """Verdicts without using any pair twice; the floors come from pairs of their own where a series is its own floor."""
    same = pairs is floors
    pool = in_turns(*map(iter, split(pairs)))
    floor_pool = pool if same else in_turns(*map(iter, split(floors)))
    found: Counter[str] = Counter()
    while (noise := floor_of(floor_pool)) is not None and (verdict_ := decided(pool, noise)) is not None:
        found[verdict_] += 1
    return found


def wilson(k: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not n:
        return 0.0, 1.0
    z, p = 1.96, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(k: int, n: int) -> str:
    low, high = wilson(k, n)
    return f"{k} of {n} ({100 * low:.1f} to {100 * high:.1f} %)"


def report(pairs: Sequence[Measured]) -> str:
    """The tables, as Markdown: of every series in the file that has enough pairs, those of today first."""
    names = list(dict.fromkeys((*(one.name for one in SERIES), *(pair.series for pair in pairs))))
    by = {name: [pair for pair in pairs if pair.series == name] for name in names}
    by = {name: found for name, found in by.items() if len(found) > 2 * verdict.PAIRS_FOR_FLOOR}
    lines = [
        "| series | pairs | µs | ratio, median | spread of pairs | dropped by racing | seconds a pair |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in by.items():
        logs = [pair.log for pair in found]
        lines.append(
            f"| {name} | {len(found)} | {1e3 * statistics.median(pair.ms for pair in found):.1f} "
            f"| {math.exp(statistics.median(logs)):.4f} | {100 * statistics.stdev(logs):.2f} % "
            f"| {share(sum(pair.dropped for pair in found), len(found))} "
            f"| {statistics.median(pair.seconds for pair in found):.2f} |"
        )
    lines += [
        "",
        f"| series | {DRAWN} measurements drawn: faster | slower | same | ambiguous | without using a pair twice |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    draw = random.Random(0)
    shifted = {
        f"{name}, {100 * (ratio - 1):+.0f} % added to every pair": [
            msgspec.structs.replace(one, log=one.log + math.log(ratio)) for one in found
        ]
        for name, found in by.items()
        if name in ITSELF
        for ratio in ADDED
    }
    for name, found in {**by, **shifted}.items():
        floors = next(
            one
            for other, one in by.items()
            if other.partition(" ")[0].rstrip(",") == name.partition(" ")[0].rstrip(",")
        )
        counted = drawn(found, floors, draw)
        shares = " | ".join(
            f"{100 * counted[kind] / DRAWN:.2f} %" for kind in ("faster", "slower", "same", "ambiguous")
        )
        own = once(found, floors)
        total = sum(own.values())
        told = ", ".join(f"{kind} {share(own[kind], total)}" for kind in ("faster", "slower"))
        lines.append(f"| {name} | {shares} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--raw", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--from", dest="source", type=Path, help="measure nothing, read these pairs")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    if given.source is None:
        measure(given.device, given.pairs, given.minutes, given.raw)
    text = report(read(given.source or given.raw))
    print(text)
    if given.output is not None:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
