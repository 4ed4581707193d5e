"""What all screens share: the roles' styles, and the one way every action is carried out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rich.style import Style
from textual.app import ComposeResult
from textual.events import Resize
from textual.screen import Screen

from kbtui.tui.actions import Action, bindings_of, find
from kbtui.tui.line import ROLES
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import LEAST_COLUMNS, LEAST_ROWS, Strip, too_small_line

if TYPE_CHECKING:
    from kbtui.tui.app import KbtuiApp

Result = TypeVar("Result")


class KbtuiScreen(Screen[Result], Generic[Result], inherit_bindings=False):
    """Base of the screens. `PLACES` are the places of the registry whose actions it carries out, its own first."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"screen--selection", *(f"role--{role}" for role in ROLES)}
    PLACES: ClassVar[tuple[str, ...]] = ("any",)
    extra_places: ClassVar[tuple[str, ...]] = ()
    """Places of its panes."""
    BINDINGS = bindings_of("any")  # type: ignore[assignment]
    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._styles_by_role: dict[str, Style] = {}
        self._composed = False
        self.holds_back = False
        """Whether panes without focus keep their changes to themselves for now; they are painted at the next tick."""

    @property
    def kbtui(self) -> KbtuiApp:
        """The app, by its own type."""
        from kbtui.tui.app import KbtuiApp

        app = self.app
        assert isinstance(app, KbtuiApp)
        return app

    def on_mount(self) -> None:
        self._composed = True
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.restyle())

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
        if whole and self.is_current and not self.too_small:
            self.paint_panes()

    def paint_all(self, *, at_rest: bool) -> None:
        """Paint at a tick. `at_rest`: only the pane with the focus; the others follow at the next tick."""
        self.holds_back = at_rest
        self.paint()
        self.holds_back = False
        if not at_rest:
            for view in self.query(LineView):
                if view.is_late:
                    view.repaint()

    def paint_panes(self) -> None:
        """Show what there is to show; called only while the screen is whole and in front."""

    def on_screen_resume(self) -> None:
        self.paint()

    # ------------------------------------------------------------ size

    def compose(self) -> ComposeResult:
        yield from self.body()
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
            self.kbtui.tell(refusal, "warning")
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
        from kbtui.tui.screens.pick import palette_screen

        self.kbtui.push_screen(palette_screen(self), self._run_chosen)

    async def _run_chosen(self, chosen: str | None) -> None:
        if not chosen:
            return
        kind, _, value = chosen.partition(":")
        if kind == "action":
            await self.action_perform(value)
        elif kind == "candidate":
            self.kbtui.open_candidate(int(value))
        elif kind == "theme":
            self.kbtui.theme = value

    def do_detach(self) -> None:
        self.app.exit(0)

    def do_theme(self) -> None:
        self.kbtui.next_theme()

    def do_redraw(self) -> None:
        self.app.refresh(repaint=True, layout=True)
