"""Hardware masks: an arm whose strategy works on a saturated resource is held back. KernelBand (arXiv 2511.18868).

M[i, s] = 1 if h_i[target(s)] < θ[target(s)], where h_i is the signature of cluster i's representative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kbtui.search.arms import Board
from kbtui.search.cluster import representatives
from kbtui.search.settings import SearchSettings, search_settings
from kbtui.state.events import Masked
from kbtui.state.records import STRATEGIES, Reading, Scalar, Signature, Strategy
from kbtui.state.run_state import RunState

Resource = Literal["sm", "dram", "l2"]

TARGETS: dict[Strategy, Resource] = {
    "tiling": "l2",
    "vectorization": "dram",
    "fusion": "dram",
    "pipeline": "sm",
    "reordering": "sm",
    "access_layout": "dram",
}
"""The resource that each strategy is held to work on."""


def mask(state: RunState, pull: int, thresholds: Mapping[str, Scalar]) -> Masked:
    """The signatures of the clusters' representatives and the arms they hold back, with the reason for people.

    `thresholds` are `threshold_sm`, `threshold_dram` and `threshold_l2` in percent of peak, as in a policy's parameters;
    one that is missing is 75. An unknown resource holds nothing back. When all arms that a cluster could play fall, the
    one with the most headroom stays (the first in the order of `STRATEGIES` among equals).
    """
    settings = search_settings(thresholds)
    board = Board(state)
    signatures = signatures_of(state)
    held: dict[int, dict[str, str]] = {}
    for number, signature in signatures.items():
        fallen = _fallen(board, number, signature, settings)
        if fallen:
            held[number] = fallen
    return Masked(pull=pull, signatures=signatures, held=held)


def signatures_of(state: RunState) -> dict[int, Signature]:
    """The signature of each cluster's representative, by cluster."""
    return {
        number: state.candidates[representative].signature or Signature()
        for number, representative in representatives(state).items()
    }


def headroom(signature: Signature, strategy: Strategy, settings: SearchSettings) -> float | None:
    """θ − h of the strategy's target, in percent points; None when the resource is unknown."""
    percent = _reading(signature, strategy).percent
    return None if percent is None else threshold_of(settings, strategy) - percent


def _fallen(board: Board, cluster: int, signature: Signature, settings: SearchSettings) -> dict[str, str]:
    known = {s: room for s in STRATEGIES if (room := headroom(signature, s, settings)) is not None}
    fallen: dict[str, str] = {s: reason(signature, s, settings) for s, room in known.items() if room <= 0}
    # What has no move or is banned cannot be what stays: the cluster would be left without an arm.
    playable = [s for s in STRATEGIES if board.playable(cluster, s)]
    if playable and all(strategy in fallen for strategy in playable):
        del fallen[max(playable, key=known.__getitem__)]
    return fallen


def reason(signature: Signature, strategy: Strategy, settings: SearchSettings) -> str:
    """Why the strategy's resource counts as saturated, as "DRAM 83.2 % ≥ 75 %"; its reading must be known."""
    reading = _reading(signature, strategy)
    modelled = "~" if reading.source == "model" else ""
    suffix = " modelled" if reading.source == "model" else ""
    name = TARGETS[strategy].upper()
    return f"{name} {modelled}{_percent(reading.percent or 0.0)}{suffix} ≥ {_percent(threshold_of(settings, strategy))}"


def _percent(value: float) -> str:
    return f"{round(value, 1):g} %"


def _reading(signature: Signature, strategy: Strategy) -> Reading:
    reading: Reading = getattr(signature, TARGETS[strategy])
    return reading


def threshold_of(settings: SearchSettings, strategy: Strategy) -> float:
    """θ of the strategy's target, in percent of peak."""
    threshold: float = getattr(settings, f"threshold_{TARGETS[strategy]}")
    return threshold
