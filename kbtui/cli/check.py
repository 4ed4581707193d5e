"""`kbtui check`: the baseline, or a candidate, before the lane and the oracle, outside any run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kbtui.cli import output
from kbtui.cli.output import Column
from kbtui.cli.runs import AsJson
from kbtui.config import load_settings
from kbtui.errors import UsageError
from kbtui.text import plural

if TYPE_CHECKING:
    from kbtui.engine.check import Checked
    from kbtui.state.records import CaseTiming, Timing

TRAFFIC = "traffic"
"""The stage of what was left out on the timed cases, after all values were compared."""
NOT_COUNTED = "not counted, the baseline fails there"
"""What the lane says of a case on which nothing can be judged."""
COMPLETE = ("not checked", "not counted", "output dtype:", "float64 reference:")
"""What is not checked needs these words in front of it, unless it has them or says what it is."""
MODELLED = (Column("case", gives=True), Column("time", right=True), Column("ratio", right=True), Column("bound"))
MEASURED = (
    Column("case", gives=True),
    Column("on the device", right=True),
    Column("95 %", right=True),
    Column("cold", right=True),
    Column("as called", right=True),
    Column("of light", right=True),
    Column("ratio", right=True),
)
"""`cold`: with the L2 cache flushed before every call; `as called`: with the wrapper's CPU work; `of light`: the speed of light's
share of the time."""


def register(app: typer.Typer) -> None:
    app.command()(check)


def check(
    problem: Annotated[
        str | None, typer.Argument(help="A bundled problem or the path of a problem's folder; not with --evidence.")
    ] = None,
    candidate: Annotated[Path | None, typer.Option(help="A version of kernel.py to judge; else the baseline.")] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="CARD", help="An evidence card whose candidate to judge anew, without any model."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda:0, or cpu (interpreter and estimate).")] = None,
    target: Annotated[str | None, typer.Option(help="The GPU that `cpu` compiles for, such as sm_90.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the inputs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge the baseline, or a candidate.

    Compiles, verifies and times it; prints the verdict, whose doing it is, at which stage and why, and whether the oracle
    rejects outputs that were made wrong. Exit status 1 unless the verdict is correct. Boundary cases on which the problem's own
    kernel fails are warned of and count for nobody.
    """
    from kbtui.cli.control import read_source
    from kbtui.engine.check import check_source

    settings, _ = load_settings({"device": device, "target": target, "python": python, "seed": seed})
    if evidence is not None:
        if problem is not None or candidate is not None:
            raise UsageError("a card names its problem and holds its candidate: give --evidence alone")
        _repeat(evidence, settings.interpreter, as_json)
    if problem is None:
        raise UsageError("name a problem, or a card with --evidence: kbtui check softmax")
    checked = check_source(
        problem,
        None if candidate is None else read_source(candidate),
        device=settings.device,
        target=settings.target,
        python=settings.interpreter,
        seed=settings.seed,
        report=_ignore if as_json else _Stages(),
    )
    if as_json:
        output.json(checked)
    else:
        _print(checked, "the baseline" if checked.subject == "baseline" or candidate is None else candidate.name)
    raise typer.Exit(0 if checked.verdict == "correct" and not _untimed(checked) else 1)


def _untimed(checked: Checked) -> list[CaseTiming]:
    """Timed cases without a time: a run could compare nothing on them."""
    return [case for case in checked.timing.cases if case.failed] if checked.timing is not None else []


def _repeat(path: Path, python: str, as_json: bool) -> NoReturn:
    from kbtui.engine.check import repeat
    from kbtui.history.evidence import read_card

    card = read_card(path)
    repeated = repeat(card, python=python, report=_ignore if as_json else _Stages())
    if as_json:
        output.json(repeated)
    else:
        _print(repeated.checked, f"#{card.candidate_id} of {card.run_id}")
        output.line(f"the card says {repeated.said}; this {'agrees' if repeated.agrees else 'does not agree'}")
    raise typer.Exit(0 if repeated.agrees else 1)


def _ignore(stage: str, text: str) -> None:
    """Progress that nobody reads."""


class _Stages:
    """Says on stderr which stage begins; the steps within one would be a line for every case."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, stage: str, _text: str) -> None:
        if stage != self._last:
            self._last = stage
            output.note(f"{stage} ...")


def _print(checked: Checked, subject: str) -> None:
    if checked.subject == "reference":
        output.line(f"{checked.problem} on {checked.device}: no kernel yet; the reference works on its cases")
    else:
        but = ", but could not be timed on every case" if _untimed(checked) else ""
        if checked.verdict == "correct" and (failing := _not_counted(checked)):
            but = f" where it counts, not on {plural(failing, 'case')} on which the baseline fails{but}"
        output.line(f"{checked.problem} on {checked.device}: verdict for {subject}: {checked.verdict}{but}")
    for name, state in checked.machine.items():
        output.line(state if name == "GPU" else f"{name}: {state}")
    if checked.selftest is not None:
        output.line(checked.selftest.sentence)
    if checked.verdict != "correct":
        output.line(f"owner {checked.owner}, stage {checked.stage}: {checked.reason}")
        if checked.stage != TRAFFIC:  # its outputs were right: an error within its limit would read as a contradiction
            _print_worst(checked)
        for text in checked.detail.splitlines():
            output.line(f"  {text}")
        return
    if checked.subject == "reference":
        output.line("a model writes the first one: kbtui run PROBLEM --generator llm --model PROVIDER/NAME")
        return
    output.line(f"{plural(checked.cases_checked, 'case')} checked in {checked.seconds:.1f} s")
    _print_worst(checked)
    if failing := _not_counted(checked):
        output.line(
            f"warning: the kernel you start from is wrong on {plural(failing, 'case')} (below): candidates are not held to "
            "them. If it should be right there, mend it first; if not, let `vary` leave them out"
        )
    for text in checked.not_checked:
        output.line(text if any(words in text for words in COMPLETE) else f"not checked: {text}")
    if checked.timing is not None:
        _print_times(checked.timing, is_baseline=checked.subject == "baseline")


def _not_counted(checked: Checked) -> int:
    """Cases on which nothing can be judged, since the baseline is wrong there."""
    return sum(NOT_COUNTED in text for text in checked.not_checked)


def _print_worst(checked: Checked) -> None:
    """The worst case, the first wrong place in it, and the error beside its limit, as far as they are known."""
    if checked.worst_case:
        place = f", first wrong at {list(checked.first_wrong_index)}" if checked.first_wrong_index is not None else ""
        output.line(f"worst case {checked.worst_case}{place}")
    if checked.error is not None and checked.allowed is not None:
        output.line(f"largest error {checked.error:.2e}, allowed {checked.allowed:.2e}")


def _print_times(timing: Timing, *, is_baseline: bool) -> None:
    output.line(f"times are {timing.kind}; verdict {timing.verdict}")
    if timing.kind == "modelled":
        output.table(MODELLED, [_modelled_cells(case) for case in timing.cases])
        return
    if is_baseline and timing.noise is not None:
        output.line(
            f"noise floor {100 * timing.noise:.2f} %: the baseline against itself in {plural(timing.pairs, 'process pair')}; "
            "no verdict is finer"
        )
    elif timing.ratio is not None:
        interval = (
            f" [{timing.low:.3f}, {timing.high:.3f}]" if timing.low is not None and timing.high is not None else ""
        )
        output.line(f"{timing.ratio:.3f}x{interval} over {plural(timing.pairs, 'process pair')}")
    # only the baseline is timed out of a cold cache
    shown = [number for number, column in enumerate(MEASURED) if is_baseline or column.title != "cold"]
    rows = [_measured_cells(case) for case in timing.cases]
    output.table([MEASURED[number] for number in shown], [[row[number] for number in shown] for row in rows])


def _measured_cells(case: CaseTiming) -> list[str]:
    if case.ms is None:
        return [case.case, case.failed or "not timed", *[""] * (len(MEASURED) - 2)]
    half = f"±{50 * (case.high_ms - case.low_ms) / case.ms:.1f} %" if case.low_ms and case.high_ms else ""
    return [
        case.case,
        _microseconds(case.ms),
        half,
        _microseconds(case.cold_ms),
        _microseconds(case.called_ms),
        f"{100 * case.limit_ms / case.ms:.0f} %" if case.floor_ms else "?",
        f"{case.ratio:.2f}x" if case.ratio is not None else "",
    ]


def _microseconds(ms: float | None) -> str:
    return f"{ms * 1000:.1f} µs" if ms is not None else ""


def _modelled_cells(case: CaseTiming) -> list[str]:
    if case.estimate_ms is not None:
        ratio = f"~{case.estimate_ratio:.2f} est" if case.estimate_ratio is not None else ""
        return [case.case, f"~{case.estimate_ms * 1000:.1f} µs est", ratio, case.bound]
    return [case.case, case.failed or "not timed", "", case.bound]
