"""Parameters of the search as a run records them in `run_started`, with their published values (KernelBand, arXiv 2511.18868)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import Scalar
from kbtui.state.run_state import RunState
from kbtui.text import in_words

Positive = Annotated[float, msgspec.Meta(gt=0)]
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every policy has: clusters, masks, the draw of a parent, what is believed at first, rests."""

    clusters: Annotated[int, msgspec.Meta(ge=1, le=6)] = 3
    """K. At most 6, since names are matched by trying every order."""
    period: Annotated[int, msgspec.Meta(ge=1)] = 10
    """τ: pulls between two clusterings."""
    threshold_sm: Percent = 75.0
    """θ of SM throughput, in percent of peak; likewise DRAM and L2."""
    threshold_dram: Percent = 75.0
    threshold_l2: Percent = 75.0
    temperature: Positive = 1.0
    """Of the draw of a parent. Under `paper` of a softmax over headrooms as fractions of peak: 0.1 makes ten points of
    headroom worth a factor e. Elsewhere of one over log speeds: 0.1 makes a parent that is 10 % faster e times as likely."""
    prior_mean: Annotated[float, msgspec.Meta(ge=0)] = 0.5
    """μ of an arm that was never played, in the unit of the policy's reward."""
    rest: Annotated[int, msgspec.Meta(ge=1)] = 10
    """Rewarded pulls for which an arm rests for a parent after three known versions in a row."""
    tune: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most pulls in a row that the numeric search takes between two of the policy's; 0: none."""


class SoftSettings(SearchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the policies beside the published one have: masks are a prior, parents are drawn by speed."""

    temperature: Positive = 0.1
    prior_mean: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    """Log gain that is expected of an arm without a pull: 0.1 is about 10 %."""
    saturated: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Weight of an arm whose resource is at 100 % of peak; 1 switches masks off."""


_NAMES = frozenset(SearchSettings.__struct_fields__)


def search_settings(parameters: Mapping[str, Scalar]) -> SearchSettings:
    """The settings in a policy's parameters; what they lack has the published value, what else they hold is the policy's.

    Raises UsageError for a value outside its range.
    """
    try:
        return msgspec.convert({name: value for name, value in parameters.items() if name in _NAMES}, SearchSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"policy parameters: {in_words(str(error))}") from error


def settings_of(state: RunState) -> SearchSettings:
    """The settings that the run was started with."""
    return search_settings(state.started.policy_parameters if state.started is not None else {})
