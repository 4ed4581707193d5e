"""The real thing on the cpu lane: litellm, a local server, the compiler, the interpreter, and the journal of it."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer

from kbtui import paths
from kbtui.engine.launch import run_here
from kbtui.engine.recordings import bundled, recorded_start, recording_for
from kbtui.engine.spec import RunSpec
from kbtui.errors import UsageError
from kbtui.generate.llm import provider
from kbtui.generate.llm.recorded import read_recording
from kbtui.generate.llm.reply import Accepted, read_reply
from kbtui.history.journal import read_journal
from kbtui.search.settings import settings_of
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
IN, OUT = 1.25e-6, 1e-5
"""Dollars a token of openai/gpt-5."""
PROBLEM = """\
\"\"\"Twice every element.\"\"\"
from kbtui.problems import Case, any_int
entry = "twice"
cases = [Case(n=16777216, dtype="float32")]
vary = {"n": any_int}
def reference(x):
    return 2 * x
def make_inputs(case, generator, device):
    import torch
    return (torch.randn(case.n, generator=generator, device=device),)
def traffic(case):
    return 8 * case.n, case.n
"""
SLOW = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * by, mask=at < n)


def twice(x):
    n = x.numel()
    half = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n, 1024),)](x, half, n, 4.0, BLOCK=1024)
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n, 1024),)](half, out, n, 0.5, BLOCK=1024)
    return out
"""
"""Reads and writes everything twice; by the model, which counts traffic, the time is twice that of `FAST`."""
FAST = """\
import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * 2.0, mask=at < n)


def twice(x):
    n = x.numel()
    out = torch.empty_like(x)
    twice_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""


def marked(source: str, number: int) -> str:
    """The same work under another syntax tree: the wrapper differs, so that it is no duplicate and not pruned."""
    return source.replace("    n = x.numel()\n", f"    n = x.numel() + {number} - {number}\n")


def block(source: str, title: str = "a change", **changes: object) -> Answer:
    fields: dict[str, object] = {"prompt_tokens": 1000, "completion_tokens": 500, **changes}
    return Answer(f"Title: {title}\n```python\n{source}```\n", **fields)  # type: ignore[arg-type]


def words(text: str) -> Answer:
    return Answer(text, prompt_tokens=1000, completion_tokens=500)


TWENTY: list[list[Answer]] = [
    [block(marked(SLOW, 1), "slow 1")],
    [block(SLOW.replace("tl.store", "tl.stor"), "broken"), block(marked(SLOW, 2), "mended")],
    [block(SLOW.replace("4.0", "5.0"), "wrong"), block(SLOW.replace("4.0", "6.0"), "still wrong")],
    [block(SLOW.replace("    return out", "    return torch.mul(x, 2)"), "cheat")],
    [words("I would fuse the two."), block(FAST, "fused")],
    [
        Answer(status=429, error={"error": {"message": "slow down"}}, headers={"retry-after": "0"}),
        block(marked(SLOW, 6), "slow 6", delay_s=0.5),
    ],
    [block(marked(SLOW, 1), "again"), block(marked(SLOW, 7), "slow 7")],
    [
        block(SLOW.replace("    n = x", "    raise ValueError(x)\n    n = x"), "raises"),
        block(marked(SLOW, 8), "slow 8"),
    ],
    [block(marked(SLOW, 9)[:-60], "cut off", finish="length"), block(marked(SLOW, 9), "slow 9")],
    [block(marked(SLOW, 10), "slow 10", drop_after=5), block(marked(SLOW, 10), "slow 10")],
    [Answer(status=500, error={"error": {"message": "busy"}}), block(marked(FAST, 11), "fast 11", pause_s=0.05)],
    [block(SLOW.replace("at < n", "at <= n"), "one too far"), block(marked(SLOW, 12), "slow 12")],
    *[[block(marked(FAST if n % 3 == 0 else SLOW, n), f"number {n}")] for n in range(13, 21)],
]
"""What the server says in each of 20 pulls."""
SPEED = {"baseline": 1.0, "fused": 2.0, "fast 11": 2.0, "number 15": 2.0, "number 18": 2.0}
"""By title; everything else that is correct is as fast as the baseline."""
FAILED = {
    "broken": "invalid",
    "wrong": "wrong",
    "still wrong": "wrong",
    "cheat": "cheat",
    "raises": "crash",
    "one too far": "wrong",
}


@pytest.mark.slow
def test_twenty_pulls_of_everything_on_the_cpu_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdefgh")
    monkeypatch.setattr(provider, "is_local", lambda *_: False)
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "kernel.py").write_text(SLOW)
    answers = [answer for pull in TWENTY for answer in pull]
    with ChatServer(lambda received: answers[received.number - 1]) as server:
        spec = RunSpec(
            problem=str(folder),
            run_id="llm-cpu",
            generator="llm",
            model="openai/gpt-5",
            generator_parameters={"api_base": server.base, "repairs": 1, "silence_s": 10.0},
            policy="round_robin",
            policy_parameters={"tune": 0, "period": 100},
            iterations=20,
            budget_usd=5.0,
            device="cpu",
        )
        summary = run_here(spec, lambda _: None)
        asked = [received.prompt for received in server.received]
    state = RunState().apply_all(read_journal(paths.journal_file("llm-cpu")))
    assert len(asked) == len(answers), "everything was said, and nothing asked twice"
    assert (summary.stopped_by, summary.pulls, summary.timing) == ("iterations", 20, "modelled")

    # The best: the first of the fused ones, and none of the later ones that are no faster.
    assert summary.best is not None
    best = state.candidates[summary.best.candidate_id]
    assert (best.move, best.pull) == ("fused", 5)
    assert best.estimate == pytest.approx(2.0, rel=0.05)
    assert Path(best.path).read_text().endswith(FAST)

    # The verdicts.
    titled = {candidate.move: candidate for candidate in state.candidates.values()}
    assert {title: titled[title].status for title in FAILED} == FAILED
    assert len(state.candidates) == 1 + 20 + 4, "baseline, one a pull, and the mended ones of pulls 2, 3, 8 and 12"
    assert summary.correct == 25 - len(FAILED)
    for candidate in state.frontier:
        assert candidate.estimate == pytest.approx(SPEED.get(candidate.move, 1.0), rel=0.05), candidate.move
    assert [pull.number for pull in state.pulls.values() if pull.outcome == "dropped"] == []

    # The spend: 27 whole replies of 1000 and 500 tokens, and the one that was cut off as far as it came.
    whole = [answer for answer in answers if answer.status == 200 and answer.drop_after is None]
    assert len(whole) == 27
    cut = [event for event in read_journal(paths.journal_file("llm-cpu")) if isinstance(event, e.AskFailed)]
    assert [event.kind for event in cut] == ["dropped"]
    assert 0 < cut[0].cost_usd < 0.03
    assert summary.cost_usd == pytest.approx(27 * (1000 * IN + 500 * OUT) + cut[0].cost_usd)
    assert summary.tokens == 27 * 1500 + cut[0].tokens

    # The statistics: ln of what each pull's last version is faster than its parent, 0 for a failure, averaged by arm.
    belief: dict[str, tuple[float, float]] = {}
    for pull in state.pulls.values():
        last = state.candidates[pull.candidate_ids[-1]]
        gain = math.log(SPEED.get(last.move, 1.0) / SPEED.get(state.candidates[pull.parent_id].move, 1.0))
        earned = 0.0 if last.move in FAILED else max(gain, 0.0)
        assert pull.reward == pytest.approx(earned, abs=0.05), last.move
        count, total = belief.get(pull.strategy, (0.0, 0.0))
        belief[pull.strategy] = count + 1, total + (pull.reward or 0.0)
    assert sum(count for count, _ in belief.values()) == 20
    prior = settings_of(state).prior_mean
    for (_, strategy), arm in state.arms.items():
        count, total = belief[strategy]
        assert arm.pulls == 1 + count
        assert arm.mean == pytest.approx((prior + total) / (1 + count))

    # What models were told.
    assert "'stor'" in asked[2]
    assert "First wrong index" in asked[4]
    assert "holds no Python code" in asked[7]
    assert "(modelled)" in asked[0], "the baseline's time is in the prompt, and said to be modelled"
    assert any("raises" in prompt and "ValueError" in prompt for prompt in asked)


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
