"""What is known of device, cases and candidates, as text for a model. Unknown figures are left out, modelled ones say so."""

from __future__ import annotations

import ast
from pathlib import Path

from kbtui import syntax
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Signature,
    Timing,
)
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean_line, redact

MOST_CASES = 24
LONGEST_REASON = 240


def device(info: DeviceInfo) -> str:
    """The device's limits, a line each."""
    lines = [f"- {info.name} ({info.target})"]
    if info.kind == "cpu":
        lines[0] = f"- compiled for {info.target}, as on {info.name}; times are modelled, not measured"
    if info.multiprocessors:
        lines.append(f"- {info.multiprocessors} multiprocessors")
    if info.threads_per_multiprocessor:
        lines.append(f"- {info.threads_per_multiprocessor} threads per multiprocessor at most")
    if info.registers_per_multiprocessor:
        lines.append(f"- {info.registers_per_multiprocessor} registers per multiprocessor")
    if info.shared_limit_bytes:
        lines.append(f"- {info.shared_limit_bytes} bytes of shared memory per program at most")
    if info.l2_bytes:
        lines.append(f"- {info.l2_bytes / 2**20:.0f} MiB of L2")
    if info.peak_bytes_per_s:
        lines.append(f"- {info.peak_bytes_per_s / 1e9:.0f} GB/s of memory bandwidth{_nominal(info)}")
    for kind, rate in sorted(info.peak_ops_per_s.items()):
        lines.append(f"- {rate / 1e12:.1f} T operations/s in {kind}{_nominal(info)}")
    return "\n".join(lines)


def contract(problem: ProblemInfo) -> str:
    """What must stay, and what is free."""
    lines = [
        f"- `{problem.entry}` keeps its name and its parameters, and returns what the reference returns.",
        "- Kernels, helper functions, launch parameters and grids are yours to change; so is the wrapper's own work.",
        "- One Python module; torch for allocation and views only, Triton for the work.",
    ]
    if problem.summary:
        lines.insert(0, f"- {problem.summary}")
    if problem.mutates:
        lines.append(f"- It writes into {', '.join(problem.mutates)}; every other argument stays as it is.")
    if problem.precision != "ieee":
        lines.append(f"- Products may use {problem.precision}.")
    return "\n".join(lines)


def reference(problem: ProblemInfo) -> str:
    """The source of the problem's reference function, as far as it can be read; it is trusted code and no secret."""
    file = Path(problem.path) / "problem.py"
    try:
        source = file.read_text(encoding="utf-8-sig")
        tree = syntax.parse(source)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return "not available"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "reference":
            return f"```python\n{redact(ast.get_source_segment(source, node) or '')}\n```"
    return "not available"


def times(problem: ProblemInfo, timing: Timing | None) -> str:
    """The timed cases, the parent's time for each and how far it is from the speed of light."""
    by_case = {case.case: case for case in timing.cases} if timing is not None else {}
    lines = [_case(info, by_case.get(info.name)) for info in problem.cases[:MOST_CASES]]
    if len(problem.cases) > MOST_CASES:
        lines.append(f"- and {len(problem.cases) - MOST_CASES} more")
    return "\n".join(lines) or "none"


def _case(info: CaseInfo, timed: CaseTiming | None) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in info.fields.items())
    if timed is None:
        return f"- {fields}"
    if timed.failed:
        return f"- {fields}: failed, {_short(timed.failed)}"
    said = [f"- {fields}:"]
    ms = timed.ms if timed.ms is not None else timed.estimate_ms
    if ms is not None:
        said.append(f"{ms * 1000:.1f} µs{' (modelled)' if timed.ms is None else ''}")
        if timed.floor_ms:
            said.append(f"of which {timed.floor_ms * 1000:.1f} µs are the speed of light ({timed.floor_ms / ms:.0%})")
    if timed.bound:
        said.append(f"bound by {timed.bound}")
    return " ".join(said)


def limits(candidate: Candidate) -> str:
    """Resources of the compiled kernels and the hardware signature."""
    lines = [_kernel(kernel) for kernel in _kernels(candidate.compilation)]
    if candidate.signature is not None and (said := _signature(candidate.signature)):
        lines.append(said)
    return "\n".join(lines) or "not known yet"


def _kernels(compilation: Compilation | None) -> list[KernelFacts]:
    """One of each kernel: a kernel that is launched on several grids says the same every time."""
    first: dict[str, KernelFacts] = {}
    for kernel in compilation.kernels if compilation is not None else ():
        first.setdefault(kernel.name, kernel)
    return list(first.values())


def _kernel(kernel: KernelFacts) -> str:
    constants = ", ".join(f"{name}={value}" for name, value in kernel.constants.items())
    spills = f", {kernel.spill_bytes} bytes spilled" if kernel.spill_bytes else ", no spills"
    return (
        f"- `{kernel.name}`: {kernel.registers} registers per thread{spills}, {kernel.shared_bytes} bytes of shared memory, "
        f"occupancy {kernel.occupancy_percent:.0f} %, num_warps {kernel.num_warps}, num_stages {kernel.num_stages}"
        f"{f', {constants}' if constants else ''}"
    )


def _signature(signature: Signature) -> str:
    readings = [("SM", signature.sm), ("DRAM", signature.dram), ("L2", signature.l2)]
    known = [
        f"{name} {reading.percent:.0f} % of peak ({reading.source})"
        for name, reading in readings
        if reading.percent is not None
    ]
    return f"- throughput: {', '.join(known)}" if known else ""


def attempts(state: RunState, parent: Candidate | None) -> list[str]:
    """What was made of a parent and how it ended, newest first; without a parent, of the whole run."""
    made = [c for c in state.candidates.values() if c.pull and (parent is None or c.parent_id == parent.id)]
    return [attempt(candidate) for candidate in sorted(made, key=lambda candidate: -candidate.id)]


def attempt(candidate: Candidate) -> str:
    """One attempt in a line or two: what, how it ended, and what its author said of the failure it answered."""
    said = f"- {candidate.strategy or candidate.generator}, {clean_line(candidate.move, 80)}: {_outcome(candidate)}"
    return f"{said}\n  (cause of the failure before: {_short(candidate.reflection)})" if candidate.reflection else said


def _outcome(candidate: Candidate) -> str:
    if candidate.pruned is not None:
        return f"pruned, {_short(candidate.pruned.reason)}"
    if candidate.compilation is not None and not candidate.compilation.ok:
        return f"{candidate.compilation.outcome}, {_short(candidate.compilation.reason)}"
    verification = candidate.verification
    if verification is not None and verification.verdict != "correct":
        return f"{verification.verdict}, {_short(verification.reason)}"
    timing = candidate.timing
    if timing is None:
        return "still being judged"
    if timing.parent_ratio is not None:
        return f"correct, {timing.parent_ratio:.2f}x the speed of this version"
    if timing.parent_estimate is not None:
        return f"correct, modelled at {timing.parent_estimate:.2f} of this version's speed"
    return f"correct, {timing.verdict}"


def failure(candidate: Candidate) -> tuple[str, str, str]:
    """(verdict, stage, everything that helps to mend it) of a candidate that failed."""
    if candidate.pruned is not None:
        pruned = candidate.pruned
        limit = f" (limit {pruned.limit:g})" if pruned.limit is not None else ""
        return "pruned", pruned.stage, f"{pruned.reason}{limit}"
    compilation = candidate.compilation
    if compilation is not None and not compilation.ok:
        return compilation.outcome, compilation.stage, f"{compilation.reason}\n\n{compilation.detail}".strip()
    verification = candidate.verification
    if verification is None:
        return candidate.status, candidate.stage, "no reason was recorded"
    lines = [verification.reason]
    if verification.worst_case:
        lines.append(f"Worst case: {verification.worst_case}.")
    if verification.first_wrong_index is not None:
        lines.append(f"First wrong index: {list(verification.first_wrong_index)}.")
    if verification.error is not None and verification.allowed is not None:
        lines.append(f"Largest error {verification.error:.3g}, allowed {verification.allowed:.3g}.")
    if verification.detail and verification.detail != verification.reason:
        lines.append(f"\n{verification.detail}")
    return verification.verdict, verification.stage, "\n".join(lines)


def _short(text: str) -> str:
    return clean_line(text, LONGEST_REASON)


def _nominal(info: DeviceInfo) -> str:
    return " (data sheet)" if info.nominal else ""
