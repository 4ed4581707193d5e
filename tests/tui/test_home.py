"""Home: the list of runs, attaching, and the form for a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.pilot import Pilot
from tui_drive import COLOURS, SIZES, screen_lines, settle
from tui_sample import ScriptedFeed, sample

from kbtui import paths
from kbtui.errors import KbtuiError
from kbtui.history.journal import JournalWriter, RunLock
from kbtui.history.saved import saved_filters
from kbtui.state import events as e
from kbtui.state.records import Summary
from kbtui.tui import starter
from kbtui.tui.app import KbtuiApp
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.screens.compare import CompareScreen
from kbtui.tui.screens.dialogs import SafeInput
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.new_run import NewRunScreen
from kbtui.tui.widgets.line_view import LineView


def keep(run_id: str, events: list[e.Event]) -> None:
    with JournalWriter(paths.journal_file(run_id)) as writer:
        for event in events:
            writer.append(msgspec.structs.replace(event, run_id=run_id) if isinstance(event, e.RunStarted) else event)


def two_runs() -> None:
    measured, modelled = sample(), sample("modelled")
    summary = Summary(
        run_id="b", problem="softmax", device="cpu", timing="modelled", pulls=30, candidates=32, correct=21, best=None,
        baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by="iterations",
    )  # fmt: skip
    modelled.add(e.RunStopped, stopped_by="iterations", summary=summary)
    keep("run-a", measured.events)
    keep("run-b", modelled.events)


class Home:
    def __init__(self, app: KbtuiApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot
        self.attached: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(screen_lines(self.app))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await settle(self.app, self.pilot)


@asynccontextmanager
async def home(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Home]:
    attached: list[str] = []

    def feed(run_id: str) -> ScriptedFeed:
        attached.append(run_id)
        return ScriptedFeed(sample().events, run_id=run_id)

    app = KbtuiApp(None, terminal=COLOURS, make_feed=feed)
    async with app.run_test(size=size, notifications=True) as pilot:
        driven = Home(app, pilot)
        driven.attached = attached
        await driven.settle()
        yield driven


async def test_without_runs_the_next_key_is_said_and_enter_leads_on() -> None:
    async with home((80, 24)) as h:
        assert "There are no runs yet" in h.text
        assert "press n to choose a kernel" in h.text
        assert h.text.splitlines()[-1].split("  ") == [" n new run", "s sql", "? help", "ctrl+p palette", "q detach"]
        await h.press("enter")
        assert isinstance(h.app.screen, NewRunScreen)


async def test_two_quick_keys_open_a_run_once() -> None:
    two_runs()
    async with home() as h:
        # the second key lies in the list's queue while the first one opens the run
        screen = h.app.screen
        for _ in range(2):
            screen.post_message(LineView.Clicked("attach"))
        await h.settle()
        assert isinstance(h.app.screen, CockpitScreen)
        assert len(h.attached) == 1


async def test_a_filter_that_nothing_fits_leaves_the_keys_that_work() -> None:
    two_runs()
    async with home((120, 40)) as h:
        whole = h.text.splitlines()[-1]
        await h.press("slash", *"problem:none", "enter")
        assert h.text.splitlines()[-1].split("   ") == [
            " n new run", "/ filter", "s sql", "? help", "ctrl+p palette", "q detach"
        ]  # fmt: skip
        await h.press("escape")
        assert h.text.splitlines()[-1] == whole
        assert "enter attach" in whole


@pytest.mark.parametrize("size", SIZES)
async def test_runs_are_listed_with_state_and_best(size: tuple[int, int]) -> None:
    two_runs()
    async with home(size) as h:
        lines = h.text.splitlines()
        crashed = next(line for line in lines if "crashed" in line)
        stopped = next(line for line in lines if "■ stopped" in line)
        assert "✗ crashed" in crashed
        assert "1.15x" in crashed
        assert "30/40" in crashed
        assert "~1.15 est" in stopped
        assert "1.15x" not in stopped
        assert "2 runs, 0 live" in h.text
        assert ("modelled" in stopped) == (size[0] >= 96)


async def test_enter_attaches_and_escape_comes_back() -> None:
    two_runs()
    async with home() as h:
        await h.press("down", "enter")
        assert isinstance(h.app.screen, CockpitScreen)
        assert len(h.attached) == 1
        await h.press("escape")
        assert isinstance(h.app.screen, HomeScreen)
        await h.press("enter")
        assert isinstance(h.app.screen, CockpitScreen)
        assert len(h.app.screen_stack) <= 3


async def test_a_new_run_appears_and_the_chosen_one_stays_chosen() -> None:
    two_runs()
    async with home() as h:
        screen = h.app.screen
        assert isinstance(screen, HomeScreen)
        await h.press("down")
        chosen = screen.chosen
        assert chosen is not None
        keep("run-c", sample().events)
        screen.look()
        await h.settle()
        assert len(screen.runs or []) == 3
        assert screen.chosen is not None
        assert screen.chosen.run_id == chosen.run_id


async def test_a_journal_that_cannot_be_read_is_listed_with_its_reason() -> None:
    keep("run-a", sample().events)
    paths.run_dir("bad").mkdir(parents=True)
    paths.journal_file("bad").write_text("nonsense\n")
    async with home((160, 30)) as h:
        assert any("bad" in line and "line 1" in line for line in h.text.splitlines())
        await h.press("end", "enter")
        assert isinstance(h.app.screen, HomeScreen)


# ---------------------------------------------------------------- a new run


async def test_the_form_starts_a_run_with_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, dict[str, str]]] = []

    async def start(problem: str, flags: dict[str, str]) -> str:
        started.append((problem, flags))
        return "run-new"

    monkeypatch.setattr(starter, "start", start)
    async with home() as h:
        await h.press("n")
        assert "softmax(x: torch.Tensor)" in h.text
        assert "rows=4096 cols=4096 dtype=float32" in h.text
        assert h.app.screen.query_one("#field-problem", SafeInput).value == "softmax"
        await h.press("right")
        assert h.app.screen.query_one("#field-problem", SafeInput).value == "swiglu"
        await h.press("left", "down", "down", "down", "down")
        await h.press("end", "backspace", "backspace", *"7", "tab", "shift+tab", "up", "down")
        await h.press("down", "down", "right", "right", "enter")
        assert started == [
            (
                "softmax",
                {
                    "generator": "rewrite",
                    "model": "",
                    "api-base": "",
                    "iterations": "7",
                    "budget-usd": "1",
                    "device": "cpu",
                },
            )
        ]
        assert h.attached == ["run-new"]


async def test_a_run_that_cannot_start_says_why_and_the_form_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(problem: str, flags: dict[str, str]) -> str:
        raise KbtuiError("torch is not installed for /usr/bin/python3: name another with --python")

    monkeypatch.setattr(starter, "start", start)
    async with home() as h:
        await h.press("n", "enter")
        assert "torch is not installed" in h.text
        assert isinstance(h.app.screen, NewRunScreen)
        await h.press("escape")
        assert isinstance(h.app.screen, HomeScreen)


async def test_what_the_form_can_judge_itself_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    async def start(problem: str, flags: dict[str, str]) -> str:
        started.append(problem)
        return "run-new"

    monkeypatch.setattr(starter, "start", start)
    async with home() as h:
        await h.press("n")
        for flag, value, said in (
            ("iterations", "many", "pulls is a number of attempts"),
            ("budget-usd", "nan", "budget is a number of dollars"),
            ("generator", "llm", "the generator llm needs a model"),
        ):
            field = h.app.screen.query_one(f"#field-{flag}", SafeInput)
            before, field.value = field.value, value
            await h.press("enter")
            assert said in h.text
            field.value = before
        assert started == []
        assert h.app.screen.query_one("#field-model", SafeInput).has_focus


async def test_an_unknown_problem_is_said_while_typing() -> None:
    async with home() as h:
        await h.press("n", "end", *"zz")
        assert "softmaxzz" in h.text
        assert "There is no problem" in h.text


async def test_going_on_with_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def go_on(run_id: str) -> str:
        asked.append(run_id)
        if run_id == "run-b":
            raise KbtuiError("that is not possible")
        return run_id

    monkeypatch.setattr(starter, "go_on", go_on)
    two_runs()
    async with home() as h:
        screen = h.app.screen
        assert isinstance(screen, HomeScreen)
        order = [run.run_id for run in screen.runs or []]
        await h.press(*["down"] * order.index("run-b"), "C")
        assert "that is not possible" in h.text
        await h.press("home", *["down"] * order.index("run-a"), "C")
        assert isinstance(h.app.screen, CockpitScreen)
        assert asked == ["run-b", "run-a"]


async def test_the_starter_asks_the_command_line_and_gives_its_sentence() -> None:
    with pytest.raises(KbtuiError, match="no-such-problem"):
        await starter.start("no-such-problem", {"generator": "rewrite", "model": ""})
    with pytest.raises(KbtuiError, match=r"^there are no runs yet"):
        await starter.go_on("no-such-run")


# ---------------------------------------------------------------- filters, marks, comparison


async def test_the_filter_narrows_while_it_is_typed_and_escape_shows_all() -> None:
    two_runs()
    async with home() as h:
        screen = h.app.screen
        assert isinstance(screen, HomeScreen)
        await h.press("slash", *"speedup>1.1")
        assert [run.run_id for run in screen.shown] == ["run-a"]
        assert "1 of 2 runs" in h.text
        await h.press("enter")
        assert screen.chosen is not None
        assert screen.chosen.run_id == "run-a"
        assert "speedup>1.1" in h.text
        await h.press("slash", "end", *"x zz")
        assert "no run fits" in h.text.lower()
        await h.press("escape")
        assert len(screen.shown) == 2
        assert not screen.query_one("#filter").display


async def test_a_filter_that_means_nothing_is_said_and_the_one_before_stays() -> None:
    two_runs()
    async with home((80, 24)) as h:
        screen = h.app.screen
        assert isinstance(screen, HomeScreen)
        await h.press("slash", *"estimate>1")
        assert [run.run_id for run in screen.shown] == ["run-b"]
        await h.press(*"z")
        assert "estimate needs a number" in h.text
        assert [run.run_id for run in screen.shown] == ["run-b"]
        await h.press("enter")
        assert h.app.screen.query_one("#filter-input", SafeInput).has_focus


async def test_filters_are_saved_and_used_by_name() -> None:
    two_runs()
    async with home() as h:
        screen = h.app.screen
        assert isinstance(screen, HomeScreen)
        await h.press("slash", *"timing:modelled", "enter", "F", "enter", *"models", "enter")
        assert saved_filters().all() == {"models": "timing:modelled"}
        await h.press("escape")
        assert len(screen.shown) == 2
        await h.press("F", "enter")
        assert [run.run_id for run in screen.shown] == ["run-b"]


async def test_marked_runs_are_compared_and_modelled_ones_kept_apart() -> None:
    two_runs()
    async with home((120, 45)) as h:
        await h.press("c")
        assert "mark two or more runs" in h.text
        await h.press("space", "down", "c")
        assert isinstance(h.app.screen, CompareScreen)
        assert "are modelled: they are not compared with measured ones" in h.text
        assert "1.15x" in h.text
        assert "~1.15 est" in h.text
        assert "rewarded pulls" in h.text
        await h.press("escape")
        assert isinstance(h.app.screen, HomeScreen)
        assert "1 marked" in h.text
        await h.press("space", "space", "escape")
        assert "marked" not in h.text


@pytest.mark.parametrize("size", SIZES)
async def test_a_comparison_is_whole_at_every_size(size: tuple[int, int]) -> None:
    two_runs()
    async with home(size) as h:
        await h.press("space", "down", "space", "c")
        view = h.app.screen.query_one("#comparison", LineView)
        assert len(view.source) > 30
        await h.press("end")
        assert "host" in h.text or "version" in h.text or "target" in h.text or "timing" in h.text


async def test_live_runs_come_first() -> None:
    two_runs()
    with RunLock("run-b"):
        async with home() as h:
            screen = h.app.screen
            assert isinstance(screen, HomeScreen)
            assert screen.shown[0].run_id == "run-b"
            assert "1 live" in h.text


async def test_what_lies_below_a_cockpit_neither_reads_nor_paints(monkeypatch: pytest.MonkeyPatch) -> None:
    two_runs()
    painted: list[str] = []
    original = HomeScreen.paint_panes

    def paint_panes(screen: HomeScreen) -> None:
        painted.append("home")
        original(screen)

    monkeypatch.setattr(HomeScreen, "paint_panes", paint_panes)
    async with home((120, 36)) as h:
        below = h.app.screen
        assert isinstance(below, HomeScreen)
        assert painted
        await h.press("enter")
        assert isinstance(h.app.screen, CockpitScreen)
        painted.clear()
        below.look()
        below.paint()
        assert not below._looking
        assert painted == []
        await h.press("question_mark")  # a dialog lies over the cockpit: that one is seen, home is not
        assert h.app.screen.is_modal
        front = [screen for screen in h.app.screen_stack if getattr(screen, "in_front", False)]
        assert [type(screen).__name__ for screen in front][:1] == ["CockpitScreen"]
        await h.press("escape")
        await h.press("escape")
        assert isinstance(h.app.screen, HomeScreen)
        assert painted


async def test_an_ended_run_offers_to_go_on_and_no_dead_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def go_on(run_id: str) -> str:
        asked.append(run_id)
        return run_id

    monkeypatch.setattr(starter, "go_on", go_on)
    ended = sample("modelled")
    summary = Summary(
        run_id="b", problem="softmax", device="cpu", timing="modelled", pulls=30, candidates=32, correct=21, best=None,
        baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by="iterations",
    )  # fmt: skip
    ended.add(e.RunStopped, stopped_by="iterations", summary=summary)
    app = KbtuiApp(
        "run-b", terminal=COLOURS, make_feed=lambda run_id: ScriptedFeed(ended.events, run_id=run_id, connected=False)
    )
    async with app.run_test(size=(120, 36)) as pilot:
        h = Home(app, pilot)
        await app.tick()
        await h.settle()
        footer = screen_lines(app)[-1]
        assert "C continue" in footer
        assert "enter open" in footer
        assert not {"pause", "step", "force", "ban", "inject"} & set(footer.split())
        await h.press("C")
        assert asked == ["run-b"]
        assert isinstance(app.screen, CockpitScreen)
        assert sum(isinstance(screen, CockpitScreen) for screen in app.screen_stack) == 1


async def test_ctrl_c_says_how_to_leave_and_ctrl_q_is_no_key() -> None:
    two_runs()
    async with home() as h:
        await h.press("ctrl+c")
        assert "q leaves the cockpit; a run goes on without it" in h.text
        await h.press("ctrl+q")
        assert h.app.is_running
        assert isinstance(h.app.screen, HomeScreen)


async def test_the_form_has_its_keys_and_what_is_wrong_in_the_smallest_terminal() -> None:
    async with home((60, 16)) as h:
        await h.press("n")
        await h.settle()
        assert "enter start" in h.text
        assert "1-0 of" not in h.text
        assert "Problem" in h.text
        field = h.app.screen.query_one("#field-problem", SafeInput)
        field.value = "/nowhere/at/all/in/a/folder/that/has/a/rather/long/name"
        await h.settle()
        assert "enter start" in h.text
        assert "rather/long/name" in h.text.replace("│\n│ ", "")
