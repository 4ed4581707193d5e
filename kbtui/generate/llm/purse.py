"""Money and tokens: what a request may cost is reserved before it is sent, so that the cap holds with any number in flight.

The reservation is an upper bound: every byte of the prompt counts as a token, and the reply as long as it may get. What is
reserved and spent is read off the run's state, so that it survives the process.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from kbtui.generate.llm.tokens import at_most
from kbtui.state.records import Message
from kbtui.state.run_state import RunState

LEAST_REPLY = 2048
"""Tokens below which a reply can hardly hold a kernel: a request that can pay for fewer is not sent."""


class Tariff(Protocol):
    """What tokens cost."""

    def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float | None:
        """Dollars; None when the price is unknown."""
        ...


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """`most_tokens` is how long the reply may get, which may be less than was asked for."""

    most_tokens: int
    usd: float
    tokens: int


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """The budget does not pay for a request. `waits` says that requests in flight may give some of it back."""

    budget: Literal["budget", "tokens"]
    reason: str
    waits: bool


def reserve(
    state: RunState, tariff: Tariff, model: str, messages: tuple[Message, ...], most_tokens: int, in_flight: bool
) -> Reservation | Short:
    """The most that a request can cost, with the reply cut to what the budgets pay for; or that they do not pay for one.

    `in_flight`: whether this process has requests under way, whose reservations may come back.
    """
    prompt = at_most(*(message.text for message in messages))
    least = min(LEAST_REPLY, most_tokens)
    fitting = most_tokens
    if state.budget_tokens is not None:
        left = state.budget_tokens - state.tokens - state.reserved_tokens
        fitting = min(fitting, left - prompt)
        if fitting < least:
            return Short(budget="tokens", waits=in_flight, reason=_too_few(left, prompt + least))
    if state.budget_usd is not None and tariff.cost(model, prompt, least) is not None:
        left_usd = state.budget_usd - state.cost_usd - state.reserved_usd
        fitting = _affordable(tariff, model, prompt, least, fitting, left_usd)
        if fitting < least:
            needed = tariff.cost(model, prompt, least) or 0.0
            return Short(budget="budget", waits=in_flight, reason=_too_dear(left_usd, needed, model))
    return Reservation(most_tokens=fitting, usd=tariff.cost(model, prompt, fitting) or 0.0, tokens=prompt + fitting)


def _affordable(tariff: Tariff, model: str, prompt: int, least: int, most: int, left_usd: float) -> int:
    """The longest reply between `least` and `most` tokens that `left_usd` pays for; `least` - 1 when none."""
    if (tariff.cost(model, prompt, most) or 0.0) <= left_usd:
        return most
    low, high = least - 1, most
    while high - low > 1:
        middle = (low + high) // 2
        if (tariff.cost(model, prompt, middle) or 0.0) <= left_usd:
            low = middle
        else:
            high = middle
    return low


def _too_few(left: int, needed: int) -> str:
    return f"{max(left, 0)} of the token budget are left, another request may need {needed}"


def _too_dear(left: float, needed: float, model: str) -> str:
    return f"${max(left, 0.0):.4f} of the budget are left, another request to {model} may cost ${needed:.4f}"
