"""The screen of one candidate."""

from __future__ import annotations

import pytest
from tui_drive import SIZES, drive
from tui_sample import Script, sample

from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState
from kbtui.tui.line import plain
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.views.facts import fact_lines
from kbtui.tui.widgets.tree_view import TreeView


@pytest.mark.parametrize("size", SIZES)
async def test_tabs(size: tuple[int, int]) -> None:
    async with drive(sample().events, size) as d:
        await d.press("enter")
        assert "✓ #24 fusion · one pass ★ best" in d.lines[0]
        assert "1.15x [1.12, 1.18] faster" in d.lines[0]
        assert "pull 24 · from #22" in d.lines[1]
        for key, text in (
            ("1", "@triton.jit"), ("2", "lines 9-23  (was 9-22)"), ("3", "measured over 4 fresh process pairs"),
            ("4", "registers per thread"), ("5", "no model was asked"), ("6", "reward"),
        ):  # fmt: skip
            await d.press(key)
            assert text in d.text, text
        await d.press("tab")
        assert d.app.screen.tab == "source"  # type: ignore[attr-defined]
        await d.press("shift+tab")
        assert d.app.screen.tab == "verdict"  # type: ignore[attr-defined]


async def test_cases_are_against_the_baseline_and_the_speed_of_light() -> None:
    async with drive(sample().events) as d:
        await d.press("enter", "3")
        row = next(line for line in d.lines if "cols=4096" in line)
        assert row.split()[3:] == ["54.1", "µs", "47.0", "µs", "46.5", "µs..47.4", "µs", "1.15x", "60", "%", "DRAM"]


async def test_facts_show_what_changed_against_the_parent() -> None:
    async with drive(sample().events) as d:
        await d.press("enter", "4")
        assert any("registers per thread" in line and "was 40" in line for line in d.lines)
        assert any("DRAM" in line and "83 %" in line and "ncu" in line for line in d.lines)
        assert any("L2" in line and "?" in line and "not collected" in line for line in d.lines)


def test_kernels_of_one_name_are_told_apart_and_compared_with_their_own_parents() -> None:
    def kernel(block: int, registers: int, *cases: str) -> r.KernelFacts:
        return r.KernelFacts(
            name="softmax_kernel", target="sm_90", registers=registers, spill_bytes=0, shared_bytes=393_232, num_warps=4,
            num_stages=3, threads=128, occupancy_percent=62.5, code_digest=f"k{block}", constants={"BLOCK": block}, cases=cases,
        )  # fmt: skip

    script = Script()
    script.begin()
    script.compiled(0, kernels=(kernel(1024, 40, "cols=1024"), kernel(4096, 80, "cols=4096")))
    script.generated(1, 0, 1, "tiling", "BLOCK x 2")
    script.compiled(
        1, kernels=(kernel(8192, 90, "cols=4096", "cols=8192", "cols=16384"), kernel(2048, 40, "cols=1024"))
    )
    state = RunState().apply_all(script.events)
    lines = [plain(line) for line in fact_lines(state, state.candidates[1], 80)]
    assert " softmax_kernel BLOCK=8192  sm_90" in lines
    assert " softmax_kernel BLOCK=2048  sm_90" in lines
    assert lines[1:4] == ["   in cols=4096", "   in cols=8192", "   and 1 more case"]
    assert [line.split()[3:] for line in lines if "registers" in line] == [["90", "was", "80"], ["40"]]
    assert any("393,232 B" in line for line in lines)


@pytest.mark.parametrize(
    ("number", "texts"),
    [
        (3, ["wrong at boundary cases: 2 of 4097 values differ", "2.10e-01", "[0, 1024]", "rows=1 cols=1025"]),
        (3, ["expected 0.00097"]),
        (5, ["pruned", "at duplicates: same machine code as #2"]),
        (7, ["cheat at static: calls torch.softmax"]),
        (8, ["invalid at compile: shapes (4, 128) and (128,) do not match", "tl.max(values, axis=1)"]),
    ],
)  # fmt: skip
async def test_the_verdict_gives_the_evidence(number: int, texts: list[str]) -> None:
    async with drive(sample().events) as d:
        d.app.open_candidate(number, tab="verdict")
        await d.settle()
        for text in texts:
            assert text in d.text, text


async def test_not_checked_is_said() -> None:
    async with drive(sample("modelled").events) as d:
        await d.press("enter", "6")
        assert "races: not checked" in d.text


async def test_d_goes_through_what_to_compare_with() -> None:
    async with drive(sample().events) as d:
        d.app.open_candidate(4)
        await d.settle()
        seen = []
        for _ in range(4):
            await d.press("d")
            seen.append(next(line for line in d.lines if "Diff" in line).split("against")[1].split("  ")[0].strip())
        assert seen == ["parent #2", "baseline #0", "best #24", "parent #2"]


async def test_neighbours_and_back_keep_the_tree_in_step() -> None:
    async with drive(sample().events) as d:
        await d.press("enter", "n")
        screen = d.app.screen
        assert isinstance(screen, CandidateScreen)
        assert screen.candidate_id == 25
        await d.press("N", "N")
        assert screen.candidate_id == 23
        await d.press("P")
        assert screen.candidate_id == 22
        await d.press("escape")
        assert isinstance(d.app.screen, CockpitScreen)
        assert d.app.screen.query_one(TreeView).chosen_id == 22


async def test_the_baseline_has_no_parent() -> None:
    async with drive(sample().events) as d:
        d.app.open_candidate(0)
        await d.settle()
        await d.press("P")
        assert "no candidate that way" in d.text
        await d.press("2")
        assert "the same text" in d.text


async def test_pin_and_tag_from_the_candidate() -> None:
    async with drive(sample().events) as d:
        await d.press("enter", "p", "t", *"keep", "enter")
        assert [type(sent) for sent in d.feed.commands] == [c.Pin, c.Tag]
        await d.play(e.Tagged(seq=800, t=1.8e9, by="ada@x", candidate_id=24, tag="keep"))
        assert "[keep]" in d.lines[0]


async def test_it_follows_while_it_is_judged() -> None:
    script = sample()
    async with drive(script.events) as d:
        d.app.open_candidate(31)
        await d.settle()
        await d.press("3")
        assert "not timed" in d.text
        first = len(script.events)
        script.judged(31, 1.4)
        await d.play(*script.events[first:])
        assert "1.40x" in d.text


async def test_a_long_source_is_shown_and_scrolls() -> None:
    script = Script()
    script.begin()
    long = "\n".join(f"x{i} = {i}  # {'wide ' * 40}" for i in range(6000))
    script.generated(1, 0, 1, "tiling", "long", source=long)
    async with drive(script.events) as d:
        d.app.open_candidate(1)
        await d.settle()
        assert "without colours" in d.text
        await d.press("end")
        assert "x5999 = 5999" in d.text
        await d.press("2")
        assert "too long to compare here" in d.text
