"""`kbtui prompt`, and the flags of `kbtui run` that concern models."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kbtui.cli import options
from kbtui.cli.main import main
from kbtui.config import load_settings
from kbtui.errors import UsageError
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES


@pytest.fixture
def a_run(recorded: Callable[..., str]) -> str:
    return recorded("measured")


def test_the_prompt_of_a_run_holds_what_the_run_knows(a_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt", "--run", a_run, "--strategy", "fusion"]) == 0
    printed = capsys.readouterr()
    assert "**fusion**" in printed.out
    assert "kernel = 1" in printed.out, "the best is what one starts from"
    assert "tokens" in printed.err
    assert main(["prompt", "--run", a_run, "--parent", "0", "--json"]) == 0
    preview = json.loads(capsys.readouterr().out)
    assert [message["role"] for message in preview["messages"]] == ["system", "user"]
    assert "kernel = 0" in preview["messages"][1]["text"]
    assert preview["tokens"] > 300


def test_what_cannot_be_previewed_is_refused(a_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt", "--run", a_run, "--strategy", "magic"]) == 2
    assert all(strategy in capsys.readouterr().err for strategy in STRATEGIES[:1])
    assert main(["prompt", "--run", a_run, "--parent", "99"]) == 2
    assert "#99" in capsys.readouterr().err
    assert main(["prompt"]) == 2
    assert main(["prompt", "softmax", "--run", a_run]) == 2
    assert main(["prompt", "softmax", "--parent", "1"]) == 2


def test_a_planted_key_is_not_previewed(
    a_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "kernel = 1")  # as if the source held it
    assert main(["prompt", "--run", a_run]) == 0
    printed = capsys.readouterr()
    assert "kernel = 1" not in printed.out + printed.err


def test_generator_parameters_are_those_of_the_settings() -> None:
    settings, _ = load_settings(
        {"generator": "llm", "api_base": "http://x/v1", "model_parameters": {"temperature": 0.5}}
    )
    found = options.generator_parameters(settings)
    assert found["api_base"] == "http://x/v1"
    assert found["model.temperature"] == 0.5
    assert found["repairs"] == 2
    from kbtui.generate.llm.settings import read_settings

    read, passed_on = read_settings(found)
    assert (read.api_base, passed_on) == ("http://x/v1", {"temperature": 0.5})
    assert options.generator_parameters(load_settings({})[0]) == {}


def test_a_replay_is_the_recorded_run_unless_a_flag_says_otherwise(a_run: str) -> None:
    settings, origins = load_settings({"generator": "replay", "seed": 7})
    spec = options.replayed(options.fresh("softmax", settings), a_run, origins)
    assert spec.generator_parameters == {"recording": a_run}
    started = _started(a_run)
    assert (spec.policy, spec.iterations, spec.device) == (started.policy, started.iterations, started.device.lane)
    assert spec.seed == 7


def _started(run_id: str) -> e.RunStarted:
    from kbtui.history.runs import load_state

    started = load_state(run_id).started
    assert started is not None
    return started


def test_a_recording_without_replay_is_refused(a_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "softmax", "--from", a_run, "--headless"]) == 2
    assert "--generator replay" in capsys.readouterr().err


def test_a_model_that_is_missing_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "softmax", "--generator", "llm", "--headless", "--device", "cpu"]) == 2
    assert "needs a model: give --model PROVIDER/NAME" in capsys.readouterr().err
    assert main(["run", "softmax", "--model-parameter", "warm", "--headless"]) == 2
    assert "--model-parameter takes NAME=VALUE" in capsys.readouterr().err
    with pytest.raises(UsageError):
        options.pairs(["x"], "--model-parameter")
