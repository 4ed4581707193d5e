"""What a request to a model and its answer are, whoever answers: a provider, or a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from kbtui.generate.digest import source_digest
from kbtui.state.events import Asking
from kbtui.state.records import Message, Scalar, Strategy
from kbtui.state.run_state import RunState

OnText = Callable[[str, bool], None]
"""Called with all that has arrived so far, and whether it is thinking."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `most_tokens` bounds the reply, thinking included."""

    model: str
    messages: tuple[Message, ...]
    most_tokens: int
    strategy: Strategy
    asking: Asking
    parameters: dict[str, Scalar] = {}
    pull: int = 0
    call: int = 0

    @property
    def digest(self) -> str:
        return prompt_digest(self.messages)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply. Token counts are None when the provider told none. `finish` is the provider's word for why it ended."""

    text: str
    reasoning: str = ""
    finish: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0
    cost_usd: float | None = None
    first_token_s: float | None = None
    seconds: float = 0.0
    recorded: str = ""


FailureKind = Literal[
    "key", "forbidden", "no model", "quota", "rate limit", "overloaded", "timeout", "dropped", "empty", "filtered",
    "too long", "parameter", "refused", "unreachable",
]  # fmt: skip
TRANSIENT: frozenset[FailureKind] = frozenset(
    {"rate limit", "overloaded", "timeout", "dropped", "empty", "unreachable"}
)
"""What may pass by itself: asked again under the total deadline."""


class Failure(Exception):
    """A request came to nothing; the provider is at fault, never the arm. `str(failure)` is one sentence without secrets.

    `wait_s` is what the provider asked to wait, None when it did not say. `parameter` is the refused one. `partial` is
    what had arrived and `usage` what the provider counted, (prompt, completion) tokens: it may charge for either.
    """

    def __init__(
        self,
        kind: FailureKind,
        reason: str,
        *,
        status: int | None = None,
        wait_s: float | None = None,
        parameter: str = "",
        partial: str = "",
        usage: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(reason)
        self.kind, self.status, self.wait_s = kind, status, wait_s
        self.parameter, self.partial, self.usage = parameter, partial, usage

    @property
    def transient(self) -> bool:
        return self.kind in TRANSIENT


class RecordingEnds(Exception):
    """A recording holds no reply to a question; the sentence says to which."""


class Chat(ABC):
    """Answers questions."""

    def begin(self, state: RunState) -> None:  # noqa: B027  (a provider remembers nothing)
        """Take note of what a run that goes on was answered before."""

    @abstractmethod
    async def answer(self, question: Question, on_text: OnText) -> Answer:
        """One attempt at a reply, streamed to `on_text`. Raises Failure, or RecordingEnds.
        Cancelling it closes the connection."""


def prompt_digest(messages: Sequence[Message]) -> str:
    """sha256 over roles and texts, hex."""
    return source_digest(msgspec.json.encode(list(messages)).decode())
