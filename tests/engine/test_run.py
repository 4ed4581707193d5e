"""Whole runs with fakes: what a run does, in which order, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_fakes import (
    FakeGenerator,
    Run,
    Script,
    environment_failure,
    first_lines,
    journal,
    provider_failure,
    sequence,
    spec,
    value_of,
    variant,
)

from kbtui import paths
from kbtui.engine import actions as a
from kbtui.engine.lane_thread import LaneLost
from kbtui.engine.loop import BaselineFailed
from kbtui.engine.plan import Limits, ready_actions
from kbtui.errors import EnvironmentFailure, HistoryError, ProblemError, ProviderFailure, UsageError
from kbtui.history.journal import RunLock
from kbtui.search.arms import DUPLICATES, Board
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES, Verification
from kbtui.state.run_state import RunState
from kbtui.text import REDACTED


async def test_a_run_from_start_to_end() -> None:
    run = Run(spec(iterations=12))
    state = await run.go()
    kinds = [type(event).__name__ for event in run.events]
    assert kinds[:7] == [
        "RunStarted",
        "Generated",
        "Compiled",
        "Verified",
        "Timed",
        "MovesFound",
        "BestChanged",
    ]
    assert kinds[-1] == "RunStopped"
    assert state.stopped_by == "iterations"
    assert state.pulls_ended == 12
    assert state.open_pulls == []
    assert run.events == journal("fake-1")
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
    assert all(later.elapsed >= earlier.elapsed for earlier, later in zip(run.events, run.events[1:], strict=False))
    assert run.script.closed == 1
    assert RunLock.holder("fake-1") is None
    assert not paths.socket_file("fake-1").exists()
    assert run.ingested == 2  # after ten pulls and after the end


async def test_every_pull_ends_in_one_way() -> None:
    run = Run(spec(iterations=30))
    state = await run.go()
    for pull in state.pulls.values():
        ends = [x for x in run.events if isinstance(x, e.Rewarded | e.PullDropped) and x.pull == pull.number]
        assert len(ends) == 1
    outcomes = {pull.outcome for pull in state.pulls.values()}
    assert {"invalid", "wrong", "pruned", "dropped", "faster"} <= outcomes
    for pull in state.pulls.values():
        if pull.outcome in ("invalid", "wrong", "pruned"):
            assert pull.reward == 0.0


async def test_no_source_is_judged_twice() -> None:
    run = Run(spec(iterations=30), generator=FakeGenerator(values=60))
    await run.go()
    compiled = [value for method, value in run.script.calls if method == "compile"]
    assert len(compiled) == len(set(compiled))
    assert len(run.generator.written) > len(compiled)  # there were duplicates, and nobody judged them


async def test_what_cannot_win_is_pruned_before_it_runs() -> None:
    run = Run(spec(iterations=30))
    state = await run.go()
    verified = {value for method, value in run.script.calls if method == "verify"}
    by_stage: dict[str, set[int]] = {}
    for candidate in state.candidates.values():
        if candidate.pruned is not None:
            by_stage.setdefault(candidate.pruned.stage, set()).add(value_of(candidate.source) % 10)
            assert value_of(candidate.source) not in verified
            assert candidate.pruned.value is not None
            assert candidate.pruned.reason
    assert by_stage == {"resources": {3}, "code": {4}}


async def test_what_could_not_be_checked_is_not_held_against_the_arm() -> None:
    run = Run(spec(iterations=30))
    state = await run.go()
    unknown = [c for c in state.candidates.values() if c.status == "unknown"]
    assert unknown
    for candidate in unknown:
        assert state.pulls[candidate.pull].outcome == "dropped"
        assert not state.pulls[candidate.pull].seen


async def test_what_moves_too_little_for_its_case_is_wrong_and_earns_nothing() -> None:
    free = Run(spec("fake-free", iterations=12), script=Script(timing="modelled", kind="cpu"))
    best = (await free.go()).best
    assert best is not None
    assert best.id != 0
    short = value_of(best.source)
    run = Run(spec(iterations=12), script=Script(timing="modelled", kind="cpu", short=frozenset({short})))
    state = await run.go()
    (refused,) = [one for one in state.candidates.values() if value_of(one.source) == short]
    assert refused.verification is not None
    assert (refused.verification.verdict, refused.verification.stage) == ("wrong", "traffic")
    assert refused.verification.reason == "n=1024: it moves 67.2 MB where the case needs 134 MB"
    assert refused.verification.cases_checked == 9, "what was found before stays"
    assert refused.timing is None
    assert state.pulls[refused.pull].reward == 0.0
    assert state.best is not None
    assert state.best.id != refused.id


async def test_traffic_that_counts_too_much_is_the_problems_fault() -> None:
    run = Run(spec(iterations=12), script=Script(timing="modelled", kind="cpu", short=frozenset({0})))
    with pytest.raises(ProblemError, match=r"vector_add: traffic counts more .* correct traffic in problem\.py"):
        await run.go()
    assert isinstance(run.events[-1], e.RunStopped)


async def test_the_same_seed_makes_the_same_run() -> None:
    first, second, other = Run(spec("fake-a", seed=3)), Run(spec("fake-b", seed=3)), Run(spec("fake-c", seed=4))
    await first.go()
    await second.go()
    await other.go()

    def course(run: Run) -> list[tuple[object, ...]]:
        return [entry for entry in sequence(run.events) if entry[0] != "BestChanged"]  # its path names the run

    assert course(first) == course(second)
    assert course(first) != course(other)


@pytest.mark.parametrize("timing", ["measured", "modelled"])
async def test_the_best_is_exported_and_summed_up(timing: str) -> None:
    run = Run(spec(iterations=20), script=Script(timing=timing))
    state = await run.go()
    best, summary = state.best, state.summary
    assert best is not None
    assert summary is not None
    assert summary.best is not None
    exported = Path(summary.best.path).read_text()
    assert exported.endswith(best.source)
    assert ("modelled and not measured" in exported) == (timing == "modelled")
    assert summary.best.path == str(paths.run_dir("fake-1") / "best" / "kernel.py")
    figures = [c.ratio or c.estimate for c in state.frontier if c.status in ("faster", "not worse")]
    if timing == "measured":
        assert summary.best.speedup == best.ratio == max(f for f in figures if f is not None)
        assert summary.best.estimate is None
        assert summary.baseline_ms == pytest.approx(1.0)
    else:
        assert summary.best.estimate == best.estimate == max(f for f in figures if f is not None)
        assert summary.best.speedup is None
        assert summary.baseline_ms is None
    assert summary.cost_usd == pytest.approx(state.cost_usd)
    assert summary.stopped_by == "iterations"
    assert (summary.pulls, summary.candidates) == (20, len(state.candidates))
    promoted = [x.candidate_id for x in run.events if isinstance(x, e.BestChanged)]
    assert promoted[0] == 0
    assert promoted[-1] == best.id


async def test_every_reply_is_paid_for_once() -> None:
    run = Run(spec(iterations=25), generator=FakeGenerator(values=40))
    state = await run.go()
    replies = [value for value in run.generator.written if value % 23]
    assert state.tokens == 10 * len(replies)
    assert state.cost_usd == pytest.approx(0.01 * len(replies))


async def test_the_budget_ends_a_run() -> None:
    state = await Run(spec(iterations=1000, budget_usd=0.05)).go()
    assert state.stopped_by == "budget"
    assert 0.05 <= state.cost_usd < 0.08


async def test_a_generator_with_nothing_new_ends_the_run() -> None:
    run = Run(spec(iterations=1000), generator=FakeGenerator(values=3))
    state = await run.go()
    assert state.stopped_by == "no arms"
    assert len(state.candidates) <= 4
    board = Board(state)
    assert not any(board.parents(cluster, strategy) for cluster in board.members for strategy in STRATEGIES)
    assert any(pull.duplicates == DUPLICATES for pull in state.pulls.values())


async def test_a_baseline_that_is_wrong_stops_the_run_with_one_sentence() -> None:
    run = Run(spec(), script=Script(baseline_verdict="wrong"))
    with pytest.raises(BaselineFailed, match=r"fails its own check .*mend kernel\.py"):
        await run.go()
    assert run.state.status == "stopped"
    assert run.state.stopped_by.startswith("error: the baseline")
    assert run.state.pulls == {}


async def test_a_start_that_fails_leaves_nothing_behind() -> None:
    run = Run(spec(), script=Script(start_errors=[EnvironmentFailure("no torch: pip install torch")]))
    with pytest.raises(EnvironmentFailure, match="no torch"):
        await run.go()
    assert not paths.run_dir("fake-1").exists()
    assert run.script.closed == 1


async def test_a_run_id_is_used_once() -> None:
    await Run(spec(iterations=1)).go()
    before = paths.journal_file("fake-1").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        await Run(spec(iterations=1)).go()
    assert paths.journal_file("fake-1").read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": 0},
        {"parallel": -1},
        {"parallel": 65},
        {"objective": "best"},
        {"device": "tpu"},
        {"run_id": "../x"},
        {"seed": -1},
    ],
)
async def test_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        await Run(spec(**changes)).go()  # type: ignore[arg-type]
    assert not paths.run_dir("fake-1").exists()


def first_value(iterations: int = 12) -> int:
    """The value of the first candidate that seed 0 leads to and that gets as far as timing, by a run of its own."""
    import asyncio

    run = Run(spec("probe", iterations=iterations))
    asyncio.run(run.go())
    return next(value for method, value in run.script.calls if method == "time" and value)


def test_a_failure_of_the_machine_ends_an_unattended_run() -> None:
    import asyncio

    value = first_value()
    run = Run(spec(iterations=12), script=Script(fail_at={("time", value): environment_failure()}))
    with pytest.raises(EnvironmentFailure, match="the driver is gone"):
        asyncio.run(run.go())
    state = run.state
    assert state.stopped_by == "error: the driver is gone"
    dropped = [x for x in run.events if isinstance(x, e.PullDropped)]
    assert dropped[-1].owner == "environment"
    assert state.open_pulls == []


def test_a_lane_that_cannot_restart_ends_the_run() -> None:
    import asyncio

    value = first_value()
    script = Script(fail_at={("verify", value): environment_failure()})
    run = Run(spec(iterations=12), script=script, attended=True)

    async def go() -> None:
        engine = run.engine()
        resumed = False

        def resume(event: e.Event) -> None:
            nonlocal resumed
            if isinstance(event, e.RunPaused) and not resumed:
                resumed = True
                script.start_errors.append(EnvironmentFailure("still no driver"))
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(tell()))

        async def tell() -> None:
            from kbtui.engine.client import RunClient
            from kbtui.state.commands import Resume

            client = await RunClient.connect("fake-1")
            reading = asyncio.ensure_future(collect(client))
            assert (await client.send(Resume(by="me@test"))).ok
            client.close()
            await reading

        async def collect(client: object) -> None:
            async for _ in client.messages():  # type: ignore[attr-defined]
                pass

        run.on_event = resume
        await engine.run(run.hear, lambda: None)

    with pytest.raises(LaneLost, match="does not start again: still no driver"):
        asyncio.run(go())
    paused = [x for x in run.events if isinstance(x, e.RunPaused)]
    assert [(x.by, x.owner, x.reason) for x in paused] == [("kbtui", "environment", "the driver is gone")]
    assert run.state.stopped_by.startswith("error: the lane cpu does not start again")


async def test_a_provider_that_fails_costs_the_arm_nothing() -> None:
    run = Run(spec(), generator=FakeGenerator(fail_pulls={3: provider_failure()}))
    with pytest.raises(ProviderFailure, match="429"):
        await run.go()
    state = run.state
    assert state.stopped_by == "error: 429: too many requests"
    assert state.pulls[3].outcome == "dropped"
    assert not state.pulls[3].seen
    assert state.pulls_ended == 2


async def test_a_locked_history_is_a_line_in_the_log_and_no_more() -> None:
    run = Run(spec(iterations=12), ingest_error=HistoryError("history.duckdb is held by process 4711"))
    state = await run.go()
    assert state.stopped_by == "iterations"
    notes = [x for x in run.events if isinstance(x, e.Noted)]
    assert [(x.level, x.source) for x in notes] == [("warning", "history")]
    assert "4711" in notes[0].text


class LeakyGenerator(FakeGenerator):
    """Writes a secret into every source."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret

    async def write(self, request):  # type: ignore[no-untyped-def]
        written = await super().write(request)
        if hasattr(written, "source"):
            import msgspec

            return msgspec.structs.replace(
                written, source=f"KEY = {self.secret!r}\n{written.source}", detail=f"with {self.secret}"
            )
        return written


async def test_no_secret_reaches_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted, shaped = "correct-horse-battery-staple", "sk-" + "a1B2" * 8
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", planted)
    folder = tmp_path / "leaky"
    folder.mkdir()
    for name in ("kernel.py", "problem.py"):
        text = (paths.library_dir() / "vector_add" / name).read_text()
        (folder / name).write_text(f"{text}\n# {planted} {shaped}\n")
    run = Run(
        spec(problem=str(folder), iterations=6, arguments=("--key", planted)),
        generator=LeakyGenerator(planted),
        script=Script(fail_at={("compile", -1): environment_failure()}),
    )
    state = await run.go()
    assert len(state.candidates) > 3
    held = [file for file in paths.run_dir("fake-1").rglob("*") if file.is_file()]
    assert {"journal.jsonl", "kernel.py", "problem.py", "lock"} <= {file.name for file in held}
    for file in held:
        content = file.read_bytes()
        assert planted.encode() not in content, file
        assert shaped.encode() not in content, file
    assert any(REDACTED in candidate.source for candidate in state.candidates.values())
    assert state.started is not None
    assert state.started.arguments == ("--key", REDACTED)


async def test_the_problem_is_kept_beside_the_journal() -> None:
    await Run(spec(iterations=1)).go()
    for name in ("kernel.py", "problem.py"):
        kept = paths.run_dir("fake-1") / "problem" / name
        assert kept.read_text() == (paths.library_dir() / "vector_add" / name).read_text()


async def test_infinities_do_not_break_the_journal() -> None:
    state = await Run(spec(iterations=30)).go()
    wrong = [c for c in state.candidates.values() if c.status == "wrong"]
    assert wrong
    assert all(c.verification is not None and c.verification.error is None for c in wrong)


async def test_files_are_the_owners_alone() -> None:
    await Run(spec(iterations=1)).go()
    for name in ("journal.jsonl", "lock"):
        assert os.stat(paths.run_dir("fake-1") / name).st_mode & 0o077 == 0


def test_helpers_mean_what_they_say(tmp_path: Path) -> None:
    assert value_of(variant(17)) == 17
    file = tmp_path / "x"
    file.write_bytes(b"1\n2\n3")
    assert first_lines(file, 2) == b"1\n2\n"


def fastest(run: Run) -> int:
    """The value of the best candidate of a finished run."""
    assert run.state.best is not None
    return value_of(run.state.best.source)


async def test_only_what_the_hidden_stage_confirms_becomes_the_best() -> None:
    plain = Run(spec("fake-p", iterations=20))
    await plain.go()
    promoted = [x.candidate_id for x in plain.events if isinstance(x, e.BestChanged)]
    confirmed = [x.candidate_id for x in plain.events if isinstance(x, e.Confirmed)]
    assert confirmed == promoted[1:]  # all but the baseline, and nobody else
    value = fastest(plain)
    run = Run(spec(iterations=20), script=Script(hidden={value: "wrong"}))
    state = await run.go()
    exposed = next(c for c in state.candidates.values() if value_of(c.source) == value)
    assert (exposed.status, exposed.correct) == ("wrong", False)
    assert state.pulls[exposed.pull].reward == 0.0
    assert state.best_id != exposed.id
    assert exposed.id not in [x.candidate_id for x in run.events if isinstance(x, e.BestChanged)]


async def test_what_the_hidden_stage_cannot_tell_is_not_promoted_and_not_held_against_it() -> None:
    plain = Run(spec("fake-p", iterations=20))
    await plain.go()
    value = fastest(plain)
    run = Run(spec(iterations=20), script=Script(hidden={value: "unknown"}))
    state = await run.go()
    untold = next(c for c in state.candidates.values() if value_of(c.source) == value)
    assert untold.correct
    assert state.best_id != untold.id
    assert run.script.calls.count(("confirm", value)) == 1


async def test_the_next_best_rises_late_when_the_better_one_is_exposed() -> None:
    """Its own pull ended while the better one was still in its way."""
    run = Run(spec(iterations=20))
    await run.go()
    last = max(i for i, x in enumerate(run.events) if isinstance(x, e.Rewarded))
    state = RunState().apply_all(run.events[: last + 1])
    first, second = sorted((c for c in state.frontier if c.status == "faster"), key=lambda c: (-(c.ratio or 0), c.id))[
        :2
    ]
    first.confirmation = Verification(verdict="wrong", stage="hidden")
    state.best_id, second.confirmation = 0, None
    assert state.open_pulls == []
    (action,) = ready_actions(state, Limits())
    assert isinstance(action, a.Confirm)
    assert action.candidate is second
    second.confirmation = Verification(verdict="correct", stage="hidden")
    (action,) = ready_actions(state, Limits())
    assert isinstance(action, a.Promote)
