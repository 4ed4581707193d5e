"""The filter language over runs: `problem:softmax speedup>1.2 -status:failed`.

A filter is terms with blanks between them, and a run fits when every term holds. A term is `field:value` (text:
contains; `=`: equals), `field>number` (also `>=`, `<`, `<=`, `=`), or a word that some text of the run must contain. `-`
before a term denies it, `"..."` keeps blanks and colons together, and `a,b` as a value means one or the other.

A modelled ratio never satisfies `speedup`, which is measured; `estimate` is the field for modelled ones. A run without
a value never satisfies a comparison, and so always its denial.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from kbtui.errors import UsageError
from kbtui.text import clean_line

if TYPE_CHECKING:
    from kbtui.history.runs import RunEntry

Operator = Literal[":", "=", ">", ">=", "<", "<="]
STATES = ("live", "paused", "stale", "crashed", "stopped", "failed")
"""What `status:` knows: the states of a run, and `failed` for one that crashed, was ended by an error or cannot be read."""

_TERM = re.compile(r"(?P<field>[A-Za-z_]+)(?P<operator>>=|<=|:|=|>|<)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"\$?(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<unit>[A-Za-z]*)")
_AGE_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_QUOTE = '"'


class FilterError(UsageError):
    """A filter that cannot be understood; the sentence names the token and what is known."""


class Term(msgspec.Struct, frozen=True):
    """One condition. `field` is "" for a plain word; `values` are alternatives, numbers in the field's base unit."""

    field: str
    operator: Operator
    values: tuple[str, ...] = ()
    number: float = 0.0
    denied: bool = False


class Filter(msgspec.Struct, frozen=True):
    """A filter that was understood. One without terms fits every run."""

    text: str
    terms: tuple[Term, ...] = ()

    def fits(self, run: RunEntry, now: float) -> bool:
        """Whether `run` satisfies every term; ages are counted to `now` (seconds since the epoch)."""
        return all(_holds(term, run, now) != term.denied for term in self.terms)

    def of(self, runs: list[RunEntry], now: float) -> list[RunEntry]:
        """The runs that fit, in the order given."""
        return [run for run in runs if self.fits(run, now)]


_TEXTS: dict[str, Callable[[RunEntry], tuple[str, ...]]] = {
    "run": lambda run: (run.run_id,),
    "problem": lambda run: (run.problem,),
    "device": lambda run: (run.device,),
    "model": lambda run: (run.model,),
    "generator": lambda run: (run.generator,),
    "policy": lambda run: (run.policy,),
    "verdict": lambda run: (run.best_verdict,),
    "timing": lambda run: (run.timing,),
    "stopped_by": lambda run: (run.stopped_by,),
    "tag": lambda run: run.tags,
}
_NUMBERS: dict[str, Callable[[RunEntry, float], float | None]] = {
    "speedup": lambda run, _: run.best_ratio,
    "estimate": lambda run, _: run.best_estimate,
    "cost": lambda run, _: run.cost_usd,
    "pulls": lambda run, _: run.pulls,
    "candidates": lambda run, _: run.candidates,
    "correct": lambda run, _: run.correct,
    "age": lambda run, now: now - run.last_t if run.last_t else None,
}
FIELDS: tuple[str, ...] = ("status", *_TEXTS, *_NUMBERS)
"""Every field, for messages, help and completion."""


def parse(text: str) -> Filter:
    """The filter that `text` means. Raises FilterError with one sentence for the first token that means nothing."""
    return Filter(text.strip(), tuple(_term(token) for token in _tokens(text)))


def _tokens(text: str) -> list[str]:
    """Split at blanks outside quotes; the quotes stay, since they tell a word from a term."""
    tokens: list[str] = []
    current, quoted = "", False
    for letter in text:
        if letter == _QUOTE:
            quoted = not quoted
        if letter.isspace() and not quoted:
            if current:
                tokens.append(current)
            current = ""
        else:
            current += letter
    if quoted:
        raise FilterError(f'{_shown(current)}: the quote is not closed; add a " at its end')
    return [*tokens, current] if current else tokens


def _term(token: str) -> Term:
    denied = token.startswith("-")
    body = token[1:] if denied else token
    if not body:
        raise FilterError("-: nothing follows the minus; write the term that must not hold right behind it")
    found = _TERM.fullmatch(body)
    if found is None:
        word = body.replace(_QUOTE, "")
        if not word:
            raise FilterError(f"{_shown(token)}: there is no word between the quotes")
        return Term("", ":", (word.lower(),), denied=denied)
    field, value = found["field"].lower(), found["value"]
    operator: Operator = found["operator"]  # type: ignore[assignment]
    if field not in FIELDS:
        near = difflib.get_close_matches(field, FIELDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FIELDS)}"
        raise FilterError(
            f'{_shown(token)}: no field is called {_shown(field)}; {hint} (a word with signs goes in quotes: "a:b")'
        )
    if not value.replace(_QUOTE, ""):
        raise FilterError(f"{_shown(token)}: nothing follows {operator}; write a value, such as {_example(field)}")
    if field in _NUMBERS:
        return Term(field, operator, number=_number(token, field, value.replace(_QUOTE, "")), denied=denied)
    if operator not in (":", "="):
        raise FilterError(f"{_shown(token)}: {field} is text and has no order; write {field}:value or {field}=value")
    values = tuple(part.lower() for part in _alternatives(value))
    if field == "status":
        _require_states(token, values)
    return Term(field, operator, values, denied=denied)


def _alternatives(value: str) -> list[str]:
    """`a,b` as two values; a comma in quotes belongs to its value."""
    if _QUOTE in value:
        return [value.replace(_QUOTE, "")]
    return [part for part in value.split(",") if part]


def _require_states(token: str, values: tuple[str, ...]) -> None:
    for value in values:
        if value not in STATES:
            raise FilterError(f"{_shown(token)}: no state is called {_shown(value)}; known are {', '.join(STATES)}")


def _number(token: str, field: str, value: str) -> float:
    found = _NUMBER.fullmatch(value)
    units = _AGE_UNITS if field == "age" else {"": 1.0, "x": 1.0} if field in ("speedup", "estimate") else {"": 1.0}
    if found is None or found["unit"].lower() not in units or (value.startswith("$") and field != "cost"):
        wanted = f"an age with its unit ({', '.join(_AGE_UNITS)})" if field == "age" else "a number"
        raise FilterError(f"{_shown(token)}: {field} needs {wanted}, such as {_example(field)}")
    return float(found["number"]) * units[found["unit"].lower()]


def _example(field: str) -> str:
    numbers = {"age": "age<7d", "speedup": "speedup>1.2", "estimate": "estimate>1.2", "cost": "cost<0.5"}
    if field in _NUMBERS:
        return numbers.get(field, f"{field}>10")
    return {"status": "status:live", "problem": "problem:softmax"}.get(field, f"{field}:word")


def _holds(term: Term, run: RunEntry, now: float) -> bool:
    if not term.field:
        return any(term.values[0] in text.lower() for text in _words(run))
    if term.field == "status":
        return any(_is_in_state(run, value) for value in term.values)
    if term.field in _TEXTS:
        texts = [text.lower() for text in _TEXTS[term.field](run)]
        if term.operator == "=":
            return any(value == text for value in term.values for text in texts)
        return any(value in text for value in term.values for text in texts)
    found = _NUMBERS[term.field](run, now)
    return found is not None and _compares(found, term.operator, term.number)


def _compares(found: float, operator: Operator, wanted: float) -> bool:
    match operator:
        case ">":
            return found > wanted
        case ">=":
            return found >= wanted
        case "<":
            return found < wanted
        case "<=":
            return found <= wanted
    # as people read it: 1.20x is what `speedup=1.2` means, whatever the digits behind
    return math.isclose(found, wanted, abs_tol=0.005)


def _is_in_state(run: RunEntry, state: str) -> bool:
    if state == "failed":
        return run.status == "crashed" or bool(run.error) or run.stopped_by.startswith("error")
    return run.status == state


def _words(run: RunEntry) -> tuple[str, ...]:
    return (
        run.run_id, run.problem, run.device, run.generator, run.model, run.policy, run.status, run.best_verdict,
        run.timing, *run.tags,
    )  # fmt: skip


def _shown(token: str) -> str:
    return clean_line(token, 60)
