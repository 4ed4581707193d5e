"""Starting the cockpit, and the options that say how it draws."""

from __future__ import annotations

from typing import Annotated

import typer

from kbtui.config import load_settings

Theme = Annotated[str | None, typer.Option(metavar="NAME", help="The cockpit's theme; `kbtui themes` lists them.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw the cockpit with ASCII glyphs only.")]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal.")]
LowBandwidth = Annotated[bool, typer.Option("--low-bandwidth", help="Send less to the terminal, for slow links.")]


def drawing_flags(theme: str | None, plain: bool, no_mouse: bool, low_bandwidth: bool) -> dict[str, object]:
    """The options as setting flags: an option that was not given leaves the setting as it is."""
    return {
        "theme": theme,
        "ascii": True if plain else None,
        "mouse": False if no_mouse else None,
        "low_bandwidth": True if low_bandwidth else None,
    }


def open_cockpit(run_id: str | None, flags: dict[str, object], *, read_only: bool = False) -> int:
    """The cockpit on a run, or its home screen for None; its exit status. Call `require_terminal` first.

    Raises ConfigError for settings that do not hold, before anything is painted.
    """
    from kbtui.tui.app import run_app
    from kbtui.tui.keymap import read_keymap

    settings, origins = load_settings(flags)
    return run_app(
        run_id,
        read_only=read_only,
        ascii=settings.ascii,
        theme=settings.theme or None,
        mouse=settings.mouse,
        low_bandwidth=settings.low_bandwidth,
        keys=read_keymap(settings.keys, origins["keys"]),
    )
