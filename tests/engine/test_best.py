"""Which candidate is the best: by verdict first, by figure second, and never a modelled figure as a measured one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtui import paths
from kbtui.engine.best import best_of, export_best
from kbtui.state.records import CaseTiming, Timing, Verification
from kbtui.state.run_state import Candidate, RunState

CASES = (CaseTiming(case="n=1", ms=1.0),)


def candidate(number: int, timing: Timing | None, verdict: str = "correct") -> Candidate:
    return Candidate(
        id=number,
        parent_id=None if number == 0 else 0,
        pull=number,
        strategy=None,
        generator="fake",
        move="",
        source="",
        source_digest="",
        syntax_digest=str(number),
        verification=Verification(verdict=verdict, stage="done"),  # type: ignore[arg-type]
        timing=timing,
    )


def measured(verdict: str, ratio: float) -> Timing:
    return Timing(kind="measured", verdict=verdict, cases=CASES, ratio=ratio)  # type: ignore[arg-type]


def modelled(verdict: str, estimate: float) -> Timing:
    return Timing(kind="modelled", verdict=verdict, cases=CASES, estimate=estimate)  # type: ignore[arg-type]


def best(*timings: Timing | None, verdicts: dict[int, str] | None = None) -> int | None:
    state = RunState()
    for number, timing in enumerate(timings):
        state.candidates[number] = candidate(number, timing, (verdicts or {}).get(number, "correct"))
    return best_of(state)


BASE, MODEL = measured("same", 1.0), modelled("not worse", 1.0)


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        ((None,), None),
        ((BASE,), 0),
        ((BASE, measured("faster", 1.2)), 1),
        ((BASE, measured("same", 1.4)), 0),
        ((BASE, measured("ambiguous", 1.5)), 0),
        ((BASE, measured("slower", 0.5)), 0),
        ((BASE, measured("faster", 1.2), measured("faster", 1.3), measured("faster", 1.25)), 2),
        ((BASE, measured("faster", 1.2), measured("faster", 1.2)), 1),
        ((BASE, None, measured("faster", 1.1)), 2),
        ((MODEL, modelled("not worse", 1.3)), 1),
        ((MODEL, modelled("worse", 1.3), modelled("unknown", 2.0)), 0),
        ((MODEL, modelled("not worse", 1.0)), 0),
        ((MODEL, modelled("not worse", 0.99)), 0),
    ],
)
def test_which_is_best(timings: tuple[Timing | None, ...], expected: int | None) -> None:
    assert best(*timings) == expected


def test_what_is_wrong_is_not_best_however_fast() -> None:
    assert best(BASE, measured("faster", 9.0), verdicts={1: "wrong"}) == 0


def test_the_export_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    paths.run_dir("x").mkdir(parents=True)
    path = export_best("x", "first")
    assert path.read_text() == "first"

    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("kbtui.engine.best.os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        export_best("x", "second")
    assert path.read_text() == "first"
    monkeypatch.undo()


def test_a_second_export_replaces_the_first(private_home: Path) -> None:
    assert private_home
    paths.run_dir("x").mkdir(parents=True)
    export_best("x", "first")
    path = export_best("x", "second")
    assert path.read_text() == "second"
    assert [file.name for file in path.parent.iterdir()] == ["kernel.py"]
