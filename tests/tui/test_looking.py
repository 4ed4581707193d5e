"""What helps to look: comparing, the roofline, offending lines, the curve's axes, the log's levels, screenshots, first steps."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tui_drive import COLOURS, Drive, drive, screen_lines
from tui_sample import KERNEL, Script, ScriptedFeed, sample

from kbtui.history.requests import requests_of
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.counting import iterations_by_candidate, iterations_by_pull
from kbtui.state.run_state import RunState
from kbtui.tui.app import KbtuiApp
from kbtui.tui.line import Lines, plain
from kbtui.tui.newcomer import Newcomer
from kbtui.tui.views.code import side_lines
from kbtui.tui.views.curve import axes_of, curve_lines
from kbtui.tui.views.offence import offending_lines
from kbtui.tui.views.roofline import points_of, roofline_lines
from kbtui.tui.widgets.log_view import LogView
from kbtui.tui.widgets.plot_view import PlotView


def state_of(script: Script) -> RunState:
    return RunState().apply_all(script.events)


# ---------------------------------------------------------------- comparing


async def test_the_marked_candidate_can_be_compared_with() -> None:
    async with drive(sample().events) as d:
        await d.press("m")
        assert "[marked]" in d.text
        assert d.feed.commands == []
        d.app.open_candidate(4)
        await d.settle()
        seen = []
        for _ in range(5):
            await d.press("d")
            seen.append(next(line for line in d.lines if "Diff" in line).split("against")[1].split("  ")[0].strip())
        assert seen == ["parent #2", "baseline #0", "best #24", "marked #24", "parent #2"]
        await d.press("m")
        assert "[marked]" in d.lines[0]


async def test_side_by_side_needs_room() -> None:
    async with drive(sample().events, (80, 24)) as d:
        await d.press("d", "v")
        assert "side by side needs 100 columns, here are 80" in d.text
    async with drive(sample().events, (120, 40)) as d:
        await d.press("d", "v")
        assert any(re.search(r"^ +│ +\d+ \+ +scale = tl.exp2", line) for line in d.lines)
        assert any(re.search(r"^ +\d+ - .* │ +\d+ \+ ", line) for line in d.lines)
        await d.press("v")
        assert " │ " not in d.text


def test_side_by_side_pairs_what_changed() -> None:
    lines = side_lines("a\nb\nc\n", "a\nx\ny\nc\n", 40)
    rows = [plain(lines.line(i, 40)) for i in range(len(lines))]
    assert [re.sub(r"\s+", " ", row).strip() for row in rows[1:]] == [
        "1 a │ 1 a",
        "2 - b │ 2 + x",
        "│ 3 + y",
        "3 c │ 4 c",
    ]


# ---------------------------------------------------------------- the offending line


def failing(detail: str) -> RunState:
    script = Script()
    script.begin()
    script.pull(1, 0, "tiling")
    script.generated(1, 0, 1, "tiling", "x", source=KERNEL)
    script.compiled(1, ok=False, kernels=(), reason="no", detail=detail)
    return state_of(script)


@pytest.mark.parametrize(
    ("detail", "lines"),
    [
        ("at 6:4:\n    mask = offsets < cols\n           ^\nbad", (11,)),
        ('File "/x/kernel.py", line 21, in softmax\n  File "/y/jit.py", line 7', (21,)),
        ('File "/x/kernel.py", line 21, in softmax\nat 3:0:\n    row = tl.program_id(0)\n          ^', (9, 21)),
        ("at 6:4:\n    somewhere = else_\n    ^", ()),
        ('File "/x/kernel.py", line 999', ()),
        ("^", ()),
    ],
)
def test_the_line_that_a_message_names(detail: str, lines: tuple[int, ...]) -> None:
    assert offending_lines(failing(detail).candidates[1]) == lines


async def test_the_offending_line_is_shown_in_its_place() -> None:
    async with drive(sample().events) as d:
        d.app.open_candidate(8, tab="verdict")
        await d.settle()
        assert "12✗" in d.text
        assert any("at line" in line and "12" in line for line in d.lines)
        await d.press("1")
        assert any(line.startswith(" 12✗ ") for line in d.lines)


# ---------------------------------------------------------------- the roofline

CASE = r.CaseInfo(name="a", fields={}, bytes_moved=1000, operations=2000, dtypes=("float32",))
DEVICE = r.DeviceInfo(
    lane="cuda:0", kind="cuda", name="G", target="sm_90", peak_bytes_per_s=1e12, peak_ops_per_s={"fp32": 10e12}
)


def timing(ms: float) -> r.Timing:
    return r.Timing(kind="measured", verdict="same", cases=(r.CaseTiming(case="a", ms=ms),))


def test_a_point_of_the_roofline() -> None:
    points, unknown = points_of((CASE,), DEVICE, timing(2e-6))
    assert unknown == ""
    (point,) = points
    assert (point.intensity, point.rate, point.roof, point.memory_bound) == pytest.approx((2.0, 1e12, 2e12, True))
    assert point.percent == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("case", "device", "ms", "why"),
    [
        ({"operations": 0}, {}, 1.0, "traffic(case)"),
        ({}, {"peak_bytes_per_s": 0.0}, 1.0, "no peak rates"),
        ({}, {"peak_ops_per_s": {}}, 1.0, "no peak rates"),
        ({}, {}, 0.0, "no time"),
    ],
)
def test_what_is_unknown_of_the_roofline_is_said(
    case: dict[str, int], device: dict[str, object], ms: float, why: str
) -> None:
    from msgspec.structs import replace

    points, unknown = points_of((replace(CASE, **case),), replace(DEVICE, **device), timing(ms))
    assert points == []
    assert why in unknown


async def test_the_roofline_is_beside_the_facts() -> None:
    script = sample()
    begun = script.events[0]
    assert isinstance(begun, e.RunStarted)
    from msgspec.structs import replace

    cases = tuple(replace(case, operations=case.bytes_moved // 2, dtypes=("float32",)) for case in begun.problem.cases)
    device = replace(begun.device, peak_bytes_per_s=4.8e12, peak_ops_per_s={"fp32": 67e12}, nominal=True)
    script.events[0] = replace(begun, problem=replace(begun.problem, cases=cases), device=device)
    async with drive(script.events) as d:
        await d.press("enter", "4")
        assert any("registers per thread" in line and "SM" in line for line in d.lines)
        for text in ("roofline", "╱", "60 % under the memory's roof", "roof: 4,800 GB/s, 67 Tops/s by its data sheet"):
            assert text in d.text, text
    state = state_of(script)
    assert "not timed" in plain(roofline_lines(state, state.candidates[31], 80)[1])


# ---------------------------------------------------------------- curve, log


def test_the_curve_over_dollars_and_time() -> None:
    script = Script()
    script.begin()
    assert axes_of(state_of(script)) == ("pulls", "time")
    for number, ratio in ((1, 1.2), (2, 1.4)):
        script.pull(number, 0, "tiling")
        script.generated(number, 0, number, "tiling", f"m{number}", cost_usd=0.25)
        script.judged(number, ratio)
        script.better(number, ratio)
        script.rewarded(number, "tiling", 0, number, "done")
    state = state_of(script)
    assert axes_of(state) == ("pulls", "dollars", "time")
    assert state.curve_usd == [0.0, 0.25, 0.5]
    assert len(state.curve_s) == len(state.curve) == 3
    for axis, foot in (("pulls", "40 pulls"), ("dollars", "$0.50 spent"), ("time", "00:")):
        lines = [plain(line) for line in curve_lines(state, 60, 14, axis)]
        assert len(lines) == 14
        assert foot in lines[-1]
    rows = [plain(line) for line in curve_lines(state, 60, 14, "dollars")]
    assert rows[0].rstrip().endswith("╭") or rows[1].rstrip().endswith("╭")  # the last dollar brought the last gain


def test_the_curve_counts_pulls_as_the_header_does() -> None:
    script = Script()
    script.begin(iterations=4)
    for number in range(1, 8):
        script.pull(number, 0, "tiling")
        if number % 2:
            script.generated(number, 0, number, "tiling", f"m{number}")
            script.judged(number, 1 + number / 10)
            script.better(number, 1 + number / 10)
            script.rewarded(number, "tiling", 0, number, "done")
        else:
            script.add(e.PullDropped, pull=number, owner=None, reason="known versions only")
    state = state_of(script)
    assert (state.pulls_ended, state.iterations) == (4, 4)
    assert iterations_by_pull(state) == {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4}
    assert [line.text for line in state.log if "dropped" in line.text] == [
        f"pull {number} dropped and not counted: known versions only" for number in (2, 4, 6)
    ]
    lines = [plain(line) for line in curve_lines(state, 60, 14)]
    assert lines[-1].split() == ["0", "4", "pulls"]
    (rise,) = [line for line in lines if "╭" in line and "1.70x" in line]
    assert rise.rstrip().endswith("╭"), "the last gain lies at the end: nothing was dropped after it"
    assert plain(curve_lines(state, 20, 3)[0]) == " best 1.70x after 4 pulls"
    script.pull(8, 0, "tiling")
    assert iterations_by_pull(state_of(script))[8] == 5, "what is in flight is counted until it is dropped"
    script.generated(9, 0, 0, None, "a.shape[0] up to 64: #1, above: #3")
    state = state_of(script)
    places = iterations_by_candidate(state, iterations_by_pull(state))
    assert places == {0: 0, 1: 1, 3: 2, 5: 3, 7: 4, 9: 4}, "what belongs to no pull stands where it came"


@pytest.mark.parametrize("size", [(120, 36), (200, 50), (80, 24)])
async def test_a_plot_has_no_lines_out_of_sight(size: tuple[int, int]) -> None:
    async with drive(sample().events, size) as d:
        await d.press("4")
        plot = d.app.screen.query_one("#curve", PlotView)
        title = next(line for line in d.lines if "Best so far" in line)
        assert " of " not in title.split("Best so far")[1].replace("speed of light", "")
        assert "over pulls" in title
        assert len(plot.source) == plot.rows
        await d.pilot.resize_terminal(size[0], size[1] - 4)
        await d.settle()
        assert len(plot.source) == plot.rows
        await d.press("dollar_sign")
        assert "over time" in d.text


async def test_the_log_is_narrowed_by_level() -> None:
    script = sample()
    script.add(e.Noted, level="error", text="the disk is full")
    async with drive(script.events) as d:
        await d.press("5")
        assert "› ada@pts/3 banned c1 access_layout" in d.text
        await d.press("w")
        log = d.text[d.text.index("▌Log") :]
        assert "what people did" in log
        assert "banned" in log
        assert "the disk is full" not in log
        await d.press("w")
        log = d.text[d.text.index("▌Log") :]
        assert "429" in log
        assert "banned" not in log
        await d.press("w")
        log = d.text[d.text.index("▌Log") :]
        assert "the disk is full" in log
        assert "429" not in log
        await d.press("w")
        assert "banned c1" in d.text


async def test_the_log_fills_its_pane_however_late_the_pane_is_laid_out() -> None:
    async with drive(sample().events) as d:
        log = d.app.screen.query_one(LogView)
        source, rows = log.source, log.rows
        # what a first look finds that comes before the first layout: no rows
        log.display = False
        await d.settle()
        log.show(Lines([]))
        assert log.rows == 0
        log.show(source)
        log.display = True
        await d.settle()
        assert log.top == len(source) - rows
        for height in (24, 50, 30):
            await d.pilot.resize_terminal(120, height)
            await d.settle()
            assert log.top == len(source) - log.rows, f"the pane is full at {height} rows"


# ---------------------------------------------------------------- screenshots, first steps, the journal's prompts


async def test_a_screenshot_needs_nothing_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with drive(sample().events, (80, 24)) as d:
        await d.press("S")
        (file,) = tmp_path.iterdir()
        assert file.suffix == ".svg"
        assert str(file) in "".join(d.lines).replace("\n", "") or "the screen is in" in d.text
        svg = file.read_text()
        await d.press("S")
        assert len(list(tmp_path.iterdir())) == 2
    assert "softmax" in svg
    assert "@font-face" not in svg
    assert not re.search(r"url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", svg)
    assert len(svg) < 60_000


async def test_newcomers_are_told_once(tmp_path: Path) -> None:
    file = tmp_path / "data" / "hints-seen"

    async def opened() -> str:
        feed = ScriptedFeed(sample().events)
        app = KbtuiApp(feed.run_id, terminal=COLOURS, make_feed=lambda _: feed, newcomer=Newcomer(file))
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            d = Drive(app, pilot, feed)
            await d.settle()
            first = d.lines[-1]
            await d.press("enter")
            second = d.lines[-1]
            await d.press("full_stop")
            return f"{first}|{second}|{d.lines[-1]}"

    cockpit, candidate, after = (await opened()).split("|")
    assert cockpit == " New here?  enter opens a candidate  f forces an arm  ? all keys  . got it"
    assert "v side by side" in candidate
    assert "New here" not in after
    assert file.read_text().split() == ["all", "candidate", "cockpit"]
    assert "New here" not in await opened()


def test_requests_are_read_from_the_journal(tmp_path: Path) -> None:
    asked = [
        e.Asked(seq=i, pull=i % 2, call=i, model="m", asking="write", strategy="tiling", messages=(), prompt_digest="d",
                most_tokens=1)
        for i in range(1, 5)
    ]  # fmt: skip
    journal = tmp_path / "journal.jsonl"
    assert requests_of(journal, 1) == []
    other = e.encode(e.Noted(seq=9, level="info", text="x"))
    journal.write_bytes(b"\n".join([e.encode(asked[0]), other, *(e.encode(one) for one in asked[1:])])[:-3])
    assert [one.call for one in requests_of(journal, 1)] == [1, 3]
    assert [one.call for one in requests_of(journal, 0)] == [2]  # the last line is torn


async def test_a_long_journal_is_taken_in_behind_the_empty_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    class Slow(ScriptedFeed):
        async def poll(self) -> list[e.Event]:
            await gate.wait()
            return await super().poll()

    feed = Slow(sample().events)
    # no tick of the timer's: what was taken in is painted at once
    monkeypatch.setattr("kbtui.tui.app.TICK_S", 60.0)
    app = KbtuiApp(feed.run_id, terminal=COLOURS, make_feed=lambda _: feed)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.pause()
        assert "loading" in screen_lines(app)[0]
        gate.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "● live" in screen_lines(app)[0]
        assert "32, 21 correct" in "\n".join(screen_lines(app))
