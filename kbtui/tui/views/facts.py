"""What the compiler made of a candidate, its hardware signature, and how it was judged."""

from __future__ import annotations

import textwrap

from kbtui.state.records import KernelFacts, Reading
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean
from kbtui.tui import glyphs as g
from kbtui.tui.line import EMPTY, Line, LineBuilder, crop, text_line
from kbtui.tui.views import numbers as n
from kbtui.tui.views.code import excerpt
from kbtui.tui.views.offence import offending_lines
from kbtui.tui.views.roofline import roofline_lines
from kbtui.tui.views.status import is_suspicious, is_unfinished, verdict_mark

WIDE = 112
"""Columns from which the kernels stand beside what the hardware makes of them."""
KERNELS = 54
"""Columns of the kernels then."""
CASES = 2
"""Cases that are named under each of several kernels."""


def fact_lines(state: RunState, candidate: Candidate, width: int) -> list[Line]:
    """Compiled kernels with the parent's numbers beside them where they differ; signature, roofline, cluster, moves left."""
    kernels = _kernels(state, candidate)
    if width < WIDE:
        return [*kernels, EMPTY, *_hardware(state, candidate, width)]
    beside = _hardware(state, candidate, width - KERNELS)
    lines = []
    for at in range(max(len(kernels), len(beside))):
        out = LineBuilder().extend(crop(kernels[at], KERNELS) if at < len(kernels) else EMPTY).to(KERNELS)
        lines.append(out.extend(beside[at] if at < len(beside) else EMPTY).line())
    return lines


def _kernels(state: RunState, candidate: Candidate) -> list[Line]:
    compiled = candidate.compilation
    parent = state.candidates.get(candidate.parent_id) if candidate.parent_id is not None else None
    before = parent.compilation.kernels if parent is not None and parent.compilation is not None else ()
    if compiled is None:
        return [text_line(" not compiled yet", "dim")]
    if not compiled.ok:
        return [text_line(f" did not compile: {compiled.reason}", "bad")]
    several = len(compiled.kernels) > 1
    return [
        line
        for index, kernel in enumerate(compiled.kernels)
        for line in _kernel(kernel, _counterpart(kernel, before, index), several=several)
    ]


def _counterpart(kernel: KernelFacts, before: tuple[KernelFacts, ...], index: int) -> KernelFacts | None:
    """The parent's kernel of the same name that the same cases launch, else the one in the same place if it has that name."""
    named = [one for one in before if one.name == kernel.name]
    alike = next((one for one in named if kernel.cases and set(one.cases) & set(kernel.cases)), None)
    if alike is not None:
        return alike
    at_place = before[index] if index < len(before) else None
    return at_place if at_place in named else None


def _hardware(state: RunState, candidate: Candidate, width: int) -> list[Line]:
    lines = [text_line(" hardware signature, in % of peak", "label")]
    signature = candidate.signature
    if signature is None:
        lines.append(text_line("   not read yet" if candidate.timing is None else "   not read", "dim"))
    else:
        for name, reading in (("SM", signature.sm), ("DRAM", signature.dram), ("L2", signature.l2)):
            lines.append(_reading(name, reading))
    lines += [EMPTY, *roofline_lines(state, candidate, width)]
    if candidate.cluster is not None:
        lines += [EMPTY, LineBuilder().add(" cluster ", "label").add(f"c{candidate.cluster}", "strong").line()]
    if candidate.moves:
        moves = ", ".join(f"{name} {count}" for name, count in candidate.moves.items())
        parts = textwrap.wrap(f"moves left: {moves}", max(width - 2, 20))
        lines += [EMPTY, *(text_line(f" {part}", "label") for part in parts)]
    return lines


def _kernel(kernel: KernelFacts, before: KernelFacts | None, *, several: bool) -> list[Line]:
    """With `several` the title says what this one was compiled for: kernels of one name differ by that alone."""
    times = f" ×{kernel.launches}" if kernel.launches > 1 else ""
    title = LineBuilder().add(f" {kernel.name}", "strong")
    if several and kernel.constants:
        title.add("".join(f" {name}={value}" for name, value in kernel.constants.items()), "strong")
    lines = [title.add(f"  {kernel.target}{times}", "label").line()]
    if several and kernel.cases:
        first = [text_line(f"   {part}", "label") for case in kernel.cases[:CASES] for part in _case_parts(case)]
        more = len(kernel.cases) - CASES
        lines += [*first, *([text_line(f"   and {n.plural(more, 'more case')}", "label")] if more > 0 else [])]
    rows: list[tuple[str, str, str]] = []
    for word, attribute, unit in (
        ("registers per thread", "registers", ""),
        ("spilled", "spill_bytes", " B"),
        ("shared memory", "shared_bytes", " B"),
        ("warps", "num_warps", ""),
        ("stages", "num_stages", ""),
        ("threads per program", "threads", ""),
        ("occupancy, theoretical", "occupancy_percent", " %"),
    ):
        value = getattr(kernel, attribute)
        old = getattr(before, attribute) if before is not None else value
        rows.append((word, f"{n.number_text(value)}{unit}", f"was {n.number_text(old)}{unit}" if old != value else ""))
    for name, constant in kernel.constants.items():
        old_constant = before.constants.get(name) if before is not None else constant
        rows.append((name, str(constant), f"was {old_constant}" if old_constant not in (None, constant) else ""))
    rows.append(("grid", " × ".join(map(str, kernel.grid)), ""))
    for word, value, change in rows:
        alarm = word == "spilled" and kernel.spill_bytes > 0
        line = LineBuilder().add("   ").left(word, 26, "label").right(value, 14, "warn" if alarm else "text")
        lines.append(line.gap(3).add(change, "info").line())
    return lines


def _case_parts(case: str) -> list[str]:
    return textwrap.wrap(f"in {case}", KERNELS - 4, subsequent_indent="   ") or ["in a case without a name"]


def _reading(name: str, reading: Reading) -> Line:
    out = LineBuilder().add("   ").left(name, 6, "label")
    if reading.percent is None:
        return out.right("?", 6, "dim").add(f"  {reading.reason or 'unknown'}", "dim").line()
    filled = round(max(0.0, min(100.0, reading.percent)) / 100 * 24)
    modelled = reading.source == "model"
    out.right(n.percent_text(reading), 6, "est" if modelled else "strong").gap(2)
    out.add("█" * filled, "curve").add(g.NONE * (24 - filled), "faint")
    return out.gap(2).add("modelled" if modelled else reading.source, "label").line()


def verdict_lines(state: RunState, candidate: Candidate, width: int) -> list[Line]:
    """The judgement from top to bottom: pruned, compiled, verified, timed; evidence under each."""
    glyph, role = verdict_mark(state, candidate)
    word = "unfinished" if is_unfinished(state, candidate) else candidate.status
    lines: list[Line] = [LineBuilder().add(f" {glyph} {word}", role).line(), EMPTY]
    lines += _origin(candidate)
    if candidate.pruned is not None:
        pruned = candidate.pruned
        lines.append(_fact("pruned", f"at {pruned.stage}: {pruned.reason}", "warn"))
        if pruned.value is not None and pruned.limit is not None:
            lines.append(
                _fact("", f"{n.number_text(pruned.value)}, the limit is {n.number_text(pruned.limit)}", "label")
            )
    lines += _offence(candidate)
    if candidate.compilation is not None:
        lines += _compilation(candidate, width)
    if candidate.verification is not None:
        lines += _verification(candidate, width)
    if candidate.timing is not None:
        timing = candidate.timing
        text, _ = n.figure(candidate)
        on = f" on {candidate.device}" if candidate.device else ""
        lines.append(_fact("timed", f"{timing.verdict}  {text} {n.interval_text(timing)}".rstrip() + on, "strong"))
        lines += [
            _fact("", f"{other.verdict}  {n.ratio_in(other)}".rstrip() + f" on {device}", "label")
            for device, other in candidate.timings.items()
            if device != candidate.device
        ]
        if is_suspicious(candidate):
            lines += [_fact("suspicious", reason, "warn") for reason in timing.suspicious]
    if candidate.reward is not None:
        lines.append(_fact("reward", f"{candidate.reward:.4f}"))
    if candidate.path:
        lines.append(_fact("exported to", candidate.path))
    if candidate.note or candidate.tags:
        lines.append(_fact("marked", " ".join([*candidate.tags, candidate.note]), "info"))
    return lines


def _fact(word: str, text: str, role: str = "text") -> Line:
    return LineBuilder().add(" ").left(word, 14, "label").add(text, role).line()


def _origin(candidate: Candidate) -> list[Line]:
    lines = []
    if candidate.strategy is not None:
        lines.append(_fact("made by", f"{candidate.strategy} {g.NONE} {candidate.move} ({candidate.generator})"))
    elif candidate.move:
        lines.append(_fact("made by", f"{candidate.generator} {g.NONE} {candidate.move}"))
    if candidate.by:
        lines.append(_fact("asked by", candidate.by))
    if candidate.parent_id is not None:
        parents = candidate.parents or (candidate.parent_id,)
        lines.append(_fact("parents" if candidate.parents else "parent", " ".join(f"#{one}" for one in parents)))
    lines.append(_fact("pull", str(candidate.pull)))
    if candidate.detail:
        lines.append(_fact("detail", candidate.detail))
    if candidate.cost_usd or candidate.tokens:
        lines.append(_fact("cost", f"{n.money_text(candidate.cost_usd)}, {n.plural(candidate.tokens, 'token')}"))
    return lines


def _compilation(candidate: Candidate, width: int) -> list[Line]:
    compiled = candidate.compilation
    assert compiled is not None
    if compiled.ok:
        return [_fact("compiled", f"{n.plural(len(compiled.kernels), 'kernel')} in {compiled.seconds:.2f} s", "good")]
    blame = "" if compiled.owner == "candidate" else f" (the {compiled.owner}'s doing)"
    lines = [_fact("compiled", f"{compiled.outcome} at {compiled.stage}: {compiled.reason}{blame}", "bad")]
    return lines + _detail(compiled.detail, width)


def _offence(candidate: Candidate) -> list[Line]:
    """The line of its own source that the error is about, in its place; nothing where no message names one."""
    offending = offending_lines(candidate)
    if not offending:
        return []
    lines = [_fact("at line", str(offending[0]), "bad"), *excerpt(candidate.source, offending[0])]
    if len(offending) > 1:
        more = ", ".join(map(str, offending[1:6]))
        lines.append(_fact("", f"named too: {'line' if len(offending) == 2 else 'lines'} {more}", "label"))
    return [*lines, EMPTY]


def _verification(candidate: Candidate, width: int) -> list[Line]:
    seen = candidate.verification
    assert seen is not None
    role = {"correct": "good", "unknown": "warn", "cheat": "ban"}.get(seen.verdict, "bad")
    cases = n.plural(seen.cases_checked, "case")
    blame = "" if seen.owner == "candidate" else f" (the {seen.owner}'s doing)"
    reason = f" at {seen.stage}: {seen.reason}{blame}" if seen.verdict != "correct" else f" on {cases}"
    lines = [_fact("verified", f"{seen.verdict}{reason}", role)]
    if seen.error is not None:
        limit = f", {seen.allowed:.2e} is allowed" if seen.allowed is not None else ""
        lines.append(_fact("worst error", f"{seen.error:.2e}{limit}"))
    if seen.worst_case:
        lines.append(_fact("in case", seen.worst_case))
    if seen.first_wrong_index is not None:
        lines.append(_fact("first wrong at", f"[{', '.join(map(str, seen.first_wrong_index))}]", "bad"))
    lines += [_fact("not checked", text, "warn") for text in seen.not_checked]
    return lines + _detail(seen.detail, width)


def _detail(detail: str, width: int) -> list[Line]:
    """A long message, wrapped; it is the offending text, so none of it is left out up to 200 lines."""
    lines: list[Line] = []
    room = max(width - 6, 20)
    for raw in clean(detail).split("\n"):
        text = raw.rstrip()
        parts = [text[start : start + room] for start in range(0, max(len(text), 1), room)]
        lines += [LineBuilder().add("   │ ", "faint").add(part, "label").line() for part in parts]
    if not detail.strip():
        return []
    return lines[:200] if len(lines) <= 200 else [*lines[:200], text_line("   … and more: see the journal", "dim")]
