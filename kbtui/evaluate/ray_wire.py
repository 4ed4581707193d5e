"""What travels between the run process, the process that is connected to a Ray cluster, and the actors on its nodes.

All of it is JSON that msgspec checks on arrival, errors included; Ray pickles bytes and numbers only.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kbtui import errors
from kbtui.errors import KbtuiError
from kbtui.state.records import KernelFacts, Timing

# to an actor and back


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and how its lane is made. `files` are by path below one folder, in which `folder` is the problem's; `digest`
    is of all of them."""

    folder: str
    files: dict[str, bytes]
    digest: str
    device: str
    target: str
    seed: int
    objective: str
    deadline_s: float
    compilers: int
    lanes: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a lane's method, with the arguments that it takes."""

    method: Literal["start", "compile", "verify", "confirm", "selftest", "time"]
    source: str = ""
    kernels: tuple[KernelFacts, ...] = ()
    baseline: Timing | None = None
    baseline_source: str = ""
    parent: Timing | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the method returned, as JSON; or the class and the sentence of the error that it raised."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    text: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Where an actor runs, and the version of kbtui there."""

    host: str
    kbtui: str


# to the process that is connected, each with a number that its answers bear


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """Place a lane: an actor that needs so much of each resource and has so many threads. Answered by a `Node`."""

    number: int
    lane: int
    needs: dict[str, float]
    threads: int
    shipment: msgspec.Raw


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Answered by what the lane's method returns, after its reports."""

    number: int
    lane: int
    request: Request


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Not answered."""

    lane: int
    source: str | None


class Close(msgspec.Struct, frozen=True, kw_only=True, tag="close"):
    """End a lane. Answered by null."""

    number: int
    lane: int


Asked = Open | Call | Cancel | Close


# and its answers


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The first words of all, number 0: what the cluster has of each resource, and the version of Ray."""

    resources: dict[str, float]
    ray: str
    number: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="said"):
    number: int
    stage: str
    text: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    number: int
    value: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """An error's class and sentence. Number 0: there is no connection."""

    number: int
    error: str
    text: str


Told = Ready | Said | Done | Failed


def error_of(name: str, text: str) -> KbtuiError:
    """The error of that class."""
    found = getattr(errors, name, None)
    kind = found if isinstance(found, type) and issubclass(found, KbtuiError) else KbtuiError
    return kind(text)
