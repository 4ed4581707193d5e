"""The cockpit's panes and actions at three sizes, driven by keys."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from test_home import keep
from tui_drive import SIZES, drive
from tui_sample import BY, Script, gpu, sample

from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import RunState
from kbtui.tui.line import plain
from kbtui.tui.newcomer import Newcomer
from kbtui.tui.screens.arms import BanScreen, ForceScreen
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.screens.dialogs import ConfirmScreen, PromptScreen, SafeInput
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.replay import ReplayScreen
from kbtui.tui.widgets.arms_view import ArmsView
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.tree_view import TreeView


@pytest.mark.parametrize("size", SIZES)
async def test_the_header_says_what_matters_first(size: tuple[int, int]) -> None:
    async with drive(sample().events, size) as d:
        first, second = d.lines[:2]
        assert "softmax · NVIDIA H200" in first
        assert "● live" in first
        assert "30/40 pulls" in first
        assert "★ best #24 1.15x [1.12, 1.18] faster" in second
        assert "37.3 µs → 32.4 µs" in second
        assert "54 %" in second


@pytest.mark.parametrize("size", SIZES)
async def test_modelled_is_never_shown_as_measured(size: tuple[int, int]) -> None:
    async with drive(sample("modelled").events, size) as d:
        assert "modelled" in d.lines[0]
        assert "~1.15 est" in d.lines[1]
        for keys in ("1", "2", "3", "4", "5"):
            await d.press(keys)
            assert "1.15x" not in d.text
            assert "speed of light" not in d.text
        await d.press("1", "enter", "3")
        assert "an estimate from counted traffic" in d.text
        assert "~1.15 est" in d.text
        assert "1.15x" not in d.text


@pytest.mark.parametrize("size", SIZES[1:])
async def test_wide_terminals_show_all_panes_side_by_side(size: tuple[int, int]) -> None:
    async with drive([*sample().events, gpu(64.0)], size) as d:
        heads = next(line for line in d.lines if "Candidates" in line)
        assert "Arms" in heads
        for word in ("GPU", "Best so far", "Log", "busy 64 %", "mem 2.0/140 GB", "52 °C", "DRAM 83 %", "▒ masked"):
            assert word in d.text, word


async def test_a_narrow_terminal_shows_one_pane_and_a_summary_of_the_rest() -> None:
    async with drive([*sample().events, gpu(64.0)], (80, 24)) as d:
        assert "1 tree   2 arms   3 gpu   4 curve   5 log" in d.text
        assert "Candidates" in d.text
        assert "Best so far" not in d.text
        assert "now c1 fusion .67, then c2 tiling .57 · busy 64 % DRAM 78 % 52 °C" in d.lines[-2]
        for key, title in (("2", "Arms"), ("3", "GPU"), ("4", "Best so far"), ("5", "Log"), ("1", "Candidates")):
            await d.press(key)
            assert any(line.startswith(f"▌{title}") for line in d.lines), title
        await d.press("tab", "tab")
        assert "▌GPU" in d.text
        await d.press("shift+tab")
        assert "▌Arms" in d.text


@pytest.mark.parametrize("size", SIZES)
async def test_the_tree_shows_lineage_verdicts_and_evidence(size: tuple[int, int]) -> None:
    async with drive(sample().events, size) as d:
        await d.press("z", "home")
        text = d.text
        assert "○ #0   baseline" in text
        assert "├ ≈ #1" in text
        for mark in ("✓ #4", "✗ #3", "⚠ #7", "– #5", "↓ #2"):
            assert mark in text or size[1] < 40, mark
        assert "cheat" in text
        assert "invalid" in text


async def test_in_work_is_said_with_its_stage() -> None:
    progress = e.Progressed(stage="verifying", text="case 3 of 9", candidate_id=31, pull=31)
    async with drive([*sample().events, progress], (200, 50)) as d:
        await d.press("z", "end")
        assert any("↻ #31" in line and "verifying …" in line for line in d.lines)


# ---------------------------------------------------------------- steering: every action, its command and its answer


STEERING = [
    ("space", c.Pause), ("s", c.Step), ("p", c.Pin),
    ("right_square_bracket", c.SetBudget), ("left_square_bracket", c.SetBudget),
]  # fmt: skip


@pytest.mark.parametrize(("key", "command"), STEERING)
async def test_a_key_sends_its_command_and_shows_the_answer(key: str, command: type[c.Command]) -> None:
    async with drive(sample().events) as d:
        await d.press(key)
        assert [type(sent) for sent in d.feed.commands] == [command]
        assert "@" in d.feed.commands[0].by
        assert d.text.count("done as you asked") == 2  # the toast and the log


async def test_commands_carry_what_was_chosen() -> None:
    async with drive(sample().events) as d:
        await d.press("p")
        assert d.feed.commands[-1].parent_id == 24
        await d.play(e.Pinned(seq=500, t=1.8e9, by=BY, parent_id=24))
        assert "[pinned]" in d.text
        await d.press("p")
        assert d.feed.commands[-1].parent_id is None
        await d.press("right_square_bracket")
        assert d.feed.commands[-1].iterations == 45
        await d.press("left_square_bracket")
        assert d.feed.commands[-1].iterations == 35


async def test_the_budget_cannot_go_below_what_was_played() -> None:
    script = Script()
    script.begin(iterations=3)
    async with drive(script.events) as d:
        await d.press("left_square_bracket")
        assert d.feed.commands[-1].iterations == 1


async def test_space_resumes_a_paused_run() -> None:
    script = sample()
    script.add(e.RunPaused, by=BY, reason="lunch")
    async with drive(script.events) as d:
        assert "‖ paused" in d.lines[0]
        assert "‖ paused: lunch" in d.lines[-2]
        assert "space resume" in d.lines[-1]
        await d.press("space")
        assert isinstance(d.feed.commands[0], c.Resume)
        await d.play(e.RunResumed(seq=len(script.events) + 1, t=1.8e9, by=BY))
        assert "lunch" not in "".join(d.lines[-2:])


REASON = (
    "openrouter/qwen/qwen3-coder refuses the key: 401 No auth credentials found; set OPENROUTER_API_KEY in the environment of"
    " the run and go on with it by kbtui resume"
)


@pytest.mark.parametrize("size", SIZES)
async def test_the_reason_of_a_pause_is_there_whole(size: tuple[int, int]) -> None:
    script = sample()
    script.add(e.RunPaused, by="kbtui", reason=REASON, owner="provider")
    async with drive(script.events, size) as d:
        at = next(i for i, line in enumerate(d.lines) if "‖ paused: openrouter" in line)
        assert " ".join("\n".join(d.lines[at:-1]).split()) == f"‖ paused: {REASON}"
        assert "faster" in d.lines[1]
        assert REASON[:20] not in d.lines[1]
        await d.press("space")
        await d.play(e.RunResumed(seq=len(script.events) + 1, t=1.8e9, by=BY))
        assert ("now c1" in d.lines[-2]) == (size[0] == 80), "below one pane, the line of the others is back"


async def test_a_reason_without_end_takes_three_rows() -> None:
    script = sample()
    script.add(e.RunPaused, by="kbtui", reason="word " * 200)
    async with drive(script.events, (80, 24)) as d:
        rows = d.lines[-4:-1]
        assert all("word word" in row for row in rows)
        assert "word word" not in d.lines[-5]
        assert rows[-1].endswith("…")


async def test_two_toasts_at_most_the_newest_and_none_without_room() -> None:
    def toasts() -> list[str]:
        return [line.strip("▌█ ┃│") for line in d.lines if "sentence" in line]

    async with drive(sample().events, (80, 24)) as d:
        for number in range(5):
            d.app.refuse(f"sentence {number}")
        await d.settle()
        assert [text[-1] for text in toasts()] == ["3", "4"]
        d.app.refuse("sentence 5")
        await d.settle()
        assert [text[-1] for text in toasts()] == ["4", "5"]
        assert [line.text for line in d.app.messages] == [f"sentence {number}" for number in range(6)]
        await d.pilot.resize_terminal(40, 10)
        await d.settle()
        assert toasts() == []
        d.app.refuse("sentence 6")
        await d.settle()
        assert [line for line in d.lines if line] == ["needs 60x16, has 40x10; q detaches"]


async def test_a_refusal_by_the_run_is_shown_as_one() -> None:
    async with drive(sample().events) as d:
        d.feed.answer = (False, "fusion is banned")
        await d.press("s")
        assert any("⚠ fusion is banned" in line for line in d.lines)


async def test_force_picks_an_arm_with_its_statistics() -> None:
    async with drive(sample().events) as d:
        await d.press("f")
        assert isinstance(d.app.screen, ForceScreen)
        assert any("c1 fusion" in line and ".67" in line and "headroom 22 %" in line for line in d.lines)
        assert any("masked: DRAM saturated" in line for line in d.lines)
        await d.press("down", "p", "enter")
        assert d.feed.commands == [c.Force(by=d.feed.commands[0].by, strategy="tiling", cluster=2, parent_id=24)]


async def test_force_can_leave_cluster_and_parent_to_the_policy() -> None:
    async with drive(sample().events) as d:
        await d.press("f", "end", "enter")
        assert d.feed.commands == [c.Force(by=d.feed.commands[0].by, strategy="access_layout")]


async def test_ban_and_unban() -> None:
    async with drive(sample().events) as d:
        await d.press("b", "enter")
        assert d.feed.commands == [c.Ban(by=d.feed.commands[0].by, strategy="tiling", cluster=None)]
        await d.press("b", "end")
        assert isinstance(d.app.screen, BanScreen)
        banned = next(i for i, line in enumerate(d.lines) if "c1   access_layout" in line)
        assert "⊘ banned" in d.lines[banned]
        await d.press(*["up"] * 6, "enter")
        assert d.feed.commands[-1] == c.Unban(by=d.feed.commands[0].by, strategy="access_layout", cluster=1)


async def test_enter_on_a_cell_of_the_matrix_forces_it() -> None:
    async with drive(sample().events) as d:
        await d.press("2", "down", "right", "right")
        cell = d.app.screen.query_one(ArmsView).cell
        assert cell is not None
        assert (cell.cluster, cell.strategy) == (1, "fusion")
        assert "c1 fusion  not played yet" in d.text
        assert "mean .02 + bonus .65 = .67" in d.text
        await d.press("enter")
        assert d.feed.commands == [c.Force(by=d.feed.commands[0].by, strategy="fusion", cluster=1)]
        await d.press("left", "up")
        assert (d.app.screen.query_one(ArmsView).cell or cell).strategy == "vectorization"


async def test_inject_sends_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    async with drive(sample().events) as d:
        await d.press("i")
        assert isinstance(d.app.screen, PromptScreen)
        d.app.screen.query_one(SafeInput).value = str(tmp_path / "none.py")
        await d.press("enter")
        assert "there is no file" in d.text
        d.app.screen.query_one(SafeInput).value = str(mine)
        await d.press("enter")
        assert d.feed.commands == [c.Inject(by=d.feed.commands[0].by, name="mine.py", source="x = 1\n")]


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"\xff\xfe\x00", "cannot be read as text"), (b"a" * 1_000_001, "at most")]
)
async def test_inject_refuses_what_is_no_kernel(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    async with drive(sample().events, (160, 40)) as d:
        await d.press("i")
        d.app.screen.query_one(SafeInput).value = str(tmp_path / "bad.py")
        await d.press("enter")
        assert isinstance(d.app.screen, PromptScreen)
        from kbtui.tui.screens.injection import file_problem

        assert complaint in file_problem(str(tmp_path / "bad.py"))
        await d.press("escape")
        assert d.feed.commands == []


async def test_tag_sends_word_and_note() -> None:
    async with drive(sample().events) as d:
        await d.press("t", *"odd", "space", *"look", "enter")
        assert d.feed.commands == [c.Tag(by=d.feed.commands[0].by, candidate_id=24, tag="odd", note="look")]


async def test_stop_asks_with_no_chosen() -> None:
    async with drive(sample().events) as d:
        await d.press("Q")
        assert isinstance(d.app.screen, ConfirmScreen)
        assert d.feed.run_id in d.text
        assert "process ends" in d.text
        await d.press("enter")
        assert d.feed.commands == []
        await d.press("Q", "right", "enter")
        assert [type(sent) for sent in d.feed.commands] == [c.Stop]


@pytest.mark.parametrize(("keys", "sent"), [(("y",), 1), (("n",), 0), (("escape",), 0), (("left", "left", "enter"), 0)])
async def test_answers_to_a_question(keys: tuple[str, ...], sent: int) -> None:
    async with drive(sample().events) as d:
        await d.press("Q", *keys)
        assert len(d.feed.commands) == sent


async def test_detach_leaves_the_run_alone() -> None:
    async with drive(sample().events) as d:
        await d.press("q")
        assert d.app.return_value == 0
        assert d.feed.commands == []


async def test_escape_goes_home_and_lets_go_of_the_run() -> None:
    async with drive(sample().events) as d:
        await d.press("escape")
        assert isinstance(d.app.screen, HomeScreen)
        assert d.feed.closed
        assert d.app.session is None


async def test_themes_can_be_gone_through() -> None:
    async with drive(sample().events) as d:
        seen = {d.app.theme}
        for _ in d.app.theme_names():
            await d.press("T")
            seen.add(d.app.theme)
        assert seen == set(d.app.theme_names())
        assert len(seen) >= 6


async def test_redraw_paints_and_changes_nothing() -> None:
    async with drive(sample().events) as d:
        before = d.lines
        await d.press("ctrl+l")
        assert d.lines == before


async def test_copy_sends_the_source_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drive(sample().events) as d:
        sent: list[str] = []
        assert d.app._driver is not None
        monkeypatch.setattr(d.app._driver, "write", sent.append)
        await d.press("c")
        assert any(part.startswith("\x1b]52;c;") or "]52;c;" in part for part in sent)
        assert "was sent to the clipboard" in d.text


async def test_export_writes_a_file_and_never_over_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with drive(sample().events) as d:
        await d.press("e")
        (file,) = tmp_path.iterdir()
        assert file.name == f"{d.feed.run_id}-c24.py"
        assert file.read_text().endswith(d.app.session.state.candidates[24].source)  # type: ignore[union-attr]
        assert "1.15x [1.12, 1.18] against the baseline, measured" in file.read_text()
        file.write_text("mine")
        await d.press("e")
        assert file.read_text() == "mine"
        assert "is there already" in d.text


# ---------------------------------------------------------------- looking


@pytest.mark.parametrize(("key", "tab"), [("enter", "source"), ("d", "diff")])
async def test_opening_a_candidate(key: str, tab: str) -> None:
    async with drive(sample().events) as d:
        await d.press(key)
        assert isinstance(d.app.screen, CandidateScreen)
        assert (d.app.screen.candidate_id, d.app.screen.tab) == (24, tab)


async def test_folding() -> None:
    async with drive(sample().events) as d:
        tree = d.app.screen.query_one(TreeView)
        await d.press("z", "home", "down")
        assert tree.chosen_id == 1
        rows = len(tree.source)
        await d.press("left")
        assert len(tree.source) < rows
        assert "▸ #1" in d.text
        assert "folded" in d.text
        await d.press("right")
        assert len(tree.source) == rows
        await d.press("right")
        assert tree.chosen_id == 2
        await d.press("H")
        assert tree.chosen_id == 2
        await d.press("H", "H")
        assert tree.chosen_id in (1, 2)
        await d.press("asterisk")
        assert tree.chosen_id == 24


async def test_navigation_keys_move_the_cursor() -> None:
    async with drive(sample().events) as d:
        tree = d.app.screen.query_one(TreeView)
        await d.press("g")
        assert tree.cursor == 0
        await d.press("j", "down", "k")
        assert tree.cursor == 1
        await d.press("G")
        assert tree.cursor == len(tree.source) - 1
        await d.press("pageup")
        assert tree.cursor == len(tree.source) - 1 - (tree.rows - 1)
        await d.press("pagedown")
        assert tree.cursor == len(tree.source) - 1


async def test_the_chosen_line_stays_still_while_the_tree_grows() -> None:
    script = sample()
    async with drive(script.events, (120, 30)) as d:
        tree = d.app.screen.query_one(TreeView)
        await d.press("z", "home", *["down"] * 20)
        chosen, line = tree.chosen_id, tree.cursor - tree.top
        assert chosen is not None
        first = len(script.events)
        for number in range(32, 60):
            script.generated(number, 1, number, "tiling", f"grown {number}")
        await d.play(*script.events[first:])
        assert tree.chosen_id == chosen
        assert tree.cursor - tree.top == line


async def test_the_log_follows_until_it_is_scrolled() -> None:
    script = sample()
    async with drive(script.events) as d:
        first = len(script.events)
        script.add(e.Noted, level="info", text="first note")
        await d.play(*script.events[first:])
        assert "first note" in d.text
        await d.press("5", "home")
        first = len(script.events)
        script.add(e.Noted, level="error", text="second note")
        await d.play(*script.events[first:])
        assert "second note" not in d.text
        await d.press("end")
        assert "✗ second note" in d.text


async def test_resizing_keeps_the_selection_and_raises_nothing() -> None:
    async with drive(sample().events, (200, 50)) as d:
        tree = d.app.screen.query_one(TreeView)
        await d.press("z", "home", *["down"] * 9)
        chosen = tree.chosen_id
        for size in ((80, 24), (59, 15), (80, 24), (100, 30), (60, 16), (200, 50)):
            await d.pilot.resize_terminal(*size)
            await d.settle()
            if size == (59, 15):
                assert [line for line in d.lines if line] == ["needs 60x16, has 59x15; q detaches"]
            else:
                assert any(f"#{chosen} " in line for line in d.lines), size
        assert tree.chosen_id == chosen


async def test_resizing_with_a_dialog_open() -> None:
    async with drive(sample().events, (200, 50)) as d:
        await d.press("f")
        for size in ((80, 24), (59, 15), (200, 50)):
            await d.pilot.resize_terminal(*size)
            await d.settle()
        assert isinstance(d.app.screen, ForceScreen)
        await d.press("escape")
        assert "Candidates" in d.text


# ---------------------------------------------------------------- read-only, gone, unknown


WRITING = ["space", "s", "f", "b", "p", "i", "t", "Q", "right_square_bracket", "left_square_bracket"]


@pytest.mark.parametrize("key", WRITING)
async def test_read_only_refuses_what_changes_the_run(key: str) -> None:
    async with drive(sample().events, read_only=True) as d:
        before = d.app.screen
        assert "read-only" in d.lines[0]
        await d.press(key)
        assert d.app.screen is before
        assert d.feed.commands == []
        assert "this viewer looks and does not touch" in d.text


@pytest.mark.parametrize("size", SIZES)
async def test_read_only_offers_nothing_that_changes_the_run(size: tuple[int, int], tmp_path: Path) -> None:
    async with drive(sample().events, size, read_only=True, newcomer=Newcomer(tmp_path / "hints")) as d:
        footer, hint = d.lines[-2], d.lines[-1]
        assert [word for word in ("pause", "step", "force", "ban", "pin", "inject", "continue") if word in footer] == []
        assert all(word in footer for word in ("enter open", "d diff", "? help", "q detach"))
        assert "force" not in hint
        assert "r replays the run" in hint


async def test_a_finished_run_is_shown_from_its_journal_alone() -> None:
    script = sample()
    script.add(e.RunStopped, stopped_by="iterations", summary=_summary(script))
    async with drive(script.events, connected=False) as d:
        assert "■ stopped" in d.lines[0]
        assert "stopped by iterations" in d.lines[1]
        await d.press("s")
        assert "the run has ended" in d.text
        await d.press("enter")
        assert isinstance(d.app.screen, CandidateScreen)


@pytest.mark.parametrize("size", SIZES)
async def test_an_ended_run_offers_what_can_be_done_with_it(size: tuple[int, int], tmp_path: Path) -> None:
    script = sample()
    keep(script.run_id, script.events)
    offers = ("C continue", "enter open", "r replay", "e export", "esc home")
    newcomer = Newcomer(tmp_path / "hints")
    async with drive(script.events, size, newcomer=newcomer) as d:
        assert not any(offer in d.lines[-2] for offer in ("r replay", "e export", "C continue"))
        assert "f forces an arm" in d.lines[-1]
        d.feed.connected = d.feed.held = False
        await d.play(
            e.RunStopped(seq=len(script.events) + 1, t=1.8e9, stopped_by="iterations", summary=_summary(script))
        )
        assert [offer for offer in offers if offer not in d.lines[-2]] == []
        assert "pause" not in d.lines[-2]
        assert "last c1 fusion .67" in d.text
        assert "now c1" not in d.text
        assert d.lines[-1] == " New here?  enter opens a candidate  r replays the run  ? all keys  . got it"
        await d.press("r")
        assert isinstance(d.app.screen, ReplayScreen)
        assert not any(isinstance(screen, CockpitScreen) for screen in d.app.screen_stack[:-1])
        assert "space plays the run" in d.lines[-1]
        await d.press("r")
        assert "this is the replay" in d.app.messages[-1].text


async def test_a_crashed_run_says_what_to_do_and_live_again_when_a_process_is_back() -> None:
    script = sample()
    async with drive(script.events, connected=False) as d:
        assert "✗ crashed" in d.lines[0]
        assert "kbtui run --continue" in d.lines[1]
        d.feed.connected = d.feed.held = True
        await d.play(e.RunContinued(seq=len(script.events) + 1, t=1.8e9, pid=77))
        assert "● live" in d.lines[0]
        assert "★ best" in d.lines[1]
        await d.press("s")
        assert isinstance(d.feed.commands[0], c.Step)


async def test_a_process_that_does_not_answer_is_stale() -> None:
    async with drive(sample().events, connected=False) as d:
        d.feed.held = True
        d.feed.refusal = "run x speaks protocol 2, this kbtui speaks 1"
        await d.settle()
        assert "⚠ stale" in d.lines[0]
        assert "speaks protocol 2" in d.lines[1]


async def test_an_unknown_journal_shows_an_empty_cockpit() -> None:
    async with drive([], connected=False) as d:
        assert "? missing" in d.lines[0]
        for key in ("enter", "d", "c", "e", "1", "2", "3", "4", "5", "f", "s"):
            await d.press(key)
        assert d.feed.commands == []


async def test_a_damaged_journal_is_said_and_what_was_read_stays() -> None:
    script = sample()
    async with drive(script.events) as d:
        await d.play(e.MovesFound(seq=900, candidate_id=777, moves={}))
        assert "speaks of candidate 777" in d.lines[1]
        assert "#24" in d.text


def _summary(script: Script):  # type: ignore[no-untyped-def]
    from kbtui.state.records import Summary

    return Summary(
        run_id=script.run_id, problem="softmax", device="NVIDIA H200", timing="measured", pulls=30, candidates=32,
        correct=21, best=None, baseline_ms=0.132, cost_usd=0.0, tokens=0, stopped_by="iterations",
    )  # fmt: skip


# ---------------------------------------------------------------- painting


async def test_nothing_is_painted_when_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = sample()
    script.add(e.RunPaused, by=BY)
    async with drive(script.events) as d:
        painted: list[object] = []
        monkeypatch.setattr(LineView, "refresh", lambda self, *regions, **_: painted.append((self.id, regions)) or self)
        await d.settle()
        await d.settle()
        assert painted == []


async def test_a_tick_without_news_does_not_even_look_at_the_panes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = sample()
    script.add(e.RunStopped, stopped_by="iterations", summary=_summary(script))
    async with drive(script.events, connected=False) as d:
        looks = []
        paint = CockpitScreen.paint_panes
        monkeypatch.setattr(CockpitScreen, "paint_panes", lambda screen: (looks.append(1), paint(screen)))
        for _ in range(3):
            await d.app.tick()
        assert looks == []
        assert d.app.session is not None
        d.app.session.say("said by this viewer")
        await d.app.tick()
        assert len(looks) == 1
        await d.settle()
        assert "said by this viewer" in d.text
        # what is held back is painted by a later tick, though nothing is new then
        monkeypatch.setattr(d.app._pace, "may_paint", lambda *_: False)
        d.app.session.say("held back")
        await d.app.tick()
        await d.pilot.pause()
        assert "held back" not in d.text
        monkeypatch.undo()
        await d.settle()
        assert "held back" in d.text


async def test_a_live_run_is_painted_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drive(sample().events) as d:
        looks = []
        monkeypatch.setattr(CockpitScreen, "paint_panes", lambda _: looks.append(1))
        for _ in range(3):
            await d.app.tick()
        assert len(looks) >= 3


async def test_only_changed_lines_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drive(sample().events) as d:
        refreshed: list[tuple[str | None, tuple[object, ...]]] = []
        original = LineView.refresh

        def refresh(self: LineView, *regions, **options):  # type: ignore[no-untyped-def]
            refreshed.append((self.id, regions))
            return original(self, *regions, **options)

        monkeypatch.setattr(LineView, "refresh", refresh)
        await d.play(e.Progressed(stage="compiling", candidate_id=31, pull=31))
        tree = [regions for id_, regions in refreshed if id_ == "tree"]
        assert all(len(regions) == 1 and regions[0].height == 1 for regions in tree)  # type: ignore[attr-defined]
        assert len(tree) <= 2


@pytest.mark.parametrize("opener", ["f", "b", "Q"])
async def test_letters_stay_in_a_dialog(opener: str) -> None:
    async with drive(sample().events) as d:
        await d.press(opener)
        dialog = d.app.screen
        await d.press("q", "T", "s", "space", "question_mark", "d")
        assert d.app.screen is dialog
        assert d.app.return_value is None
        assert d.feed.commands == []


@pytest.mark.parametrize(("opener", "command"), [("f", c.Force), ("b", c.Ban)])
async def test_a_dialog_answers_before_it_is_painted(opener: str, command: type[c.Command]) -> None:
    """Keys typed faster than the screen: the dialog's first line is taken."""
    async with drive(sample().events) as d:
        await d.pilot.press(opener, "enter")
        await d.settle()
        assert [type(sent) for sent in d.feed.commands] == [command]


def test_the_time_to_go_follows_the_pulls_of_late() -> None:
    from kbtui.tui.views.header import time_left

    state = RunState().apply_all(sample().events)
    done = [pull for pull in state.pulls.values() if pull.ended]
    for pull in state.pulls.values():
        pull.took = None
    assert time_left(state) is None, "no pace is known"
    for pull, seconds in zip(done[-4:], (5.0, 7.0, 9.0, 600.0), strict=True):
        pull.took = seconds  # one that was long does not count for much
    state.budget_usd, state.budget_s = None, None
    assert time_left(state) == 8.0 * (state.iterations - state.pulls_ended)
    state.budget_s = state.elapsed + 11
    assert time_left(state) == 11
    state.elapsed += 660  # a pause is none of the pulls'
    state.budget_s = None
    assert time_left(state) == 8.0 * (state.iterations - state.pulls_ended)


def test_a_score_on_the_screen_is_what_its_parts_add_up_to() -> None:
    from kbtui.tui.views.arms import cells_of, choice_text, describe

    state = RunState().apply_all(sample().events)
    for cell in cells_of(state).values():
        if cell.bonus is not None and cell.believed is not None and cell.score is not None:
            assert abs(cell.believed + cell.bonus - cell.score) < 1e-6
    assert any(cell.pulls == 0 and cell.mean is None for cell in cells_of(state).values()), "the prior is no pull"
    scaled = msgspec.structs.replace(state.scores[0], mean=4.59, bonus=0.21, score=4.80, held="")
    state.scores = (scaled, *state.scores[1:])
    key = (scaled.cluster, str(scaled.strategy))
    assert "mean .13" in plain(describe(cells_of(state)[key]))
    assert "scaled mean 4.6 + bonus .21 = 4.8" in plain(describe(cells_of(state)[key]))
    # a rank is no sum: it is not shown as a number
    state.scores = tuple(msgspec.structs.replace(score, bonus=0.0, score=-1.0) for score in state.scores)
    assert "-1" not in choice_text(state)
    assert "=" not in plain(describe(cells_of(state)[key]))
