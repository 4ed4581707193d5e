"""Parameters of the search as a run records them in `run_started`, with their published values (KernelBand, arXiv 2511.18868)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import Scalar
from kbtui.state.run_state import RunState

Positive = Annotated[float, msgspec.Meta(gt=0)]
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every policy has: clusters, masks and the draw of a parent."""

    clusters: Annotated[int, msgspec.Meta(ge=1, le=6)] = 3
    """K. At most 6, since names are matched by trying every order."""
    period: Annotated[int, msgspec.Meta(ge=1)] = 10
    """τ: pulls between two clusterings."""
    threshold_sm: Percent = 75.0
    """θ of SM throughput, in percent of peak; likewise DRAM and L2."""
    threshold_dram: Percent = 75.0
    threshold_l2: Percent = 75.0
    temperature: Positive = 1.0
    """Of the softmax over headrooms as fractions of peak: 0.1 makes ten points of headroom worth a factor e."""


_NAMES = frozenset(SearchSettings.__struct_fields__)


def search_settings(parameters: Mapping[str, Scalar]) -> SearchSettings:
    """The settings in a policy's parameters; what they lack has the published value, what else they hold is the policy's.

    Raises UsageError for a value outside its range.
    """
    try:
        return msgspec.convert({name: value for name, value in parameters.items() if name in _NAMES}, SearchSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"policy parameters: {error}") from error


def settings_of(state: RunState) -> SearchSettings:
    """The settings that the run was started with."""
    return search_settings(state.started.policy_parameters if state.started is not None else {})
