"""What a candidate process sees of tampering, of work handed to torch, and of kernels' sources; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kbtui.evaluate.inlane.compute import computed
from kbtui.evaluate.inlane.digests import code_digest, kernel_id

pytest.importorskip("torch", reason="needs torch")


def outcome(tmp_path: Path, candidate: str, code: str) -> str:
    """What `code` prints; the candidate's source lies at `path`, is run by `load()`, and `guard` watches it."""
    (tmp_path / "kernel.py").write_text(textwrap.dedent(candidate))
    script = f"""
from pathlib import Path
import torch
from kbtui.evaluate.inlane import handed
from kbtui.evaluate.inlane.integrity import Integrity
path = Path({str(tmp_path / "kernel.py")!r})
guard = Integrity(path)
names = {{"torch": torch}}
def load():
    exec(compile(path.read_text(), str(path), "exec"), names)
{textwrap.dedent(code)}
import os, sys
sys.stdout.flush()
os._exit(0)  # as lanes end: torch's own threads do not always survive an orderly end of the interpreter
"""
    (tmp_path / "driver.py").write_text(script)  # code from text would count as the candidate's
    done = subprocess.run(
        [sys.executable, str(tmp_path / "driver.py")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("candidate", "trouble"),
    [
        ("x = torch.zeros(3)", ""),
        ("torch.manual_seed(3)", ""),
        ("torch.backends.cuda.matmul.allow_tf32 = True", ""),
        ("torch.equal = None", "it replaces torch.equal"),
        ("torch.Tensor.clone = lambda self: self", "it replaces torch.Tensor.clone"),
        ("torch.Tensor.__repr__ = lambda self: ''", "it replaces torch.Tensor.__repr__"),
        ("import time\ntime.perf_counter = time.time", "it replaces time.perf_counter"),
        ("torch.cuda.synchronize = lambda *a: None", "it replaces torch.cuda.synchronize"),
        ("import socket\nsocket.socket()", "it opens a socket"),
        ("import gc\ngc.get_objects()", "it searches memory through the garbage collector"),
        ("import subprocess\nsubprocess.run(['true'])", "it starts another program"),
        ("exec('import gc; gc.get_objects()')", "it searches memory through the garbage collector"),
        (
            "from kbtui.evaluate.inlane import handed\nhanded.watched.__wrapped__.__code__ = (lambda inside: None).__code__",
            "it replaces kbtui.evaluate.inlane.handed.watched",
        ),
        (
            "from kbtui.evaluate.inlane import handed\nhanded._is_data.__code__ = (lambda value: False).__code__",
            "it replaces kbtui.evaluate.inlane.handed._is_data",
        ),
    ],
)
def test_tampering_is_named_and_nothing_else(tmp_path: Path, candidate: str, trouble: str) -> None:
    assert outcome(tmp_path, candidate, "load()\nprint(guard.trouble())") == trouble


def test_events_of_others_are_not_the_candidates(tmp_path: Path) -> None:
    assert outcome(tmp_path, "", "import gc\nload()\ngc.get_objects()\nprint(guard.trouble())") == ""


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("torch.softmax(x, -1)", "torch.softmax"),
        ("getattr(torch.ops.aten, 'mm')(x, x)", "torch.mm"),
        ("x.sum()", "torch.sum"),
        ("x.numpy()", "Tensor.numpy"),
        ("x.tolist()", "Tensor.tolist"),
        ("torch.empty_like(x).copy_(x).view(16).contiguous().to(torch.float16)", ""),
        ("torch.zeros(4, 4).fill_(1.0)", ""),
        ("torch.arange(8).cumsum(0)", ""),
        ("x[0, 0] * 2", ""),
        ("[float(one) for one in x.view(16)]", ""),
        ("many = torch.rand(100); [float(many[at]) for at in range(100)]", "Python, element by element,"),
        ("many = torch.rand(100); [many[at] + 1 for at in range(100)]", "Python, element by element,"),
        (
            "many = torch.rand(100); [run_in_thread(lambda: [float(one) for one in many[at:at + 40]]) for at in (0, 40)]",
            "Python, element by element,",
        ),
        ("indices = torch.arange(100); [int(indices[at]) for at in range(100)]", ""),
        ("run_in_thread(lambda: x.exp())", "torch.exp"),
    ],
)
def test_work_that_torch_does_is_seen(tmp_path: Path, call: str, names: str) -> None:
    code = f"""
import threading
def run_in_thread(job):
    worker = threading.Thread(target=job)
    worker.start()
    worker.join()
x = torch.rand(4, 4)
with handed.watched(lambda: False) as found:
    {call}
print(*found)
"""
    assert outcome(tmp_path, "", code) == names


def test_what_happens_inside_a_launch_is_the_kernels(tmp_path: Path) -> None:
    code = "with handed.watched(lambda: True) as found:\n    torch.rand(4, 4).exp()\nprint(*found)"
    assert outcome(tmp_path, "", code) == ""
    # nor do single numbers in there add up with those of the wrapper
    code = """
launching = [True]
many = torch.rand(100)
with handed.watched(lambda: launching[0]) as found:
    [float(one) for one in many]
    launching[0] = False
    float(many[0])
print(*found)
"""
    assert outcome(tmp_path, "", code) == ""


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("aten::_softmax", "softmax"),
        ("aten::add_", "add"),
        ("aten::native_layer_norm", "layer_norm"),
        ("aten::_scaled_dot_product_flash_attention", "scaled_dot_product_attention"),
        ("aten::copy_", ""),
        ("aten::view", ""),
        ("aten::empty", ""),
    ],
)
def test_names_of_operators(operator: str, name: str) -> None:
    assert computed(operator) == name


def test_a_kernel_is_known_by_what_it_does_and_not_by_where_it_stands() -> None:
    spaces: list[dict[str, object]] = [{}, {}, {}]
    for space, source, file in zip(
        spaces,
        ("def k(x):\n    return x + 1", "\n\n# moved\ndef k(x):\n    return x + 1", "def k(x):\n    return x + 2"),
        ("a.py", "b.py", "a.py"),
        strict=True,
    ):
        exec(compile(source, file, "exec"), space)  # noqa: S102  sources of the test's own
    first, moved, other = (space["k"].__code__ for space in spaces)  # type: ignore[attr-defined]
    assert code_digest(first) == code_digest(moved) != code_digest(other)
    assert kernel_id("k", first) == f"k@{code_digest(first)}"
