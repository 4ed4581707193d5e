"""What the cockpit costs, measured from outside through a pseudo-terminal, with harlequin beside it where it is installed.

    python benchmarks/tui.py [--harlequin PATH] [--rounds N] [--write FILE]

Prints one table: first paint, key to paint with 5,000 candidates, bytes and processor time at rest, bytes of a live run, the
longest wait for an answer during a burst, memory, and what a terminal that reads nothing for a minute does to run and cockpit.
The run is a stand-in (tui_run.py) with a real journal, lock and socket. Other load on the machine lengthens every wall-clock
figure: the load is printed, and the yardstick is measured in the same minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from terminal import Program

ROOT = Path(__file__).resolve().parents[1]
SIZES = ((80, 24), (200, 50))
CANDIDATES = 5000
KEYS = 120
IDLE_S, LIVE_S, STALL_S, BURST_S = 20.0, 30.0, 60.0, 6.0
LIVE_PACE, BURST_PACE = 10, 1000

Row = tuple[str, str, str, str]
"""What, budget, measured, remark."""


class Bench:
    """One data folder, and the commands run in it."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", "KBTUI_HOME": str(home / "data"),
            "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"),
            # an installed program has its bytecode; a checkout may be kept from writing it
            "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
        }  # fmt: skip

    def kbtui(self, size: tuple[int, int], *arguments: str) -> Program:
        return Program([sys.executable, "-m", "kbtui", *arguments], self.environment, *size)

    def run(self, name: str, pulls: int, *pace: float) -> subprocess.Popen[str]:
        """A stand-in run; with a pace it serves until its time is over. Returns once its journal is written."""
        command = [sys.executable, str(ROOT / "benchmarks" / "tui_run.py"), name, str(pulls), *map(str, pace)]
        process = subprocess.Popen(
            command, env=os.environ | self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the stand-in run {name} did not start")
        return process


def first_paint(bench: Bench, rounds: int, harlequin: str | None) -> list[Row]:
    """From the start of the program to the footer on the screen: wall clock and processor time, medians."""
    rows: list[Row] = []
    starts: list[tuple[str, str, Callable[[], Program], bytes]] = [
        ("first paint, `kbtui`", "0.4 s", lambda: bench.kbtui((80, 24)), b"detach"),
        ("first paint, `kbtui attach`", "", lambda: bench.kbtui((80, 24), "attach", "many"), b"detach"),
    ]
    if harlequin:
        starts.append(
            (
                "first paint, harlequin",
                "yardstick",
                lambda: Program([harlequin, ":memory:"], bench.environment, 80, 24),
                b"Run Query",
            )
        )
    for name, budget, start, marker in starts:
        walls, costs = [], []
        for turn in range(rounds + 1):
            with start() as program:
                wall = program.until(marker)
                if turn:  # the first writes bytecode
                    walls.append(wall)
                    costs.append(program.processor_s())
        rows.append(
            (
                name,
                budget,
                f"{statistics.median(walls):.2f} s",
                f"best {min(walls):.2f} s; {statistics.median(costs):.2f} s of processor time",
            )
        )
    return rows


def opened(bench: Bench, size: tuple[int, int]) -> Program:
    """The cockpit with all candidates of the long run unfolded."""
    program = bench.kbtui(size, "attach", "many")
    program.until(f"#{CANDIDATES}".encode())
    program.settle(1.0)
    program.press(b"z")
    program.settle()
    program.press(b"g")
    program.settle()
    return program


def key_to_paint(bench: Bench) -> list[Row]:
    """From a key to the last byte it painted; and memory after that."""
    rows: list[Row] = []
    for size in SIZES:
        with opened(bench, size) as program:
            spent = program.processor_s()
            lines = sorted(program.answer(b"j") for _ in range(KEYS))
            spent = (program.processor_s() - spent) / KEYS
            pages = sorted(program.answer(b"\x1b[6~") for _ in range(KEYS // 3))
            name = f"key to paint, {CANDIDATES:,} candidates, {size[0]}x{size[1]}"
            rows.append(
                (
                    name,
                    "p95 30 ms",
                    f"p95 {_p95(lines):.0f} ms",
                    f"median {_ms(lines):.0f} ms, {spent * 1e3:.0f} ms cpu; a page {_ms(pages):.0f}, p95 {_p95(pages):.0f} ms",
                )
            )
            if size == SIZES[-1]:
                rows.append(
                    (
                        f"memory, {CANDIDATES:,} candidates",
                        "120 MB",
                        f"{program.memory_mb():.0f} MB",
                        "resident, after all of that",
                    )
                )
    return rows


def at_rest(bench: Bench, harlequin: str | None) -> list[Row]:
    """Bytes and processor time of an open, idle cockpit."""
    rows: list[Row] = []
    with opened(bench, (80, 24)) as program:
        rows.append(_idle("at rest", "0 B/s, 0.4 %", program))
    if harlequin:
        with Program([harlequin, ":memory:"], bench.environment, 80, 24) as program:
            program.until(b"Run Query")
            program.settle(1.0, 3.0)
            rows.append(_idle("at rest, harlequin", "yardstick", program))
    return rows


def _idle(name: str, budget: str, program: Program) -> Row:
    program.for_(8.0)  # toasts and cursors of the beginning
    spent = program.processor_s()
    sent = program.for_(IDLE_S)
    share = (program.processor_s() - spent) / IDLE_S
    return name, budget, f"{sent / IDLE_S:.0f} B/s, {share:.2%}", f"over {IDLE_S:.0f} s; {program.memory_mb():.0f} MB"


def live(bench: Bench) -> list[Row]:
    """Bytes per second of a live run at 10 events per second and one GPU sample."""
    rows: list[Row] = []
    cases = [(size, flags) for size in SIZES for flags in ((), ("--low-bandwidth",))]
    for number, (size, flags) in enumerate(cases):
        name = f"live{number}"
        process = bench.run(name, 60, LIVE_PACE, LIVE_S + 12)
        with bench.kbtui(size, "attach", name, *flags) as program:
            program.until(b"live")
            program.for_(3.0)
            spent = program.processor_s()
            sent = program.for_(LIVE_S)
            share = (program.processor_s() - spent) / LIVE_S
        process.kill()
        process.wait()
        budget = "" if flags else "4 KB/s" if size == SIZES[0] else "10 KB/s"
        what = f"live run, {size[0]}x{size[1]}{' '.join(('', *flags))}"
        rows.append((what, budget, f"{sent / LIVE_S / 1e3:.1f} KB/s", f"{share:.1%} of a processor"))
    return rows


def burst(bench: Bench) -> list[Row]:
    """Keys pressed while 1,000 events come per second: the longest wait for an answer is a stall, seen from outside."""
    process = bench.run("burst", 60, BURST_PACE, BURST_S + 4)
    waits: list[float] = []
    with bench.kbtui((80, 24), "attach", "burst") as program:
        program.until(b"live")
        program.press(b"g")
        end = time.monotonic() + BURST_S
        while time.monotonic() < end:
            waits.append(_first_byte(program, b"j" if len(waits) % 2 else b"k"))
            program.take(0.05)
    process.kill()
    process.wait()
    waits.sort()
    return [
        (
            "burst, 1,000 events/s",
            "no stall over 100 ms",
            f"longest {waits[-1] * 1e3:.0f} ms",
            f"p95 {_p95(waits):.0f} ms, {len(waits)} keys",
        )
    ]


def _first_byte(program: Program, key: bytes) -> float:
    while program.take(0.0):
        pass
    start = time.monotonic()
    program.press(key)
    program.take(5.0)
    return time.monotonic() - start


def stalled(bench: Bench) -> list[Row]:
    """The terminal reads nothing for a minute: the run goes on, the cockpit stays small and answers soon after."""
    process = bench.run("stalled", 60, LIVE_PACE, STALL_S + 30)
    journal = Path(bench.environment["KBTUI_HOME"]) / "runs" / "stalled" / "journal.jsonl"
    with bench.kbtui((200, 50), "attach", "stalled") as program:
        program.until(b"live")
        program.for_(3.0)
        memory, spent, size = program.memory_mb(), program.processor_s(), journal.stat().st_size
        time.sleep(STALL_S)
        grown, used, written = (
            program.memory_mb() - memory,
            program.processor_s() - spent,
            journal.stat().st_size - size,
        )
        start = time.monotonic()
        program.settle(0.1, 5.0)
        caught = time.monotonic() - start
        wait = program.answer(b"j")
    process.kill()
    process.wait()
    return [(
        "a terminal that reads nothing for 60 s", "no harm", f"the run wrote {written / 1e6:.1f} MB meanwhile",
        f"cockpit: +{grown:.0f} MB, {used / STALL_S:.1%} processor, quiet after {caught:.1f} s, next key {wait * 1e3:.0f} ms",
    )]  # fmt: skip


def _ms(values: list[float]) -> float:
    return statistics.median(values) * 1e3


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)] * 1e3


def table(rows: list[Row]) -> str:
    """A Markdown table."""
    lines = ["| what | budget | measured | remark |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harlequin", help="the harlequin program of another environment, as the yardstick")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="one part: paint, key, rest, live, burst or stall")
    parser.add_argument("--write", type=Path, help="write the table into this file, too")
    chosen = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="kbtui-bench-") as folder:
        bench = Bench(Path(folder))
        bench.run("many", CANDIDATES).wait()
        parts: dict[str, Callable[[], list[Row]]] = {
            "paint": lambda: first_paint(bench, chosen.rounds, chosen.harlequin),
            "key": lambda: key_to_paint(bench),
            "rest": lambda: at_rest(bench, chosen.harlequin),
            "live": lambda: live(bench),
            "burst": lambda: burst(bench),
            "stall": lambda: stalled(bench),
        }
        load = os.getloadavg()[0]
        for name, part in parts.items():
            if chosen.only in (None, name):
                fresh = part()
                rows += fresh
                print("\n".join(" | ".join(row) for row in fresh), file=sys.stderr, flush=True)
        machine = (
            f"{os.cpu_count()} cores shared with other work (load {load:.1f} at first, {os.getloadavg()[0]:.1f} at last), "
            f"Python {platform.python_version()}, Textual {metadata.version('textual')}."
        )
    text = f"{machine}\n\n{table(rows)}\n"
    print(text)
    if chosen.write:
        chosen.write.write_text(f"# The cockpit, from outside\n\nMade by `python benchmarks/tui.py`.\n\n{text}")


if __name__ == "__main__":
    main()
