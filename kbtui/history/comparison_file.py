"""A comparison of runs as a file: Markdown as it is shown, CSV with a row for each run, or JSON with everything."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kbtui.errors import UsageError
from kbtui.history.compare import Comparison, RunResult
from kbtui.history.side_by_side import remarks, sections
from kbtui.text import clean_line

COMPARISONS = (".md", ".csv", ".json")
"""Suffixes of the formats."""
_NESTED = ("cases", "strategies")


def write_comparison(found: Comparison, path: Path) -> None:
    """Write it in the format of the suffix. Raises UsageError when the file cannot be written."""
    text = {".md": markdown, ".csv": as_csv, ".json": as_json}[path.suffix](found)
    try:
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def markdown(found: Comparison) -> str:
    """The tables that `kbtui history compare` prints, one column per run, and its remarks."""
    lines: list[str] = []
    for title, rows in sections(found):
        lines += [_line([title, *(run.run_id for run in found.runs)]), "|" + " --- |" * (1 + len(found.runs))]
        lines += [*map(_line, rows), ""]
    lines += [f"- {_escaped(text)}" for text in remarks(found)]
    return "\n".join(lines).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    return clean_line(text).replace("|", "\\|")


def as_csv(found: Comparison) -> str:
    """A row for each run: its figures, then `ratio` (measured) or `estimate` (modelled) of its best by case. What does not
    apply is empty: a modelled figure never stands in a measured column."""
    plain = [name for name in RunResult.__struct_fields__ if name not in _NESTED]
    cases = list(dict.fromkeys(case.case for run in found.runs for case in run.cases))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*plain, *(f"{kind} {case}" for case in cases for kind in ("ratio", "estimate"))])
    for run in found.runs:
        by_case = {case.case: (case.ratio, case.estimate_ratio) for case in run.cases}
        figures = [value for case in cases for value in by_case.get(case, (None, None))]
        writer.writerow([*(getattr(run, name) for name in plain), *figures])
    return out.getvalue()


def as_json(found: Comparison) -> str:
    """What `--json` prints."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
