"""The policies by name. A new one is a file in `policies/` and a line here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kbtui.errors import UsageError
from kbtui.search.arm_policy import ArmPolicy
from kbtui.search.policies.best_of_n import BestOfNPolicy
from kbtui.search.policies.max_ucb import MaxUcbPolicy
from kbtui.search.policies.paper import PaperPolicy
from kbtui.search.policies.random import RandomPolicy
from kbtui.search.policies.round_robin import RoundRobinPolicy
from kbtui.search.policies.thompson import ThompsonPolicy
from kbtui.search.policies.ucb import UcbPolicy
from kbtui.search.policy import Policy
from kbtui.state.records import Scalar
from kbtui.text import in_words

_ARM_POLICIES: tuple[type[ArmPolicy], ...] = (
    PaperPolicy,
    UcbPolicy,
    ThompsonPolicy,
    MaxUcbPolicy,
    BestOfNPolicy,
    RoundRobinPolicy,
    RandomPolicy,
)
POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in _ARM_POLICIES}
"""By the name that `--policy` takes."""


def make_policy(name: str, parameters: Mapping[str, Scalar]) -> Policy:
    """The policy of that name; parameters that are left out have their published values.

    Raises UsageError for a name or a parameter that does not exist, and for a value outside its range. A value may be
    text, as it comes from a command line.
    """
    chosen = next((policy for policy in _ARM_POLICIES if policy.name == name), None)
    if chosen is None:
        raise UsageError(f"there is no policy {name!r}: choose from {', '.join(POLICIES)}")
    known = chosen.Settings.__struct_fields__
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise UsageError(f"policy {name} has no parameter {unknown[0]!r}: it has {', '.join(known)}")
    try:
        return chosen(msgspec.convert(dict(parameters), chosen.Settings, strict=False))
    except msgspec.ValidationError as error:
        raise UsageError(f"policy {name}: {in_words(str(error))}") from error
