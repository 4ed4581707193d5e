"""From a line of spans to the strip of segments that Textual paints."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from kbtui.tui.glyphs import to_ascii
from kbtui.tui.line import Line

Styles = Callable[[str], Style]
"""Role -> the style it sets."""


def strip_of(line: Line, base: Style, styles: Styles) -> Strip:
    """The line on the background of `base`."""
    return Strip([Segment(span.text, base + styles(span.role)) for span in line if span.text])


def ascii_line(line: Line) -> Line:
    """The line with each glyph replaced by its twin."""
    return tuple(span._replace(text=to_ascii(span.text)) for span in line)


def with_selection(strip: Strip, selection: Selection | None, index: int, style: Style) -> Strip:
    """The strip of line `index` with the part that the mouse selected in `style`."""
    span = selection.get_span(index) if selection is not None else None
    if span is None:
        return strip
    start, end = span
    length = strip.cell_length
    end = length if end == -1 else min(end, length)
    if start >= end:
        return strip
    chosen = Strip([Segment(segment.text, style) for segment in strip.crop(start, end)])
    return Strip.join([strip.crop(0, start), chosen, strip.crop(end, length)])
