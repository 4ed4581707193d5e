"""Several versions in one file, picked by the arguments' sizes."""

from __future__ import annotations

import ast

import pytest

from kbtui.generate.moves.dispatch import Interval, Rule, dispatched, parameters

FIRST = '''"""The first version."""

import math

SCALE = 1
SHARED = math.pi


def helper(x):
    return [SCALE * each for each in x]


def untouched(x, SCALE=SCALE):
    return len(x) + SCALE


def work(x, *, extra=0):
    """Doubles."""
    return ("first", helper(x), untouched(x), SHARED, extra)
'''
SECOND = (
    FIRST.replace("The first", "The second")
    .replace("SCALE = 1", "SCALE = 10")
    .replace("import math", "import math\nimport cmath")
    .replace('"first"', 'cmath.__name__, "second"')
)
RULE = Rule("len(x)", (Interval(2, 1), Interval(None, 0)))


def run(source, *arguments, **options):
    scope: dict[str, object] = {}
    exec(compile(source, "merged", "exec"), scope)  # noqa: S102  the merged file is what is tested
    return scope["work"](*arguments, **options)  # type: ignore[operator]


def test_each_size_gets_its_version_with_its_own_constants():
    source = dispatched([FIRST, SECOND], "work", RULE)
    few, many = run(source, [1, 2]), run(source, [1, 2, 3], extra=7)
    assert few[:4] == ("cmath", "second", [10, 20], 12)
    assert many[:3] == ("first", [1, 2, 3], 4)
    assert many[4] == 7


def test_what_is_the_same_stays_once_and_nothing_is_lost():
    source = dispatched([FIRST, SECOND], "work", RULE)
    assert source.startswith('"""The first version."""')
    assert source.count("SHARED = math.pi") == 1
    assert "The second version" not in source
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert names == ["helper_0", "untouched_0", "work_0", "helper_1", "untouched_1", "work_1", "work"]


def test_names_that_are_taken_are_left_alone():
    source = dispatched([FIRST + "\nwork_1 = 3\n", SECOND], "work", RULE)
    assert run(source, [1])[1] == "second"
    assert "work_1 = 3" in source


def test_equal_versions_differ_in_the_entry_only():
    source = dispatched([FIRST, FIRST], "work", RULE)
    assert source.count("def helper(") == 1
    assert run(source, [1])[:2] == ("first", [1])


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (SECOND.replace("extra=0", "extra=1"), "different parameters"),
        (SECOND + "\nwork = max\n", "does not define"),
        (SECOND.replace("import cmath", "import cmath as math"), "different things by math"),
        ("from __future__ import annotations\n" + SECOND, "__future__"),
    ],
)
def test_versions_that_do_not_fit_are_refused(other, says):
    with pytest.raises(ValueError, match=says):
        dispatched([FIRST, other], "work", RULE)


def test_a_rule_for_a_version_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="among the 2"):
        dispatched([FIRST, SECOND], "work", Rule("len(x)", (Interval(None, 2),)))


def test_parameters_are_those_of_the_entry_by_position():
    assert parameters(FIRST, "work") == ("x",)
    assert parameters(FIRST, "nothing") == ()
