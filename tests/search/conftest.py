"""States built by folding events, as the engine builds them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState

ALL_MOVES = dict.fromkeys(r.STRATEGIES, 3)


class Builder:
    """Folds events into `state`; every method is something that the engine does."""

    def __init__(self, seed: int = 0, timing: r.TimingKind = "measured", **parameters: r.Scalar) -> None:
        self.state = RunState()
        self.timing = timing
        self._seq = 0
        self.emit(
            e.RunStarted(
                journal_version=1, run_id="r", timing=timing, policy="paper", policy_parameters=parameters,
                generator="rewrite", objective="geomean", seed=seed, iterations=20, budget_usd=None, parallel=1,
                versions={}, isolation={}, python="python",
                problem=r.ProblemInfo(name="p", path="/p", entry="p", digest="d", cases=(r.CaseInfo(name="a", fields={}),)),
                device=r.DeviceInfo(lane="cuda:0", kind="cuda", name="GPU", target="sm_90"),
            )
        )  # fmt: skip

    def emit(self, event: e.Event) -> None:
        """Number and fold an event."""
        import msgspec

        self._seq += 1
        self.state.apply(msgspec.structs.replace(event, seq=self._seq))

    def candidate(
        self,
        candidate_id: int,
        parent_id: int | None = 0,
        *,
        ms: float | None = 1.0,
        registers: int | None = 32,
        shared: int = 1024,
        threads: int = 128,
        occupancy: float = 50.0,
        moves: Mapping[str, int] = ALL_MOVES,
        signature: Mapping[str, float] | None = None,
        source: r.ReadingSource = "ncu",
        verdict: r.Correctness = "correct",
        pull: int = 0,
        strategy: r.Strategy | None = None,
    ) -> None:
        """A judged candidate. `ms` None: not timed; `registers` None: compiled without kernels; ratio is 10 / ms."""
        self.emit(
            e.Generated(
                candidate_id=candidate_id, parent_id=None if candidate_id == 0 else parent_id, pull=pull, strategy=strategy,
                generator="rewrite", move=f"m{candidate_id}", source="", source_digest="", syntax_digest=f"x{candidate_id}",
            )
        )  # fmt: skip
        kernels = ()
        if registers is not None:
            kernels = (
                r.KernelFacts(
                    name="k", target="sm_90", registers=registers, spill_bytes=0, shared_bytes=shared, num_warps=threads // 32,
                    num_stages=1, threads=threads, occupancy_percent=occupancy, code_digest="",
                ),
            )  # fmt: skip
        self.emit(e.Compiled(candidate_id=candidate_id, compilation=r.Compilation(ok=True, kernels=kernels)))
        self.emit(e.Verified(candidate_id=candidate_id, verification=r.Verification(verdict=verdict, stage="cases")))
        if ms is not None and verdict == "correct":
            self.emit(
                e.Timed(candidate_id=candidate_id, timing=self._timing(ms), signature=_signature(signature, source))
            )
        self.emit(e.MovesFound(candidate_id=candidate_id, moves=dict(moves)))

    def _timing(self, ms: float) -> r.Timing:
        if self.timing == "measured":
            return r.Timing(kind="measured", verdict="same", cases=(r.CaseTiming(case="a", ms=ms),), ratio=10 / ms)
        return r.Timing(
            kind="modelled", verdict="unknown", cases=(r.CaseTiming(case="a", estimate_ms=ms),), estimate=10 / ms
        )

    def begin(self, pull: int, cluster: int, strategy: r.Strategy, parent_id: int = 0) -> None:
        self.emit(e.Selected(pull=pull, cluster=cluster, strategy=strategy, parent_id=parent_id, scores=()))

    def reward(self, pull: int, reward: float) -> None:
        """End the pull as the engine does."""
        from kbtui.search.reward import rewarded

        begun = self.state.pulls[pull]
        self.emit(rewarded(self.state, pull, begun.cluster, begun.strategy, None, reward, "x"))

    def play(self, pull: int, cluster: int, strategy: r.Strategy, parent_id: int, reward: float) -> None:
        self.begin(pull, cluster, strategy, parent_id)
        self.reward(pull, reward)

    def drop(self, pull: int) -> None:
        self.emit(e.PullDropped(pull=pull, owner="provider", reason="429"))


def _signature(values: Mapping[str, float] | None, source: r.ReadingSource) -> r.Signature:
    return r.Signature(**{name: r.Reading(value, source) for name, value in (values or {}).items()})


@pytest.fixture(scope="session")
def build() -> type[Builder]:
    """The builder of states."""
    return Builder
