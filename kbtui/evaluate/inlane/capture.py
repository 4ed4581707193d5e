"""Job "compile": compiles every kernel that the timed cases launch, for a target and without a device.

The candidate's entry is called once per timed case with tensors of the right dtypes, shapes and strides. Whatever it
does to reach a kernel (lambdas as grids, heuristics, an autotuner, a wrapper class), the launch ends in the recording
driver, which knows the compiled object, its constants, its options and the grid. An autotuner tries all configurations,
and all are reported as choices of that launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kbtui.evaluate.inlane import cubin, ptx
from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.compile_faults import fault
from kbtui.evaluate.inlane.digests import code_digest
from kbtui.evaluate.inlane.faults import CALL, COMPILE
from kbtui.evaluate.inlane.integrity import Integrity, refuse_tampering
from kbtui.evaluate.inlane.pretend import pretending
from kbtui.evaluate.inlane.stub import Launch, Recorder, StubDriver
from kbtui.evaluate.inlane.tensors import arguments_from

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: `capability` [major, minor], `properties` (facts.target_properties), `cases` (how many timed cases).

    Reply: `kernels`, a list of compiled kernels, and `cases`, for each case its launches in order, each a list of
    choices {"kernel": index, "grid": [x, y, z]} (one choice unless autotuned).
    Raises CandidateFault: "invalid" when a kernel does not compile or needs more than the target has, "crash" when the
    wrapper raises, "cheat" when a case launches no Triton kernel or the candidate works on what surrounds it.
    """
    recorder = Recorder()
    widths = _listen_for_ptx()
    _announce_compiling(ctx)
    with _compiling(ctx, recorder) as guard:
        entry = ctx.load()
        refuse_tampering(guard, "load")
        cases = []
        for case in range(int(ctx.parameters["cases"])):
            ctx.say(COMPILE, f"case {case + 1}")
            forget_tuning(ctx.module)
            first = len(recorder.launches)
            inputs = ctx.empty_inputs(case)
            ctx.say(CALL)
            try:
                _call(entry, inputs)
            finally:
                refuse_tampering(guard, "compiling")
            cases.append(_launches(recorder.launches[first:]))
            if not cases[-1]:
                raise CandidateFault("cheat", COMPILE, "no Triton kernel was launched")
    return _reply(cases, widths)


def warm(ctx: JobContext) -> dict[str, Any]:
    """Compile what further calls launch, for Triton's cache alone: whoever runs them on the device finds them compiled.

    Parameters: `capability` and `properties` as of `run`, and `calls`, for each call the descriptions of its arguments (as
    `JobContext.describe_inputs`). Asks nothing, so that several such jobs need nobody between them. Reply: {"calls": those
    that came to an end}; one that raises is left to whoever judges it. Raises CandidateFault("cheat") as `run` does.
    """
    recorder = Recorder()
    done = 0
    with _compiling(ctx, recorder) as guard:
        entry = ctx.load()
        refuse_tampering(guard, "load")
        for arguments in ctx.parameters["calls"]:
            with contextlib.suppress(Exception):  # the candidate's, and judged where it is run
                _call(entry, arguments_from(arguments, (), 0, ctx.device))
                done += 1
            refuse_tampering(guard, "compiling")
    return {"calls": done}


@contextlib.contextmanager
def _compiling(ctx: JobContext, recorder: Recorder) -> Iterator[Integrity]:
    """Within the block launches compile for the order's target and are recorded. The guard holds everything in place as it is
    there: what stands in for torch's devices and Triton's driver is ours."""
    capability = (int(ctx.parameters["capability"][0]), int(ctx.parameters["capability"][1]))
    properties = ctx.parameters["properties"]
    driver = StubDriver(recorder, properties, capability, build_launchers=bool(ctx.parameters.get("build_launchers")))
    triton.runtime.driver.set_active(driver)
    replace_benchmarks(recorder)
    guard = Integrity(ctx.folder / "kernel.py", (JITFunction,))
    with pretending(properties, capability):
        guard.renew()
        yield guard


def _announce_compiling(ctx: JobContext) -> None:
    """Say when Triton's compiler begins and ends, for whoever has to tell where a process died. For good."""
    compiler: Any = triton.compiler
    original = compiler.compile

    def compiling(*args: Any, **kwargs: Any) -> Any:
        ctx.say(COMPILE)
        try:
            return original(*args, **kwargs)
        finally:
            ctx.say(CALL)

    compiler.compile = compiling


def replace_benchmarks(recorder: Recorder) -> None:
    """Autotuners that were given a benchmark of their own call these; none of them may want a device."""
    from triton import testing

    testing.do_bench = recorder.benchmark
    testing.do_bench_cudagraph = recorder.benchmark


def autotuners(module: ModuleType) -> Iterator[Any]:
    """Every autotuner among a module's globals, also below `heuristics`."""
    for value in vars(module).values():
        layer = value
        while layer is not None and not isinstance(layer, ModuleType | type):
            if isinstance(layer, Autotuner):
                yield layer
            layer = getattr(layer, "fn", None)


def forget_tuning(module: ModuleType) -> None:
    """Make autotuners try all configurations again, so that each case shows its choices."""
    for tuner in autotuners(module):
        tuner.cache.clear()


def _call(entry: Any, inputs: tuple[Any, ...]) -> None:
    try:
        entry(*inputs)
    except (CandidateFault, cubin.MalformedCubin):
        raise
    except BaseException as error:
        # The candidate may raise anything, SystemExit too, and all of it is the candidate's.
        raise fault(error) from error


def _listen_for_ptx() -> dict[str, float]:
    """Fill a table, digest of the cubin -> access width, whenever Triton loads a kernel; empty on a Triton without the hook."""
    widths: dict[str, float] = {}
    runtime: Any = getattr(getattr(triton, "knobs", None), "runtime", None)
    if not hasattr(runtime, "kernel_load_start_hook"):
        return widths

    def loading(module: Any, function: Any, name: str, group: dict[str, str], digest: str) -> None:
        del module, function, digest
        with open(group[f"{name[:150]}.ptx"], encoding="utf-8", errors="replace") as text:
            width = ptx.access_bytes(text.read())
        with open(group[f"{name[:150]}.cubin"], "rb") as binary:
            widths[cubin.read(binary.read(), name).digest] = width

    runtime.kernel_load_start_hook = loading
    return widths


def _launches(launches: list[Launch]) -> list[list[Launch]]:
    """Groups of choices in launch order: what an autotuner tried goes to the launch that follows it."""
    groups: list[list[Launch]] = []
    tried: list[Launch] = []
    for launch in launches:
        if launch.tuning:
            tried.append(launch)
            continue
        groups.append(tried or [launch])
        tried = []
    return groups


def _reply(cases: list[list[list[Launch]]], widths: dict[str, float]) -> dict[str, Any]:
    kernels: list[dict[str, Any]] = []
    known: dict[int, int] = {}
    reply: list[list[list[dict[str, Any]]]] = []
    for groups in cases:
        reply.append([])
        for group in groups:
            reply[-1].append([])
            for launch in group:
                key = id(launch.binary)
                if key not in known:
                    known[key] = len(kernels)
                    kernels.append({**_facts(launch, widths), "autotuned": len(group) > 1})
                reply[-1][-1].append({"kernel": known[key], "grid": list(launch.grid)})
    return {"kernels": kernels, "cases": reply}


def _facts(launch: Launch, widths: dict[str, float]) -> dict[str, Any]:
    facts = launch.binary.facts
    metadata = launch.metadata
    return {
        "name": launch.binary.name,
        "registers": facts.registers,
        "spill_bytes": facts.frame_bytes,
        "shared_bytes": launch.binary.shared_bytes,
        "num_warps": int(metadata.num_warps),
        "num_stages": int(metadata.num_stages),
        "num_ctas": int(getattr(metadata, "num_ctas", 1)),
        "digest": facts.digest,
        "source": code_digest(launch.source.fn.fn.__code__),
        "constants": _constants(launch.source),
        "access_bytes": widths.get(facts.digest, 0.0),
    }


def _constants(source: Any) -> dict[str, Any]:
    """The constexpr arguments by name; what JSON has no form for, as text. Arguments specialised to 1 are not among them."""
    parameters = source.fn.params
    found: dict[str, Any] = {}
    for path, value in source.constants.items():
        index = source.fn.arg_names.index(path) if isinstance(path, str) else path[0]
        if parameters[index].is_constexpr and (isinstance(path, str) or len(path) == 1):
            found[parameters[index].name] = value if isinstance(value, int | float | str) else str(value)
    return found
