"""The evidence card of a candidate: what it is, what it was judged by, and what came out. A JSON file and a page of text.

Made from a run's state alone, so a card can be written when a best is promoted and again from any journal. A modelled
time is marked as such wherever it stands.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import (
    BASELINE_ID,
    CaseInfo,
    DeviceInfo,
    KernelFacts,
    Record,
    Signature,
    Timing,
    TimingKind,
    Verification,
)
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean_line, plural

CARD_VERSION = 1
MOST_BYTES = 8 << 20
ORIGIN = (
    "three times the baseline's own error on the case, but no less than the problem's tolerance or the dtype's floor"
)

ORIGIN_FROM_SCRATCH = (
    "the problem's tolerance or the dtype's floor; there was no kernel whose own error would show more"
)


class Ancestor(Record, frozen=True, kw_only=True):
    """One step of the parent chain, the candidate itself first and the baseline last. `source_digest` is sha256, hex."""

    candidate_id: int
    source_digest: str
    strategy: str
    generator: str
    move: str


class Card(Record, frozen=True, kw_only=True):
    """See the module. `seed` made the inputs of the ordinary cases; the hidden stage's own is in `hidden.detail`. `mutants`
    is the sentence of the oracle's self-test, "" when none ran in the run. `cost_usd` and `tokens` are the whole run's so
    far."""

    version: int = CARD_VERSION
    run_id: str
    problem: str
    problem_path: str
    problem_digest: str
    mutates: tuple[str, ...]
    precision: str
    candidate_id: int
    chain: tuple[Ancestor, ...]
    source: str
    device: DeviceInfo
    timing_kind: TimingKind
    objective: str
    seed: int
    cases: tuple[CaseInfo, ...]
    tolerance_origin: str = ORIGIN
    verification: Verification
    hidden: Verification | None
    kernels: tuple[KernelFacts, ...]
    timing: Timing
    noise: float | None
    signature: Signature
    mutants: str = ""
    isolation: dict[str, str]
    versions: dict[str, str]
    tokens: int
    cost_usd: float
    baseline_id: int | None = BASELINE_ID
    """The candidate that the figure is against; not 0 where the run began without a kernel."""
    baseline_source: str = ""
    """Its source, where the problem does not hold it."""


def baseline_name(state: RunState) -> str:
    """What the run's ratios are against, as people read it."""
    if not state.from_scratch:
        return "the baseline"
    return f"#{state.baseline_id}, the first correct version of a run that began without a kernel"


def make_card(state: RunState, candidate: Candidate) -> Card:
    """The card of a candidate that is correct and was timed. Raises UsageError for any other."""
    started = state.started
    verification, timing = candidate.verification, candidate.timing
    if started is None or verification is None or verification.verdict != "correct" or timing is None:
        raise UsageError(f"#{candidate.id} is not a correct candidate with a time: there is no evidence to write down")
    baseline, beside = state.baseline, state.baseline_beside(candidate)
    return Card(
        run_id=started.run_id,
        problem=started.problem.name,
        problem_path=started.problem.path,
        problem_digest=started.problem.digest,
        mutates=started.problem.mutates,
        precision=started.problem.precision,
        candidate_id=candidate.id,
        chain=_chain(state, candidate),
        source=candidate.source,
        device=state.device_of(candidate),
        timing_kind=started.timing,
        objective=started.objective,
        seed=started.seed,
        cases=started.problem.cases,
        verification=verification,
        hidden=candidate.confirmation,
        kernels=candidate.compilation.kernels if candidate.compilation is not None else (),
        timing=timing,
        noise=beside.noise if beside is not None else None,
        signature=candidate.signature or Signature(),
        isolation=started.isolation,
        versions=started.versions,
        tokens=state.tokens,
        cost_usd=state.cost_usd,
        baseline_id=state.baseline_id,
        baseline_source=baseline.source if state.from_scratch and baseline is not None else "",
        tolerance_origin=ORIGIN if not state.from_scratch else ORIGIN_FROM_SCRATCH,
    )


def _chain(state: RunState, candidate: Candidate) -> tuple[Ancestor, ...]:
    found = []
    link: Candidate | None = candidate
    while link is not None:
        found.append(
            Ancestor(
                candidate_id=link.id,
                source_digest=link.source_digest,
                strategy=link.strategy or "",
                generator=link.generator,
                move=link.move,
            )
        )
        link = state.candidates[link.parent_id] if link.parent_id is not None else None
    return tuple(found)


def write_card(card: Card, path: Path) -> None:
    """Write `path` (JSON) and the page of text beside it, each in one step. Raises UsageError when that fails."""
    body = msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n"
    try:
        for target, content in ((path, body), (path.with_suffix(".txt"), page(card).encode("utf-8", "replace"))):
            partial = target.with_name(f".{target.name}.partial")
            partial.write_bytes(content)
            os.replace(partial, target)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def read_card(path: Path) -> Card:
    """Raises UsageError for what is no card, or a newer one."""
    try:
        body = path.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(body) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES >> 20} MiB: that is no evidence card")
    try:
        card = msgspec.json.decode(body, type=Card)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no evidence card of this kbtui: {error}") from None
    if card.version != CARD_VERSION:
        raise UsageError(f"{path} is an evidence card of version {card.version}: this kbtui reads {CARD_VERSION}")
    return card


def page(card: Card) -> str:
    """The card for people to read."""
    lines = [
        f"Evidence for candidate #{card.candidate_id} of run {card.run_id}",
        "",
        f"problem      {card.problem}, sha256 {card.problem_digest}",
        f"source       sha256 {card.chain[0].source_digest}",
        *(f"  from       {_ancestor(one)}" for one in card.chain),
        f"device       {card.device.name}, target {card.device.target}; times are {card.timing_kind}",
        f"verdict      {card.timing.verdict}: {figure(card)}",
        *_from_scratch(card),
        f"noise floor  {_noise(card)}",
        "",
        *_correctness(card),
        "",
        *(_case(card, at) for at in range(len(card.timing.cases))),
        "",
        *_conditions(card),
        *(f"signature    {name} {_reading(card, name)}" for name in ("sm", "dram", "l2")),
        *(f"isolation    {name}: {state}" for name, state in sorted(card.isolation.items())),
        *(f"version      {name} {version}" for name, version in sorted(card.versions.items())),
        f"spent        {plural(card.tokens, 'token')}, {card.cost_usd:.4f} USD in the run",
    ]
    return "".join(clean_line(line) + "\n" for line in lines)


def _from_scratch(card: Card) -> list[str]:
    if not card.baseline_id:
        return []
    return [f"baseline     #{card.baseline_id}, the first correct version: the run began without a kernel"]


def figure(card: Card) -> str:
    """The ratio with its interval, or the estimate, marked as modelled."""
    timing = card.timing
    if timing.ratio is not None:
        interval = (
            f" [{timing.low:.3f}, {timing.high:.3f}]" if timing.low is not None and timing.high is not None else ""
        )
        return f"{timing.ratio:.3f}x{interval} over {timing.pairs} process pairs, measured ({card.objective})"
    if timing.estimate is not None:
        return f"~{timing.estimate:.3f} est, modelled and not measured ({card.objective})"
    return "no figure"


def _ancestor(one: Ancestor) -> str:
    made = f"{one.strategy} · {one.move}" if one.strategy else one.move
    return f"#{one.candidate_id} {made} ({one.generator}) sha256 {one.source_digest[:16]}"


def _noise(card: Card) -> str:
    return f"{100 * card.noise:.2f} % (baseline against itself)" if card.noise is not None else "not measured"


def _correctness(card: Card) -> list[str]:
    found = card.verification
    lines = [f"correct      on {plural(found.cases_checked, 'case')}, seed {card.seed}"]
    if found.error is not None and found.allowed is not None:
        lines.append(f"error        {found.error:.3g} where {found.allowed:.3g} is allowed, on {found.worst_case}")
    lines.append(f"allowed      {card.tolerance_origin}")
    if card.hidden is not None:
        hidden = card.hidden
        lines.append(
            f"hidden       {hidden.verdict} on {plural(hidden.cases_checked, 'case')} nothing had seen, {hidden.detail}"
        )
    else:
        lines.append("hidden       not run")
    lines.append(f"self-test    {card.mutants or 'not run in the run: kbtui check --evidence runs it'}")
    return [*lines, *(text if "not checked" in text else f"not checked  {text}" for text in found.not_checked)]


def _case(card: Card, at: int) -> str:
    case, dtypes = card.timing.cases[at], ", ".join(card.cases[at].dtypes) if at < len(card.cases) else ""
    if case.ms is not None:
        called = f", {case.called_ms * 1e3:.2f} µs as called" if case.called_ms is not None else ""
        ratio = f", {case.ratio:.3f}x" if case.ratio is not None else ""
        return f"case         {case.case} ({dtypes}): {case.ms * 1e3:.2f} µs on the device{called}{ratio}"
    if case.estimate_ms is not None:
        ratio = f", ~{case.estimate_ratio:.3f} est" if case.estimate_ratio is not None else ""
        return f"case         {case.case} ({dtypes}): ~{case.estimate_ms * 1e3:.2f} µs est, modelled{ratio}"
    return f"case         {case.case} ({dtypes}): {case.failed or 'not timed'}"


def _conditions(card: Card) -> list[str]:
    held = card.timing.conditions
    if held is None:
        return []
    before, after = held.sm_clock_mhz
    return [
        f"clocks       SM {before} -> {after} MHz, memory {held.memory_clock_mhz[0]} -> {held.memory_clock_mhz[1]} MHz",
        f"held down    {', '.join(held.reasons) or 'no'}; {plural(held.other_processes, 'other process')} on the device",
    ]


def _reading(card: Card, name: str) -> str:
    reading = getattr(card.signature, name)
    return f"{reading.percent:.1f} % ({reading.source})" if reading.percent is not None else f"unknown {reading.reason}"
