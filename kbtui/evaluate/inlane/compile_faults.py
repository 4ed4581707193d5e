"""What an exception out of a candidate's entry means while its kernels are compiled, and where in its source it arose."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

import triton
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.faults import (
    CALL,
    COMPILE,
    DETAIL_CHARACTERS,
    REASON_CHARACTERS,
    formatted,
    frame_lines,
    kernel_place,
    own_frames,
    place,
    said,
)

_TRITON = os.path.dirname(os.path.abspath(triton.__file__)) + os.sep


def fault(error: BaseException) -> CandidateFault:
    """What an exception out of the candidate's entry means while compiling."""
    if isinstance(error, OutOfResources):
        reason = f"needs {error.required} of {error.name}, the target has {error.limit}"
        return CandidateFault("invalid", COMPILE, _placed(reason, place(error)), "\n".join(frame_lines(error)))
    if isinstance(error, CompilationError) or _raised_in_triton(error):
        return _not_compiled(error)
    return CandidateFault("crash", CALL, said(error), formatted(error))


def _raised_in_triton(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.abspath(frames[-1].filename).startswith(_TRITON)


def _not_compiled(error: BaseException) -> CandidateFault:
    """The launch that led there, then the compiler's excerpts of the kernel and what it says, less what the reason says."""
    line = _compiler_line(error)
    file = frames[-1].filename if (frames := own_frames(error)) else ""
    shown, where, last = frame_lines(error), place(error), error
    for last in _errors(error):
        if isinstance(last, CompilationError):
            number, excerpt = _excerpt(last, file)
            shown += excerpt
            where = f"{os.path.basename(file)}:{number}" if number else where
    rest = getattr(last, "error_message", None) if isinstance(last, CompilationError) else str(last)
    shown += [text for text in (rest or "").splitlines() if text.strip() and text.strip() not in line]
    detail = "\n".join(shown)[-DETAIL_CHARACTERS:]
    return CandidateFault("invalid", COMPILE, _placed(line, where), detail)


def _excerpt(error: CompilationError, file: str) -> tuple[int, list[str]]:
    """(line in the candidate's file or 0, what Triton shows of the source over a caret) of one error of a chain."""
    text = str(error)
    if error.error_message:
        text = text.removesuffix(error.error_message)
    lines = text.rstrip().splitlines()
    found = kernel_place(error.src or "", int(getattr(error.node, "lineno", 0)), file) if file else (0, "")
    if lines and lines[0].startswith("at ") and found[0]:
        lines[0] = f'  File "{os.path.basename(file)}", line {found[0]}, in {found[1]}'
    return found[0], [lines[0], *(f"    {line}" for line in lines[1:])] if lines else []


def _errors(error: BaseException) -> Iterator[BaseException]:
    """A compiler's error and those below it: a kernel's, then those of the functions that it calls."""
    yield error
    while isinstance(error, CompilationError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
        yield error


def _placed(reason: str, where: str) -> str:
    return f"{reason} ({where})" if where else reason


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip().strip("^ ")]
    return lines[-1][:REASON_CHARACTERS] if lines else ""


def _compiler_line(error: BaseException) -> str:
    """The line that says what is wrong: of the innermost cause, of the assembler's message, or the last one."""
    *_, error = _errors(error)
    text = str(error)
    for line in text.splitlines():
        if "error" in line.lower() and ("ptxas" in line or "line" in line) and "Repro command" not in line:
            return line.strip()[:REASON_CHARACTERS]
    line = _last_line(text)
    return line if isinstance(error, CompilationError) else f"{type(error).__name__}: {line}".strip(": ")
