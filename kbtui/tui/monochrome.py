"""Painting without colours, as `NO_COLOR` asks: not even the code for the default colour is sent."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter


class PlainFilter(LineFilter):
    """Takes the colours out of a line and leaves bold, reverse, underline and the like."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  (Textual's signature)
        return [
            Segment(text, style.without_color if style is not None else None, control)
            for text, style, control in segments
        ]
