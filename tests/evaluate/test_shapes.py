"""Inputs without values: what is made beside, or out of, a large tensor costs nothing either."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.evaluate.inlane.shapes import ShapesOnly  # noqa: E402


def test_large_tensors_have_no_values_and_small_ones_do():
    with ShapesOnly(100):
        large, small = torch.randn(50, 50), torch.arange(5)
    assert large.device.type == "meta"
    assert small.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda large, small: large + small,
        lambda large, small: small * large,
        lambda large, small: torch.where(large > 0, large, small),
        lambda large, small: (large * 2.0).half(),
        lambda large, small: large[:, :3],
    ],
)
def test_what_is_made_of_a_large_tensor_has_no_values_either(make):
    with ShapesOnly(100):
        large, small = torch.randn(50, 50), torch.randn(50, 1)
        made = make(large, small)
    right = make(torch.zeros(50, 50), torch.zeros(50, 1))
    assert made.device.type == "meta"
    assert (made.shape, made.dtype, made.stride()) == (right.shape, right.dtype, right.stride())


def test_drawing_without_values_leaves_dynamo_alone():
    """It takes seconds to import, once in every oracle; a stand-in for it must not stay."""
    code = """
import sys, torch
from kbtui.evaluate.inlane.shapes import ShapesOnly
with ShapesOnly(0):
    drawn = [torch.randn(4, 5, generator=torch.Generator()), torch.randint(0, 5, (3,)), torch.rand(6).half() * 2]
assert [tuple(one.shape) for one in drawn] == [(4, 5), (3,), (6,)], drawn
assert [one.dtype for one in drawn] == [torch.float32, torch.int64, torch.float16], drawn
assert "torch._dynamo" not in sys.modules
assert torch._dynamo.__file__.endswith("__init__.py")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
