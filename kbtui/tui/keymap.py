"""Which keys do what: the registry's own, and what the configuration's `[keys]` table changes.

    [keys]
    "cockpit.pause" = "P"
    "list.cursor_down" = ["down", "n"]

The left side is an action, `place.id`; the right side a key or a list of keys, which take the place of those it had.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterator, Mapping
from itertools import combinations

from textual.keys import Keys, _character_to_key

from kbtui.errors import ConfigError
from kbtui.text import clean_line
from kbtui.tui.actions import ACTIONS, KEY_NAMES, PLACES, Action

BESIDE: dict[str, tuple[str, ...]] = {
    "tree": ("cockpit",),
    "arms": ("cockpit",),
    "force": ("dialog",),
    "form": ("dialog",),
}
"""Places besides `any` and `list` whose keys work at the same time."""


class Keymap:
    """The keys in force, by action."""

    def __init__(self, changed: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """`changed` maps `place.id` to Textual key names; make it by `read_keymap`."""
        self.changed: dict[str, tuple[str, ...]] = dict(changed or {})

    def keys_of(self, action: Action) -> tuple[str, ...]:
        """The keys of an action, the one to show first."""
        return self.changed.get(action.full_id, action.keys)

    def for_textual(self) -> dict[str, str]:
        """Binding id -> keys, as `App.set_keymap` takes them."""
        return {name: ",".join(keys) for name, keys in self.changed.items()}


def read_keymap(table: Mapping[str, tuple[str, ...]], where: str) -> Keymap:
    """The keymap of a `[keys]` table that stands in `where`.

    Raises ConfigError for an action or a key that does not exist, and for a key that would mean two things in one place.
    """
    if not table:
        return Keymap()
    known = {action.full_id: action for action in ACTIONS}
    changed: dict[str, tuple[str, ...]] = {}
    for name, keys in table.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else "`kbtui keys --json` lists them"
            raise ConfigError(f"{where}: [keys] names {clean_line(name, 60)}, which is no action; {remedy}")
        changed[name] = tuple(_read_key(key, name, where) for key in keys)
    keymap = Keymap(changed)
    _refuse_clashes(keymap, where)
    return keymap


def key_from(text: str) -> str | None:
    """Textual's name of the key that `text` names (`?`, `esc`, `ctrl+p`, `question_mark`); None when there is none."""
    if text in _BY_NAME:
        return _BY_NAME[text]
    if len(text) == 1 and text.isprintable():
        return _character_to_key(text)
    named = {key.value for key in Keys if not key.value.startswith("<")}
    return text if text in named | {_character_to_key(mark) for mark in string.punctuation} else None


_BY_NAME = {name: key for key, name in KEY_NAMES.items()}


def _read_key(text: str, name: str, where: str) -> str:
    key = key_from(text)
    if key is None:
        raise ConfigError(
            f"{where}: [keys] {name} is {clean_line(repr(text), 40)}, which is no key;"
            " keys are letters, signs, or names such as space, enter, esc, left, page up, f5, ctrl+p"
        )
    return key


def _refuse_clashes(keymap: Keymap, where: str) -> None:
    own = {frozenset(pair) for pair, _ in _clashes(Keymap())}  # a pane's own key may stand before a list's
    for (one, other), key in _clashes(keymap):
        if frozenset((one, other)) not in own:
            name = KEY_NAMES.get(key, key)
            raise ConfigError(
                f"{where}: [keys] gives {name} to both {one} and {other}, which are reached from the same place;"
                f" give one of them another key"
            )


def _clashes(keymap: Keymap) -> Iterator[tuple[tuple[str, str], str]]:
    """Pairs of actions that share a key where both can be reached, with the key."""
    for place in PLACES:
        together = {place, "any", "list", *BESIDE.get(place, ())}
        here = [action for action in ACTIONS if action.place in together]
        for one, other in combinations(here, 2):
            for key in set(keymap.keys_of(one)) & set(keymap.keys_of(other)):
                yield (one.full_id, other.full_id), key
