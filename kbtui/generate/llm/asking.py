"""One question to a model, with everything around it: budget, pace, retries under a deadline, the journal, the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kbtui import clock
from kbtui.errors import ProviderFailure
from kbtui.generate.desk import Desk
from kbtui.generate.llm import tokens
from kbtui.generate.llm.chat import Answer, Chat, Failure, OnText, Question, RecordingEnds
from kbtui.generate.llm.pace import Pace
from kbtui.generate.llm.patience import Patience
from kbtui.generate.llm.purse import Reservation, Short, Tariff, reserve
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.state import events as e
from kbtui.state.records import Scalar
from kbtui.text import clean, redact_growing

DELTA_EVERY_S = 0.1
TAIL = 600
"""Characters of a growing reply that are shown."""


class AskFailure(ProviderFailure):
    """A provider did not come round. `kind` as in `Failure`."""

    def __init__(self, model: str, failure: Failure) -> None:
        super().__init__(f"{model}: {failure}")
        self.kind = failure.kind


class BudgetShort(Exception):
    """The budget pays for no further request."""

    def __init__(self, short: Short) -> None:
        super().__init__(short.reason)
        self.short = short


@dataclass
class Asker:
    """Asks on behalf of a run. `jitter` gives a number from 0 to 1; it only spreads waits and changes no result."""

    desk: Desk
    chat: Chat
    tariff: Tariff
    settings: LlmSettings
    parameters: dict[str, Scalar]
    parallel: int
    jitter: Callable[[], float]
    _paces: dict[str, Pace] = field(default_factory=dict)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _in_flight: int = 0

    async def ask(self, question: Question, about: int | None) -> e.Replied:
        """The reply, journalled with its cost.

        Raises AskFailure when the provider does not come round within the deadline, BudgetShort when the budget pays
        for no such request. When cancelled, what had arrived is journalled as a failed request.
        """
        patience = Patience(self.settings.deadline_s, self.jitter)
        while True:
            try:
                return await self._call(question, about, patience)
            except _Charged as charged:
                # What is asked again after a charge is a request of its own, with a reservation of its own: else the
                # charges of the attempts could add up to more than was reserved.
                await self.sit_out(question, charged.failure, charged.wait_s)

    async def _call(self, question: Question, about: int | None, patience: Patience) -> e.Replied:
        reservation = await self._reserve(question)
        call = self._next_call(question.pull)
        question = msgspec.structs.replace(question, most_tokens=reservation.most_tokens, call=call)
        self._write_asked(question, reservation, about)
        attempts = _Attempts(self, question, patience)
        self._in_flight += 1
        try:
            answer = await attempts.until_answered()
        except _Charged as charged:
            self._write_failed(question, charged.failure.kind, str(charged.failure), attempts)
            raise
        except Failure as failure:
            self._write_failed(question, failure.kind, str(failure), attempts)
            raise AskFailure(question.model, failure) from failure
        except RecordingEnds as ends:
            self._write_failed(question, "recording", str(ends), attempts)
            raise
        except asyncio.CancelledError:
            self._write_failed(question, "cancelled", "given up before the reply was whole", attempts)
            raise
        finally:
            self._in_flight -= 1
            self._settled.set()
        return self._write_replied(question, answer, about)

    async def sit_out(self, question: Question, failure: Failure, wait_s: float) -> None:
        """Wait before the next attempt, for all to see; the provider's other requests wait too when it has too many."""
        if failure.kind in ("rate limit", "overloaded"):
            self.pace(question.model).hold(wait_s)
        text = f"{failure}; waiting {wait_s:.0f} s (nothing charged to the arm)"
        self.desk.write(e.Noted(level="warning", text=text, source="provider"))
        self.show_wait(question, wait_s, str(failure))
        await asyncio.sleep(wait_s)

    def show_wait(self, question: Question, seconds: float, why: str) -> None:
        text = f"{seconds:.0f} s for {question.model}: {why}"
        self.desk.show(e.Progressed(stage="waiting", text=text, pull=question.pull))

    def pace(self, model: str) -> Pace:
        provider = Weighted(model).provider
        if provider not in self._paces:
            self._paces[provider] = Pace(self.parallel, self.settings.requests_per_minute)
        return self._paces[provider]

    def _next_call(self, pull: int) -> int:
        found = self.desk.state.pulls.get(pull)
        return (found.calls if found is not None else 0) + 1

    async def _reserve(self, question: Question) -> Reservation:
        while True:
            self._settled.clear()
            found = reserve(
                self.desk.state,
                self.tariff,
                question.model,
                question.messages,
                question.most_tokens,
                self._in_flight > 0,
            )
            if isinstance(found, Reservation):
                return found
            if not found.waits:
                raise BudgetShort(found)
            self.desk.show(
                e.Progressed(stage="waiting", text=f"{found.reason}: until a reply is in", pull=question.pull)
            )
            await self._settled.wait()

    # ------------------------------------------------------------ the journal

    def _write_asked(self, question: Question, reservation: Reservation, about: int | None) -> None:
        self.desk.write(
            e.Asked(
                pull=question.pull,
                call=question.call,
                model=question.model,
                asking=question.asking,
                strategy=question.strategy,
                messages=question.messages,
                prompt_digest=question.digest,
                most_tokens=question.most_tokens,
                reserved_usd=reservation.usd,
                reserved_tokens=reservation.tokens,
                about=about,
            )
        )

    def _write_failed(self, question: Question, kind: str, reason: str, attempts: _Attempts) -> None:
        self.desk.write(
            e.AskFailed(
                pull=question.pull,
                call=question.call,
                model=question.model,
                kind=kind,
                reason=reason,
                cost_usd=attempts.charged_usd,
                tokens=attempts.charged_tokens,
                seconds=clock.monotonic() - attempts.began,
            )
        )

    def _write_replied(self, question: Question, answer: Answer, about: int | None) -> e.Replied:
        counted = answer.prompt_tokens is not None and answer.completion_tokens is not None
        prompt = answer.prompt_tokens if answer.prompt_tokens is not None else _prompt_tokens(question)
        completion = answer.completion_tokens
        if completion is None:
            completion = tokens.count(answer.reasoning) + tokens.count(answer.text)
        cost = answer.cost_usd if counted else self.tariff.cost(question.model, prompt, completion)
        replied = e.Replied(
            pull=question.pull,
            call=question.call,
            model=question.model,
            asking=question.asking,
            strategy=question.strategy,
            prompt_digest=question.digest,
            text=answer.text,
            reasoning=answer.reasoning,
            finish=answer.finish,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=answer.cached_tokens,
            counted_by="provider" if counted else "tokenizer",
            cost_usd=cost,
            seconds=answer.seconds,
            first_token_s=answer.first_token_s,
            about=about,
            recorded=answer.recorded,
        )
        self.desk.write(replied)
        return replied


class _Charged(Exception):
    """An attempt failed and is charged for; asking again after `wait_s` may help."""

    def __init__(self, failure: Failure, wait_s: float) -> None:
        super().__init__(str(failure))
        self.failure, self.wait_s = failure, wait_s


@dataclass
class _Attempts:
    """The attempts at one question under one reservation; only the last of them may be charged for."""

    asker: Asker
    question: Question
    patience: Patience
    began: float = field(default_factory=lambda: clock.monotonic())
    charged_usd: float = 0.0
    charged_tokens: int = 0
    _partial: str = ""

    async def until_answered(self) -> Answer:
        """Ask until there is an answer. Raises the last Failure when waiting would pass the deadline or cannot help, and
        _Charged when the attempt is charged for and another may help."""
        while True:
            try:
                return await self._once()
            except Failure as failure:
                self._charge(failure.partial, failure.usage)
                if failure.kind == "parameter" and self._drop(failure):
                    continue
                wait_s = self.patience.wait_s(failure)
                if wait_s is None:
                    raise
                if self.charged_tokens:
                    raise _Charged(failure, wait_s) from failure
                await self.asker.sit_out(self.question, failure, wait_s)

    async def _once(self) -> Answer:
        asker, question = self.asker, self.question
        dropped = asker.desk.state.dropped_parameters.get(question.model, set())
        sent = {name: value for name, value in asker.parameters.items() if name not in dropped}
        question = msgspec.structs.replace(question, parameters=sent)
        self._partial = ""
        async with asker.pace(question.model).turn(lambda seconds, why: asker.show_wait(question, seconds, why)):
            asker.desk.show(e.Progressed(stage="generating", text=f"{question.model} is asked", pull=question.pull))
            try:
                async with asyncio.timeout(max(self.patience.left_s(), 0.0)):
                    return await asker.chat.answer(question, self._on_text())
            except TimeoutError:
                late = f"the reply was not whole after {self.patience.deadline_s:g} s"
                raise Failure("timeout", late, partial=self._partial) from None
            except asyncio.CancelledError:
                self._charge(self._partial, None)
                raise

    def _on_text(self) -> OnText:
        last = 0.0

        def on_text(text: str, thinking: bool) -> None:
            nonlocal last
            self._partial = text
            now = clock.monotonic()
            if now - last < DELTA_EVERY_S:
                return
            last = now
            self.asker.desk.show(
                e.ReplyDelta(
                    pull=self.question.pull,
                    call=self.question.call,
                    model=self.question.model,
                    characters=len(text),
                    tokens=round(len(text) / tokens.BYTES_PER_TOKEN),
                    tail=clean(redact_growing(text)[-TAIL:]),
                    thinking=thinking,
                )
            )

        return on_text

    def _charge(self, partial: str, usage: tuple[int, int] | None) -> None:
        """A reply that was cut off is charged for as far as it came, prompt included, never above what was reserved."""
        if usage is None and not partial:
            return
        prompt, completion = usage or (_prompt_tokens(self.question), tokens.count(partial))
        completion = min(completion, self.question.most_tokens)
        self.charged_tokens = prompt + completion
        self.charged_usd = self.asker.tariff.cost(self.question.model, prompt, completion) or 0.0

    def _drop(self, failure: Failure) -> bool:
        """Remember a refused parameter; False when it was not sent at all, so that leaving it out cannot help."""
        dropped = self.asker.desk.state.dropped_parameters.get(self.question.model, set())
        if failure.parameter not in self.asker.parameters or failure.parameter in dropped:
            return False
        self.asker.desk.write(
            e.ParameterDropped(model=self.question.model, parameter=failure.parameter, reason=str(failure))
        )
        return True


def _prompt_tokens(question: Question) -> int:
    return sum(tokens.count(message.text) for message in question.messages)
