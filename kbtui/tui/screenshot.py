"""The screen as an SVG file that needs nothing from elsewhere."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui import clock

if TYPE_CHECKING:
    from textual.app import App

FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
"""Any will do: every piece of text says how long it is, so columns stay columns."""


def write_screenshot(app: App[int], folder: Path, name: str) -> Path:
    """Write the screen to a new file of that name and a number in `folder`; the path. Raises OSError."""
    svg = screen_svg(app, f"{app.title} · {name}")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock.wall()))
    for number in range(1, 100):
        path = folder / (f"{name}-{stamp}.svg" if number == 1 else f"{name}-{stamp}-{number}.svg")
        try:
            with path.open("x", encoding="utf-8", errors="replace") as file:
                file.write(svg)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(17, "there are a hundred of this second already", str(folder))


def screen_svg(app: App[int], title: str) -> str:
    """The screen of a running app."""
    return slimmed(app.export_screenshot(title=title, simplify=True))


def slimmed(svg: str) -> str:
    """Rich's SVG without fonts from the network, a name that differs each time, and a clip path for every line."""
    name = re.search(r'class="([\w-]+)-matrix"', svg)
    if name is not None:
        svg = svg.replace(name.group(1), "k")
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<clipPath id="k-line-\d+">.*?</clipPath>\s*', "", svg, flags=re.DOTALL)
    svg = re.sub(r' clip-path="url\(#k-line-\d+\)"', "", svg)
    svg = svg.replace("font-family: Fira Code, monospace", f"font-family: {FONTS}")
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"\n\s+", "\n", svg)
