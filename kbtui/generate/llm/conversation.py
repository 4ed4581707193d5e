"""One version's conversation with a model, each step of it in the journal.

It is read off the journal as far as it went: replies that the run already has are taken from there, and only what is
missing is asked for. So a reply that was paid for before a crash is used first, and nobody pays twice.
"""

from __future__ import annotations

from typing import Protocol

from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import BudgetSpent, Exhausted, Request, Unusable, Written
from kbtui.generate.llm.asking import Asker, AskFailure, BudgetShort
from kbtui.generate.llm.chat import Question, RecordingEnds
from kbtui.generate.llm.prompt import PromptWriter
from kbtui.generate.llm.reply import Accepted, Refused, read_reply
from kbtui.state import events as e
from kbtui.state.records import Message
from kbtui.state.run_state import Candidate

MOST_UNUSABLE = 2
"""Replies without a version before the conversation ends: the first, and the one that answers its refusal."""
MOST_DUPLICATES = 3


class Models(Protocol):
    """The models that a run may ask."""

    def pick(self, request: Request, failed: Candidate | None) -> str:
        """The name of the model that writes."""
        ...

    def most_tokens(self, model: str) -> int:
        """How long its reply may get."""
        ...


class Conversation:
    """One version's: the question, and another for a reply that cannot be used."""

    def __init__(
        self, asker: Asker, prompts: PromptWriter, models: Models, request: Request, failed: Candidate | None
    ) -> None:
        self._asker, self._prompts, self._request, self._failed = asker, prompts, request, failed
        self._desk = asker.desk
        self._about = failed.id if failed is not None else None
        pull = self._desk.state.pulls.get(request.pull)
        self._stored = [reply for reply in pull.replies if reply.about == self._about] if pull is not None else []
        self._model = self._stored[0].model if self._stored else models.pick(request, failed)
        self._most_tokens = models.most_tokens(self._model)
        self._cost, self._tokens = 0.0, 0

    async def go(self) -> Written | Exhausted | Unusable:
        """Ask until there is a version. Raises ProviderFailure and BudgetSpent."""
        unusable, duplicates = 0, 0
        before: tuple[e.Replied, Refused] | None = None
        while True:
            try:
                reply = await self._reply(before)
            except BudgetShort as short:
                raise BudgetSpent(short.short.budget, str(short)) from short
            except RecordingEnds as ends:
                return Exhausted(str(ends))
            self._cost += reply.cost_usd or 0.0
            self._tokens += reply.prompt_tokens + reply.completion_tokens
            read = self._read(reply)
            if isinstance(read, Accepted):
                return self._written(read)
            duplicates = duplicates + 1 if read.kind in ("duplicate", "unchanged") else 0
            unusable += read.kind not in ("duplicate", "unchanged")
            if duplicates >= MOST_DUPLICATES:
                return Exhausted(f"{duplicates} duplicates in a row", duplicates)
            if unusable >= MOST_UNUSABLE:
                return Unusable(f"{read.kind}: {read.reason}")
            if read.kind == "cut off":
                # Raised once: the next one that is cut off ends the conversation.
                self._most_tokens *= 2
            before = reply, read

    async def _reply(self, before: tuple[e.Replied, Refused] | None) -> e.Replied:
        if self._stored:
            return self._stored.pop(0)
        messages = self._messages(self._prompts, before)
        try:
            return await self._asker.ask(self._question(messages, before), self._about)
        except AskFailure as failure:
            if failure.kind != "too long":
                raise
            # Once more with half of it; what is cut is the history, never the source.
            shorter = PromptWriter(self._prompts.templates, self._prompts.most_tokens // 2)
            return await self._asker.ask(self._question(self._messages(shorter, before), before), self._about)

    def _question(self, messages: tuple[Message, ...], before: tuple[e.Replied, Refused] | None) -> Question:
        asking: e.Asking = "rewrite" if before is not None else "repair" if self._failed is not None else "write"
        return Question(
            model=self._model,
            messages=messages,
            most_tokens=self._most_tokens,
            strategy=self._request.strategy,
            asking=asking,
            pull=self._request.pull,
        )

    def _messages(self, prompts: PromptWriter, before: tuple[e.Replied, Refused] | None) -> tuple[Message, ...]:
        messages = prompts.first(self._request, self._desk.state)
        if self._failed is not None:
            messages = prompts.repair(messages, self._failed)
        return messages if before is None else prompts.again(messages, before[0].text, before[1])

    def _read(self, reply: e.Replied) -> Accepted | Refused:
        request = self._request
        read = read_reply(reply.text, reply.finish, request.problem.entry, request.parent.source)
        if isinstance(read, Accepted) and (first := self._seen(read)) is not None:
            read = Refused("duplicate", f"that is the version of attempt #{first} once more: try something else")
        if (reply.pull, reply.call) not in self._desk.state.read_replies:
            refused = (read.kind, read.reason) if isinstance(read, Refused) else ("", "; ".join(read.mended))
            self._desk.write(e.ReplyRead(pull=reply.pull, call=reply.call, refused=refused[0], reason=refused[1]))
        return read

    def _seen(self, read: Accepted) -> int | None:
        return self._desk.state.digests.get(syntax_digest(read.source))

    def _written(self, read: Accepted) -> Written:
        taken = {self._desk.state.candidates[child].move for child in self._request.parent.children}
        title = read.title or f"{self._request.strategy.replace('_', ' ')}, untitled"
        move, number = title, 1
        while move in taken:
            number += 1
            move = f"{title} ({number})"
        return Written(
            source=read.source,
            move=move,
            detail="; ".join(read.mended),
            cost_usd=self._cost,
            tokens=self._tokens,
            model=self._model,
            reflection=read.reflection,
        )
