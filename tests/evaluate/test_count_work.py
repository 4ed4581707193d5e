"""Counting is limited by work and not by time: a busy machine counts the same, and a case too large says so."""

import time

import pytest

from kbtui.evaluate.facts import compile_parameters
from kbtui.evaluate.targets import device_info, find_target
from kbtui.paths import library_dir

SLOWED = """
import time

import numpy

_unique = numpy.unique


def _slow(*arguments, **named):
    time.sleep(0.02)
    return _unique(*arguments, **named)


numpy.unique = _slow
"""


@pytest.mark.parametrize("most_work", [400_000_000, 6_000_000], ids=["enough", "too little"])
def test_a_slow_machine_counts_the_same(run_count, most_work):
    """The slowness is that of a loaded machine, put in by hand: every access takes 20 ms longer."""
    source = (library_dir() / "matmul" / "kernel.py").read_text()
    inputs = [[["float16", [size, size]], ["float16", [size, size]]] for size in (4096, 1024)]
    parameters = {**compile_parameters(device_info(find_target("sm_90")), len(inputs)), "most_work": most_work}
    quick = run_count(source, "matmul", parameters, inputs)["reply"]
    began = time.monotonic()
    slow = run_count(source + SLOWED, "matmul", parameters, inputs)["reply"]
    assert slow == quick
    assert time.monotonic() - began > 0.1
    assert [bool(case["failed"]) for case in quick["cases"]] == [most_work < 400_000_000] * 2
    if most_work < 400_000_000:
        assert quick["cases"][0]["failed"] == "too much work for the interpreter"
    else:
        assert quick["cases"][0]["launches"][0][0]["wave"] > 1
