"""Steering beyond single keys: hints, limits in dollars, taking back, ending work, and editing a version of one's own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tui_drive import Drive, drive
from tui_sample import BY, Script, sample

from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.acts import nothing_left
from kbtui.state.run_state import RunState
from kbtui.tui.line import plain
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.screens.dialogs import ConfirmScreen, PromptScreen, SafeInput
from kbtui.tui.screens.injection import editor_command, syntax_problem
from kbtui.tui.screens.pick import PickScreen
from kbtui.tui.screens.steering import stepped, work_at
from kbtui.tui.session import who
from kbtui.tui.widgets.strips import Sentences
from kbtui.tui.widgets.tree_view import TreeView

PROMPT = (r.Message("system", "Be quick."), r.Message("user", "Make this kernel faster:\n    x = 1"))


def writing(script: Script, pull: int) -> e.Asked:
    """A model was asked in a pull and has not answered."""
    script.pull(pull, 24, "fusion", 1)
    asked = script.add(
        e.Asked, pull=pull, call=1, model="vendor/large", asking="write", strategy="fusion", messages=PROMPT,
        prompt_digest="d", most_tokens=500, reserved_usd=0.25,
    )  # fmt: skip
    assert isinstance(asked, e.Asked)
    return asked


# ---------------------------------------------------------------- hints, limits, taking back


async def test_a_hint_is_asked_for_with_the_one_before() -> None:
    script = sample()
    script.add(e.Hinted, by=BY, text="fewer warps")
    async with drive(script.events) as d:
        await d.press("h")
        assert isinstance(d.app.screen, PromptScreen)
        assert d.app.screen.query_one(SafeInput).value == "fewer warps"
        await d.press("enter")
        assert d.feed.commands == []  # nothing was changed
        await d.press("h", *" only", "enter")
        assert d.feed.commands[-1] == c.Hint(by=who(), text="fewer warps only")
        await d.press("h")
        d.app.screen.query_one(SafeInput).value = ""
        await d.press("enter")
        assert d.feed.commands[-1] == c.Hint(by=who(), text="")
        await d.press("h", "escape")
        assert len(d.feed.commands) == 2


@pytest.mark.parametrize(
    ("limit", "way", "now"),
    [(1.0, 1, 1.5), (1.0, -1, 0.9), (0.3, 1, 0.4), (0.05, -1, 0.0), (5.0, 1, 6.0), (5.0, -1, 4.5), (20.0, 1, 25.0),
     (20.0, -1, 19.0), (100.0, -1, 95.0)],
)  # fmt: skip
def test_steps_of_the_dollar_limit(limit: float, way: int, now: float) -> None:
    assert stepped(limit, way) == pytest.approx(now)


async def test_the_dollar_limit_follows_the_keys() -> None:
    async with drive(sample().events) as d:
        await d.press("right_curly_bracket")
        assert d.feed.commands[-1] == c.SetBudget(by=who(), budget_usd=1.5)
        await d.press("left_curly_bracket")
        assert d.feed.commands[-1] == c.SetBudget(by=who(), budget_usd=0.9)


async def test_undo_names_the_act_it_means() -> None:
    script = sample()
    mine = script.add(e.Tagged, by=who(), candidate_id=24, tag="odd")
    async with drive(script.events) as d:
        await d.press("u")
        assert d.feed.commands == [c.Undo(by=who(), act=mine.seq)]


async def test_undo_of_what_somebody_else_did_asks() -> None:
    async with drive(sample().events) as d:
        await d.press("u")
        assert isinstance(d.app.screen, ConfirmScreen)
        assert f"Take back what {BY} did?" in d.text
        assert "banned c1 access_layout" in d.text
        await d.press("enter")
        assert d.feed.commands == []
        await d.press("u", "y")
        assert [type(sent) for sent in d.feed.commands] == [c.Undo]


async def test_undo_of_nothing_says_so() -> None:
    script = Script()
    script.begin()
    async with drive(script.events) as d:
        await d.press("u")
        assert "nothing to take back" in d.text
        assert d.feed.commands == []


async def test_undo_of_an_injection_that_is_judged_says_so() -> None:
    script = Script()
    script.begin()
    script.add(e.Injected, by=BY, name="mine.py", source="x = 1")
    script.generated(1, 0, 0, None, "mine.py", generator="inject", source="x = 1")
    async with drive(script.events) as d:
        await d.press("u")
        assert "mine.py is being judged already, as #1" in d.text.replace("\n", " ")
    script.judged(1, 1.1)
    assert nothing_left(RunState().apply_all(script.events)) == "there is nothing to take back"


async def test_what_a_viewer_may_not_do_is_no_business_of_the_log() -> None:
    async with drive(sample().events, read_only=True) as d:
        assert d.app.session is not None
        before = list(d.app.session.replies)
        await d.press("space")
        assert "read-only" in d.text
        assert list(d.app.session.replies) == before
        assert "read-only" in d.app.messages[-1].text


async def test_a_second_viewer_touches_nothing() -> None:
    async with drive(sample().events, read_only=True) as d:
        for key in ("h", "u", "x", "i", "I", "t", "p", "b", "f", "right_curly_bracket", "space", "Q"):
            d.app.clear_notifications()
            await d.press(key)
            assert isinstance(d.app.screen, CockpitScreen), key
            assert "read-only: this viewer looks and does not touch" in d.text, key
        assert d.feed.commands == []


# ---------------------------------------------------------------- ending what is in work


def test_x_means_one_thing() -> None:
    script = sample()
    state = RunState().apply_all(script.events)
    judged, done = state.candidates[31], state.candidates[24]
    found = work_at(state, judged, judged.pull)
    assert found is not None
    assert found.command == c.Kill(by=who(), candidate_id=31)
    assert work_at(state, done, done.pull) is None
    first = len(script.events)
    writing(script, 32)
    state.apply_all(script.events[first:])
    found = work_at(state, done, done.pull)
    assert found is not None
    assert found.command == c.Cancel(by=who(), pull=32)
    assert work_at(state, judged, judged.pull).command == c.Kill(by=who(), candidate_id=31)  # type: ignore[union-attr]
    first = len(script.events)
    writing(script, 33)
    state.apply_all(script.events[first:])
    assert work_at(state, done, done.pull).command.pull is None  # type: ignore[union-attr]
    assert work_at(state, None, 33).command == c.Cancel(by=who(), pull=33)  # type: ignore[union-attr]


async def test_x_asks_and_kills_what_is_judged() -> None:
    async with drive(sample().events) as d:
        await d.press("x")
        assert "nothing is in work here" in d.text
        d.app.screen.query_one(TreeView).go_to(31)
        await d.press("x")
        assert isinstance(d.app.screen, ConfirmScreen)
        assert "Kill candidate #31" in d.text
        await d.press("enter")
        assert d.feed.commands == []
        await d.press("x", "y")
        assert d.feed.commands == [c.Kill(by=who(), candidate_id=31)]


async def test_a_version_that_is_being_written_has_a_line_a_screen_and_an_end() -> None:
    script = sample()
    asked = writing(script, 32)
    growing = e.ReplyDelta(
        pull=32, call=1, model="vendor/large", characters=60, tokens=15, tail="def softmax(x):\n    y"
    )
    async with drive([*script.events, growing]) as d:
        d.feed.asked = {32: [asked]}
        tree = d.app.screen.query_one(TreeView)
        line = next(line for line in d.lines if "pull 32" in line and "↻" in line)
        assert "fusion" in line
        assert "writing, 15 tokens" in line
        await d.press("end")
        while tree.chosen_pull is None:
            await d.press("up")
        await d.press("enter")
        assert isinstance(d.app.screen, CandidateScreen)
        for text in (
            "↻ pull 32 fusion",
            "asked for a version",
            "vendor/large",
            "def softmax(x):",
            "Make this kernel",
            "Be quick.",
        ):
            assert text in d.text, text
        await d.press("1")
        assert "only being written" in d.text
        await d.press("x", "y")
        assert d.feed.commands == [c.Cancel(by=who(), pull=32)]
        first = len(script.events)
        script.add(
            e.Replied, pull=32, call=1, model="vendor/large", asking="write", strategy="fusion", prompt_digest="d",
            text="Title: one pass\n```python\nx = 2\n```", finish="stop", prompt_tokens=1200, completion_tokens=80,
            cost_usd=0.02, seconds=3.1,
        )  # fmt: skip
        script.generated(32, 24, 32, "fusion", "one pass", generator="llm")
        await d.play(*script.events[first:])
        assert "#32 fusion · one pass" in d.lines[0]
        assert "1,200 tokens in, 80 out" in d.text
        assert "$0.02" in d.text
        await d.press("1")
        assert "@triton.jit" in d.text


# ---------------------------------------------------------------- a version of one's own


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An editor that is a script: it does to the file what the text of `tmp_path / "edit"` (Python, `s` the text) says."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        f"p = pathlib.Path(sys.argv[1]); s = p.read_text(); n = {{'s': s}}\n"
        f"exec(pathlib.Path({str(tmp_path / 'edit')!r}).read_text(), n); p.write_text(n['s'])\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "edit"


def lend(d: Drive, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let the app of a test give its terminal away; the list says whether painting was held back meanwhile."""
    held: list[bool] = []

    @contextlib.contextmanager
    def suspend() -> Iterator[None]:
        held.append(d.app._batch_count > 0)
        yield

    monkeypatch.setattr(d.app, "suspend", suspend)
    return held


async def edit(d: Drive, keys: tuple[str, ...] = ("I",)) -> None:
    await d.press(*keys)
    for _ in range(3):
        await d.settle()


async def test_the_chosen_candidate_is_edited_and_queued(lent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lent.write_text("s = s.replace('num_warps', 'num_stages=2, num_warps')")
    async with drive(sample().events) as d:
        held = lend(d, monkeypatch)
        await edit(d)
        (sent,) = d.feed.commands
        assert isinstance(sent, c.Inject)
        assert sent.name == "edit of #24"
        assert "num_stages=2, num_warps=28" in sent.source
        assert held == [True]
        assert not list(lent.parent.glob("kbtui-edit-*"))
        await edit(d, ("i", "enter"))  # an empty path is the editor too
        assert len(d.feed.commands) == 2


async def test_an_unchanged_version_is_not_injected(lent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lent.write_text("pass")
    async with drive(sample().events) as d:
        lend(d, monkeypatch)
        await edit(d)
        assert "nothing was changed" in d.text
        assert d.feed.commands == []
        assert not list(lent.parent.glob("kbtui-edit-*"))


async def test_a_slip_is_said_before_it_is_queued_and_nothing_is_lost(
    lent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent.write_text("s = s.replace('return out', 'return (out')")
    async with drive(sample().events, (160, 40)) as d:
        lend(d, monkeypatch)
        await edit(d)
        assert isinstance(d.app.screen, ConfirmScreen)
        assert "'(' was never closed: return (out" in d.text
        lent.write_text("s = s.replace('return (out', 'return out + 0')")
        await edit(d, ("y",))
        assert "return out + 0" in d.feed.commands[0].source
        lent.write_text("s = s.replace('return out', 'return (out')")
        await edit(d)
        await edit(d, ("n",))
        (kept,) = lent.parent.glob("kbtui-edit-*/c24.py")
        assert "return (out" in kept.read_text()
        assert "your version is kept in" in d.text
        assert len(d.feed.commands) == 1


async def test_a_version_that_the_run_refuses_is_kept(lent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lent.write_text("s = 'x = 1'")
    async with drive(sample().events) as d:
        lend(d, monkeypatch)
        d.feed.answer = (False, "it does not define softmax")
        await edit(d)
        (kept,) = lent.parent.glob("kbtui-edit-*/c24.py")
        assert kept.read_text() == "x = 1"


async def test_an_editor_that_fails_or_cannot_be_had(lent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lent.write_text("raise SystemExit(3)")
    async with drive(sample().events) as d:
        await edit(d)
        assert "cannot be lent to an editor" in d.text  # a test has no terminal
        lend(d, monkeypatch)
        await edit(d)
        assert "ended with status 3: nothing is injected" in d.text
        monkeypatch.setenv("VISUAL", "/nowhere/editor")
        await edit(d)
        assert "/nowhere/editor cannot be started" in d.text
        monkeypatch.delenv("VISUAL")
        monkeypatch.setenv("EDITOR", "")
        monkeypatch.setenv("PATH", "/nowhere")
        await edit(d)
        assert "no editor was found: set EDITOR" in d.text
        assert d.feed.commands == []
        assert not list(lent.parent.glob("kbtui-edit-*"))


def test_which_editor() -> None:
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_command({"VISUAL": "'open", "EDITOR": "vi"}) == ["vi"]
    assert editor_command({"PATH": "/nowhere"}) == []


def test_what_is_no_python() -> None:
    assert syntax_problem("x = 1\n") == ""
    assert syntax_problem("x = (\n").startswith("line 1: '(' was never closed")
    assert "null" in syntax_problem("x\0y")


# ---------------------------------------------------------------- messages, palette, newcomers


async def test_every_message_can_be_read_again() -> None:
    async with drive(sample().events) as d:
        await d.press("s", "M")
        assert isinstance(d.app.screen, PickScreen)
        assert "Messages of this session" in d.text
        assert "done as you asked" in d.text


async def test_the_palette_forces_arms() -> None:
    async with drive(sample().events) as d:
        await d.press("ctrl+p", *"arm c1 fusion", "enter")
        assert d.feed.commands == [c.Force(by=who(), strategy="fusion", cluster=1)]
    async with drive(sample().events, read_only=True) as d:
        await d.press("ctrl+p", *"arm c1 fusion", "enter")
        assert d.feed.commands == []
        assert "read-only" in d.text


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_an_editor_that_nobody_chose_is_named_first(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "nano"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with drive(sample().events, size) as d:
        lend(d, monkeypatch)
        await d.press("i")
        text = d.app.screen.query_one("#dialog-text", Sentences)
        said = " ".join(plain(text.source.line(at, 0)).strip() for at in range(text.rows))
        assert "Leave it empty to edit #24 in nano ($EDITOR names another)." in said
        await d.press("escape", "I")
        assert isinstance(d.app.screen, ConfirmScreen)
        assert "Edit #24 in nano?" in d.text
        await edit(d, ("y",))
        assert "nothing was changed" in d.text
        await edit(d)
        assert not isinstance(d.app.screen, ConfirmScreen)
