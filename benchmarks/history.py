"""Claim: a viewer needs no snapshots, since folding a long journal takes a blink; and DuckDB follows the journals fast enough
to be opened, used and closed for each question.

    python benchmarks/history.py                       10,000 events
    python benchmarks/history.py --events 100000       the size that docs/architecture.md speaks of
    python benchmarks/history.py --ingest --events 1000000 [--beside CHECKOUT]
                                                       one long journal into the database and a rebuild, each in a process
                                                       of its own; by an older checkout of kbtui too, in turn
    python benchmarks/history.py --board               the leaderboard over 10,000 runs and 1,000,000 candidates

Prints one row per step: seconds (best of `--repeat`), and microseconds per event where that means something. Processor time
stands beside the wall clock, which on a busy machine measures its other tenants.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import msgspec

from kbtui.engine.emit import Emitter
from kbtui.history.connection import connect
from kbtui.history.database import History
from kbtui.history.journal import JournalReader, JournalWriter, read_journal
from kbtui.history.timeline import open_timeline
from kbtui.paths import history_file, journal_file
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState

RUN = "synthetic"
SOURCE = "x = 1\n" * 500
"""3 kB, as long as a small kernel file."""


def synthetic_run() -> Iterator[e.Event]:
    """An endless run: each pull is selected, written, compiled, verified, timed and rewarded, as the engine does it."""
    yield _started()
    yield from _candidate(0, 0)
    pull = 1
    while True:
        strategy = r.STRATEGIES[pull % 6]
        scores = tuple(
            r.ArmScore(cluster=cluster, strategy=arm, pulls=1.0 + pull, mean=0.1, bonus=0.2, score=0.3)
            for cluster in range(3)
            for arm in r.STRATEGIES
        )
        yield e.Masked(pull=pull, signatures={0: _signature()}, held={0: {"fusion": "DRAM 80 % ≥ 75 %"}})
        yield e.Selected(pull=pull, cluster=pull % 3, strategy=strategy, parent_id=0, scores=scores)
        yield from _candidate(pull, pull)
        yield e.Noted(level="info", text=f"pull {pull} went well")
        yield e.Rewarded(
            pull=pull, cluster=pull % 3, strategy=strategy, candidate_id=pull, reward=0.1, mean=0.1, pulls=1.0 + pull,
            outcome="same",
        )  # fmt: skip
        pull += 1


def _started() -> e.RunStarted:
    return e.RunStarted(
        journal_version=e.JOURNAL_VERSION, run_id=RUN, timing="measured", policy="paper", policy_parameters={"c": 2.0},
        generator="rewrite", objective="geomean", seed=0, iterations=20, budget_usd=None, parallel=1, versions={}, isolation={},
        python="python", device=r.DeviceInfo(lane="cuda:0", kind="cuda", name="GPU", target="sm_90"),
        problem=r.ProblemInfo(
            name="softmax", path="/p", entry="softmax", digest="d",
            cases=tuple(r.CaseInfo(name=f"case {number}", fields={"rows": number}) for number in range(4)),
        ),
    )  # fmt: skip


def _signature() -> r.Signature:
    return r.Signature(sm=r.Reading(20.0, "ncu"), dram=r.Reading(80.0, "ncu"), l2=r.Reading(40.0, "ncu"))


def _candidate(number: int, pull: int) -> Iterator[e.Event]:
    kernel = r.KernelFacts(
        name="kernel", target="sm_90", registers=32, spill_bytes=0, shared_bytes=1024, num_warps=4, num_stages=2, threads=128,
        occupancy_percent=75.0, code_digest=f"c{number}", constants={"BLOCK": 1024},
    )  # fmt: skip
    cases = tuple(
        r.CaseTiming(case=f"case {place}", ms=0.1, low_ms=0.09, high_ms=0.11, ratio=1.0) for place in range(4)
    )
    yield e.Generated(
        candidate_id=number, parent_id=0 if number else None, pull=pull, strategy=None, generator="rewrite",
        move=f"move {number}", source=SOURCE, source_digest=f"s{number}", syntax_digest=f"t{number}",
    )  # fmt: skip
    yield e.Compiled(candidate_id=number, compilation=r.Compilation(ok=True, kernels=(kernel,)))
    yield e.Verified(
        candidate_id=number, verification=r.Verification(verdict="correct", stage="cases", cases_checked=20)
    )
    yield e.Timed(
        candidate_id=number, signature=_signature(), timing=r.Timing(kind="measured", verdict="same", cases=cases, ratio=1.0)
    )  # fmt: skip
    yield e.MovesFound(candidate_id=number, moves=dict.fromkeys(r.STRATEGIES, 2))


def stamped(count: int) -> Iterator[e.Event]:
    """The first events of the run, with numbers and times as the engine stamps them."""
    for place, event in zip(range(1, count + 1), synthetic_run(), strict=False):
        yield msgspec.structs.replace(event, seq=place, t=1.7e9 + place / 7, elapsed=place / 7)


def best(action: Callable[[], object], repeat: int) -> float:
    """The least seconds of `repeat` goes."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(count: int, repeat: int) -> Iterator[tuple[str, float, int]]:
    """(what, seconds, events) of each step, on a journal of `count` events."""
    path = journal_file(RUN)
    events = list(stamped(count))
    with JournalWriter(path) as writer:
        start = time.perf_counter()
        events = [writer.append(event) for event in events]
        yield "append, in the kernel's hands", time.perf_counter() - start, count

        def durably() -> None:
            writer.append(e.Noted(level="info", text="x"))
            writer.flush()

        yield "append and flush, on the disk", best(durably, max(repeat, 20)), 0
        emitter = Emitter(RunState(), writer)
        start = time.perf_counter()
        for event in events:
            emitter.emit(event)
        yield "emit: seal, journal, fold", time.perf_counter() - start, count
    path.unlink()
    with JournalWriter(path) as writer:
        for event in events:
            writer.append(event)
    yield "read and decode", best(lambda: read_journal(path), repeat), count
    yield "fold", best(lambda: RunState().apply_all(events), repeat), count
    yield "read and fold", best(lambda: RunState().apply_all(read_journal(path)), repeat), count
    reader = JournalReader(path)
    reader.read()
    yield "look for more, nothing new", best(reader.read, repeat), 0
    yield from _database(count, repeat)


def _database(count: int, repeat: int) -> Iterator[tuple[str, float, int]]:
    def from_nothing() -> None:
        history = History()
        history.path.unlink(missing_ok=True)
        history.ingest()

    yield "ingest into an empty database", best(from_nothing, repeat), count
    history = History()
    yield "ingest, nothing new", best(history.ingest, repeat), 0

    def one_more() -> None:
        with JournalWriter(journal_file(RUN)) as writer:
            writer.append(e.Noted(level="info", text="x"))
        history.ingest()

    yield "ingest one event more", best(one_more, repeat), 0
    query = "select strategy, count(*), avg(reward) from pulls group by 1"
    yield "one question: open, ask, close", best(lambda: history.sql(query), repeat), 0


def seek(count: int) -> Iterator[tuple[str, float, int]]:
    """Looking back at a run of `count` events: opening it, and the slowest of steps to random places and of steps back."""
    with JournalWriter(journal_file("replayed")) as writer:
        for event in stamped(count):
            writer.append(event)
    start = time.perf_counter()
    timeline = open_timeline(journal_file("replayed"))
    yield "replay: open", time.perf_counter() - start, count
    draw = random.Random(0)
    jumps = [took(timeline.go, draw.randrange(count)) for _ in range(100)]
    yield "replay: to a random place, p95", sorted(jumps)[94], 0
    timeline.go(count)
    back = [took(timeline.go, timeline.at - 1) for _ in range(50)]
    yield "replay: one event back, p95", sorted(back)[47], 0


def took(action: Callable[[int], object], argument: int) -> float:
    start = time.perf_counter()
    action(argument)
    return time.perf_counter() - start


def board(runs: int, candidates: int) -> Iterator[tuple[str, float, int]]:
    """The leaderboard's time over a database of that size, opened and closed for every question, as everywhere."""
    history = History()
    history.ingest()
    history.list_runs()
    with connect(history.path, "write") as connection:
        connection.execute(
            f"insert into runs by name select 'run-' || i as run_id, 'problem ' || i % 50 as problem, "
            "'digest ' || i % 50 as problem_digest, 'GPU ' || i % 3 as device, 'sm_90' as target, 'measured' as timing, "
            "'rewrite' as generator, 'ucb' as policy, i % 100 as best_id, 1 + i % 97 / 100 as best_ratio, "
            f"timestamp '2026-01-01' + to_seconds(i) as started_at, 20 as pulls, 0.1 as cost_usd from range({runs}) t(i)"
        )
        each = candidates // runs
        connection.execute(
            "insert into candidates by name select 'run-' || i as run_id, k as candidate_id, 'move' as move, "
            "'tiling' as strategy, 'faster' as speed_verdict, 1 + (i + k) % 97 / 100 as ratio, 'correct' as verdict, "
            f"repeat('x', 3000) as source from range({runs}) t(i), range({each}) s(k)"
        )
    for name, query in (
        ("leaderboard, first places, p95", "select * from leaderboard where place = 1"),
        ("leaderboard of one problem, p95", "select * from leaderboard where problem = 'problem 7' order by place"),
        ("leaderboard, whole, p95", "select * from leaderboard"),
    ):
        history.sql(query)
        asked = sorted(took(lambda _, query=query: history.sql(query), 0) for _ in range(40))  # type: ignore[misc]
        yield name, asked[37], 0


_CHILD = """
import resource, sys, time
from kbtui.history.database import History
history = History()
wall, cpu = time.perf_counter(), time.process_time()
getattr(history, sys.argv[1])()
assert not history.unreadable, history.unreadable
print(time.perf_counter() - wall, time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def _in_tree(tree: Path, arguments: list[str]) -> str:
    """What Python prints with that checkout's kbtui."""
    environment = os.environ | {"PYTHONPATH": str(tree.resolve())}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def write_journal(count: int) -> None:
    with JournalWriter(journal_file(RUN)) as writer:
        for event in stamped(count):
            writer.append(event)


def ingestion(count: int, beside: Path | None, repeat: int) -> Iterator[str]:
    """A table of what taking a journal of `count` events in takes, each time in a process of its own."""
    here = Path(__file__).resolve().parent.parent
    # An older kbtui may not read what a newer one writes.
    _in_tree(beside or here, [str(Path(__file__).resolve()), "--journal", "--events", str(count)])
    yield f"{'step':10}{'code':10}{'wall s':>9}{'cpu s':>9}{'events/s':>10}{'peak MB':>9}{'file MB':>9}{'load':>7}"
    for step in ("ingest", "rebuild"):
        for _ in range(repeat):
            for name, tree in (("here", here), ("beside", beside)):
                if tree is None:
                    continue
                history_file().unlink(missing_ok=True)
                asked = [sys.executable, "-c", _CHILD, step]
                done = subprocess.run(
                    asked,
                    env=os.environ | {"PYTHONPATH": str(tree)},
                    cwd=tree,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                wall, cpu, peak = map(float, done.stdout.split())
                size, load = history_file().stat().st_size / 1e6, os.getloadavg()[0]
                yield f"{step:10}{name:10}{wall:>9.2f}{cpu:>9.2f}{count / wall:>10,.0f}{peak:>9.0f}{size:>9.1f}{load:>7.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ingest", action="store_true", help="one long journal into the database instead")
    parser.add_argument("--beside", type=Path, help="with --ingest: another checkout to compare with")
    parser.add_argument("--journal", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--board", action="store_true", help="the leaderboard instead")
    arguments = parser.parse_args()
    if arguments.journal:
        write_journal(arguments.events)
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["KBTUI_HOME"] = home
        print(
            f"Python {platform.python_version()}, msgspec {msgspec.__version__}, DuckDB {duckdb.__version__}, "
            f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}"
        )
        if arguments.ingest:
            print(f"{arguments.events:,} events\n", flush=True)
            for line in ingestion(arguments.events, arguments.beside, arguments.repeat):
                print(line, flush=True)
            return
        if arguments.board:
            rows = list(board(10_000, 1_000_000))
        else:
            rows = [*measure(arguments.events, arguments.repeat), *seek(min(arguments.events, 100_000))]
        size = sum(path.stat().st_size for path in Path(home).rglob("journal.jsonl")) / 1e6
    if arguments.board:
        print("10,000 runs, 1,000,000 candidates\n")
    else:
        print(f"{arguments.events:,} events, journals of {size:.1f} MB, best of {arguments.repeat}\n")
    print(f"{'step':34}{'ms':>10}{'µs/event':>10}")
    for what, seconds, count in rows:
        print(f"{what:34}{seconds * 1e3:>10.1f}{f'{seconds / count * 1e6:.1f}' if count else '':>10}")


if __name__ == "__main__":
    main()
