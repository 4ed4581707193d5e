"""Tensors between processes of one GPU: what a message must be, and (with a GPU) that the values arrive."""

import base64
import json
import os

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.evaluate.inlane.cuda_ipc import BadHandle, receive, share  # noqa: E402

TEXT = base64.b64encode(b"x" * 64).decode()


def message(**changes):
    ipc = {
        "device": 0,
        "handle": TEXT,
        "size": 4096,
        "storage_offset": 0,
        "counter": TEXT,
        "counter_offset": 0,
        "event": TEXT,
        "event_sync": False,
    }
    base = {"dtype": "float32", "shape": [16, 4], "strides": [4, 1], "span": 64, "offset": 0, "ipc": ipc}
    return {**base, **changes, "ipc": {**ipc, **changes.get("ipc", {})} if changes.get("ipc") != {} else {}}


@pytest.mark.parametrize(
    "bad",
    [
        message(ipc={}),
        message(ipc={"handle": "not base64!"}),
        message(ipc={"handle": 7}),
        message(ipc={"size": -1}),
        message(ipc={"size": "4096"}),
        message(ipc={"size": 16}),
        message(ipc={"more": 1}),
    ],
)
def test_a_malformed_handle_is_refused_before_the_driver_sees_it(bad):
    with pytest.raises(BadHandle):
        receive(bad, torch.device("cpu"))


def test_a_description_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="span"):
        receive(message(span=1000), torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(1000,), (64, 33), (0, 4), (1 << 20,)])
def test_values_arrive_in_another_process(shape):
    """The receiver is a process of its own: a handle cannot be opened where it was made."""
    import subprocess
    import sys

    tensor = torch.randn(shape, device="cuda").transpose(0, -1)
    sent = share(tensor)
    kept = sent.pop("_keep")
    code = (
        "import json, sys, torch\n"
        "from kbtui.evaluate.inlane.cuda_ipc import receive\n"
        "tensor = receive(json.load(sys.stdin), torch.device('cuda', 0))\n"
        "tensor += 0\n"
        "print(json.dumps([list(tensor.shape), list(tensor.stride()), float(tensor.double().sum())]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen_shape, strides, total = json.loads(done.stdout)
    assert seen_shape == list(tensor.shape)
    assert strides == list(tensor.stride())
    assert total == pytest.approx(float(tensor.double().sum()))
    assert kept.numel() >= tensor.numel()
