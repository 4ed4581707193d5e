"""Generators by name, as in `--generator NAME`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from kbtui.errors import UsageError
from kbtui.generate.generator import Generator

GENERATORS: dict[str, str] = {
    "rewrite": "known changes of the source; needs no model, no key, no network",
    "llm": "a model of any provider writes the next version",
    "replay": "recorded replies, from a file of JSON lines",
}
"""Name to summary."""


def make_generator(name: str, *, recording: Path | None = None, model: str = "") -> Generator:
    """The generator called `name`. `recording` is for `replay`, `model` for `llm`.

    Raises UsageError, with the remedy, for an unknown name and for what a generator lacks.
    """
    if name == "rewrite":
        from kbtui.generate.rewrite import RewriteGenerator

        return RewriteGenerator()
    if name == "replay":
        from kbtui.generate.replay import ReplayGenerator

        if recording is None:
            raise UsageError("the replay generator needs a recording: give a file of JSON lines")
        return ReplayGenerator.from_file(recording)
    if name == "llm":
        raise UsageError(_why_no_llm(model))
    raise UsageError(f"there is no generator called {name!r}: choose one of {', '.join(GENERATORS)}")


def _why_no_llm(model: str) -> str:
    if find_spec("litellm") is None:
        return "the llm generator needs litellm, which is not installed: pip install 'kbtui[llm]', or use --generator rewrite"
    asked = f" (asked for {model})" if model else ""
    return f"the llm generator is not built yet{asked}: use --generator rewrite"
