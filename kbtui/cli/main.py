"""The program: puts the command groups together and turns every way to end into an exit status.

0 done, 1 failed, 2 usage, 130 interrupted. A failure prints one line on stderr; the traceback comes with `--debug` or
KBTUI_DEBUG. What nobody expected is our bug: its crash report goes to a file whose path is printed.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kbtui import __version__
from kbtui.cli import about, check, control, history, new, output, prompt, run, runs
from kbtui.cli.screen import Ascii, LowBandwidth, NoMouse, Theme, drawing_flags, open_cockpit
from kbtui.errors import KbtuiError
from kbtui.text import clean_line, redact

INTERRUPTED = 130
_ParsingError: type[Any] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Typer carries its own copy of click in newer releases and depends on click in older ones; this is the base in either."""


class OutputClosedError(Exception):
    """Whoever read our output went away (`kbtui runs | head -1`): nothing is left to say."""


class _Root(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click makes a failure of it
            raise OutputClosedError from None


app = typer.Typer(
    name="kbtui",
    cls=_Root,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (run, runs, control, history, check, new, prompt, about):
    group.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"kbtui {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    version: Annotated[  # noqa: ARG001  (its callback does the work)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    theme: Theme = None,
    plain: Ascii = False,
    no_mouse: NoMouse = False,
    low_bandwidth: LowBandwidth = False,
) -> None:
    """Makes Triton kernels faster: generates variants, verifies and times them, and steers by a bandit.

    Without a command: the cockpit's home screen, to start a run, attach to one, or look at past ones.
    """
    if debug:
        os.environ["KBTUI_DEBUG"] = "1"
    if context.invoked_subcommand is None:
        from kbtui.tui.terminal import require_terminal

        require_terminal("kbtui", "name a command, `kbtui --help` lists them")
        raise typer.Exit(open_cockpit(None, drawing_flags(theme, plain, no_mouse, low_bandwidth)))


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status. Never raises, except SystemExit from the interpreter itself."""
    output.prepare()
    try:
        status = typer.main.get_command(app).main(arguments, prog_name="kbtui", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        output.discard()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        output.problem("interrupted")
        return INTERRUPTED
    except _ParsingError as error:
        error.show()
        return int(error.exit_code)
    except KbtuiError as error:
        return _failed(error)
    except Exception as error:  # noqa: BLE001  (the outermost frame: reported whole, never passed over)
        return _crashed(error)
    return status if isinstance(status, int) else 0


def _debug() -> bool:
    return os.environ.get("KBTUI_DEBUG", "") not in ("", "0")


def _failed(error: KbtuiError) -> int:
    if _debug():
        sys.stderr.write(redact(traceback.format_exc()))
    output.problem(str(error))
    return error.exit_status


def _crashed(error: Exception) -> int:
    from kbtui.cli.crash import write_report

    if _debug():
        sys.stderr.write(redact(traceback.format_exc()))
    what = clean_line(redact(f"{type(error).__name__}: {error}"), 160)
    try:
        where = f"the report is in {write_report(error)}"
    except OSError as unwritable:
        where = f"its report could not be written ({unwritable.strerror}); KBTUI_DEBUG=1 shows the traceback"
    output.problem(f"this is a bug in kbtui ({what}); {where}")
    return 1
