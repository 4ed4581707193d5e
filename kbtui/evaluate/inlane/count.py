"""Job "count": what the timed cases move and compute, from a few programs of each launch under the interpreter.

Four programs, spread over every axis of the grid, are run to the end (with shortened loops) and their mean stands for
the grid; the first programs in launch order, a wave of them, are run up to their first accesses to see how much of
what they touch they share. Times nothing and computes no value.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
from triton.runtime import interpreter

from kbtui.evaluate.inlane import counting, tally
from kbtui.evaluate.inlane.capture import forget_tuning, replace_benchmarks
from kbtui.evaluate.inlane.pretend import pretending
from kbtui.evaluate.inlane.stub import Recorder, StubDriver

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext

_STRATA = ((1, 5, 3), (3, 1, 7), (5, 7, 1), (7, 3, 5))
"""Sampled programs, in eighths of each axis: every quarter of every axis once, so that work which grows along an axis
(a causal mask) is averaged right and a masked tail does not weigh more than it is worth."""
_WAVE_SHARE = 0.5
"""Share of a case's work that may go to seeing what a wave shares."""
MOST_WORK = 400_000_000
"""Work of all cases together, as `counting.Meter` measures it: two to four seconds on one core."""


@dataclass(frozen=True)
class Counted:
    """One launch as it was counted; `reply` is its JSON form."""

    tuning: bool
    reply: dict[str, Any]


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: those of "compile", and `most_work` (for all cases together, default MOST_WORK).

    Reply: `cases`, for each timed case {"launches": [...], "failed": ""}; a launch is a list of choices (one unless
    autotuned) as `_summary` makes them. A case that the interpreter cannot run, or with too much work, has its reason in
    `failed`: that is nobody's fault.
    """
    capability = (int(ctx.parameters["capability"][0]), int(ctx.parameters["capability"][1]))
    properties = ctx.parameters["properties"]
    recorder = Recorder()
    triton.runtime.driver.set_active(StubDriver(recorder, properties, capability))
    replace_benchmarks(recorder)
    meter = counting.install()
    launches: list[Counted] = []
    count = int(ctx.parameters["cases"])
    most = int(ctx.parameters.get("most_work", MOST_WORK))
    interpreter.GridExecutor = _executor(meter, recorder, launches, properties)
    cases = []
    with pretending(properties, capability), np.errstate(all="ignore"):
        entry = ctx.load()
        for case in range(count):
            ctx.say("count", f"case {case + 1}")
            forget_tuning(ctx.module)
            launches.clear()
            # What earlier cases left over is shared by those to come.
            meter.allowed = meter.spent + max(1, (most - meter.spent) // (count - case))
            cases.append({"failed": _call(entry, ctx.shaped_inputs(case)), "launches": _grouped(launches)})
    return {"cases": cases}


def _call(entry: Any, inputs: tuple[Any, ...]) -> str:
    """Run the wrapper; "" or why the case could not be counted."""
    try:
        entry(*inputs)
    except Exception as error:  # noqa: BLE001  candidate and interpreter may raise anything; each is a reason
        if _caused_by(error, counting.TooMuchWork):
            return "too much work for the interpreter"
        return f"the interpreter could not run it: {type(error).__name__}: {error}"[:500]
    return ""


def _caused_by(error: BaseException | None, kind: type[Exception]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _grouped(launches: list[Counted]) -> list[list[dict[str, Any]]]:
    """Launches in order; what an autotuner tried is the choice of the launch that follows it."""
    groups: list[list[dict[str, Any]]] = []
    tried: list[dict[str, Any]] = []
    for launch in launches:
        if launch.tuning:
            tried.append(launch.reply)
            continue
        groups.append(tried or [launch.reply])
        tried = []
    return groups


def _executor(meter: counting.Meter, recorder: Recorder, launches: list[Counted], properties: dict[str, Any]) -> type:
    class SampledGrid(interpreter.GridExecutor):  # type: ignore[misc]  # triton has no type stubs
        """A launch that runs few of its programs. Arguments stay where they are: nothing is computed."""

        def __call__(self, *args: Any, **kwargs: Any) -> None:
            accepted = inspect.getfullargspec(self.fn)
            named = {key: value for key, value in kwargs.items() if key in accepted.args + accepted.kwonlyargs}
            for hook in self.pre_run_hooks:
                hook(*args, **named)
            bound = inspect.getcallargs(self.fn, *args, **named)
            grid = self.grid(bound) if callable(self.grid) else self.grid
            sizes = tuple(int(size) for size in (*grid, 1, 1)[:3])
            scope = interpreter._patch_lang(self.fn)
            try:
                meter.tensors = _spans(bound.values())
                converted = {
                    name: value if name in self.constexprs else interpreter._implicit_cvt(value)
                    for name, value in bound.items()
                }
                full = _spread(meter, sizes, lambda: self.fn(**converted))
                shared = []
                if _sharing_matters(meter.tensors, full, sizes, int(properties["l2_bytes"])):
                    wave = int(properties["multiprocessor_count"])
                    shared = _wave(meter, sizes, wave, lambda: self.fn(**converted))
            finally:
                meter.program = None
                scope.restore()
            constants = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in bound.items()
                if name in self.constexprs
            }
            reply = _summary(self.fn.__name__, constants, kwargs.get("num_warps"), sizes, meter, full, shared)
            launches.append(Counted(recorder.tuning, reply))

    return SampledGrid


def _spans(values: Any) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for value in values:
        holder = getattr(value, "base", value)
        if hasattr(holder, "untyped_storage"):
            storage = holder.untyped_storage()
            span = (int(storage.data_ptr()), int(storage.data_ptr()) + int(storage.nbytes()))
            if span not in spans:
                spans.append(span)
    return spans


def _spread(meter: counting.Meter, grid: tuple[int, ...], program: Any) -> list[tally.Program]:
    """Programs from all over the grid, run to the end."""
    interpreter.interpreter_builder.set_grid_dim(*grid)
    places = [tuple(size * part // 8 for size, part in zip(grid, parts, strict=True)) for parts in _STRATA]
    return [_one(meter, place, program) for place in dict.fromkeys(places)]


def _sharing_matters(
    spans: list[tuple[int, int]], full: list[tally.Program], grid: tuple[int, ...], l2_bytes: int
) -> bool:
    """Whether programs load the same data and there is too much of it to stay in the L2 cache anyway."""
    programs = grid[0] * grid[1] * grid[2]
    shared = 0
    for index, (first, end) in enumerate(spans):
        loaded = _mean([_loaded(program, index) for program in full]) * programs
        if loaded > 1.05 * (end - first):
            shared += end - first
    return shared > l2_bytes // 2


def _loaded(program: tally.Program, tensor: int) -> float:
    """Bytes of sectors that a program loads from a tensor, each counted once."""
    return sum(
        access.new_bytes * access.weight for access in program.accesses if access.tensor == tensor and not access.store
    )


def _wave(meter: counting.Meter, grid: tuple[int, ...], wave: int, program: Any) -> list[tally.Program]:
    """The first programs in launch order, run to their first accesses; as many as its share of work allows, at most `wave`."""
    limit = meter.spent + (meter.allowed - meter.spent) * _WAVE_SHARE
    seen: list[tally.Program] = []
    for index in range(min(grid[0] * grid[1] * grid[2], wave)):
        if seen and meter.spent > limit:
            break
        place = (index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1]))
        seen.append(_one(meter, place, program, first_accesses_only=True))
    return seen


def _one(
    meter: counting.Meter, place: tuple[int, ...], program: Any, *, first_accesses_only: bool = False
) -> tally.Program:
    interpreter.interpreter_builder.set_grid_idx(*place)
    meter.program = tally.Program()
    meter.first_accesses_only = first_accesses_only
    try:
        program()
    except counting.Stop:
        pass
    except Exception as error:
        # Device functions called by the kernel wrap what they raise.
        if not _caused_by(error, counting.Stop):
            raise
    return meter.program


def _summary(
    name: str,
    constants: dict[str, Any],
    num_warps: Any,
    grid: tuple[int, ...],
    meter: counting.Meter,
    full: list[tally.Program],
    shared: list[tally.Program],
) -> dict[str, Any]:
    """The JSON form of one launch. All numbers but those of a wave are means per program.

    `tensors`: for each argument its size and the bytes of sectors loaded and stored, those touched again, and
    `distinct`, the share that is left when the `wave` programs' loads are merged (1.0: nothing shared).
    """
    return {
        "name": name,
        "constants": constants,
        "num_warps": int(num_warps) if num_warps is not None else 0,
        "grid": list(grid),
        "sampled": len(full),
        "wave": len(shared),
        "tensors": [_tensor(meter.tensors, index, full, shared) for index in range(-1, len(meter.tensors))],
        "tiles": _tiles(full),
        "simple": _mean([program.simple for program in full]),
        "special": _mean([program.special for program in full]),
        "reduced": _mean([program.reduced for program in full]),
        "barriers": _mean([program.barriers for program in full]),
        "phases": _mean([program.phases for program in full]),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _tensor(
    spans: list[tuple[int, int]], index: int, full: list[tally.Program], shared: list[tally.Program]
) -> dict[str, Any]:
    def mean(store: bool, read: Any) -> float:
        return _mean([
            sum(read(access) * access.weight for access in program.accesses if access.tensor == index and access.store == store)
            for program in full
        ])  # fmt: skip

    return {
        "bytes": spans[index][1] - spans[index][0] if index >= 0 else 0,
        "asked": mean(False, lambda access: access.asked_bytes) + mean(True, lambda access: access.asked_bytes),
        "lanes": mean(False, lambda access: access.lanes) + mean(True, lambda access: access.lanes),
        "loaded": mean(False, lambda access: access.new_bytes),
        "loaded_again": mean(False, lambda access: tally.size(access.runs) - access.new_bytes),
        "stored": mean(True, lambda access: tally.size(access.runs)),
        "distinct": _distinct(index, shared),
    }


def _distinct(index: int, shared: list[tally.Program]) -> float:
    """Distinct over summed bytes of the loads of a wave; of the stores where it loads nothing from this tensor."""
    for store in (False, True):
        pieces = [
            tally.union(
                [access.runs for access in program.accesses if access.tensor == index and access.store == store]
            )
            for program in shared
        ]
        total = sum(tally.size(piece) for piece in pieces)
        if total:
            return tally.size(tally.union(pieces)) / total
    return 1.0


def _tiles(full: list[tally.Program]) -> list[dict[str, Any]]:
    times: dict[tally.Tile, float] = {}
    for program in full:
        for tile, count in program.tiles.items():
            times[tile] = times.get(tile, 0.0) + count / len(full)
    return [
        {"dtype": tile.dtype, "m": tile.m, "n": tile.n, "k": tile.k, "item_bytes": tile.item_bytes, "times": count}
        for tile, count in sorted(times.items())
    ]
