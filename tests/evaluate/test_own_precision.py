"""A reference that is a kernel: called in the inputs' own precision, its writes and its scatter seen by running it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
from kbtui.evaluate.inlane import gold  # noqa: E402  needs torch
from kbtui.evaluate.inlane.expected import Expected  # noqa: E402
from kbtui.evaluate.inlane.oracle import Oracle  # noqa: E402
from kbtui.evaluate.inlane.tensors import (  # noqa: E402
    NotPortable,
    arguments_from,
    describe_value,
    pack,
    scalar_of,
)

PROBLEM = """
import torch
from kbtui.problems import Case
entry = "f"
own_precision = True
cases = [Case(input="a", elements=64)]
checks = [Case(input="b", elements=32), Case(input="c", elements=200)]
def reference(x, out, dtype):
    assert x.dtype == torch.float16 and dtype == torch.float32
    out.copy_(x * 2)
    return x.to(dtype).sum(-1)
def make_inputs(case, generator, device):
    x = torch.randn(case.elements // 8, 8, generator=generator, device=device).half()
    return x, torch.zeros_like(x), torch.float32
"""


def opened(folder: Path, text: str = PROBLEM) -> Oracle:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "problem.py").write_text(text)
    (folder / "kernel.py").write_text("def f(x, out, dtype):\n    return x\n")
    oracle = Oracle(str(folder), "cpu", 0)
    oracle.describe_problem()
    return oracle


KEY: dict[str, Any] = {"fields": {"input": "b", "elements": 32}, "variant": ""}


def arguments(oracle: Oracle) -> tuple[Any, ...]:
    answer, (memory,) = oracle.answer({"inputs": KEY}, [])
    return arguments_from(answer["arguments"], [memory], answer["size"], "cpu")


def compared(oracle: Oracle, output: Any, changed: dict[int, Any], allowed: tuple[float, ...] = ()) -> dict[str, Any]:
    descriptions, memory, size = pack([output, *changed.values()])
    body = {
        "key": KEY,
        "size": size,
        "names": ["0"],
        "tensors": descriptions[:1],
        "changed": [{"input": at, "tensor": one} for at, one in zip(changed, descriptions[1:], strict=True)],
        "allowed": list(allowed),
    }
    return oracle.answer({"compare": body}, [memory])[0]


class TestOracle:
    def test_what_the_reference_writes_is_an_output_without_being_declared(self, tmp_path: Path) -> None:
        oracle = opened(tmp_path)
        x, _, dtype = arguments(oracle)
        assert dtype == torch.float32
        right = compared(oracle, x.float().sum(-1), {1: x * 2})
        assert [one["reason"] for one in right["comparisons"]] == ["", ""]
        assert right["own_dtype"]
        wrong = compared(oracle, x.float().sum(-1), {1: x * 3})
        assert [one["reason"] for one in wrong["comparisons"]] == ["", "error"]

    def test_a_write_that_the_reference_does_not_do_is_refused(self, tmp_path: Path) -> None:
        oracle = opened(tmp_path)
        x, *_ = arguments(oracle)
        assert compared(oracle, x.float().sum(-1), {0: x, 1: x * 2})["refused"] == "writes to its input 0"
        assert "argument 1 was not changed" in compared(oracle, x.float().sum(-1), {})["refused"]

    def test_the_coarsest_input_decides_what_is_allowed(self, tmp_path: Path) -> None:
        oracle = opened(tmp_path)
        x, *_ = arguments(oracle)
        # a float32 output of float16 inputs: the kernel may have rounded on the way
        assert compared(oracle, x.float().sum(-1), {1: x * 2})["floors"] == [2e-3, 2e-3]

    def test_its_own_inputs_are_checked_as_they_are(self, tmp_path: Path) -> None:
        oracle = opened(tmp_path, PROBLEM.replace("elements=200", f"elements={1 << 24}"))
        body = {"constants": [64], "most_elements": 32, "most": 18, "unchecked_dtypes": [], "too_much": [], "salt": 0}
        plan = oracle.answer({"plan": body}, [])[0]
        assert [(key["fields"]["input"], key["variant"]) for key in plan["keys"]] == [("b", ""), ("a", "")]
        assert plan["notes"] == ["1 larger shapes: not checked here"]
        less = oracle.answer({"plan": {**body, "too_much": [{"input": "a", "elements": 64}]}}, [])[0]
        assert [key["fields"]["input"] for key in less["keys"]] == ["b"]
        assert oracle.answer({"plan": {**body, "salt": 9}}, [])[0] == plan

    def test_one_that_does_not_agree_with_itself_judges_nothing(self, tmp_path: Path) -> None:
        oracle = opened(tmp_path)
        x, *_ = arguments(oracle)
        output = x.float().sum(-1)
        scattered = Expected([("0", output)], {1: x * 2}, own_dtype=True, spread=[float("inf"), 0.0])
        oracle._expected = lambda key: scattered  # type: ignore[method-assign]
        assert "gives other outputs" in compared(oracle, output, {1: x * 2})["refused"]
        scattered.spread = [0.01, 0.0]
        assert compared(oracle, output, {1: x * 2})["floors"][0] == pytest.approx(0.03)


class TestSpread:
    def test_on_a_gpu_it_is_the_largest_error_of_further_runs(self) -> None:
        runs = itertools.count(1)
        first = [torch.ones(4, 4)]
        found = gold.spread(first, lambda: [first[0] + 0.1 * next(runs)], "cuda:0")
        assert found == [pytest.approx(0.1)]  # 0.2 over |1| and the row's RMS of 1

    def test_other_shapes_are_endless_and_an_interpreter_is_exact(self) -> None:
        first = [torch.ones(4)]
        assert gold.spread(first, lambda: [torch.ones(5)], "cuda:0") == [float("inf")]
        assert gold.spread(first, lambda: pytest.fail("it was run again"), "cpu") == [0.0]


@pytest.mark.parametrize("value", [torch.float16, (1, 2, (3.5, None)), [torch.bfloat16, "a", True], ()])
def test_dtypes_and_sequences_are_handed_over(value: Any) -> None:
    found = scalar_of(describe_value(value))
    assert found == value
    assert type(found) is type(value)


def test_a_sequence_of_what_no_lane_takes_is_refused() -> None:
    with pytest.raises(NotPortable, match="a dict cannot"):
        describe_value((1, {}))


def test_checks_have_to_be_cases(tmp_path: Path) -> None:
    from kbtui.evaluate.inlane.problem_module import ProblemFault

    with pytest.raises(ProblemFault, match="checks holds a int"):
        opened(tmp_path, PROBLEM.replace('[Case(input="b", elements=32), Case(input="c", elements=200)]', "[3]"))


def test_without_a_field_to_vary_every_case_is_checked(tmp_path: Path) -> None:
    """`vary = {}` says that no field may change."""
    text = PROBLEM.replace("own_precision = True", "vary = {}").replace("x.dtype == torch.float16 and ", "")
    oracle = opened(tmp_path, text)
    body = {"constants": [64], "most_elements": 1000, "most": 18, "unchecked_dtypes": [], "too_much": [], "salt": 0}
    keys = oracle.answer({"plan": body}, [])[0]["keys"]
    assert {key["fields"]["elements"] for key in keys} == {32, 64, 200}
    assert {key["variant"] for key in keys} == {"", "wide", "special", "ties", "tiny", "strided"}


def test_a_case_on_which_the_reference_does_nothing_shows_nothing(tmp_path: Path) -> None:
    text = PROBLEM.replace("out.copy_(x * 2)\n    return x.to(dtype).sum(-1)", "return None")
    oracle = opened(tmp_path, text)
    body = {"key": KEY, "size": 1, "names": [], "tensors": [], "changed": [], "allowed": []}
    assert "returns nothing and changes nothing" in oracle.answer({"compare": body}, [])[0]["refused"]
    mutant = {"key": KEY, "mutant": "one output too many", "dtypes": []}
    assert oracle.answer({"mutate": mutant}, [])[0] == {"applies": False}
