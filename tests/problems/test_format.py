"""The vocabulary of problem.py: cases, and the values that boundary cases may take."""

from __future__ import annotations

import copy
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.problems import Case, Vary, any_int, at_least, multiple_of, one_of, power_of_two

rules = st.one_of(
    st.just(any_int),
    st.builds(multiple_of, st.integers(1, 300)),
    st.builds(at_least, st.integers(1, 300)),
    st.builds(lambda step, count: multiple_of(step, most=step * count), st.integers(1, 64), st.integers(1, 9)),
    st.lists(st.integers(1, 4096), min_size=1, max_size=6).map(lambda values: one_of(*values)),
    st.builds(lambda low, more: power_of_two(1 << low, 1 << low + more), st.integers(0, 8), st.integers(0, 8)),
)


class TestCase:
    def test_fields_read_as_attributes(self) -> None:
        case = Case(rows=3, cols=5, dtype="float32", causal=True)
        assert (case.rows, case.cols, case.dtype, case.causal) == (3, 5, "float32", True)
        assert case.name == "rows=3 cols=5 dtype=float32 causal=True"
        assert repr(case) == "Case(rows=3, cols=5, dtype='float32', causal=True)"
        assert case.weight == 1.0

    def test_an_unknown_field_is_named_with_those_there_are(self) -> None:
        with pytest.raises(AttributeError, match="no field 'row'; it has rows, dtype"):
            _ = Case(rows=3, dtype="float32").row

    def test_replace_changes_a_copy_and_keeps_the_weight(self) -> None:
        case = Case(rows=3, cols=5, weight=2.0)
        changed = case.replace(rows=7)
        assert (changed.rows, changed.cols, changed.weight, case.rows) == (7, 5, 2.0, 3)

    def test_equal_fields_are_equal_in_any_order_and_weight_does_not_count(self) -> None:
        assert Case(a=1, b=2) == Case(b=2, a=1, weight=3.0)
        assert len({Case(a=1, b=2), Case(b=2, a=1), Case(a=1, b=3)}) == 2
        assert Case(a=1) != "a=1"

    def test_it_survives_copying(self) -> None:
        case = Case(rows=3, weight=2.0)
        again = copy.deepcopy(case)
        assert again == case
        assert again.weight == 2.0

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "at least one field"),
            ({"rows": 1, "weight": 0.0}, "weight must be a positive number"),
            ({"rows": 1, "weight": math.inf}, "weight must be a positive number"),
            ({"name": "big"}, "cannot have a field called name"),
            ({"dtype": float}, "dtype must be a number, a bool or a string"),
            ({"eps": math.nan}, "eps must be finite"),
        ],
    )
    def test_malformed_cases_are_refused(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Case(**fields)  # type: ignore[arg-type]


class TestVary:
    @given(rules, st.integers(1, 4096))
    def test_values_around_a_block_are_admitted_once_each(self, rule: Vary, block: int) -> None:
        values = list(rule.around(block))
        assert values
        assert len(values) == len(set(values))
        assert all(rule.admits(value) for value in values)

    def test_any_int_breaks_a_block_on_both_sides(self) -> None:
        assert list(any_int.around(64)) == [1, 63, 64, 65, 129, 97]

    def test_a_value_not_admitted_gives_way_to_the_nearest(self) -> None:
        assert list(multiple_of(16).around(64)) == [16, 48, 64, 128, 96]
        assert list(power_of_two(16, 128).around(64)) == [16, 32, 64, 128]
        assert list(at_least(100).around(64)) == [100, 129]
        assert list(multiple_of(8, most=24).around(64)) == [8, 24]

    def test_what_is_admitted(self) -> None:
        assert [value for value in range(70) if multiple_of(32).admits(value)] == [32, 64]
        assert [value for value in range(9) if power_of_two(2, 8).admits(value)] == [2, 4, 8]
        assert not any_int.admits(0)

    def test_rules_that_admit_nothing_are_refused(self) -> None:
        with pytest.raises(ValueError, match="no multiple of 16 lies between 16 and 8"):
            multiple_of(16, most=8)
        with pytest.raises(ValueError, match="steps of 1 or more"):
            multiple_of(0)
        with pytest.raises(ValueError, match="at least one value"):
            one_of()
        with pytest.raises(ValueError, match="at least one value"):
            power_of_two(3, 3)


def test_problem_files_need_the_standard_library_only() -> None:
    code = """
import sys
from kbtui.problems import Case
from kbtui.problems import importing
outside = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - set(before)
print(sorted(outside))
"""
    code = "import sys; before = {name.partition('.')[0] for name in sys.modules}\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['kbtui']"
