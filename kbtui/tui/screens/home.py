"""Home: the runs there are, and the way to a new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.events import Resize

from kbtui import clock, paths
from kbtui.errors import KbtuiError
from kbtui.tui import starter
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import EMPTY, Line, LineBuilder, Lines, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.views import runs as view
from kbtui.tui.views.numbers import plural
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip

if TYPE_CHECKING:
    from kbtui.history.runs import RunEntry

LOOK_S = 2.0
"""How often the list of runs is looked at again."""


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
        self._looking = False

    def body(self) -> ComposeResult:
        yield Strip(id="header")
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
        if self.is_current and not self._looking:
            self._looking = True
            self.run_worker(self._read(), group="runs", exit_on_error=True)

    async def _read(self) -> None:
        from kbtui.history.runs import list_runs

        try:
            self.runs = await asyncio.to_thread(list_runs)
        finally:
            self._looking = False
        self.paint()

    def paint_panes(self) -> None:
        listing = self.query_one(RunList)
        width = self.size.width
        self.query_one("#header", Strip).set_lines([_title(self.runs or [], width)])
        if self.runs is None:
            listing.show(Lines([EMPTY, text_line("   reading the journals ...", "dim")]))
            return
        self.query_one("#columns", Strip).set_lines([view.head_line(width)] if self.runs else [EMPTY])
        if not self.runs:
            listing.has_cursor = False
            listing.show(Lines(_empty()))
            self.query_one("#about", Strip).set_lines([])
            return
        chosen = self.chosen
        listing.has_cursor = True
        source = view.RunsSource(self.runs, clock.wall())
        if chosen is not None:
            # new runs come in at the top: the chosen one stays chosen
            listing.cursor = next((i for i, run in enumerate(self.runs) if run.run_id == chosen.run_id), 0)
        listing.show(source)
        self._about()

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
        chosen = self.chosen
        if chosen is None:
            await self.do_new_run()
        elif chosen.error:
            self.kbtui.tell(chosen.error, "error")
        else:
            await self.kbtui.attach(chosen.run_id)

    async def do_new_run(self) -> None:
        from kbtui.tui.screens.new_run import NewRunScreen

        self.kbtui.push_screen(NewRunScreen(), self._started)

    async def do_go_on(self) -> None:
        chosen = self.chosen
        if chosen is None or chosen.status not in ("crashed", "stopped"):
            self.kbtui.tell("only a stopped or crashed run can be gone on with", "warning")
            return
        self.kbtui.tell(f"starting a process for {chosen.run_id} ...")
        try:
            run_id = await starter.go_on(chosen.run_id)
        except KbtuiError as error:
            self.kbtui.tell(str(error), "error")
        else:
            await self.kbtui.attach(run_id)

    async def _started(self, run_id: str | None) -> None:
        if run_id:
            await self.kbtui.attach(run_id)


def _title(runs: list[RunEntry], width: int) -> Line:
    left = LineBuilder().add(" kbtui", "accent").add("  makes Triton kernels faster", "label").line()
    live = sum(1 for run in runs if run.pid is not None)
    return both_ends(left, text_line(f"{plural(len(runs), 'run')}, {live} live ", "label"), width)


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
