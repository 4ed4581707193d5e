"""Replies as models write them, each with what it must be taken for. `CODE` is the version that is meant."""

from __future__ import annotations

import json
from dataclasses import dataclass

ENTRY = "softmax"
PARENT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + offsets, mask=offsets < cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + offsets, x / tl.sum(x, axis=0), mask=offsets < cols)


def softmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
CODE = PARENT.replace(
    "BLOCK=triton.next_power_of_2(x.shape[1]))", "BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)"
)
NO_IMPORTS = CODE.split("\n\n\n", 1)[1]
KERNEL, WRAPPER = CODE[: CODE.index("\n\ndef softmax(x)")], "def softmax(x)" + CODE.split("def softmax(x)")[1]
INDENTED = "\n".join("    " + line for line in CODE.split("\n"))
USAGE = 'x = torch.randn(8, 8, device="cuda")\nprint(softmax(x))\n'
DIFF = """\
--- a/kernel.py
+++ b/kernel.py
@@ -14,3 +14,3 @@
-    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
+    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024, num_warps=8)
     return out
"""


def fenced(code: str, language: str = "python", mark: str = "```") -> str:
    return f"{mark}{language}\n{code.rstrip()}\n{mark}\n"


@dataclass(frozen=True)
class Case:
    """`refused` "" means that exactly `code` must be accepted (compared by syntax tree); `mended` what must be said."""

    reply: str
    refused: str = ""
    code: str = CODE
    finish: str = "stop"
    title: str | None = None
    mended: str = ""
    says: str = ""


CASES: dict[str, Case] = {
    "one block": Case(fenced(CODE)),
    "prose around": Case(f"Here is it:\n\n{fenced(CODE)}\nIt uses more warps.", title="Here is it"),
    "title line": Case(f"Title: eight warps\n{fenced(CODE)}", title="eight warps"),
    "emphasised title": Case(f"**Title:** `eight warps`\n\n{fenced(CODE)}", title="eight warps"),
    "capital language": Case(fenced(CODE, "Python")),
    "py": Case(fenced(CODE, "py")),
    "no language": Case(fenced(CODE, "")),
    "language with attributes": Case(fenced(CODE, "python title=kernel.py")),
    "tildes": Case(fenced(CODE, mark="~~~")),
    "four backticks": Case(fenced(CODE, mark="````")),
    "before and after": Case(f"Before:\n{fenced(PARENT)}\nAfter:\n{fenced(CODE)}"),
    "after and before": Case(f"{fenced(CODE)}\nIt was:\n{fenced(PARENT)}"),
    "usage after": Case(f"{fenced(CODE)}\nUse it so:\n{fenced(USAGE)}"),
    "shell before": Case(f"{fenced('pip install triton', 'bash')}\n{fenced(CODE)}"),
    "two drafts": Case(f"{fenced(CODE.replace('num_warps=8', 'num_warps=2'))}\nBetter:\n{fenced(CODE)}"),
    "kernel and wrapper apart": Case(f"{fenced(KERNEL)}\nand\n{fenced(WRAPPER)}", mended="blocks joined"),
    "thinking": Case(f"<think>maybe\n```python\nx = 1\n```\n</think>\n{fenced(CODE)}"),
    "thinking without its start": Case(f"so I need eight warps</think>{fenced(CODE)}"),
    "capital thinking": Case(f"<Thinking>hm</Thinking>\n{fenced(CODE)}"),
    "thinking twice": Case(f"<think>a</think>first<think>b</think>\n{fenced(CODE)}"),
    "only thinking": Case("<think>I wonder whether", "cut off"),
    "thinking ate the limit": Case("<think>" + "hm " * 50, "cut off", finish="length"),
    "json": Case(json.dumps({"title": "x", "code": CODE})),
    "json in a block": Case(fenced(json.dumps({"kernel": CODE}), "json")),
    "json with a fence inside": Case(json.dumps({"answer": f"Here:\n{fenced(CODE)}"})),
    "json with raw newlines": Case('{"code": "' + CODE.replace('"', '\\"') + '"}'),
    "unterminated and whole": Case(f"```python\n{CODE}"),
    "unterminated and cut": Case(f"```python\n{CODE[:-40]}", "cut off"),
    "length in the wrapper": Case(f"```python\n{CODE[:-60]}", "cut off", finish="length", says="limit of tokens"),
    "length at the end of a line": Case(
        f"```python\n{CODE[: CODE.rindex('    return out')]}", "cut off", finish="length"
    ),
    "length before the code": Case("First we look at", "cut off", finish="length"),
    "length after the code": Case(f"{fenced(CODE)}\nIt is fast because", finish="length"),
    "rest unchanged": Case(fenced("# ... rest unchanged\n" + WRAPPER), "left out", says="rest unchanged"),
    "same as before": Case(
        fenced(KERNEL.replace("    row = tl.program_id(0)", "    # same as before") + "\n\n" + WRAPPER), "left out"
    ),
    "dots as a body": Case(
        fenced(KERNEL.split("    row")[0] + "    ...\n\n\n" + WRAPPER), "left out", says="softmax_kernel"
    ),
    "existing code": Case(fenced("import torch\n# existing code here\n\n" + WRAPPER), "left out"),
    "kernel left out without a word": Case(
        fenced("import torch, triton\n\n" + WRAPPER), "undefined", says="softmax_kernel"
    ),
    "diff": Case(fenced(DIFF, "diff"), "diff"),
    "diff called python": Case(fenced(DIFF), "diff"),
    "renamed entry": Case(
        fenced(CODE.replace("def softmax(x)", "def fast_softmax(x)")),
        code=CODE.replace("def softmax(x)", "def fast_softmax(x)") + "\n\nsoftmax = fast_softmax\n",
        mended="fast_softmax renamed",
    ),
    "two that could be the entry": Case(
        fenced(CODE.replace("def softmax(x)", "def a(x)") + "\n\ndef b(x):\n    return a(x)\n"), "entry", says="softmax"
    ),
    "no entry": Case(fenced(KERNEL), "entry", says="does not define softmax"),
    "entry in a class": Case(fenced(CODE.replace("def softmax(x)", "class Softmax:\n  def softmax(x)")), "entry"),
    "missing imports": Case(fenced(NO_IMPORTS), mended="imports added"),
    "missing imports under a docstring": Case(
        fenced(f'"""Fast."""\nfrom __future__ import annotations\n{NO_IMPORTS}'),
        code=CODE.replace("import torch", "from __future__ import annotations\nimport torch"),
        mended="imports added",
    ),
    "tabs": Case(fenced(CODE.replace("    ", "\t"))),
    "tabs and spaces": Case(fenced(CODE.replace("    out =", "\tout =")), mended="tabs"),
    "non-breaking spaces": Case(fenced(CODE.replace("    ", "\u00a0" * 4)), mended="odd spaces"),
    "zero-width space": Case(fenced(CODE.replace("import torch", "import\u200b torch", 1)), mended="odd spaces"),
    "curly quotes": Case(fenced(CODE.replace('"inf"', "“inf”")), mended="curly quotes"),
    "HTML": Case(fenced(CODE.replace("<", "&lt;")), mended="HTML escapes"),
    "CRLF": Case(fenced(CODE).replace("\n", "\r\n")),
    "byte order mark": Case("\ufeff" + fenced(CODE)),
    "indented block": Case(f"1. The code:\n\n    ```python\n{INDENTED}\n    ```\n"),
    "no block": Case(CODE),
    "no block, prose around": Case(f"Sure, here it is.\n\n{CODE}\nHope this helps!"),
    "syntax error": Case(fenced(CODE.replace("def softmax(x):", "def softmax(x)")), "syntax", says="line"),
    "unchanged": Case(fenced("# faster\n" + PARENT), "unchanged"),
    "prose only": Case("I would use more warps.", "no code"),
    "nothing": Case("", "no code"),
    "refusal": Case("I'm sorry, but I can't help with that.", "no code"),
    "other language": Case(fenced("__global__ void softmax() {}", "cuda"), "no code"),
    "inline code": Case("Use `num_warps=8` and ```softmax(x)``` only.", "no code"),
}
