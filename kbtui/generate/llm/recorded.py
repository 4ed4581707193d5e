"""A recorded run that answers in place of a provider: no network, no key, no cost.

A recording is a journal, or the part of one with its `asked` and `replied` events. The reply to a question is the one that
the same prompt got; where prompts differ (another device, other times) the one of the same pull and call; and then the first
unused one to a question of the same kind and strategy. No reply is given twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbtui.errors import UsageError
from kbtui.generate.llm.chat import Answer, Chat, OnText, Question, RecordingEnds
from kbtui.generate.llm.generator import Backend, OpenBackend
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.state import events as e
from kbtui.state.records import Scalar
from kbtui.state.run_state import RunState
from kbtui.text import plural

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
"""Recordings that come with kbtui, one per problem."""


_SHAPING = frozenset({"repairs", "most_tokens", "prompt_tokens", "prompts", "choice"})


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What replay needs of a recorded run. `versions` are the candidates, for a run in which no model was asked; `label`
    says where its replies come from."""

    name: str
    replies: tuple[e.Replied, ...] = ()
    versions: tuple[e.Generated, ...] = ()
    started: e.RunStarted | None = None
    label: str = ""

    @property
    def models(self) -> str:
        """As `--model` takes them; what the replies say where the recording has no beginning."""
        if self.started is not None and self.started.model:
            return self.started.model
        return ",".join(dict.fromkeys(reply.model for reply in self.replies))

    @property
    def parameters(self) -> dict[str, Scalar]:
        """What shaped the recorded prompts and conversations; what concerns providers and money plays no part."""
        recorded = self.started.generator_parameters if self.started is not None else {}
        return {name: value for name, value in recorded.items() if name in _SHAPING}


def recording_of(name: str, events: Iterable[e.Event]) -> Recording:
    """The recording in a journal's events. Raises UsageError when nothing was written in it."""
    replies: list[e.Replied] = []
    versions: list[e.Generated] = []
    started, label = None, ""
    for event in events:
        if isinstance(event, e.Replied):
            replies.append(event)
        elif isinstance(event, e.Generated):
            versions.append(event)
        elif isinstance(event, e.RunStarted):
            started = event
        elif isinstance(event, e.Noted) and event.source == "recording":
            label = event.text
    if not replies and not any(version.strategy for version in versions):
        raise UsageError(f"{name} holds no reply and no version: there is nothing to replay")
    return Recording(name=name, replies=tuple(replies), versions=tuple(versions), started=started, label=label)


def read_recording(file: Path) -> Recording:
    """The recording in a journal or a bundled file. Raises UsageError naming file and line."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from None
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(e.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(f"{file}, line {number} is no event of a run: {error}") from None
    return recording_of(file.parent.name if file.name == "journal.jsonl" else file.stem, events)


def bundled_recording(problem: str) -> Path | None:
    """The recording that comes with kbtui for a problem; None when there is none."""
    file = FOLDER / f"{problem}.jsonl"
    return file if file.is_file() else None


class RecordedChat(Chat):
    """Answers from a recording. What was used shows in the run's own replies, so a continued run goes on where it was."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._used: set[str] = set()

    def begin(self, state: RunState) -> None:
        self._used |= {reply.recorded for pull in state.pulls.values() for reply in pull.replies}

    async def answer(self, question: Question, on_text: OnText) -> Answer:
        reply = self._find(question)
        if reply is None:
            raise RecordingEnds(
                f"{self._recording.name} holds no further reply to {question.strategy} ({question.asking})"
            )
        name = self._name(reply)
        self._used.add(name)
        on_text(reply.text, False)
        return Answer(
            text=reply.text,
            reasoning=reply.reasoning,
            finish=reply.finish,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            cost_usd=0.0,
            recorded=name,
        )

    def _find(self, question: Question) -> e.Replied | None:
        unused = [reply for reply in self._recording.replies if self._name(reply) not in self._used]
        alike = [r for r in unused if (r.strategy, r.asking) == (question.strategy, question.asking)]
        same_prompt = (reply for reply in unused if reply.prompt_digest == question.digest)
        same_place = (reply for reply in alike if (reply.pull, reply.call) == (question.pull, question.call))
        return next(same_prompt, None) or next(same_place, None) or next(iter(alike), None)

    def _name(self, reply: e.Replied) -> str:
        return f"{self._recording.name} {reply.pull}.{reply.call}"


class Free:
    """Nothing costs anything."""

    def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float | None:  # noqa: ARG002
        return 0.0


def backend_of(recording: Recording) -> OpenBackend:
    """What makes a generator replay `recording`."""

    async def open_backend(settings: LlmSettings, models: tuple[Weighted, ...]) -> Backend:  # noqa: ARG001
        label = f": {recording.label}" if recording.label else ""
        return Backend(
            chat=RecordedChat(recording),
            tariff=Free(),
            longest_reply=lambda _: None,
            versions={"recording": recording.name},
            notice=f"replays {plural(len(recording.replies), 'reply')} of {recording.name}{label}",
        )

    return open_backend
