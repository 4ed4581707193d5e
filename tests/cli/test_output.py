"""Plain printing: what is foreign stays harmless, what is narrow is cut, what is piped is whole."""

from __future__ import annotations

import json
import os

import pytest

from kbtui.cli import output
from kbtui.cli.output import Column

COLUMNS = (Column("name", gives=True), Column("n", right=True))


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))


def test_escape_sequences_and_markup_are_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [["\x1b]52;c;aGk=\x07 [bold]x[/2]\n", "1"]])
    output.line("a\x1b[2J\nb")
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[bold]x[/2]" in printed
    assert len(printed.splitlines()) == 3


def test_numbers_lean_right_and_headings_stand_above(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [["a", "1"], ["bbbb", "200"]])
    assert capsys.readouterr().out == "name    n\na       1\nbbbb  200\n"


def test_a_narrow_terminal_cuts_the_columns_that_give_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, 20)
    output.table(COLUMNS, [["x" * 40, "12345"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "x" * 12 + "…  12345"
    assert all(output.width(text) <= 20 for text in lines)


def test_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [["x" * 300, "1"]])
    assert "x" * 300 in capsys.readouterr().out


def test_wide_and_combining_characters_keep_the_columns_straight(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [["核", "1"], ["e\N{COMBINING ACUTE ACCENT}", "2"]])
    lines = capsys.readouterr().out.splitlines()
    assert [output.width(text) for text in lines] == [7, 7, 7]


def test_wide_characters_are_never_cut_in_half(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, 12)
    output.table(COLUMNS, [["核" * 20, "1"]])
    assert output.width(capsys.readouterr().out.splitlines()[1]) <= 12


def test_json_is_one_line_and_takes_what_a_database_returns(capsys: pytest.CaptureFixture[str]) -> None:
    from datetime import datetime

    output.json([{"at": datetime(2026, 1, 2), "text": "a\nb\x1b"}])
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "\x1b" not in printed
    assert json.loads(printed)[0]["text"] == "a\nb\x1b"


def test_problems_go_to_stderr_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.problem("first\nsecond \x1b[31m")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "\x1b" not in captured.err
