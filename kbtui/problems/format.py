"""The vocabulary of `problem.py`. Standard library only: it is imported inside lanes.

A problem module defines `entry`, `reference`, `cases` and `make_inputs`, and may define `vary`, `mutates`, `dtypes`,
`tolerance`, `precision` and `traffic` (docs/problems.md). What is malformed here raises ValueError with one sentence:
it happens while a user's problem.py is imported, and whoever imports it names the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

FieldValue = int | float | str | bool


class Case:
    """One input case: named fields (rows, cols, dtype, ...) readable as attributes.

    `weight` counts in the objective and is not a field: cases of equal fields are equal.
    """

    __slots__ = ("fields", "weight")

    def __init__(self, *, weight: float = 1.0, **fields: FieldValue) -> None:
        if not fields:
            raise ValueError("a Case needs at least one field, such as rows=1024")
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"a Case's weight must be a positive number, not {weight!r}")
        for name, value in fields.items():
            _check_field(name, value)
        self.fields: dict[str, FieldValue] = dict(fields)
        self.weight = float(weight)

    def __getattr__(self, name: str) -> FieldValue:
        if name.startswith("__") or name in Case.__slots__:
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"this case has no field {name!r}; it has {', '.join(self.fields)}") from None

    def replace(self, **changes: FieldValue) -> Case:
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
        return hash(frozenset(self.fields.items()))


def _check_field(name: str, value: object) -> None:
    if name in ("fields", "name", "replace"):
        raise ValueError(f"a Case cannot have a field called {name}: choose another name for it")
    if not isinstance(value, int | float | str):
        raise ValueError(
            f"a Case's {name} must be a number, a bool or a string (a dtype too: 'float32'), not {value!r}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a Case's {name} must be finite, not {value!r}")


@dataclass(frozen=True)
class Vary:
    """Which values a boundary case may give a field: multiples of `step` from `least` to `most`, or one of `choices`."""

    step: int = 1
    least: int = 1
    most: int = 1 << 31
    choices: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"a field can vary in steps of 1 or more, not {self.step}")
        if not self.choices and self.most // self.step * self.step < self.least:
            raise ValueError(f"no multiple of {self.step} lies between {self.least} and {self.most}")

    def admits(self, value: int) -> bool:
        """Whether a boundary case may have `value` in the field."""
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
            if near not in seen:
                seen.add(near)
                yield near

    def _nearest(self, value: int) -> int:
        if self.choices:
            return max((c for c in self.choices if c <= value), default=min(self.choices))
        lowest = -(-self.least // self.step) * self.step
        highest = self.most - self.most % self.step
        return min(max(value - value % self.step, lowest), highest)


any_int = Vary()
"""Any positive integer."""


def multiple_of(step: int, most: int = 1 << 31) -> Vary:
    """Positive multiples of `step`, up to `most`."""
    return Vary(step=step, least=step, most=most)


def at_least(least: int) -> Vary:
    """Integers from `least` up."""
    return Vary(least=least)


def one_of(*choices: int) -> Vary:
    """One of the given integers."""
    if not choices:
        raise ValueError("one_of needs at least one value, such as one_of(64, 128)")
    return Vary(choices=choices)


def power_of_two(least: int = 1, most: int = 1 << 30) -> Vary:
    """Powers of two from `least` to `most`."""
    return one_of(*(1 << k for k in range(31) if least <= 1 << k <= most))
