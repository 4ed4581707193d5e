"""Which small cases a candidate is checked on: shapes that tend to break blocks of its own sizes, and awkward values.

Pure and deterministic; the order is from the most telling to the least, so that a limit cuts off the least.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbtui.problems.format import Case, Vary, any_int

Variant = str
VARIANTS: tuple[Variant, ...] = ("wide", "special", "ties", "tiny", "strided")
"""What is done to the values that `make_inputs` gave: see `values`. "" leaves them as they are."""
SMALLEST_BLOCK = 2
TRIES = 20
"""Shapes drawn for each one that is wanted, since most are too large for a slow lane."""
MIDDLING, SMALL = 64, 33
MOST_BLOCKS = 3
NEARLY = 0.9


@dataclass(frozen=True)
class Boundary:
    """One small case and what is done to its values."""

    case: Case
    variant: Variant = ""


def integer_fields(cases: Sequence[Case], vary: Mapping[str, Vary] | None) -> dict[str, Vary]:
    """The fields whose values may change: those `vary` names, without it every integer field of the cases."""
    if vary is not None:
        return dict(vary)
    names = dict.fromkeys(name for case in cases for name, value in case.fields.items() if type(value) is int)
    return dict.fromkeys(names, any_int)


def telling_blocks(constants: Sequence[int]) -> list[int]:
    """At most three of the launch's integer constants, ascending: the two smallest that can be a block, and the largest."""
    blocks = sorted({value for value in constants if value >= SMALLEST_BLOCK})
    return blocks if len(blocks) <= MOST_BLOCKS else [*blocks[: MOST_BLOCKS - 1], blocks[-1]]


def plan(
    cases: Sequence[Case],
    vary: Mapping[str, Vary] | None,
    dtypes: Sequence[str],
    constants: Sequence[int],
    admit: Callable[[Case], bool],
    most: int,
) -> list[Boundary]:
    """At most `most` boundaries that `admit` lets through (small enough, checkable here), without repetition.

    Fields that do not vary take the combinations that occur in `cases`, and `dtype` the given ones, in turn.
    """
    fields = integer_fields(cases, vary)
    settings = _settings(cases, fields, dtypes)
    found: dict[Boundary, None] = {}
    for index, values in enumerate(_values(fields, telling_blocks(constants))):
        for setting in settings if index == 0 else _rotated(settings, index):
            boundary = Boundary(setting.replace(**values))
            if boundary not in found and admit(boundary.case):
                found[boundary] = None
                if index:
                    break
        if len(found) >= most - len(VARIANTS):
            break
    shapes = list(found)
    middles = list(_middles(fields))
    for index, variant in enumerate(VARIANTS):
        tried = (setting.replace(**middle) for middle in middles for setting in _rotated(settings, index))
        case = next((case for case in tried if admit(case)), None)
        if case is not None:
            shapes.append(Boundary(case, variant))
    return shapes[:most]


def unseen(
    cases: Sequence[Case],
    vary: Mapping[str, Vary] | None,
    dtypes: Sequence[str],
    constants: Sequence[int],
    admit: Callable[[Case], bool],
    most: int,
    salt: int,
) -> list[Boundary]:
    """At most `most` boundaries drawn at random, `salt` decides: shapes near the blocks and anywhere below twice of them, with
    any setting and any change of values."""
    chance = random.Random(salt)
    fields = integer_fields(cases, vary)
    settings = _settings(cases, fields, dtypes)
    blocks = telling_blocks(constants) or [MIDDLING]
    found: dict[Boundary, None] = {}
    for _ in range(TRIES * most):
        if len(found) == most:
            break
        values = {name: _near(field, _drawn(chance, blocks)) for name, field in fields.items()}
        case = chance.choice(settings).replace(**values)
        if admit(case):
            found[Boundary(case, chance.choice(("", "", *VARIANTS)))] = None
    return list(found)


def _drawn(chance: random.Random, blocks: Sequence[int]) -> int:
    if chance.random() < 0.5:
        return chance.randint(1, SMALL)
    return max(1, chance.choice(blocks) * chance.randint(1, 2) + chance.choice((-1, 0, 1, 3)))


def _middles(fields: Mapping[str, Vary]) -> Iterator[dict[str, int]]:
    """Shapes on which values are tried, the best first: some rows, no round number, and small in all but the last fields."""
    if not fields:
        yield {}
        return
    last = {1: (211,), 2: (19, 33), 3: (19, 33, 47)}.get(len(fields), (19, 33))
    for leading in (2, 1):
        values = [*[leading] * (len(fields) - len(last)), *last]
        yield {name: _near(field, value) for (name, field), value in zip(fields.items(), values, strict=True)}


def _settings(cases: Sequence[Case], fields: Mapping[str, Vary], dtypes: Sequence[str]) -> list[Case]:
    found: dict[tuple[tuple[str, object], ...], Case] = {}
    for case in cases:
        named = dtypes if "dtype" in case.fields and dtypes else (None,)
        for dtype in named:
            setting = case if dtype is None else case.replace(dtype=dtype)
            rest = tuple((name, value) for name, value in setting.fields.items() if name not in fields)
            found.setdefault(rest, setting)
    return list(found.values())


def _rotated(settings: Sequence[Case], by: int) -> list[Case]:
    turn = by % len(settings)
    return [*settings[turn:], *settings[:turn]]


def _near(field: Vary, value: int) -> int:
    """The value that the field admits nearest to `value`."""
    return min(field.around(value), key=lambda admitted: abs(admitted - value), default=value)


def smallest(case: Case, fields: Mapping[str, Vary]) -> Case:
    """The case with its varying fields at plain small values, each another so that two strides mixed up show."""
    return case.replace(**{name: _near(field, 3 + 2 * index) for index, (name, field) in enumerate(fields.items())})


def no_smaller(case: Case, other: Mapping[str, object]) -> bool:
    """Whether each integer field of a case is at least about the other's."""
    sizes = {name: value for name, value in other.items() if type(value) is int}
    return all(int(case.fields.get(name, 0)) >= NEARLY * value for name, value in sizes.items())


def _values(fields: Mapping[str, Vary], blocks: Sequence[int]) -> Iterator[dict[str, int]]:
    """Values for the varying fields: first a plain small one, then what breaks blocks, one field at a time."""
    small = {name: _near(field, 3 + 2 * index) for index, (name, field) in enumerate(fields.items())}
    yield small
    for name, field in fields.items():
        for block in blocks:
            yield {**small, name: _near(field, block + 1)}
    yield {name: _near(field, 1) for name, field in fields.items()}
    for block in blocks:
        yield {name: _near(field, block) for name, field in fields.items()}
    yield {name: _near(field, 97) for name, field in fields.items()}
    for name, field in fields.items():
        for block in blocks:
            for value in field.around(block):
                yield {**small, name: value}
