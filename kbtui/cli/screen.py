"""The options that say how the cockpit draws."""

from __future__ import annotations

from typing import Annotated

import typer

Theme = Annotated[str | None, typer.Option(metavar="NAME", help="The cockpit's theme; `kbtui themes` lists them.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw the cockpit with ASCII glyphs only.")]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal.")]
LowBandwidth = Annotated[bool, typer.Option("--low-bandwidth", help="Send less to the terminal, for slow links.")]
