"""From a model's reply to a version of the kernel, or to the name of what is wrong with it.

A reply is accepted only when the whole version is in it: nothing is pieced together with what the model left out. What
can be put right without guessing (spaces, imports, a renamed entry) is, and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kbtui.generate.digest import syntax_digest
from kbtui.generate.llm.blocks import Block, Parts, take_apart
from kbtui.generate.llm.source import Source, read_source, with_entry, with_imports
from kbtui.text import clean_line

Refusal = Literal[
    "no code", "cut off", "left out", "diff", "syntax", "entry", "undefined", "unchanged", "duplicate", "too large",
]  # fmt: skip
MOST_BYTES = 1 << 20
LONGEST_TITLE = 60
LONGEST_NOTE = 600
_PYTHON = frozenset({"", "python", "py", "python3", "triton", "py3", "python-triton"})
_DIFF = frozenset({"diff", "patch", "udiff"})


@dataclass(frozen=True)
class Accepted:
    """A version. `title` is the model's own name for what it did, "" without one; `reflection` what it says went wrong
    before; `mended` what was put right."""

    source: str
    title: str = ""
    reflection: str = ""
    mended: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """Why a reply holds no version. `reason` is one sentence, fit to be sent back to the model."""

    kind: Refusal
    reason: str


def read_reply(text: str, finish: str, entry: str, parent: str) -> Accepted | Refused:
    """The version in `text`, a child of `parent`. `finish` is why the reply ended ("length": its limit)."""
    parts = take_apart(text)
    # What reached the limit of tokens within a block may parse and still lack its end.
    whole_blocks = [block for block in parts.blocks if block.closed or finish != "length"]
    codes = [read_source(block.text) for block in whole_blocks if block.language in _PYTHON and block.text.strip()]
    if not parts.blocks:
        codes = [bare] if (bare := _bare_code(parts.prose)) is not None else []
    whole = _whole(codes, entry, parent)
    if whole is None:
        return _why_none(parts, codes, finish, entry)
    return _checked(whole, parts, finish, parent)


def _whole(codes: list[Source], entry: str, parent: str) -> Source | None:
    """The version to take: the last one that binds the entry and differs from the parent; blocks that only together make
    a module are joined. "Before and after" replies end with the after; examples of use bind no entry."""
    ways = [codes, _renamed(codes, entry, parent), _joined(codes)]
    found = [[code for code in way if code.binds(entry)] for way in ways]
    # What names nothing that is missing goes first: a wrapper in one block needs the kernel in another.
    for complete in ([code for code in way if not code.lacking] for way in found):
        if complete:
            return _last_new(complete, parent)
    return next((_last_new(way, parent) for way in found if way), None)


def _last_new(codes: list[Source], parent: str) -> Source:
    seen = syntax_digest(parent)
    return next((code for code in reversed(codes) if syntax_digest(code.text) != seen), codes[-1])


def _renamed(codes: list[Source], entry: str, parent: str) -> list[Source]:
    function = read_source(parent).functions.get(entry) if not read_source(parent).error else None
    if function is None:
        return []
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    found = [with_entry(code, entry, parameters) for code in codes if not code.error]
    return [code for code in found if code is not None]


def _joined(codes: list[Source]) -> list[Source]:
    if len(codes) < 2:
        return []
    together = read_source("\n\n".join(code.text for code in codes))
    return [Source(together.text, together.error, ("blocks joined",))]


def _checked(code: Source, parts: Parts, finish: str, parent: str) -> Accepted | Refused:
    if code.left_out:
        return _left_out(code)
    code = with_imports(code)
    if code.undefined:
        names = ", ".join(code.undefined[:6])
        if finish == "length":
            return _cut_off(finish)
        return Refused("undefined", f"the code uses {names} without defining or importing it: give the whole module")
    if len(code.text.encode("utf-8", "replace")) > MOST_BYTES:
        return Refused("too large", f"the module is larger than {MOST_BYTES} bytes")
    if syntax_digest(code.text) == syntax_digest(parent):
        return Refused("unchanged", "the code is the version you were given, unchanged: make a real change")
    said = _labelled(parts.prose)
    title = said.get("title", "") or _first_line(parts.prose)
    return Accepted(code.text, _title(title), said.get("cause", "")[:LONGEST_NOTE], code.mended)


def _why_none(parts: Parts, codes: list[Source], finish: str, entry: str) -> Refused:
    if parts.thinking_only or finish == "length" or any(not block.closed for block in parts.blocks):
        return _cut_off(finish)
    if any(_is_diff(block) for block in parts.blocks):
        return Refused("diff", "the reply is a diff: give the whole module, every line of it")
    if omitted := [code for code in codes if code.left_out]:
        return _left_out(omitted[0])
    if broken := [code for code in codes if code.error]:
        return Refused("syntax", f"the code does not parse, {broken[-1].error}")
    if codes:
        return Refused("entry", f"the code does not define {entry}, which is called with the inputs: keep that name")
    return Refused("no code", "the reply holds no Python code: give the whole module in one ```python block")


def _cut_off(finish: str) -> Refused:
    why = "the reply reached its limit of tokens" if finish == "length" else "the reply ends in the middle of the code"
    return Refused("cut off", f"{why}: think less and give the whole module")


def _left_out(code: Source) -> Refused:
    return Refused(
        "left out", f"the code leaves parts out ({clean_line(code.left_out, 60)!r}): give every line of the module"
    )


def _is_diff(block: Block) -> bool:
    lines = block.text.split("\n")
    marked = [line for line in lines if line.startswith(("@@ ", "--- ", "+++ "))]
    return block.language in _DIFF or len(marked) >= 2


def _bare_code(prose: str) -> Source | None:
    """Code that stands in no block: the whole text, or from its first line of code to its last; None when there is none."""
    whole = read_source(prose)
    if prose.strip() and not whole.error and whole.tree.body and "def " in prose:
        return whole
    lines = prose.split("\n")
    starts = [n for n, line in enumerate(lines) if line.startswith(("import ", "from ", "@triton", "def "))]
    if not starts:
        return None
    for end in range(len(lines), starts[0], -1):
        code = read_source("\n".join(lines[starts[0] : end]))
        if not code.error:
            return code
    return read_source("\n".join(lines[starts[0] :]))


def _labelled(prose: str) -> dict[str, str]:
    """What stands behind `Title:` and `Cause:` at the start of a line, however it is emphasised; the last one counts."""
    found: dict[str, str] = {}
    for line in prose.split("\n"):
        name, colon, value = line.strip().lstrip("*#->_ ").partition(":")
        label = name.strip("*_ ").lower()
        if colon and label in ("title", "cause"):
            found[label] = clean_line(value.strip("*_ `"))
    return found


def _first_line(prose: str) -> str:
    return next((line for line in prose.split("\n") if line.strip()), "")


def _title(text: str) -> str:
    return clean_line(text.strip().strip("*#`_.:\"' "), LONGEST_TITLE)
