"""A comparison of runs as rows of text, one column per run: what the command line and the cockpit both show."""

from __future__ import annotations

from kbtui.history.compare import CaseResult, Comparison, RunResult, StrategyYield
from kbtui.text import time_text


def sections(found: Comparison) -> list[tuple[str, list[list[str]]]]:
    """(title, rows) of each part: the runs as a whole, by case, by strategy, and what was set differently.

    A row is its name and a cell per run. Parts without rows are left out.
    """
    parts = [
        ("run", [[name, *(cell(run) for run in found.runs)] for name, cell in ROWS]),
        ("best by case", case_rows(found)),
        ("rewarded pulls", strategy_rows(found)),
        ("set differently", differences(found)),
    ]
    return [(title, rows) for title, rows in parts if rows]


def remarks(found: Comparison) -> list[str]:
    """Who is ahead where that can be told, and what must not be compared."""
    return [*(group.why for group in found.groups if len(group.run_ids) > 1), *found.notes]


def case_rows(found: Comparison) -> list[list[str]]:
    """The best's ratio and time by case; a case that a run has not stays empty."""
    names = list(dict.fromkeys(case.case for run in found.runs for case in run.cases))
    return [[name, *(case_text(run, name) for run in found.runs)] for name in names]


def case_text(run: RunResult, name: str) -> str:
    """Such as `1.42x 54 µs` (measured) or `~1.30 est ~50 µs` (modelled)."""
    return next((_case(case) for case in run.cases if case.case == name), "")


def _case(case: CaseResult) -> str:
    if case.ms is not None:
        return f"{case.ratio:.2f}x {time_text(case.ms)}" if case.ratio is not None else time_text(case.ms)
    if case.estimate_ms is None:
        return "no time"
    ratio = f"~{case.estimate_ratio:.2f} est " if case.estimate_ratio is not None else ""
    return f"{ratio}~{time_text(case.estimate_ms)}"


def strategy_rows(found: Comparison) -> list[list[str]]:
    """Rewarded of played pulls and the mean reward, for strategies that some run played."""
    rows = zip(*(run.strategies for run in found.runs), strict=True)
    return [[row[0].strategy, *(_yield(each) for each in row)] for row in rows if any(each.pulls for each in row)]


def _yield(each: StrategyYield) -> str:
    return f"{each.rewarded}/{each.pulls} {each.mean_reward:.3f}" if each.mean_reward is not None else "-"


def differences(found: Comparison) -> list[list[str]]:
    """Settings that are not the same in all runs."""
    return [[each.setting, *(value or "-" for value in each.values)] for each in found.differences]


def best_text(run: RunResult) -> str:
    """Such as `#17 1.42x` (measured) or `#3 ~1.30 est` (modelled)."""
    if run.best_id is None:
        return "none"
    if run.speedup is not None:
        return f"#{run.best_id} {run.speedup:.2f}x"
    return f"#{run.best_id} ~{run.estimate:.2f} est" if run.estimate is not None else f"#{run.best_id}"


def interval_text(run: RunResult) -> str:
    """`[1.39, 1.45]`; `modelled` where there is no interval for that reason."""
    if run.low is not None and run.high is not None:
        return f"[{run.low:.2f}, {run.high:.2f}]"
    return "modelled" if run.timing == "modelled" else "-"


def elapsed_text(seconds: float) -> str:
    """`7:12`, `1:02:03`."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


ROWS = (
    ("problem", lambda run: run.problem),
    ("device", lambda run: run.device),
    ("status", lambda run: f"stopped by {run.stopped_by}" if run.stopped_by else "not ended"),
    ("best", best_text),
    ("verdict", lambda run: run.verdict or "-"),
    ("interval", interval_text),
    ("how", lambda run: run.best_move or "-"),
    ("at pull", lambda run: "-" if run.best_at_pull is None else str(run.best_at_pull)),
    ("pulls", lambda run: str(run.pulls)),
    ("correct", lambda run: f"{run.correct} of {run.candidates}"),
    ("time", lambda run: elapsed_text(run.elapsed_s)),
    ("cost", lambda run: f"${run.cost_usd:.2f}"),
    ("tokens", lambda run: f"{run.tokens:,}"),
)
"""Name and cell of each row about a run as a whole."""
