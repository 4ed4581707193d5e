"""The app's part that has to do with themes: which one is first, the next one, and files that change while one looks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from textual.css.stylesheet import Stylesheet
from textual.filter import LineFilter, NoColor

from kbtui import paths
from kbtui.tui.monochrome import PlainFilter
from kbtui.tui.terminal import Terminal
from kbtui.tui.themes import COLOURS, DEFAULT, PLAIN, BadTheme, load_themes
from kbtui.tui.typeahead import KeysInTurn

if TYPE_CHECKING:
    from textual.theme import Theme

LOOK_S = 2.0
"""Theme files are looked at this often: one folder listing, nothing is read unless a file changed."""

Stamp = tuple[tuple[str, int, int], ...]
"""Name, time of change in ns and size of every theme file."""


class ThemedApp(KeysInTurn):
    """Holds the themes. What is wrong with a file goes to `tell_bad_themes`."""

    def __init__(self, terminal: Terminal, wanted: str | None, *, low_bandwidth: bool) -> None:
        """`wanted` None is the default for the terminal."""
        from kbtui.tui.driver import KbtuiDriver

        self.terminal = terminal
        self.low_bandwidth = low_bandwidth
        plain = terminal.colours == "none"
        # taken before the files are read, so that a change in between is seen
        self._stamp = stamp()
        self._themes, self._bad_themes = load_themes()
        self._told: set[str] = set()
        super().__init__(driver_class=KbtuiDriver, ansi_color=True if plain else None)
        if low_bandwidth and self.console.color_system == "truecolor":
            # a colour of 256 takes half the bytes of a true one
            self.console._color_system = ColorSystem.EIGHT_BIT
        for each in self._themes.values():
            self.register_theme(each)
        self._plain_filter = PlainFilter() if plain else None
        self.unknown_theme = wanted if wanted is not None and wanted not in self._themes else None
        """A theme that was asked for and does not exist."""
        self.theme = self._first_theme(wanted)
        # App.__init__ made the stylesheet with the variables of the theme before
        self.stylesheet = Stylesheet(variables=self.get_css_variables())

    def _first_theme(self, wanted: str | None) -> str:
        if self.terminal.colours != "many" and PLAIN in self._themes:
            return PLAIN
        if wanted in self._themes:
            return str(wanted)
        # the shipped default may be missing only from a broken installation; Textual's own theme is better than none
        return DEFAULT if DEFAULT in self._themes else self.theme

    def theme_names(self) -> list[str]:
        """The themes that can be chosen."""
        return list(self._themes)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Textual's own themes, should one be in force, lack our roles: they get those of the default."""
        base = self._themes.get(DEFAULT)
        return (
            dict(base.variables)
            if base is not None
            else dict.fromkeys((f"kb-{key}" for key in COLOURS), "ansi_default")
        )

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        if self._plain_filter is None:
            return filters
        # Textual's own filter sends codes for the default colours
        return [*(f for f in filters if not isinstance(f, NoColor)), self._plain_filter]

    # ------------------------------------------------------------ files that change

    def watch_theme_files(self) -> None:
        """Take in theme files as they change, from now on. Nothing is sent while none does."""
        self.set_interval(LOOK_S, self.look_at_theme_files)
        self.tell_bad_themes(self._fresh_complaints())

    async def look_at_theme_files(self) -> None:
        """Read the theme files again if one changed, came or went."""
        now = await asyncio.to_thread(stamp)
        if now == self._stamp:
            return
        self._stamp = now
        themes, self._bad_themes = await asyncio.to_thread(load_themes)
        self._take(themes)
        self.tell_bad_themes(self._fresh_complaints())

    def tell_bad_themes(self, complaints: list[BadTheme]) -> None:
        """Say what is wrong with theme files; `complaints` may be empty."""
        raise NotImplementedError

    def _fresh_complaints(self) -> list[BadTheme]:
        """What was not said before; a file that was mended may be complained about anew."""
        reasons = {bad.reason for bad in self._bad_themes}
        fresh = [bad for bad in self._bad_themes if bad.reason not in self._told]
        self._told = reasons
        return fresh

    def _take(self, themes: dict[str, Theme]) -> None:
        current = self.theme
        before = self._themes.get(current)
        changed = themes.get(current, before) != before
        # a file that is being edited is broken for a moment: the theme in force stays what it was until it is whole again
        self._themes = themes if before is None or current in themes else themes | {current: before}
        for theme in self._themes.values():
            self.register_theme(theme)
        if changed:
            self._watch_theme(current)


def stamp() -> Stamp:
    """What tells a changed theme file; empty for folders that cannot be listed."""
    found: list[tuple[str, int, int]] = []
    for folder in (paths.themes_dir(), paths.user_themes_dir()):
        with contextlib.suppress(OSError):
            found += sorted(_stamps(folder))
    return tuple(found)


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    out = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".toml"):
                with contextlib.suppress(FileNotFoundError):  # an editor replaced it just now
                    status = entry.stat()
                    out.append((entry.path, status.st_mtime_ns, status.st_size))
    return out
