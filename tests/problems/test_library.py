"""The bundled problems: each kernel is right, compiles for real targets, and is described as the format asks."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbtui.paths import library_dir
from kbtui.problems import Case
from kbtui.problems.folder import bundled, find_problem
from kbtui.problems.importing import load_source_file

torch = pytest.importorskip("torch", reason="problems are described in terms of torch")

Record = dict[str, Any]

ROWS = [{"rows": 1, "cols": 1}, {"rows": 3, "cols": 97}, {"rows": 2, "cols": 128}, {"rows": 5, "cols": 1025}]
TILES = [{"m": m, "n": n, "k": k} for m, n, k in ((1, 1, 1), (129, 127, 33), (64, 200, 97), (128, 128, 64))]
SMALL: dict[str, list[dict[str, Any]]] = {
    "vector_add": [{"n": n} for n in (1, 97, 1023, 1024, 1025)],
    "softmax": ROWS,
    "rms_norm": ROWS,
    "layer_norm": ROWS,
    "cross_entropy": [
        {"rows": rows, "vocab": vocab} for rows, vocab in ((1, 1), (97, 33), (2, 4095), (2, 4096), (3, 4097))
    ],
    "swiglu": ROWS,
    "rope": [
        {"batch": 1, "heads": 1, "seq": 1, "dim": 2},
        {"batch": 2, "heads": 3, "seq": 5, "dim": 6},
        {"batch": 1, "heads": 2, "seq": 7, "dim": 128},
    ],
    "matmul": TILES,
    "attention": [
        {"batch": 1, "heads": 1, "seq": 1, "dim": 16, "causal": True},
        {"batch": 2, "heads": 2, "seq": 65, "dim": 24, "causal": True},
        {"batch": 2, "heads": 1, "seq": 97, "dim": 8, "causal": True},
        {"batch": 1, "heads": 2, "seq": 130, "dim": 64, "causal": False},
    ],
    "int8_matmul": TILES,
}
DTYPES = {"matmul": ["float16"], "attention": ["float16"]}
"""What can be computed under the interpreter, which does bf16 arithmetic on raw bits."""


def description(name: str) -> ModuleType:
    folder = library_dir() / name
    # A name of its own in sys.modules: ten modules called `problem` would replace one another.
    return load_source_file(folder, f"problem_of_{name}", folder / "problem.py")


def jobs(name: str, dtypes: list[str]) -> list[Record]:
    folder = str(library_dir() / name)
    shapes = [
        {"folder": folder, "fields": {**fields, "dtype": dtype}, "strided": False}
        for fields in SMALL[name]
        for dtype in dtypes
    ]
    return [*shapes, {**shapes[-1], "strided": True}]


def test_the_library_is_what_the_tests_know() -> None:
    assert bundled() == sorted(SMALL)


@pytest.fixture(scope="module")
def records(interpret: Callable[[list[Record]], list[Record]]) -> dict[str, list[Record]]:
    """What each bundled kernel computed under the interpreter, all in one process."""
    asked = {name: jobs(name, DTYPES.get(name, ["float32", "float16"])) for name in bundled()}
    answers = iter(interpret([job for name in asked for job in asked[name]]))
    return {name: [next(answers) for _ in asked[name]] for name in asked}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_kernel_agrees_with_its_reference(
    name: str, records: dict[str, list[Record]], accept: Callable[[Record], None]
) -> None:
    assert len(records[name]) == len(jobs(name, DTYPES.get(name, ["float32", "float16"])))
    for record in records[name]:
        accept(record)


def test_a_wrong_kernel_is_noticed(
    tmp_path: Path, interpret: Callable[[list[Record]], list[Record]], accept: Callable[[Record], None]
) -> None:
    source = (library_dir() / "vector_add" / "kernel.py").read_text()
    (tmp_path / "kernel.py").write_text(source.replace("x + y, mask", "x + y * 1.001, mask"))
    (tmp_path / "problem.py").write_text((library_dir() / "vector_add" / "problem.py").read_text())
    fields = {"n": 97, "dtype": "float32"}
    (record,) = interpret([{"folder": str(tmp_path), "fields": fields, "strided": False}])
    with pytest.raises(AssertionError):
        accept(record)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_kernels_compile(capability: int, compile_for: Callable[[int, list[Path]], list[Record]]) -> None:
    compiled = compile_for(capability, [library_dir() / name for name in bundled()])
    seen = {(record["folder"], record["case"]) for record in compiled}
    assert seen == {(name, case.name) for name in bundled() for case in description(name).cases}
    assert all(record["cubin_bytes"] > 1000 for record in compiled)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SMALL))
def test_kernel_agrees_with_its_reference_on_the_device(
    name: str, on_gpu: Callable[[list[Record]], list[Record]], accept: Callable[[Record], None]
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    problem = description(name)
    timed = [{"folder": str(library_dir() / name), "fields": case.fields, "strided": False} for case in problem.cases]
    for record in on_gpu([*jobs(name, list(problem.dtypes)), *timed]):
        accept(record)


@pytest.mark.parametrize("name", sorted(SMALL))
class TestDescription:
    def test_cases_are_timed_sizes_in_known_dtypes(self, name: str) -> None:
        cases = description(name).cases
        assert 3 <= len(cases) <= 7
        assert all(isinstance(case, Case) for case in cases)
        assert len({case.name for case in cases}) == len(cases)
        assert all(isinstance(getattr(torch, str(case.dtype)), torch.dtype) for case in cases)
        assert {case.dtype for case in cases} <= set(description(name).dtypes)

    def test_vary_names_integer_fields_and_admits_the_cases(self, name: str) -> None:
        problem = description(name)
        assert problem.vary
        for field, rule in problem.vary.items():
            for case in problem.cases:
                assert type(case.fields[field]) is int
                assert rule.admits(case.fields[field]), (field, case)

    def test_traffic_is_positive_and_grows(self, name: str) -> None:
        problem = description(name)
        for case in problem.cases:
            moved, operations = problem.traffic(case)
            assert type(moved) is int
            assert type(operations) is int
            assert moved > 0
            assert operations > 0
            field = next(iter(problem.vary))
            more, work = problem.traffic(case.replace(**{field: 2 * case.fields[field]}))
            assert more > moved
            assert work > operations

    def test_traffic_counts_inputs_and_outputs_once(self, name: str) -> None:
        problem = description(name)
        for fields in SMALL[name]:
            case = Case(**fields, dtype=problem.dtypes[0])
            inputs = problem.make_inputs(case, torch.Generator().manual_seed(0), "cpu")
            tensors = [value for value in (*inputs, problem.reference(*inputs)) if torch.is_tensor(value)]
            assert problem.traffic(case)[0] == sum(value.numel() * value.element_size() for value in tensors)

    def test_inputs_follow_the_seed(self, name: str) -> None:
        problem = description(name)
        case = Case(**SMALL[name][2], dtype=problem.dtypes[0])
        torch.manual_seed(1)
        first = problem.make_inputs(case, torch.Generator().manual_seed(5), "cpu")
        torch.manual_seed(2)
        again = problem.make_inputs(case, torch.Generator().manual_seed(5), "cpu")
        other = problem.make_inputs(case, torch.Generator().manual_seed(6), "cpu")
        assert all(torch.equal(a, b) if torch.is_tensor(a) else a == b for a, b in zip(first, again, strict=True))
        assert not torch.equal(first[0], other[0])

    def test_the_wrapper_leaves_the_work_to_triton(self, name: str) -> None:
        tree = ast.parse((library_dir() / name / "kernel.py").read_text())
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
        }
        assert used <= {"Tensor", "empty"}
        language = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tl"
        }
        assert language.isdisjoint({"make_block_ptr", "advance"}), "removed in Triton 3.9"

    def test_it_has_a_summary(self, name: str) -> None:
        summary = find_problem(name).summary
        assert 10 < len(summary) <= 90
        assert summary.endswith(".")


class TestReferences:
    """The references themselves, against torch's own functions or against plain arithmetic."""

    def inputs(self, name: str, **fields: Any) -> tuple[Any, ...]:
        made = description(name).make_inputs(Case(**fields), torch.Generator().manual_seed(3), "cpu")
        return tuple(
            value.double() if torch.is_tensor(value) and value.is_floating_point() else value for value in made
        )

    def test_rms_norm(self) -> None:
        x, weight, eps = self.inputs("rms_norm", rows=4, cols=33, dtype="float32")
        expected = torch.nn.functional.rms_norm(x, (33,), weight, eps)
        torch.testing.assert_close(description("rms_norm").reference(x, weight, eps), expected)

    def test_layer_norm(self) -> None:
        x, weight, bias, eps = self.inputs("layer_norm", rows=4, cols=33, dtype="float32")
        expected = torch.nn.functional.layer_norm(x, (33,), weight, bias, eps)
        torch.testing.assert_close(description("layer_norm").reference(x, weight, bias, eps), expected)

    def test_cross_entropy(self) -> None:
        logits, targets = self.inputs("cross_entropy", rows=200, vocab=33, dtype="float32")
        assert (targets < 0).any(), "the inputs must hold rows that do not count"
        expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none", ignore_index=-100)
        torch.testing.assert_close(description("cross_entropy").reference(logits, targets), expected)

    def test_swiglu(self) -> None:
        gate, up = self.inputs("swiglu", rows=4, cols=33, dtype="float32")
        torch.testing.assert_close(description("swiglu").reference(gate, up), torch.nn.functional.silu(gate) * up)

    def test_rope_turns_halves_as_complex_numbers(self) -> None:
        x, cos, sin = self.inputs("rope", batch=2, heads=3, seq=5, dim=8, dtype="float32")
        turned = torch.complex(x[..., :4], x[..., 4:]) * torch.complex(cos, sin)
        expected = torch.cat((turned.real, turned.imag), dim=-1)
        torch.testing.assert_close(description("rope").reference(x, cos, sin), expected)

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("keys", [7, 11, 4])
    def test_attention(self, causal: bool, keys: int) -> None:
        q, _, _, _ = self.inputs("attention", batch=2, heads=3, seq=7, dim=8, causal=causal, dtype="float32")
        _, k, v, _ = self.inputs("attention", batch=2, heads=3, seq=keys, dim=8, causal=causal, dtype="float32")
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(description("attention").reference(q, k, v, causal), expected)

    def test_int8_matmul(self) -> None:
        a, b, scale_a, scale_b = self.inputs("int8_matmul", m=3, n=5, k=300, dtype="float32")
        sums = (a.long()[:, :, None] * b.long()[None, :, :]).sum(dim=1)
        expected = sums * scale_a[:, None] * scale_b[None, :]
        torch.testing.assert_close(description("int8_matmul").reference(a, b, scale_a, scale_b), expected)
