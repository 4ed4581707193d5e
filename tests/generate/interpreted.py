"""Run in a process of its own with TRITON_INTERPRET=1: every version on standard input against the reference.

Input: JSON lines `{"entry", "title", "path"}`. Output: one JSON line `{"title", "error"}` each, error "" when right.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import torch

GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def cases(entry: str) -> list[tuple[tuple[object, ...], torch.Tensor | tuple[torch.Tensor, ...]]]:
    """Arguments and expected result; sizes that no block divides."""
    if entry == "vector_add":
        x, y = randn(2500), randn(2500)
        return [((x, y), x + y), ((x[:1], y[:1]), x[:1] + y[:1])]
    if entry == "softmax":
        x = randn(7, 1500)
        return [((x,), torch.softmax(x, -1)), ((x[:1, :1],), torch.softmax(x[:1, :1], -1))]
    if entry in ("rms_norm", "norm"):
        x, w = randn(7, 1500), randn(1500)
        return [((x, w, 1e-5), x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w)]
    if entry in ("matmul", "product"):
        # The tiles of the second are small: fewer of them do.
        m, n = (150, 70) if entry == "matmul" else (70, 20)
        a, b = randn(m, 40, dtype=torch.float16), randn(40, n, dtype=torch.float16)
        return [((a, b), (a.double() @ b.double()).half())]
    if entry == "cross_entropy":
        x, t = randn(3, 9000), torch.tensor([8999, -1, 17])
        return [((x, t), torch.nn.functional.cross_entropy(x, t, ignore_index=-1, reduction="none"))]
    if entry == "layer_norm":
        x, w, b = randn(7, 1500), randn(1500), randn(1500)
        return [((x, w, b, 1e-5), torch.nn.functional.layer_norm(x, (1500,), w, b, 1e-5))]
    if entry == "scaled":
        x, w, b = randn(7, 1500), randn(1500), randn(1500)
        r = torch.rsqrt(x.var(-1, unbiased=False) + 1e-5)
        y = (x - x.mean(-1, keepdim=True)) * r[:, None] * w
        return [((x, w, b, 1e-5), (y + b, r)), ((x, w, None, 1e-5), (y, r))]
    if entry == "halves":
        x = randn(70, 300)
        return [((x, 32), x / 2)]
    if entry == "swiglu":
        x, y = randn(70, 45), randn(70, 45)
        return [((x, y), torch.nn.functional.silu(x) * y)]
    if entry == "rope":
        x, angle = randn(2, 2, 5, 20), randn(5, 10)
        first, second = x.chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return [((x, cos, sin), torch.cat([first * cos - second * sin, second * cos + first * sin], -1))]
    if entry == "int8_matmul":
        a, b = (torch.randint(-128, 128, shape, generator=GENERATOR).to(torch.int8) for shape in ((150, 40), (40, 70)))
        sa, sb = randn(150), randn(70)
        return [((a, b, sa, sb), ((a.double() @ b.double()) * sa[:, None] * sb).float())]
    if entry == "transpose":
        x = randn(70, 45)
        return [((x,), x.T.contiguous())]
    raise KeyError(entry)


def main() -> None:
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        spec = importlib.util.spec_from_file_location(f"version_{number}", job["path"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        error = ""
        try:
            for arguments, expected in cases(job["entry"]):
                torch.testing.assert_close(getattr(module, job["entry"])(*arguments), expected, rtol=2e-3, atol=2e-3)
        except Exception as failure:  # noqa: BLE001  whatever goes wrong is what the test reports
            error = f"{type(failure).__name__}: {failure}"
        print(json.dumps({"title": job["title"], "error": error}), flush=True)


main()
