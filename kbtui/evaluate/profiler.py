"""Profiles one candidate of a CUDA lane: tries ncu once, remembers whether it may, and falls back to GPM."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbtui.evaluate import isolation, wire
from kbtui.evaluate.inlane import profile_main
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.process import find_python
from kbtui.evaluate.profile import (
    SETTLE_S,
    WINDOW_S,
    CaseReading,
    Gpm,
    GpmUnavailable,
    combined,
    find_ncu,
    ncu_refusal,
    parse_ncu,
    run_ncu,
    unknown,
)
from kbtui.evaluate.turns import DropTurn, LoopTurn, Player, PreparedTurn
from kbtui.problems.folder import ProblemFolder
from kbtui.state.records import KernelFacts, Signature, Timing

LOOP_S = SETTLE_S + WINDOW_S + 0.03
MOST_SAMPLED = 2
"""Cases of which GPM samples are taken, those that weigh most: a mean by time hardly sees the others."""
NO_L2 = "GPM has no counter for the L2 cache"
OpenAlone = Callable[[], contextlib.AbstractContextManager[Player]]


class Profiler:
    """`folder` is the profiler's own, made when first needed."""

    def __init__(
        self,
        python: str,
        folder: Path,
        problem: ProblemFolder,
        device: str,
        oracle: Oracle,
        keys: tuple[wire.CaseKey, ...],
        cache_of: Callable[[str], Path],
    ) -> None:
        self._python = python
        self._folder = folder
        self._problem = problem
        self._device = device
        self._oracle = oracle
        self._keys = keys
        self._cache_of = cache_of
        self._ncu = find_ncu()
        self._no_ncu = "" if self._ncu else "ncu is not installed"

    def profile(
        self, uuid: str, open_alone: OpenAlone, source: str, kernels: tuple[KernelFacts, ...], timing: Timing
    ) -> Signature:
        """The signature over all timed cases: by ncu where it may, which takes seconds, else by GPM.

        Raises PlayerLost when the candidate does not survive it.
        """
        if all(case.ms is None for case in timing.cases):
            return unknown("no case was timed")
        found = self._by_ncu(source, kernels)
        if found is not None:
            return found
        try:
            return self._by_gpm(uuid, open_alone, timing)
        except GpmUnavailable as error:
            return unknown(f"{self._no_ncu}; {error}")

    def sample(
        self, uuid: str, open_alone: OpenAlone, source: str, kernels: tuple[KernelFacts, ...], timing: Timing
    ) -> Signature:
        """The same by GPM, which takes a second; by `profile` where the device has none. Of a gain both readings that decide
        about strategies are wanted: where GPM leaves one out, by ncu too."""
        if all(case.ms is None for case in timing.cases):
            return unknown("no case was timed")
        try:
            found = self._by_gpm(uuid, open_alone, timing)
        except GpmUnavailable:
            return self.profile(uuid, open_alone, source, kernels, timing)
        if timing.verdict == "faster" and None in (found.sm.percent, found.dram.percent):
            return self._by_ncu(source, kernels) or found
        return found

    def _by_ncu(self, source: str, kernels: tuple[KernelFacts, ...]) -> Signature | None:
        """None when ncu read nothing; then `_no_ncu` says why and it is not tried again."""
        if self._no_ncu or self._ncu is None:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        file, spec = self._folder / "kernel.py", self._folder / "spec.json"
        file.write_text(source, "utf-8", errors="surrogateescape")
        spec.write_text(json.dumps(self._spec(file)), "utf-8")
        script = str(Path(profile_main.__file__))
        environment = isolation.lane_environment("device", self._folder)
        environment.update({"TRITON_CACHE_DIR": str(self._cache_of(source)), "TRITON_CACHE_AUTOTUNING": "1"})
        output = run_ncu(
            self._ncu, (find_python(self._python), "-I", "-B", script, str(spec)), environment, self._folder
        )
        readings = parse_ncu(output, frozenset(kernel.name for kernel in kernels))
        if not readings:
            self._no_ncu = ncu_refusal(output)
            return None
        return combined(readings, "ncu", {})

    def _spec(self, file: Path) -> dict[str, Any]:
        return {
            "source": str(file),
            "problem_folder": str(self._problem.path),
            "entry": self._problem.entry,
            "device": self._device,
            "cases": [self._oracle.describe(key)["arguments"] for key in self._keys],
        }

    def _by_gpm(self, uuid: str, open_alone: OpenAlone, timing: Timing) -> Signature:
        """Raises GpmUnavailable and PlayerLost."""
        try:
            import pynvml
        except ImportError as error:
            raise GpmUnavailable("nvidia-ml-py is not installed") from error
        gpm = Gpm(pynvml, uuid)
        readings = []
        try:
            with open_alone() as player:
                for number, ms in _heaviest(timing):
                    sm, dram = _looped(player, number, gpm)
                    readings.append(CaseReading(weight=ms, sm=sm, dram=dram, l2=None))
        finally:
            gpm.close()
        why = "GPM gave no value"
        no_l2 = f"{NO_L2} and {self._no_ncu}" if self._no_ncu else NO_L2
        return combined(readings, "gpm", {"l2": no_l2, "sm": why, "dram": why})


def _heaviest(timing: Timing) -> list[tuple[int, float]]:
    """(number, ms) of the cases to sample, in their order."""
    timed = [(number, case.ms) for number, case in enumerate(timing.cases) if case.ms is not None]
    return sorted(sorted(timed, key=lambda one: one[1])[-MOST_SAMPLED:])


def _looped(player: Player, number: int, gpm: Gpm) -> tuple[float | None, float | None]:
    """What the counters say while one case is looped: (busiest pipe, DRAM bandwidth) in percent."""
    player.turn(PreparedTurn, "prepare", number)
    player.begin("loop", number, seconds=LOOP_S)
    try:
        return gpm.read()
    finally:
        player.finish(LoopTurn)
        player.turn(DropTurn, "drop", number, cases=[number])
