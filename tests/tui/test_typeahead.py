"""Keys that come faster than the screens they are meant for: each goes where it belongs, in its turn."""

from __future__ import annotations

import pytest
from test_home import two_runs
from textual.events import Key, Paste
from textual.widget import Widget
from tui_drive import COLOURS, drive, screen_lines, settle
from tui_sample import ScriptedFeed, sample

from kbtui.tui import typeahead
from kbtui.tui.app import KbtuiApp
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.dialogs import SafeInput
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.new_run import NewRunScreen

NAMES = {"/": "slash", ".": "full_stop", " ": "space", "-": "minus"}


def send(app: KbtuiApp, *keys: str) -> None:
    """All at once, as a slow link brings them."""
    for key in keys:
        app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))


@pytest.mark.parametrize("low_bandwidth", [False, True])
async def test_a_form_typed_into_before_it_is_there_has_every_key(low_bandwidth: bool) -> None:
    app = KbtuiApp(None, terminal=COLOURS, low_bandwidth=low_bandwidth)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(app, pilot)
        # "softmax" is there to begin with; "q" and "s" would leave and open another screen, in the list below
        send(
            app, "n", *["backspace"] * 7, *"./squat", "backspace", "t", "down", "down", *"open/ai", "down", "up", *"-3"
        )
        app.post_message(Paste(" x"))
        send(app, "backspace", "down", "down", "backspace", "backspace", "7")
        await settle(app, pilot)
        assert isinstance(app.screen, NewRunScreen)
        values = {field.id: field.value for field in app.screen.query(SafeInput)}
        assert values["field-problem"] == "./squat"
        assert values["field-model"] == "open/ai-3 "
        assert values["field-iterations"] == "7"
        rows = [line.strip(" │").split() for line in screen_lines(app)]
        assert ["problem", "./squat"] in rows
        assert ["model", "open/ai-3"] in rows
        assert ["pulls", "7"] in rows


async def test_keys_go_to_the_screen_that_the_key_before_opened() -> None:
    two_runs()
    feed = ScriptedFeed(sample().events)
    app = KbtuiApp(None, terminal=COLOURS, make_feed=lambda _: feed)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(app, pilot)
        send(app, "enter", "home", "down", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, CandidateScreen)
        assert app.screen.candidate_id == 1
        send(app, "escape", "escape", "slash", *"problem:none", "backspace", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, HomeScreen)
        assert app.screen.filter is not None
        assert app.screen.filter.text == "problem:non"


async def test_a_key_whose_end_nobody_tells_holds_the_others_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typeahead, "STUCK_S", 0.05)
    async with drive(sample().events) as d:
        focused = d.app.focused
        assert focused is not None
        given = focused.post_message

        def deaf(widget: Widget, message: object) -> bool:
            return False if isinstance(message, typeahead.KeyDone) else given(message)  # type: ignore[arg-type]

        monkeypatch.setattr(focused, "post_message", deaf.__get__(focused))
        send(d.app, "home", "down", "enter")
        await d.pilot.pause(0.3)
        await d.settle()
        assert isinstance(d.app.screen, CandidateScreen)
        assert d.app.screen.candidate_id == 1
