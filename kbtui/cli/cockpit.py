"""Starting the cockpit. Light on purpose: the home screen is on its way before anything else is loaded."""

from __future__ import annotations

from kbtui.config import load_settings


def drawing_flags(theme: str | None, plain: bool, no_mouse: bool, low_bandwidth: bool) -> dict[str, object]:
    """The options as setting flags: an option that was not given leaves the setting as it is."""
    return {
        "theme": theme,
        "ascii": True if plain else None,
        "mouse": False if no_mouse else None,
        "low_bandwidth": True if low_bandwidth else None,
    }


def open_cockpit(run_id: str | None, flags: dict[str, object], *, read_only: bool = False, replay: bool = False) -> int:
    """The cockpit on a run, its replay, or the home screen for None; its exit status. Call `require_terminal` first.

    Raises ConfigError for settings that do not hold, before anything is painted.
    """
    from kbtui.tui.app import run_app
    from kbtui.tui.keymap import read_keymap

    settings, origins = load_settings(flags)
    return run_app(
        run_id,
        read_only=read_only,
        replay=replay,
        ascii=settings.ascii,
        theme=settings.theme or None,
        mouse=settings.mouse,
        low_bandwidth=settings.low_bandwidth,
        keys=read_keymap(settings.keys, origins["keys"]),
    )


def open_home(flags: dict[str, object]) -> int:
    """The home screen; its exit status. Raises UsageError where there is no terminal to paint on."""
    from kbtui.tui.terminal import require_terminal

    require_terminal("kbtui", "name a command, `kbtui --help` lists them")
    return open_cockpit(None, flags)
