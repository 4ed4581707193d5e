"""litellm against a real local server that misbehaves: every failure gets its kind, owner and numbers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from chat_server import Answer, ChatServer, Received

from kbtui.errors import UsageError
from kbtui.generate.llm import provider
from kbtui.generate.llm.chat import Failure, Question
from kbtui.generate.llm.provider import LiteLlm
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.state.records import Message

# Not importorskip: it would import litellm before it is set up, and that fetches prices from the network.
pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="the extra kbtui[llm] is not installed"),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::DeprecationWarning:litellm"),
]

MODELS = ("openai/some-model", "hosted_vllm/some-model")
KEY = "sk-planted0123456789abcdef"


def error(message: str, code: str = "", **more: str) -> dict[str, object]:
    return {"error": {"message": message, "code": code, **more}}


TOO_LONG = "This model's maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens."
FAILURES: dict[str, tuple[Answer, str]] = {
    "401": (Answer(status=401, error=error(f"Incorrect API key provided: {KEY}", "invalid_api_key")), "key"),
    "402": (Answer(status=402, error=error("insufficient credits")), "quota"),
    "403": (Answer(status=403, error=error("not allowed", "forbidden")), "forbidden"),
    "404": (Answer(status=404, error=error("no such model", "model_not_found")), "no model"),
    "429": (Answer(status=429, error=error("slow", "rate_limit_exceeded"), headers={"Retry-After": "7"}), "rate limit"),
    "429 quota": (Answer(status=429, error=error("You exceeded your current quota", "insufficient_quota")), "quota"),
    "500": (Answer(status=500, error=error("oops")), "overloaded"),
    "503 without JSON": (Answer(status=503, error="gateway"), "overloaded"),
    "529": (Answer(status=529, error=error("overloaded", "overloaded_error")), "overloaded"),
    "context by code": (Answer(status=400, error=error(TOO_LONG, "context_length_exceeded")), "too long"),
    "context by words": (Answer(status=400, error=error(TOO_LONG)), "too long"),
    "filter of the prompt": (
        Answer(status=400, error=error("content management policy", "content_filter")),
        "filtered",
    ),
    "filter of the reply": (Answer("half", finish="content_filter"), "filtered"),
    "parameter": (
        Answer(status=400, error=error("'temperature' does not support 0.7", "unsupported_value", param="temperature")),
        "parameter",
    ),
    "parameter by words": (
        Answer(status=400, error=error("Unrecognized request argument supplied: temperature")),
        "parameter",
    ),
    "bad request": (Answer(status=400, error=error("messages must not be empty")), "refused"),
    "dropped before": (Answer("x" * 80, drop_before=True), "unreachable"),
    "dropped in the middle": (Answer("x" * 80, drop_after=4), "dropped"),
    "no end": (Answer("x" * 80, no_end=True, finish=None), "dropped"),
    "empty": (Answer(""), "empty"),
    "null": (Answer("", null=True), "empty"),
    "silent": (Answer("x", delay_s=3.0), "timeout"),
    "silent in the middle": (Answer("x" * 80, pause_s=3.0), "timeout"),
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider.load_litellm()  # here, or the first test would be charged with the seconds that it takes


async def ask(
    base: str, model: str, silence_s: float = 1.0, **parameters: float
) -> tuple[object, list[tuple[str, bool]]]:
    seen: list[tuple[str, bool]] = []
    chat = await LiteLlm.open(LlmSettings(api_base=base, silence_s=silence_s), (Weighted(model),))
    question = Question(
        model=model,
        messages=(Message("system", "short"), Message("user", "hello")),
        most_tokens=500,
        strategy="tiling",
        asking="write",
        parameters=dict(parameters),
    )
    return await chat.answer(question, lambda text, thinking: seen.append((text, thinking))), seen


def serve(answer: Answer | Callable[[Received], Answer]) -> ChatServer:
    return ChatServer(answer if callable(answer) else lambda _: answer)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_has_its_kind(name: str, model: str) -> None:
    answer, kind = FAILURES[name]
    with serve(answer) as server:
        began = time.monotonic()
        with pytest.raises(Failure) as caught:
            await ask(server.base, model, temperature=0.7)
        assert caught.value.kind == kind
        assert len(server.received) == 1, "litellm must not try again by itself"
        assert time.monotonic() - began < 3, "litellm must not sleep by itself"
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
async def test_what_a_failure_tells_beside_its_kind(model: str) -> None:
    async def failed(name: str) -> Failure:
        with serve(FAILURES[name][0]) as server, pytest.raises(Failure) as caught:
            await ask(server.base, model, temperature=0.7, top_p=0.5)
        return caught.value

    assert (await failed("429")).wait_s == 7.0
    assert (await failed("500")).wait_s is None
    assert (await failed("parameter")).parameter == "temperature"
    assert (await failed("parameter by words")).parameter == "temperature"
    assert (await failed("dropped in the middle")).partial
    assert (await failed("empty")).usage == (100, 50)
    assert (await failed("filter of the reply")).usage == (100, 50)
    assert "cannot be reached" in str(await failed("dropped before"))


async def test_a_date_to_come_back_is_understood() -> None:
    import email.utils

    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    with (
        serve(Answer(status=429, error=error("slow"), headers={"retry-after": later})) as server,
        pytest.raises(Failure) as caught,
    ):
        await ask(server.base, MODELS[0])
    assert caught.value.wait_s is not None
    assert 20 < caught.value.wait_s <= 30


@pytest.mark.parametrize("model", MODELS)
async def test_a_reply_arrives_in_pieces_with_its_counts(model: str) -> None:
    with serve(Answer("hello world " * 8, reasoning="hm")) as server:
        answer, seen = await ask(server.base, model)
        body = server.received[0].body
    assert answer.text == "hello world " * 8
    assert (answer.reasoning, answer.finish) == ("hm", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cost_usd) == (100, 50, 0.0)
    assert seen[0] == ("hm", True)
    assert seen[-1] == ("hello world " * 8, False)
    assert [len(text) for text, thinking in seen if not thinking] == sorted(
        len(t) for t, thinking in seen if not thinking
    )
    assert body["stream"] is True
    assert body["max_tokens"] == 500
    assert "temperature" not in body, "what nobody set is not sent"


async def test_a_reply_that_only_thought_up_to_the_limit_is_a_reply() -> None:
    with serve(Answer("", reasoning="hm", finish="length")) as server:
        answer, _ = await ask(server.base, MODELS[0])
    assert (answer.text, answer.finish) == ("", "length")


async def test_without_counts_there_is_no_cost_but_none_is_no_zero() -> None:
    with serve(Answer("x", usage=False)) as server:
        answer, _ = await ask(server.base, MODELS[0])
    assert (answer.prompt_tokens, answer.cost_usd) == (None, None)


async def test_cancelling_closes_the_connection() -> None:
    with serve(Answer("x" * 800, pieces=200, pause_s=0.05)) as server:
        task = asyncio.create_task(ask(server.base, MODELS[0], silence_s=5))
        while not server.received:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if server.in_flight == 0:
                break
            await asyncio.sleep(0.05)
        assert server.in_flight == 0
        assert server.abandoned == 1


# ---------------------------------------------------------------- before anything is asked


async def opened(model: str, **settings: object) -> LiteLlm:
    return await LiteLlm.open(LlmSettings(**settings), (Weighted(model),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/x", "GEMINI_API_KEY"),
    ],
)
async def test_a_missing_key_names_its_variable(model: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match=variable):
        await opened(model)


async def test_a_local_server_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(Answer("x")) as server:
        answer, _ = await ask(server.base, MODELS[0])
        assert server.received[0].headers["authorization"] == "Bearer none"
    assert answer.text == "x"


async def test_a_server_elsewhere_needs_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        await opened("openai/x", api_base="https://models.example/v1")
    assert (await opened("openai/x", api_base="https://models.example/v1", local=True)).cost("openai/x", 10, 10) == 0.0


async def test_an_unknown_provider_and_a_model_of_another_endpoint_are_refused() -> None:
    with pytest.raises(UsageError, match="no provider is called 'nonsense'"):
        await opened("nonsense/x")
    with pytest.raises(UsageError, match="/v1/responses"):
        await opened("openai/gpt-5-codex")


async def test_prices_are_those_of_the_bundled_data() -> None:
    chat = await opened("openai/gpt-5")
    assert chat.cost("openai/gpt-5", 1_000_000, 0) == pytest.approx(1.25)
    assert chat.cost("openai/gpt-5", 0, 1_000_000) == pytest.approx(10.0)
    assert chat.cost("openai/gpt-5", 1_000_000, 0, cached=1_000_000) < 1.25  # type: ignore[operator]
    assert chat.longest_reply("openai/gpt-5") == 128_000
    assert set(chat.versions()) == {"litellm", "litellm prices"}
    unknown = await opened("openai/nobody-knows-it")
    assert unknown.cost("openai/nobody-knows-it", 10, 10) is None
    assert not unknown.price("openai/nobody-knows-it").known


async def test_a_known_name_at_a_local_server_costs_nothing() -> None:
    assert (await opened("openai/gpt-5", api_base="http://127.0.0.1:1/v1")).cost("openai/gpt-5", 10, 10) == 0.0


def test_a_fault_of_ours_is_not_taken_for_the_provider_s() -> None:
    assert not provider._from_client(KeyError("x"))


def test_importing_litellm_fetches_nothing_and_prints_nothing() -> None:
    """In a fresh interpreter in which opening a connection is an error."""
    code = """
import socket
def refuse(*arguments, **named): raise AssertionError("a connection was opened")
socket.socket.connect = refuse
socket.create_connection = refuse
socket.getaddrinfo = refuse
from kbtui.generate.llm.provider import load_litellm
assert "litellm" not in __import__("sys").modules
load_litellm()
assert "torch" not in __import__("sys").modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
