"""Which rows of the history database a run's events make. Pure: the fold says what is, the events say when.

The events are given piece by piece, and each piece gives the rows of what is new in it at once, so that neither the
events nor their rows need be in memory together. What a later piece changes (a tag, a new partition, a pull that was in
flight) is set right at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbtui.history import event_rows, light, state_rows
from kbtui.history.event_rows import Kinds, Row, by_kind, choices, of_kind
from kbtui.state import events as e
from kbtui.state.run_state import RunState

Rows = dict[str, list[Row]]
"""Rows by the name of their table."""


class RunRows:
    """The rows of one run, its events given from the first. The database holds those of the events up to number `since`."""

    def __init__(self, run_id: str, since: int = 0) -> None:
        self.run_id = run_id
        self.since = since
        self.seen = 0
        """Events taken so far, the old ones included."""
        self._state = RunState()
        self._times = state_rows.Times()
        self._clusters: dict[int, int | None] = {}
        """Every candidate that has a row, with the cluster in it."""
        self._pulls: set[int] = set()
        """Every pull that has a row."""
        self._tagged: dict[int, int] = {}
        """The candidate that each act of tagging is about, by the act's number."""
        self._late_candidates: set[int] = set()
        self._late_pulls: set[int] = set()

    def take(self, events: Sequence[e.Event]) -> Rows:
        """Fold the next events; the rows of those after `since`: of single events, and of the candidates and pulls that have none
        yet.

        Raises KeyError when the events are no run (an event speaks of a candidate that none made).
        """
        old = max(0, self.since - self.seen)
        if old:
            self._fold(events[:old])
            self._settle()
        kinds = self._fold(events[old:] if old else events)
        return {
            "selections": event_rows.selections(self.run_id, kinds),
            "partitions": event_rows.partitions(self.run_id, kinds, self._state.modelled),
            "interventions": event_rows.interventions(self.run_id, kinds),
            "notes": event_rows.notes(self.run_id, kinds),
            "requests": event_rows.requests(self.run_id, kinds),
            **self._new_rows(kinds),
        }

    def whole(self) -> Rows:
        """The rows that follow from the events as a whole: they replace those of the run in the database."""
        return {
            "runs": state_rows.run(self.run_id, self._state),
            "cases": state_rows.cases(self.run_id, self._state),
        }

    @property
    def changed_candidates(self) -> list[int]:
        """Candidates whose rows are out of date, in more than the cluster."""
        return sorted(self._late_candidates)

    @property
    def changed_pulls(self) -> list[int]:
        """Pulls whose rows are out of date."""
        return sorted(self._late_pulls)

    def changed(self) -> Rows:
        """The rows of those, all anew, but for candidates' sources, which never change."""
        rows = self._rows_of(self.changed_candidates, self.changed_pulls)
        for row in rows["candidates"]:
            del row["source"]
        return rows

    def moved(self) -> list[Row]:
        """The candidates that are in another cluster than their rows say, with that cluster."""
        candidates = self._state.candidates
        return [
            {"run_id": self.run_id, "candidate_id": number, "cluster": candidates[number].cluster}
            for number, cluster in self._clusters.items()
            if candidates[number].cluster != cluster
        ]

    def written(self) -> None:
        """All rows are in the database; events may follow."""
        self.since = self.seen
        self._settle()

    # ------------------------------------------------------------ one piece

    def _fold(self, events: Sequence[e.Event]) -> Kinds:
        self.seen += len(events)
        self._state.apply_all(light.whole(events))
        kinds = by_kind(events)
        self._times.take(kinds)
        self._touch(kinds)
        return kinds

    def _touch(self, kinds: Kinds) -> None:
        """Mark what has a row that these events change."""
        for tagged in of_kind(kinds, e.Tagged):
            self._tagged[tagged.seq] = tagged.candidate_id
        touched = {self._tagged.get(undone.act) for undone in of_kind(kinds, e.Undone)}
        touched.update(*(_candidates(of_kind(kinds, kind)) for kind in _OF_CANDIDATES if kind in kinds))
        self._late_candidates |= {number for number in touched if number is not None and number in self._clusters}
        for kind in _OF_PULLS:
            self._late_pulls |= {event.pull for event in of_kind(kinds, kind)} & self._pulls  # type: ignore[attr-defined]
        self._late_pulls |= {event.pull for event in choices(kinds)} & self._pulls

    def _new_rows(self, kinds: Kinds) -> Rows:
        """The rows of candidates and pulls that have none yet."""
        made = dict.fromkeys(event.candidate_id for event in of_kind(kinds, e.Generated))
        begun = dict.fromkeys(event.pull for event in choices(kinds))
        candidates = [number for number in made if number not in self._clusters]
        pulls = [number for number in begun if number not in self._pulls]
        rows = self._rows_of(candidates, pulls)
        self._forget_texts(candidates, pulls)
        return rows

    def _rows_of(self, candidates: Sequence[int], pulls: Sequence[int]) -> Rows:
        state, run_id = self._state, self.run_id
        return {
            "candidates": [state_rows.candidate(run_id, state.candidates[number]) for number in candidates],
            "case_times": [
                {"run_id": run_id, "candidate_id": number, "records": timing.cases}
                for number in candidates
                if (timing := state.candidates[number].timing) is not None
            ],
            "kernels": [
                {"run_id": run_id, "candidate_id": number, "records": compilation.kernels}
                for number in candidates
                if (compilation := state.candidates[number].compilation) is not None
            ],
            "pulls": [state_rows.pull(run_id, state, state.pulls[number], self._times) for number in pulls],
        }

    def _settle(self) -> None:
        """What was folded so far is in the database as it is."""
        self._late_candidates.clear()
        self._late_pulls.clear()
        self._forget_texts(self._state.candidates, self._state.pulls)

    def _forget_texts(self, candidates: Iterable[int], pulls: Iterable[int]) -> None:
        """Sources and replies are most of what a run takes in memory, and the fold asks for none of them again."""
        state = self._state
        for number in candidates:
            candidate = state.candidates[number]
            candidate.source = candidate.reflection = ""
            self._clusters[number] = candidate.cluster
        for number in pulls:
            state.pulls[number].replies.clear()
            self._pulls.add(number)


_OF_PULLS = (e.Rewarded, e.PullDropped, e.Generated)
_OF_CANDIDATES: tuple[type[e.Event], ...] = tuple(
    kind for kind in e.Event.__subclasses__() if "candidate_id" in kind.__struct_fields__
)


def _candidates(events: Iterable[e.Event]) -> set[int | None]:
    return {event.candidate_id for event in events}  # type: ignore[attr-defined]
