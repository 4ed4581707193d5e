"""Events and their JSON form: every kind survives the round trip, nothing else passes."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.state import commands as c
from kbtui.state import events as e

KINDS = typing.get_args(e.AnyEvent)
TRANSIENT = (e.GpuSampled, e.Progressed, e.ReplyDelta)
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_BUILTIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: text,
    bool: st.booleans(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type, records within records included."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _BUILTIN:
        return _BUILTIN[kind]
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    return structs(kind)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    parts = {name: values(hints[name]) for name in kind.__struct_fields__}
    return st.fixed_dictionaries(parts).map(lambda found: kind(**found))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_kind_of_event_survives_the_round_trip(kind: type[e.Event], data: st.DataObject) -> None:
    event = data.draw(structs(kind))
    line = e.encode(event)
    assert b"\n" not in line
    assert line.startswith(b'{"type":"')
    assert e.decode(line) == event
    assert type(e.decode(line)) is kind


def test_tags_are_the_names_in_snake_case() -> None:
    tags = {kind.__struct_config__.tag for kind in KINDS}
    assert len(tags) == len(KINDS)
    assert {"run_started", "pull_dropped", "gpu_sampled", "best_changed"} <= tags


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_durable_is_numbered(kind: type[e.Event]) -> None:
    assert kind in (*typing.get_args(e.Durable), *typing.get_args(e.Transient))
    assert (kind in typing.get_args(e.Transient)) == (kind in TRANSIENT)


def test_is_durable() -> None:
    assert e.is_durable(e.Stepped(by="ann"))
    assert not e.is_durable(e.Progressed(stage="idle"))
    assert not e.is_durable(e.GpuSampled(device="cuda:0", uuid="", values={}))


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"unheard_of"}',
        b'{"by":"ann"}',
        b'{"type":"stepped"}',
        b'{"type":"stepped","by":3}',
        b'{"type":"banned","by":"ann","strategy":"magic"}',
        b'{"type":"stepped","by":"ann"',
        b"[]",
        b"",
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        e.decode(line)


def test_a_field_of_the_future_is_ignored_on_an_event() -> None:
    assert e.decode(b'{"type":"stepped","by":"ann","mood":"good"}') == e.Stepped(by="ann")


COMMANDS = typing.get_args(c.AnyCommand)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_every_command_survives_the_socket(kind: type[c.Command], data: st.DataObject) -> None:
    request = c.Request(id=7, command=data.draw(structs(kind)))
    assert c.decode_request.decode(c.encode(request)) == request


@pytest.mark.parametrize(
    "line",
    [
        b'{"message":"request","id":1,"command":{"type":"reboot","by":"ann"}}',
        b'{"message":"request","id":1,"command":{"type":"pause"}}',
        b'{"message":"request","id":1,"command":{"type":"pause","by":"ann","extra":1}}',
    ],
)
def test_a_command_that_is_not_known_exactly_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        c.decode_request.decode(line)


@pytest.mark.parametrize("kind", typing.get_args(c.ServerMessage), ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_every_message_of_the_server_survives_the_socket(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    message = data.draw(structs(kind))
    assert c.decode_server.decode(c.encode(message)) == message
