"""Compiles every launch of problems' timed cases without a device and prints what came out, as JSON. A script.

Standard input: {"capability": 90, "folders": [...]}. Standard output: [{"folder", "case", "kernel", "cubin_bytes"}, ...].
"""

import json
import sys
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime.jit import JITFunction

from kbtui.problems.importing import load_module

SMALL = {"rows": 2, "n": 256, "m": 32, "batch": 1, "heads": 2, "seq": 64}
"""Fields that only repeat the work: made small, since nothing is launched. Those that set block sizes stay."""


class NoDevice(CudaDriver):
    def __init__(self, capability):
        self.capability = capability

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")


def compile_only(compiled):
    run = JITFunction.run

    def warm(self, *args, grid, warmup, **options):
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))
        return compiled[-1]

    return warm


def main():
    order = json.load(sys.stdin)
    triton.runtime.driver.set_active(NoDevice(order["capability"]))
    compiled, records = [], []
    JITFunction.run = compile_only(compiled)
    for folder in map(Path, order["folders"]):
        problem = load_module(folder, "problem")
        kernel = load_module(folder, "kernel")
        for case in problem.cases:
            small = case.replace(**{key: value for key, value in SMALL.items() if key in case.fields})
            getattr(kernel, problem.entry)(*problem.make_inputs(small, torch.Generator().manual_seed(0), "cpu"))
            while compiled:
                one = compiled.pop()
                size = len(one.asm["cubin"])
                records.append(
                    {"folder": folder.name, "case": case.name, "kernel": one.metadata.name, "cubin_bytes": size}
                )
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    main()
