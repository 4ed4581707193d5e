"""One registry: keys, handlers, help, palette, footer and documentation say the same."""

from __future__ import annotations

import pytest
from tui_drive import drive
from tui_sample import sample

from kbtui.tui import actions
from kbtui.tui.screens.arms import BanScreen, ForceScreen
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.screens.compare import CompareScreen
from kbtui.tui.screens.dialogs import ConfirmScreen, PromptScreen
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.new_run import NewRunScreen
from kbtui.tui.screens.pick import PickScreen
from kbtui.tui.screens.replay import ReplayScreen
from kbtui.tui.screens.sql import SqlScreen
from kbtui.tui.widgets.arms_view import ArmsView
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.tree_view import TreeView

OWNERS = {
    "any": [KbtuiScreen],
    "home": [HomeScreen],
    "cockpit": [CockpitScreen],
    "arms": [ArmsView, CockpitScreen],
    "tree": [TreeView],
    "candidate": [CandidateScreen],
    "replay": [ReplayScreen],
    "compare": [CompareScreen],
    "sql": [SqlScreen],
    "list": [LineView],
    "force": [ForceScreen],
    "form": [NewRunScreen],
    "dialog": [ConfirmScreen, PromptScreen, PickScreen, ForceScreen, BanScreen, NewRunScreen],
}
ALL_OF_THEM = ("dialog",)


def test_every_place_has_actions_and_owners() -> None:
    assert {action.place for action in actions.ACTIONS} == set(actions.PLACES) == set(OWNERS)


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda a: f"{a.place}.{a.id}")
def test_every_action_has_a_handler(action: actions.Action) -> None:
    has = [callable(getattr(owner, action.handler, None)) for owner in OWNERS[action.place]]
    assert all(has) if action.place in ALL_OF_THEM else any(has)


def test_every_handler_has_an_action() -> None:
    for place, owners in OWNERS.items():
        known = {a.handler for a in actions.ACTIONS}
        for owner in owners:
            handlers = {name for name in dir(owner) if name.startswith("do_")}
            assert handlers <= known, (place, owner)


@pytest.mark.parametrize("place", [p for p in actions.PLACES if p != "any"])
def test_no_key_means_two_things_in_one_place(place: str) -> None:
    keys = [key for action in actions.actions_of(place, "any") for key in action.keys]
    assert len(keys) == len(set(keys))


def test_keys_are_plain_enough_for_tmux() -> None:
    for action in actions.ACTIONS:
        for key in action.keys:
            assert not key.startswith(("ctrl+shift", "alt+", "ctrl+enter", "super+")), action.id


def test_bindings_are_the_registry() -> None:
    for place in actions.PLACES:
        bound = {(b.id, b.key) for b in actions.bindings_of(place)}
        assert bound == {(f"{place}.{a.id}", ",".join(a.keys)) for a in actions.actions_of(place)}


@pytest.mark.parametrize(
    ("owner", "places"),
    [(CockpitScreen, {"cockpit"}), (HomeScreen, {"home"}), (CandidateScreen, {"candidate"}), (LineView, {"list"}),
     (TreeView, {"tree"}), (ArmsView, {"arms"}), (ForceScreen, {"force"}), (NewRunScreen, {"form"})],
)  # fmt: skip
def test_classes_bind_what_the_registry_says(owner: type, places: set[str]) -> None:
    assert {b.id for b in owner.BINDINGS} == {f"{a.place}.{a.id}" for a in actions.actions_of(*places)}


def test_the_documentation_page_has_every_action_and_key() -> None:
    page = actions.keys_page()
    for action in actions.ACTIONS:
        assert f"{action.help[1:]}." in page
        for key in action.keys:
            assert f"`{actions.key_name(key)}`" in page


def test_footers_are_ordered_and_known() -> None:
    footer = actions.footer_of("cockpit", "any")
    assert [a.id for a in footer][:3] == ["pause", "step", "force"]
    assert footer[-1].id == "detach"


async def test_help_lists_every_action() -> None:
    async with drive(sample().events) as d:
        await d.press("question_mark")
        screen = d.app.screen
        assert isinstance(screen, PickScreen)
        text = "\n".join("".join(span.text for span in item.line) for item in screen._items)
        for action in actions.ACTIONS:
            assert action.help in text
        runnable = {item.value for item in screen._items if item.value.startswith("action:")}
        expected = {f"action:{a.id}" for a in actions.actions_of("cockpit", "any", "tree", "arms")}
        assert runnable == expected


async def test_help_is_turned_by_pages_and_shows_a_cut_sentence_whole() -> None:
    async with drive(sample().events, (80, 24)) as d:
        await d.press("question_mark")
        assert f"1 of {len(actions.ACTIONS)}" in d.text
        rows = [line for line in d.lines if line.startswith("│ ")]
        last = next(line for line in reversed(rows) if "+dollars" in line)
        await d.press("pagedown")
        assert [line for line in d.lines if line.startswith("│ ")][1] == last
        await d.press(*"from a list")
        cut = next(action.help for action in actions.ACTIONS if action.help.startswith("choose the arm of the next"))
        whole = " ".join(line.strip("│ ") for line in d.lines[-10:])
        assert cut in whole


async def test_keys_of_other_places_can_be_looked_at_in_the_help_and_not_run() -> None:
    async with drive(sample().events, (80, 24)) as d:
        await d.press("question_mark", "end")
        assert f"{len(actions.ACTIONS)} of {len(actions.ACTIONS)}" in d.text
        await d.press("enter")
        assert "that key belongs to another place" in d.text.replace("\n", " ")
        assert d.feed.commands == []


async def test_help_runs_what_it_lists() -> None:
    async with drive(sample().events) as d:
        await d.press("question_mark", *"exactly", "enter")
        assert [type(c).__name__ for c in d.feed.commands] == ["Step"]


async def test_the_palette_finds_candidates_actions_and_themes() -> None:
    async with drive(sample().events) as d:
        await d.press("ctrl+p", *"#24", "enter")
        assert isinstance(d.app.screen, CandidateScreen)
        assert d.app.screen.candidate_id == 24
        await d.press("escape", "ctrl+p", *"theme kbtui-light", "enter")
        assert d.app.theme == "kbtui-light"


async def test_the_palette_says_when_nothing_fits() -> None:
    async with drive(sample().events) as d:
        await d.press("ctrl+p", *"zzzz")
        assert "nothing has all these words" in d.text
        await d.press("enter")
        assert isinstance(d.app.screen, PickScreen)
