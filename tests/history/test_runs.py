"""Which runs there are, how each stands, and which one a word means."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from kbtui import clock
from kbtui.errors import JournalError, RunNotFoundError
from kbtui.history import runs
from kbtui.history.journal import STALE_S, RunLock, heartbeat_file
from kbtui.history.runs import RunEntry, find_run, list_runs, load_state
from kbtui.paths import journal_file, run_dir, runs_dir
from kbtui.state import events as e
from kbtui.state.run_state import RunState

MakeRun = Callable[..., list[e.Event]]
Write = Callable[[str, Iterable[e.Event]], None]
StopEvent = Callable[[str], e.RunStopped]


def later(events: list[e.Event], seconds: float) -> list[e.Event]:
    return [msgspec.structs.replace(event, t=event.t + seconds) for event in events]


def only() -> RunEntry:
    [entry] = list_runs()
    return entry


def test_no_runs_at_all() -> None:
    assert list_runs() == []
    with pytest.raises(RunNotFoundError, match="kbtui run PROBLEM"):
        find_run(None)


def test_an_entry_says_what_the_journal_says(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("softmax-1", make_run())
    entry = only()
    assert (entry.run_id, entry.problem, entry.device, entry.timing) == (
        "softmax-1",
        "softmax",
        "NVIDIA H200",
        "measured",
    )
    assert (entry.pulls, entry.iterations, entry.candidates, entry.correct) == (2, 4, 3, 2)
    assert (entry.best_id, entry.best_ratio, entry.best_estimate, entry.best_verdict) == (1, 1.5, None, "faster")
    assert (entry.cost_usd, entry.started_t, entry.last_t) == (0.75, 1_800_000_000.0, 1_800_000_026.0)


def test_a_modelled_best_is_no_ratio(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("guess", make_run("guess", "modelled"))
    assert (only().best_ratio, only().best_estimate, only().best_verdict) == (None, 1.5, "not worse")


def test_without_a_process_a_run_has_crashed_until_it_says_that_it_stopped(
    make_run: MakeRun, write_journal: Write, stop_event: StopEvent
) -> None:
    write_journal("r", make_run("r"))
    assert (only().status, only().pid) == ("crashed", None)
    write_journal("r", [stop_event("r")])
    assert (only().status, only().stopped_by) == ("stopped", "user")
    write_journal("r", [e.RunContinued(pid=1)])
    assert only().status == "crashed"


def test_with_a_process_a_run_is_live_paused_or_stale(
    make_run: MakeRun, write_journal: Write, stop_event: StopEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.wall()
    with RunLock("r") as lock:
        write_journal("r", make_run("r"))
        assert (only().status, only().pid) == ("paused", os.getpid())
        write_journal("r", [e.RunResumed(by="ann")])
        assert only().status == "live"
        monkeypatch.setattr(clock, "wall", lambda: now + STALE_S + 10)
        assert only().status == "stale"
        lock.beat()
        os.utime(heartbeat_file("r"), (now + 20, now + 20))
        assert only().status == "live"
        heartbeat_file("r").unlink()
        assert only().status == "stale"
        write_journal("r", [stop_event("r")])
        assert only().status == "stopped"


def test_a_growing_journal_is_folded_again(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("r", make_run("r")[:7])
    assert only().candidates == 1
    write_journal("r", make_run("r")[7:])
    assert only().candidates == 3


def test_a_journal_is_folded_once_however_many_there_are(
    make_run: MakeRun, write_journal: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal("first", make_run("first"))
    one = journal_file("first").read_bytes()
    many = [f"r-{number}" for number in range(1_100)]
    for run_id in many:
        run_dir(run_id).mkdir()
        journal_file(run_id).write_bytes(one)
    folded: list[Path] = []
    fold = runs._fold

    def counted(path: Path) -> RunState:
        folded.append(path)
        return fold(path)

    monkeypatch.setattr(runs, "_fold", counted)
    assert len(list_runs()) == len(folded) == 1_101
    list_runs()
    assert len(folded) == 1_101
    write_journal("first", make_run("first")[:1])
    list_runs()
    assert folded[1_101:] == [journal_file("first")]
    shutil.rmtree(run_dir("first"))
    assert len(list_runs()) == 1_100
    assert set(runs._SUMMARIES) == set(map(journal_file, many))  # nothing is kept of a run that is gone


def test_a_damaged_journal_is_listed_with_its_reason(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("good", make_run("good"))
    run_dir("bad").mkdir()
    journal_file("bad").write_text("nonsense\n")
    write_journal("orphan", make_run("orphan")[2:])
    entries = {entry.run_id: entry for entry in list_runs()}
    assert entries["good"].error == ""
    assert "line 1" in entries["bad"].error
    assert "candidate 0" in entries["orphan"].error
    with pytest.raises(JournalError, match="candidate 0"):
        load_state("orphan")


def test_a_folder_without_a_journal_is_no_run(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("r", make_run("r"))
    (runs_dir() / "empty").mkdir()
    (runs_dir() / "file").write_text("")
    assert [entry.run_id for entry in list_runs()] == ["r"]


@pytest.fixture
def three(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("softmax-20260101-aaa", make_run("softmax-20260101-aaa"))
    write_journal("matmul-20260102-bbb", later(make_run("matmul-20260102-bbb", "measured", "matmul"), 100))
    write_journal("softmax-20260103-ccc", later(make_run("softmax-20260103-ccc"), 200))


@pytest.mark.usefixtures("three")
def test_runs_are_listed_newest_first() -> None:
    assert [entry.run_id[-3:] for entry in list_runs()] == ["ccc", "bbb", "aaa"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("softmax-20260101-aaa", "aaa"),
        ("aaa", "aaa"),
        ("softmax-20260101", "aaa"),
        ("matmul", "bbb"),
        ("mat", "bbb"),
        ("softmax", "ccc"),
        ("latest", "ccc"),
        (None, "ccc"),
    ],
)
def test_a_word_means_one_run(text: str | None, found: str) -> None:
    assert find_run(text).endswith(found)


@pytest.mark.usefixtures("three")
def test_no_word_means_the_live_run_before_the_newest() -> None:
    with RunLock("matmul-20260102-bbb"):
        assert find_run(None) == "matmul-20260102-bbb"
        assert find_run("latest") == "softmax-20260103-ccc"


@pytest.mark.usefixtures("three")
def test_who_steers_a_problem_by_name_means_its_live_run() -> None:
    with RunLock("softmax-20260101-aaa"):
        assert find_run("softmax") == "softmax-20260103-ccc"
        assert find_run("softmax", to_steer=True) == "softmax-20260101-aaa"
    assert find_run("softmax", to_steer=True) == "softmax-20260103-ccc"


@pytest.mark.usefixtures("three")
def test_another_problems_live_run_is_never_steered_by_a_name_it_begins_with(
    make_run: MakeRun, write_journal: Write
) -> None:
    write_journal(
        "softmax-big-20260104-ddd", later(make_run("softmax-big-20260104-ddd", "measured", "softmax_big"), 300)
    )
    with RunLock("softmax-big-20260104-ddd"):
        assert find_run("softmax", to_steer=True) == "softmax-20260103-ccc"


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("text", "sentence"), [("soft", "fits 2 runs"), ("x", "no run is called 'x'"), ("", "no run")])
def test_a_word_that_means_none_or_several_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(RunNotFoundError, match=sentence):
        find_run(text)


def test_loading_the_state_of_a_run(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("r", make_run("r"))
    state = load_state("r")
    assert (state.status, state.best_id, state.seq) == ("paused", 1, len(make_run()))
    for nobody in ("nobody", "../r", ""):
        with pytest.raises(RunNotFoundError, match="kbtui runs"):
            load_state(nobody)


def test_listing_survives_a_missing_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_HOME", str(tmp_path / "none"))
    assert list_runs() == []
