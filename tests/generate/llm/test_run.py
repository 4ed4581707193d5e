"""Whole runs: the engine with its fake lane, litellm, and a real local server with a scripted mixture of replies."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, Received

from kbtui.engine.engine import Engine
from kbtui.engine.spec import RunSpec
from kbtui.errors import ProviderFailure, UnknownPriceError, UsageError
from kbtui.generate.generator import Generator
from kbtui.generate.llm import provider
from kbtui.generate.llm.recorded import read_recording
from kbtui.generate.registry import make_generator
from kbtui.paths import data_dir, journal_file
from kbtui.search.arms import cluster_of, recomputed
from kbtui.search.settings import settings_of
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import RunState

_name = "engine_fakes"
if _name not in sys.modules:
    _found = spec_from_file_location(_name, Path(__file__).parents[2] / "engine" / f"{_name}.py")
    assert _found is not None
    assert _found.loader is not None
    sys.modules[_name] = module_from_spec(_found)
    _found.loader.exec_module(sys.modules[_name])
import engine_fakes as fakes  # noqa: E402

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="the extra kbtui[llm] is not installed"),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::DeprecationWarning:litellm"),
]
MODEL = "openai/gpt-5"
IN, OUT = 1.25e-6, 1e-5
"""Dollars a token of that model, by litellm's price data."""
KEY = "sk-planted-0123456789abcdefgh"


@pytest.fixture(autouse=True)
def a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider.load_litellm()


@pytest.fixture
def billed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local server is taken for a provider elsewhere, whose prices are known."""
    monkeypatch.setattr(provider, "is_local", lambda *_: False)


def version(value: int, extra: str = "pass") -> str:
    """A version for the fake lane, which judges it by its number."""
    return (
        f"import torch\nimport triton\n\n\n@triton.jit\ndef add_kernel(x, value={value}):\n    return value\n\n\n"
        f"def vector_add(x, y):\n    {extra}\n    return add_kernel[(1,)](x)\n"
    )


def reply(value: int, extra: str = "pass", **changes: object) -> Answer:
    fields: dict[str, object] = {"prompt_tokens": 1000, "completion_tokens": 500, **changes}
    return Answer(f"Title: value {value}\n```python\n{version(value, extra)}```", **fields)  # type: ignore[arg-type]


@dataclass
class LlmRun(fakes.Run):
    """A run whose generator is the real one, asking the server at `base`."""

    base: str = ""
    generator_made: Generator | None = None
    engine_made: Engine | None = None
    settings: dict[str, object] = field(default_factory=dict)

    def parts(self):
        return msgspec_replace(super().parts(), make_generator=self._make)

    def _make(self, spec: RunSpec) -> Generator:
        self.generator_made = make_generator(
            "llm",
            model=spec.model,
            parameters=spec.generator_parameters,
            budget_tokens=spec.budget_tokens if isinstance(spec.budget_tokens, int) else None,
        )
        return self.generator_made


def msgspec_replace(parts, **changes):
    import dataclasses

    return dataclasses.replace(parts, **changes)


def run_on(server: ChatServer, run_id: str = "llm-1", *, attended: bool = False, parameters=None, **changes) -> LlmRun:
    fields = {"generator": "llm", "model": MODEL, "iterations": 20, **changes}
    shaped = {"api_base": server.base, "silence_s": 5.0, "deadline_s": 20.0, **(parameters or {})}
    spec = fakes.spec(run_id, generator_parameters=shaped, **fields)
    return LlmRun(spec=spec, attended=attended, base=server.base)


def mixture() -> Iterator[Answer]:
    """What the server says, one after the other: each kind of good, broken, cheating and slow."""
    yield reply(10)  # correct, 1.1x
    yield reply(11)  # does not compile
    yield reply(16)  # ... mended
    yield Answer("I would use more warps.", prompt_tokens=1000, completion_tokens=20)  # no code
    yield reply(17)  # ... said again
    yield reply(12)  # wrong
    yield reply(22)  # ... still wrong
    yield reply(32)  # ... and still: the pull earns nothing
    yield reply(18, "torch.add(x, y)")  # cheats: not mended
    yield Answer(status=429, error={"error": {"message": "slow"}}, headers={"retry-after": "0"})
    yield reply(20, delay_s=0.4)  # slow, the best: 20 % 7 == 6
    yield reply(13)  # too much shared memory
    yield reply(19)  # ... mended
    yield reply(10)  # a duplicate
    yield reply(26)  # ... another
    yield reply(14)
    yield reply(24)  # the machine code of the one before
    yield Answer(f"```python\n{version(27)[:-30]}", finish="length", prompt_tokens=1000, completion_tokens=500)
    yield reply(28)
    yield reply(29, pause_s=0.03)
    yield reply(30, drop_after=5)  # hangs up in the middle
    yield reply(30)
    for value in itertools.count(36):
        if value % 10 not in (1, 2, 3, 4, 5) and value % 7 != 6:
            yield reply(value)


async def test_twenty_pulls_of_everything_end_with_the_right_best_spend_and_statistics(billed: None) -> None:
    answers = mixture()
    sent: list[Answer] = []

    def script(_: Received) -> Answer:
        sent.append(next(answers))
        return sent[-1]

    with ChatServer(script) as server:
        run = run_on(server, policy="round_robin", policy_parameters={}, budget_usd=5.0)
        state = await run.go()
    assert state.stopped_by == "iterations"
    assert state.pulls_ended == 20

    # the best is the one the script made best
    assert state.best is not None
    assert fakes.value_of(state.best.source) == 20
    assert state.best.ratio == pytest.approx(1.4)

    # every reply that came whole is paid for as the provider counted it, and the one that was cut off as far as it came
    whole = [a for a in sent if a.status == 200 and a.drop_after is None]
    cut = [event for event in run.events if isinstance(event, e.AskFailed)]
    assert [event.kind for event in cut] == ["dropped"]
    assert 0 < cut[0].cost_usd < 0.02
    paid = sum(a.prompt_tokens * IN + a.completion_tokens * OUT for a in whole)
    assert state.cost_usd == pytest.approx(paid + cut[0].cost_usd)
    assert state.tokens == sum(a.prompt_tokens + a.completion_tokens for a in whole) + cut[0].tokens
    assert state.reserved_usd == 0
    assert sum(pull.cost_usd for pull in state.pulls.values()) == pytest.approx(state.cost_usd)
    assert all(candidate.model == MODEL for candidate in state.candidates.values() if candidate.id)

    # who is to blame for what
    by_value = {fakes.value_of(candidate.source): candidate for candidate in state.candidates.values()}
    assert by_value[16].repairs == by_value[11].id
    assert by_value[16].pull == by_value[11].pull
    assert by_value[19].repairs == by_value[13].id
    assert state.pulls[by_value[32].pull].reward == 0
    assert [fakes.value_of(state.candidates[n].source) for n in state.pulls[by_value[32].pull].candidate_ids] == [
        12,
        22,
        32,
    ]
    assert by_value[18].status == "cheat"
    assert len(state.pulls[by_value[18].pull].candidate_ids) == 1
    assert by_value[24].status == "pruned"
    assert len(state.pulls[by_value[24].pull].candidate_ids) == 1, "what exists already is not mended"
    assert 27 not in by_value
    refused = Counter(event.refused for event in run.events if isinstance(event, e.ReplyRead))
    assert refused["no code"] == 1
    assert refused["cut off"] == 1
    assert refused["duplicate"] == 1
    assert not any(pull.outcome == "dropped" for pull in state.pulls.values()), "the provider's failures cost no pull"

    # the statistics are those of the pull log
    clusters = {arm.cluster for arm in state.arms.values()}
    prior = settings_of(state).prior_mean
    again = recomputed(state.pulls.values(), lambda parent: cluster_of(state, parent), clusters, prior)
    for arm in again:
        if (arm.cluster, arm.strategy) in state.arms:
            seen = state.arms[arm.cluster, arm.strategy]
            assert (seen.pulls, seen.mean) == (arm.pulls, pytest.approx(arm.mean))
    assert sum(pull.seen for pull in state.pulls.values()) == 20


async def test_a_run_is_reproduced_without_network_by_its_recording() -> None:
    answers = mixture()
    with ChatServer(lambda _: next(answers)) as server:
        run = run_on(server, iterations=12)
        first = await run.go()
    recording = read_recording(journal_file("llm-1"))
    assert recording.models == MODEL

    replayed = run_on(server, "replay-1", iterations=12, generator="replay")
    replayed._make = lambda spec: make_generator("replay", recording=journal_file("llm-1"))  # type: ignore[method-assign]
    second = await replayed.go()

    def course(state: RunState) -> list[tuple[object, ...]]:
        return [
            (one.id, one.parent_id, one.pull, one.strategy, one.source, one.status) for one in state.candidates.values()
        ]

    assert course(second) == course(first)
    assert second.best_id == first.best_id
    assert {k: (a.pulls, a.mean) for k, a in second.arms.items()} == {
        k: (a.pulls, a.mean) for k, a in first.arms.items()
    }
    assert second.cost_usd == 0
    asked = {event.prompt_digest for event in fakes.journal("llm-1") if isinstance(event, e.Replied)}
    assert {event.prompt_digest for event in fakes.journal("replay-1") if isinstance(event, e.Replied)} <= asked


async def test_a_replay_ends_where_its_recording_does() -> None:
    answers = mixture()
    with ChatServer(lambda _: next(answers)) as server:
        await run_on(server, iterations=3).go()
    replayed = run_on(server, "replay-1", iterations=50, generator="replay")
    replayed._make = lambda spec: make_generator("replay", recording=journal_file("llm-1"))  # type: ignore[method-assign]
    state = await replayed.go()
    assert state.stopped_by == "no arms"
    assert any("holds no further reply" in line.text for line in state.log)


# ---------------------------------------------------------------- money


async def test_the_budget_ends_a_run_and_is_never_passed(billed: None) -> None:
    answers = (reply(10 * n + 6 + n % 3, prompt_tokens=500, completion_tokens=400) for n in itertools.count(1))
    with ChatServer(lambda _: next(answers)) as server:
        run = run_on(server, budget_usd=0.1, parameters={"most_tokens": 4096})
        state = await run.go()
    assert state.stopped_by == "budget"
    assert 0.04 < state.cost_usd <= 0.1
    assert state.reserved_usd == 0
    assert any("of the budget are left" in line.text for line in state.log)


async def test_spend_survives_and_a_larger_budget_goes_on(billed: None) -> None:
    answers = (reply(10 * n + 6 + n % 3, prompt_tokens=500, completion_tokens=400) for n in itertools.count(1))
    with ChatServer(lambda _: next(answers)) as server:
        first = await run_on(server, budget_usd=0.1, parameters={"most_tokens": 4096}).go()
        again = run_on(server, budget_usd=0.15, continue_run=True, parameters={"most_tokens": 4096})
        second = await again.go()
    assert first.cost_usd < second.cost_usd <= 0.15
    assert second.budget_usd == 0.15


async def test_an_unknown_price_stops_the_run_before_the_lane() -> None:
    with ChatServer(lambda _: reply(10)) as server:
        run = run_on(server, model="openai/nobody-knows-it")
        provider_is_local = provider.is_local
        try:
            provider.is_local = lambda *_: False  # type: ignore[assignment]
            with pytest.raises(UnknownPriceError, match="nobody-knows-it"):
                await run.go()
        finally:
            provider.is_local = provider_is_local
    assert run.script.started == 0
    assert not journal_file("llm-1").exists()


async def test_a_missing_key_stops_the_run_before_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with ChatServer(lambda _: reply(10)) as server:
        run = run_on(server, parameters={"api_base": ""})
        with pytest.raises(UsageError, match="OPENAI_API_KEY"):
            await run.go()
    assert run.script.started == 0
    assert server.received == []


async def test_the_estimate_and_the_price_data_are_in_the_journal(billed: None) -> None:
    answers = (reply(10 * n + 6) for n in itertools.count(1))
    with ChatServer(lambda _: next(answers)) as server:
        run = run_on(server, iterations=1)
        state = await run.go()
    assert state.started is not None
    assert {"litellm", "litellm prices"} <= set(state.started.versions)
    assert state.started.repairs == 2
    notes = [event.text for event in run.events if isinstance(event, e.Noted)]
    assert any("tokens in and 4000 out a call, $0.0" in text and "estimate" in text for text in notes)


# ---------------------------------------------------------------- failures


async def test_a_provider_that_does_not_come_round_pauses_the_run_and_is_told_to_go_on() -> None:
    broken = True

    def script(received: Received) -> Answer:
        if broken and received.number > 2:
            return Answer(status=401, error={"error": {"message": f"bad key {KEY}", "code": "invalid_api_key"}})
        return reply(10 * received.number + 6)

    with ChatServer(script) as server:
        run = run_on(server, attended=True, iterations=4)
        engine = run.engine()
        paused = asyncio.Event()
        run.on_event = lambda event: paused.set() if isinstance(event, e.RunPaused) else None
        task = asyncio.create_task(engine.run(run.hear, lambda: None))
        await asyncio.wait_for(paused.wait(), 20)
        state = run.state
        assert state.status == "paused"
        assert "401, the provider refuses the key" in state.pause_reason
        dropped = [event for event in run.events if isinstance(event, e.PullDropped)]
        assert [event.owner for event in dropped] == ["provider"]
        assert state.pulls_ended == 2
        broken = False
        from kbtui.engine.client import send

        told = await asyncio.to_thread(send, "llm-1", c.Resume(by="me"))
        assert told.ok
        await asyncio.wait_for(task, 30)
    assert run.state.stopped_by == "iterations"
    assert run.state.pulls_ended == 4


async def test_unattended_it_ends_with_the_reason() -> None:
    with ChatServer(lambda _: Answer(status=403, error={"error": {"message": "no"}})) as server:
        run = run_on(server)
        with pytest.raises(ProviderFailure, match="403"):
            await run.go()
    assert run.state.stopped_by.startswith("error: ")


async def test_a_person_gives_up_a_reply_and_the_run_goes_on() -> None:
    def script(received: Received) -> Answer:
        slow = received.number == 2
        return reply(10 * received.number + 6, pause_s=0.5 if slow else 0.0, pieces=400 if slow else 8)

    from kbtui.engine.client import send

    with ChatServer(script) as server:
        run = run_on(server, attended=True, iterations=3)
        growing = asyncio.Event()
        run.on_event = lambda event: growing.set() if isinstance(event, e.ReplyDelta) and event.pull == 2 else None
        task = asyncio.create_task(run.engine().run(run.hear, lambda: None))
        await asyncio.wait_for(growing.wait(), 20)
        told = await asyncio.to_thread(send, "llm-1", c.Cancel(by="ann@pts/1"))
        assert told.ok, told.text
        assert "pull 2" in told.text
        await asyncio.wait_for(task, 30)
        for _ in range(50):
            if server.abandoned:
                break
            await asyncio.sleep(0.1)
        assert server.abandoned == 1
    state = run.state
    assert state.pulls_ended == 3
    assert state.pulls[2].outcome == "dropped"
    assert [event.kind for event in run.events if isinstance(event, e.AskFailed)] == ["cancelled"]
    refused = await asyncio.to_thread(_refusal, state)
    assert "no model is asked" in refused


def _refusal(state: RunState) -> str:
    from kbtui.engine.commands import answer
    from kbtui.search.registry import make_policy

    state.status = "running"
    with pytest.raises(UsageError) as refused:
        answer(state, make_policy("paper", {}), c.Cancel(by="ann"))
    return str(refused.value)


async def test_requests_in_flight_fill_the_places() -> None:
    values = itertools.count(1)
    with ChatServer(lambda _: reply(10 * next(values) + 6, delay_s=0.3)) as server:
        run = run_on(server, iterations=8, parallel=4)
        began = time.monotonic()
        state = await run.go()
        took = time.monotonic() - began
    assert state.pulls_ended == 8
    assert server.most_in_flight == 4
    assert took < 8 * 0.3 + 3


async def test_a_crash_after_a_paid_reply_evaluates_it_first() -> None:
    """Cut the journal after each event of the second pull: the replies that are in it are never asked for again."""
    values = itertools.count(1)
    with ChatServer(lambda _: reply(10 * next(values) + 6)) as server:
        await run_on(server, iterations=2).go()
        lines = journal_file("llm-1").read_bytes().splitlines(keepends=True)
        events = fakes.journal("llm-1")
        second = next(n for n, event in enumerate(events) if isinstance(event, e.Replied) and event.pull == 2)
        for cut in (second + 1, second + 2):
            path = journal_file(f"cut-{cut}")
            path.parent.mkdir(parents=True)
            path.write_bytes(b"".join(lines[:cut]))
            before = len(server.received)
            run = run_on(server, f"cut-{cut}", iterations=2, continue_run=True)
            state = await run.go()
            assert len(server.received) == before
            assert state.pulls_ended == 2
            assert fakes.value_of(state.candidates[2].source) == 26
            assert isinstance(run.events[0], e.RunContinued)


# ---------------------------------------------------------------- secrets


async def test_a_key_is_nowhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The model even says it, and the provider's error repeats it."""
    leak = version(16) + f"# {KEY}\n"

    def script(received: Received) -> Answer:
        assert received.headers["authorization"] == f"Bearer {KEY}"
        if received.number == 1:
            return Answer(status=500, error={"error": {"message": f"cannot bill {KEY}"}})
        if received.number == 4:
            return Answer(status=401, error={"error": {"message": f"bad key {KEY}", "code": "invalid_api_key"}})
        return Answer(
            f"Title: {KEY}\nCause: {KEY}\n```python\n{leak}\nX = {received.number}\n```",
            reasoning=f"the key is {KEY}",
            pieces=60,
            pause_s=0.02,
        )

    with ChatServer(script) as server:
        run = run_on(server, iterations=4)
        shown: list[e.Event] = []
        run.on_event = shown.append
        with pytest.raises(ProviderFailure) as failed:
            await run.go()
        sent = [json.dumps(received.body) for received in server.received]
    assert KEY not in str(failed.value)
    assert any(isinstance(event, e.ReplyDelta) for event in shown), "the replies were seen growing"
    for part in (KEY, KEY[3:20]):  # a growing or a cut reply shows no piece of it either
        assert all(part not in repr(event) for event in shown)
    assert all(KEY not in body for body in sent[1:]), "what a model leaked is not sent back"

    from kbtui.cli.crash import write_report
    from kbtui.cli.headless import EventLines, Progress
    from kbtui.engine.preview import of_run
    from kbtui.history.database import History
    from kbtui.history.export import export_candidate

    state = run.state
    History().ingest()
    write_report(RuntimeError(f"cannot ask with {KEY}"))
    assert state.best is not None, "there is a best kernel with its evidence card"
    export_candidate(state, state.best_id, tmp_path / "out.py", overwrite=False)
    for watcher in (EventLines(), Progress()):
        for event in shown:
            watcher.show(event)
        assert state.summary is not None
        watcher.finish(state.summary)
    printed = capsys.readouterr()
    assert "bad key [redacted]" in printed.out
    preview = of_run("llm-1", "fusion", None, "", 16_384)
    assert "[redacted]" in repr(preview), "the version that leaked it is in the prompt"
    painted = await _painted("llm-1")
    assert "[redacted]" in painted, "the leak is on the screen, without the key"

    files = [file for folder in (data_dir(), tmp_path) for file in folder.rglob("*") if file.is_file()]
    names = {file.name for file in files}
    assert {"history.duckdb", "journal.jsonl", "evidence.json", "evidence.txt", "out.py", "out.evidence.json"} <= names
    assert any(file.parent.name == "crashes" for file in files)
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file
    for text in (printed.out, printed.err, repr(preview), painted):
        assert KEY not in text


async def _painted(run_id: str) -> str:
    """What the cockpit shows of a run, on its own screen, on that of its best candidate, tab by tab, and in the log."""
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.terminal import Terminal

    app = KbtuiApp(run_id, read_only=True, terminal=Terminal(ascii=False, colours="many"))
    seen: list[str] = []
    async with app.run_test(size=(200, 50)) as pilot:

        async def look(*keys: str) -> None:
            await pilot.press(*keys)
            await pilot.pause()
            await app.tick()
            await app.workers.wait_for_complete()
            await pilot.pause()
            seen.extend(strip.text for strip in app.screen._compositor.render_strips())

        await look()
        await look("enter")
        for _ in range(8):
            await look("tab")
        await look("escape")
    return "\n".join(seen)
