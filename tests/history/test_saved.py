"""Named texts in a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbtui.errors import HistoryError, UsageError
from kbtui.history.saved import saved_filters, saved_queries


def test_texts_are_kept_by_name_and_each_kind_apart() -> None:
    filters = saved_filters()
    assert filters.all() == {}
    filters.put(" fast ", "speedup>1.2")
    filters.put("a", "status:live")
    filters.put("fast", "speedup>1.5")
    assert filters.all() == {"a": "status:live", "fast": "speedup>1.5"}
    assert saved_filters().get("fast") == "speedup>1.5"
    assert saved_queries().all() == {}
    filters.remove("a")
    assert list(filters.all()) == ["fast"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 41, "a\x1bb", "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 40 printable"):
        saved_filters().put(name, "x")


def test_an_unknown_name_is_named_with_those_there_are() -> None:
    saved_queries().put("best", "select 1")
    with pytest.raises(UsageError, match="no query is saved as worst: best"):
        saved_queries().get("worst")
    with pytest.raises(UsageError, match="worst"):
        saved_queries().remove("worst")


def test_a_damaged_file_is_named_and_never_overwritten() -> None:
    saved = saved_filters()
    saved.path.parent.mkdir(parents=True, exist_ok=True)
    saved.path.write_bytes(b"[1]\xff")
    with pytest.raises(HistoryError, match=r"filters\.json is no list"):
        saved.put("a", "b")
    assert saved.path.read_bytes() == b"[1]\xff"


def test_a_write_that_fails_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = saved_filters()
    saved.put("a", "b")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(HistoryError, match="No space left"):
        saved.put("c", "d")
    assert saved.all() == {"a": "b"}
    assert [file.name for file in saved.path.parent.iterdir()] == ["filters.json"]
