"""Reports of a run: complete, self-contained, honest about what was modelled, and safe whatever the run's text is."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import structs
from tui_sample import BY, Script, sample

from kbtui.errors import UsageError
from kbtui.report.curve_svg import curve_svg
from kbtui.report.files import write_report
from kbtui.report.html import html_report
from kbtui.report.markdown import markdown_report
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState

EVIL = "</pre><script>alert(1)</script>\x1b]52;c;AAAA\a|`<img src=x onerror=alert(2)>"
VOID = {"meta", "circle", "line", "path", "br", "img", "link"}


def state_of(script: Script) -> RunState:
    return RunState().apply_all(script.events)


def measured() -> RunState:
    return state_of(sample())


class Page(HTMLParser):
    """Its tags, whether they close, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        self.fetched += [name for name, _ in attrs if name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:  # a browser writes `<line></line>`
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def test_the_page_holds_everything_and_fetches_nothing() -> None:
    state = measured()
    text = html_report(state, state.best)
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    for word in (
        "softmax on NVIDIA H200", "1.15x [1.12, 1.18]", "★ faster", "37.3 µs → 32.4 µs", "54 % of it", "30 of 40",
        "calls torch.softmax", "same machine code as #2", "masked: DRAM saturated", "banned c1 access_layout",
        f"{BY} forced c1 fusion", "46.5 µs … 47.4 µs", "scale = tl.exp2(values * 1.44269504)", "triton 3.6",
    ):  # fmt: skip
        assert word in page.text, word
    assert sum(1 for number in state.candidates if f"#{number}" in page.text) == len(state.candidates)


@pytest.mark.parametrize("make", [html_report, markdown_report])
def test_modelled_is_never_written_as_measured(make: object) -> None:
    state = state_of(sample("modelled"))
    text = make(state, state.best)  # type: ignore[operator]
    assert "is an estimate" in text
    assert "~1.15 est" in text
    assert not re.search(r"\d\.\d\dx\b", text)
    assert "faster" not in text.replace("makes Triton kernels faster", "")


def test_every_modelled_cell_is_marked_as_one() -> None:
    text = html_report(state_of(sample("modelled")), None)
    cells = re.findall(r"<td([^>]*)>(~[^<]*)</td>", text)
    assert cells
    assert all('class="est"' in attributes for attributes, _ in cells)


def test_the_curve_is_drawn_with_the_speed_of_light_and_the_trials() -> None:
    state = measured()
    svg = curve_svg(state)
    assert svg.count('class="trial"') == sum(1 for c in state.candidates.values() if c.correct and c.ratio is not None)
    assert svg.count("V") == len(state.curve) - 1
    assert "speed of light" not in svg  # at 2.09x it is out of sight of 1.15x
    script = Script()
    script.begin()
    script.pull(1, 0, "tiling")
    script.generated(1, 0, 1, "tiling", "big")
    script.judged(1, 1.9)
    script.better(1, 1.9)
    assert re.search(r"speed of light 2\.\d\dx", curve_svg(state_of(script)))
    assert curve_svg(RunState()) == ""
    script.pull(2, 0, "tiling")
    script.add(e.PullDropped, pull=2, owner=None, reason="known versions only")
    script.pull(3, 0, "tiling")
    script.generated(3, 0, 3, "tiling", "bigger")
    script.judged(3, 2.0)
    script.better(3, 2.0)
    state = state_of(script)
    state.iterations = 2
    svg = curve_svg(state)
    assert ">2 pulls<" in svg
    assert "H844.0V" in svg, "the third pull is the second that counts: at the end"


def evil() -> RunState:
    script = Script()
    script.begin()
    script.pull(1, 0, "tiling")
    script.generated(1, 0, 1, "tiling", EVIL, source=EVIL, detail=EVIL)
    script.judged(1, 1.5)
    script.better(1, 1.5)
    script.generated(2, 1, 1, "fusion", "x")
    script.add(
        e.Verified, candidate_id=2, verification=r.Verification(verdict="wrong", stage="s", reason=EVIL, detail=EVIL)
    )
    script.add(e.Tagged, by=EVIL, candidate_id=1, tag=EVIL, note=EVIL)
    return state_of(script)


def test_foreign_text_is_text() -> None:
    state = evil()
    page = Page(html_report(state, state.best))
    assert page.open == []
    assert page.fetched == []
    assert not {"script", "img"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in page.text


def test_foreign_text_is_text_in_markdown() -> None:
    state = evil()
    text = markdown_report(state, state.best)
    assert "\x1b" not in text
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)<", outside.replace("&nbsp;", ""))
    for row in (line for line in outside.splitlines() if line.startswith("| ")):
        assert len(re.findall(r"(?<!\\)\|", row)) in (3, 5, 8, 9), row


def test_a_run_without_a_best_is_reported_too() -> None:
    script = Script()
    script.begin()
    state = RunState().apply_all(script.events[:1])
    for make in (html_report, markdown_report):
        assert "Nothing was timed" in make(state, None)


def test_writing_names_what_is_wrong(tmp_path: Path) -> None:
    state, file = measured(), tmp_path / "run.html"
    assert write_report(html_report, state, None, file, overwrite=False) == file
    with pytest.raises(UsageError, match="exists: choose another file, or add --overwrite"):
        write_report(html_report, state, None, file, overwrite=False)
    write_report(html_report, state, 4, file, overwrite=True)
    assert "candidate, #4, by case" in file.read_text()
    with pytest.raises(UsageError, match="no candidate #99"):
        write_report(html_report, state, 99, file, overwrite=True)
    with pytest.raises(UsageError, match="cannot be written"):
        write_report(html_report, state, None, tmp_path / "none" / "run.html", overwrite=False)
    with pytest.raises(UsageError, match="no start of a run"):
        write_report(html_report, RunState(), None, file, overwrite=True)


def browser() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@pytest.mark.skipif(browser() is None, reason="no chromium is installed to open the page in")
def test_a_browser_opens_it(tmp_path: Path) -> None:
    state, file = measured(), tmp_path / "run.html"
    write_report(html_report, state, None, file, overwrite=False)
    found = browser()
    assert found is not None
    shown = subprocess.run(
        [found, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         file.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    page = Page(shown)
    assert {"svg", "table", "pre"} <= set(page.tags)
    assert "1.15x [1.12, 1.18]" in page.text


def test_a_time_is_called_by_the_objective_of_its_run() -> None:
    """Under `worst` a geometric mean stood beside the ratio of the worst case."""

    def summary(objective: str) -> str:
        first, *rest = sample().events
        state = RunState().apply_all([structs.replace(first, objective=objective), *rest])
        page = markdown_report(state, state.best)
        return next(line for line in page.splitlines() if line.startswith("| time"))

    assert summary("geomean").startswith("| time, geometric mean of the cases |")
    assert summary("total").startswith("| time, total of the cases |")
    assert summary("worst").startswith("| time, worst of the cases (")
