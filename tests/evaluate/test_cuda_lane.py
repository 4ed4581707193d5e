"""The `cuda` lane: without a device one clear sentence; with one, the whole way from source to verdict (marked gpu)."""

import sys
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.errors import EnvironmentFailure  # noqa: E402
from kbtui.evaluate import wire  # noqa: E402
from kbtui.evaluate.checks import Supplier  # noqa: E402
from kbtui.evaluate.job import JobOrder  # noqa: E402
from kbtui.evaluate.lane import LaneSpec  # noqa: E402
from kbtui.evaluate.lanes import open_lane  # noqa: E402
from kbtui.evaluate.turns import Player, PlayerLost  # noqa: E402
from kbtui.evaluate.zygotes import Zygote  # noqa: E402
from kbtui.paths import library_dir  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]


def quiet(stage, text):
    pass


@pytest.mark.skipif(HAS_CUDA, reason="is about machines without a CUDA device")
def test_without_a_device_there_is_one_sentence_and_nothing_left(tmp_path):
    spec = LaneSpec(
        problem=library_dir() / "vector_add", device="cuda:0", python=sys.executable, scratch=tmp_path / "lane"
    )
    lane = open_lane(spec)
    try:
        with pytest.raises(
            EnvironmentFailure, match=r"cuda:0 cannot be used: torch (.* is built without CUDA|finds no)"
        ) as failure:
            lane.start()
        assert "\n" not in str(failure.value)
    finally:
        lane.close()
        lane.close()
    assert not (tmp_path / "lane").exists()


class NoOracle:
    def inputs(self, key):
        raise AssertionError("nothing asks for inputs here")


@pytest.mark.skipif(HAS_CUDA, reason="the job would have a device")
def test_a_player_that_cannot_start_is_lost_with_its_reason(tmp_path):
    """A real zygote and a real process: the job "time" has no device here and says so."""
    zygote = Zygote("compile", sys.executable, tmp_path / "zygote")
    zygote.launch()
    try:
        zygote.await_ready()
        order = JobOrder(
            kind="time",
            source=(library_dir() / "vector_add" / "kernel.py").read_text(),
            entry="vector_add",
            problem_folder=library_dir() / "vector_add",
            parameters={"flush_bytes": 1 << 20},
            device="cuda:0",
            deadline_s=60.0,
        )
        player = Player("candidate", zygote, order, Supplier(NoOracle(), [wire.CaseKey(fields={"n": 1})]))
        with pytest.raises(PlayerLost) as lost:
            player.start()
        assert lost.value.name == "candidate"
        assert lost.value.outcome.kind == "fault"
        assert lost.value.outcome.reason
        player.abandon()
    finally:
        zygote.release()


# ---------------------------------------------------------------- with a device


@pytest.fixture(scope="module")
def lane(tmp_path_factory):
    spec = LaneSpec(
        problem=library_dir() / "softmax",
        device="cuda:0",
        python=sys.executable,
        scratch=tmp_path_factory.mktemp("lane") / "softmax",
    )
    made = open_lane(spec)
    made.start()
    yield made
    made.close()


SOFTMAX = (library_dir() / "softmax" / "kernel.py").read_text()


def kernels_of(lane, source):
    compilation = lane.compile(source, quiet)
    assert compilation.ok, compilation.reason
    return compilation.kernels


@pytest.fixture(scope="module")
def baseline(lane):
    kernels = kernels_of(lane, SOFTMAX)
    assert lane.verify(SOFTMAX, kernels, quiet).verdict == "correct"
    return lane.time(SOFTMAX, kernels, None, SOFTMAX, None, quiet)


class TestWithDevice:
    pytestmark = gpu

    def test_the_lane_knows_its_device(self, lane):
        info = lane.facts.device
        assert (info.kind, lane.facts.timing) == ("cuda", "measured")
        assert info.uuid.startswith("GPU-")
        assert info.peak_bytes_per_s > 1e11
        assert info.peak_ops_per_s["fp16"] > 1e13

    def test_what_was_compiled_ahead_is_not_compiled_again_on_the_device(self, lane):
        source = SOFTMAX.replace("num_warps=8", "num_warps=2")
        kernels = kernels_of(lane, source)
        cache = lane._jobs.caches.of(source)
        ahead = {path.parent.name for path in cache.glob("*/*.cubin")}
        assert lane.verify(source, kernels, quiet).verdict == "correct"
        assert {path.parent.name for path in cache.glob("*/*.cubin")} == ahead

    def test_large_tensors_go_from_device_to_device(self, lane):
        assert lane.facts.isolation["device to device"] == "on"

    def test_a_wrapper_that_leaves_its_work_on_a_stream_of_its_own_is_no_gain(self, lane, baseline):
        """Its graph is empty; the launch happens while it is captured, and what it wrote then is still there afterwards."""
        cheat = SOFTMAX.replace(
            "    softmax_kernel[(rows,)](",
            "    with torch.cuda.stream(torch.cuda.Stream()):\n     softmax_kernel[(rows,)](",
        )
        found = lane.time(cheat, kernels_of(lane, cheat), baseline.timing, SOFTMAX, None, quiet)
        assert found.timing.verdict != "faster"

    def test_the_baseline_is_timed_above_the_speed_of_light(self, baseline):
        timing = baseline.timing
        assert (timing.kind, timing.verdict, timing.ratio) == ("measured", "same", 1.0)
        assert 0 < timing.noise < 0.1
        for case in timing.cases:
            assert case.failed == ""
            assert case.ms > 0.5 * case.floor_ms
            assert case.called_ms >= 0.9 * case.ms
        assert timing.conditions is not None

    def test_the_signature_has_a_source_or_a_reason(self, baseline):
        for reading in (baseline.signature.sm, baseline.signature.dram, baseline.signature.l2):
            assert (reading.percent is not None and 0 < reading.percent <= 100) or reading.reason

    def test_a_memory_bound_kernel_shows_in_its_signature(self, baseline):
        if baseline.signature.dram.percent is None:
            pytest.skip(baseline.signature.dram.reason)
        assert baseline.signature.dram.percent > 30

    def test_the_baseline_against_itself_is_not_faster(self, lane, baseline):
        found = lane.time(SOFTMAX, kernels_of(lane, SOFTMAX), baseline.timing, SOFTMAX, None, quiet)
        assert found.timing.verdict in ("same", "ambiguous")

    def test_a_planted_loss_is_slower(self, lane, baseline):
        slow = SOFTMAX.replace("num_warps=8", "num_warps=32")
        found = lane.time(slow, kernels_of(lane, slow), baseline.timing, SOFTMAX, None, quiet)
        assert found.timing.verdict == "slower"

    def test_work_left_on_another_stream_gains_nothing(self, lane, baseline):
        cheat = SOFTMAX.replace(
            "    softmax_kernel[(rows,)](",
            "    torch.cuda.set_stream(torch.cuda.Stream())\n    softmax_kernel[(rows,)](",
        )
        found = lane.time(cheat, kernels_of(lane, cheat), baseline.timing, SOFTMAX, None, quiet)
        assert found.timing.verdict != "faster"

    def test_results_kept_by_address_are_caught_by_the_audit(self, lane, baseline):
        cheat = SOFTMAX.replace(
            "def softmax(x: torch.Tensor)", "KEPT = {}\n\n\ndef real(x: torch.Tensor)"
        ) + textwrap.dedent("""

            def softmax(x):
                if x.data_ptr() not in KEPT:
                    KEPT[x.data_ptr()] = real(x)
                return KEPT[x.data_ptr()]
            """)
        # not compiled first: there every tensor has the same address, and nothing is launched from the second case on
        found = lane.time(cheat, (), baseline.timing, SOFTMAX, None, quiet)
        assert found.timing.verdict != "faster"
        assert any(case.failed for case in found.timing.cases)

    @pytest.mark.parametrize(
        ("old", "new", "verdict"),
        [
            ("tl.store(out_ptr + row", "tl.store(out_ptr + (1 << 45) + row", "crash"),
            ("    assert x.dim()", "    import os; os._exit(0)\n    assert x.dim()", "crash"),
            ("out = numerator /", "out = 2 * numerator /", "wrong"),
        ],
        ids=["illegal address", "exit", "wrong"],
    )
    def test_a_fault_costs_one_candidate(self, lane, baseline, old, new, verdict):
        broken = SOFTMAX.replace(old, new)
        assert lane.verify(broken, (), quiet).verdict == verdict
        assert lane.verify(SOFTMAX, kernels_of(lane, SOFTMAX), quiet).verdict == "correct"

    def test_a_hang_ends_at_its_deadline_and_the_device_lives(self, lane, baseline):
        hang = SOFTMAX.replace(
            "    tl.store(", "    while tl.load(out_ptr, volatile=True) != 12345.0:\n        pass\n    tl.store("
        )
        assert lane.verify(hang, (), quiet).verdict == "hang"
        assert lane.verify(SOFTMAX, kernels_of(lane, SOFTMAX), quiet).verdict == "correct"
