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


def in_entry(code: str) -> str:
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return PLAIN.replace("def scale(x):\n", f"def scale(x):\n{body}")


HELPER = PLAIN.replace(
    "@triton.jit", "@triton.jit\ndef doubled(value):\n    return value + other\n\n\n@triton.jit"
).replace("* factor, mask", "* doubled(factor), mask")


@pytest.mark.parametrize(
    ("source", "outcome", "stage", "reason"),
    [
        (
            PLAIN.replace("tl.load(x_ptr + at, mask=at < n)", "tl.load(y_ptr + at)"),
            "invalid",
            "compile",
            "NameError('y_ptr is not defined') (kernel.py:10)",
        ),
        (HELPER, "invalid", "compile", "NameError('other is not defined') (kernel.py:9)"),
        (
            PLAIN.replace("BLOCK=256)", "BLOCK=100)"),
            "invalid",
            "compile",
            "ValueError: arange's range must be a power of 2 (kernel.py:9)",
        ),
        (in_entry("raise ValueError('no such shape')"), "crash", "call", "ValueError: no such shape (kernel.py:14)"),
        (in_entry("raise SystemExit(3)"), "crash", "call", "SystemExit: 3 (kernel.py:14)"),
        (in_entry("raise KeyboardInterrupt"), "crash", "call", "KeyboardInterrupt (kernel.py:14)"),
        (
            in_entry("torch.empty(3).view(7)"),
            "crash",
            "call",
            "RuntimeError: shape '[7]' is invalid for input of size 3 (kernel.py:14)",
        ),
        (HEAD + "\n\ndef scale(x):\n    return x * 2\n", "cheat", "compile", "no Triton kernel was launched"),
    ],
    ids=["undefined", "helper", "block", "wrapper", "exit", "interrupt", "torch", "no kernel"],
)
def test_faults_have_an_outcome_a_stage_and_the_line_of_the_source(run_compile, source, outcome, stage, reason):
    _, fault = compiled(run_compile, source)
    assert (fault["outcome"], fault["stage"], fault["reason"]) == (outcome, stage, reason)


def test_a_message_shows_the_candidates_own_lines_and_nothing_twice(run_compile):
    _, fault = compiled(run_compile, in_entry("raise ValueError('no such ' + 'shape')"))
    assert fault["detail"] == ("  File \"kernel.py\", line 14, in scale\n    raise ValueError('no such ' + 'shape')")


def test_a_compilers_message_keeps_its_excerpts_with_carets(run_compile):
    _, fault = compiled(run_compile, HELPER)
    assert [line for line in fault["detail"].splitlines() if line.startswith("  File")] == [
        '  File "kernel.py", line 22, in scale',
        '  File "kernel.py", line 15, in scale_kernel',
        '  File "kernel.py", line 9, in doubled',
    ]
    *_, shown, caret = fault["detail"].splitlines()
    assert shown[caret.index("^") :] == "other"
    assert "other is not defined" not in fault["detail"]


def test_an_endless_recursion_is_shown_from_both_ends(run_compile):
    _, fault = compiled(run_compile, in_entry("def again(n):\n    return again(n + 1)\nagain(0)"))
    assert fault["reason"] == "RecursionError: maximum recursion depth exceeded (kernel.py:15)"
    assert "more calls" in fault["detail"]
    assert fault["detail"].count("File") == 9


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import socket\ntry:\n    socket.socket()\nexcept OSError:\n    pass\nraise ValueError", "it opens a socket"),
        ("import subprocess\nsubprocess.run(['true'])", "it starts another program"),
        ("import ctypes\nctypes.CDLL('libc.so.6')", "it loads a native library"),
        ("import gc\ngc.get_objects()", "it searches memory through the garbage collector"),
        ("torch.cuda.synchronize = lambda *a: None", "it replaces torch.cuda.synchronize"),
        ("torch.cuda.Event.elapsed_time = lambda *a: 1e-6", "it replaces torch.cuda.Event.elapsed_time"),
        ("type(scale_kernel).run = lambda *a, **k: None", "it replaces triton.runtime.jit.JITFunction.run"),
    ],
)
def test_work_on_the_judge_is_a_cheat_before_anything_is_verified(run_compile, code, reason):
    _, fault = compiled(run_compile, in_entry(code))
    assert (fault["outcome"], fault["stage"]) == ("cheat", "tampering")
    assert fault["reason"] == f"{reason} (seen after compiling)"


def test_what_stands_in_for_a_device_is_ours(run_compile):
    code = """
import ctypes, gc, os, subprocess, threading
gc.collect()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), torch.cuda.device(x.device):
    event = torch.cuda.Event(enable_timing=True)
    event.record()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
    held = x * 1
graph.replay()
torch.cuda.synchronize()
triton.testing.do_bench(lambda: None)"""
    compilation, fault = compiled(run_compile, in_entry(code.strip()))
    assert fault is None
    assert compilation.ok


def test_a_message_is_capped(run_compile):
    long = PLAIN.replace("return out\n", "raise ValueError('x' * 100000)\n")
    _, fault = compiled(run_compile, long)
    assert len(fault["detail"]) <= 8192
    assert len(fault["reason"]) <= 1000
