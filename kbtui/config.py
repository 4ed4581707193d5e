"""Settings: the user's file, then the project's, then the environment, then flags; later ones win.

Files are flat TOML (`~/.config/kbtui/config.toml`, `./kbtui.toml`), variables are `KBTUI_<KEY>`. A key nobody knows is an
error that names where it stands. API keys are no settings: they come from the environment only, under their own names.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kbtui import paths
from kbtui.errors import ConfigError
from kbtui.text import clean_line, is_secret_name

Scalar = int | float | str | bool
OBJECTIVES = ("geomean", "total", "worst")
PREFIX = "KBTUI_"
MOST_PULLS, MOST_WHOLE = 10**9, 2**63 - 1
"""The largest numbers that the history database can hold, of pulls and of anything else that is counted."""
NOT_SETTINGS = frozenset({"KBTUI_HOME", "KBTUI_DEBUG"})
"""Variables of ours that are read elsewhere: they must work before, or without, a configuration."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a user can set, with its default. Names are those of the flags, with `_` for `-`."""

    generator: str = "rewrite"
    model: str = ""
    api_base: str = ""
    local: bool = False
    allow_unknown_price: bool = False
    model_choice: str = "weights"
    model_parameters: dict[str, Scalar] = {}
    prompts: str = ""
    repairs: int = 2
    reply_tokens: int = 16384
    prompt_tokens: int = 16384
    reply_silence_s: float = 300.0
    reply_deadline_s: float = 900.0
    requests_per_minute: float = 0.0
    policy: str = "ucb"
    policy_parameters: dict[str, Scalar] = {}
    iterations: int = 20
    budget_usd: float = 1.0
    budget_tokens: int = 0
    budget_minutes: float = 0.0
    patience: int = 0
    speed_of_light: float = 95.0
    objective: str = "geomean"
    dispatch: bool = True
    device: str = ""
    target: str = "sm_90"
    python: str = ""
    seed: int = 0
    parallel: int = 0
    lanes: str = "local"
    address: str = ""
    theme: str = ""
    ascii: bool = False
    mouse: bool = True
    low_bandwidth: bool = False
    keys: dict[str, tuple[str, ...]] = {}

    @property
    def interpreter(self) -> str:
        """The interpreter of the lanes: `python`, or the one that runs kbtui."""
        return self.python or sys.executable


def load_settings(flags: Mapping[str, object] | None = None) -> tuple[Settings, dict[str, str]]:
    """The merged settings and, by key, where each value came from ("default", a file, a variable, a flag).

    `flags` maps setting names to values from the command line; None means that the flag was not given. Raises ConfigError
    for a key that does not exist, a value of the wrong type or out of range, and a file that cannot be read.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    for file in (paths.config_file(), Path("kbtui.toml")):
        _take(_read_file(file), str(file), values, origins, "file")
    _take(_read_environment(), PREFIX, values, origins, "variable")
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    _take(given, "--", values, origins, "flag")
    return Settings(**values), origins


def _take(found: Mapping[str, object], place: str, values: dict[str, Any], origins: dict[str, str], kind: str) -> None:
    for key, value in found.items():
        origin = {"file": place, "variable": f"{place}{key.upper()}", "flag": f"{place}{key.replace('_', '-')}"}[kind]
        if key not in _READERS:
            raise ConfigError(_unknown(key, place, kind))
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            name = f"{origin}: {key}" if kind == "file" else origin
            raise ConfigError(f"{name} must be {error}, not {clean_line(repr(value), 60)}") from None
        origins[key] = origin


def _unknown(key: str, place: str, kind: str) -> str:
    if kind == "file" and is_secret_name(key):
        return f"{place}: {clean_line(key, 60)} looks like a secret; keys are read from the environment only, remove it here"
    name = (
        f"{PREFIX}{key.upper()} is no setting"
        if kind == "variable"
        else f"{place}: no setting is called {clean_line(key, 60)}"
    )
    near = difflib.get_close_matches(key, _READERS, n=1)
    if not near:
        return f"{name}; `kbtui doctor` lists those that exist"
    meant = f"{PREFIX}{near[0].upper()}" if kind == "variable" else near[0]
    return f"{name}; did you mean {meant}?"


def _read_file(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {clean_line(str(error), 200)}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _read_environment() -> dict[str, object]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in sorted(os.environ.items())
        if name.startswith(PREFIX) and name not in NOT_SETTINGS
    }


# ---------------------------------------------------------------- one reader per type; ValueError says what is wanted


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _choice(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return str(value)

    return read


def _whole(least: int, most: int = MOST_WHOLE) -> Callable[[object], int]:
    wanted = f"a whole number of {least} or more"

    def read(value: object) -> int:
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise ValueError(wanted) from None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(wanted)
        if value > most:
            raise ValueError(f"{wanted}, at most {most:,}")
        return value

    return read


def _amount(value: object) -> float:
    wanted = "a number of 0 or more"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(wanted) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(wanted)
    return float(value)


def _percent(value: object) -> float:
    wanted = "a percentage, 0 to 100"
    try:
        found = _amount(value)
    except ValueError:
        raise ValueError(wanted) from None
    if found > 100:
        raise ValueError(wanted)
    return found


def _yes_no(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "yes", "1", "false", "no", "0"):
        return value.lower() in ("true", "yes", "1")
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def parse_scalar(text: str) -> Scalar:
    """The TOML value that `text` spells (`2`, `0.5`, `true`), else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
    return value if isinstance(value, int | float | str | bool) else text


def _parameters(value: object) -> dict[str, Scalar]:
    wanted = "name=value pairs (a table in a file, `c=2,threshold_sm=75` elsewhere)"
    if isinstance(value, str):
        pairs = [piece.partition("=") for piece in value.split(",") if piece.strip()]
        if not all(name.strip() and equals for name, equals, _ in pairs):
            raise ValueError(wanted)
        return {name.strip(): parse_scalar(text.strip()) for name, _, text in pairs}
    if not isinstance(value, Mapping) or not all(isinstance(v, int | float | str | bool) for v in value.values()):
        raise ValueError(wanted)
    return dict(value)


def _keys(value: object) -> dict[str, tuple[str, ...]]:
    """Actions and their keys; whether they exist is the cockpit's business."""
    wanted = 'a table of actions and their keys (`"cockpit.pause" = "P"`; `cockpit.pause=P,any.theme=f4` elsewhere)'
    if isinstance(value, str):
        pairs = [piece.strip().partition("=") for piece in value.split(",") if piece.strip()]
        if not all(name and key for name, _, key in pairs):
            raise ValueError(wanted)
        return {name: (key,) for name, _, key in pairs}
    if not isinstance(value, Mapping):
        raise ValueError(wanted)
    found: dict[str, tuple[str, ...]] = {}
    for name, keys in _flat(value).items():
        each = (keys,) if isinstance(keys, str) else tuple(keys) if isinstance(keys, list) else ()
        if not each or not all(isinstance(key, str) and key for key in each):
            raise ValueError(f"{wanted}, with a key or a list of keys for {clean_line(name, 60)}")
        found[name] = each
    return found


def _flat(table: Mapping[str, object]) -> dict[str, object]:
    """`{"cockpit": {"pause": "P"}}`, which is what TOML makes of `cockpit.pause` without quotes, by full names."""
    out: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            out |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            out[name] = value
    return out


_READERS: dict[str, Callable[[object], Any]] = {
    "generator": _text,
    "model": _text,
    "api_base": _text,
    "local": _yes_no,
    "allow_unknown_price": _yes_no,
    "model_choice": _choice("weights", "cost"),
    "model_parameters": _parameters,
    "prompts": _text,
    "repairs": _whole(0),
    "reply_tokens": _whole(256),
    "prompt_tokens": _whole(256),
    "reply_silence_s": _amount,
    "reply_deadline_s": _amount,
    "requests_per_minute": _amount,
    "policy": _text,
    "policy_parameters": _parameters,
    "iterations": _whole(1, MOST_PULLS),
    "budget_usd": _amount,
    "budget_tokens": _whole(0),
    "budget_minutes": _amount,
    "patience": _whole(0, MOST_PULLS),
    "speed_of_light": _percent,
    "objective": _choice(*OBJECTIVES),
    "dispatch": _yes_no,
    "device": _text,
    "target": _text,
    "python": _text,
    "seed": _whole(0),
    "parallel": _whole(0),
    "lanes": _choice("local", "ray"),
    "address": _text,
    "theme": _text,
    "ascii": _yes_no,
    "mouse": _yes_no,
    "low_bandwidth": _yes_no,
    "keys": _keys,
}
