"""The commands: puts the command groups together, and turns what the command line's library raises into what `main` knows."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kbtui import __version__
from kbtui.cli import about, bench, check, control, history, importing, new, output, prompt, run, runs
from kbtui.cli.cockpit import drawing_flags, open_home
from kbtui.cli.screen import Ascii, LowBandwidth, NoMouse, Theme
from kbtui.errors import OutputClosedError

_ParsingError: type[Any] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Typer carries its own copy of click in newer releases and depends on click in older ones; this is the base in either."""


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
for group in (run, runs, control, history, check, new, importing, bench, prompt, about):
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
        raise typer.Exit(open_home(drawing_flags(theme, plain, no_mouse, low_bandwidth)))


def run_program(arguments: list[str] | None) -> int:
    """Run the command that `arguments` (None: those of the process) name; its exit status.

    Raises KbtuiError, OutputClosedError, KeyboardInterrupt, and whatever nobody expected.
    """
    try:
        status = typer.main.get_command(app).main(arguments, prog_name="kbtui", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _ParsingError as error:
        error.show()
        return int(error.exit_code)
    return status if isinstance(status, int) else 0
