"""Counts with their nouns."""

import pytest

from kbtui.text import plural


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "pull", "1 pull"),
        (2, "pull", "2 pulls"),
        (0, "query", "0 queries"),
        (4, "other process", "4 other processes"),
        (1, "other process", "1 other process"),
        (3, "branch", "3 branches"),
        (1204, "row", "1,204 rows"),
    ],
)
def test_a_count_has_its_noun(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text
