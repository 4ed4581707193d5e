"""Compiling beside the rest of a lane: at once, cancelled one by one, started again, and told nothing but shapes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from kbtui.evaluate import facts, targets
from kbtui.evaluate.compilers import MOST_WARMING, Compilers
from kbtui.evaluate.compilers import warming as compiling_ahead
from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.job import JobOrder
from kbtui.evaluate.lane import LaneSpec
from kbtui.state.records import Compilation

pytest.importorskip("triton", reason="needs triton")
PROBLEM = Path(__file__).with_name("data") / "scale"
KERNEL = (PROBLEM / "kernel.py").read_text()
SIGNATURE = "def scale(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:\n"


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuLane]:
    scratch = tmp_path_factory.mktemp("lane") / "scratch"
    made = CpuLane(
        LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=scratch, deadline_s=60, compilers=2)
    )
    made.start()
    yield made
    made.close()


@pytest.fixture
def compiling(lane: CpuLane) -> Iterator[Callable[[str], tuple[Future[Compilation], threading.Event]]]:
    """Compile in a thread; the event is set when the candidate's process says that it is at work."""
    with ThreadPoolExecutor(4) as pool:

        def begin(source: str) -> tuple[Future[Compilation], threading.Event]:
            at_work = threading.Event()
            return pool.submit(lane.compile, source, lambda stage, text: at_work.set()), at_work

        yield begin


def with_line(line: str) -> str:
    return KERNEL.replace(SIGNATURE, f"{SIGNATURE}    {line}\n")


FOR_EVER = "while True: pass"


def test_two_are_compiled_at_once_beside_a_verification(lane, compiling) -> None:  # type: ignore[no-untyped-def]
    slow, slow_began = compiling(with_line(FOR_EVER))
    assert slow_began.wait(30)
    quick, _ = compiling(KERNEL)
    assert quick.result(30).ok
    kernels = quick.result().kernels
    assert lane.verify(KERNEL, kernels, lambda stage, text: None).verdict == "correct"
    assert not slow.done()
    lane.cancel(with_line(FOR_EVER))
    found = slow.result(10)
    assert (found.ok, found.outcome, found.owner, found.reason) == (False, "unknown", "environment", "cancelled")


def test_a_cancel_is_for_one_source(lane, compiling) -> None:  # type: ignore[no-untyped-def]
    first, first_began = compiling(with_line(FOR_EVER))
    second, second_began = compiling(with_line(f"{FOR_EVER}  # another"))
    assert first_began.wait(30)
    assert second_began.wait(30)
    lane.cancel("some other source")
    time.sleep(0.3)
    assert not first.done()
    assert not second.done()
    lane.cancel(with_line(FOR_EVER))
    assert first.result(10).reason == "cancelled"
    assert not second.done()
    lane.cancel()
    assert second.result(10).reason == "cancelled"
    third, _ = compiling(KERNEL)
    assert third.result(30).ok


def test_more_than_there_are_compilers_wait(lane, compiling) -> None:  # type: ignore[no-untyped-def]
    del lane
    jobs = [compiling(KERNEL + f"\n# {number}\n")[0] for number in range(4)]
    assert all(job.result(60).ok for job in jobs)


def test_a_compiler_that_dies_is_started_again(lane, compiling) -> None:  # type: ignore[no-untyped-def]
    before = lane._compilers.pids
    assert len(set(before)) == 2
    for pid in before:
        os.kill(pid, 9)
    for number in range(2):
        assert compiling(KERNEL + f"\n# {number}\n")[0].result(60).ok
    assert len(lane._compilers.pids) == 2
    assert not set(before) & set(lane._compilers.pids)


def test_a_compile_job_is_told_shapes_and_nothing_else(lane, compiling, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    code = "import gc; ctx = next(x for x in gc.get_objects() if type(x).__name__ == 'JobContext'); ctx.inputs(0)"
    asked: list[str] = []
    ask = lane._oracle._ask
    monkeypatch.setattr(lane._oracle, "_ask", lambda message, *rest: asked.extend(message) or ask(message, *rest))
    found = compiling(with_line(code))[0].result(60)
    assert (found.ok, found.outcome) == (False, "cheat")
    assert "more than descriptions" in found.reason
    assert "inputs" not in asked


@pytest.fixture
def warming(tmp_path: Path) -> list[JobOrder]:
    """Jobs that compile a call each, of which the second is for other constants and the third is no call of `scale`."""

    def call(rows: int, cols: int) -> list[dict[str, object]]:
        x = {"dtype": "float32", "shape": [rows, cols], "strides": [cols, 1], "span": rows * cols, "offset": 0}
        w = {"dtype": "float32", "shape": [cols], "strides": [1], "span": cols, "offset": 0}
        return [{"empty": x}, {"empty": w}]

    cache = tmp_path / "cache"
    cache.mkdir()
    parameters = facts.compile_parameters(targets.device_info(targets.find_target("sm_90")), 0)
    return [
        JobOrder(
            kind="warm",
            source=KERNEL,
            entry="scale",
            problem_folder=PROBLEM,
            parameters={**parameters, "calls": [calls]},
            deadline_s=60.0,
            cache=cache,
        )
        for calls in (call(4, 4096), call(4, 1), [{"value": 3}])
    ]


@pytest.fixture
def compilers(tmp_path: Path) -> Iterator[Compilers]:
    made = Compilers(1, sys.executable, tmp_path / "scratch")
    made.launch()
    made.await_ready()
    yield made
    made.release()


def cubins(order: JobOrder) -> set[str]:
    assert order.cache is not None
    return {path.parent.name for path in order.cache.glob("*/*.cubin")}


def silent(stage: str, text: str) -> None:
    del stage, text


def unasked(*_: object) -> None:
    raise AssertionError("nothing asks here")


def test_further_calls_are_compiled_ahead_into_the_cache(compilers: Compilers, warming: list[JobOrder]) -> None:
    """Jobs beside one another, which ask nothing; one that raises keeps the others from nothing, and none is left."""
    assert compilers.warm(warming)
    compiled = cubins(warming[0])
    assert len(compiled) == 2
    assert compilers.warm(warming)
    assert cubins(warming[0]) == compiled
    slow = [msgspec.structs.replace(order, source=with_line(FOR_EVER)) for order in warming[:2]]
    cancel = threading.Timer(2.0, compilers.cancel, (slow[0].source,))
    cancel.start()
    began = time.monotonic()
    assert not compilers.warm(slow)
    assert time.monotonic() - began < 30
    assert compilers.warm(warming[:2])


def test_what_is_compiled_beside_a_job_is_waited_for(compilers: Compilers, warming: list[JobOrder]) -> None:
    first, *others = warming
    assert compilers.run(first, first, unasked, silent, beside=others).kind == "done"
    assert len(cubins(first)) == 2


def test_what_nobody_needs_is_ended_with_the_job(compilers: Compilers, warming: list[JobOrder]) -> None:
    good = warming[0]
    for_ever = msgspec.structs.replace(good, source=with_line(FOR_EVER))
    began = time.monotonic()
    assert compilers.run(good, good, unasked, silent, beside=[for_ever], wait=False).kind == "done"
    assert time.monotonic() - began < 30


def test_calls_are_shared_out_from_the_last_on(warming: list[JobOrder], monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(processors: int, lanes: int = 1, calls: str = "abcde") -> list[list[str]]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processors))
        return [order.parameters["calls"] for order in compiling_ahead(warming[0], list(calls), lanes)]

    assert shared(2) == [["e", "d", "c", "b", "a"]]
    assert shared(6) == [["e", "b"], ["d", "a"], ["c"]]
    assert shared(2, lanes=2) == shared(1) == []
    assert shared(6, calls="a") == []
    assert len(shared(64, calls="abcdefghijkl")) == MOST_WARMING


def test_a_job_that_fails_ends_what_runs_beside_it(compilers: Compilers, warming: list[JobOrder]) -> None:
    good = warming[0]
    bad = msgspec.structs.replace(good, source=f"{KERNEL}\nraise RuntimeError('no')\n")
    for_ever = msgspec.structs.replace(good, source=with_line(FOR_EVER))
    began = time.monotonic()
    assert compilers.run(bad, good, unasked, silent, beside=[for_ever, for_ever]).kind == "fault"
    assert time.monotonic() - began < 30
    assert compilers.run(good, good, unasked, silent).kind == "done"


def test_a_cancel_ends_a_job_and_what_runs_beside_it(compilers: Compilers, warming: list[JobOrder]) -> None:
    good = warming[0]
    for_ever = msgspec.structs.replace(good, source=with_line(FOR_EVER))
    for first in (good, for_ever):
        cancel = threading.Timer(3.0, compilers.cancel, (first.source,))
        cancel.start()
        began = time.monotonic()
        assert compilers.run(first, good, unasked, silent, beside=[for_ever, for_ever]).kind == "cancelled"
        assert time.monotonic() - began < 30
    assert compilers.run(good, good, unasked, silent).kind == "done"
