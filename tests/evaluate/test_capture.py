"""Kernels compiled without a device: every launch style is seen, and every fault has its name."""

import pytest

from kbtui.evaluate.facts import compile_parameters, read_compilation
from kbtui.evaluate.targets import TARGETS, device_info
from kbtui.paths import library_dir
from kbtui.state.records import CaseInfo

HEAD = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
"""
PLAIN = (
    HEAD
    + """

def scale(x):
    assert x.is_cuda and x.device.type == "cuda"
    out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    with torch.cuda.device(x.device):
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.0, BLOCK=256)
    return out
"""
)
TUNED = (
    HEAD.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((256, 2), (1024, 4), (1024, 8))], key=['n'])\n"
        "@triton.jit",
    )
    + """

def scale(x):
    out = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.0)
    return out
"""
)
PERSISTENT = (
    HEAD
    + """

def scale(x):
    out = torch.empty_like(x)
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    scale_kernel[(programs,)](x, out, x.numel(), 2.0, BLOCK=256)
    scale_kernel[(programs,)](x, out, x.numel(), 2.0, BLOCK=256)
    return out
"""
)
INPUTS = [[["float32", [4096]]], [["float32", [1000]]]]
CASES = (CaseInfo(name="n=4096", fields={}), CaseInfo(name="n=1000", fields={}))


def compiled(run_compile, source: str, target: str = "sm_90", entry: str = "scale", inputs=INPUTS, cases=CASES):
    """(Compilation or None, fault or None) of a source."""
    device = device_info(TARGETS[target])
    answer = run_compile(source, entry, compile_parameters(device, len(inputs)), inputs)
    if "fault" in answer:
        return None, answer["fault"]
    return read_compilation(answer["reply"], device, cases, 0.0), None


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_a_plain_kernel_for_several_targets(run_compile, target):
    compilation, _ = compiled(run_compile, PLAIN, target)
    assert compilation.ok
    assert [kernel.grid for kernel in compilation.kernels] == [(16, 1, 1), (4, 1, 1)]
    first = compilation.kernels[0]
    assert (first.name, first.target, first.num_warps, first.threads) == ("scale_kernel", target, 4, 128)
    assert first.constants == {"BLOCK": 256}
    assert 8 <= first.registers <= 64
    assert (first.spill_bytes, first.shared_bytes) == (0, 0)
    # Two elements of a thread make one access where the length is a multiple of 16; a ragged one is scalar.
    assert first.access_bytes == 8.0
    assert compilation.kernels[1].access_bytes == 4.0


def test_all_configurations_of_an_autotuner_are_facts(run_compile):
    compilation, _ = compiled(run_compile, TUNED)
    seen = {(kernel.constants["BLOCK"], kernel.num_warps) for kernel in compilation.kernels}
    assert seen == {(256, 2), (1024, 4), (1024, 8)}
    assert all(kernel.autotuned for kernel in compilation.kernels)


def test_a_persistent_kernel_sees_the_target_and_launches_add_up(run_compile):
    compilation, _ = compiled(run_compile, PERSISTENT, "sm_80")
    assert {kernel.grid for kernel in compilation.kernels} == {(108, 1, 1)}
    assert {kernel.launches for kernel in compilation.kernels} == {2}


def test_the_machine_code_says_when_two_sources_are_one_kernel(run_compile):
    renamed = (
        PLAIN.replace("factor", "by").replace("at =", "where =").replace("+ at", "+ where").replace("at <", "where <")
    )
    sources = (PLAIN, renamed, PLAIN.replace("BLOCK=256", "BLOCK=256, num_warps=8"))
    digests = [compiled(run_compile, source)[0].kernels[0].code_digest for source in sources]
    assert digests[0] == digests[1] != digests[2]


MATMUL = (library_dir() / "matmul" / "kernel.py").read_text()
MATRICES = [[["float16", [1024, 1024]], ["float16", [1024, 1024]]]]


def test_spilled_registers_are_counted(run_compile):
    """A 256 x 128 tile in fp32 on 128 threads is 256 registers for the accumulator alone."""
    source = MATMUL.replace("BLOCK_M = 128", "BLOCK_M = 256")
    compilation, _ = compiled(run_compile, source, "sm_90", "matmul", MATRICES, CASES[:1])
    assert compilation.kernels[0].registers == 255
    assert compilation.kernels[0].spill_bytes > 0


def test_too_much_shared_memory_names_both_numbers(run_compile):
    source = MATMUL.replace("BLOCK_K = 32", "BLOCK_K = 256")
    _, fault = compiled(run_compile, source, "sm_86", "matmul", MATRICES, CASES[:1])
    assert (fault["outcome"], fault["stage"]) == ("invalid", "compile")
    assert "shared memory" in fault["reason"]
    assert "101376" in fault["reason"]


@pytest.mark.parametrize(
    ("source", "outcome", "piece"),
    [
        (PLAIN.replace("tl.load(x_ptr + at, mask=at < n)", "tl.load(y_ptr + at)"), "invalid", "y_ptr is not defined"),
        (PLAIN.replace("BLOCK=256)", "BLOCK=100)"), "invalid", "power of 2"),
        (PLAIN.replace("return out\n", "raise ValueError('no such shape')\n"), "crash", "ValueError: no such shape"),
        (HEAD + "\n\ndef scale(x):\n    return x * 2\n", "cheat", "no Triton kernel was launched"),
    ],
    ids=["undefined", "block", "wrapper", "no kernel"],
)
def test_faults_have_an_outcome_and_a_reason(run_compile, source, outcome, piece):
    _, fault = compiled(run_compile, source)
    assert fault["outcome"] == outcome
    assert piece in fault["reason"]
    assert "\n" not in fault["reason"]


def test_a_message_is_capped(run_compile):
    long = PLAIN.replace("return out\n", "raise ValueError('x' * 100000)\n")
    _, fault = compiled(run_compile, long)
    assert len(fault["detail"]) <= 8192
    assert len(fault["reason"]) <= 1000
