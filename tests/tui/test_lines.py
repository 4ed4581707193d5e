"""Lines, glyphs, numbers: what everything else is built from."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from rich.cells import cell_len
from tui_sample import KERNEL, Script, sample

import kbtui.tui
from kbtui.state import events as e
from kbtui.state.records import ArmStatistics, CaseTiming, Signature, Summary, Timing
from kbtui.state.run_state import RunState
from kbtui.tui import glyphs
from kbtui.tui.line import ROLES, LineBuilder, both_ends, changed_cells, crop, fit, plain, text_line, width_of, wrap
from kbtui.tui.views import numbers as n
from kbtui.tui.views.arms import ArmsSource, cells_of, column_width, headroom_text
from kbtui.tui.views.code import diff_counts, diff_lines, source_lines
from kbtui.tui.views.curve import curve_lines
from kbtui.tui.views.facts import verdict_lines
from kbtui.tui.views.header import who_line
from kbtui.tui.views.status import candidate_mark, in_work, status_word, verdict_mark
from kbtui.tui.views.tree import Folds, TreeSource, rows_of

PACKAGE = Path(kbtui.tui.__file__).parent


def state_of(script: Script) -> RunState:
    return RunState().apply_all(script.events)


@pytest.mark.parametrize("text", ["", "abc", "a" * 40, "漢字かな", "漢字かなカナ漢字かな", "e\u0301tude"])
@pytest.mark.parametrize("width", [0, 1, 2, 5, 12])
def test_fit_is_exactly_as_wide_as_asked(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width


def test_crop_cuts_with_an_ellipsis_only_when_needed() -> None:
    line = LineBuilder().add("abc", "good").add("defgh", "bad").line()
    assert crop(line, 8) == line
    assert plain(crop(line, 6)) == "abcde…"
    assert plain(crop(line, 3)) == "ab…"
    assert plain(crop(line, 0)) == ""


def test_both_ends_keeps_the_right_one() -> None:
    line = both_ends(text_line("a long left side"), text_line("right"), 12)
    assert plain(line) == "a lon… right"
    assert width_of(both_ends(text_line("a"), text_line("b"), 30)) == 30


@pytest.mark.parametrize(
    ("old", "new", "cells"),
    [
        ([("ab", "text")], [("ab", "text")], (0, 0)),
        ([("abcdef", "text")], [("abXdef", "text")], (2, 3)),
        ([("ab", "text"), ("cd", "good")], [("ab", "text"), ("cd", "bad")], (2, 4)),
        ([("abc", "text")], [("abcde", "text")], (3, 5)),
        ([("abcde", "text")], [("abc", "text")], (3, 5)),
        ([], [("abc", "text")], (0, 3)),
        ([("漢字x", "text")], [("漢語x", "text")], (2, 4)),
        ([("aaa", "text")], [("aa", "text"), ("a", "text")], (2, 2)),
        ([("12:01 ", "text"), ("live", "good")], [("12:02 ", "text"), ("live", "good")], (4, 5)),
        ([("xx", "text")], [("xyxx", "text")], (1, 4)),
    ],
)
def test_changed_cells(old: list[tuple[str, str]], new: list[tuple[str, str]], cells: tuple[int, int]) -> None:
    lines = [LineBuilder() for _ in range(2)]
    for builder, spans in zip(lines, (old, new), strict=True):
        for text, role in spans:
            builder.add(text, role)
    assert changed_cells(lines[0].line(), lines[1].line()) == cells


def test_lines_are_made_of_safe_text_only() -> None:
    hostile = "\x1b]52;c;AAAA\a\x9b2J\x00\x7f\u202e\n\t\ud800[@click=app.exit]x[/]"
    for line in (
        LineBuilder().add(hostile).line(),
        LineBuilder().left(hostile, 200).right(hostile, 200).line(),
        text_line(hostile),
    ):
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", plain(line))


def test_every_glyph_we_paint_has_a_twin() -> None:
    """Every non-ASCII character in the package's own strings (docstrings aside) has an ASCII twin of one cell."""
    foreign: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                foreign |= {c for c in node.value if not c.isascii()}
    foreign -= {"\u2400", "\u2421"}  # the range of the control pictures, compared with in to_ascii
    assert foreign <= set(glyphs.TWINS), foreign - set(glyphs.TWINS)


def test_twins_are_ascii_and_glyphs_one_cell_wide() -> None:
    for glyph, twin in glyphs.TWINS.items():
        assert cell_len(glyph) == 1 == len(twin), glyph
        assert twin.isascii()


def test_ascii_keeps_the_width() -> None:
    for text in ("★ #17 1.42x → 38 µs", "漢字 path", "\u241b]52", "plain"):
        assert glyphs.to_ascii(text).isascii()
        assert cell_len(glyphs.to_ascii(text)) == cell_len(text)


def test_a_cut_looks_like_no_modelled_number() -> None:
    assert glyphs.to_ascii("DRAM ~77…") == "DRAM ~7.."
    assert glyphs.to_ascii("evict_first on…  ") == "evict_first o..  "
    assert glyphs.to_ascii("…") == "."
    assert glyphs.to_ascii("漢…") == "??."
    assert [glyph for glyph, twin in glyphs.TWINS.items() if twin == "~"] == []


def test_roles_and_their_styles_are_the_same() -> None:
    style = (PACKAGE / "styles" / "roles.tcss").read_text(encoding="utf-8")
    assert set(re.findall(r"^\.role--([a-z-]+) ", style, re.MULTILINE)) == set(ROLES)
    used: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        used |= set(
            re.findall(r'(?:add|left|right|text_line)\([^()]*?, "([a-z-]+)"\)', file.read_text(encoding="utf-8"))
        )
    assert used <= set(ROLES), used - set(ROLES)


def test_spark_is_clipped_and_scaled() -> None:
    assert glyphs.spark([0, 50, 100, 200, -5], 100) == "▁▅███▁"[:3] + "█▁"
    assert glyphs.spark([1.0], 0) == ""


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0381, "38.1 µs"),
        (0.541, "541 µs"),
        (1.234, "1.23 ms"),
        (54.12, "54.1 ms"),
        (541.2, "541 ms"),
        (5412.0, "5.4 s"),
    ],
)
def test_times(ms: float, text: str) -> None:
    assert n.time_text(ms) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00"), (432, "07:12"), (3723, "1:02:03"), (200_000, "2 d 07:33")])
def test_durations(seconds: float, text: str) -> None:
    assert n.duration_text(seconds) == text


def test_money_never_shows_a_cheap_run_as_free() -> None:
    assert n.money_text(0) == "$0.00"
    assert n.money_text(0.004) == "$0.0040"
    assert n.money_text(0.384) == "$0.38"


def test_speed_of_light_needs_every_case_and_a_measurement() -> None:
    script = Script()
    script.begin()
    measured = script.timing_of(1, 1.0)
    mean = math.prod(100 * case.floor_ms / (case.ms or 0.0) for case in measured.cases) ** (1 / len(measured.cases))
    assert n.speed_of_light(state_of(script), measured) == pytest.approx(mean)
    cached = [msgspec.structs.replace(case, floor_ms=3 * (case.ms or 0.0)) for case in measured.cases]
    assert n.speed_of_light(state_of(script), msgspec.structs.replace(measured, cases=tuple(cached))) == pytest.approx(
        100
    )
    assert n.speed_of_light(state_of(script), Script("modelled").timing_of(1, 1.0)) is None
    assert n.speed_of_light(state_of(script), Timing(kind="measured", verdict="same", cases=())) is None


def begun(**changes: object) -> RunState:
    """The state of a run that has just started, set up as `changes` say."""
    script = Script()
    script.begin()
    first, *rest = script.events
    return RunState().apply_all([structs.replace(first, **changes), *rest])


def _lopsided(state: RunState) -> tuple[Timing, Timing]:
    """A baseline, and a version that is four times as fast on the longest case and a little slower on the others."""
    names = [case.name for case in state.started.problem.cases] if state.started is not None else []
    before, after = (1.0, 2.0, 100.0), (1.25, 2.5, 25.0)
    return tuple(  # type: ignore[return-value]
        Timing(
            kind="measured",
            verdict="same",
            cases=tuple(CaseTiming(case=name, ms=ms) for name, ms in zip(names, times, strict=True)),
        )
        for times in (before, after)
    )


def test_the_one_time_of_several_cases_goes_with_the_ratio_that_stands_beside_it() -> None:
    state = begun()
    assert state.started is not None
    before, after = _lopsided(state)
    was, now = n.measured_ms(state, before), n.measured_ms(state, after)
    assert was is not None
    assert now is not None
    assert was / now == pytest.approx((0.8 * 0.8 * 4.0) ** (1 / 3))
    assert n.time_kind(state, after) == "geomean"
    total = begun(objective="total")
    assert (n.measured_ms(total, before), n.measured_ms(total, after)) == (103.0, 28.75)
    assert n.time_kind(total, after) == "total"


@pytest.mark.parametrize("kind", ["measured", "modelled"])
def test_under_worst_the_time_is_that_of_the_worst_case_in_both(kind: str) -> None:
    """A mean that was called `geomean` stood beside the ratio of the worst case."""
    state = begun(objective="worst")
    before, after = _lopsided(state)
    assert n.time_kind(state, before) == "", "of the baseline no case is behind"
    ratios = [was.ms / now.ms for was, now in zip(before.cases, after.cases, strict=True) if was.ms and now.ms]
    cases = [
        structs.replace(case, ratio=ratio) for case, ratio in zip(after.cases, (ratios[0], 0.7, ratios[2]), strict=True)
    ]
    if kind == "modelled":
        before, after = _modelled(before.cases), _modelled(cases)
    else:
        after = structs.replace(after, cases=tuple(cases))
    assert state.started is not None
    assert n.worst_case(state, after) == state.started.problem.cases[1].name
    assert n.time_kind(state, after) == "worst"
    about = "~" if kind == "modelled" else ""
    assert (n.objective_time(state, before, after), n.objective_time(state, after)) == (
        f"{about}2 ms",
        f"{about}2.5 ms",
    )


def _modelled(cases: Iterable[CaseTiming]) -> Timing:
    moved = (structs.replace(one, ms=None, ratio=None, estimate_ms=one.ms, estimate_ratio=one.ratio) for one in cases)
    return Timing(kind="modelled", verdict="not worse", cases=tuple(moved))


def test_the_weights_of_cases_count_in_their_one_time() -> None:
    state = begun()
    assert state.started is not None
    problem = state.started.problem
    heavy = (structs.replace(problem.cases[0], weight=2.0), *problem.cases[1:])
    weighted = begun(problem=structs.replace(problem, cases=heavy))
    before, _ = _lopsided(weighted)
    assert n.measured_ms(weighted, before) == pytest.approx((1.0 * 1.0 * 2.0 * 100.0) ** (1 / 4))


# ---------------------------------------------------------------- tree


def test_rows_draw_the_lineage() -> None:
    script = Script()
    script.begin()
    for number, parent in ((1, 0), (2, 1), (3, 0), (4, 2)):
        script.generated(number, parent, number, "tiling", f"m{number}")
    rows = rows_of(state_of(script), Folds())
    assert [(row.candidate_id, row.rails) for row in rows] == [
        (0, ""), (1, "├ "), (2, "│ └ "), (4, "│   └ "), (3, "└ "),
    ]  # fmt: skip


def test_old_dropped_candidates_fold_into_one_line_and_can_be_shown() -> None:
    script = Script()
    script.begin()
    for number in range(1, 30):
        script.generated(number, 0, number, "tiling", f"m{number}")
        if number % 3 == 0:
            script.judged(number, 1.1)
        else:
            script.add(_pruned(), candidate_id=number, stage="duplicates", reason="same")
    state = state_of(script)
    folds = Folds()
    rows = rows_of(state, folds)
    assert rows[-1].hidden == 12
    assert {r.candidate_id for r in rows} >= {3, 6, 29, 28}
    folds.opened.add(0)
    assert len(rows_of(state, folds)) == 30
    folds.opened.clear()
    folds.everything = True
    assert len(rows_of(state, folds)) == 30


def test_a_lineage_deeper_than_the_recursion_limit_is_drawn() -> None:
    script = Script()
    script.begin()
    for number in range(1, 3001):
        script.generated(number, number - 1, number, "tiling", "deeper")
    state = state_of(script)
    rows = rows_of(state, Folds())
    assert len(rows) == 3001
    assert width_of(TreeSource(state, rows).line(3000, 80)) == 80


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_tree_lines_fill_the_pane_exactly(width: int) -> None:
    state = state_of(sample())
    source = TreeSource(state, rows_of(state, Folds()))
    for index in range(len(source)):
        assert width_of(source.line(index, width)) <= width


@pytest.mark.parametrize("timed", [True, False])
def test_a_baseline_that_could_not_be_timed_has_no_figure(timed: bool) -> None:
    state = state_of(sample())
    baseline = state.candidates[0]
    assert baseline.timing is not None
    if not timed:
        cases = tuple(CaseTiming(case=case.case, failed="its process ended") for case in baseline.timing.cases)
        baseline.timing = structs.replace(baseline.timing, verdict="unknown", ratio=None, cases=cases)
    line = plain(TreeSource(state, rows_of(state, Folds())).line(0, 120))
    assert "#0" in line
    assert ("1.00x" in line) == timed


def _pruned() -> type:
    from kbtui.state.events import Pruned

    return Pruned


# ---------------------------------------------------------------- arms, curve, code


def test_the_matrix_says_why_an_arm_is_held_back() -> None:
    cells = cells_of(state_of(sample()))
    assert (cells[2, "vectorization"].held, cells[2, "vectorization"].reason) == (
        "masked",
        "DRAM saturated (83 % of 75 %)",
    )
    assert cells[1, "access_layout"].held == "banned"
    assert cells[1, "fusion"].chosen
    assert cells[2, "tiling"].runner_up
    assert len(cells) == 18


def test_a_lifted_ban_shows_at_once() -> None:
    script = sample()
    from kbtui.state.events import Unbanned

    script.add(Unbanned, by="ada@x", strategy="access_layout", cluster=1)
    assert cells_of(state_of(script))[1, "access_layout"].held == ""


@pytest.mark.parametrize("width", [58, 59, 60, 65, 72, 80, 105, 140])
def test_the_matrix_fits_its_pane_and_cuts_no_number(width: int) -> None:
    """The panes of 60, 80, 120 and 200 columns, and what lies between."""
    state = state_of(sample())
    for row, column in ((r, c) for r in range(3) for c in range(6)):
        source = ArmsSource(state, (row, column))
        lines = [source.line(index, width) for index in range(len(source))]
        assert all(width_of(line) <= width for line in lines)
        assert not any("…" in plain(line) for line in lines), [plain(line) for line in lines]
        assert "DRAM 83 %" in "".join(plain(line) for line in lines) or row
    assert 6 * column_width(width) + 5 <= width
    assert column_width(width) >= (9 if width >= 59 else 8)


def test_an_arm_of_many_pulls_keeps_its_numbers_in_the_narrowest_column() -> None:
    script = sample()
    state = state_of(script)
    state.arms[0, "tiling"] = ArmStatistics(cluster=0, strategy="tiling", pulls=13.0, mean=8.623)
    source = ArmsSource(state, (0, 0))
    assert "12 8.6" in plain(source.line(1, 59))
    assert "12 pulls, mean 8.6" in plain(source.line(4, 59))


def test_what_a_run_left_undone_is_unfinished_and_not_in_work() -> None:
    script = sample()
    state = state_of(script)
    undone = [one for one in state.candidates.values() if in_work(state, one)]
    assert undone
    summary = Summary(
        run_id="r", problem="softmax", device="H200", timing="measured", pulls=1, candidates=1, correct=1, best=None,
        baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by="user",
    )  # fmt: skip
    script.add(e.RunStopped, stopped_by="user", summary=summary)
    stopped = state_of(script)
    for one in undone:
        after = stopped.candidates[one.id]
        assert not in_work(stopped, after)
        assert status_word(stopped, after) == "unfinished"
        assert candidate_mark(stopped, after) == (glyphs.NONE, "dim")
        assert verdict_mark(stopped, after) == (glyphs.NONE, "dim"), "on its own screen too"
        assert plain(verdict_lines(stopped, after, 120)[0]) == f" {glyphs.NONE} unfinished"


def test_only_what_is_being_judged_has_the_glyph_of_work() -> None:
    """A candidate whose pull was dropped, by a machine that failed, looked busy for good."""
    script = sample()
    state = state_of(script)
    (busy, *_) = [one for one in state.candidates.values() if in_work(state, one)]
    assert verdict_mark(state, busy) == (glyphs.WORK, "info")
    script.add(e.PullDropped, pull=busy.pull, owner="environment", reason="the device is gone")
    dropped = state_of(script)
    assert verdict_mark(dropped, dropped.candidates[busy.id]) == (glyphs.NONE, "dim")
    done = [one for one in dropped.candidates.values() if one.status not in ("generated", "compiled", "verified")]
    assert done
    assert glyphs.WORK not in {verdict_mark(dropped, one)[0] for one in done}


@pytest.mark.parametrize(("percent", "text"), [(22.4, "headroom 22 %"), (-2.0, "no headroom, 2 % past the threshold")])
def test_headroom_is_never_negative(percent: float, text: str) -> None:
    assert headroom_text(percent) == text


def test_lines_break_between_parts_else_between_words() -> None:
    line = text_line(" one two three four  five six seven eight")
    assert [plain(one) for one in wrap(line, 44, rows=2)] == [" one two three four  five six seven eight"]
    assert [plain(one) for one in wrap(line, 30, rows=2)] == [" one two three four", "   five six seven eight"]
    assert [plain(one) for one in wrap(line, 20, rows=3)] == [" one two three four", "   five six seven", "   eight"]
    assert [plain(one) for one in wrap(line, 20, rows=2)] == [" one two three four", "   five six seven e…"]
    assert plain(wrap(text_line("x" * 30), 10, rows=2)[0]) == "xxxxxxxxx…"


@pytest.mark.parametrize("size", [(60, 10), (120, 30), (22, 4)])
def test_the_curve_fits_its_pane_and_ends_at_the_best(size: tuple[int, int]) -> None:
    lines = curve_lines(state_of(sample()), *size)
    assert len(lines) <= size[1]
    assert all(width_of(line) <= size[0] for line in lines)
    assert any("1.15x" in plain(line) for line in lines)


def test_the_curve_of_nothing_says_so() -> None:
    assert plain(curve_lines(RunState(), 80, 20)[0]) == " nothing timed yet: the baseline comes first"


def test_source_keeps_every_line_and_numbers_it() -> None:
    lines = source_lines(KERNEL)
    assert len(lines) == KERNEL.count("\n")
    assert plain(lines.line(5, 80)) == "  6  @triton.jit"
    assert {span.role for i in range(len(lines)) for span in lines.line(i, 80)} >= {
        "syn-keyword",
        "syn-comment",
        "syn-string",
    }


@pytest.mark.parametrize("source", ["", "\n", "\n\nx", "x", "'''open\nnever closed", "def f(:\n  \x0c\n", "a\r\nb\r\n"])
def test_any_source_can_be_shown(source: str) -> None:
    lines = source_lines(source)
    shown = [plain(lines.line(i, 80)) for i in range(len(lines))]
    assert len(shown) == max(1, len(source.replace("\r\n", "\n").removesuffix("\n").split("\n")))


def test_diff_marks_what_changed() -> None:
    lines = diff_lines("a\nb\nc\n", "a\nB\nc\nd\n")
    texts = [plain(lines.line(i, 80)) for i in range(len(lines))]
    assert [t.strip() for t in texts[1:]] == ["1   a", "2 - b", "2 + B", "3   c", "4 + d"]
    assert diff_counts("a\nb\nc\n", "a\nB\nc\nd\n") == (2, 1)


@pytest.mark.parametrize("width", [60, 66, 67, 78, 79, 80, 96, 103, 111, 112, 120, 126, 127, 128, 160, 200])
def test_columns_of_runs_are_whole_or_not_there(width: int) -> None:
    from kbtui.history.runs import RunEntry
    from kbtui.tui.line import width_of
    from kbtui.tui.views.runs import head_line, run_line

    run = RunEntry(
        run_id="softmax-1", status="live", problem="softmax", device="NVIDIA H200", timing="measured", generator="llm",
        model="openai/gpt-5", pulls=14, iterations=20, best_ratio=1.42, best_verdict="faster", cost_usd=0.38, last_t=100.0,
    )  # fmt: skip
    for line in (head_line(width), run_line(run, width, 160.0)):
        assert "…" not in plain(line)
        assert width_of(line) <= width
    assert plain(head_line(width)).endswith("last")
    assert plain(run_line(run, width, 160.0)).rstrip().endswith("ago")


def on_several(*dropped: str) -> RunState:
    """A finished run as if on two H200s."""
    lanes = ("cuda:0", "cuda:1")
    first, *rest = sample().events
    assert isinstance(first, e.RunStarted)
    device = msgspec.structs.replace(first.device, name="NVIDIA H200", kind="cuda")
    started = msgspec.structs.replace(
        first,
        device=device,
        lanes=lanes,
        devices=tuple(msgspec.structs.replace(device, lane=lane, uuid=f"GPU-{lane}") for lane in lanes),
    )
    state = RunState().apply_all([started, *rest])
    for lane in dropped:
        state.apply(e.DeviceDropped(device=lane, reason="it fell off the bus"))
    return state


@pytest.mark.parametrize(
    ("dropped", "width", "shown"),
    [
        ((), 80, "· 2 x NVIDIA H200"),
        ((), 160, "· 2 x NVIDIA H200 as cuda:0, cuda:1 ·"),
        (("cuda:1",), 80, "· ⚠ 1/2 NVIDIA H200"),
        (("cuda:1",), 120, "· 1 of 2 x NVIDIA H200 ⚠ cuda:1 out ·"),
        (("cuda:0", "cuda:1"), 160, "· 0 of 2 x NVIDIA H200 ⚠ cuda:0, cuda:1 out ·"),
    ],
)
def test_the_header_counts_the_devices_and_names_those_that_fell_out(
    dropped: tuple[str, ...], width: int, shown: str
) -> None:
    from types import SimpleNamespace

    session = SimpleNamespace(state=on_several(*dropped), run_id="r")
    assert shown in plain(who_line(session, width)) + " "  # type: ignore[arg-type]


def test_the_verdict_says_where_a_candidate_was_timed() -> None:
    state = on_several()
    timing = Timing(kind="measured", verdict="faster", cases=(), ratio=1.3, low=1.29, high=1.31)
    for device, ratio in (("cuda:1", 1.3), ("cuda:0", 1.2)):
        made = msgspec.structs.replace(timing, ratio=ratio)
        state.apply(e.Timed(candidate_id=1, timing=made, signature=Signature(), device=device))
    lines = [plain(line) for line in verdict_lines(state, state.candidates[1], 120)]
    assert any("timed" in line and "1.20x" in line and line.endswith("on cuda:0") for line in lines)
    assert any("1.30x on cuda:1" in line for line in lines)
