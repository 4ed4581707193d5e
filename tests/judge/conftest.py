"""Makes the candidates importable; a lane for each problem, started once and closed before the next one starts."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

_NAME = "judge_candidates"
if _NAME not in sys.modules:
    _found = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name(f"{_NAME}.py"))
    assert _found is not None
    assert _found.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(sys.modules[_NAME])

if TYPE_CHECKING:
    from judge_candidates import Candidate, Judge

    Judges = Callable[[str], Judge]


OF_ONE_LANE = 12
_TO_COME: dict[tuple[str, str], list[Candidate]] = {}
"""Candidates of the collected tests by file and problem, in their order: what a lane compiles ahead. By file, since the tests
of another may well run in another process, which compiles them itself."""
_RUNNING: list[str] = [""]
"""The file of the test that runs."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    _RUNNING[0] = str(item.path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is judged by one lane comes together, since a lane takes seconds to start."""
    here = str(Path(__file__).parent)
    places = [at for at, item in enumerate(items) if str(item.path).startswith(here)]
    ours = sorted((items[at] for at in places), key=_problem)
    seen: Counter[str] = Counter()
    for item in ours:
        if item.get_closest_marker("gpu") is not None:
            # for `--dist loadgroup`: a lane for every few candidates of one problem
            item.add_marker(pytest.mark.xdist_group(f"{_problem(item)} {seen[_problem(item)] // OF_ONE_LANE}"))
            seen[_problem(item)] += 1
        if item.get_closest_marker("gpu") is None and (candidate := _candidate(item)) is not None:
            _TO_COME.setdefault((str(item.path), _problem(item)), []).append(candidate)
    for at, item in zip(places, ours, strict=True):
        items[at] = item


def _candidate(item: pytest.Item) -> Candidate | None:
    spec = getattr(item, "callspec", None)
    return spec.params.get("candidate") if spec is not None else None


def _problem(item: pytest.Item) -> str:
    candidate, spec = _candidate(item), getattr(item, "callspec", None)
    return str(
        candidate.problem if candidate is not None else spec.params.get("problem", "") if spec is not None else ""
    )


def _judges(device: str, folder: Path) -> Iterator[Judges]:
    opened: dict[str, Judge] = {}

    def judge(problem: str) -> Judge:
        if problem not in opened:
            close()
            to_come = _TO_COME.get((_RUNNING[0], problem), []) if device == "cpu" else []
            opened[problem] = sys.modules[_NAME].Judge(problem, device, folder / Path(problem).name, to_come)
        return opened[problem]

    def close() -> None:
        while opened:
            opened.popitem()[1].close()

    yield judge
    close()


@pytest.fixture(scope="session")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judges]:
    """`judges(problem)`: the real `cpu` lane of a bundled problem."""
    pytest.importorskip("triton", reason="needs triton")
    yield from _judges("cpu", tmp_path_factory.mktemp("judge"))


@pytest.fixture(scope="session")
def gpu_judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judges]:
    """The same on the first GPU."""
    torch = pytest.importorskip("torch", reason="needs torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from kbtui.evaluate import gpu, timing, verdict

    with pytest.MonkeyPatch.context() as patch:
        # What is asked here is whether a candidate is refused, not how fast it is: one pair is enough, and lanes need not
        # wait for one another to measure.
        patch.setattr(timing, "MOST_PAIRS", 1)
        patch.setattr(verdict, "PAIRS_FOR_FASTER", 2)
        patch.setattr(gpu, "LOCKS", tmp_path_factory.mktemp("locks"))
        yield from _judges("cuda:0", tmp_path_factory.mktemp("judge"))
