"""What imported problems give: inputs by running the suite's own code under a seed of ours, and references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbtui.problems.importers import kernelbench, tritonbench

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault  # noqa: E402  needs torch
from kbtui.problems.suites.recorder import Nothing, Recorder, Unusable  # noqa: E402
from kbtui.problems.suites.triton_file import Found, _spread  # noqa: E402

DATA = Path(__file__).resolve().parents[1] / "data"


def opened(out: Path, name: str) -> Problem:
    (one,) = tritonbench.import_suite(DATA / "tritonbench", out, (name,))
    assert one.folder is not None
    return Problem(one.folder)


def made(problem: Problem, case: Any, seed: int = 1) -> tuple[Any, ...]:
    return problem.arguments(case, torch.Generator().manual_seed(seed), "cpu")


class TestTritonFile:
    def test_timed_cases_come_from_the_script_and_checks_from_the_tests(self, tmp_path: Path) -> None:
        problem = opened(tmp_path, "scaled_sum")
        assert problem.own_precision
        assert [case.fields["input"] for case in problem.cases] == [f"timed-{at}" for at in (1, 3, 5, 7, 9)]
        assert problem.cases[-1].fields["elements"] == 2 * 2**21
        assert [case.fields["shape"] for case in problem.checks] == ["float32[100]", "float32[1000]"]
        assert problem.notes == ("calls-2 is no case: an argument is the result of an earlier call",)

    def test_arguments_given_by_name_come_in_their_places(self, tmp_path: Path) -> None:
        problem = opened(tmp_path, "scaled_sum")
        x, y, scale = made(problem, problem.checks[1])
        assert (x.shape, y.shape, scale) == ((1000,), (1000,), 1.0)
        assert made(problem, problem.cases[0])[2] == 3.0

    def test_the_seed_is_ours_and_not_the_suites(self, tmp_path: Path) -> None:
        problem = opened(tmp_path, "scaled_sum")
        before = torch.random.get_rng_state()
        first, again, other = (made(problem, problem.checks[0], seed)[0] for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_a_class_and_an_argument_by_name_alone_are_called_through_their_wrapper(self, tmp_path: Path) -> None:
        rows = opened(tmp_path, "squared_rows")
        (x,) = made(rows, rows.checks[0])
        assert x.shape == (5, 40)
        assert not x.requires_grad
        shifted = opened(tmp_path, "shifted")
        x, by = made(shifted, shifted.cases[0])
        assert (x.shape, by) == ((300,), 1.5)
        assert float(x.std()) > 0.5

    def test_a_file_that_changed_is_refused(self, tmp_path: Path) -> None:
        problem = opened(tmp_path, "scaled_sum")
        calls = problem.file.parent / "calls.py"
        calls.write_text(calls.read_text() + "\n")
        with pytest.raises(ProblemFault, match=r"calls\.py is not what it was"):
            Problem(problem.file.parent)

    def test_code_that_raises_is_the_problems_fault_with_its_reason(self, tmp_path: Path) -> None:
        suite = tmp_path / "suite"
        suite.mkdir()
        kernel = (DATA / "tritonbench/TritonBench_G_v1/scaled_sum.py").read_text().partition("#" * 146)[0]
        (suite / "one.py").write_text(f"{kernel}\n{'#' * 146}\nraise RuntimeError('no such thing')\nscaled_sum(1, 2)\n")
        (one,) = tritonbench.import_suite(suite, tmp_path / "out")
        assert one.folder is not None
        with pytest.raises(ProblemFault, match="no such thing"):
            Problem(one.folder)

    def test_the_largest_is_timed_and_others_spread_below(self) -> None:
        found = [Found("timed", number) for number in range(11)]
        assert [one.number for one in _spread(found)] == [1, 4, 7, 10]
        assert _spread([]) == []


class TestRecorder:
    def test_results_take_part_in_everything(self) -> None:
        seen: list[Any] = []
        call = Recorder(lambda x, y=1: None, lambda number, arguments: seen.append((number, arguments)))
        first, second = call(1)
        assert isinstance(torch.allclose(first, torch.ones(2)), Nothing)
        assert isinstance((first + 1).sum().item(), Nothing)
        call.apply(2, y=3)
        call(second)
        assert seen[:2] == [(0, (1,)), (1, (2, 3))]
        assert isinstance(seen[2][1], Unusable)

    @pytest.mark.parametrize("value", [[torch.ones(1)], {"a": 1}, torch.nn.ReLU(), 1j])
    def test_what_no_lane_takes_is_named(self, value: Any) -> None:
        seen: list[Any] = []
        Recorder(lambda x: None, lambda _, arguments: seen.append(arguments))(value)
        assert "an argument is a" in str(seen[0])


class TestTorchModel:
    def test_the_module_is_a_reference_of_inputs_and_state(self, tmp_path: Path) -> None:
        found = kernelbench.import_suite(DATA / "kernelbench", tmp_path, ("1_Scaled_rows",))
        assert found[0].folder is not None
        problem = Problem(found[0].folder)
        assert problem.cases[0].fields == {"batch_size": 512}
        assert list(problem.vary or {}) == ["batch_size"]
        case = problem.cases[0].replace(batch_size=3)
        x, weight, bias = made(problem, case)
        assert (x.shape, weight.shape, bias.shape) == ((3, 64), (64, 64), (64,))
        wide = tuple(value.double() for value in (x, weight, bias))
        ((_, expected),) = problem.expected(wide, case)
        assert expected.dtype == torch.float64
        assert torch.allclose(expected, (wide[0] @ wide[1].T + wide[2]).relu())
