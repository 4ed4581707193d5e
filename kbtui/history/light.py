"""Events as the database takes them in: the scores of a choice stay the JSON that they are.

Every pull has the scores of all arms, the most of a journal beside the sources. Nothing in the fold but the last ones is made of
them, so to make records of them only to write them out again took a fifth of the time of taking a run in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec

from kbtui.state import events as e

Choice: Any = msgspec.defstruct(
    "Choice",
    [
        (field.name, msgspec.Raw if field.name == "scores" else field.type, *_default)
        for field in msgspec.structs.fields(e.Selected)
        for _default in [() if field.required else (field.default,)]
    ],
    bases=(msgspec.Struct,),
    tag_field="type",
    tag="selected",
    frozen=True,
    kw_only=True,
)
"""`e.Selected` with `scores` as text."""

_Light: Any = reduce(or_, [Choice if kind is e.Selected else kind for kind in get_args(e.AnyEvent)])
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Light)


def decode_lines(lines: bytes) -> list[Any]:
    """As `events.decode_lines`, with a `Choice` for each `Selected`."""
    return _decoder.decode_lines(lines)


def whole(events: Sequence[Any]) -> list[e.Event]:
    """The events for the fold, which asks for no score of the past."""
    return [_selected(event) if type(event) is Choice else event for event in events]


def _selected(choice: Any) -> e.Selected:
    return e.Selected(
        **{name: getattr(choice, name) for name in e.Selected.__struct_fields__ if name != "scores"}, scores=()
    )
