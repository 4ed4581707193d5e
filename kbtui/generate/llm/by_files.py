"""A model that is reached through files: the prompt is written to one, and the reply is read from another one later.

For machines without a network, and for models that no provider serves: a run asks, is stopped while it waits, and goes
on with `--continue` once the replies are there. A prompt and its reply have the same name, made of the pull, what is asked
and a digest of the prompt, so that a reply to another prompt is never taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from kbtui.errors import EnvironmentFailure
from kbtui.generate.llm.chat import Answer, Chat, OnText, Question
from kbtui.generate.llm.generator import Backend, OpenBackend
from kbtui.generate.llm.recorded import Free
from kbtui.generate.llm.settings import LlmSettings, Weighted

GATHER_S = 0.5
"""Pulls that are in flight together write their prompts within this time after the first."""


class FileChat(Chat):
    """`waits` is called once a reply is missing and the prompts are out: there is nothing to do before it comes."""

    def __init__(self, prompts: Path, replies: Path, waits: Callable[[], None]) -> None:
        self._prompts, self._replies, self._waits = prompts, replies, waits

    async def answer(self, question: Question, on_text: OnText) -> Answer:
        name = f"{question.pull:03d}-{question.asking}-{question.digest[:12]}.md"
        reply, prompt = self._replies / name, self._prompts / name
        try:
            if not reply.is_file():
                prompt.parent.mkdir(parents=True, exist_ok=True)
                prompt.write_text(_shown(question), encoding="utf-8")
                asyncio.get_running_loop().call_later(GATHER_S, self._waits)
                await asyncio.Event().wait()  # until the run is stopped
            text = reply.read_text(encoding="utf-8")
        except OSError as error:
            raise EnvironmentFailure(
                f"{error.filename} cannot be used ({error.strerror}): mend that and resume"
            ) from None
        except UnicodeDecodeError:
            raise EnvironmentFailure(f"{reply} is not UTF-8: save it as UTF-8 and resume") from None
        on_text(text, False)
        prompt.unlink(missing_ok=True)  # what is in the folder waits
        return Answer(text=text, cost_usd=0.0, recorded=f"file {name}")


def _shown(question: Question) -> str:
    """The messages one after the other; the roles as headings that no message can be taken for."""
    return "\n\n".join(f"<<<<<<<< {message.role}\n{message.text}" for message in question.messages) + "\n"


def backend_of(prompts: Path, replies: Path, waits: Callable[[], None]) -> OpenBackend:
    """What makes a generator write prompts to one folder and take replies from the other."""

    async def open_backend(settings: LlmSettings, models: tuple[Weighted, ...]) -> Backend:  # noqa: ARG001
        return Backend(
            chat=FileChat(prompts, replies, waits),
            tariff=Free(),
            longest_reply=lambda _: None,
            versions={"replies": "files"},
            notice=f"prompts go to {prompts}, replies come from {replies}",
        )

    return open_backend
