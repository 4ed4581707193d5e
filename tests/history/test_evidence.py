"""Evidence cards: what stands on them, that modelled stays modelled, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kbtui.errors import UsageError
from kbtui.history.evidence import figure, make_card, page, read_card, write_card
from kbtui.history.export import export_candidate
from kbtui.state import events as e
from kbtui.state.records import Verification
from kbtui.state.run_state import Candidate, RunState

MakeRun = Callable[..., list[e.Event]]


def folded(events: list[e.Event]) -> RunState:
    return RunState().apply_all(events)


def timed_and_correct(state: RunState) -> Candidate:
    return next(
        one for one in state.candidates.values() if one.correct and one.timing is not None and one.parent_id == 0
    )


def test_a_card_says_what_was_judged_and_how(make_run: MakeRun, tmp_path: Path) -> None:
    state = folded(make_run())
    candidate = timed_and_correct(state)
    card = make_card(state, candidate)
    assert [one.candidate_id for one in card.chain] == [candidate.id, 0]
    assert card.chain[0].source_digest == candidate.source_digest
    assert card.source == candidate.source
    assert state.started is not None
    assert card.problem_digest == state.started.problem.digest
    assert (card.seed, card.isolation, card.versions) == (
        state.started.seed, state.started.isolation, state.started.versions,
    )  # fmt: skip
    write_card(card, tmp_path / "evidence.json")
    assert read_card(tmp_path / "evidence.json") == card
    text = (tmp_path / "evidence.txt").read_text()
    assert candidate.source_digest in text
    assert "measured" in text
    assert "\x1b" not in text
    assert "\0" not in text
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["evidence.json", "evidence.txt"]


def test_a_modelled_time_is_never_called_measured(make_run: MakeRun) -> None:
    state = folded(make_run(timing="modelled"))
    card = make_card(state, timed_and_correct(state))
    assert card.timing.ratio is None
    assert "est, modelled and not measured" in figure(card)
    assert "times are modelled" in page(card)


def test_the_hidden_stage_stands_on_it_with_its_seed(make_run: MakeRun) -> None:
    state = folded(make_run())
    candidate = timed_and_correct(state)
    assert "hidden       not run" in page(make_card(state, candidate))
    candidate.confirmation = Verification(verdict="correct", stage="hidden", cases_checked=6, detail="seed 17")
    assert "hidden       correct on 6 cases nothing had seen, seed 17" in page(make_card(state, candidate))


def test_an_export_brings_its_card(make_run: MakeRun, tmp_path: Path) -> None:
    state = folded(make_run())
    candidate = timed_and_correct(state)
    export_candidate(state, candidate.id, tmp_path / "mine.py", overwrite=False)
    assert read_card(tmp_path / "mine.evidence.json").candidate_id == candidate.id
    assert (tmp_path / "mine.evidence.txt").exists()


def test_what_is_not_correct_has_no_evidence(make_run: MakeRun, tmp_path: Path) -> None:
    state = folded(make_run())
    wrong = next(one for one in state.candidates.values() if not one.correct)
    with pytest.raises(UsageError, match="not a correct candidate"):
        make_card(state, wrong)
    export_candidate(state, wrong.id, tmp_path / "wrong.py", overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.py"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b'{"version": 1}'])
def test_what_is_no_card_is_refused(body: bytes, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_bytes(body)
    with pytest.raises(UsageError, match="no evidence card"):
        read_card(tmp_path / "card.json")


def test_a_card_of_another_version_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    state = folded(make_run())
    card = msgspec.structs.replace(make_card(state, timed_and_correct(state)), version=99)
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(card))
    with pytest.raises(UsageError, match="version 99"):
        read_card(tmp_path / "card.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_card(tmp_path / "none.json")
