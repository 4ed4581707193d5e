"""The estimate moves where physics says so: counted traffic is exact, spills, stray accesses and small blocks cost."""

import msgspec
import pytest

from kbtui.errors import UsageError
from kbtui.evaluate.counts import CountedLaunch, TensorTraffic, TileWork, find_kernel
from kbtui.evaluate.estimate import model_candidate
from kbtui.evaluate.facts import compile_parameters, read_compilation
from kbtui.evaluate.model import launch_time
from kbtui.evaluate.targets import TARGETS, device_info
from kbtui.paths import library_dir
from kbtui.state.records import CaseInfo, KernelFacts, ProblemInfo

H200 = TARGETS["sm_90"]
DEVICE = device_info(H200)
ROWS, COLS = 4096, 4096
SOFTMAX = (library_dir() / "softmax" / "kernel.py").read_text()
MATMUL = (library_dir() / "matmul" / "kernel.py").read_text()


def problem(*cases: CaseInfo) -> ProblemInfo:
    return ProblemInfo(name="p", path="", entry="e", digest="", cases=cases)


def case(name: str, moved: int, operations: int = 0, dtype: str = "float32") -> CaseInfo:
    return CaseInfo(name=name, fields={}, dtypes=(dtype,), bytes_moved=moved, operations=operations)


SOFTMAX_PROBLEM = problem(case("square", 2 * ROWS * COLS * 4), case("ragged", 2 * ROWS * 1000 * 4))
SOFTMAX_INPUTS = [[["float32", [ROWS, COLS]]], [["float32", [ROWS, 1000]]]]
SIDE = 2048
MATMUL_PROBLEM = problem(case("square", 6 * SIDE**2, 2 * SIDE**3, "float16"))
MATMUL_INPUTS = [[["float16", [SIDE, SIDE]], ["float16", [SIDE, SIDE]]]]


class Workbench:
    """Compiles, counts and models a source."""

    def __init__(self, run_compile, run_count, info, entry, inputs):
        self._compile, self._count = run_compile, run_count
        self._info, self._entry, self._inputs = info, entry, inputs

    def count(self, source):
        parameters = compile_parameters(DEVICE, len(self._inputs)) | {"most_work": 4_000_000_000}
        return self._count(source, self._entry, parameters, self._inputs)["reply"]

    def model(self, source, baseline=None, parent=None, objective="geomean"):
        parameters = compile_parameters(DEVICE, len(self._inputs))
        compiled = self._compile(source, self._entry, parameters, self._inputs)["reply"]
        kernels = read_compilation(compiled, DEVICE, self._info.cases, 0.0).kernels
        return model_candidate(self.count(source), kernels, DEVICE, self._info, baseline, parent, objective)


@pytest.fixture
def softmax(run_compile, run_count):
    return Workbench(run_compile, run_count, SOFTMAX_PROBLEM, "softmax", SOFTMAX_INPUTS)


@pytest.fixture
def matmul(run_compile, run_count):
    return Workbench(run_compile, run_count, MATMUL_PROBLEM, "matmul", MATMUL_INPUTS)


def tensors(reply, number=0):
    [launch] = reply["cases"][number]["launches"]
    [choice] = launch
    return choice, [tensor for tensor in choice["tensors"] if tensor["asked"]]


def test_counted_traffic_of_a_row_kernel_is_exact(softmax):
    choice, (x, out) = tensors(softmax.count(SOFTMAX))
    assert choice["grid"] == [ROWS, 1, 1]
    assert (x["loaded"], x["stored"], x["loaded_again"]) == (COLS * 4, 0, 0)
    assert (out["loaded"], out["stored"]) == (0, COLS * 4)
    assert choice["special"] == 2 * COLS
    assert choice["reduced"] == 2 * COLS
    assert choice["phases"] == 1


def test_masked_lanes_are_not_counted(softmax):
    _, (x, out) = tensors(softmax.count(SOFTMAX), 1)
    assert (x["asked"], x["lanes"], x["loaded"], out["stored"]) == (4000, 1000, 4000, 4000)


def test_a_shortened_loop_stands_for_all_its_iterations(matmul):
    choice, (a, b, out) = tensors(matmul.count(MATMUL))
    assert choice["tiles"] == [{"dtype": "fp16", "m": 128, "n": 128, "k": 32, "item_bytes": 2, "times": SIDE / 32}]
    assert a["loaded"] == b["loaded"] == 128 * SIDE * 2
    assert out["stored"] == 128 * 128 * 2
    assert choice["phases"] == SIDE / 32


def test_a_second_pass_over_a_row_is_no_new_traffic(softmax):
    again = "x_ptr + row * x_row_stride + offsets * x_col_stride"
    twice = SOFTMAX.replace("    out = numerator", f"    numerator += tl.load({again}, mask=mask)\n    out = numerator")
    choice, (x, _) = tensors(softmax.count(twice))
    assert (x["loaded"], x["loaded_again"]) == (COLS * 4, COLS * 4)
    assert choice["phases"] == 2


def test_programs_that_share_operands_are_seen_to(run_count):
    """Side 6144: too much for the cache, so the order of programs decides how often operands are read."""
    side = 6144
    inputs = [[["float16", [side, side]], ["float16", [side, side]]]]
    parameters = compile_parameters(DEVICE, 1) | {"most_work": 12_000_000_000}
    reply = run_count(MATMUL, "matmul", parameters, inputs)["reply"]
    choice, (a, b, _) = tensors(reply)
    assert choice["wave"] == H200.multiprocessors
    # 132 consecutive programs down 48 rows of tiles: three columns of tiles.
    assert a["distinct"] == pytest.approx(48 / 132)
    assert b["distinct"] == pytest.approx(3 / 132)


def test_softmax_is_bound_by_memory_near_its_floor(softmax):
    found = softmax.model(SOFTMAX)
    first = found.timing.cases[0]
    assert found.timing.kind == "modelled"
    assert (found.timing.estimate, found.timing.verdict) == (1.0, "not worse")
    assert first.bound == "DRAM"
    assert first.floor_ms < first.estimate_ms < 1.5 * first.floor_ms
    assert found.signature.dram.source == "model"
    assert found.signature.dram.percent > found.signature.sm.percent


def test_nothing_modelled_lands_in_a_measured_field(softmax):
    base = softmax.model(SOFTMAX)
    found = softmax.model(SOFTMAX.replace("num_warps=8", "num_warps=4"), base.timing, base.timing)
    timing = found.timing
    assert (timing.ratio, timing.low, timing.high, timing.parent_ratio, timing.noise) == (None,) * 5
    assert timing.pairs == 0
    assert timing.parent_estimate == timing.estimate
    for one in timing.cases:
        assert (one.ms, one.low_ms, one.high_ms, one.ratio, one.called_ms) == (None,) * 5
        assert one.estimate_ratio is not None


def test_warps_change_the_estimate_and_far_too_many_are_worse(softmax):
    base = softmax.model(SOFTMAX)
    four = softmax.model(SOFTMAX.replace("num_warps=8", "num_warps=4"), base.timing)
    most = softmax.model(SOFTMAX.replace("num_warps=8", "num_warps=32"), base.timing)
    assert four.timing.estimate != 1.0
    assert most.timing.estimate < four.timing.estimate
    assert most.timing.verdict == "worse"


def test_stray_accesses_are_worse(softmax):
    """One program for each column: every element of a load lies in a sector of its own."""
    base = softmax.model(SOFTMAX)
    stray = SOFTMAX.replace(
        "row * x_row_stride + offsets * x_col_stride", "row * x_col_stride + offsets * x_row_stride"
    )
    found = softmax.model(stray, base.timing)
    assert found.timing.cases[0].estimate_ratio < 0.8
    assert found.timing.verdict == "worse"


def test_a_tile_too_large_for_the_registers_is_worse(matmul):
    base = matmul.model(MATMUL)
    found = matmul.model(MATMUL.replace("BLOCK_M = 128", "BLOCK_M = 256"), base.timing)
    assert found.timing.verdict == "worse"


def test_small_tiles_move_more_and_are_worse(matmul):
    base = matmul.model(MATMUL)
    found = matmul.model(MATMUL.replace("BLOCK_N = 128", "BLOCK_N = 32"), base.timing)
    assert found.timing.cases[0].bound == "L2"
    assert found.timing.verdict == "worse"


def test_an_autotuned_kernel_is_its_best_configuration(softmax):
    fixed = [softmax.model(SOFTMAX.replace("num_warps=8", f"num_warps={warps}")) for warps in (4, 32)]
    tuned = SOFTMAX.replace(
        "@triton.jit", "@triton.autotune([triton.Config({}, num_warps=w) for w in (4, 32)], key=['cols'])\n@triton.jit"
    ).replace("        num_warps=8,\n", "")
    found = softmax.model(tuned)
    for number, one in enumerate(found.timing.cases):
        assert one.estimate_ms == pytest.approx(min(other.timing.cases[number].estimate_ms for other in fixed))


def test_what_the_interpreter_cannot_run_is_unknown_and_says_why(softmax):
    broken = SOFTMAX.replace(
        "    x = tl.load",
        "    tl.inline_asm_elementwise('mov.u32 $0, $1;', '=r,r', [tl.program_id(0)], tl.int32, True, 1)\n    x = tl.load",
    )
    found = softmax.model(broken, softmax.model(SOFTMAX).timing)
    assert found.timing.verdict == "unknown"
    assert found.timing.estimate is None
    assert "interpreter" in found.timing.cases[0].failed
    assert found.signature.dram.percent is None


@pytest.mark.parametrize("reply", [{}, {"cases": []}, {"cases": [{"failed": "", "launches": [[{"grid": []}]]}] * 2}])
def test_a_malformed_reply_is_unknown_and_no_exception(reply):
    found = model_candidate(reply, (), DEVICE, SOFTMAX_PROBLEM, None, None, "geomean")
    assert found.timing.verdict == "unknown"
    assert all(one.failed for one in found.timing.cases)


def test_an_unknown_target_is_a_usage_error():
    other = msgspec.structs.replace(DEVICE, target="sm_70")
    with pytest.raises(UsageError, match="sm_70"):
        model_candidate({"cases": []}, (), other, SOFTMAX_PROBLEM, None, None, "geomean")


# ---------------------------------------------------------------- the model by itself


def facts(**changes):
    base = {
        "name": "k", "target": "sm_90", "registers": 64, "spill_bytes": 0, "shared_bytes": 0, "num_warps": 4,
        "num_stages": 3, "threads": 128, "occupancy_percent": 50.0, "code_digest": "0" * 64, "access_bytes": 16.0,
        "grid": (8192, 1, 1), "cases": ("c",),
    }  # fmt: skip
    return KernelFacts(**{**base, **changes})


def traffic(**changes):
    base = {
        "bytes": 1 << 28, "asked": 32768.0, "lanes": 8192.0, "loaded": 32768.0, "loaded_again": 0.0, "stored": 0.0,
        "distinct": 1.0,
    }  # fmt: skip
    return TensorTraffic(**{**base, **changes})


def launch(**changes):
    base = {
        "name": "k", "constants": {}, "num_warps": 4, "grid": (8192, 1, 1), "sampled": 4, "wave": 0,
        "tensors": [traffic()], "tiles": [], "simple": 8192.0, "special": 0.0, "reduced": 0.0, "barriers": 0.0,
        "phases": 1.0,
    }  # fmt: skip
    return CountedLaunch(**{**base, **changes})


def seconds(counted, kernel, card=H200):
    found = launch_time(counted, kernel, card)
    assert found is not None
    return found.seconds


@pytest.mark.parametrize(
    "worse",
    [
        {"simple": 8192.0 * 200},
        {"special": 8192.0 * 20},
        {"phases": 40.0},
        {"barriers": 200.0},
        {"grid": (16384, 1, 1)},
        {"tensors": [traffic(loaded=65536.0)]},
        {"tensors": [traffic(), traffic(stored=8192.0, loaded=0.0)]},
        {"tiles": [TileWork(dtype="fp16", m=128, n=128, k=64, item_bytes=2, times=64.0)]},
    ],
    ids=lambda worse: next(iter(worse)),
)
def test_more_work_takes_longer(worse):
    assert seconds(launch(**worse), facts()) > seconds(launch(), facts())


def test_spilled_registers_take_longer_the_more_there_are():
    times = [seconds(launch(phases=16.0), facts(spill_bytes=spill)) for spill in (0, 64, 512, 4096)]
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_narrow_accesses_never_help_and_cost_where_issue_is_short():
    wide, narrow = facts(access_bytes=16.0), facts(access_bytes=2.0)
    assert seconds(launch(simple=8192.0 * 60), narrow) > seconds(launch(simple=8192.0 * 60), wide)
    assert seconds(launch(), narrow) >= seconds(launch(), wide)


def test_fewer_resident_warps_cannot_hide_latency():
    """Little's law: the same waits, spread over fewer programs at once."""
    waits = launch(phases=8.0)
    times = [seconds(waits, facts(registers=registers)) for registers in (32, 64, 128, 255)]
    assert times == sorted(times)
    assert times[-1] > 1.3 * times[0]


def test_stages_overlap_phases_where_their_data_fits():
    looped = launch(
        phases=64.0,
        tensors=[traffic(loaded=64 * 16384.0)],
        tiles=[TileWork("fp16", 128, 128, 32, 2, 64.0)],
        grid=(264, 1, 1),
    )
    one = seconds(looped, facts(num_stages=1, shared_bytes=16384))
    four = seconds(looped, facts(num_stages=4, shared_bytes=3 * 16384))
    claimed = seconds(looped, facts(num_stages=4, shared_bytes=0))
    assert four < one
    assert claimed == pytest.approx(one, rel=0.01)


def test_data_read_by_many_programs_comes_from_memory_once_if_it_fits():
    small = launch(tensors=[traffic(bytes=1 << 20, distinct=1.0)])
    large = launch(tensors=[traffic(bytes=1 << 28, loaded=65536.0, distinct=1.0)])
    grouped = launch(tensors=[traffic(bytes=1 << 28, loaded=65536.0, distinct=0.1)])
    assert seconds(small, facts()) < seconds(launch(), facts())
    assert seconds(grouped, facts()) <= seconds(large, facts())


def test_one_more_program_than_a_wave_starts_another():
    slots = 132 * 8
    full = seconds(launch(grid=(slots, 1, 1), phases=100.0), facts())
    over = seconds(launch(grid=(slots + 1, 1, 1), phases=100.0), facts())
    assert over > 1.5 * full


def test_a_kernel_that_does_not_fit_has_no_time():
    assert launch_time(launch(), facts(registers=255, num_warps=32, threads=1024), H200) is None


@pytest.mark.parametrize("card", TARGETS.values(), ids=lambda card: card.target)
def test_no_launch_beats_the_speed_of_light(card):
    counted = launch()
    moved = 8192 * 32768
    assert seconds(counted, facts(), card) > moved / card.bytes_per_s
    found = launch_time(counted, facts(), card)
    assert 0 < found.dram_share <= 1
    assert 0 <= found.sm_share <= 1


def test_a_launch_is_matched_to_its_kernel_by_grid_constants_and_warps():
    kernels = (
        facts(constants={"B": 1}, num_warps=4),
        facts(constants={"B": 1}, num_warps=8),
        facts(constants={"B": 2}),
        facts(constants={"B": 1}, grid=(1, 1, 1)),
    )
    assert find_kernel(launch(constants={"B": 1}, num_warps=8), "c", kernels) is kernels[1]
    assert find_kernel(launch(constants={"B": 2}), "c", kernels) is kernels[2]
    assert find_kernel(launch(constants={"B": 3}), "c", kernels) is None
    assert find_kernel(launch(constants={"B": 1}), "other", kernels) is None
