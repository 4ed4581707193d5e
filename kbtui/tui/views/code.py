"""Source as lines: highlighted, and as a diff. What is too long to highlight in time is shown plain and said so."""

from __future__ import annotations

import difflib

from kbtui.text import clean
from kbtui.tui.glyphs import BAD
from kbtui.tui.line import Line, LineBuilder, Lines, crop, text_line, width_of

HIGHLIGHT_LIMIT = 60_000
"""Characters; a candidate has some thousands."""
DIFF_LIMIT = 2_000
"""Lines on a side; difflib grows with the square."""
CONTEXT = 4


def source_lines(source: str, offending: tuple[int, ...] = ()) -> Lines:
    """The source with line numbers and syntax colours; the lines that an error names are marked beside their number."""
    rows = _highlighted(source) if len(source) <= HIGHLIGHT_LIMIT else [text_line(row) for row in _split(source)]
    digits = len(str(len(rows)))
    lines = [_numbered(i, row, digits, i in offending) for i, row in enumerate(rows, 1)]
    if len(source) > HIGHLIGHT_LIMIT:
        lines.insert(0, text_line(" without colours: the source is too long for them", "dim"))
    return Lines(lines, wide=_widest(lines))


def excerpt(source: str, number: int, around: int = 2) -> list[Line]:
    """Line `number` of a source, marked, with the lines around it."""
    rows = _highlighted(source) if len(source) <= HIGHLIGHT_LIMIT else [text_line(row) for row in _split(source)]
    digits = len(str(len(rows)))
    first, last = max(1, number - around), min(len(rows), number + around)
    return [_numbered(i, rows[i - 1], digits, i == number) for i in range(first, last + 1)]


def _numbered(number: int, row: Line, digits: int, offends: bool) -> Line:
    out = LineBuilder().add(f" {number:>{digits}}", "bad" if offends else "faint")
    return out.add(f"{BAD} " if offends else "  ", "bad" if offends else "faint").extend(row).line()


def side_lines(old: str, new: str, width: int) -> Lines:
    """Both versions beside each other in `width` cells, changed lines with four lines around; long lines are cut."""
    before, after = _split(old), _split(new)
    if before == after or len(before) > DIFF_LIMIT or len(after) > DIFF_LIMIT:
        return diff_lines(old, new)
    digits = len(str(max(len(before), len(after))))
    half = (width - 3) // 2
    lines: list[Line] = []
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        lines.append(_hunk(group[0][1] + 1, group[-1][2], group[0][3] + 1, group[-1][4]))
        for tag, i1, i2, j1, j2 in group:
            same = tag == "equal"
            left = [
                _side(i + 1, " " if same else "-", before[i], "text" if same else "del", digits) for i in range(i1, i2)
            ]
            right = [
                _side(j + 1, " " if same else "+", after[j], "text" if same else "add", digits) for j in range(j1, j2)
            ]
            for at in range(max(len(left), len(right))):
                out = LineBuilder().extend(crop(left[at], half) if at < len(left) else ())
                out.to(half).add(" │ ", "faint").extend(crop(right[at], half) if at < len(right) else ())
                lines.append(out.line())
    return Lines(lines)


def diff_lines(old: str, new: str) -> Lines:
    """What changed from `old` to `new`: changed lines with four lines around, a `+` or `-` before each."""
    before, after = _split(old), _split(new)
    if before == after:
        return Lines([text_line(" the same text", "dim")])
    if len(before) > DIFF_LIMIT or len(after) > DIFF_LIMIT:
        text = f" too long to compare here ({len(before)} and {len(after)} lines): export both and use diff"
        return Lines([text_line(text, "warn")])
    lines: list[Line] = []
    digits = len(str(max(len(before), len(after))))
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        lines.append(_hunk(first[1] + 1, last[2], first[3] + 1, last[4]))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [_side(j + 1, " ", after[j], "text", digits) for j in range(j1, j2)]
                continue
            lines += [_side(i + 1, "-", before[i], "del", digits) for i in range(i1, i2)]
            lines += [_side(j + 1, "+", after[j], "add", digits) for j in range(j1, j2)]
    return Lines(lines, wide=_widest(lines))


def diff_counts(old: str, new: str) -> tuple[int, int]:
    """(lines added, lines removed)."""
    before, after = _split(old), _split(new)
    if len(before) > DIFF_LIMIT or len(after) > DIFF_LIMIT:
        return 0, 0
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = [code for code in codes if code[0] != "equal"]
    return sum(j2 - j1 for _, _, _, j1, j2 in changed), sum(i2 - i1 for _, i1, i2, _, _ in changed)


def _hunk(old_first: int, old_last: int, new_first: int, new_last: int) -> Line:
    return text_line(f" lines {new_first}-{new_last}  (was {old_first}-{old_last})", "hunk")


def _side(number: int, sign: str, text: str, role: str, digits: int) -> Line:
    return LineBuilder().add(f" {number:>{digits}} ", "faint").add(f"{sign} {text}", role).line()


def _split(source: str) -> list[str]:
    """Lines as an editor counts them: `\\n` only, so that a stray separator of another kind shows as a glyph."""
    lines = clean(source.replace("\r\n", "\n")).split("\n")
    return lines[:-1] if lines and lines[-1] == "" else lines


def _widest(lines: list[Line]) -> int:
    return max((width_of(line) for line in lines), default=0) + 1


def _highlighted(source: str) -> list[Line]:
    from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]
    from pygments.token import (  # type: ignore[import-untyped]
        Comment,
        Keyword,
        Name,
        Number,
        Operator,
        String,
    )

    roles = (
        (Comment, "syn-comment"),
        (String, "syn-string"),
        (Number, "syn-number"),
        (Name.Decorator, "syn-decorator"),
        (Name.Function, "syn-name"),
        (Name.Class, "syn-name"),
        (Name.Builtin, "syn-name"),
        (Keyword, "syn-keyword"),
        (Operator.Word, "syn-keyword"),
    )
    rows: list[Line] = []
    row = LineBuilder()
    # cleaned first: then no token can hold anything but text and newlines
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(_split(source))):
        role = next((role for base, role in roles if kind in base), "text")
        first, *rest = value.split("\n")
        row.add(first, role)
        for part in rest:
            rows.append(row.line())
            row = LineBuilder().add(part, role)
    rows.append(row.line())
    return rows
