"""Occupancy by the published rules, targets, and the strict reading of what a candidate's process says."""

import pytest

from kbtui.errors import UsageError
from kbtui.evaluate.facts import compile_parameters, occupancy, read_compilation
from kbtui.evaluate.objective import CasePair, combine
from kbtui.evaluate.roofline import floor_ms, physical_floor_ms
from kbtui.evaluate.targets import TARGETS, device_info, find_target
from kbtui.state.records import CaseInfo

H200 = device_info(TARGETS["sm_90"])
A10 = device_info(TARGETS["sm_86"])
CASES = (CaseInfo(name="n=1", fields={"n": 1}), CaseInfo(name="n=2", fields={"n": 2}))


def kernel(**changes):
    facts = {
        "name": "k",
        "registers": 32,
        "spill_bytes": 0,
        "shared_bytes": 0,
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1,
        "digest": "0" * 64,
        "source": "0" * 16,
        "constants": {"BLOCK": 128},
        "access_bytes": 16.0,
        "autotuned": False,
    }
    return {**facts, **changes}


def reply(*kernels, cases=None):
    launches = [[{"kernel": 0, "grid": [8, 1, 1]}]]
    return {"kernels": list(kernels), "cases": cases if cases is not None else [launches, launches]}


# Worked by hand from the rules: registers in units of 256 a warp, shared memory in 128 bytes with 1 KiB reserved.
@pytest.mark.parametrize(
    ("registers", "shared", "threads", "device", "blocks", "limiter"),
    [
        (32, 0, 128, H200, 16, "threads"),
        (168, 0, 128, H200, 3, "registers"),
        (255, 0, 128, H200, 2, "registers"),
        (32, 49152, 128, H200, 4, "shared memory"),
        (32, 232448, 128, H200, 1, "shared memory"),
        (16, 0, 32, H200, 32, "blocks"),
        (16, 0, 32, A10, 16, "blocks"),
        (32, 0, 256, A10, 6, "threads"),
        (255, 0, 1024, H200, 0, "registers"),
        (32, 232449, 128, H200, 0, "shared memory"),
    ],
)
def test_occupancy(registers, shared, threads, device, blocks, limiter):
    seen = occupancy(registers, shared, threads, device)
    assert (seen.blocks, seen.limiter) == (blocks, limiter)
    assert seen.warps == blocks * threads // 32
    assert seen.percent == pytest.approx(100 * seen.warps * 32 / device.threads_per_multiprocessor)


def test_more_registers_never_raise_occupancy():
    for warps in (1, 2, 4, 8, 16):
        seen = [occupancy(registers, 0, 32 * warps, H200).warps for registers in range(1, 256)]
        assert seen == sorted(seen, reverse=True)


def test_an_unknown_target_names_the_known_ones():
    with pytest.raises(UsageError, match=r"sm_70.*sm_80.*sm_100"):
        find_target("sm_70")


@pytest.mark.parametrize("card", TARGETS.values(), ids=lambda card: card.target)
def test_targets_agree_with_themselves(card):
    lanes = card.ops_per_s["fp32"] / (2 * card.clock_hz * card.multiprocessors)
    assert lanes == pytest.approx(64 if card.target == "sm_80" else 128, rel=0.03)
    assert card.shared_bytes - card.shared_block_bytes == 1024
    assert card.ops_per_s["fp16"] == card.ops_per_s["bf16"] > card.ops_per_s["tf32"] > card.ops_per_s["fp32"]
    assert card.l2_bytes_per_s > 1.2 * card.bytes_per_s


def test_parameters_of_a_target():
    parameters = compile_parameters(device_info(TARGETS["sm_100"]), 3)
    assert parameters["capability"] == [10, 0]
    assert parameters["properties"]["multiprocessor_count"] == 148
    assert parameters["cases"] == 3


def test_kernels_are_grouped_by_grid_with_their_cases():
    other = [[{"kernel": 0, "grid": [8, 1, 1]}], [{"kernel": 0, "grid": [9, 1, 1]}], [{"kernel": 0, "grid": [9, 1, 1]}]]
    compilation = read_compilation(reply(kernel(), cases=[other, other[:1]]), H200, CASES, 0.5)
    assert compilation.ok
    assert [(k.grid, k.cases, k.launches) for k in compilation.kernels] == [
        ((8, 1, 1), ("n=1", "n=2"), 1),
        ((9, 1, 1), ("n=1",), 2),
    ]
    assert compilation.kernels[0].code_digest != compilation.kernels[1].code_digest
    assert compilation.kernels[0].occupancy_percent == 100.0
    assert compilation.seconds == 0.5


def test_too_much_shared_memory_is_refused_with_both_numbers():
    compilation = read_compilation(reply(kernel(shared_bytes=300_000)), H200, CASES, 0.0)
    assert not compilation.ok
    assert compilation.outcome == "invalid"
    assert "300,000" in compilation.reason
    assert "232,448" in compilation.reason


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"kernels": [], "cases": []},
        reply(kernel(registers=999)),
        reply(kernel(digest="short")),
        reply(kernel(extra=1)),
        reply(kernel(constants={"f": [1, 2]})),
        reply(kernel(), cases=[[[{"kernel": 5, "grid": [1, 1, 1]}]], []]),
        reply(kernel(), cases=[[[{"kernel": -1, "grid": [1, 1, 1]}]], []]),
        reply(kernel(), cases=[]),
        reply(kernel(), cases=[[], []]),
    ],
)
def test_a_malformed_reply_is_a_cheat_and_no_exception(bad):
    compilation = read_compilation(bad, H200, CASES, 0.0)
    assert not compilation.ok
    assert compilation.outcome == "cheat"


def test_the_rate_is_that_of_the_fastest_input():
    def floor(*dtypes):
        return floor_ms(CaseInfo(name="c", fields={}, dtypes=dtypes, operations=10**12), H200)

    rates = H200.peak_ops_per_s
    assert floor("int8", "float16") == pytest.approx(1e15 / rates["int8"])
    assert floor("float32", "int64") == pytest.approx(1e15 / rates["tf32"])
    assert floor() == pytest.approx(1e15 / max(rates.values()))


def test_speed_of_light():
    case = CaseInfo(name="c", fields={"dtype": "float16"}, bytes_moved=4_800_000_000, operations=10)
    assert floor_ms(case, H200) == pytest.approx(1.0)
    assert physical_floor_ms(case, H200) == pytest.approx((4_800_000_000 - H200.l2_bytes) / 4.8e9)
    work = CaseInfo(name="c", fields={"dtype": "float32"}, dtypes=("float16",), operations=989 * 10**9)
    assert floor_ms(work, H200) == pytest.approx(1.0)
    assert floor_ms(CaseInfo(name="c", fields={}), H200) == 0.0


PAIRS = [CasePair(1.0, 2.0, 1.0), CasePair(1.0, 1.0, 2.0), CasePair(2.0, 3.0, None)]


@pytest.mark.parametrize(("objective", "value"), [("geomean", 1.0), ("total", 1.0), ("worst", 0.5)])
def test_objectives(objective, value):
    assert combine(PAIRS, objective) == pytest.approx(value)


def test_a_weight_counts_and_a_failed_case_is_one():
    assert combine([CasePair(3.0, 16.0, 1.0), CasePair(1.0, 5.0, None)], "geomean") == pytest.approx(8.0)
    assert combine([CasePair(1.0, None, None)], "total") == 1.0


def test_an_unknown_objective_names_the_known_ones():
    with pytest.raises(UsageError, match="geomean, total, worst"):
        combine(PAIRS, "median")
