"""`kbtui history`: filters, comparison, files, pruning, importing."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from kbtui import paths
from kbtui.cli import main as program
from kbtui.history.database import History
from kbtui.history.journal import RunLock

Recorded = Callable[..., str]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def two(recorded: Recorded) -> None:
    recorded("measured", run_id="toy-a")
    recorded("modelled", run_id="toy-b")


def listed(capsys: Capture, *arguments: str) -> list[str]:
    assert program.main(["history", "list", "--json", *arguments]) == 0
    return [entry["run_id"] for entry in json.loads(capsys.readouterr().out.splitlines()[-1])]


def test_a_filter_narrows_and_a_bad_one_is_a_usage_error(two: None, capsys: Capture) -> None:
    assert listed(capsys, "--filter", "speedup>1.2") == ["toy-a"]
    assert listed(capsys, "--filter", "-speedup>1.2") == ["toy-b"]
    assert listed(capsys, "--filter", "estimate>1.2 problem:toy") == ["toy-b"]
    assert program.main(["history", "list", "--filter", "problem:nothing"]) == 0
    assert "no run fits the filter" in capsys.readouterr().out
    assert program.main(["runs", "--filter", "toy"]) == 0
    assert "no run that is under way fits" in capsys.readouterr().out
    for command in (["runs"], ["history", "list"]):
        assert program.main([*command, "--filter", "sped>1"]) == 2
        assert "did you mean speedup?" in capsys.readouterr().err


def test_compare_prints_both_and_says_what_is_not_compared(two: None, capsys: Capture) -> None:
    assert program.main(["history", "compare", "toy-a", "toy-b"]) == 0
    said = capsys.readouterr().out
    assert "#1 1.42x" in said
    assert "#1 ~1.42 est" in said
    assert "the times of toy-b are modelled: they are not compared with measured ones" in said
    assert "timing" in said[said.index("set differently") :]
    assert program.main(["history", "compare", "toy-a", "toy-b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["speedup"], run["estimate"]) for run in found["runs"]] == [(1.42, None), (None, 1.42)]
    assert program.main(["history", "compare", "toy-a", "toy-a"]) == 2
    assert program.main(["history", "compare", "toy-a"]) == 2


def test_compare_writes_a_file_and_replaces_none_unasked(two: None, capsys: Capture) -> None:
    command = ["history", "compare", "toy-a", "toy-b", "-o"]
    assert program.main([*command, "both.md"]) == 0
    assert capsys.readouterr().out == "2 runs in both.md\n"
    assert Path("both.md").read_text().startswith("| run | toy-a | toy-b |")
    assert program.main([*command, "both.md"]) == 2
    assert program.main([*command, "both.md", "--overwrite"]) == 0
    assert program.main([*command, "both.parquet"]) == 2
    assert "end it in .md, .csv, .json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["list"], 2),
        (["list", "--filter", "toy-a"], 1),
        (["list", "--filter", "nothing"], 0),
        (["show", "toy-a"], 3),
        (["sql", "select 1.5::decimal(9,2) as d, [1] as l -- odd;"], 1),
    ],
)
def test_rows_go_to_parquet_with_their_types(arguments: list[str], rows: int, two: None, capsys: Capture) -> None:
    assert program.main(["history", *arguments, "-o", "out.parquet"]) == 0
    assert capsys.readouterr().out == f"{rows} {'row' if rows == 1 else 'rows'} in out.parquet\n"
    found = duckdb.sql("select * from 'out.parquet'")
    assert len(found.fetchall()) == rows
    if arguments[0] == "sql":
        assert [str(kind) for kind in found.types] == ["DECIMAL(9,2)", "INTEGER[]"]
    assert program.main(["history", *arguments, "-o", "out.parquet"]) == 2
    assert program.main(["history", *arguments, "-o", "out.csv"]) == 0
    with Path("out.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == rows + 1


def test_a_query_for_parquet_reaches_no_other_file(two: None, capsys: Capture) -> None:
    Path("secret.csv").write_text("a\n1\n")
    assert program.main(["history", "sql", "select * from 'secret.csv'", "-o", "out.parquet"]) == 1
    assert "the query fails" in capsys.readouterr().err
    escape = "select 1) to 'other.csv' (format csv); copy (select 1"
    assert program.main(["history", "sql", escape, "-o", "out.parquet"]) == 1
    assert not Path("other.csv").exists()


def test_prune_deletes_runs_and_rows_but_never_one_that_is_owned(
    two: None, recorded: Recorded, capsys: Capture
) -> None:
    recorded("measured", run_id="toy-c")
    History().ingest()
    assert program.main(["history", "prune"]) == 2
    assert program.main(["history", "prune", "--older", "soon"]) == 2
    capsys.readouterr()
    assert program.main(["history", "prune", "--filter", "toy"]) == 2
    assert "3 runs fit: add --yes to delete" in capsys.readouterr().err
    assert len(listed(capsys)) == 3
    with RunLock("toy-a"):
        assert program.main(["history", "prune", "--filter", "run:toy-a", "--yes"]) == 0
        assert program.main(["history", "prune", "--filter", "run:toy-a,toy-b", "--yes", "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == ["toy-b"]
    assert sorted(listed(capsys)) == ["toy-a", "toy-c"]
    assert not paths.run_dir("toy-b").exists()
    found = History().sql("select distinct run_id from candidates union select run_id from ingested order by 1")
    assert [row[0] for row in found.rows] == ["toy-a", "toy-c"]
    assert [entry.name for entry in paths.data_dir().iterdir() if entry.name.startswith("pruned")] == []
    capsys.readouterr()
    assert program.main(["history", "prune", "--older", "1h", "--filter", "toy-c", "--yes"]) == 0
    assert listed(capsys) == ["toy-a"]


def test_a_copied_folder_is_imported_once(two: None, capsys: Capture, tmp_path: Path) -> None:
    elsewhere = tmp_path / "copied"
    shutil.copytree(paths.run_dir("toy-a"), elsewhere)
    (elsewhere / "best").mkdir(exist_ok=True)
    (elsewhere / "best" / "1.py").write_text("x = 1\n")
    (elsewhere / "lock").write_text("1\n")
    (elsewhere / "link").symlink_to("/etc/passwd")
    assert program.main(["history", "import", str(elsewhere)]) == 2
    assert "toy-a is here already" in capsys.readouterr().err
    assert program.main(["history", "prune", "--filter", "run=toy-a", "--yes"]) == 0
    assert program.main(["history", "import", str(elsewhere), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == ["toy-a"]
    here = paths.run_dir("toy-a")
    assert (here / "best" / "1.py").read_text() == "x = 1\n"
    assert not (here / "lock").exists()
    assert not (here / "link").exists()
    assert History().sql("select count(*) from candidates where run_id = 'toy-a'").rows == [(3,)]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (None, 2, "holds no journal.jsonl"),
        ("", 2, "does not begin with the start of a run"),
        ("nonsense\n", 1, "line 1"),
    ],
)
def test_what_is_no_run_is_not_imported(text: str | None, status: int, said: str, capsys: Capture) -> None:
    Path("copied").mkdir()
    if text is not None:
        Path("copied/journal.jsonl").write_text(text)
    assert program.main(["history", "import", "copied"]) == status
    assert said in capsys.readouterr().err
    assert not paths.runs_dir().exists() or not list(paths.runs_dir().iterdir())


def test_a_journal_cannot_name_a_place_outside_the_runs(two: None, capsys: Capture) -> None:
    Path("copied").mkdir()
    text = paths.journal_file("toy-a").read_text()
    Path("copied/journal.jsonl").write_text(text.replace('"run_id":"toy-a"', '"run_id":"../../evil"'))
    assert program.main(["history", "import", "copied"]) == 2
    assert "cannot be a folder's name" in capsys.readouterr().err


def test_show_does_not_point_to_another_machines_folder(recorded: Recorded, capsys: Capture) -> None:
    run_id = recorded("measured")
    assert program.main(["history", "show", run_id]) == 0
    printed = capsys.readouterr().out
    assert "exported elsewhere, to /data/best/kernel.py" in printed
    assert "exported to" not in printed
