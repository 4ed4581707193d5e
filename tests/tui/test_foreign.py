"""Text that is not ours reaches the terminal as glyphs, through every screen and every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from tui_drive import drive
from tui_sample import Script, ScriptedFeed, gpu, sample

from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.tui.app import KbtuiApp
from kbtui.tui.screens.dialogs import SafeInput
from kbtui.tui.terminal import Terminal

EVIL = (
    "\x1b]52;c;SGFja2Vk\a\x1b]0;title\a\x1b[2J\x9b31m\x9d52;c;eA\x9c\u202egnp[@click=app.exit]go[/]x[/2]\x08\x07\ud800"
)
DANGEROUS = re.compile("[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What Textual itself sends: colours, cursor moves, synchronised output, keyboard and mouse modes, the window's title is not.
OURS = re.compile(r"\x1b(\[[0-9;?<>=$]*[A-Za-zp~]|[PX^_]|\\|[78=>])")


def evil_run() -> list[e.Event]:
    script = Script(run_id=f"run{EVIL}")
    script.begin()
    started = script.events[0]
    assert isinstance(started, e.RunStarted)
    import msgspec

    script.events[0] = msgspec.structs.replace(
        started,
        problem=msgspec.structs.replace(started.problem, name=f"soft{EVIL}", path=f"/tmp/{EVIL}"),
        device=msgspec.structs.replace(started.device, name=f"H200{EVIL}", target=EVIL),
        policy=EVIL, generator=EVIL, model=EVIL,
    )  # fmt: skip
    script.pull(1, 0, "tiling")
    script.generated(
        1, 0, 1, "tiling", f"move{EVIL}", source=f"# {EVIL}\nx = '{EVIL}'\n", detail=EVIL, generator=EVIL, by=EVIL
    )
    script.add(e.Compiled, candidate_id=1, compilation=r.Compilation(ok=False, reason=EVIL, detail=EVIL, stage=EVIL))
    script.generated(2, 0, 2, "fusion", f"two{EVIL}", source=f"{EVIL}\n" * 3)
    script.add(e.Pruned, candidate_id=2, stage=EVIL, reason=EVIL)
    script.generated(3, 0, 3, "fusion", EVIL)
    kernel = r.KernelFacts(
        name=EVIL, target=EVIL, registers=1, spill_bytes=0, shared_bytes=0, num_warps=1, num_stages=1, threads=32,
        occupancy_percent=1.0, code_digest="x", constants={EVIL: EVIL},
    )  # fmt: skip
    script.compiled(3, kernels=(kernel,))
    script.add(e.Verified, candidate_id=3, verification=r.Verification(
        verdict="wrong", stage=EVIL, reason=EVIL, detail=EVIL, worst_case=EVIL, not_checked=(EVIL,), error=1.0,
    ))  # fmt: skip
    script.add(e.Timed, candidate_id=3, signature=r.Signature(l2=r.Reading(reason=EVIL)), timing=r.Timing(
        kind="measured", verdict="same", ratio=1.0, suspicious=(EVIL,),
        cases=(r.CaseTiming(case=EVIL, ms=1.0, bound=EVIL), r.CaseTiming(case=EVIL, failed=EVIL)),
        conditions=r.Conditions(reasons=(EVIL,)),
    ))  # fmt: skip
    script.add(e.BestChanged, candidate_id=3, path=f"/tmp/{EVIL}")
    script.add(e.MovesFound, candidate_id=3, moves={EVIL: 1})
    script.add(e.Tagged, by=EVIL, candidate_id=3, tag=EVIL, note=EVIL)
    script.add(e.Masked, pull=2, held={0: {"tiling": EVIL}}, signatures={})
    score = r.ArmScore(
        cluster=0, strategy="tiling", pulls=1.0, mean=0.1, bonus=0.1, score=0.2, held="masked", reason=EVIL
    )
    script.add(e.Selected, pull=2, cluster=0, strategy="fusion", parent_id=0, scores=(score,), reason=EVIL)
    script.add(e.Forced, by=EVIL, strategy="tiling")
    script.add(e.Injected, by=EVIL, name=EVIL, source=EVIL)
    script.add(e.Noted, level="error", text=EVIL, source=EVIL)
    script.add(e.RunPaused, by=EVIL, reason=EVIL)
    sample_ = gpu(50.0)
    values = {k: v for k, v in sample_.values.items() if k not in ("busy_percent", "power_w")}
    evil_gpu = msgspec.structs.replace(
        sample_,
        device=EVIL,
        values=values | {"throttle": 1.0},
        missing={"busy_percent": EVIL, "power_w": EVIL},
        reasons=(EVIL,),
    )
    progress = e.Progressed(stage=EVIL, text=EVIL, candidate_id=3)
    return [*script.events, evil_gpu, msgspec.structs.replace(evil_gpu, uuid="2"), progress]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that the app writes to its terminal."""
    out: list[str] = []
    # otherwise Textual paints nothing at all
    monkeypatch.setattr(HeadlessDriver, "is_headless", property(lambda _self: False))
    monkeypatch.setattr(HeadlessDriver, "write", lambda _self, data: out.append(data))
    return out


def assert_harmless(written: list[str]) -> None:
    # Textual's own: the shape of the mouse pointer, and the bell of an input that refuses a character
    text = "".join(part for part in written if part != "\x07").replace("\x1b]22;default\x07", "")
    assert len(text) > 1000
    assert "\x1b]" not in text
    rest = OURS.sub("", text)
    assert "\x1b" not in rest, repr(rest[max(0, rest.index("\x1b") - 40) : rest.index("\x1b") + 40])
    assert not DANGEROUS.search(rest.replace("\r", "")), repr(DANGEROUS.search(rest.replace("\r", "")))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_the_cockpit_and_a_candidate(size: tuple[int, int], written: list[str]) -> None:
    async with drive(evil_run(), size) as d:
        for keys in ("1", "2", "3", "4", "5", "1"):
            await d.press(keys)
        await d.press("z", "home")
        for _ in range(4):
            await d.press("enter", "1", "2", "d", "3", "4", "5", "escape", "down")
        assert "␛]52;c;" in d.text
        for keys in (
            ("f", "escape"),
            ("b", "escape"),
            ("t", "escape"),
            ("ctrl+p", "escape"),
            ("question_mark", "escape"),
            ("Q", "escape"),
        ):
            await d.press(*keys)
        d.feed.answer = (False, f"no: {EVIL}")
        await d.press("s")
        d.feed.connected, d.feed.held, d.feed.refusal = False, True, EVIL
        await d.press("s")
        assert d.app.is_running  # no [@click] ran
    assert_harmless(written)


async def test_without_colours_and_in_ascii(written: list[str]) -> None:
    terminal = Terminal(ascii=True, colours="none")
    async with drive(evil_run(), (120, 40), terminal=terminal) as d:
        for keys in ("2", "3", "4", "5", "1", "enter", "2", "escape", "s", "question_mark", "escape", "i", "escape"):
            await d.press(keys)
        assert [line for line in d.lines if not line.isascii()] == []
    assert_harmless(written)


async def test_the_home_screen(written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from kbtui.history import runs
    from kbtui.history.runs import RunEntry

    entries = [
        RunEntry(
            run_id=EVIL, status="live", problem=EVIL, device=EVIL, generator=EVIL, model=EVIL, best_verdict=EVIL, pid=1
        ),
        RunEntry(run_id=EVIL, status="crashed", error=EVIL),
    ]
    monkeypatch.setattr(runs, "list_runs", lambda: entries)
    app = KbtuiApp(None, terminal=Terminal(ascii=False, colours="many"), make_feed=lambda _: ScriptedFeed([]))
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("down", "enter")
        await pilot.pause(0.3)
    assert_harmless(written)


async def test_an_input_takes_no_control_characters(written: list[str]) -> None:
    from textual.events import Paste

    async with drive(sample().events) as d:
        await d.press("i")
        widget = d.app.screen.query_one(SafeInput)
        widget.post_message(Paste(EVIL.replace("\ud800", "")))
        await d.settle()
        assert not DANGEROUS.search(widget.value)
        await d.press(*"no-such", "enter")
    assert_harmless(written)


async def test_a_bad_theme_file_with_a_hostile_name(written: list[str]) -> None:
    from kbtui.paths import user_themes_dir

    user_themes_dir().mkdir(parents=True)
    (user_themes_dir() / "x\x1b]0;y\a.toml").write_text(f'name = "{chr(92)}u001b]52"\ndark = true\n[colours]\n')
    async with drive(sample().events) as d:
        assert "must be 1 to 40 printable" in d.text
    assert_harmless(written)


def test_nothing_in_the_package_turns_markup_on() -> None:
    import kbtui.tui

    for file in Path(kbtui.tui.__file__).parent.rglob("*.py"):
        assert not re.search(r"markup\s*=\s*True|from_markup|Text\.from_ansi", file.read_text(encoding="utf-8")), file
