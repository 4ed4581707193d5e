"""What a person or a script can ask of a live run; and what goes over the run's socket.

One JSON object per line in both directions. The server speaks first (`Hello`); then it sends `Advanced` when the
journal grew
(viewers read the journal themselves, from their own offset), transient events, and one `Reply` per `Request`.
"""

from __future__ import annotations

from typing import Union

import msgspec

from kbtui.state.events import GpuSampled, Progressed, ReplyDelta, _tag
from kbtui.state.records import Strategy

PROTOCOL_VERSION = 1


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_tag, forbid_unknown_fields=True):
    """Base of all commands. `by` says who: user@terminal or user@script."""

    by: str


class Pause(Command, frozen=True, kw_only=True):
    reason: str = ""


class Resume(Command, frozen=True, kw_only=True):
    pass


class Step(Command, frozen=True, kw_only=True):
    """Exactly one pull, then pause again."""


class Stop(Command, frozen=True, kw_only=True):
    """Finish: the pull in flight is abandoned, the summary is written, the run process ends."""


class Force(Command, frozen=True, kw_only=True):
    """The next pull takes this arm, whatever the policy says. Bans still hold: a banned arm is refused."""

    strategy: Strategy
    cluster: int | None = None
    parent_id: int | None = None


class Ban(Command, frozen=True, kw_only=True):
    strategy: Strategy
    cluster: int | None = None


class Unban(Command, frozen=True, kw_only=True):
    strategy: Strategy
    cluster: int | None = None


class Inject(Command, frozen=True, kw_only=True):
    """Queue `source` as a candidate of its own, judged like any other. `name` is shown (a file name, say)."""

    name: str
    source: str


class Pin(Command, frozen=True, kw_only=True):
    parent_id: int | None


class Cancel(Command, frozen=True, kw_only=True):
    """Give up the replies that are being written, of one pull or of all; their pulls are dropped, the run goes on."""

    pull: int | None = None


class Kill(Command, frozen=True, kw_only=True):
    """Judge a candidate no further, and end what runs for it."""

    candidate_id: int


class SetBudget(Command, frozen=True, kw_only=True):
    """New limits; None leaves one as it is. `minutes` are of the run's own clock, `patience` rewarded pulls without a new
    best."""

    iterations: int | None = None
    budget_usd: float | None = None
    tokens: int | None = None
    minutes: float | None = None
    patience: int | None = None


class Tag(Command, frozen=True, kw_only=True):
    candidate_id: int
    tag: str
    note: str = ""


class Hint(Command, frozen=True, kw_only=True):
    """What coming prompts say besides, instead of the hint before; "" takes it back."""

    text: str


class Undo(Command, frozen=True, kw_only=True):
    """Take the last steering act back. `act` is the `seq` of the one that is meant: then a later one is not taken for it."""

    act: int | None = None


AnyCommand = Union[  # noqa: UP007
    Pause, Resume, Step, Stop, Force, Ban, Unban, Inject, Pin, Kill, Cancel, SetBudget, Tag, Hint, Undo
]


class Request(msgspec.Struct, frozen=True, tag="request", tag_field="message"):
    id: int
    command: AnyCommand


class Reply(msgspec.Struct, frozen=True, tag="reply", tag_field="message"):
    """`text` is one sentence for the person who asked, on success too ("c1 fusion goes next")."""

    id: int
    ok: bool
    text: str


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="message"):
    protocol: int
    kbtui: str
    run_id: str
    pid: int
    journal: str
    seq: int


class Advanced(msgspec.Struct, frozen=True, tag="advanced", tag_field="message"):
    """The journal holds events up to `seq`."""

    seq: int


class Live(msgspec.Struct, frozen=True, tag="live", tag_field="message"):
    """A transient event."""

    event: GpuSampled | Progressed | ReplyDelta


ServerMessage = Union[Hello, Advanced, Live, Reply]  # noqa: UP007

encode = msgspec.json.Encoder().encode
decode_server: msgspec.json.Decoder[ServerMessage] = msgspec.json.Decoder(ServerMessage)
decode_request: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
