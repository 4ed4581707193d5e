"""What is said of an exception out of a candidate: the lines of its own that led there, then what went wrong, once.

Frames of Triton, of torch, of Python and of kbtui are nobody's to mend, and neither are the folders of the moment: the
candidate's file is called `kernel.py`, whatever lies before that name.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator

from kbtui.evaluate.inlane.bootstrap import PACKAGE

NO_DEVICE = "device"
"""Stage of a process in which CUDA did not start, before anything of a candidate ran."""
COMPILE, CALL = "compile", "call"
"""Stages of a failure: in Triton's compiler, or in the candidate's entry around a kernel."""
DETAIL_CHARACTERS = 8192
REASON_CHARACTERS = 500
LINE_CHARACTERS = 200
FIRST_FRAMES, LAST_FRAMES = 3, 6
"""Of a recursion without end so many are shown, from both ends."""
MOST_CAUSES = 4
KERNEL = "kernel.py"
_FOREIGN = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(PACKAGE / "evaluate") + os.sep,
    str(PACKAGE / "problems" / "importing.py"),
    str(PACKAGE / "problems" / "format.py"),
    "<",
)
_DEFINED = re.compile(r"\s*def\s+(\w+)")


def one_line(error: BaseException) -> str:
    """`ValueError: last line of its text`, for a sentence; of a CUDA error of torch the first, which hints follow."""
    chosen = _chosen(error)
    return f"{type(error).__name__}: {chosen}"[:REASON_CHARACTERS] if chosen else type(error).__name__


def _chosen(error: BaseException) -> str:
    lines = _text(error).strip().splitlines()
    return lines[0 if "CUDA" in lines[0] else -1].strip() if lines else ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the class may be the candidate's
        return "its text cannot be had"


def said(error: BaseException) -> str:
    """`one_line` and the place in the candidate's source: `ValueError: no such shape (kernel.py:23)`."""
    where = place(error)
    return f"{one_line(error)} ({where})" if where else one_line(error)


def place(error: BaseException) -> str:
    """`kernel.py:23`, the innermost line of the candidate's that led to an exception; "" when none of its lines did."""
    frames = own_frames(error)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the candidate and of what lies beside it, outermost first."""
    linecache.checkcache()
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(_FOREIGN)]


def formatted(error: BaseException) -> str:
    """The candidate's own frames and what the message says beyond `one_line`. An exception that none of its lines led to is
    ours, and shown whole."""
    if not isinstance(error, SyntaxError) and not own_frames(error):
        return "".join(traceback.format_exception(error))[-DETAIL_CHARACTERS:]
    lines = [*frame_lines(error), *_more(error), *_causes(error)]
    return "\n".join(lines)[-DETAIL_CHARACTERS:]


def frame_lines(error: BaseException) -> list[str]:
    """The candidate's own frames as a traceback shows them."""
    frames = own_frames(error)
    shown = [_shown(frame.filename, frame.lineno or 0, frame.name, frame.line or "") for frame in frames]
    if len(shown) > FIRST_FRAMES + LAST_FRAMES:
        left = len(shown) - FIRST_FRAMES - LAST_FRAMES
        shown = [*shown[:FIRST_FRAMES], f"  ... {left} more calls", *shown[-LAST_FRAMES:]]
    return shown


def _shown(file: str, line: int, function: str, text: str) -> str:
    head = f'  File "{os.path.basename(file)}", line {line}, in {function}'
    return f"{head}\n    {text[:LINE_CHARACTERS]}" if text else head


def _more(error: BaseException) -> list[str]:
    """Of a message of several lines those that are not in `one_line`; of a syntax error its line with the caret."""
    if isinstance(error, SyntaxError):
        shown = traceback.format_exception_only(error)[:-1]
        return [_without_folder(line.rstrip("\n"), error.filename or "") for line in shown]
    lines = _text(error).strip().splitlines()
    chosen = _chosen(error)
    return [line for line in lines if line.strip() != chosen] if len(lines) > 1 else []


def _without_folder(text: str, file: str) -> str:
    return text.replace(file, os.path.basename(file)) if file else text


def _causes(error: BaseException) -> Iterator[str]:
    """What an exception came from, where the candidate, or what it called, turned one into another."""
    seen = {id(error)}
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None and id(cause) not in seen and len(seen) <= MOST_CAUSES:
        seen.add(id(cause))
        yield f"after {said(cause)}"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def kernel_place(source: str, line: int, file: str) -> tuple[int, str]:
    """(line in `file`, function) of line number `line` of a kernel's own `source`, which Triton keeps from its `def` on and
    without indentation; (0, function) when the file has no such function."""
    wanted = [text.strip() for text in source.rstrip().splitlines()]
    match = _DEFINED.match(source)
    name = match.group(1) if match is not None else ""
    have = [text.strip() for text in linecache.getlines(file)]
    for start, text in enumerate(have):
        if wanted and text == wanted[0] and have[start : start + len(wanted)] == wanted:
            return start + line, name
    return 0, name
