"""Home: the runs there are, and the way to a new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import Input

from kbtui import clock, paths
from kbtui.errors import KbtuiError
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import EMPTY, Line, LineBuilder, Lines, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.screens.dialogs import SafeInput
from kbtui.tui.views import runs as view
from kbtui.tui.views.numbers import plural
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip

if TYPE_CHECKING:
    from kbtui.history.filters import Filter
    from kbtui.history.runs import RunEntry

LOOK_S = 2.0
"""How often the list of runs is looked at again."""
OF_A_RUN = ("attach", "go_on", "replay", "mark", "compare")
"""Actions that need a run in the list."""


class RunList(LineView):
    """The runs; enter opens the chosen one."""

    has_cursor = True


class HomeScreen(KbtuiScreen[None]):
    """The list of runs and what to press."""

    PLACES: ClassVar[tuple[str, ...]] = ("home", "any")
    BINDINGS = bindings_of("home")

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[RunEntry] | None = None
        self.filter: Filter | None = None
        """What the list is narrowed to; None shows every run."""
        self.marked: list[str] = []
        """Ids of the runs to compare, in the order they were marked."""
        self._looking = False

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        with Horizontal(id="filter"):
            yield Strip(id="filter-label")
            yield SafeInput(id="filter-input", placeholder="problem:softmax speedup>1.2 -status:failed")
            yield Strip(id="filter-error")
        yield Strip(id="columns")
        yield RunList(id="runs")
        yield Strip(id="about")
        yield Footer("home", "any")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_focus(self.query_one(RunList))
        self.set_interval(LOOK_S, self.look)
        self.look()

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.look()

    def look(self) -> None:
        """Read the list of runs again, in a thread: journals may be long."""
        if self.in_front and not self._looking:
            self._looking = True
            self.run_worker(self._read(), group="runs", exit_on_error=True)

    async def _read(self) -> None:
        from kbtui.history.runs import list_runs

        try:
            self.runs = await asyncio.to_thread(list_runs)
        finally:
            self._looking = False
        self.paint()

    @property
    def shown(self) -> list[RunEntry]:
        """The runs that fit the filter: those that a process owns first, then the newest first."""
        now = clock.wall()
        runs = [run for run in self.runs or [] if self.filter is None or self.filter.fits(run, now)]
        return sorted(runs, key=lambda run: run.pid is None)

    def paint_panes(self) -> None:
        listing = self.query_one(RunList)
        width = self.size.width
        self.query_one("#header", Strip).set_lines([_title(self.runs or [], self.marked, width)])
        if self.runs is None:
            listing.show(Lines([EMPTY, text_line("   reading the journals ...", "dim")]))
            return
        shown = self.shown
        self.query_one("#footer", Footer).leave_out(*_dead(bool(self.runs), bool(shown)))
        self._paint_filter(len(shown))
        self.query_one("#columns", Strip).set_lines([view.head_line(width)] if shown else [EMPTY])
        if not shown:
            listing.has_cursor = False
            listing.show(Lines(_nothing_fits() if self.runs else _empty()))
            self.query_one("#about", Strip).set_lines([])
            return
        chosen = self.chosen
        listing.has_cursor = True
        source = view.RunsSource(shown, clock.wall(), tuple(self.marked))
        if chosen is not None:
            # new runs come in at the top: the chosen one stays chosen
            listing.cursor = next((i for i, run in enumerate(shown) if run.run_id == chosen.run_id), 0)
        listing.show(source)
        self._about()

    def _paint_filter(self, shown: int) -> None:
        typing = self.query_one("#filter-input", SafeInput).has_focus
        text = self.filter.text if self.filter is not None else ""
        self.query_one("#filter").display = bool(text) or typing
        self.query_one("#filter-label", Strip).set_lines([text_line(" filter", "label")])
        if not typing:
            found = LineBuilder().add(f"{shown} of {plural(len(self.runs or []), 'run')}", "text")
            found.add("  esc", "key").add(" all ", "label")
            self.query_one("#filter-error", Strip).set_lines([found.line()])

    def _about(self) -> None:
        chosen = self.chosen
        self.query_one("#about", Strip).set_lines(view.describe(chosen, self.size.width) if chosen else [])

    def on_line_view_chosen(self) -> None:
        self._about()

    @property
    def chosen(self) -> RunEntry | None:
        """The run under the cursor."""
        listing = self.query_one(RunList)
        source = listing.source
        if not isinstance(source, view.RunsSource) or not source.runs:
            return None
        return source.runs[min(listing.cursor, len(source.runs) - 1)]

    # ------------------------------------------------------------ actions

    async def do_attach(self) -> None:
        if not self.in_front:
            return  # the second of two quick keys: the run is open already
        chosen = self.chosen
        if chosen is None and not self.runs:
            await self.do_new_run()
        elif chosen is None:
            self.kbtui.tell("no run fits the filter: esc shows all", "warning")
        elif chosen.error:
            self.kbtui.tell(chosen.error, "error")
        else:
            await self.kbtui.attach(chosen.run_id)

    async def do_replay(self) -> None:
        chosen = self.chosen
        if chosen is None:
            self.kbtui.tell("there is no run to replay: n starts one", "warning")
        elif chosen.error:
            self.kbtui.tell(chosen.error, "error")
        else:
            await self.kbtui.replay(chosen.run_id)

    async def do_new_run(self) -> None:
        from kbtui.tui.screens.new_run import NewRunScreen

        self.kbtui.push_screen(NewRunScreen(), self._started)

    async def do_go_on(self) -> None:
        chosen = self.chosen
        if chosen is None:
            self.kbtui.tell("no run is chosen", "warning")
            return
        await self.kbtui.go_on(chosen.run_id, chosen.status)

    # ------------------------------------------------------------ the filter

    def do_filter(self) -> None:
        """Open the line; what is typed narrows the list at once."""
        self.query_one("#filter").display = True
        line = self.query_one("#filter-input", SafeInput)
        line.value = self.filter.text if self.filter is not None else ""
        line.cursor_position = len(line.value)
        self.set_focus(line)
        self._say_filter("", "label")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.has_focus:
            self._narrow(event.value)

    def _narrow(self, text: str) -> bool:
        """Use the filter that `text` means; the one before stays while it means nothing. Whether it was understood."""
        from kbtui.history.filters import FilterError, parse

        try:
            wanted = parse(text)
        except FilterError as error:
            self._say_filter(str(error), "warn")
            return False
        self.filter = wanted if wanted.terms else None
        self._say_filter(f"{len(self.shown)} of {plural(len(self.runs or []), 'run')}", "text")
        self.paint()
        return True

    def _say_filter(self, text: str, role: str) -> None:
        self.query_one("#filter-error", Strip).set_lines([text_line(f" {text} ", role)])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._narrow(event.value):
            self._leave_line()

    def _leave_line(self) -> None:
        self.set_focus(self.query_one(RunList))
        self.call_after_refresh(self.paint)

    def do_clear(self) -> None:
        self.filter = None
        self.marked = []
        self.query_one("#filter-input", SafeInput).value = ""
        self._leave_line()

    def do_saved_filters(self) -> None:
        from kbtui.history.saved import saved_filters
        from kbtui.tui.screens.saved import SavedScreen

        text = self.filter.text if self.filter is not None else ""
        self.kbtui.push_screen(SavedScreen(saved_filters(), text), self._use_saved)

    def _use_saved(self, text: str | None) -> None:
        if text and not self._narrow(text):
            from kbtui.tui.line import plain

            line = self.query_one("#filter-error", Strip).source.line(0, 0)
            self.kbtui.tell(f"the saved filter is not understood: {plain(line).strip()}", "error")
        self.paint()

    # ------------------------------------------------------------ comparing and asking

    def do_mark(self) -> None:
        chosen = self.chosen
        if chosen is None or chosen.error:
            self.kbtui.tell("only a run that can be read can be marked", "warning")
            return
        if chosen.run_id in self.marked:
            self.marked.remove(chosen.run_id)
        else:
            self.marked.append(chosen.run_id)
        self.paint()

    def do_compare(self) -> None:
        wanted = [run_id for run_id in self.marked if any(run.run_id == run_id for run in self.runs or [])]
        chosen = self.chosen
        if len(wanted) == 1 and chosen is not None and chosen.run_id not in wanted and not chosen.error:
            wanted.append(chosen.run_id)
        if len(wanted) < 2:
            self.kbtui.tell("mark two or more runs with space, then compare them with c", "warning")
        else:
            self.run_worker(self._compare(wanted), group="compare", exclusive=True, exit_on_error=True)

    async def _compare(self, wanted: list[str]) -> None:
        from kbtui.history.compare import compare
        from kbtui.history.runs import load_state
        from kbtui.tui.screens.compare import CompareScreen

        try:
            found = await asyncio.to_thread(lambda: compare([load_state(run_id) for run_id in wanted]))
        except KbtuiError as error:
            self.kbtui.tell(str(error), "error")
        else:
            self.kbtui.push_screen(CompareScreen(found))

    def do_sql(self) -> None:
        from kbtui.tui.screens.sql import SqlScreen

        self.kbtui.push_screen(SqlScreen())

    async def _started(self, run_id: str | None) -> None:
        if run_id:
            await self.kbtui.attach(run_id)


def _dead(any_runs: bool, any_shown: bool) -> tuple[str, ...]:
    """The actions that have nothing to work on."""
    if any_shown:
        return ()
    return OF_A_RUN if any_runs else (*OF_A_RUN, "filter")


def _title(runs: list[RunEntry], marked: list[str], width: int) -> Line:
    left = LineBuilder().add(" kbtui", "accent").add("  makes Triton kernels faster", "label").line()
    live = sum(1 for run in runs if run.pid is not None)
    right = LineBuilder()
    if marked:
        right.add(f"{len(marked)} marked", "accent").add("  c", "key").add(" compares  ", "label")
    return both_ends(left, right.add(f"{plural(len(runs), 'run')}, {live} live ", "label").line(), width)


def _nothing_fits() -> list[Line]:
    hint = LineBuilder().add("   press ").add("esc", "key").add(" to see all runs again, or ").add("/", "key")
    return [EMPTY, text_line("   No run fits the filter.", "strong"), EMPTY, hint.add(" to change it.").line()]


def _empty() -> list[Line]:
    hint = LineBuilder().add("   press ").add("n", "key").add(" to choose a kernel and start one, or ").add("?", "key")
    return [
        EMPTY,
        text_line("   There are no runs yet.", "strong"),
        EMPTY,
        hint.add(" to see every key.").line(),
        text_line("   From a shell: kbtui run softmax", "label"),
        EMPTY,
        text_line(f"   Runs are kept in {paths.runs_dir()}", "dim"),
    ]
