"""Claim: each move of the rewrite generator earns its place: it applies, changes the machine code, and stays correct.

    python benchmarks/moves.py                                    the bundled problems, one option a move and problem
    python benchmarks/moves.py --problems softmax matmul --sample 3
    python benchmarks/moves.py --problems --tritonbench PATH      TritonBench-G files of a folder, sites only
    python benchmarks/moves.py --problems --tritonbench PATH --compile 12     twelve of them compiled, options too
    python benchmarks/moves.py --save                             the tables also as a file in benchmarks/results/

Bundled problems are judged by the `cpu` lane: compiled for the target, verified under the interpreter, and modelled. An estimate
is no speedup. What is compiled or verified is drawn at random with a fixed seed; every option is counted.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from tritonbench import Compiler, Suite, read_suite

from kbtui.engine.cascade import launched_code
from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.lane import LaneSpec
from kbtui.generate.moves.move import Move
from kbtui.generate.moves.registry import all_moves
from kbtui.generate.rewrite import Option, RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.problems.folder import bundled, find_problem
from kbtui.state.records import STRATEGIES

RESULTS = Path(__file__).parent / "results"


@dataclass
class Yield:
    """What became of a move's options: how many there are, and of those tried how many did what."""

    options: int = 0
    tried: int = 0
    changed: int = 0
    verified: int = 0
    judged: int = 0
    """Those that the interpreter could say anything about."""
    estimates: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


Table = dict[tuple[str, str], Yield]
"""(move, problem or file) to its yield."""


def options_of(moves: list[Move], module: KernelModule) -> dict[str, list[Option]]:
    """Move to its options; moves without one are left out."""
    found = {m.name: RewriteGenerator([m]).options(module, m.strategy) for m in moves}
    return {name: options for name, options in found.items() if options}


def drawn(options: list[Option], most: int, seed: int) -> list[Option]:
    order = np.random.default_rng([seed, len(options)]).permutation(len(options))
    return [options[i] for i in sorted(order[:most])]


# ------------------------------------------------------------ the bundled problems


def judge(problem: str, moves: list[Move], given: argparse.Namespace, table: Table) -> None:
    """One lane for one problem: every move's options counted, some of each compiled, verified and modelled.

    Moves go in random order, so that a problem that runs out of its seconds leaves out other moves than the next.
    """
    seed = given.seed
    folder = find_problem(problem)
    module = KernelModule(folder.kernel_source, folder.entry)
    found = options_of(moves, module)
    scratch = Path(tempfile.mkdtemp(prefix="kbtui-moves-"))
    spec = LaneSpec(
        problem=folder.path, device="cpu", target=given.target, python=sys.executable, scratch=scratch, seed=seed
    )
    lane = CpuLane(spec)
    try:
        lane.start()
        baseline = lane.compile(folder.kernel_source, _quiet)
        timed = lane.time(folder.kernel_source, baseline.kernels, None, "", None, _quiet).timing
        ends = time.monotonic() + given.seconds
        for name, options in found.items():
            table[name, problem].options = len(options)
        for index in np.random.default_rng([seed, len(problem)]).permutation(len(found)):
            name, options = list(found.items())[index]
            row = table[name, problem]
            for option in drawn(options, given.sample, seed):
                if time.monotonic() > ends:
                    break
                source = option.move.apply(module, option.site)
                row.tried += 1
                compiled = lane.compile(source, _quiet)
                if not compiled.ok:
                    row.failures.append(f"{problem}, {name}, {option.title}: {compiled.reason}")
                    continue
                row.changed += launched_code(compiled.kernels) != launched_code(baseline.kernels)
                verdict = lane.verify(source, compiled.kernels, _quiet)
                row.judged += verdict.verdict != "unknown"
                row.verified += verdict.verdict == "correct"
                if verdict.verdict != "correct":
                    row.failures.append(f"{problem}, {name}, {option.title}: {verdict.verdict}, {verdict.reason}")
                    continue
                estimate = lane.time(source, compiled.kernels, timed, "", timed, _quiet).timing.estimate
                if estimate is not None:
                    row.estimates.append(estimate)
            print(f"  {problem}: {name}", file=sys.stderr, flush=True)
    finally:
        lane.close()


def _quiet(stage: str, text: str) -> None:
    """Progress of one candidate is not what this table is about."""
    del stage, text


# ------------------------------------------------------------ TritonBench-G


def read_sites(suites: list[Suite], moves: list[Move], table: Table) -> None:
    """Every file: how many options each move has on it, over the entries its test code names."""
    for suite in suites:
        for entry in suite.entries:
            for name, options in options_of(moves, KernelModule(suite.implementation, entry)).items():
                row = table[name, suite.name]
                row.options = max(row.options, len(options))


def compile_files(
    suites: list[Suite], moves: list[Move], count: int, compiler: Compiler, seed: int, table: Table
) -> int:
    """`count` files drawn at random, one option of each move compiled; how many of them compile unchanged."""
    order = np.random.default_rng(seed).permutation(len(suites))
    compiles = 0
    for suite in [suites[i] for i in sorted(order[:count])]:
        before = compiler.launches(suite.implementation, suite.test)
        print(f"  {suite.name}: {before.failure or 'compiles'}", file=sys.stderr, flush=True)
        if not before.code or before.failure:
            continue
        compiles += 1
        for name, option, module in _one_each(suite, moves, seed):
            row = table[name, suite.name]
            after = compiler.launches(option.move.apply(module, option.site), suite.test)
            row.tried += 1
            row.changed += not after.failure and after.code != before.code
            if after.failure:
                row.failures.append(f"{suite.name}, {name}, {option.title}: {after.failure}")
    return compiles


def _one_each(suite: Suite, moves: list[Move], seed: int) -> Iterator[tuple[str, Option, KernelModule]]:
    done: set[str] = set()
    for entry in suite.entries:
        module = KernelModule(suite.implementation, entry)
        for name, options in options_of(moves, module).items():
            if name not in done:
                done.add(name)
                yield name, drawn(options, 1, seed)[0], module


# ------------------------------------------------------------ tables


def bundled_table(moves: list[Move], problems: list[str], table: Table) -> Iterator[str]:
    yield "| move | strategy | problems | options | tried | machine code changed | verified | estimate, modelled (least, most) |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for move in moves:
        rows = [table[move.name, p] for p in problems if (move.name, p) in table]
        estimates = [e for row in rows for e in row.estimates]
        span = f"{min(estimates):.2f}, {max(estimates):.2f}" if estimates else ""
        changed, verified, tried = (sum(getattr(row, f) for row in rows) for f in ("changed", "verified", "tried"))
        judged, options = sum(row.judged for row in rows), sum(row.options for row in rows)
        cells = (move.name, move.strategy, len(rows), options, tried, changed, f"{verified} of {judged}", span)
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield f"| strategy | problems with a move, of {len(problems)} | without |"
    yield "| --- | --- | --- |"
    for strategy in STRATEGIES:
        names = {move.name for move in moves if move.strategy == strategy}
        having = [p for p in problems if any((name, p) in table for name in names)]
        yield f"| {strategy} | {len(having)} | {', '.join(p for p in problems if p not in having)} |"


def suite_table(moves: list[Move], suites: list[Suite], table: Table) -> Iterator[str]:
    yield f"| move | kind | files, of {len(suites)} | options | compiled | machine code changed | failed |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    by_move: dict[str, list[tuple[str, Yield]]] = defaultdict(list)
    for (name, file), row in table.items():
        by_move[name].append((file, row))
    for move in moves:
        rows = [row for _, row in by_move[move.name]]
        totals = [sum(getattr(row, f) for row in rows) for f in ("options", "tried", "changed")]
        cells = (move.name, move.kind, len(rows), *totals, sum(len(row.failures) for row in rows))
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    groups = {
        "any parameter move": {m.name for m in moves if m.kind == "parameter"},
        "block size, warps or stages": {
            "block_size",
            "computed_block",
            "fewer_warps",
            "more_warps",
            "launch_stages",
            "loop_stages",
        },
        "block size": {"block_size", "computed_block"},
        "block size, or a row or a grid in pieces": {"block_size", "computed_block", "looped_row", "tiles_per_program"},
        "any structural move": {m.name for m in moves if m.kind == "structural"},
    }
    yield f"| at least one option of | files, of {len(suites)} | % |"
    yield "| --- | --- | --- |"
    for label, names in groups.items():
        files = {file for name in names for file, _ in by_move[name]}
        yield f"| {label} | {len(files)} | {100 * len(files) / max(1, len(suites)):.0f} |"


def failures_of(table: Table) -> Iterator[str]:
    found = [text for row in table.values() for text in row.failures]
    if found:
        yield ""
        yield "Not correct, or not compiled:"
        yield ""
        yield from (f"- {' '.join(text.split())[:200]}" for text in found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--problems", nargs="*", default=bundled(), help="bundled names or paths; none: leave them out"
    )
    options.add_argument("--tritonbench", type=Path, help="the folder with the suite's .py files")
    options.add_argument("--sample", type=int, default=1, help="options of a move and problem that are judged")
    options.add_argument("--seconds", type=float, default=120.0, help="for judging options of one problem")
    options.add_argument("--compile", type=int, default=0, help="files of the suite that are compiled")
    options.add_argument("--deadline", type=float, default=30.0, help="seconds for one run of a file's test code")
    options.add_argument("--target", default="sm_90")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--save", action="store_true", help="write the tables to benchmarks/results/ too")
    given = options.parse_args()
    lines = list(report(given))
    print("\n".join(lines))
    if given.save:
        (RESULTS / f"moves-{given.target}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(given: argparse.Namespace) -> Iterator[str]:
    moves = all_moves()
    began = time.monotonic()
    versions = ", ".join(f"{name} {version(name)}" for name in ("triton", "torch", "libcst"))
    setting = f"Python {platform.python_version()}, {versions}; target {given.target}, no GPU, seed {given.seed}"
    yield f"# Yield of the moves\n\n{setting}"
    if given.problems:
        table: Table = defaultdict(Yield)
        for problem in given.problems:
            judge(problem, moves, given, table)
        yield f"\n## Bundled problems, at most {given.sample} option(s) of a move and {given.seconds:g} s judged\n"
        yield from bundled_table(moves, given.problems, table)
        yield from failures_of(table)
    if given.tritonbench is not None:
        table, suites = defaultdict(Yield), read_suite(given.tritonbench)
        read_sites(suites, moves, table)
        compiles = 0
        if given.compile:
            compiler = Compiler(given.target, given.deadline)
            compiles = compile_files(suites, moves, given.compile, compiler, given.seed, table)
        yield f"\n## TritonBench-G: {len(suites)} files read, {compiles} of {given.compile} drawn compile as they are\n"
        yield from suite_table(moves, suites, table)
        yield from failures_of(table)
    yield f"\n{time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    main()
