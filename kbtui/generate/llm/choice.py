"""Which of several models writes a pull: by weight, or by what each gave for its cost so far."""

from __future__ import annotations

import numpy as np

from kbtui.generate.llm.settings import Weighted
from kbtui.state.run_state import RunState

PRIOR_GAIN = 0.05
"""Reward that every model is credited with before it earned any: so none is written off by its first failures."""


def choose(
    models: tuple[Weighted, ...], by: str, state: RunState, expected_usd: dict[str, float], seed: tuple[int, int, int]
) -> Weighted:
    """A model drawn in proportion to its share: the same for the same state and seed.

    By "weights" the share is the weight. By "cost" it is weight x (PRIOR_GAIN + rewards) / (expected cost of one call +
    cost so far): reward per dollar, shrunk to the price list while little is known. Free models count as a hundredth of a
    cent a call.
    """
    if len(models) == 1:
        return models[0]
    shares = np.array([_share(model, by, state, expected_usd.get(model.name, 0.0)) for model in models])
    return models[int(np.random.default_rng(seed).choice(len(models), p=shares / shares.sum()))]


def _share(model: Weighted, by: str, state: RunState, expected_usd: float) -> float:
    if by == "weights":
        return model.weight
    gained = sum(c.reward or 0.0 for c in state.candidates.values() if c.model == model.name)
    calls = [reply for pull in state.pulls.values() for reply in pull.replies if reply.model == model.name]
    spent = sum(max(reply.cost_usd or 0.0, 1e-4) for reply in calls)
    return model.weight * (PRIOR_GAIN + gained) / (max(expected_usd, 1e-4) + spent)
