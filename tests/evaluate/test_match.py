"""Matches whose first pair is started while the candidate is checked: who is started, taken, given up, and when."""

from typing import ClassVar

import pytest

from kbtui.evaluate import match as matching
from kbtui.evaluate.job import JobOrder, Outcome
from kbtui.evaluate.match import Match, Matches
from kbtui.evaluate.turns import PlayerLost


class Check:
    verdict = None


class PretendedPlayer:
    """Notes in `log` what is done with it. `ends` is how its process ends when it is dismissed."""

    log: ClassVar[list] = []
    ends = Outcome(kind="done")
    dead_at_start = False

    def __init__(self, name, zygote, order, supplier):
        self.name, self.source, self.supplier = name, order.source, supplier
        self._note("made")

    def _note(self, what):
        self.log.append((what, self.name, self.source))

    def start(self):
        self._note("started")
        if self.dead_at_start:
            raise PlayerLost(self.name, Outcome(kind="crash", reason="its process died of SIGKILL"))

    discarded = False

    def discard(self):
        self.discarded = True

    def dismiss(self):
        self._note("dismissed")

    def outcome(self):
        self._note("ended")
        return self.ends

    def abandon(self):
        self._note("abandoned")


@pytest.fixture
def log(monkeypatch):
    monkeypatch.setattr(matching, "Player", PretendedPlayer)
    monkeypatch.setattr(PretendedPlayer, "log", [])
    return PretendedPlayer.log


def order(source, tmp_path):
    return JobOrder(kind="time", source=source, entry="f", problem_folder=tmp_path, parameters={}, device="cuda:0")


@pytest.fixture
def matches(tmp_path):
    checks = []

    def recheck():
        checks.append(Check())
        return checks[-1]

    def make(baseline, source):
        return Match(
            zygote=None,
            oracle=None,
            recheck=recheck,
            keys=(),
            baseline=order(baseline, tmp_path),
            candidate=order(source, tmp_path),
        )

    made = Matches(make)
    made.take("base", None)
    made.take("first", "base")
    return made


def done(log, what):
    return [(name, source) for happened, name, source in log if happened == what]


def test_the_first_pair_is_the_one_that_was_begun(log, matches):
    assert matches.begin("next")
    assert done(log, "made") == [("baseline", "base"), ("candidate", "next")]
    assert done(log, "started") == []
    match = matches.take("next", "base")
    assert match.begun
    with match.pair(False) as (baseline, candidate):
        assert (baseline.source, candidate.source) == ("base", "next")
        assert isinstance(candidate.supplier, Check)
    assert len(done(log, "made")) == 2
    assert done(log, "started") == [("baseline", "base"), ("candidate", "next")]
    assert [one for one in log if one[0] in ("dismissed", "ended")] == [
        ("dismissed", "baseline", "base"),
        ("dismissed", "candidate", "next"),
        ("ended", "baseline", "base"),
        ("ended", "candidate", "next"),
    ]


def test_every_further_pair_is_fresh(log, matches):
    matches.begin("next")
    match = matches.take("next", "base")
    with match.pair(False):
        pass
    with match.pair(True):
        pass
    with match.pair(False):
        pass
    assert len(done(log, "made")) == 6
    assert done(log, "started")[2:4] == [("candidate", "next"), ("baseline", "base")]


def test_what_was_begun_for_another_source_is_given_up(log, matches):
    matches.begin("one")
    match = matches.take("other", "base")
    assert not match.begun
    assert done(log, "abandoned") == [("baseline", "base"), ("candidate", "one")]
    with match.pair(False) as (_, candidate):
        assert candidate.source == "other"


def test_what_was_begun_against_another_baseline_is_given_up(log, matches):
    matches.begin("one")
    match = matches.take("one", "another base")
    assert not match.begun
    assert len(done(log, "abandoned")) == 2
    matches.begin("two")
    assert done(log, "made")[-2:] == [("baseline", "another base"), ("candidate", "two")]


def test_beginning_again_gives_up_what_was_begun_before(log, matches):
    matches.begin("one")
    matches.begin("two")
    assert done(log, "abandoned") == [("baseline", "base"), ("candidate", "one")]
    matches.drop()
    matches.drop()
    assert done(log, "abandoned")[2:] == [("baseline", "base"), ("candidate", "two")]


def test_nothing_is_begun_before_anything_was_measured_nor_for_the_baseline(log, tmp_path, matches):
    assert not matches.begin("base")
    fresh = Matches(lambda baseline, source: pytest.fail("made"))
    assert not fresh.begin("one")
    assert log == []


def test_processes_that_have_waited_too_long_are_made_anew(log, matches, monkeypatch):
    matches.begin("next")
    match = matches.take("next", "base")
    real = matching.clock.monotonic
    monkeypatch.setattr(matching.clock, "monotonic", lambda: real() + matching.EARLY_S + 1)
    with match.pair(False):
        pass
    assert done(log, "abandoned")[:2] == [("baseline", "base"), ("candidate", "next")]
    assert len(done(log, "made")) == 4
    assert len(done(log, "started")) == 2


def test_who_does_not_start_is_lost_and_the_other_ended(log, matches, monkeypatch):
    matches.begin("next")
    match = matches.take("next", "base")
    monkeypatch.setattr(PretendedPlayer, "dead_at_start", True)
    with pytest.raises(PlayerLost, match="SIGKILL") as lost, match.pair(False):
        pytest.fail("it started")
    assert lost.value.name == "baseline"
    assert done(log, "abandoned") == [("baseline", "base"), ("candidate", "next")]


def test_a_process_that_ends_badly_is_lost(log, matches, monkeypatch):
    match = matches.take("next", "base")
    monkeypatch.setattr(PretendedPlayer, "ends", Outcome(kind="crash", reason="its process died of SIGSEGV"))
    with pytest.raises(PlayerLost, match="SIGSEGV"), match.pair(False):
        pass
    assert len(done(log, "abandoned")) == 2


def test_who_was_discarded_is_not_waited_for(log, matches):
    with matches.take("next", "base").pair(False) as players:
        for player in players:
            player.discard()
    assert done(log, "dismissed") == done(log, "ended") == []
