"""No honest candidate is rejected, however suspicious; doubled and halved blocks are judged right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from judge_candidates import Candidate, Judge, read

from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.problems.folder import bundled, find_problem

HONEST = read("honest")
SLIPS = read("natural")
HERE = [honest for honest in HONEST if not honest.gpu_only]


def _doubled_and_halved() -> Iterator[Candidate]:
    """What the rewrite generator makes of the blocks of every bundled kernel: the largest and the smallest step."""
    generator = RewriteGenerator()
    for name in bundled():
        problem = find_problem(name)
        module = KernelModule(problem.kernel_source, problem.entry)
        options = generator.options(module, "tiling")
        for option in options[:1] + options[-1:] if len(options) > 1 else options:
            source = option.move.apply(module, option.site)
            yield Candidate(
                name=f"{name}: {option.title}", problem=name, source=source, verdicts=("correct", "unknown")
            )


NATURAL = list(_doubled_and_halved())


def test_there_are_enough() -> None:
    assert len(HERE) >= 20
    assert {slip.problem for slip in SLIPS} == set(bundled())
    assert len(NATURAL) >= len(bundled())
    interpreted = [honest for honest in HERE if honest.verdicts == ("correct",)]
    assert len(interpreted) >= 20
    assert all(honest.why for honest in HERE if honest.verdicts != ("correct",))


@pytest.mark.parametrize("candidate", [pytest.param(honest, id=honest.name) for honest in HERE])
def test_no_honest_candidate_is_rejected(judges: Callable[[str], Judge], candidate: Candidate) -> None:
    found = judges(candidate.problem).judge(candidate)
    assert (found.verdict,) == candidate.verdicts, found
    assert candidate.says in found.reason
    if found.verdict == "correct":
        assert found.verification is not None
        assert found.verification.cases_checked >= 5
    else:
        assert found.owner == "environment"


@pytest.mark.parametrize("candidate", [pytest.param(made, id=made.name) for made in NATURAL])
def test_what_the_rewrites_make_is_not_rejected(judges: Callable[[str], Judge], candidate: Candidate) -> None:
    found = judges(candidate.problem).judge(candidate)
    assert found.verdict in candidate.verdicts, found
    if found.verdict == "unknown":
        assert found.owner == "environment", found


@pytest.mark.parametrize("candidate", [pytest.param(slip, id=slip.name) for slip in SLIPS])
def test_a_slip_with_a_block_is_found(judges: Callable[[str], Judge], candidate: Candidate) -> None:
    found = judges(candidate.problem).judge(candidate)
    assert (found.verdict, found.owner) == ("wrong", "candidate"), found
    assert found.reason


@pytest.mark.gpu
@pytest.mark.parametrize("candidate", [pytest.param(honest, id=honest.name) for honest in HONEST])
def test_no_honest_candidate_is_rejected_on_a_gpu(gpu_judges: Callable[[str], Judge], candidate: Candidate) -> None:
    found = gpu_judges(candidate.problem).judge(candidate)
    assert found.verdict == "correct", found
