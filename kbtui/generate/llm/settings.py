"""What the `llm` generator can be set to; and the models it asks, with their weights."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import Record, Scalar

PASSED_ON = "model."
"""Prefix of the parameters that are sent to the model as they are (`model.temperature`)."""
OURS = {
    "api_base": "--api-base", "base_url": "--api-base", "max_tokens": "reply_tokens in the configuration",
    "max_completion_tokens": "reply_tokens in the configuration", "timeout": "reply_silence_s in the configuration",
    "model": "--model", "messages": "a prompts folder in the configuration", "stream": "nothing, replies are streamed",
    "stream_options": "nothing, replies are streamed", "max_retries": "reply_deadline_s in the configuration",
    "num_retries": "reply_deadline_s in the configuration", "n": "--parallel",
}  # fmt: skip
"""What is not the user's to send as a parameter, and what to set in its place."""
_KEYS = frozenset(
    {"api_key", "apikey", "key", "token", "access_token", "authorization", "headers", "extra_headers", "sig"}
)
"""Names of parameters, of a request or in an address, that hold secrets: they would be written down."""
LOCAL_PROVIDERS = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile"})
"""Providers that are a server on this machine unless `--api-base` says otherwise."""


class LlmSettings(Record, frozen=True, kw_only=True):
    """`repairs`: how often a version that failed is sent back. `most_tokens`: of one reply, thinking included.
    `silence_s`: a reply that brings nothing for so long is given up. `deadline_s`: over all attempts at one reply, the
    waits included. `requests_per_minute`: to one provider, 0 for no limit of ours. `prompt_tokens`: what a prompt is
    cut to, the parent's source excepted. `local`: the server costs nothing. `choice`: how one of several models is
    chosen."""

    api_base: str = ""
    local: bool = False
    allow_unknown_price: bool = False
    choice: Literal["weights", "cost"] = "weights"
    repairs: int = 2
    most_tokens: int = 16_384
    prompt_tokens: int = 16_384
    silence_s: float = 300.0
    deadline_s: float = 900.0
    requests_per_minute: float = 0.0
    prompts: str = ""


class Weighted(Record, frozen=True):
    """One model as litellm names it, `provider/name`, and its share among several."""

    name: str
    weight: float = 1.0

    @property
    def provider(self) -> str:
        """What stands before the first slash; a bare name is its own provider as far as limits go."""
        return self.name.partition("/")[0]


def read_settings(parameters: Mapping[str, Scalar]) -> tuple[LlmSettings, dict[str, Scalar]]:
    """The settings in `parameters`, and those that are passed on to the model. Raises UsageError naming the wrong one."""
    own = {key: value for key, value in parameters.items() if not key.startswith(PASSED_ON)}
    try:
        settings = msgspec.convert(own, LlmSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the llm generator's settings are not understood: {error}") from None
    if settings.repairs < 0 or settings.requests_per_minute < 0:
        raise UsageError("the llm generator's repairs and requests_per_minute are 0 or more")
    if min(settings.most_tokens, settings.prompt_tokens) < 256 or min(settings.silence_s, settings.deadline_s) <= 0:
        raise UsageError("the llm generator needs at least 256 tokens for prompt and reply, and times above 0 s")
    check_base(settings.api_base)
    passed_on = {key.removeprefix(PASSED_ON): v for key, v in parameters.items() if key.startswith(PASSED_ON)}
    for name in passed_on:
        if name.lower() in _KEYS:
            raise UsageError(
                f"--model-parameter {name} would be written down: give keys in the provider's environment variable"
            )
        if name in OURS:
            raise UsageError(f"--model-parameter {name} is set by kbtui itself: use {OURS[name]}")
    return settings, passed_on


def check_base(base: str) -> None:
    """Raises UsageError for an address that is none, and for one that carries a password: it would be written down."""
    if not base:
        return
    parts = urlsplit(base)
    if any(name.lower() in _KEYS for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise UsageError("--api-base holds a key: give it in the provider's environment variable")
    if parts.username or parts.password:
        raise UsageError("--api-base holds a user or a password: give the key in the provider's environment variable")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--api-base {base} is no address: give one such as http://127.0.0.1:8000/v1")


def read_models(text: str) -> tuple[Weighted, ...]:
    """`openai/gpt-5` or several by commas, each with an optional weight: `openai/gpt-5=2,anthropic/claude-x`.

    Raises UsageError when there is none, a weight is no number above 0, or a name comes twice.
    """
    models = []
    for piece in (part.strip() for part in text.split(",")):
        if not piece:
            continue
        name, _, weight = piece.rpartition("=") if "=" in piece else (piece, "", "1")
        try:
            share = float(weight)
        except ValueError:
            share = 0.0
        if not name or not 0 < share < float("inf"):
            raise UsageError(f"--model {piece}: a weight is a number above 0, such as openai/gpt-5=2")
        models.append(Weighted(name, share))
    if not models:
        raise UsageError("the llm generator needs a model: give --model PROVIDER/NAME, such as openai/gpt-5")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise UsageError(f"--model names {max(names, key=names.count)} twice: name each model once")
    return tuple(models)


def is_local(settings: LlmSettings, model: Weighted) -> bool:
    """Whether requests cost nothing: declared, a loopback or private address, or a provider that is a local server."""
    if settings.local:
        return True
    if not settings.api_base:
        return model.provider in LOCAL_PROVIDERS
    host = urlsplit(settings.api_base).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False
