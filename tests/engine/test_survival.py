"""A run meets faults at random moments: nothing finished is lost, nothing doubled, and it goes on as it would have.

A few moments each; `benchmarks/survival.py` does fifty and more of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import survival

from kbtui import paths

TWO = "cuda:0,cuda:1"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[object, ...]], float]:
    """What an undisturbed run does, and how long it takes."""
    with pytest.MonkeyPatch.context() as patched:
        home: Path = tmp_path_factory.mktemp("calm")
        patched.setenv("KBTUI_HOME", str(home))
        paths.runs_dir().mkdir(parents=True)
        survival.warm_up()
        return survival.undisturbed()


@pytest.mark.parametrize("fault", survival.FAULTS)
def test_fault(fault: str, calm: tuple[list[tuple[object, ...]], float]) -> None:
    paths.runs_dir().mkdir(parents=True, exist_ok=True)
    done = list(survival.trials(fault, 2, seed=1, calm=calm))
    assert len(done) == 2


@pytest.fixture(scope="module")
def calm_on_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[object, ...]], float]:
    """The same on two devices: what it takes; the course differs from run to run, since pulls overlap."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KBTUI_HOME", str(tmp_path_factory.mktemp("two")))
        paths.runs_dir().mkdir(parents=True)
        survival.warm_up()
        return survival.undisturbed(devices=TWO)


@pytest.mark.parametrize("fault", survival.OF_SEVERAL)
def test_fault_on_two_devices(fault: str, calm_on_two: tuple[list[tuple[object, ...]], float]) -> None:
    paths.runs_dir().mkdir(parents=True, exist_ok=True)
    done = list(survival.trials(fault, 2, seed=1, calm=calm_on_two, devices=TWO))
    assert len(done) == 2


def test_the_checks_can_fail(calm: tuple[list[tuple[object, ...]], float]) -> None:
    paths.runs_dir().mkdir(parents=True, exist_ok=True)
    trial = next(survival.trials("hang up", 1, seed=2, calm=calm))
    lines = trial.path.read_bytes().splitlines(keepends=True)
    trial.path.write_bytes(b"".join(lines[:-3]))
    with pytest.raises(AssertionError, match="are not any more"):
        trial.check()
