"""A model, asked for next to nothing: whether a run could ask it, and what to mend where it could not."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit, urlunsplit

from kbtui.config import Settings
from kbtui.doctor.finding import Finding
from kbtui.errors import UsageError
from kbtui.generate.llm.chat import Answer, Failure, Question
from kbtui.generate.llm.provider import LiteLlm
from kbtui.generate.llm.settings import LlmSettings, Weighted, is_local, read_models, read_settings
from kbtui.state.records import Message, Scalar
from kbtui.text import clean_line

SILENCE_S = 30.0
LEAST_TOKENS = 16
"""Some models refuse to write fewer."""
_COMPLETIONS = "/chat/completions"
_QUESTION = (Message("user", "Answer with one word: yes."),)


def model_findings(settings: Settings, text: str, base: str) -> list[Finding]:
    """One finding for each model in `text` (as `--model` takes them) at `base` ("": the provider's own address).

    Asks each for a few tokens, which may cost a fraction of a cent. Takes seconds, most of them in the import of litellm.
    """
    try:
        models = read_models(text)
        asked, _ = read_settings({"api_base": base, "local": settings.local, "silence_s": SILENCE_S})
    except UsageError as error:
        return [Finding("model", "fails", str(error))]
    if wrong := _wrong_path(base, models):
        return [Finding("model", "fails", wrong)]
    return asyncio.run(_each(asked, models, dict(settings.model_parameters)))


async def _each(settings: LlmSettings, models: tuple[Weighted, ...], parameters: dict[str, Scalar]) -> list[Finding]:
    return [await _look(settings, model, parameters) for model in models]


async def _look(settings: LlmSettings, model: Weighted, parameters: dict[str, Scalar]) -> Finding:
    try:
        chat = await LiteLlm.open(settings, (model,))
    except UsageError as error:
        return Finding("model", "fails", str(error))
    left, refused = dict(parameters), list[str]()
    while True:
        try:
            answer = await _ask(chat, model, left)
        except Failure as failure:
            if failure.kind == "parameter" and failure.parameter in left:
                del left[failure.parameter]
                refused.append(failure.parameter)
                continue
            return _failed(settings, model, failure)
        return _answered(chat, settings, model, answer, refused)


async def _ask(chat: LiteLlm, model: Weighted, parameters: dict[str, Scalar]) -> Answer:
    question = Question(
        model=model.name,
        messages=_QUESTION,
        most_tokens=LEAST_TOKENS,
        strategy="tiling",
        asking="write",
        parameters=parameters,
    )
    return await chat.answer(question, lambda _text, _thinking: None)


def _answered(chat: LiteLlm, settings: LlmSettings, model: Weighted, answer: Answer, refused: list[str]) -> Finding:
    said = [f"{model.name} answers in {answer.seconds:.1f} s"]
    lacks = []
    if answer.cost_usd is not None and not is_local(settings, model):
        said.append(f"${answer.cost_usd:.6f} for this")
    if is_local(settings, model):
        said.append("a server of your own, counted as free")
    if not chat.price(model.name).known:
        lacks.append("nobody knows its price: a run needs --budget-tokens N, --allow-unknown-price or local = true")
    if answer.prompt_tokens is None:
        lacks.append("it tells no token counts: a tokenizer guesses them")
    if refused:
        lacks.append(f"it refuses {', '.join(refused)}: leave that out of model_parameters, a run drops it")
    return Finding("model", "limits" if lacks else "ok", "; ".join([", ".join(said), *lacks]))


def _failed(settings: LlmSettings, model: Weighted, failure: Failure) -> Finding:
    state = (
        "limits" if failure.kind in ("rate limit", "overloaded", "timeout", "dropped", "empty", "filtered") else "fails"
    )
    return Finding("model", state, f"{model.name}: {failure}; {_remedy(settings, model, failure)}")  # type: ignore[arg-type]


def _remedy(settings: LlmSettings, model: Weighted, failure: Failure) -> str:
    where = settings.api_base or f"the provider {model.provider}"
    key = f"{model.provider.upper().replace('-', '_')}_API_KEY"
    named = key if key in os.environ else "the key in the environment"
    if failure.kind == "no model":
        path = urlsplit(settings.api_base).path.rstrip("/")
        if settings.api_base and not path:
            better = settings.api_base.rstrip("/") + "/v1"
            return f"a server that speaks OpenAI's protocol does so below /v1: try --api-base {better}"
        return f"check the name: {where} knows others" + ("" if not settings.api_base else ", see its /models")
    remedies = {
        "key": f"set {named} to one that is valid there",
        "forbidden": f"give the account of {named} access to this model, or take another",
        "quota": "top up the account, or take another provider",
        "rate limit": "a run waits for it; with --parallel, lower requests_per_minute",
        "overloaded": "a run waits for it; try again later",
        "timeout": f"nothing came within {SILENCE_S:g} s: see whether the server is loading the model",
        "dropped": "see the server's log; a run asks again",
        "empty": "a run asks again; if it stays so, the model needs more tokens to think",
        "filtered": "the provider's filter holds back even a greeting: take another model",
        "too long": "the server's context is too small for any kernel: start it with a larger one",
        "parameter": f"it is none of model_parameters ({failure.parameter or 'unnamed'}): the server is too old for kbtui",
        "unreachable": f"start the server at {where}, or mend --api-base",
        "refused": "see the server's log",
    }
    return remedies[failure.kind]


def _wrong_path(base: str, models: tuple[Weighted, ...]) -> str:
    """What is wrong with an address by its looks, with the right one; "" when nothing is."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    if path.endswith(_COMPLETIONS):
        better = path.removesuffix(_COMPLETIONS)
        return f"--api-base {base} holds the path of a request: give {_with_path(base, better)}"
    if path.endswith("/v1/v1"):
        return f"--api-base {base} holds /v1 twice: give {_with_path(base, path.removesuffix('/v1'))}"
    if path.endswith("/v1") and (odd := next((m for m in models if m.provider in ("ollama", "ollama_chat")), None)):
        return f"{odd.name} speaks Ollama's own protocol, which has no /v1: give {_with_path(base, path.removesuffix('/v1'))}"
    return ""


def _with_path(base: str, path: str) -> str:
    parts = urlsplit(base)
    return clean_line(urlunsplit((parts.scheme, parts.netloc, path, "", "")))
