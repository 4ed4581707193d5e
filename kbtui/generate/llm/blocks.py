"""The parts of a model's reply: thinking, prose, fenced blocks, JSON around code. Nothing here knows Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

THINKING = ("think", "thinking", "thought", "reasoning", "reflection")
"""Tags that models put around what is not the answer."""
_FENCES = ("```", "~~~")


@dataclass(frozen=True)
class Block:
    """A fenced block. `language` is the fence's first word, in lower case; `closed` False when the reply ended within it."""

    text: str
    language: str = ""
    closed: bool = True


@dataclass(frozen=True)
class Parts:
    """A reply taken apart. `prose` is what stands outside the blocks; `thinking_only` says that the reply never left its
    thinking."""

    prose: str
    blocks: tuple[Block, ...]
    thinking_only: bool = False


def take_apart(text: str) -> Parts:
    """Thinking removed, JSON unwrapped, blocks and prose told apart."""
    plain, thinking_only = without_thinking(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff"))
    prose, blocks = _fenced(plain)
    unwrapped: list[Block] = []
    for block in blocks:
        inner = _code_in_json(block.text) if block.language in ("json", "") else None
        unwrapped.extend([block] if inner is None else inner)
    if not blocks and (inner := _code_in_json(plain)) is not None:
        prose, unwrapped = "", inner
    return Parts(prose.strip(), tuple(unwrapped), thinking_only)


def without_thinking(text: str) -> tuple[str, bool]:
    """`text` without its thinking parts, and whether nothing but an unfinished one is left.

    A closing tag without an opening one ends thinking that began before the reply, as some servers deliver it.
    """
    for tag in THINKING:
        opening, closing = f"<{tag}>", f"</{tag}>"
        while True:
            lowered = text.lower()
            start, end = lowered.find(opening), lowered.find(closing)
            if end >= 0 and (start < 0 or end < start):
                text = text[end + len(closing) :]
            elif start >= 0 and end >= 0:
                text = text[:start] + text[end + len(closing) :]
            elif start >= 0:
                text = text[:start]
                if not text.strip():
                    return "", True
            else:
                break
    return text, False


def _fenced(text: str) -> tuple[str, list[Block]]:
    prose: list[str] = []
    blocks: list[Block] = []
    lines = iter(text.split("\n"))
    for line in lines:
        fence = _fence(line)
        if fence is None:
            prose.append(line)
            continue
        mark, info = fence
        blocks.append(_block(lines, mark, info))
    return "\n".join(prose), blocks


def _block(lines: Iterator[str], mark: str, info: str) -> Block:
    body: list[str] = []
    language = info.split()[0].strip("{}.").lower() if info.split() else ""
    for line in lines:
        fence = _fence(line)
        if fence is not None and fence[0].startswith(mark) and not fence[1]:
            return Block("\n".join(body), language)
        body.append(line)
    return Block("\n".join(body), language, closed=False)


def _fence(line: str) -> tuple[str, str] | None:
    """(the fence's characters, what follows them) of a line that opens or closes a block, however far it is indented."""
    stripped = line.strip()
    for mark in _FENCES:
        if stripped.startswith(mark):
            info = stripped.lstrip(mark[0])
            if mark[0] in info:  # ```code``` within a line
                return None
            return stripped[: len(stripped) - len(info)], info.strip()
    return None


def _code_in_json(text: str) -> list[Block] | None:
    """The blocks of code within a JSON object, None when `text` is none or holds none. Raw newlines in strings are taken."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    try:
        found = json.loads(stripped, strict=False)
    except ValueError:
        return None
    blocks: list[Block] = []
    for value in _strings(found):
        _, fenced = _fenced(value)
        blocks.extend(fenced or ([Block(value)] if "def " in value else []))
    return blocks or None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
