"""The cockpit: one run, live or from its journal."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize

from kbtui.state import commands as c
from kbtui.state.run_state import Candidate
from kbtui.tui.actions import WRITING, bindings_of
from kbtui.tui.line import Line, Lines, text_line
from kbtui.tui.screens.base import Hints, KbtuiScreen
from kbtui.tui.screens.steering import Steering
from kbtui.tui.session import Session, who
from kbtui.tui.views import curve, gpu, header
from kbtui.tui.views.log import FILTERS, LogSource
from kbtui.tui.widgets.arms_view import ArmsView
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.log_view import LogView
from kbtui.tui.widgets.plot_view import PlotView
from kbtui.tui.widgets.strips import Footer, Strip, tabs_line
from kbtui.tui.widgets.tree_view import TreeView

WIDE = 100
"""Columns from which the panes stand side by side."""
PANES = ("tree", "arms", "gpu", "curve", "log")


class CockpitScreen(Steering, KbtuiScreen[None]):
    """Panes: tree, arms, GPU, curve and log; below 100 columns one at a time."""

    PLACES: ClassVar[tuple[str, ...]] = ("cockpit", "any")
    extra_places: ClassVar[tuple[str, ...]] = ("tree", "arms")
    NEWCOMER = (("open", "opens a candidate"), ("force", "forces an arm"), ("help", "all keys"))
    NEWCOMER_ENDED: ClassVar[Hints] = (
        ("open", "opens a candidate"),
        ("replay", "replays the run"),
        ("help", "all keys"),
    )
    """The same of a run that has ended, or that is only looked at."""
    BINDINGS = bindings_of("cockpit")
    FOOTER: ClassVar[tuple[str, ...]] = ("cockpit", "any")

    def __init__(self) -> None:
        super().__init__()
        self.pane = "tree"
        self.axis = "pulls"
        self.narrowed = "all"
        """What the log is narrowed to, a name of `log.FILTERS`."""
        self._painted: object = None
        self._served = True

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        yield Strip(id="tabs")
        with Container(id="panes"):
            yield TreeView()
            with Container(id="side"):
                yield ArmsView()
                yield LineView("GPU", id="gpu")
                yield PlotView("Best so far", id="curve")
        yield LogView()
        yield Strip(id="summary")
        yield Footer(*self.FOOTER)

    def on_mount(self) -> None:
        super().on_mount()
        self._arrange()

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self._arrange()
        self._painted = None
        self.call_after_refresh(self.paint)

    # ------------------------------------------------------------ painting

    def paint_panes(self) -> None:
        """Show the session's state. Panes send only the lines that differ."""
        session = self.kbtui.session
        if session is None:
            return
        width = self.size.width
        self.query_one("#header", Strip).set_lines(self.header_lines(session, width))
        self._paint_gpu()
        key = (session.version, self.pane, self.size, session.status)
        if key == self._painted:
            return
        self._painted = key
        state = session.state
        for pane in self._visible_panes():
            getattr(self, f"_paint_{pane}")()
        self._paint_summary(session, width)
        served = session.feed.connected or session.status in ("live", "paused", "loading")
        self._serve(served and not session.read_only)
        footer = self.query_one("#footer", Footer)
        footer.serve(served)
        footer.leave_out(*(WRITING if session.read_only else ()))
        footer.relabel(pause="resume" if state.status == "paused" else "pause")

    def _paint_summary(self, session: Session, width: int) -> None:
        """Why the run is paused, in as many rows as it takes; else, below one pane, the others in a line."""
        why = header.pause_lines(session, width)
        self.set_class(bool(why), "-why")
        strip = self.query_one("#summary", Strip)
        rows = max(len(why), 1)
        height = strip.styles.height
        if rows != (height.value if height is not None else 1):
            strip.styles.height = rows
        strip.set_lines(why or [header.summary_line(session, width)])

    def _serve(self, served: bool) -> None:
        """Hint what can be done with a run that a process serves, or with one that can only be looked at."""
        if served != self._served:
            self._served = served
            self.show_hint()

    @property
    def newcomer(self) -> Hints:
        return self.NEWCOMER if self._served else self.NEWCOMER_ENDED

    def header_lines(self, session: Session, width: int) -> list[Line]:
        """The lines on top."""
        return header.header(session, width)

    def _paint_tree(self) -> None:
        assert self.kbtui.session is not None
        self.query_one(TreeView).show_state(self.kbtui.session.state, self.kbtui.session.marked)

    def _paint_arms(self) -> None:
        assert self.kbtui.session is not None
        arms = self.query_one(ArmsView)
        arms.show_state(self.kbtui.session.state)
        if self.wide:
            most = max(self.size.height // 3, 7)
            rows = min(arms.wanted_rows, most)
            if arms.styles.height is None or arms.styles.height.value != rows:
                arms.styles.height = rows
        else:
            arms.styles.height = "1fr"

    def _paint_gpu(self) -> None:
        session = self.kbtui.session
        assert session is not None
        view = self.query_one("#gpu", LineView)
        if view.display:
            view.show(Lines(gpu.gpu_lines(session, view.size.width)), note=gpu.note(session))

    def _paint_curve(self) -> None:
        session = self.kbtui.session
        assert session is not None
        view = self.query_one("#curve", PlotView)
        lines = curve.curve_lines(session.state, view.size.width, view.rows, self.axis)
        view.show(Lines(lines), note=curve.curve_note(session.state, self.axis))

    def on_plot_view_resized(self) -> None:
        if self.kbtui.session is not None:
            self._paint_curve()

    def _paint_log(self) -> None:
        session = self.kbtui.session
        assert session is not None
        note = text_line(self.narrowed, "warn") if self.narrowed != "all" else ()
        self.query_one(LogView).show(LogSource(session, self.narrowed), note=note)

    # ------------------------------------------------------------ arrangement

    @property
    def wide(self) -> bool:
        return self.size.width >= WIDE

    def _visible_panes(self) -> tuple[str, ...]:
        return PANES if self.wide else (self.pane,)

    def _arrange(self) -> None:
        self.set_class(self.wide, "-wide")
        self.set_class(self.size.height < 28, "-short")
        self.set_class(self.size.height >= 44, "-tall")
        for pane in PANES:
            self.set_class(pane == self.pane, f"-pane-{pane}")
        names = list(PANES)
        actions = [f"pane_{pane}" for pane in PANES]
        self.query_one("#tabs", Strip).set_lines([tabs_line(names, PANES.index(self.pane), actions)])
        focus = self.query_one(f"#{self.pane}", LineView)
        if self.focused is not focus:
            self.set_focus(focus)

    def _go_to_pane(self, pane: str) -> None:
        self.pane = pane
        self._arrange()
        self.call_after_refresh(self.paint)

    def on_descendant_focus(self) -> None:
        focused = self.focused
        if focused is not None and focused.id in PANES and focused.id != self.pane:
            self._go_to_pane(focused.id)

    def do_next_pane(self) -> None:
        self._go_to_pane(PANES[(PANES.index(self.pane) + 1) % len(PANES)])

    def do_previous_pane(self) -> None:
        self._go_to_pane(PANES[(PANES.index(self.pane) - 1) % len(PANES)])

    def do_pane_tree(self) -> None:
        self._go_to_pane("tree")

    def do_pane_arms(self) -> None:
        self._go_to_pane("arms")

    def do_pane_gpu(self) -> None:
        self._go_to_pane("gpu")

    def do_pane_curve(self) -> None:
        self._go_to_pane("curve")

    def do_pane_log(self) -> None:
        self._go_to_pane("log")

    async def do_replay(self) -> None:
        session = self.kbtui.session
        if session is not None:
            await self.kbtui.replay(session.run_id)

    async def do_home(self) -> None:
        await self.kbtui.go_home()

    async def do_go_on(self) -> None:
        session = self.kbtui.session
        if session is not None:
            await self.kbtui.go_on(session.run_id, session.status)

    # ------------------------------------------------------------ the chosen candidate

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that actions mean: the one under the tree's cursor."""
        session = self.kbtui.session
        chosen = self.query_one(TreeView).chosen_id
        return session.state.candidates.get(chosen) if session is not None and chosen is not None else None

    @property
    def chosen_pull(self) -> int | None:
        """The pull under the tree's cursor, where its version is still being written."""
        return self.query_one(TreeView).chosen_pull

    def choose(self, candidate_id: int) -> None:
        """Put the tree's cursor on a candidate."""
        self.query_one(TreeView).go_to(candidate_id)

    def do_open(self) -> None:
        tree = self.query_one(TreeView)
        if tree.chosen_pull is not None:
            self.kbtui.open_pull(tree.chosen_pull)
            return
        if self.pane == "tree" and tree.chosen_id is None and len(tree.source):
            tree.do_unfold()
            return
        chosen = self.chosen
        if chosen is None:
            self.kbtui.tell("no candidate is chosen yet", "warning")
        else:
            self.kbtui.open_candidate(chosen.id)

    def do_diff(self) -> None:
        chosen = self.chosen
        if chosen is None:
            self.kbtui.tell("no candidate is chosen yet", "warning")
        else:
            self.kbtui.open_candidate(chosen.id, tab="diff")

    def do_axis(self) -> None:
        """Draw the curve over the next axis."""
        axes = curve.axes_of(self._state)
        if len(axes) < len(curve.AXES) and self.axis == "pulls":
            self.kbtui.refuse("no dollars were spent, so there is no curve over them")
        self.axis = axes[(axes.index(self.axis) + 1) % len(axes)] if self.axis in axes else axes[0]
        self._repaint()

    def do_log_level(self) -> None:
        """Narrow the log to the next choice."""
        names = list(FILTERS)
        self.narrowed = names[(names.index(self.narrowed) + 1) % len(names)]
        self.query_one(LogView).follow()
        self._repaint()

    def _repaint(self) -> None:
        self._painted = None
        self.paint()

    # the tree's actions work from every pane

    def do_fold_all(self) -> None:
        self.query_one(TreeView).do_fold_all()

    def do_go_best(self) -> None:
        self.query_one(TreeView).do_go_best()

    async def do_force_cell(self) -> None:
        cell = self.query_one(ArmsView).cell
        if cell is not None:
            await self.kbtui.ask(c.Force(by=who(), strategy=cell.strategy, cluster=cell.cluster))
