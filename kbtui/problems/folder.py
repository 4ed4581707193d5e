"""Finding a problem and checking its two files by their syntax alone: nothing of a problem is executed here.

What only execution can tell (the cases, whether the inputs can be made) comes from the oracle process.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from kbtui.errors import ProblemError
from kbtui.paths import library_dir, problems_dir
from kbtui.problems.checks import check_kernel, check_problem, parse
from kbtui.problems.importing import KERNEL, PROBLEM, problem_digest


@dataclass(frozen=True)
class ProblemFolder:
    """A problem that passed the static checks. `digest` is sha256 over its files; `summary` may be empty.

    `kernel_source` is "" where there is no kernel.py: then a run has to write one from scratch.
    """

    path: Path
    name: str
    kernel_file: Path
    problem_file: Path
    digest: str
    entry: str
    kernel_source: str
    summary: str

    @property
    def empty(self) -> bool:
        """Whether there is no kernel to start from."""
        return not self.kernel_source


def bundled() -> list[str]:
    """The names of the problems that come with kbtui, sorted."""
    return sorted(folder.name for folder in library_dir().iterdir() if (folder / PROBLEM).is_file())


def find_problem(text: str) -> ProblemFolder:
    """The problem called `text`: a bundled name, the path of a folder, or of the kernel.py or problem.py in one, or an
    imported problem as `SUITE/NAME`.

    A bundled name wins over a folder of the same name; `./softmax` means the folder. Raises ProblemError, with one
    sentence naming file, piece and remedy, when nothing is found or a file lacks a piece.
    """
    if text in bundled():
        return read_folder(library_dir() / text)
    try:
        path = Path(text).expanduser()
        if path.is_dir():
            return read_folder(path.resolve())
        is_file = path.is_file()
    except (OSError, RuntimeError) as error:
        # A name longer than the system allows, a folder that may not be entered, a home folder that nobody has.
        raise ProblemError(f"There is no problem {text!r} ({error}): give the path of a problem's folder") from None
    imported = problems_dir() / text
    if not is_file and "/" in text and (imported / PROBLEM).is_file():
        return read_folder(imported.resolve())
    if not is_file:
        raise ProblemError(_not_found(text))
    if path.name not in (KERNEL, PROBLEM):
        raise ProblemError(f"{path} is not a problem: give the folder that holds {KERNEL} and {PROBLEM}")
    return read_folder(path.resolve().parent)


def read_folder(folder: Path) -> ProblemFolder:
    """Read and check the problem in `folder`; its kernel.py may be missing. Raises ProblemError."""
    kernel_file, problem_file = folder / KERNEL, folder / PROBLEM
    # A link that leads nowhere is a kernel that is lost, not one that was never there.
    missing = not kernel_file.exists() and not kernel_file.is_symlink() and problem_file.exists()
    kernel_source = "" if missing else _read(kernel_file, "the kernel to speed up")
    problem_source = _read(problem_file, "its reference, cases and inputs")
    described = check_problem(problem_file, parse(problem_file, problem_source), folder)
    if not missing:
        check_kernel(kernel_file, parse(kernel_file, kernel_source), folder, described.entry)
    return ProblemFolder(
        path=folder,
        name=folder.name,
        kernel_file=kernel_file,
        problem_file=problem_file,
        digest=problem_digest(folder),
        entry=described.entry,
        kernel_source=kernel_source,
        summary=described.summary,
    )


def _not_found(text: str) -> str:
    names = bundled()
    near = difflib.get_close_matches(text.lower().replace("-", "_"), names, n=1)
    if near:
        return f"There is no problem {text!r}: did you mean {near[0]}?"
    return f"There is no problem {text!r}: give the path of a problem's folder, or one of {', '.join(names)}"


def _read(file: Path, holds: str) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ProblemError(f"{file} is missing: put {holds} there") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{file} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise ProblemError(f"{file} cannot be read ({error.strerror}): mend that and try again") from None
