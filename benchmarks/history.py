"""Claim: a viewer needs no snapshots, since folding a long journal takes a blink; and DuckDB follows the journals fast enough
to be opened, used and closed for each question.

    python benchmarks/history.py                       10,000 events
    python benchmarks/history.py --events 100000       the size that docs/architecture.md speaks of

Prints one row per step: seconds (best of `--repeat`), and microseconds per event where that means something.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import msgspec

from kbtui.history.database import History
from kbtui.history.journal import JournalReader, JournalWriter, read_journal
from kbtui.paths import journal_file
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
    events = [event for event, _ in zip(synthetic_run(), range(count), strict=False)]
    with JournalWriter(path) as writer:
        start = time.perf_counter()
        events = [writer.append(event) for event in events]
        yield "append, in the kernel's hands", time.perf_counter() - start, count

        def durably() -> None:
            writer.append(e.Noted(level="info", text="x"))
            writer.flush()

        yield "append and flush, on the disk", best(durably, max(repeat, 20)), 0
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KBTUI_HOME"] = home
        rows = list(measure(arguments.events, arguments.repeat))
        size = sum(path.stat().st_size for path in Path(home).rglob("journal.jsonl")) / 1e6
    print(f"Python {platform.python_version()}, msgspec {msgspec.__version__}, DuckDB {duckdb.__version__}")
    print(f"{arguments.events:,} events, journal of {size:.1f} MB, best of {arguments.repeat}\n")
    print(f"{'step':34}{'ms':>10}{'µs/event':>10}")
    for what, seconds, count in rows:
        print(f"{what:34}{seconds * 1e3:>10.1f}{f'{seconds / count * 1e6:.1f}' if count else '':>10}")


if __name__ == "__main__":
    main()
