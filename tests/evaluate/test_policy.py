"""The static policy: what is proof on the syntax tree, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtui.evaluate.policy import static_policy
from kbtui.paths import library_dir

BASE = """
import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.exp(x) + tl.sum(x, 0))

def f(x: torch.Tensor):
    out = torch.empty_like(x)
    k[(1,)](out, x.numel(), BLOCK=64)
    return out
"""
LIBRARY = sorted(path.name for path in library_dir().iterdir() if (path / "kernel.py").is_file())


def body(code: str, head: str = "import torch") -> str:
    return f"{head}\ndef f(x: torch.Tensor, y=None):\n" + "".join(f"    {line}\n" for line in code.splitlines())


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("return torch.softmax(x, -1)", "torch.softmax"),
        ("return torch.nn.functional.silu(x)", "torch.nn.functional.silu"),
        ("return x.softmax(-1)", "Tensor.softmax"),
        ("return x.float().exp()", "Tensor.exp"),
        ("z = x.view(-1)\nreturn z.sum()", "Tensor.sum"),
        ("return x @ y", "the operator @"),
        ("out = torch.empty_like(x)\nout += x\nreturn out", "the operator +="),
        ("return y.exp() if y.is_cuda else x", "Tensor.exp"),
        ("g = torch.softmax\nreturn g(x, -1)", "torch.softmax"),
        ("return torch.ops.aten.mm(x, x)", "torch.ops.aten.mm"),
        ("return torch.compile(f)(x)", "torch.compile"),
        ("x.mul_(2)\nreturn x", "Tensor.mul_"),
        ("return x * 2", "the operator *"),
    ],
)
def test_work_handed_to_torch(code: str, name: str) -> None:
    findings = static_policy(body(code), BASE, "f")
    assert findings, code
    assert all(finding.outcome == "cheat" for finding in findings)
    assert name in findings[0].reason
    assert findings[0].line > 1
    assert static_policy(body(code), body(code), "f") == []


@pytest.mark.parametrize(
    "head", ["import torch\nimport torch.nn.functional as F", "import torch\nfrom torch.nn import functional as F"]
)
def test_aliases_are_followed(head: str) -> None:
    assert "softmax" in static_policy(body("return F.softmax(x, -1)", head), BASE, "f")[0].reason
    assert static_policy(body("return softmax(x)", "import torch\nfrom torch import softmax"), BASE, "f")


@pytest.mark.parametrize(
    "code",
    [
        "rows, cols = x.shape\nreturn rows * cols + x.numel() // 2",
        "n = x.shape[0]\nn += 1\nreturn torch.zeros(n)",
        "items = []\nitems.sort()\nreturn sum(items)",
        "x = x.numel()\nreturn x * 2",
        "names = set()\nnames.add(1)\nreturn names",
        "return torch.empty((2, 3)).contiguous().view(6).to(torch.float16)",
        "scale = y * 2 if y else 1\nreturn scale",
        "total = 0\nfor x in range(3):\n    total = x * 2\nreturn total",
    ],
)
def test_what_is_no_proof_passes(code: str) -> None:
    assert static_policy(body(code), BASE, "f") == []


@pytest.mark.parametrize("name", LIBRARY)
def test_the_bundled_kernels_pass_by_themselves(name: str) -> None:
    source = (library_dir() / name / "kernel.py").read_text()
    assert static_policy(source, "", name) == []


def test_entry_and_syntax() -> None:
    assert [finding.outcome for finding in static_policy("def g(x): return x", BASE, "f")] == ["invalid"]
    assert static_policy("def f(:", BASE, "f")[0].outcome == "invalid"
    assert static_policy("\0", BASE, "f")[0].outcome == "invalid"
    guarded = "try:\n    import f\nexcept ImportError:\n    f = 2"
    for binding in ("f = 1", "from other import f", "if True:\n    def f(): pass", guarded):
        assert static_policy(binding, BASE, "f") == []


def test_nothing_is_executed(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    assert static_policy(f"open({str(flag)!r}, 'w')\ndef f(): pass", BASE, "f") == []
    assert not flag.exists()
