"""No cheat is accepted: wrong outputs, tampering, evasion and theft of resources, against the bundled problems."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from judge_candidates import Candidate, Judge, read

CHEATS = read("cheats")
CLASSES = {"wrong_output", "tampering", "evasion", "resources", "device"}


def test_every_class_is_there() -> None:
    assert len([cheat for cheat in CHEATS if not cheat.gpu_only]) >= 40
    assert {file.stem for file in (Path(__file__).parent / "cheats").glob("*.toml")} == CLASSES
    assert [name for name, count in Counter(cheat.name for cheat in CHEATS).items() if count > 1] == []
    assert not any("correct" in cheat.verdicts for cheat in CHEATS)


@pytest.mark.parametrize("candidate", [pytest.param(cheat, id=cheat.name) for cheat in CHEATS if not cheat.gpu_only])
def test_no_cheat_is_accepted(judges: Callable[[str], Judge], candidate: Candidate) -> None:
    found = judges(candidate.problem).judge(candidate)
    assert found.verdict in candidate.verdicts, found
    assert found.owner == ("environment" if found.verdict == "unknown" else "candidate"), found
    assert found.reason
    assert candidate.says in found.reason
    if candidate.stage:
        assert found.stage == candidate.stage, found


@pytest.mark.gpu
@pytest.mark.parametrize("candidate", [pytest.param(cheat, id=cheat.name) for cheat in CHEATS])
def test_no_cheat_is_accepted_on_a_gpu(gpu_judges: Callable[[str], Judge], candidate: Candidate) -> None:
    if candidate.unseen_on_gpu:
        pytest.xfail(candidate.unseen_on_gpu)
    found = gpu_judges(candidate.problem).judge(candidate)
    assert found.verdict != "correct", found
    assert found.reason


@pytest.mark.parametrize("problem", ["softmax"])
def test_no_job_is_left_behind(judges: Callable[[str], Judge], problem: str) -> None:
    # only what candidates ran in: the next ones may be compiling
    scratch = str(judges(problem).lane._spec.scratch / "interpret")  # type: ignore[attr-defined]
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = os.readlink(entry / "cwd")
            except OSError:
                continue
            if where.startswith(scratch + os.sep) and os.sep + "job" in where:
                left.append(where)
    assert left == []
