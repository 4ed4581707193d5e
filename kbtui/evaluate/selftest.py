"""The oracle's self-test: whether it rejects what is wrong. Every mutant goes the way of a candidate's outputs.

An oracle that accepts zeros (a tolerance too wide, inputs on which zeros are right) makes every verdict worthless, and
nothing else would show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.job import close_all
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.outputs import Passed, rejection
from kbtui.state.records import Record


class Survivor(Record, frozen=True, kw_only=True):
    """A wrong output that the oracle accepts on every case: which one, and on how many cases it was tried."""

    mutant: str
    cases: int


class SelfTest(Record, frozen=True, kw_only=True):
    """`rejected` mutants by name with the reason of the first rejection; `inapplicable` ones give the right outputs on every
    case, or none at all."""

    rejected: dict[str, str]
    survivors: tuple[Survivor, ...]
    inapplicable: tuple[str, ...]
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return len(self.rejected) + len(self.survivors)

    @property
    def sentence(self) -> str:
        """Such as `your oracle rejects 14 of 15 mutants; accepted: stale accumulator`."""
        accepted = ", ".join(survivor.mutant for survivor in self.survivors)
        return f"your oracle rejects {len(self.rejected)} of {self.total} mutants" + (
            f"; accepted: {accepted}" if accepted else ""
        )


def run(oracle: Oracle, contract: Mapping[wire.CaseKey, Passed], report: Callable[[str, str], None]) -> SelfTest:
    """Try every mutant on the cases that the baseline passed, each until it is rejected once. Raises EnvironmentFailure."""
    began = clock.monotonic()
    rejected: dict[str, str] = {}
    survivors: list[Survivor] = []
    inapplicable: list[str] = []
    for mutant in oracle.mutants():
        report("self-test", mutant)
        reason, tried = _try(oracle, mutant, list(contract.items()))
        if reason:
            rejected[mutant] = reason
        elif tried:
            survivors.append(Survivor(mutant=mutant, cases=tried))
        else:
            inapplicable.append(mutant)
    return SelfTest(
        rejected=rejected,
        survivors=tuple(survivors),
        inapplicable=tuple(inapplicable),
        seconds=clock.monotonic() - began,
    )


def _try(oracle: Oracle, mutant: str, cases: Sequence[tuple[wire.CaseKey, Passed]]) -> tuple[str, int]:
    """(reason of the first rejection or "", on how many cases the mutant was tried)."""
    tried = 0
    for key, passed in cases:
        outputs, memory = oracle.mutate(key, mutant, [tensor.dtype for tensor in passed.tensors])
        if outputs is None:
            continue
        tried += 1
        try:
            reason = rejection(oracle, key, outputs, memory, passed)
        finally:
            close_all(memory)
        if reason:
            return reason, tried
    return "", tried
