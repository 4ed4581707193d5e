"""Fences around what a wrapper allocates: the tensors are the same, and what is written beside them is seen."""

import ctypes
from pathlib import Path
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.evaluate.inlane import fences, verify  # noqa: E402
from kbtui.evaluate.inlane.calls import FIRST  # noqa: E402
from kbtui.evaluate.inlane.candidate import CandidateFault  # noqa: E402
from kbtui.evaluate.inlane.fences import Fences  # noqa: E402
from kbtui.evaluate.inlane.launches import OnDevice  # noqa: E402
from kbtui.evaluate.inlane.tensors import map_tensors  # noqa: E402

SOURCE = torch.arange(24, dtype=torch.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, 5),
        lambda: torch.ones(7, dtype=torch.int64),
        lambda: torch.full((2, 3), 4.5),
        lambda: torch.zeros_like(SOURCE.t()),
        lambda: torch.full_like(SOURCE, 2, dtype=torch.bfloat16),
        lambda: SOURCE.new_zeros(3, 3),
        lambda: torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
        lambda: torch.zeros(0, 4),
        lambda: torch.zeros(()),
        lambda: torch.empty_strided((3, 4), (8, 1)).fill_(1.0),
        lambda: torch.empty(5).fill_(2.0).half(),
    ],
)
def test_what_is_allocated_is_the_same_tensor(make):
    plain = make()
    with Fences("cpu") as around:
        fenced = make()
    assert (fenced.shape, fenced.stride(), fenced.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert torch.equal(fenced, plain)
    assert fenced.data_ptr() % 16 == 0 or fenced.numel() == 0
    assert around.trouble() == ""


def test_views_and_shapes_of_it_work_as_ever():
    with Fences("cpu") as around:
        out = torch.empty(4, 6)
        out.copy_(SOURCE)
        rows = out.view(24).reshape(6, 4).clone()
        out[1:, ::2] = 0.0
    assert torch.equal(rows.flatten(), SOURCE.flatten())
    assert float(out[1:, ::2].sum()) == 0.0
    assert around.trouble() == ""


def test_uninitialised_memory_keeps_what_it_was_filled_with():
    torch.set_deterministic_debug_mode("warn")
    try:
        with Fences("cpu"):
            assert bool(torch.empty(100).isnan().all())
    finally:
        torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, ""),
        (4 * 9, ""),
        (4 * 10, "writes up to 4 bytes past the end of a tensor of shape (10)"),
        (4 * 10 + 4000, "up to 4004 bytes past the end"),
        (-4, "writes up to 4 bytes before a tensor of shape (10)"),
        (-4096, "before"),
    ],
)
def test_a_write_outside_is_seen(at, words):
    with Fences("cpu") as around:
        out = torch.zeros(10)
    ctypes.memset(out.data_ptr() + at, 1, 4)
    found = around.trouble()
    assert words in found
    assert bool(found) == bool(words)
    assert around.trouble() == "", "the fences are let go"


def test_a_tensor_on_another_device_is_left_alone():
    with Fences("cuda:0") as around:
        assert torch.zeros(3).untyped_storage().nbytes() == 12
    assert around._fenced == []


def test_what_is_large_or_many_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(fences, "MOST_BYTES", 250)
    monkeypatch.setattr(fences, "MOST", 3)
    with Fences("cpu") as around:
        sizes = [torch.zeros(n).untyped_storage().nbytes() for n in (70, 25, 25, 25, 5, 5)]
    assert [size > 4096 for size in sizes] == [False, True, True, False, True, False]
    assert around.trouble() == ""


def test_the_fences_are_wide_enough_for_a_block():
    assert fences.AFTER >= 4 * 65536
    assert fences.BEFORE % 512 == 0


class TestInACall:
    """The job "verify" with fences, on memory of the host: what would be a kernel writes through a raw address."""

    class Context:
        device = "cpu"
        folder = problem_folder = Path(__file__).parent
        parameters: ClassVar[dict] = {}

        def __init__(self):
            self.handed = []

        def say(self, stage, text=""):
            pass

        def inputs(self, case):
            return (torch.arange(10, dtype=torch.float32),)

        def send(self, message, descriptors=()):
            self.handed += map_tensors(message["tensors"], descriptors[0], message["size"])
            return {"go_on": True}

    class Untouched:
        def trouble(self):
            return ""

    @pytest.fixture
    def called(self, monkeypatch):
        monkeypatch.setattr(OnDevice, "_listen", lambda self: None)

        def call(entry):
            context = self.Context()
            verify._Caller(context, entry, OnDevice(), self.Untouched()).case(0, [FIRST])
            return context.handed

        return call

    @staticmethod
    def doubling(past=0):
        def entry(x):
            out = torch.empty_like(x)
            out.copy_(x * 2)
            ctypes.memset(out.data_ptr() + out.numel() * 4, 1, past)
            return out

        return entry

    def test_an_honest_call_hands_its_outputs_over(self, called):
        [out] = called(self.doubling())
        assert torch.equal(out, torch.arange(10, dtype=torch.float32) * 2)

    def test_a_write_past_the_end_is_wrong(self, called):
        with pytest.raises(
            CandidateFault, match=r"writes up to 8 bytes past the end of a tensor of shape \(10\)"
        ) as fault:
            called(self.doubling(past=8))
        assert (fault.value.outcome, fault.value.stage) == ("wrong", "addresses")
