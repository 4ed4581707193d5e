"""Theme files: TOML with a name, whether it is dark, and colours by role (themes/README.md).

The shipped ones and the user's are read the same way; a user's theme of the same name wins. A file that is not a theme
is skipped, and one sentence says which file and which key.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from kbtui import paths
from kbtui.text import clean_line

DEFAULT = "kbtui-dark"
PLAIN = "ansi"
"""The theme that uses the terminal's own colours; also what `NO_COLOR` and 8- and 16-colour terminals get."""

COLOURS: dict[str, str] = {
    "background": "behind everything",
    "panel": "title rows, header and footer",
    "foreground": "text",
    "muted": "labels and what is less important",
    "faint": "rails of the tree, line numbers",
    "accent": "the best candidate and the selection",
    "cursor": "behind the chosen line",
    "good": "faster, correct",
    "bad": "wrong, crashed",
    "warning": "paused, suspicious",
    "information": "in work, notes",
    "alarm": "cheats and bans",
    "estimate": "modelled numbers",
    "curve": "the curve and the sparklines",
    "keyword": "source: keywords",
    "name": "source: names of functions and classes",
    "string": "source: strings",
    "number": "source: numbers",
    "comment": "source: comments",
    "added": "behind added lines",
    "removed": "behind removed lines",
}
"""Every colour a theme file gives, all of them required, and what it is for."""


@dataclass(frozen=True)
class BadTheme:
    """A file that is not a theme, and the sentence that says why."""

    path: Path
    reason: str


class ThemeFileError(ValueError):
    """What is wrong with a theme file, naming the key."""


def load_themes() -> tuple[dict[str, Theme], list[BadTheme]]:
    """All themes by name, the shipped ones first, and the files that are none."""
    themes: dict[str, Theme] = {}
    bad: list[BadTheme] = []
    for folder in (paths.themes_dir(), paths.user_themes_dir()):
        if not folder.is_dir():
            continue
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except ThemeFileError as error:
                bad.append(BadTheme(path, f"{path}: {error}"))
            else:
                themes[theme.name] = theme
    return themes, bad


def read_theme(path: Path) -> Theme:
    """The theme of one file. Raises ThemeFileError naming the key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThemeFileError(f"cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ThemeFileError(f"is not TOML: {error}") from error
    _only(content, {"name", "dark", "terminal_colours", "colours"})
    name = _typed(content, "name", str, "a text")
    if not name or clean_line(name) != name or len(name) > 40:
        raise ThemeFileError("`name` must be 1 to 40 printable characters")
    dark = _typed(content, "dark", bool, "true or false")
    native = _typed({"terminal_colours": False, **content}, "terminal_colours", bool, "true or false")
    return _theme(name, dark, native, _colours(content))


def _only(table: dict[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            raise ThemeFileError(f"`{key}` is not a key of a theme; it has {', '.join(sorted(known))}")


def _typed(table: dict[str, Any], key: str, kind: type, words: str) -> Any:
    if not isinstance(table.get(key), kind):
        raise ThemeFileError(f"`{key}` must be {words}" if key in table else f"`{key}` is missing")
    return table[key]


def _colours(content: dict[str, Any]) -> dict[str, str]:
    table = _typed(content, "colours", dict, "a table of colours")
    for key in table:
        if key not in COLOURS:
            raise ThemeFileError(f"`colours.{key}` is not a colour of a theme; see themes/README.md")
    for key in COLOURS:
        value = table.get(key)
        if value is None:
            raise ThemeFileError(f"`colours.{key}` is missing: {COLOURS[key]}")
        try:
            Color.parse(value)
        except (ColorParseError, TypeError, AttributeError):
            raise ThemeFileError(
                f"`colours.{key}` is {clean_line(repr(value), 40)}, which is not a colour such as #88aaff"
            ) from None
    return {key: str(table[key]) for key in COLOURS}


def _theme(name: str, dark: bool, native: bool, colours: dict[str, str]) -> Theme:
    return Theme(
        name=name,
        dark=dark,
        ansi=native,
        primary=colours["accent"],
        secondary=colours["information"],
        accent=colours["accent"],
        warning=colours["warning"],
        error=colours["bad"],
        success=colours["good"],
        foreground=colours["foreground"],
        background=colours["background"],
        surface=colours["background"],
        panel=colours["panel"],
        boost=colours["panel"],
        variables={
            **{f"kb-{key}": value for key, value in colours.items()},
            # Textual gives these two to themes of true colours only, and its own styles use them for the others
            "ansi-background": colours["background"],
            "ansi-foreground": colours["foreground"],
            "input-cursor-background": colours["foreground"],
            "input-cursor-foreground": colours["background"],
            "input-selection-background": colours["cursor"],
            "screen-selection-background": colours["cursor"],
            "screen-selection-foreground": colours["foreground"],
        },
    )
