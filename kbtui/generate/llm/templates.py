"""The prompt templates: files beside the package, each of which a file of the same name in the user's folder replaces."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

from kbtui.errors import ConfigError
from kbtui.state.records import STRATEGIES

SHIPPED = Path(__file__).resolve().parents[1] / "prompts"
FIELDS: dict[str, frozenset[str]] = {
    "system": frozenset(),
    "frame": frozenset(
        {"entry", "strategy", "advice", "contract", "device", "reference", "times", "limits", "history", "source"}
    ),
    "scratch": frozenset({"entry", "contract", "device", "reference", "times", "history"}),
    "repair": frozenset({"verdict", "stage", "failure"}),
    "unusable": frozenset({"reason"}),
    **dict.fromkeys(STRATEGIES, frozenset[str]()),
}
"""Template name -> the fields that it may use, written `$name` or `${name}`; `$$` is a dollar."""
_MUST = {"frame": "source", "repair": "failure", "unusable": "reason"}


class Templates:
    """All templates, read and checked once. Raises ConfigError for a file of the user's that cannot be used."""

    def __init__(self, folder: Path | None = None) -> None:
        self._templates = {name: string.Template(_read(SHIPPED / f"{name}.md")) for name in FIELDS}
        if folder is not None:
            self._templates |= _own(folder)

    def fill(self, name: str, fields: Mapping[str, str]) -> str:
        """The text of template `name`, its fields filled in; a field's value is never taken for a template."""
        return self._templates[name].substitute(fields).strip()


def _own(folder: Path) -> dict[str, string.Template]:
    if not folder.is_dir():
        raise ConfigError(f"prompts: there is no folder {folder}")
    found = {}
    for file in sorted(folder.glob("*.md")):
        if file.stem not in FIELDS:
            raise ConfigError(
                f"{file} is no prompt template: the names are {', '.join(f'{name}.md' for name in FIELDS)}"
            )
        found[file.stem] = _checked(file)
    return found


def _checked(file: Path) -> string.Template:
    template = string.Template(_read(file))
    if not template.is_valid():
        raise ConfigError(f"{file} has a $ that starts no field: write $$ for a dollar")
    used, known = set(template.get_identifiers()), FIELDS[file.stem]
    if used - known:
        names = ", ".join(f"${name}" for name in sorted(known)) or "none"
        raise ConfigError(f"{file} uses ${min(used - known)}, which does not exist; its fields: {names}")
    must = _MUST.get(file.stem)
    if must is not None and must not in used:
        raise ConfigError(f"{file} lacks ${must}, without which the model cannot know what to work on")
    return template


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
