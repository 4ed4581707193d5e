"""`kbtui doctor --model`: what a model is asked, and the remedy for each way in which it does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from chat_server import Answer, ChatServer, Received

from kbtui import doctor
from kbtui.cli import main as program
from kbtui.config import Settings
from kbtui.doctor.finding import Finding
from kbtui.doctor.model import model_findings
from kbtui.errors import UsageError
from kbtui.generate.llm import provider
from kbtui.generate.llm.settings import LlmSettings, read_models

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="the extra kbtui[llm] is not installed"),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::DeprecationWarning:litellm"),
]
KEY = "sk-planted-0123456789abcdefgh"


def look(
    answer: Answer | Callable[[Received], Answer], *, path: str = "/v1", **settings: object
) -> tuple[Finding, ChatServer]:
    script = answer if callable(answer) else lambda _: answer
    with ChatServer(script) as server:
        base = f"http://127.0.0.1:{server.port}{path}"
        (found,) = model_findings(Settings(**settings), "openai/local", base)  # type: ignore[arg-type]
    return found, server


def test_a_server_of_ones_own_answers() -> None:
    found, server = look(Answer("yes"))
    assert found.state == "ok", found.text
    assert "openai/local answers in" in found.text
    assert "counted as free" in found.text
    (asked,) = server.received
    assert asked.body["max_tokens"] == 16, "next to nothing"


def test_thinking_until_the_limit_is_an_answer() -> None:
    found, _ = look(Answer("", reasoning="hm", finish="length"))
    assert found.state == "ok", found.text


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (Answer(status=401, error={"error": {"message": "bad"}}), "fails", "401, the provider refuses the key"),
        (Answer(status=403, error={"error": {"message": "no"}}), "fails", "give the account"),
        (Answer(status=404, error={"error": {"message": "no such model"}}), "fails", "check the name"),
        (Answer(status=429, error={"error": {"code": "insufficient_quota", "message": "x"}}), "fails", "top up"),
        (Answer(status=429, error={"error": {"message": "slow down"}}), "limits", "a run waits for it"),
        (Answer(status=503, error={"error": {"message": "busy"}}), "limits", "try again later"),
        (Answer("yes", usage=False), "limits", "no token counts"),
        (Answer(drop_before=True), "fails", "start the server"),
        (Answer("ye", drop_after=2), "limits", "a run asks again"),
    ],
)
def test_each_failure_has_its_remedy(answer: Answer, state: str, said: str) -> None:
    found, _ = look(answer)
    assert (found.subject, found.state) == ("model", state), found.text
    assert said in found.text


def test_a_path_that_lacks_v1() -> None:
    found, server = look(Answer(status=404, error={"detail": "Not Found"}), path="")
    assert found.state == "fails"
    assert found.text.endswith(f"try --api-base http://127.0.0.1:{server.port}/v1")


@pytest.mark.parametrize(
    ("base", "model", "right"),
    [
        ("http://h:1/v1/v1", "openai/x", "holds /v1 twice: give http://h:1/v1"),
        ("http://h:1/v1/v1/", "openai/x", "holds /v1 twice: give http://h:1/v1"),
        ("http://h:1/v1/chat/completions", "openai/x", "the path of a request: give http://h:1/v1"),
        ("http://h:1/v1", "ollama/x", "which has no /v1: give http://h:1"),
        ("h:1/v1", "openai/x", "is no address"),
        ("http://me:secret@h:1/v1", "openai/x", "holds a user or a password"),
    ],
)
def test_an_address_that_cannot_be_right_is_not_asked(base: str, model: str, right: str) -> None:
    (found,) = model_findings(Settings(), model, base)
    assert found.state == "fails"
    assert right in found.text
    assert "secret" not in found.text


def test_nobody_listens() -> None:
    (found,) = model_findings(Settings(), "openai/x", "http://127.0.0.1:9/v1")
    assert found.state == "fails"
    assert "start the server at http://127.0.0.1:9/v1" in found.text


def test_a_missing_key_is_named_and_a_wrong_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = model_findings(Settings(), "anthropic/claude-sonnet-4-5", "")
    assert found.state == "fails"
    assert "needs ANTHROPIC_API_KEY: set it in the environment" in found.text
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    found, _ = look(Answer(status=401, error=refusal))
    assert "set OPENAI_API_KEY to one that is valid there" in found.text
    assert KEY not in found.text


def test_a_refused_parameter_is_named_and_left_out() -> None:
    def script(received: Received) -> Answer:
        if "temperature" in received.body:
            error = {
                "message": "Unsupported parameter: temperature",
                "code": "unsupported_parameter",
                "param": "temperature",
            }
            return Answer(status=400, error={"error": error})
        return Answer("yes")

    found, server = look(script, model_parameters={"temperature": 0.5, "top_p": 0.9})
    assert found.state == "limits", found.text
    assert "it refuses temperature: leave that out" in found.text
    assert server.received[-1].body["top_p"] == 0.9


def test_models_are_asked_one_after_the_other_and_a_wrong_list_is_refused() -> None:
    with ChatServer(lambda _: Answer("yes")) as server:
        found = model_findings(Settings(), "openai/a,hosted_vllm/b", server.base)
    assert [(one.state, one.text.split()[0]) for one in found] == [("ok", "openai/a"), ("ok", "hosted_vllm/b")]
    (wrong,) = model_findings(Settings(), "openai/a,openai/a", "")
    assert "twice" in wrong.text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai/gpt-5-pro", "answers at /v1/responses only"),
        ("openai/text-embedding-3-small", "is made for embedding"),
        ("nonsense/x", "no provider is called 'nonsense'"),
    ],
)
async def test_models_that_cannot_chat_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(UsageError, match=said):
        await provider.LiteLlm.open(LlmSettings(), read_models(name))


def test_the_command_asks_only_when_told_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda _: [])
    with ChatServer(lambda _: Answer("yes")) as server:
        monkeypatch.setenv("KBTUI_MODEL", "openai/a")
        assert program.main(["doctor", "--api-base", server.base]) == 0
        assert server.received == []
        assert program.main(["doctor", "--model", "openai/a", "--api-base", server.base, "--json"]) == 0
        assert len(server.received) == 1
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert (found["subject"], found["state"]) == ("model", "ok")
    assert program.main(["doctor", "--model", "openai/a", "--api-base", "http://127.0.0.1:9/v1"]) == 1
