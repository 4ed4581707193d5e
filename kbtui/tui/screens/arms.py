"""Choosing an arm: to force it with its statistics in sight, or to ban it and lift bans."""

from __future__ import annotations

from textual.app import ComposeResult

from kbtui.state import commands as c
from kbtui.state.records import STRATEGIES, Strategy
from kbtui.state.run_state import RunState
from kbtui.tui import glyphs as g
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line, LineBuilder, text_line
from kbtui.tui.screens.modal import Modal
from kbtui.tui.screens.pick import Item, PickList
from kbtui.tui.session import who
from kbtui.tui.views.arms import HELD, Cell, cells_of, headroom_text, short
from kbtui.tui.views.status import origin
from kbtui.tui.widgets.strips import Strip


def arm_item(cell: Cell) -> Item:
    """`c1 fusion   2   .05   .38   .23   .61`: pulls, what they earned, what is believed, bonus, and their sum; and why it is
    held back if it is."""
    out = LineBuilder().add(f" c{cell.cluster} ", "strong").left(cell.strategy, 15, "strong")
    out.right(f"{cell.pulls:.3g}", 6).right(short(cell.mean), 7)
    if cell.bonus is not None:
        out.right(short(cell.believed), 10).right(short(cell.bonus), 8).right(short(cell.score), 8, "accent")
    else:
        out.right("", 26)
    if cell.held:
        glyph, role = HELD.get(cell.held, (g.UNKNOWN, "warn"))
        out.gap(2).add(f"{glyph} {cell.held}", role).add(f": {cell.reason}" if cell.reason else "", "label")
    elif cell.headroom_percent is not None:
        out.gap(2).add(headroom_text(cell.headroom_percent), "label")
    return Item(out.line(), f"{cell.cluster}:{cell.strategy}")


HEAD = LineBuilder().add("    ").left(" strategy", 15, "label").right("pulls", 6, "label").right("mean", 7, "label")
HEAD_LINE = HEAD.right("believed", 10, "label").right("+ bonus", 8, "label").right("= score", 8, "label").line()


def parse_value(value: str) -> tuple[int | None, Strategy]:
    """(cluster or None for all, strategy) of an item's value."""
    cluster, _, name = value.partition(":")
    return (int(cluster) if cluster else None), next(s for s in STRATEGIES if s == name)


class ForceScreen(Modal[c.Force]):
    """Which arm goes next: arms by score, best first, then each strategy in whichever cluster the policy likes."""

    BINDINGS = bindings_of("force")
    PLACES = ("force", "dialog")

    def __init__(self, state: RunState, parent_id: int | None) -> None:
        """`parent_id`: the chosen candidate, offered as the parent."""
        super().__init__(size="large")
        self._state = state
        self._parent_id = parent_id
        self.with_parent = False

    def content(self) -> ComposeResult:
        yield PickList("Force: the next pull takes this arm")
        yield Strip(id="dialog-text")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_focus(self.query_one(PickList))
        self._say_parent()
        self._show()

    def _show(self) -> None:
        cells = sorted(cells_of(self._state).values(), key=lambda cell: (bool(cell.held), -(cell.score or 0.0)))
        items = [Item(HEAD_LINE), *(arm_item(cell) for cell in cells if cell.held not in ("no move", "empty"))]
        items.append(Item(text_line(" in any cluster", "label")))
        items += [Item(text_line(f"    {strategy}", "strong"), f":{strategy}") for strategy in STRATEGIES]
        self.query_one(PickList).show_items(items)

    def _say_parent(self) -> None:
        out = LineBuilder().add(" parent: ", "label")
        if self._parent_id is None:
            out.add("the policy's choice", "text").add(
                " (choose a correct candidate in the tree to offer it here)", "dim"
            )
        else:
            candidate = self._state.candidates[self._parent_id]
            mine = f"#{candidate.id} {origin(candidate)}"
            out.add(mine if self.with_parent else "the policy's choice", "strong")
            out.add("  p", "key").add(f" {'leave it to the policy' if self.with_parent else f'take {mine}'}", "label")
        self.query_one("#dialog-text", Strip).set_lines([out.line()])

    def keys_line(self) -> Line:
        out = (
            LineBuilder().add(" up down", "key").add(" move  ", "label").add("enter", "key").add(" force it  ", "label")
        )
        return out.add("p", "key").add(" parent  ", "label").add("esc", "key").add(" cancel", "label").line()

    def do_from_parent(self) -> None:
        if self._parent_id is not None:
            self.with_parent = not self.with_parent
            self._say_parent()

    def do_choose(self) -> None:
        chosen = self.query_one(PickList).chosen
        if chosen:
            cluster, strategy = parse_value(chosen)
            parent = self._parent_id if self.with_parent else None
            self.dismiss(c.Force(by=who(), strategy=strategy, cluster=cluster, parent_id=parent))


class BanScreen(Modal[c.Ban | c.Unban]):
    """Strategies and arms; enter bans one that is free and frees one that is banned."""

    def __init__(self, state: RunState) -> None:
        super().__init__(size="large")
        self._state = state

    def content(self) -> ComposeResult:
        yield PickList("Ban or unban: no pull takes a banned arm")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_focus(self.query_one(PickList))
        self._show()

    def _show(self) -> None:
        items = [Item(text_line(" a strategy everywhere", "label"))]
        for strategy in STRATEGIES:
            banned = (None, strategy) in self._state.bans
            items.append(self._item(None, strategy, f" all  {strategy}", banned))
        items.append(Item(text_line(" one arm", "label")))
        for cell in cells_of(self._state).values():
            banned = (cell.cluster, cell.strategy) in self._state.bans
            items.append(self._item(cell.cluster, cell.strategy, f" c{cell.cluster}   {cell.strategy}", banned))
        self.query_one(PickList).show_items(items)

    def _item(self, cluster: int | None, strategy: Strategy, text: str, banned: bool) -> Item:
        out = LineBuilder().left(text, 24, "strong")
        if banned:
            out.add(f"{g.BANNED} banned", "ban").add("   enter lifts the ban", "dim")
        return Item(out.line(), f"{'' if cluster is None else cluster}:{strategy}")

    def keys_line(self) -> Line:
        out = (
            LineBuilder()
            .add(" up down", "key")
            .add(" move  ", "label")
            .add("enter", "key")
            .add(" ban or unban  ", "label")
        )
        return out.add("esc", "key").add(" cancel", "label").line()

    def do_choose(self) -> None:
        chosen = self.query_one(PickList).chosen
        if chosen:
            cluster, strategy = parse_value(chosen)
            command = c.Unban if (cluster, strategy) in self._state.bans else c.Ban
            self.dismiss(command(by=who(), strategy=strategy, cluster=cluster))
