"""The reference under torch.compile: how it is loaded and isolated, what its check asks for, and what a lost process means."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui.errors import ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.checks import CandidateCheck
from kbtui.evaluate.inlane.bootstrap import PACKAGE
from kbtui.evaluate.job import Outcome
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.match import Match
from kbtui.evaluate.outputs import by_reference
from kbtui.evaluate.pairs import PairPlan
from kbtui.evaluate.reference import EAGER, KERNEL, ReferenceCheck, ReferenceLane
from kbtui.evaluate.turns import AuditTurn, PlayerLost, PreparedTurn
from kbtui.paths import library_dir
from kbtui.problems.importers import kernelbench
from kbtui.state.records import CaseInfo, CaseTiming, Timing

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")
HAS_CUDA = torch.cuda.is_available()
KERNELBENCH = Path(__file__).parents[1] / "data" / "kernelbench"

# ------------------------------------------------------------ in the lane


LOADING = """
    import json, os, sys
    from pathlib import Path

    import torch

    order = json.loads(sys.argv[1])
    os.chdir(order["folder"])
    from kbtui.evaluate.inlane import candidate, reference
    from kbtui.evaluate.inlane.problem_module import Problem
    from kbtui.problems.format import Case

    measures = candidate.isolate(order, "device")
    backend = order["backend"]
    plain = torch.compile
    torch.compile = lambda entry, **given: plain(entry, backend=backend, **given)
    folder = Path(order["problem_folder"])
    entry = reference.load(folder, compiled=True)
    problem, right = Problem(folder), []
    for fields in order["cases"]:
        arguments = problem.arguments(Case(**fields), torch.Generator("cpu").manual_seed(1), "cpu")
        expected = dict(problem.expected(arguments, Case(**fields)))
        found = entry(*arguments)
        right.append(all(torch.allclose(found, one, rtol=1e-4, atol=1e-5) for one in expected.values()))
    from torch._dynamo.utils import counters

    print(json.dumps({
        "right": right,
        "gradients": torch.is_grad_enabled(),
        "graphs": reference.graphs_compiled(),
        "breaks": sum(counters["graph_break"].values()),
        "cache": os.environ["TORCHINDUCTOR_CACHE_DIR"],
        "landlock": measures["landlock"],
        "precision": torch.get_float32_matmul_precision(),
    }))
"""


def loaded(problem: Path, cases: list[dict[str, Any]], tmp_path: Path, backend: str) -> dict[str, Any]:
    """What a process saw that loaded the reference under the isolation of a device lane."""
    folder, cache = tmp_path / "job", tmp_path / "cache"
    for made in (folder, cache):
        made.mkdir()
    order = {
        "folder": str(folder),
        "problem_folder": str(problem),
        "readable": [str(problem), str(PACKAGE / "problems" / "suites")],
        "cache": str(cache),
        "memory_bytes": 0,
        "cases": cases,
        "backend": backend,
    }
    command = [sys.executable, "-c", textwrap.dedent(LOADING), json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_shape_is_compiled_for_itself_however_many_there_are(tmp_path: Path) -> None:
    """Beyond eight torch would go on uncompiled without a word, and eager times would pass for compiled ones."""
    cases = [{"rows": 2, "cols": 8 * n, "dtype": "float32"} for n in range(1, 13)]
    found = loaded(library_dir() / "softmax", cases, tmp_path, "eager")
    assert found["right"] == [True] * 12
    assert (found["graphs"], found["breaks"]) == (12, 0)
    assert found["gradients"] is False
    assert found["precision"] == "highest"
    assert found["cache"] == str(tmp_path / "cache" / "inductor")


def test_a_module_of_kernelbench_is_one_graph(tmp_path: Path) -> None:
    kernelbench.import_suite(KERNELBENCH, tmp_path / "suite", ("1_Scaled_rows",))
    problem = tmp_path / "suite" / "level1" / "1_Scaled_rows"
    sizes = dict.fromkeys(_sizes(problem), 6)
    found = loaded(problem, [sizes], tmp_path, "eager")
    assert found["right"] == [True]
    assert (found["graphs"], found["breaks"]) == (1, 0)


def _sizes(problem: Path) -> list[str]:
    import ast

    calls = [node for node in ast.walk(ast.parse((problem / "problem.py").read_text())) if isinstance(node, ast.Call)]
    sizes = next(one.value for call in calls for one in call.keywords if one.arg == "sizes")
    return list(ast.literal_eval(sizes))


@pytest.mark.slow
def test_inductor_works_under_the_isolation(tmp_path: Path) -> None:
    found = loaded(library_dir() / "softmax", [{"rows": 3, "cols": 40, "dtype": "float32"}], tmp_path, "inductor")
    assert found["right"] == [True]
    assert any((tmp_path / "cache" / "inductor").rglob("*.py")), "what it wrote lies in the cache of the source"


def test_what_torchs_compilers_say_is_their_first_word() -> None:
    """It ends with advice to whoever reports a bug, which was all that a row would have said."""
    from kbtui.evaluate.inlane.reference import _why

    def broken(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such operator")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    assert "Set TORCHDYNAMO_VERBOSE" in str(raised.value)
    assert _why(raised.value) == "BackendCompilerFailed: backend='broken' raised: ValueError: no such operator"
    assert _why(ValueError("too large\nfor it")).startswith("ValueError: for it")


# ------------------------------------------------------------ its check


KEY = wire.CaseKey(fields={"n": 4})


def outputs(dtype: str = "float32", strides: tuple[int, ...] = (1, 2)) -> wire.Outputs:
    tensor = wire.TensorInfo(dtype=dtype, shape=(2, 2), strides=strides, span=4, offset=0)
    return wire.Outputs(
        case=0, call=0, size=16, names=("out",), tensors=(tensor,), changed=(), shared=(-1,), launched=(), own=False
    )  # fmt: skip


class PretendedOracle:
    """Compares nothing: `reason` is what it finds."""

    reason = ""

    def inputs(self, key: wire.CaseKey) -> tuple[dict[str, Any], tuple[int, ...]]:
        return {}, ()

    def compare(self, key: wire.CaseKey, outputs: Any, memory: Any, allowed: Any) -> wire.Compared:
        one = wire.Comparison(
            error=1.0, allowed=allowed[0], wrong=1, elements=4, index=(0, 1), reason=self.reason
        )  # fmt: skip
        return wire.Compared(comparisons=(one,), floors=(1e-6,))


def checked(
    oracle: PretendedOracle, given: wire.Outputs, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, ReferenceCheck]:
    monkeypatch.setattr("kbtui.evaluate.reference.check_memory", lambda *_: None)
    told = wire.Contract(dtypes=("float32",), shapes=((2, 2),), shared=(-1,), floors=(1e-6,), own_dtype=False)
    strict = CandidateCheck(oracle, [KEY], {KEY: by_reference(told)})  # type: ignore[arg-type]
    check = ReferenceCheck.like(strict)
    check.respond(None, wire.Ask(what="inputs", fields={"case": 0}), [])  # type: ignore[arg-type]
    return check.respond(None, given, []), check  # type: ignore[arg-type]


def test_values_count_and_neither_whose_kernels_they_are_nor_how_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, check = checked(PretendedOracle(), outputs(), monkeypatch)
    assert answer == ({"go_on": True}, ())
    assert check.verdict is None


def test_wrong_values_and_another_dtype_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = PretendedOracle()
    oracle.reason = "error"
    answer, check = checked(oracle, outputs(), monkeypatch)
    assert answer is None
    assert check.verdict is not None
    assert check.verdict.verdict == "wrong"
    assert "output 0[0, 1] error 1 where 1e-06 is allowed" in check.verdict.reason
    _, check = checked(PretendedOracle(), outputs("float16"), monkeypatch)
    assert check.verdict is not None
    assert check.verdict.reason == "output 0 is float16 where float32 is expected"


# ------------------------------------------------------------ its lane, with processes that are played


CASES = tuple(CaseInfo(name=f"n={n}", fields={"n": n}) for n in (4, 8))


class Verifier:
    def recheck(self, keys: Any) -> CandidateCheck:
        return CandidateCheck(PretendedOracle(), keys, {})  # type: ignore[arg-type]

    def untimeable(self, keys: Any) -> dict[int, str]:
        return {}


class Player:
    """Answers turns; `lost` is how its process ends in the audit of the second case."""

    def __init__(self, lost: Outcome | None) -> None:
        self.lost, self.did = lost, []

    def turn(self, kind: Any, do: str, case: int, **fields: Any) -> Any:
        self.did.append((do, case))
        if self.lost is not None and (do, case) == ("audit", 1):
            raise PlayerLost("candidate", self.lost)
        if kind is PreparedTurn:
            return PreparedTurn(launches=1, reading_ms=1.0, graph=case == 0, why_no_graph="", free_bytes=1)
        return AuditTurn(accepted=True) if kind is AuditTurn else None


@dataclasses.dataclass
class Played(Match):
    player: Any = None

    @contextlib.contextmanager
    def alone(self, **parameters: Any) -> Iterator[Any]:
        yield self.player


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    def make(problem: Path) -> ReferenceLane:
        spec = LaneSpec(problem=problem, device="cuda:0", python=sys.executable, scratch=tmp_path / "lane")
        lane: Any = ReferenceLane(spec)
        lane._keys = tuple(wire.CaseKey(fields=case.fields) for case in CASES)
        lane._cases, lane._verifier = CASES, Verifier()
        lane._info = msgspec.defstruct("Info", [("l2_bytes", int, 1), ("memory_bytes", int, 1 << 30)])()
        opened.append(lane)
        return lane  # type: ignore[no-any-return]

    opened: list[ReferenceLane] = []
    yield make
    for lane in opened:
        lane.close()


BASELINE = Timing(kind="measured", verdict="same", cases=(), ratio=1.0, noise=0.01)


def test_beside_a_kernel_the_kernels_process_stays_what_it_is(made: Any) -> None:
    folder = library_dir() / "softmax"
    lane = made(folder)
    match, plan = lane._contest(BASELINE, compiled=True)
    assert (match.baseline.kind, match.candidate.kind) == ("time", "time_reference")
    assert match.baseline.source == (folder / "kernel.py").read_text()
    assert match.candidate.parameters["compiled"] is True
    assert str(folder) in match.candidate.readable
    assert str(folder) not in match.baseline.readable, "a candidate's kind of process must not read problem.py"
    assert match.candidate.deadline_s == match.baseline.deadline_s > 600, "one waits while the other compiles"
    assert match.candidate.cache != match.baseline.cache
    assert (plan.noise, lane.beside) == (0.01, KERNEL)
    assert isinstance(match.recheck(), ReferenceCheck)


def test_without_a_kernel_the_same_reference_run_eagerly_is_beside_it(made: Any, tmp_path: Path) -> None:
    kernelbench.import_suite(KERNELBENCH, tmp_path, ("1_Scaled_rows",))
    lane = made(tmp_path / "level1" / "1_Scaled_rows")
    match, _ = lane._contest(BASELINE, compiled=True)
    assert (match.baseline.kind, match.candidate.kind) == ("time_reference", "time_reference")
    assert [one.parameters["compiled"] for one in (match.baseline, match.candidate)] == [False, True]
    assert lane.beside == EAGER


def played(lane: Any, lost: Outcome | None) -> tuple[Any, list[tuple[str, int]]]:
    match, _ = lane._contest(BASELINE, compiled=True)
    fields = {one.name: getattr(match, one.name) for one in dataclasses.fields(Match) if one.init}
    player = Player(lost)
    found = lane._verified(
        Played(**{name: value for name, value in fields.items() if not name.startswith("_")}, player=player),
        PairPlan(cases=CASES, objective="geomean", noise=0.0, memory_bytes=1 << 30),
    )
    return found, player.did


def test_outputs_are_looked_at_on_every_timed_case(made: Any) -> None:
    found, did = played(made(library_dir() / "softmax"), None)
    assert (found.verdict, found.stage, found.cases_checked) == ("correct", "timed", 2)
    assert did == [
        ("prepare", 0), ("audit", 0), ("audit_graph", 0), ("drop", 0), ("prepare", 1), ("audit", 1), ("drop", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "verdict", "owner", "reason"),
    [
        (
            Outcome(
                kind="fault",
                reason="BackendCompilerFailed: no such operator",
                fault=wire.Fault(
                    outcome="crash", stage="time", reason="BackendCompilerFailed: no such operator", detail=""
                ),
            ),
            "crash",
            "candidate",
            "BackendCompilerFailed: no such operator",
        ),
        (
            Outcome(kind="hang", reason="it did not finish within 9 s"),
            "hang",
            "candidate",
            "it did not finish within 9 s",
        ),
        (Outcome(kind="cancelled", reason="cancelled"), "unknown", "environment", "cancelled"),
        (Outcome(kind="memory", reason="it used more than 9 GiB"), "crash", "candidate", "it used more than 9 GiB"),
    ],
)
def test_a_process_that_is_lost_has_its_verdict(
    made: Any, monkeypatch: pytest.MonkeyPatch, lost: Outcome, verdict: str, owner: str, reason: str
) -> None:
    lane = made(library_dir() / "softmax")
    monkeypatch.setattr(lane._jobs, "check", lambda: None)  # there is no device to look at
    found, _ = played(lane, lost)
    assert (found.verdict, found.owner, found.reason, found.worst_case) == (verdict, owner, reason, "n=8")


def test_a_baseline_without_any_time_is_the_problems(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = made(library_dir() / "softmax")
    untimed = Timing(kind="measured", verdict="unknown", cases=(CaseTiming(case="n=4", failed="out of memory"),))
    monkeypatch.setattr(lane, "_kernel", lambda report: untimed)
    with pytest.raises(ProblemError, match="the problem's kernel could not be timed: out of memory"):
        lane.baseline(lambda stage, text: None)


# ------------------------------------------------------------ with a device


def quiet(stage: str, text: str) -> None:
    """Nobody watches."""


class TestWithDevice:
    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]  # noqa: RUF012

    @pytest.mark.parametrize("name", ["softmax", "rms_norm"])
    def test_a_bundled_reference_is_timed_beside_its_kernel(self, name: str, tmp_path: Path) -> None:
        spec = LaneSpec(problem=library_dir() / name, device="cuda:0", python=sys.executable, scratch=tmp_path / "lane")
        lane = ReferenceLane(spec)
        try:
            lane.start()
            baseline = lane.baseline(quiet)
            found = lane.time_reference(baseline, quiet)
        finally:
            lane.close()
        assert found.verification.verdict == "correct", found.verification.reason
        assert found.timing is not None
        assert found.timing.verdict in ("faster", "slower", "same", "ambiguous")
        assert all(case.ms for case in found.timing.cases)
        assert found.timing.ratio is not None
        assert 0.05 < found.timing.ratio < 20

    def test_a_module_is_timed_beside_itself_run_eagerly(self, tmp_path: Path) -> None:
        kernelbench.import_suite(KERNELBENCH, tmp_path, ("1_Scaled_rows",))
        problem = tmp_path / "level1" / "1_Scaled_rows"
        lane = ReferenceLane(
            LaneSpec(problem=problem, device="cuda:0", python=sys.executable, scratch=tmp_path / "lane")
        )
        try:
            lane.start()
            baseline = lane.baseline(quiet)
            found = lane.time_reference(baseline, quiet)
        finally:
            lane.close()
        assert found.verification.verdict == "correct", found.verification.reason
        assert found.timing is not None
        assert found.timing.ratio is not None
