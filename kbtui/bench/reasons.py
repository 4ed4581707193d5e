"""Why a kernel did not become faster, in a sentence made of what became of its versions."""

from __future__ import annotations

from collections import Counter

from kbtui.state.records import Summary
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import plural

_STOPS = {"no arms": "no change was left to try", "time": "its minutes were over", "no gain": "its patience was over"}
"""What ended a run before its pulls did, where that is a reason."""


def what_became(state: RunState, summary: Summary) -> str:
    """Such as `12 versions: 7 slower, 3 same, 2 wrong; no change was left to try`; the largest share first."""
    versions = [one for one in state.candidates.values() if one.id != summary.baseline_id and not one.empty]
    counted = Counter(map(_fate, versions))
    parts = ", ".join(f"{number} {fate}" for fate, number in sorted(counted.items(), key=lambda one: (-one[1], one[0])))
    text = f"{plural(len(versions), 'version')}: {parts}" if versions else "no version was made"
    stop = _STOPS.get(summary.stopped_by)
    return f"{text}; {stop}" if stop else text


def _fate(candidate: Candidate) -> str:
    if candidate.pruned is not None:
        return "pruned"
    if candidate.compilation is not None and not candidate.compilation.ok:
        return "not compiled"
    if candidate.exposed and candidate.confirmation is not None:
        return f"{candidate.confirmation.verdict} in the hidden stage"
    if candidate.verification is not None and not candidate.correct:
        return candidate.verification.verdict
    return candidate.timing.verdict if candidate.timing is not None else "not judged"
