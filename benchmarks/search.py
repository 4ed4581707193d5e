"""What a search finds on each problem, by itself and beside what one would do without kbtui.

    python benchmarks/search.py --device cuda:0 --save search-h200            # the ten bundled problems, 20 pulls each
    python benchmarks/search.py vector_add softmax --device cpu --pulls 5     # modelled: estimates, and no comparison

For each problem one run of the `rewrite` generator, judged as any run is. "correct" and "faster" are shares of the versions
made (on a `cpu` lane "not worse", an estimate). "best" is the speedup of the run's best over the problem's own kernel by the
run's objective, 1.00 where nothing was found; a geometric mean over all problems follows. Dollars are 0: no model is asked.

On a `cuda` lane two rivals are timed by the same judge, against the same kernel, on the same cases:

- torch.compile: the problem's reference under inductor's defaults, as `kbtui bench --method torch-compile` times it
  (mode "max-autotune" would take minutes a case);
- autotune: the problem's kernel under `triton.autotune` over warps and stages, with its sizes as they are. What the search may
  change beyond that (sizes with their grid, loops) an autotuner cannot without a person's rewriting of the wrapper.

A rival that fails is shown with its reason and counts as 1.00 in the means, since one would keep the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from kbtui import paths
from kbtui.engine.engine import Engine
from kbtui.engine.run_process import default_parts
from kbtui.engine.spec import RunSpec
from kbtui.errors import KbtuiError
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.reference import ReferenceLane
from kbtui.generate.tree.module import KernelModule
from kbtui.history.journal import read_journal
from kbtui.problems.folder import ProblemFolder, find_problem
from kbtui.state.records import BASELINE_ID, Timing, Verification
from kbtui.state.run_state import RunState

HERE = Path(__file__).parent
BUNDLED = (
    "vector_add", "softmax", "rms_norm", "layer_norm", "cross_entropy", "swiglu", "rope", "matmul", "attention",
    "int8_matmul",
)  # fmt: skip
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Rival:
    """`speedup` over the problem's kernel, None where `failed` says why there is none."""

    name: str
    speedup: float | None = None
    seconds: float = 0.0
    failed: str = ""


@dataclass
class Row:
    problem: str
    timing: str
    pulls: int
    made: int
    correct: int
    faster: int
    best: float
    seconds: float
    stopped_by: str
    move: str
    rivals: list[Rival] = field(default_factory=list)


def search(problem: ProblemFolder, arguments: argparse.Namespace) -> Row:
    """One run, from its start to its end; its journal is gone with the temporary home. Raises KbtuiError."""
    parameters = dict(pair.split("=", 1) for pair in arguments.policy_parameter)
    spec = RunSpec(
        problem=str(problem.path), policy=arguments.policy, policy_parameters=parameters, iterations=arguments.pulls,
        device=arguments.device, target=arguments.target, python=arguments.python, seed=arguments.seed,
        parallel=arguments.parallel, speed_of_light=None, run_id=f"{problem.name.replace('_', '-')}-{arguments.seed}",
    )  # fmt: skip
    began = time.perf_counter()
    asyncio.run(Engine(spec, default_parts(), attended=False).run(lambda _: None, lambda: None))
    seconds = time.perf_counter() - began
    state = RunState().apply_all(read_journal(paths.journal_file(spec.run_id)))
    made = [one for one in state.candidates.values() if one.id != BASELINE_ID]
    won = [one for one in made if one.timing is not None and one.timing.verdict in ("faster", "not worse")]
    assert state.best is not None, "a run that ends without an error has a best"
    return Row(
        problem.name, state.started.timing if state.started is not None else "", state.pulls_ended, len(made),
        sum(one.correct for one in made), sum(one.correct for one in won),
        state.best.ratio or state.best.estimate or 1.0, seconds, state.stopped_by,
        f"#{state.best.id} {state.best.move}",
    )  # fmt: skip


# ------------------------------------------------------------ rivals, on a cuda lane


def rivals(problem: ProblemFolder, arguments: argparse.Namespace) -> list[Rival]:
    """Both, timed by one lane against the problem's kernel. Raises KbtuiError."""
    with tempfile.TemporaryDirectory() as scratch:
        spec = LaneSpec(
            problem=problem.path, device=arguments.device, target=arguments.target, python=arguments.python,
            scratch=Path(scratch) / "lane", seed=arguments.seed, deadline_s=600.0,
        )  # fmt: skip
        lane = ReferenceLane(spec)
        try:
            lane.start()
            baseline = lane.baseline(_quiet)
            return [torch_compiled(lane, baseline), tuned(lane, problem, baseline)]
        finally:
            lane.close()


def torch_compiled(lane: ReferenceLane, baseline: Timing) -> Rival:
    began = time.perf_counter()
    found = lane.time_reference(baseline, _quiet)
    return rival("torch.compile", found.verification, found.timing, began)


def tuned(lane: ReferenceLane, problem: ProblemFolder, baseline: Timing) -> Rival:
    source = autotuned(problem)
    if source is None:
        return Rival("autotune", failed="no launch that it could tune")
    began = time.perf_counter()
    compilation = lane.compile(source, _quiet)
    kernels = compilation.kernels if compilation.ok else ()
    verified = lane.verify(source, kernels, _quiet)
    timing = None
    if verified.verdict == "correct":
        timing = lane.time(source, kernels, baseline, problem.kernel_source, None, _quiet).timing
    return rival("autotune", verified, timing, began)


def rival(name: str, verified: Verification, timing: Timing | None, began: float) -> Rival:
    if verified.verdict != "correct" or timing is None:
        return Rival(name, failed=f"{verified.verdict}: {verified.reason}")
    return Rival(name, timing.ratio, time.perf_counter() - began, "" if timing.ratio is not None else "no time")


def autotuned(problem: ProblemFolder) -> str | None:
    """The kernel under `triton.autotune` over `WARPS` and `STAGES`, tuned anew for each case; None where it is tuned already
    or nothing is launched."""
    module = KernelModule(problem.kernel_source, problem.entry)
    kernels = [kernel for kernel in module.launched if not kernel.tuned]
    if not kernels:
        return None
    listed = ", ".join(f"_triton.Config({{}}, num_warps={w}, num_stages={s})" for w in WARPS for s in STAGES)
    edits = {}
    for kernel in kernels:
        keys = [name for name in kernel.parameters if name not in kernel.constexprs and not name.endswith("_ptr")]
        head = cst.Decorator(cst.parse_expression(f"_triton.autotune(configs=[{listed}], key={keys!r})"))
        edits[kernel.node] = lambda node, head=head: node.with_changes(decorators=[head, *node.decorators])
        for launch in module.launches_of(kernel):
            edits[launch.call] = _without_options
    body = module.rewritten(edits)
    return f"import triton as _triton\n{body}" if "__future__" not in body else None


def _without_options(call: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(call, cst.Call)
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value not in ("num_warps", "num_stages")]
    return call.with_changes(args=kept)


def _quiet(stage: str, text: str) -> None:
    """Nobody watches."""


# ------------------------------------------------------------ the table


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(rows: Sequence[Row]) -> Iterator[str]:
    names = [rival.name for rival in rows[0].rivals]
    modelled = any(row.timing == "modelled" for row in rows)
    won, best = ("not worse", "best (estimate, modelled)") if modelled else ("faster", "best")
    yield "| problem | pulls | correct | " + " | ".join([won, best, *names]) + " | wall s | ended by | best version |"
    yield "| --- | " + " | ".join(["---:"] * (5 + len(names))) + " | --- | --- |"
    for row in rows:
        cells = [
            row.problem, str(row.pulls), _share(row.correct, row.made), _share(row.faster, row.made), f"{row.best:.3f}",
            *(f"{one.speedup:.3f}" if one.speedup is not None else f"– ({one.failed})" for one in row.rivals),
            f"{row.seconds:.0f}", row.stopped_by, row.move,
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"
    made = sum(row.made for row in rows)
    rival = [f"{mean([row.rivals[i].speedup or 1.0 for row in rows]):.3f}" for i in range(len(names))]
    whole = [
        "all", str(sum(row.pulls for row in rows)), _share(sum(row.correct for row in rows), made),
        _share(sum(row.faster for row in rows), made), f"{mean([row.best for row in rows]):.3f}", *rival,
        f"{sum(row.seconds for row in rows):.0f}", "", "",
    ]  # fmt: skip
    yield "| " + " | ".join(whole) + " |"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=list(BUNDLED), help="bundled names or folders; all ten if none")
    parser.add_argument("--device", required=True, help="cuda:N, or cpu for estimates")
    parser.add_argument("--target", default="sm_90", help="what the cpu lane models")
    parser.add_argument("--pulls", type=int, default=20)
    parser.add_argument("--policy", default="ucb")
    parser.add_argument("--policy-parameter", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--no-rivals", action="store_true", help="the searches alone")
    parser.add_argument("--save", help="also write the table to benchmarks/results/NAME.md")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["KBTUI_HOME"] = home
        for name in arguments.problems:
            try:
                problem = find_problem(name)
                row = search(problem, arguments)
                if arguments.device.startswith("cuda") and not arguments.no_rivals:
                    row.rivals = rivals(problem, arguments)
            except KbtuiError as error:
                raise SystemExit(f"{name}: {error}") from None
            print(f"{row.problem}: {row.best:.3f} in {row.seconds:.0f} s", file=sys.stderr, flush=True)
            rows.append(row)
    lines = [
        f"policy {arguments.policy} {' '.join(arguments.policy_parameter)}, {arguments.pulls} pulls, seed {arguments.seed}, "
        f"{arguments.device}, Python {platform.python_version()}; $0.00: no model was asked",
        "",
        *table(rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.save:
        (HERE / "results" / f"{arguments.save}.md").write_text(f"# What a search finds\n\n{text}")


if __name__ == "__main__":
    main()
