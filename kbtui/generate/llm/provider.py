"""Models through litellm: the only module that imports it, and only once a model is to be asked.

litellm's own retries are off: it would sleep through a Retry-After inside the call, unseen (180 s at a timeout of 3 s).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kbtui import clock
from kbtui.errors import UsageError
from kbtui.generate.llm.chat import Answer, Chat, Failure, FailureKind, OnText, Question
from kbtui.generate.llm.failures import failure
from kbtui.generate.llm.generator import Backend
from kbtui.generate.llm.settings import LlmSettings, Weighted, is_local

NO_KEY = "none"
"""Sent to a local server that asks for no key: the client library insists on one."""
CLIENT_MARGIN_S = 30.0
"""The client libraries' own timeouts come later than ours: they would call a silence a dropped connection."""
_importing = threading.Lock()


def load_litellm() -> ModuleType:
    """Import litellm, set up so that it fetches nothing and prints nothing. Takes seconds: call it in a thread.

    Raises UsageError where it is not installed.
    """
    if find_spec("litellm") is None:
        raise UsageError(
            "the llm generator needs litellm, which is not installed: pip install 'kbtui[llm]', or use --generator rewrite"
        )
    with _importing:
        # Before the import: it would fetch a price map from the network, and load .env files.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        os.environ["LITELLM_MODE"] = "PRODUCTION"
        import litellm

        litellm.suppress_debug_info = True  # or errors print to stdout
        litellm.telemetry = False
    module: ModuleType = litellm
    return module


@dataclass(frozen=True)
class Price:
    """What a model costs, in dollars a token. None where unknown; 0 for a local server."""

    prompt: float | None
    completion: float | None

    @property
    def known(self) -> bool:
        return self.prompt is not None and self.completion is not None


class LiteLlm(Chat):
    """Asks models through litellm. Make it by `open`, which raises UsageError for what cannot work."""

    def __init__(self, litellm: ModuleType, settings: LlmSettings, models: tuple[Weighted, ...]) -> None:
        self._litellm, self._settings = litellm, settings
        self._models = {model.name: model for model in models}
        for model in models:
            self._check(model)

    @classmethod
    async def open(cls, settings: LlmSettings, models: tuple[Weighted, ...]) -> LiteLlm:
        """Import litellm in a thread and check that every model exists, has a key and speaks chat completions."""
        return cls(await asyncio.to_thread(load_litellm), settings, models)

    # ------------------------------------------------------------ what a model is

    def price(self, name: str) -> Price:
        """By the price data that litellm brings."""
        if self._local(name):
            return Price(0.0, 0.0)
        info = self._info(name)
        return Price(info.get("input_cost_per_token"), info.get("output_cost_per_token"))

    def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float | None:
        """Dollars for so many tokens, tiers and cached tokens included; None when the price is unknown."""
        if self._local(name):
            return 0.0
        if not self.price(name).known:
            return None
        costs: tuple[float, float] = self._litellm.cost_per_token(
            model=name, prompt_tokens=prompt, completion_tokens=completion, cache_read_input_tokens=cached
        )
        return sum(costs)

    def longest_reply(self, name: str) -> int | None:
        """The most tokens of a reply, None when unknown."""
        found = self._info(name).get("max_output_tokens")
        return found if isinstance(found, int) and found > 0 else None

    def versions(self) -> dict[str, str]:
        """litellm's version and a digest of its price data, for the journal."""
        assert self._litellm.__file__ is not None
        prices = Path(self._litellm.__file__).with_name("model_prices_and_context_window_backup.json")
        return {
            "litellm": version("litellm"),
            "litellm prices": hashlib.sha256(prices.read_bytes()).hexdigest()[:16] if prices.is_file() else "unknown",
        }

    def _local(self, name: str) -> bool:
        return is_local(self._settings, self._models[name])

    def _info(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = dict(self._litellm.get_model_info(name))
        except Exception as error:
            if type(error).__name__ != "ModelNotMappedError":  # a bare subclass of Exception: nothing narrower to catch
                raise
            return {}
        return found

    def _endpoints(self, name: str) -> list[str]:
        """Where a model answers, by litellm's data; [] where it does not say."""
        known = self._litellm.model_cost.get(self._info(name).get("key"), {})
        found: list[str] = known.get("supported_endpoints") or []
        return found

    def _check(self, model: Weighted) -> None:
        try:
            self._litellm.get_llm_provider(model.name, api_base=self._settings.api_base or None)
        except self._litellm.exceptions.BadRequestError:
            raise UsageError(
                f"--model {model.name}: no provider is called {model.provider!r}: write PROVIDER/NAME, such as openai/gpt-5, "
                "or hosted_vllm/NAME with --api-base for a server of your own"
            ) from None
        mode = self._info(model.name).get("mode")
        if mode == "responses" or self._endpoints(model.name) == ["/v1/responses"]:
            raise UsageError(
                f"--model {model.name} answers at /v1/responses only, which kbtui does not speak: take a chat model"
            )
        if mode not in (None, "chat", "completion"):
            raise UsageError(f"--model {model.name} is made for {mode}, not for writing: take a chat model")
        missing = self._missing_variables(model)
        if missing:
            raise UsageError(
                f"{model.name} needs {' and '.join(missing)}: set {'it' if len(missing) == 1 else 'them'} in the environment, "
                "or give --api-base for a server of your own"
            )

    def _missing_variables(self, model: Weighted) -> list[str]:
        if is_local(self._settings, model):
            return []
        found: dict[str, Any] = self._litellm.validate_environment(model.name, api_base=self._settings.api_base or None)
        names: list[str] = found["missing_keys"]
        return [name for name in names if not (self._settings.api_base and name.endswith("_API_BASE"))]

    # ------------------------------------------------------------ asking

    async def answer(self, question: Question, on_text: OnText) -> Answer:
        """See `Chat.answer`. A stream without its end, or that brings nothing for `silence_s`, is a Failure too."""
        reply = _Growing(on_text)
        began = clock.monotonic()
        try:
            async with asyncio.timeout(self._settings.silence_s):
                stream = await self._litellm.acompletion(**self._arguments(question))
            await self._receive(stream, reply, began)
        except TimeoutError:
            raise reply.failure("timeout", f"nothing came for {self._settings.silence_s:g} s") from None
        except Exception as error:
            # litellm raises its own classes, those of client libraries and of httpx alike; what is none of theirs has no
            # status and is no fault of a provider.
            if not _from_client(error):
                raise
            raise failure(error, question.parameters, reply.text + reply.reasoning) from error
        return self._whole(question, reply, clock.monotonic() - began)

    async def _receive(self, stream: Any, reply: _Growing, began: float) -> None:
        try:
            while True:
                async with asyncio.timeout(self._settings.silence_s):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                reply.take(chunk, clock.monotonic() - began)
            if not any(getattr(chunk, "usage", None) is not None for chunk in stream.chunks):
                reply.forget_usage()  # litellm made it up by a tokenizer of its own, without a word
        finally:
            # However it ends: a reply that nobody waits for must not go on being written and charged.
            await stream.aclose()

    def _arguments(self, question: Question) -> dict[str, Any]:
        model = self._models[question.model]
        arguments: dict[str, Any] = {
            "model": question.model,
            "messages": [{"role": message.role, "content": message.text} for message in question.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": question.most_tokens,
            "max_retries": 0,
            "num_retries": 0,
            "timeout": self._settings.silence_s + CLIENT_MARGIN_S,
            **question.parameters,
        }
        if self._settings.api_base:
            arguments["api_base"] = self._settings.api_base
            if is_local(self._settings, model) and self._litellm.validate_environment(question.model)["missing_keys"]:
                arguments["api_key"] = NO_KEY
        return arguments

    def _whole(self, question: Question, reply: _Growing, seconds: float) -> Answer:
        if reply.finish is None:
            raise reply.failure("dropped", "the stream ended without saying why")
        if reply.finish == "content_filter":
            raise reply.failure("filtered", "the provider's content filter cut the reply")
        if not reply.text.strip() and reply.finish != "length":
            raise reply.failure("empty", "the reply was empty")
        cost = None
        if reply.prompt_tokens is not None and reply.completion_tokens is not None:
            cost = self.cost(question.model, reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens)
        return Answer(
            text=reply.text,
            reasoning=reply.reasoning,
            finish=reply.finish,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            cost_usd=cost,
            first_token_s=reply.first_token_s,
            seconds=seconds,
        )


async def open_backend(settings: LlmSettings, models: tuple[Weighted, ...]) -> Backend:
    """Providers, through litellm. Raises UsageError for what cannot work."""
    chat = await LiteLlm.open(settings, models)
    return Backend(chat=chat, tariff=chat, longest_reply=chat.longest_reply, versions=chat.versions())


class _Growing:
    """A reply while it arrives."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.text = self.reasoning = ""
        self.finish: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens = 0
        self.first_token_s: float | None = None

    def failure(self, kind: FailureKind, reason: str) -> Failure:
        """A failure that knows what had come until then."""
        usage = None
        if self.prompt_tokens is not None and self.completion_tokens is not None:
            usage = (self.prompt_tokens, self.completion_tokens)
        return Failure(kind, reason, partial=self.text + self.reasoning, usage=usage)

    def forget_usage(self) -> None:
        self.prompt_tokens = self.completion_tokens = None

    def take(self, chunk: Any, elapsed: float) -> None:
        for choice in chunk.choices[:1]:
            fresh = choice.delta.content or ""
            thought = getattr(choice.delta, "reasoning_content", None) or ""
            self.finish = choice.finish_reason or self.finish
            if fresh or thought:
                self.first_token_s = elapsed if self.first_token_s is None else self.first_token_s
                self.text += fresh
                self.reasoning += thought
                self._on_text(self.text or self.reasoning, not self.text)
        usage = getattr(chunk, "usage", None)
        if usage is not None and usage.prompt_tokens is not None:
            self.prompt_tokens, self.completion_tokens = usage.prompt_tokens, usage.completion_tokens
            details = getattr(usage, "prompt_tokens_details", None)
            self.cached_tokens = getattr(details, "cached_tokens", None) or 0


def _from_client(error: Exception) -> bool:
    """Whether an exception was made by litellm or by one of the libraries it asks through."""
    return any(
        kind.__module__.partition(".")[0] in ("litellm", "openai", "httpx", "aiohttp") for kind in type(error).__mro__
    )
