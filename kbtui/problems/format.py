"""The vocabulary of `problem.py`. Standard library only: it is imported inside lanes.

A problem module defines `entry`, `reference`, `cases` and `make_inputs`, and may define `vary`, `mutates`, `dtypes`,
`tolerance`,
`precision` and `traffic` (docs/problems.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


class Case:
    """One input case: named fields (rows, cols, dtype, ...) readable as attributes. `weight` counts in the objective,
    not as a field."""

    __slots__ = ("fields", "weight")

    def __init__(self, *, weight: float = 1.0, **fields: int | float | str | bool) -> None:
        if not fields:
            raise ValueError("a Case needs at least one field, such as rows=1024")
        self.fields: dict[str, int | float | str | bool] = dict(fields)
        self.weight = float(weight)

    def __getattr__(self, name: str) -> int | float | str | bool:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"this case has no field {name!r}; it has {', '.join(self.fields)}") from None

    def replace(self, **changes: int | float | str | bool) -> Case:
        """A copy with some fields changed."""
        return Case(weight=self.weight, **{**self.fields, **changes})

    @property
    def name(self) -> str:
        """Such as `rows=4096 cols=4096 dtype=float32`; the case's identity within its problem."""
        return " ".join(f"{key}={value}" for key, value in self.fields.items())

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{key}={value!r}' for key, value in self.fields.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(self.fields.items()))


@dataclass(frozen=True)
class Vary:
    """Which values a boundary case may give a field: multiples of `step` from `least` to `most`, or one of `choices`."""

    step: int = 1
    least: int = 1
    most: int = 1 << 31
    choices: tuple[int, ...] = field(default=())

    def admits(self, value: int) -> bool:
        if self.choices:
            return value in self.choices
        return self.least <= value <= self.most and value % self.step == 0

    def around(self, block: int) -> Iterator[int]:
        """Values that tend to break a block of that size: 1, n-1, n, n+1, 2n+1 and a prime, each once.

        A value this field does not admit gives way to the nearest admitted one below it, else above it.
        """
        seen = set()
        for value in (1, block - 1, block, block + 1, 2 * block + 1, 97):
            near = self._nearest(value)
            if near is not None and near not in seen:
                seen.add(near)
                yield near

    def _nearest(self, value: int) -> int | None:
        if self.choices:
            return max((c for c in self.choices if c <= value), default=min(self.choices))
        lowest = -(-self.least // self.step) * self.step
        highest = self.most - self.most % self.step
        near = min(max(value - value % self.step, lowest), highest)
        return near if self.admits(near) else None


any_int = Vary()
"""Any positive integer."""


def multiple_of(step: int) -> Vary:
    """Positive multiples of `step`."""
    return Vary(step=step, least=step)


def at_least(least: int) -> Vary:
    """Integers from `least` up."""
    return Vary(least=least)


def at_most(most: int) -> Vary:
    """Positive integers up to `most`."""
    return Vary(most=most)


def one_of(*choices: int) -> Vary:
    """One of the given integers."""
    return Vary(choices=choices)


def power_of_two(least: int = 1, most: int = 1 << 30) -> Vary:
    """Powers of two from `least` to `most`."""
    return Vary(choices=tuple(1 << k for k in range(31) if least <= 1 << k <= most))
