"""The program: turns every way to end into an exit status.

0 done, 1 failed, 2 usage, 130 interrupted. A failure prints one line on stderr; the traceback comes with `--debug` or
KBTUI_DEBUG. What nobody expected is our bug: its crash report goes to a file whose path is printed.
"""

from __future__ import annotations

import os
import sys
import traceback

from kbtui.cli import output
from kbtui.errors import Crash, KbtuiError, OutputClosedError
from kbtui.text import redact

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status. Never raises, except SystemExit from the interpreter itself."""
    output.prepare()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        output.discard()
        return 0
    except KeyboardInterrupt:
        output.problem("interrupted")
        return INTERRUPTED
    except KbtuiError as error:
        return _failed(error)
    except Exception as error:  # noqa: BLE001  (the outermost frame: reported whole, never passed over)
        return _crashed(error)
    return status


def _run(arguments: list[str] | None) -> int:
    if not (sys.argv[1:] if arguments is None else arguments):
        # what people type most gets its screen without the time that parsing a command line takes to load
        from kbtui.cli.cockpit import open_home

        return open_home({})
    from kbtui.cli.program import run_program

    return run_program(arguments)


def _debug() -> bool:
    return os.environ.get("KBTUI_DEBUG", "") not in ("", "0")


def _failed(error: KbtuiError) -> int:
    if _debug():
        sys.stderr.write(redact(traceback.format_exc()))
    output.problem(str(error))
    return error.exit_status


def _crashed(error: Exception) -> int:
    from kbtui.cli.crash import reported

    bug, after = (error.__cause__ or error, f"; {error}") if isinstance(error, Crash) else (error, "")
    if _debug():
        sys.stderr.write(redact("".join(traceback.format_exception(bug))))
    output.problem(f"{reported(error)}{after}")
    return 1
