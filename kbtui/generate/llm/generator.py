"""The `llm` generator, and the `replay` of what it recorded: the same conversations, with another that answers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from kbtui.errors import UnknownPriceError, UsageError
from kbtui.generate.desk import Desk
from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import Exhausted, Generator, Request, Unusable, Written
from kbtui.generate.llm import tokens
from kbtui.generate.llm.asking import Asker
from kbtui.generate.llm.chat import Chat
from kbtui.generate.llm.choice import choose
from kbtui.generate.llm.conversation import Conversation
from kbtui.generate.llm.prompt import PromptWriter
from kbtui.generate.llm.purse import Tariff
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.generate.llm.templates import Templates
from kbtui.state.records import STRATEGIES, DeviceInfo, ProblemInfo, Scalar
from kbtui.state.run_state import Candidate, RunState

EXPECTED_PROMPT = 2000
EXPECTED_REPLY = 4000
"""Tokens of a usual reply, thinking included: for the estimate before the start, not for the cap."""


@dataclass(frozen=True)
class Backend:
    """What answers, what it costs, how long a reply may get, and what the journal should know of it."""

    chat: Chat
    tariff: Tariff
    longest_reply: Callable[[str], int | None]
    versions: dict[str, str]
    notice: str = ""


OpenBackend = Callable[[LlmSettings, tuple[Weighted, ...]], Awaitable[Backend]]


class LlmGenerator(Generator):
    """Has models write versions. `open_backend` is called by `prepare`, once."""

    from_scratch = True

    def __init__(
        self,
        name: str,
        settings: LlmSettings,
        models: tuple[Weighted, ...],
        passed_on: dict[str, Scalar],
        open_backend: OpenBackend,
        *,
        budget_tokens: int | None = None,
    ) -> None:
        self.name = name
        self.repairs = settings.repairs
        self._settings, self._models, self._passed_on = settings, models, passed_on
        self._open_backend = open_backend
        self._budget_tokens = budget_tokens
        templates = Templates(Path(settings.prompts).expanduser() if settings.prompts else None)
        self._prompts = PromptWriter(templates, settings.prompt_tokens)
        self._backend: Backend | None = None
        self._parallel = 1
        self._asker: Asker | None = None

    async def prepare(self, parallel: int) -> None:
        """Open the backend and see that every model's price is known, or that something else bounds the spending."""
        self._backend = await self._open_backend(self._settings, self._models)
        self._parallel = parallel
        if self._settings.allow_unknown_price or self._budget_tokens is not None:
            return
        for model in self._models:
            if self._backend.tariff.cost(model.name, 1, 1) is None:
                raise UnknownPriceError(
                    f"nobody knows what {model.name} costs, so no dollar budget can hold: give --budget-tokens N, or "
                    "--allow-unknown-price, or local = true in the configuration if it costs nothing"
                )

    def attach(self, desk: Desk) -> None:
        backend = self._opened()
        backend.chat.begin(desk.state)
        self._asker = Asker(
            desk=desk,
            chat=backend.chat,
            tariff=backend.tariff,
            settings=self._settings,
            parameters=self._passed_on,
            parallel=self._parallel,
            jitter=random.random,
        )

    def versions(self) -> dict[str, str]:
        return self._opened().versions

    def notices(self, problem: ProblemInfo, device: DeviceInfo, source: str, iterations: int) -> list[str]:
        backend = self._opened()
        request = preview_request(problem, device, source)
        prompt = sum(tokens.count(message.text) for message in self._prompts.first(request, RunState()))
        lines = [backend.notice] if backend.notice else []
        if self.name == "llm":
            lines += [self._estimate(model, prompt, iterations) for model in self._models]
        return lines

    def _estimate(self, model: Weighted, prompt: int, iterations: int) -> str:
        calls = f"{model.name}: about {prompt} tokens in and {EXPECTED_REPLY} out a call"
        one = self._opened().tariff.cost(model.name, prompt, EXPECTED_REPLY)
        if one is None:
            return f"{calls}, price unknown"
        most = one * iterations * (1 + self.repairs)
        return f"{calls}, ${one:.4f}; {iterations} pulls ${one * iterations:.2f} to ${most:.2f} with repairs (estimate)"

    def moves(self, source: str, entry: str) -> dict[str, int]:  # noqa: ARG002
        """A model can try every strategy on every version."""
        return dict.fromkeys(STRATEGIES, 1)

    async def write(self, request: Request) -> Written | Exhausted | Unusable:
        return await self._conversation(request, None).go()

    async def repair(self, request: Request, failed: Candidate) -> Written | Exhausted | Unusable:
        return await self._conversation(request, failed).go()

    def pick(self, request: Request, failed: Candidate | None) -> str:
        """The model that writes: the one that wrote what is to be mended, else one of several."""
        if failed is not None and any(model.name == failed.model for model in self._models):
            return failed.model
        cost = self._opened().tariff.cost
        expected = {model.name: cost(model.name, EXPECTED_PROMPT, EXPECTED_REPLY) or 0.0 for model in self._models}
        return choose(self._models, self._settings.choice, self._asking().desk.state, expected, request.seed).name

    def most_tokens(self, model: str) -> int:
        longest = self._opened().longest_reply(model)
        return min(self._settings.most_tokens, longest) if longest is not None else self._settings.most_tokens

    def _conversation(self, request: Request, failed: Candidate | None) -> Conversation:
        return Conversation(self._asking(), self._prompts, self, request, failed)

    def _asking(self) -> Asker:
        assert self._asker is not None, "attach a desk first"
        return self._asker

    def _opened(self) -> Backend:
        assert self._backend is not None, "prepare first"
        return self._backend


def preview_request(problem: ProblemInfo, device: DeviceInfo, source: str, strategy: str = "tiling") -> Request:
    """A request for a first version of `source`, of which nothing is known yet. Raises UsageError for an unknown strategy."""
    found = next((known for known in STRATEGIES if known == strategy), None)
    if found is None:
        raise UsageError(f"--strategy {strategy} is unknown: use one of {', '.join(STRATEGIES)}")
    parent = Candidate(
        id=0,
        parent_id=None,
        pull=0,
        strategy=None,
        generator="baseline",
        move="baseline",
        source=source,
        source_digest="",
        syntax_digest=syntax_digest(source),
    )
    return Request(
        problem=problem,
        device=device,
        parent=parent,
        strategy=found,
        pull=1,
        seed=(0, 1, 0),
        seen=frozenset(),
        tried=frozenset(),
    )
