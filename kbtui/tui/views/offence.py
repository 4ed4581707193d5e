"""The lines of a candidate's own source that a message complains of."""

from __future__ import annotations

import re

from kbtui.state.run_state import Candidate

_FRAME = re.compile(r'File "[^"\n]*\bkernel\.py", line (\d+)|\bkernel\.py:(\d+)')
_CARET = re.compile(r"^\s*\^+\s*$")


def offending_lines(candidate: Candidate) -> tuple[int, ...]:
    """Numbers from 1, the line to look at first; () when no message names one.

    A compiler's message shows the line over a caret, counted from the function's head and perhaps from within a library:
    it is found by its text. A traceback names the file; what it names last comes last, as the call that led there.
    """
    source = candidate.source.split("\n")
    found: list[int] = []
    for message in _messages(candidate):
        lines = message.split("\n")
        shown = [lines[at - 1].strip() for at in range(1, len(lines)) if _CARET.match(lines[at])]
        for text in reversed(shown):
            same = [number for number, line in enumerate(source, 1) if text and line.strip() == text]
            found += same if len(same) == 1 else []
        framed = [int(match.group(1) or match.group(2)) for match in _FRAME.finditer(message)]
        found += [number for number in reversed(framed) if 1 <= number <= len(source)]
    return tuple(dict.fromkeys(found))


def _messages(candidate: Candidate) -> list[str]:
    out = []
    if candidate.compilation is not None and not candidate.compilation.ok:
        out += [candidate.compilation.detail, candidate.compilation.reason]
    for seen in (candidate.verification, candidate.confirmation):
        if seen is not None and seen.verdict not in ("correct", "unknown"):
            out += [seen.detail, seen.reason]
    return out
