"""The form for a new run: a problem with its kernel beside it, and the few settings that matter, with defaults."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input

from kbtui.config import load_settings
from kbtui.errors import ConfigError, KbtuiError, ProblemError
from kbtui.problems.contract import read_contract
from kbtui.problems.folder import ProblemFolder, bundled, find_problem
from kbtui.tui import starter
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line, LineBuilder, Lines, text_line, width_of
from kbtui.tui.screens.dialogs import SafeInput
from kbtui.tui.screens.modal import Modal
from kbtui.tui.views import code
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Sentences, Strip

DIALOG_COLUMNS = 96
"""Columns of a large dialog at most, as the style says."""


@dataclass(frozen=True)
class Field:
    """One field of the form: the flag of `kbtui run` that it fills, and the choices that left and right go through."""

    flag: str
    label: str
    hint: str
    choices: tuple[str, ...] = ()


FIELDS: tuple[Field, ...] = (
    Field("problem", "problem", "left and right go through the bundled ones; or type a folder's path"),
    Field("generator", "generator", "what writes candidates", ("rewrite", "llm", "replay")),
    Field("model", "model", "PROVIDER/NAME, for the generator llm; several by commas"),
    Field("api-base", "api base", "a server of your own for the model, such as http://127.0.0.1:8000/v1"),
    Field("iterations", "pulls", "how many attempts"),
    Field("budget-usd", "budget $", "what models may cost"),
    Field("device", "device", "cuda:0 or cpu; empty: the GPU if there is one", ("", "cuda:0", "cpu")),
)


class NewRunScreen(Modal[str]):
    """Ends with the id of the run that was started."""

    PLACES = ("form", "dialog")
    BINDINGS = bindings_of("form")

    def __init__(self) -> None:
        super().__init__(size="large")
        self.starting = False
        self._previewed = ""

    def content(self) -> ComposeResult:
        yield Strip("New run", id="dialog-title")
        for field in FIELDS:
            with Container(classes="field"):
                yield Strip(id=f"label-{field.flag}", classes="field-label")
                yield SafeInput(id=f"field-{field.flag}")
        yield Sentences(id="dialog-error", most=3)
        yield LineView("Problem", id="preview")

    def on_mount(self) -> None:
        super().on_mount()
        for field in FIELDS:
            label = LineBuilder().right(field.label, 10, "label").gap().line()
            self.query_one(f"#label-{field.flag}", Strip).set_lines([label])
        try:
            settings, _ = load_settings()
        except ConfigError as error:
            self._say(str(error), "bad")
        else:
            self._input("generator").value = settings.generator
            self._input("model").value = settings.model
            self._input("api-base").value = settings.api_base
            self._input("iterations").value = str(settings.iterations)
            self._input("budget-usd").value = f"{settings.budget_usd:g}"
            self._input("device").value = settings.device
        self._choices = {field.flag: field.choices for field in FIELDS} | {"problem": tuple(bundled())}
        names = self._choices["problem"]
        self._input("problem").value = "softmax" if "softmax" in names else next(iter(names), "")
        self.set_focus(self._input("problem"))
        self._preview()

    def keys_line(self) -> Line:
        out = (
            LineBuilder()
            .add(" up down", "key")
            .add(" field  ", "label")
            .add("left right", "key")
            .add(" choice  ", "label")
        )
        return out.add("enter", "key").add(" start  ", "label").add("esc", "key").add(" cancel", "label").line()

    # ------------------------------------------------------------ fields

    def _input(self, flag: str) -> SafeInput:
        return self.query_one(f"#field-{flag}", SafeInput)

    @property
    def _field(self) -> Field:
        focused = self.focused
        return next((f for f in FIELDS if focused is not None and focused.id == f"field-{f.flag}"), FIELDS[0])

    def _move(self, by: int) -> None:
        index = FIELDS.index(self._field) + by
        self.set_focus(self._input(FIELDS[index % len(FIELDS)].flag))
        self._say(self._field.hint, "dim")

    def do_field_next(self) -> None:
        self._move(1)

    def do_field_previous(self) -> None:
        self._move(-1)

    def _cycle(self, by: int) -> None:
        """Go through the choices; in a field without choices the keys move the text cursor."""
        widget = self._input(self._field.flag)
        choices = self._choices[self._field.flag]
        if not choices:
            widget.cursor_position += by
            return
        at = choices.index(widget.value) if widget.value in choices else -1 if by > 0 else 0
        widget.value = choices[(at + by) % len(choices)]
        widget.cursor_position = len(widget.value)

    def do_value_next(self) -> None:
        self._cycle(1)

    def do_value_previous(self) -> None:
        self._cycle(-1)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.id == "field-problem":
            self._preview()

    def _preview(self) -> None:
        text = self._input("problem").value.strip()
        if text == self._previewed:
            return
        self._previewed = text
        preview = self.query_one("#preview", LineView)
        try:
            problem = find_problem(text)
        except ProblemError as error:
            self._say(str(error), "warn")
            preview.show(Lines([]))
            return
        self._say(problem.summary or str(problem.path), "text")
        if problem.empty:
            self._say("there is no kernel yet: the generator llm has a model write the first one", "warn")
        preview.show(
            _problem_lines(problem, min(self.size.width, DIALOG_COLUMNS) - 2),
            note=text_line(str(problem.path), "label"),
        )

    def _say(self, text: str, role: str) -> None:
        self.query_one("#dialog-error", Sentences).say((text, role))

    # ------------------------------------------------------------ starting

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.do_start()

    def do_choose(self) -> None:
        self.do_start()

    def do_start(self) -> None:
        if not self.starting:
            self.starting = True
            self._say("starting: the lane imports torch and describes the problem ...", "info")
            self.run_worker(self._start(), exit_on_error=True)

    async def _start(self) -> None:
        values = {field.flag: self._input(field.flag).value.strip() for field in FIELDS}
        problem = values.pop("problem")
        wrong, flag = _wrong(values)
        if wrong:
            self._say(wrong, "bad")
            self.set_focus(self._input(flag))
            self.starting = False
            return
        try:
            run_id = await starter.start(problem, values)
        except KbtuiError as error:
            self._say(str(error), "bad")
            self.starting = False
        else:
            self.dismiss(run_id)


def _wrong(values: dict[str, str]) -> tuple[str, str]:
    """What is wrong with the fields that need no lane to be judged, in a sentence, and the field; ("", "") when nothing is."""
    pulls, budget = values["iterations"], values["budget-usd"]
    if pulls and not (pulls.isdecimal() and int(pulls) > 0):
        return f"pulls is a number of attempts, such as 20, not {pulls}", "iterations"
    if budget and not _is_amount(budget):
        return f"budget is a number of dollars, such as 1.5, not {budget}", "budget-usd"
    if values["generator"] == "llm" and not values["model"]:
        return "the generator llm needs a model, such as anthropic/claude-sonnet-4", "model"
    return "", ""


def _is_amount(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False


def _problem_lines(problem: ProblemFolder, width: int) -> Lines:
    """The contract, the timed cases, what it is about, then the kernel."""
    contract = read_contract(problem)
    lines = [LineBuilder().add(" contract  ", "label").add(contract.signature, "strong").line()]
    cases = contract.cases or ("computed when the file runs",)
    lines += [
        LineBuilder().left("" if at else " cases", 11, "label").add(case, "text").line()
        for at, case in enumerate(cases)
    ]
    # the first paragraph is the summary, which stands above
    parts = [part for text in contract.about.split("\n\n")[1:] for part in textwrap.wrap(text, max(width - 12, 20))]
    lines += [
        LineBuilder().left("" if at else " about", 11, "label").add(part, "text").line()
        for at, part in enumerate(parts)
    ]
    if problem.empty:
        return Lines(lines)
    kernel = code.source_lines(problem.kernel_source)
    lines += [LineBuilder().add(" kernel", "label").line(), *(kernel.line(at, width) for at in range(len(kernel)))]
    return Lines(lines, wide=max(kernel.wide, *(width_of(line) for line in lines)))
