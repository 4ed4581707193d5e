"""The real thing on the cpu lane: litellm, a local server, the compiler, the interpreter, and the journal of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, Received

from kbtui import paths
from kbtui.engine.launch import run_here
from kbtui.engine.recordings import bundled, recorded_start, recording_for
from kbtui.engine.spec import RunSpec
from kbtui.errors import UsageError
from kbtui.generate.llm.recorded import read_recording
from kbtui.generate.llm.reply import Accepted, read_reply
from kbtui.history.journal import read_journal
from kbtui.state import events as e
from kbtui.state.run_state import RunState

pytestmark = [
    pytest.mark.skipif(
        find_spec("litellm") is None or find_spec("torch") is None,
        reason="needs the extras kbtui[llm] and kbtui[torch]",
    ),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::DeprecationWarning:litellm"),
]
KERNEL = (paths.library_dir() / "softmax" / "kernel.py").read_text()


def block(source: str, title: str = "a change") -> str:
    return f"Title: {title}\n```python\n{source}```\n"


@pytest.mark.slow
def test_good_broken_wrong_and_cheating_replies_are_judged_for_what_they_are() -> None:
    script: list[Callable[[Received], Answer]] = [
        lambda _: Answer(block(KERNEL.replace("num_warps=8", "num_warps=4"), "four warps")),
        lambda _: Answer(block(KERNEL.replace("tl.sum", "tl.summ"), "renamed")),
        lambda received: Answer(f"Cause: a typing error\n{block(KERNEL.replace('num_warps=8', 'num_warps=2'))}"),
        lambda _: Answer(block(KERNEL.replace('other=-float("inf")', "other=0.0"), "zeros")),
        lambda received: Answer("I give up."),
        lambda received: Answer("Really."),
        lambda _: Answer(
            block(KERNEL.replace("    softmax_kernel[", "    return torch.softmax(x, dim=-1)\n    softmax_kernel["))
        ),
    ]
    with ChatServer(lambda received: script[received.number - 1](received)) as server:
        spec = RunSpec(
            problem="softmax",
            run_id="llm-cpu",
            generator="llm",
            model="openai/local",
            generator_parameters={"api_base": server.base},
            iterations=4,
            device="cpu",
        )
        summary = run_here(spec, lambda _: None)
        asked = [received.prompt for received in server.received]
    assert summary.stopped_by == "iterations"
    assert summary.cost_usd == 0
    assert summary.tokens == 7 * 150
    state = RunState().apply_all(read_journal(paths.journal_file("llm-cpu")))
    ended = [(one.move, one.status if not one.correct else "correct") for one in state.candidates.values()]
    assert ended[0][1] == "correct"
    assert ended[1] == ("four warps", "correct")
    assert ended[2] == ("renamed", "invalid")
    assert ended[3][1] == "correct"
    assert ended[4] == ("zeros", "wrong")
    assert ended[5][1] == "cheat"
    assert len(ended) == 6
    assert "summ" in asked[2]
    assert "First wrong index" in asked[4]
    assert "holds no Python code" in asked[5]
    assert "(modelled)" in asked[1], "the baseline's times are in the prompt, and said to be modelled"
    assert state.candidates[3].reflection == "a typing error"
    assert "a typing error" in asked[-1] or state.candidates[3].parent_id != state.pulls[4].parent_id


# ---------------------------------------------------------------- the recording that comes with kbtui


def test_the_bundled_recording_says_what_it_is() -> None:
    recording = read_recording(bundled("softmax"))
    assert recording.label == "scripted replies, not a model's"
    assert recording.models == "openai/scripted"
    assert recording.started is not None
    assert (recording.started.host, recording.started.user, recording.started.python) == ("", "", "")
    read = [read_reply(reply.text, reply.finish, "softmax", KERNEL) for reply in recording.replies]
    assert sum(isinstance(one, Accepted) for one in read) >= 6
    assert any(not isinstance(one, Accepted) for one in read), "a demonstration shows what goes wrong, too"


def test_which_recording_is_replayed(tmp_path: Path) -> None:
    assert recording_for(RunSpec(problem="softmax")) is None
    assert recording_for(RunSpec(problem="/any/softmax", generator="replay")) == bundled("softmax")
    with pytest.raises(UsageError, match=r"no recording for rope \(only for softmax\): name a run"):
        recording_for(RunSpec(problem="rope", generator="replay"))
    file = tmp_path / "mine.jsonl"
    file.write_text('{"source": "x = 1", "move": "m"}\n')
    spec = RunSpec(problem="rope", generator="replay", generator_parameters={"recording": str(file)})
    assert recording_for(spec) == file
    assert recorded_start(file) is None
    started = recorded_start(bundled("softmax"))
    assert isinstance(started, e.RunStarted)
