"""Device memory between processes of one GPU: what a handle must be, how tensors lie in a buffer, and (with a GPU) that
values arrive in both directions."""

import base64
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.evaluate.inlane import cuda_ipc  # noqa: E402
from kbtui.evaluate.inlane.cuda_ipc import BadHandle, SharedBuffer, checked, laid_out, read, rounded, write  # noqa: E402

TEXT = base64.b64encode(b"x" * 64).decode()
HANDLE = {
    "handle": TEXT,
    "size": 4096,
    "storage_offset": 0,
    "counter": TEXT,
    "counter_offset": 3,
    "event": TEXT,
    "event_sync": False,
}


def test_a_handle_survives_json():
    found = checked(json.loads(json.dumps(HANDLE)))
    assert found["handle"] == b"x" * 64
    assert (found["size"], found["counter_offset"], found["event_sync"]) == (4096, 3, False)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {**HANDLE, "more": 1},
        {**HANDLE, "handle": "not base64!"},
        {**HANDLE, "handle": 7},
        {**HANDLE, "size": -1},
        {**HANDLE, "size": "4096"},
        {**HANDLE, "size": True},
        {**HANDLE, "event_sync": 1},
        {name: value for name, value in HANDLE.items() if name != "event"},
    ],
)
def test_a_malformed_handle_is_refused_before_the_driver_sees_it(bad):
    with pytest.raises(BadHandle):
        checked(bad)


@pytest.mark.parametrize(
    ("size", "made"), [(0, 1 << 21), (1 << 21, 1 << 21), ((1 << 21) + 1, 1 << 22), (3 << 30, 4 << 30)]
)
def test_a_buffer_is_a_power_of_two(size, made):
    assert rounded(size) == made


def test_a_buffer_stays_while_it_is_large_enough(monkeypatch):
    """Whoever has its handle may still be reading: it must not move under them, nor be shared twice."""
    shared = []
    monkeypatch.setattr(cuda_ipc, "_share", lambda memory: shared.append(memory) or {"number": len(shared)})
    buffer = SharedBuffer("cpu")
    with pytest.raises(RuntimeError):
        _ = buffer.memory
    first, handle = buffer.at_least(100)
    again, same = buffer.at_least(1 << 21)
    assert (handle, same) == ({"number": 1}, {"number": 1})
    assert first.data_ptr() == again.data_ptr() == buffer.memory.data_ptr()
    larger, other = buffer.at_least((1 << 21) + 1)
    assert (larger.numel(), other) == (1 << 22, {"number": 2})


TENSORS = [
    torch.arange(1000, dtype=torch.float32),
    torch.arange(12, dtype=torch.float16).reshape(3, 4).t(),
    torch.empty(0, 4),
    torch.arange(7, dtype=torch.int8)[2:],
    torch.tensor([True, False, True]),
    torch.randn(64, 96)[:, 16:80],
    torch.tensor(3.0, dtype=torch.bfloat16),
    torch.randn(5, dtype=torch.complex64),
    torch.randn(4, 1).expand(4, 6),
]


def test_tensors_lie_in_a_buffer_and_come_out_alike():
    descriptions, size = laid_out(TENSORS)
    memory = torch.full((size + 500,), 0x5A, dtype=torch.uint8)
    write(TENSORS, descriptions, memory)
    found = read(json.loads(json.dumps(descriptions)), memory, "cpu")
    for tensor, copy in zip(TENSORS, found, strict=True):
        assert (copy.dtype, copy.shape, copy.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        assert torch.equal(copy, tensor)
    assert bool((memory[size:] == 0x5A).all())
    found[0].zero_()
    assert torch.equal(read(descriptions[:1], memory, "cpu")[0], TENSORS[0]), "what is read is a copy"


@pytest.mark.parametrize(
    "change", [{"offset": 1 << 20}, {"offset": -256}, {"span": 1001}, {"shape": [2000]}, {"strides": [2]}]
)
def test_a_description_that_reaches_beyond_the_buffer_is_refused(change):
    descriptions, size = laid_out(TENSORS[:1])
    with pytest.raises(ValueError, match="tensor"):
        read([{**descriptions[0], **change}], torch.zeros(size, dtype=torch.uint8), "cpu")


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

RECEIVER = """
import json, sys, torch
from kbtui.evaluate.inlane import cuda_ipc
sent = json.loads(sys.stdin.readline())
with cuda_ipc.opened(sent["handle"], "cuda:0") as memory:
    found = cuda_ipc.read(sent["tensors"], memory, "cuda:0")
    doubled = [tensor.double() * 2 for tensor in found]
    back, size = cuda_ipc.laid_out(doubled)
    cuda_ipc.write(doubled, back, memory)
print(json.dumps([back, size]))
"""


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("shape", [(1000,), (64, 33), (0, 4), (1 << 20,)])
def test_values_go_to_another_process_and_back(shape):
    """The receiver is a process of its own: a handle cannot be opened where it was made."""
    tensor = torch.randn(shape, device="cuda").transpose(0, -1)
    descriptions, size = laid_out([tensor])
    buffer = SharedBuffer("cuda:0")
    memory, handle = buffer.at_least(2 * size + 4096)
    write([tensor], descriptions, memory)
    torch.cuda.synchronize()
    for _ in range(3):  # one handle serves any number of receivers
        done = subprocess.run(
            [sys.executable, "-c", RECEIVER],
            input=json.dumps({"handle": handle, "tensors": descriptions}) + "\n",
            capture_output=True,
            text=True,
            env=os.environ,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        back, _ = json.loads(done.stdout)
        (found,) = read(back, memory, "cuda:0")
        assert torch.equal(found, tensor.double() * 2)
        write([tensor], descriptions, memory)
        torch.cuda.synchronize()


@pytest.mark.gpu
@gpu
def test_a_receiver_that_is_killed_costs_nothing_but_itself():
    buffer = SharedBuffer("cuda:0")
    memory, handle = buffer.at_least(1 << 22)
    memory.fill_(7)
    torch.cuda.synchronize()
    code = RECEIVER.replace("    found =", "    import os; os.kill(os.getpid(), 9)\n    found =")
    sent = json.dumps({"handle": handle, "tensors": []}) + "\n"
    done = subprocess.run([sys.executable, "-c", code], input=sent, text=True, env=os.environ, timeout=120)
    assert done.returncode == -9
    assert bool((memory == 7).all())
    before = torch.cuda.memory_allocated()
    buffer.at_least(1 << 23)
    del memory
    assert torch.cuda.memory_allocated() <= before + (1 << 23)
