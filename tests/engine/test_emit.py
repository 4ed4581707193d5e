"""What is folded live is what is read back, free of secrets and of what JSON lacks."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from kbtui import clock
from kbtui.engine.emit import Emitter
from kbtui.history.journal import JournalWriter, read_journal
from kbtui.state import events as e
from kbtui.state.records import Verification
from kbtui.state.run_state import RunState
from kbtui.text import REDACTED

SECRET = 'pass"word\\with é and quotes'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def generated(source: str) -> e.Generated:
    return e.Generated(
        candidate_id=0,
        parent_id=None,
        pull=0,
        strategy=None,
        generator="baseline",
        move="baseline",
        source=source,
        source_digest="",
        syntax_digest="",
    )


def test_what_is_told_is_what_is_read(file: Path) -> None:
    heard: list[e.Event] = []
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        emitter.listen(heard.append)
        told = [emitter.emit(generated("x = 1")), emitter.emit(e.Noted(level="info", text="hello"))]
    assert told == heard == read_journal(file)
    assert [event.seq for event in told] == [1, 2]
    assert emitter.state.candidates[0].source == "x = 1"


@pytest.mark.parametrize("place", ["{}", "a {} b", "{}\n{}"])
def test_secrets_in_any_string(file: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    text = place.replace("{}", SECRET)
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        emitter.emit(e.Noted(level="info", text=text, source=text))
        emitter.emit(e.Masked(pull=1, signatures={}, held={0: {"tiling": text}}))
    note, masked = read_journal(file)
    assert isinstance(note, e.Noted)
    assert isinstance(masked, e.Masked)
    assert note.text == note.source == masked.held[0]["tiling"] == place.replace("{}", REDACTED)


def test_secrets_in_keys_and_in_transient_events(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    heard: list[e.Event] = []
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        emitter.listen(heard.append)
        emitter.show(e.GpuSampled(device="cpu", uuid="", values={}, missing={SECRET: SECRET}))
        emitter.show(e.Progressed(stage="generating", text=SECRET))
    sample, progress = heard
    assert isinstance(sample, e.GpuSampled)
    assert sample.missing == {REDACTED: REDACTED}
    assert isinstance(progress, e.Progressed)
    assert progress.text == REDACTED
    assert read_journal(file) == []
    assert emitter.state.progress == progress


def test_infinities_become_unknown(file: Path) -> None:
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        emitter.emit(generated("x = 1"))
        wrong = Verification(verdict="wrong", stage="boundary", error=math.inf, allowed=math.nan)
        emitter.emit(e.Verified(candidate_id=0, verification=wrong))
    verified = read_journal(file)[1]
    assert isinstance(verified, e.Verified)
    assert verified.verification.error is None
    assert verified.verification.allowed is None


def test_a_number_that_must_be_one_is_a_bug_and_not_in_the_journal(file: Path) -> None:
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        with pytest.raises(msgspec.ValidationError):
            emitter.emit(
                e.Rewarded(
                    pull=1,
                    cluster=0,
                    strategy="tiling",
                    candidate_id=None,
                    reward=math.nan,
                    mean=0.5,
                    pulls=1,
                    outcome="",
                )
            )
    assert read_journal(file) == []
    assert emitter.state.arms == {}


def test_lone_surrogates_do_not_break_the_journal(file: Path) -> None:
    with JournalWriter(file) as writer:
        Emitter(RunState(), writer).emit(generated("x = '\ud800'"))
    (event,) = read_journal(file)
    assert isinstance(event, e.Generated)
    assert event.source == "x = '?'"


def test_elapsed_goes_on_where_the_last_process_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    monkeypatch.setattr(clock, "wall", lambda: 1e9 + now)
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState(), writer)
        now += 7
        assert emitter.emit(e.Noted(level="info", text="a")).elapsed == 7
    now += 1000
    with JournalWriter(file) as writer:
        emitter = Emitter(RunState().apply_all(read_journal(file)), writer)
        now += 2
        event = emitter.emit(e.Noted(level="info", text="b"))
    assert (event.elapsed, event.t) == (9, 1e9 + 1109)
