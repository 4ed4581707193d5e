"""Starting and continuing runs from the home screen, through kbtui's own command line.

The cockpit never loads the engine: it asks the program that a person would use, and shows the one sentence it fails with.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from kbtui.errors import KbtuiError
from kbtui.text import clean_line


class _Started(msgspec.Struct):
    run_id: str


async def start(problem: str, flags: dict[str, str]) -> str:
    """Start a detached run and return its id. `flags` are `kbtui run`'s, without dashes; "" leaves one out.

    Raises KbtuiError with the sentence that the command printed.
    """
    options = [part for name, value in flags.items() if value for part in (f"--{name}", value)]
    return await _run([*options, "--", problem])


async def go_on(run_id: str) -> str:
    """Continue a run in a new process and return its id. Raises KbtuiError as `start`."""
    return await _run(["--continue", run_id])


async def _run(arguments: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "kbtui", "run", "--detach", "--json", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    if process.returncode != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        raise KbtuiError(
            clean_line(lines[-1]).removeprefix("kbtui: ")
            if lines
            else f"kbtui run ended with status {process.returncode}"
        )
    try:
        return msgspec.json.decode(out, type=_Started).run_id
    except msgspec.DecodeError as error:
        raise KbtuiError(f"kbtui run did not say which run it started: {error}") from error
