"""Benchmarks without a lane: methods, suites, shards, rows, figures, and going on after anything."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui import paths
from kbtui.bench import running
from kbtui.bench.methods import METHODS, find_method
from kbtui.bench.rows import Row, RowFile, read_rows
from kbtui.bench.running import Benchmark, results, run, write_tables
from kbtui.bench.suites import chosen, find_suite, read_shard
from kbtui.bench.table import as_csv, cells, figure, figures, markdown
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, HistoryError, ProblemError, UsageError
from kbtui.history.database import History
from kbtui.problems.folder import bundled
from kbtui.state.records import BestSummary, Summary
from kbtui.state.run_state import RunState

BASE = RunSpec(problem="", device="cpu", model="some/model")


def row(kernel: str = "k", **fields: Any) -> Row:
    given = {"benchmark": "b", "suite": "s", "method": "rewrite", "kernel": kernel, "status": "done", **fields}
    return Row(**given)


def measured(kernel: str, ratio: float, verdict: str = "faster", **fields: Any) -> Row:
    return row(
        kernel, timing="measured", ratio=ratio, verdict=verdict, correct=1, candidates=3, sum_ratio=ratio, **fields
    )


class TestMethods:
    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_each_makes_a_run_that_its_policy_and_generator_take(self, name: str) -> None:
        from kbtui.generate.llm.settings import read_settings
        from kbtui.search.registry import make_policy

        base = msgspec.structs.replace(BASE, device="cuda:0", generator_parameters={"repairs": 1})
        shaped = METHODS[name].shape(base, 7)
        if not METHODS[name].searches:
            assert (shaped.generator, shaped.model, shaped.iterations) == ("", "", 0)
            return
        make_policy(shaped.policy, shaped.policy_parameters)
        read_settings(shaped.generator_parameters)
        assert (shaped.iterations, shaped.speed_of_light) == (7, None)
        assert shaped.model == ("some/model" if shaped.generator == "llm" else "")

    def test_independent_samples_know_nothing_of_one_another_and_reflexion_mends(self) -> None:
        samples = METHODS["best-of-n"].shape(BASE, 12)
        assert samples.policy_parameters["n"] == 12
        assert samples.generator_parameters["repairs"] == 0
        reflexion = METHODS["geak"].shape(BASE, 12)
        assert reflexion.policy_parameters["n"] == 5
        assert reflexion.generator_parameters["repairs"] == 3

    def test_measured_methods_are_refused_without_a_gpu(self) -> None:
        with pytest.raises(UsageError, match="autotune chooses by measured times, and cpu has none"):
            METHODS["autotune"].shape(BASE, 1)

    def test_an_unknown_one_is_named_with_the_others(self) -> None:
        with pytest.raises(UsageError, match="--method fast is unknown: use one of rewrite"):
            find_method("fast")


class TestSuites:
    def test_bundled_imported_and_any_folder(self, private_home: Path, tmp_path: Path) -> None:
        assert list(find_suite("bundled")) == bundled()
        imported = private_home / "data" / "problems" / "mine" / "level1" / "one"
        imported.mkdir(parents=True)
        (imported / "problem.py").touch()
        assert find_suite("mine") == {"level1/one": imported}
        assert find_suite(str(imported.parent)) == {"one": imported}
        with pytest.raises(UsageError, match="there is no suite 'none': use bundled, mine"):
            find_suite("none")
        with pytest.raises(UsageError, match="holds no problem"):
            find_suite(str(tmp_path))

    def test_shards_share_the_kernels_without_loss(self) -> None:
        problems = {name: Path(name) for name in "abcdefg"}
        parts = [list(chosen(problems, (), f"{index}/3")) for index in (1, 2, 3)]
        assert parts[0] == ["a", "d", "g"]
        assert sorted(name for part in parts for name in part) == list(problems)
        assert list(chosen(problems, ("c", "a"), "")) == ["c", "a"]
        with pytest.raises(UsageError, match="no such problem"):
            chosen(problems, ("z",), "")

    @pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/", "-1/2"])
    def test_a_shard_that_is_none(self, text: str) -> None:
        with pytest.raises(UsageError, match="--shard takes I/N"):
            read_shard(text)


class TestFigures:
    def test_failures_count_as_one_and_percentages_are_of_all(self) -> None:
        rows = [
            measured("a", 4.0, seconds=2.0, cost_usd=0.5),
            measured("b", 1.0, verdict=""),
            row("c", status="failed", reason="it crashed"),
            row("d", timing="measured", correct=0),
            row("e", status="waiting"),
        ]
        found = figures(rows)
        assert (found.tasks, found.failed, found.waiting) == (4, 1, 1)
        assert (found.correct_percent, found.fast_percent) == (50.0, 25.0)
        assert found.geomean_correct == pytest.approx(2.0)
        assert found.geomean_all == pytest.approx(4.0**0.25)
        assert found.median == 2.5
        assert found.sum_over_sum == 2.5
        assert (found.seconds, found.cost_usd) == (2.0, 0.5)

    def test_ambiguous_is_not_fast_however_high(self) -> None:
        assert figures([measured("a", 1.3, verdict="ambiguous")]).fast_percent == 0.0

    def test_what_is_modelled_says_so_and_is_never_a_speedup(self) -> None:
        rows = [row("a", estimate=1.5, verdict="not worse", correct=1, candidates=2, sum_ratio=1.5)]
        text = markdown("t", rows)
        assert "modelled" in text
        assert "~1.50 est" in text
        assert "1.50x" not in text
        assert figures([row("a", estimate=1.01, correct=1)]).fast_percent == 0.0  # within what an estimate knows
        assert figure(1.5, "measured") == "1.50x"

    def test_a_modelled_table_has_none_of_the_words_for_what_is_measured(self) -> None:
        """A kernel without a gain read `same` beside others that were `not worse`."""
        rows = [row("a", estimate=1.0, correct=2), row("b", estimate=1.1, verdict="not worse", correct=1), row("c")]
        assert [cells(one)[1] for one in rows] == ["not worse"] * 3
        assert "same" not in markdown("t", rows)
        assert cells(measured("a", 1.0, verdict=""))[1] == "same"

    def test_nothing_at_all(self) -> None:
        found = figures([])
        assert (found.tasks, found.geomean_all, found.median) == (0, None, None)

    def test_csv_and_json_have_every_field(self, tmp_path: Path) -> None:
        rows = [measured("a,b|c", 2.0), row("d", status="failed", reason="no, it crashed")]
        assert [one["kernel"] for one in csv.DictReader(io.StringIO(as_csv(rows)))] == ["a,b|c", "d"]
        write_tables(tmp_path, "title", rows)
        value = json.loads((tmp_path / "results.json").read_text())
        assert value["figures"]["tasks"] == 2
        assert "a,b\\|c" in (tmp_path / "table.md").read_text()


def test_a_table_of_failures_on_a_gpu_does_not_say_that_none_was_used() -> None:
    failed = [row("a", status="failed", timing="measured"), row("b", status="stopped", timing="measured")]
    assert figures(failed).timing == "measured"
    assert "modelled" not in markdown("t", failed)
    assert figures([row("a", status="failed")]).timing == "modelled"


class TestRows:
    def test_the_last_word_holds_and_a_cut_line_is_nothing(self, tmp_path: Path) -> None:
        file = RowFile(tmp_path / "rows-1of1.jsonl")
        file.append(row("a", status="started"))
        file.append(row("a", correct=3))
        with file.path.open("ab") as out:
            out.write(b'{"benchmark": "b", "ker')
        assert read_rows([file.path]) == {"a": row("a", correct=3)}
        file.path.write_bytes(b"nonsense\n" + file.path.read_bytes())
        with pytest.raises(HistoryError, match="line 1 is no result"):
            read_rows([file.path])

    def test_rows_are_in_the_database_and_survive_a_rebuild(self) -> None:
        running.keep_rows([measured("a", 2.0, finished_at=1e9), row("b", estimate=1.2, sum_ratio=1.1)])
        running.keep_rows([measured("a", 3.0, finished_at=1e9)])
        history = History()
        history.rebuild()
        found = history.sql("select kernel, ratio, sum_ratio, estimate, sum_estimate from benchmarks order by kernel")
        assert found.rows == [("a", 3.0, 3.0, None, None), ("b", None, None, 1.2, 1.1)]


# ------------------------------------------------------------ runs


def summary(kernel: str, run_id: str) -> Summary:
    best = BestSummary(candidate_id=0, verdict="", speedup=None, low=None, high=None, estimate=1.0, path="")
    return Summary(
        run_id=run_id, problem=kernel, device="cpu for sm_90", timing="modelled", pulls=2, candidates=3, correct=1,
        best=best, baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by="iterations",
    )  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Exception | None]]:
    """Kernel -> what comes of its runs, one after the other; a kernel that is not in it is well every time."""
    script: dict[str, list[Exception | None]] = {}

    def fake(
        benchmark: Benchmark, spec: RunSpec, kernel: str, state: RunState, waits: list[bool], limit: Any
    ) -> Summary:
        outcome = script[kernel].pop(0) if script.get(kernel) else None
        if outcome is not None:
            raise outcome
        return summary(kernel, spec.run_id)

    monkeypatch.setattr(running, "_run", fake)
    return script


PROBLEMS = {name: Path("/p") / name for name in ("a", "b", "c", "d")}


def bench(**fields: Any) -> Benchmark:
    return Benchmark(suite="s", method=METHODS["rewrite"], iterations=2, base=BASE, **fields)


def test_every_kernel_has_its_row_and_what_is_over_is_left_alone(
    tmp_path: Path, played: dict[str, list[Exception | None]]
) -> None:
    played["b"] = [ProblemError("b/problem.py: no reference: define it")]
    played["c"] = [EnvironmentFailure("the driver is gone")]
    seen: list[str] = []
    rows = run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda one: seen.append(one.kernel))
    assert [(one.kernel, one.status, one.owner) for one in rows] == [
        ("a", "done", ""),
        ("b", "failed", "candidate"),
        ("c", "failed", "environment"),
        ("d", "done", ""),
    ]
    with pytest.raises(UsageError, match="has results already: --resume"):
        run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda _: None)
    again = run(bench(), PROBLEMS, tmp_path, resume=True, report=lambda one: seen.append(one.kernel))
    assert seen == ["a", "b", "c", "d", "c"]
    assert [one.status for one in again] == ["done", "failed", "done", "done"]


def test_a_machine_that_fails_every_time_ends_it_and_nothing_is_lost(
    tmp_path: Path, played: dict[str, list[Exception | None]]
) -> None:
    played.update({name: [EnvironmentFailure(f"no disk for {name}")] for name in "bcd"})
    with pytest.raises(EnvironmentFailure, match="no disk for d"):
        run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda _: None)
    assert [one.status for one in results(tmp_path)] == ["done", "failed", "failed", "failed"]
    assert all(one.status == "done" for one in run(bench(), PROBLEMS, tmp_path, resume=True, report=lambda _: None))


def test_usage_that_no_kernel_could_run_with_ends_it_at_once(
    tmp_path: Path, played: dict[str, list[Exception | None]]
) -> None:
    played["a"] = [UsageError("the llm generator needs a model")]
    with pytest.raises(UsageError, match="needs a model"):
        run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda _: None)
    # nothing came of it, so that there is nothing to resume
    assert len(run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda _: None)) == 4


def test_an_interrupted_run_goes_on_as_itself(
    tmp_path: Path, played: dict[str, list[Exception | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    played["b"] = [KeyboardInterrupt()]  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        run(bench(), PROBLEMS, tmp_path, resume=False, report=lambda _: None)
    begun = {one.kernel: one for one in results(tmp_path)}
    assert {name: one.status for name, one in begun.items()} == {"a": "done", "b": "started"}
    journal = paths.journal_file(begun["b"].run_id)
    journal.parent.mkdir(parents=True)
    journal.touch()
    seen: list[RunSpec] = []
    fake = running._run

    def keep(benchmark: Benchmark, spec: RunSpec, *rest: Any) -> Summary:
        seen.append(spec)
        return fake(benchmark, spec, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(running, "_run", keep)
    run(bench(), PROBLEMS, tmp_path, resume=True, report=lambda _: None)
    assert (seen[0].run_id, seen[0].continue_run) == (begun["b"].run_id, True)
    assert [spec.continue_run for spec in seen] == [True, False, False]


def test_shards_make_one_table_and_another_benchmark_is_refused(
    tmp_path: Path, played: dict[str, list[Exception | None]]
) -> None:
    del played
    for shard in ("1/2", "2/2"):
        part = chosen(PROBLEMS, (), shard)
        rows = run(bench(shard=shard), part, tmp_path, resume=False, report=lambda _: None)
    assert [one.kernel for one in rows] == ["a", "b", "c", "d"]
    assert bench(shard="1/2").name == bench().name
    other = msgspec.structs.replace(bench(shard="2/2"), iterations=3)
    with pytest.raises(UsageError, match="give the same method, iterations"):
        run(other, PROBLEMS, tmp_path, resume=True, report=lambda _: None)
