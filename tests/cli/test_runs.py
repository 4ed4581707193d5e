"""Commands that look at recorded runs: what is modelled reads as modelled, and what is foreign is cleaned."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbtui.cli import main as program
from kbtui.cli import runs as listing

Recorded = Callable[..., str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_nothing_yet_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["runs"]) == 0
    assert "kbtui run PROBLEM" in capsys.readouterr().out
    assert program.main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_finished_runs_are_history_and_others_are_runs(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = recorded("modelled")
    assert program.main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert program.main(["history", "list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["run_id"], entry["status"]) == (run_id, "stopped")


def test_a_run_without_process_or_end_is_crashed(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = recorded("modelled", 6)
    assert program.main(["runs"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith(run_id)
    assert "crashed" in row


@pytest.mark.parametrize(
    ("kind", "shown", "hidden"), [("modelled", "~1.42 est", "1.42x"), ("measured", "1.42x", " est")]
)
def test_figures_read_as_what_they_are(
    kind: str, shown: str, hidden: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(kind)
    for command in (["history", "list"], ["history", "show"]):
        assert program.main(command) == 0
        printed = capsys.readouterr().out
        assert shown in printed
        assert hidden not in printed


def test_show_cleans_what_candidates_say(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("modelled")
    assert program.main(["history", "show"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[bold]result[/]" in printed
    assert program.main(["history", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [candidate["id"] for candidate in shown["candidates"]] == [0, 1, 2]


def test_export_writes_the_best_with_its_origin(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = recorded("modelled")
    assert program.main(["export"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == Path(f"{run_id}-1.py").resolve()
    text = path.read_text()
    assert "~1.42 est against the baseline, modelled and not measured" in text
    assert text.endswith("kernel = 1\n")
    compile(text, path, "exec")


def test_export_of_a_hostile_name_stays_a_comment(recorded: Recorded) -> None:
    recorded("measured")
    assert program.main(["export", "--candidate", "2", "--output", "out.py"]) == 0
    text = Path("out.py").read_text()
    assert text.splitlines()[-1] == "kernel = 2"
    assert all(line.startswith("# ") for line in text.splitlines()[:-1])
    assert "\x1b" not in text


def test_export_refuses_to_overwrite_and_to_invent(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("measured")
    Path("out.py").write_text("mine")
    assert program.main(["export", "--output", "out.py"]) == 2
    assert Path("out.py").read_text() == "mine"
    assert "--overwrite" in capsys.readouterr().err
    assert program.main(["export", "--candidate", "9"]) == 2
    assert "they go up to #2" in capsys.readouterr().err
    assert program.main(["export", "--output", "out.py", "--overwrite"]) == 0
    assert "1.42x [1.39, 1.45] against the baseline, measured" in Path("out.py").read_text()


def test_sql_takes_in_what_the_journals_have(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("modelled")
    assert program.main(["history", "sql", "select count(*) as n, null as nothing from candidates"]) == 0
    assert capsys.readouterr().out == "n  nothing\n3  -\n"
    assert program.main(["history", "sql", "select candidate_id, move from candidates order by 1", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert [row["candidate_id"] for row in json.loads(printed)] == [0, 1, 2]
    assert program.main(["history", "sql", "select * from nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_history_export(suffix: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("modelled")
    file = Path(f"out{suffix}")
    query = "select candidate_id, parent_id from candidates order by 1"
    assert program.main(["history", "export", str(file), "--sql", query]) == 0
    assert capsys.readouterr().out == f"3 rows in {file}\n"
    text = file.read_text()
    if suffix == ".csv":
        assert list(csv.reader(text.splitlines()))[:2] == [["candidate_id", "parent_id"], ["0", ""]]
    else:
        rows = json.loads(text) if suffix == ".json" else [json.loads(line) for line in text.splitlines()]
        assert rows[1] == {"candidate_id": 1, "parent_id": 0}
    assert program.main(["history", "export", str(file)]) == 2, "nothing is overwritten unasked"


@pytest.mark.parametrize(("file", "said"), [("x.txt", ".parquet"), ("no/where.csv", "not a folder")])
def test_history_export_refuses_before_asking(file: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["history", "export", file]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (7200, "2 h"), (200000, "2 d")]
)
def test_age(seconds: float, shown: str) -> None:
    assert listing.age(seconds) == shown


def test_an_empty_query_is_said_to_be_empty(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("measured")
    assert program.main(["history", "sql", "  "]) == 1
    assert "the query is empty" in capsys.readouterr().err
