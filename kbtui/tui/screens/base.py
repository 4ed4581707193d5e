"""What all screens share: the roles' styles, and the one way every action is carried out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from rich.style import Style
from textual.app import ComposeResult
from textual.events import Resize
from textual.screen import Screen

from kbtui.tui.actions import Action, bindings_of, find, key_name
from kbtui.tui.line import ROLES, Line, LineBuilder
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import LEAST_COLUMNS, LEAST_ROWS, Strip, too_small_line

if TYPE_CHECKING:
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.widgets.painted import PaintedLines

Result = TypeVar("Result")
Hints = tuple[tuple[str, str], ...]
"""Hints for newcomers: (action, what its key does)."""
Held = Literal["nothing", "unfocused", "panes"]
"""Which panes wait with what changed."""


class KbtuiScreen(Screen[Result], Generic[Result], inherit_bindings=False):
    """Base of the screens. `PLACES` are the places of the registry whose actions it carries out, its own first."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"screen--selection", *(f"role--{role}" for role in ROLES)}
    PLACES: ClassVar[tuple[str, ...]] = ("any",)
    NEWCOMER: ClassVar[Hints] = ()
    """What a newcomer is told the first time."""
    extra_places: ClassVar[tuple[str, ...]] = ()
    """Places of its panes."""
    BINDINGS = bindings_of("any")  # type: ignore[assignment]
    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._styles_by_role: dict[str, Style] = {}
        self._composed = False
        self._held: Held = "nothing"

    def _newcomer_line(self) -> Line:
        """The screen's hint, with the keys that are in force."""
        out = LineBuilder().add(" New here? ", "accent")
        for action_id, text in (*self.newcomer, ("dismiss", "got it")):
            key = key_name(self.kbtui.keys.keys_of(self.action_for(action_id))[0])
            out.gap().add(key, "key", action_id).add(f" {text}", "text", action_id).gap()
        return out.line()

    @property
    def newcomer(self) -> Hints:
        """What a newcomer is told now."""
        return self.NEWCOMER

    def show_hint(self) -> None:
        """Put the hint as it is now into its strip, if that is there."""
        hint = self.query_one("#newcomer", Strip)
        if hint.display:
            hint.set_lines([self._newcomer_line()])

    @property
    def kbtui(self) -> KbtuiApp:
        """The app, by its own type."""
        from kbtui.tui.app import KbtuiApp

        app = self.app
        assert isinstance(app, KbtuiApp)
        return app

    def on_mount(self) -> None:
        if self._composed:  # Textual calls the handlers of all classes, and those call their base's
            return
        self._composed = True
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.restyle())
        hint = self.query_one("#newcomer", Strip)
        hint.display = bool(self.NEWCOMER) and self.kbtui.newcomer.meets(self.PLACES[0])
        self.show_hint()

    @property
    def is_made(self) -> bool:
        """Whether its widgets are there and the focus is where a person's first key is to go."""
        return self._composed

    def restyle(self) -> None:
        """Forget the styles of the theme before."""
        self._styles_by_role.clear()
        for view in self.query(LineView):
            view.refresh()

    def role_style(self, role: str) -> Style:
        """The style of a role under the current theme: only what the role sets, so that it lies on any background."""
        style = self._styles_by_role.get(role)
        if style is None and role not in ROLES:
            return Style.null()  # marks that carry no text
        if style is None:
            style = self._styles_by_role[role] = self.get_component_rich_style(f"role--{role}", partial=True)
        return style

    def paint(self) -> None:
        """Bring the panes up to date; called once per tick and when the screen comes to the front."""
        whole = self.is_running and self.is_attached and self.app.is_running and self._composed
        if whole and self.in_front and not self.too_small:
            self.paint_panes()

    @property
    def in_front(self) -> bool:
        """Whether a person sees this screen: it is the top one, or only dialogs lie over it.

        Textual's `is_current` is true of the screen below the top one as well, whatever lies on it.
        """
        for screen in reversed(self.app.screen_stack):
            if screen is self:
                return True
            if not screen.is_modal:
                return False
        return False

    def paint_all(self, held: Held) -> None:
        """Paint at a tick. Panes that are `held` keep their changes until a tick that does not hold them."""
        self._held = held
        try:
            self.paint()
            for view in self.query(LineView):
                if view.is_late and not self.holds(view):
                    view.repaint()
        finally:
            self._held = "nothing"

    def holds(self, view: PaintedLines) -> bool:
        """Whether a pane is to keep its changes for now. Strips (header, footer) are small and never wait."""
        return view.can_focus and (self._held == "panes" or (self._held == "unfocused" and not view.has_focus))

    def paint_panes(self) -> None:
        """Show what there is to show; called only while the screen is whole and in front."""

    def on_screen_resume(self) -> None:
        self.paint()

    # ------------------------------------------------------------ size

    def compose(self) -> ComposeResult:
        yield from self.body()
        yield Strip(id="newcomer")
        yield Strip(id="too-small")

    def body(self) -> ComposeResult:
        """The screen's widgets."""
        raise NotImplementedError

    @property
    def too_small(self) -> bool:
        """Whether the terminal has no room for any screen."""
        return self.size.width < LEAST_COLUMNS or self.size.height < LEAST_ROWS

    def on_resize(self, event: Resize) -> None:  # noqa: ARG002  (a Textual handler's signature)
        self.set_class(self.too_small, "-too-small")
        if self.too_small:
            self.query_one("#too-small", Strip).set_lines([too_small_line(self.size.width, self.size.height)])

    # ------------------------------------------------------------ actions

    def action_for(self, action_id: str) -> Action:
        """The registry's action as this screen means it. Raises KeyError."""
        return find(action_id, *self.PLACES, *self.extra_places, "list")

    async def action_perform(self, action_id: str) -> None:
        """Carry out an action by its id: the end of every key, click, help line and palette entry."""
        action = self.action_for(action_id)
        if action.writes and (refusal := self.kbtui.why_no_commands):
            self.kbtui.refuse(refusal)
            return
        handler = getattr(self, action.handler, None) or getattr(self.focused, action.handler, None)
        if handler is None:
            self.kbtui.tell(f"{action.label}: go to the pane it belongs to first", "warning")
            return
        result = handler()
        if inspect.isawaitable(result):
            await result

    async def on_line_view_clicked(self, message: LineView.Clicked) -> None:
        message.stop()
        await self.action_perform(message.action)

    async def do_help(self) -> None:
        from kbtui.tui.screens.pick import help_screen

        self.kbtui.push_screen(help_screen(self), self._run_chosen)

    async def do_palette(self) -> None:
        from kbtui.tui.screens.pick import add_runs, palette_screen

        palette = palette_screen(self)
        self.kbtui.push_screen(palette, self._run_chosen)
        # the runs come when they are read: journals may be long, and typing must not wait for them
        self.kbtui.run_worker(add_runs(palette), group="palette", exclusive=True, exit_on_error=True)

    async def _run_chosen(self, chosen: str | None) -> None:
        if not chosen:
            return
        kind, _, value = chosen.partition(":")
        if kind == "action":
            await self.action_perform(value)
        elif kind == "elsewhere":
            self.kbtui.refuse(f"that key belongs to another place: {value}")
        elif kind == "candidate":
            self.kbtui.open_candidate(int(value))
        elif kind == "theme":
            self.kbtui.theme = value
        elif kind == "run":
            await self.kbtui.go_home()  # lets go of the run before, and of its screens
            await self.kbtui.attach(value)
        elif kind == "arm":
            await self._force(value)

    async def _force(self, value: str) -> None:
        """Force the arm of a palette line, as enter on its cell does."""
        from kbtui.state.commands import Force
        from kbtui.tui.screens.arms import parse_value
        from kbtui.tui.session import who

        if refusal := self.kbtui.why_no_commands:
            self.kbtui.refuse(refusal)
            return
        cluster, strategy = parse_value(value)
        await self.kbtui.ask(Force(by=who(), strategy=strategy, cluster=cluster))

    def do_messages(self) -> None:
        from kbtui.tui.screens.pick import messages_screen

        self.kbtui.push_screen(messages_screen(self.kbtui.messages))

    def do_screenshot(self) -> None:
        from kbtui.tui.screenshot import write_screenshot

        session = self.kbtui.session
        name = session.run_id if session is not None else "kbtui"
        try:
            path = write_screenshot(self.kbtui, Path.cwd(), name)
        except OSError as error:
            self.kbtui.tell(f"the screenshot cannot be written: {error.strerror or error}", "error")
        else:
            self.kbtui.tell(f"the screen is in {path}")

    def do_dismiss(self) -> None:
        self.kbtui.newcomer.forget()
        for strip in self.query("#newcomer"):
            strip.display = False
        self.kbtui.tell("hints are put away: ? lists every key")

    def do_detach(self) -> None:
        self.app.exit(0)

    def do_theme(self) -> None:
        self.kbtui.next_theme()

    def do_redraw(self) -> None:
        self.app.refresh(repaint=True, layout=True)
