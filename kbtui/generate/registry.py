"""Generators by name, as in `--generator NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from kbtui.errors import UsageError
from kbtui.generate.generator import Generator
from kbtui.state.records import Scalar

GENERATORS: dict[str, str] = {
    "rewrite": "known changes of the source; needs no model, no key, no network",
    "llm": "a model of any provider writes the next version",
    "replay": "recorded replies: of a run, of a file, or of the demonstration that comes with kbtui",
}
"""Name to summary."""


def make_generator(
    name: str,
    *,
    recording: Path | None = None,
    model: str = "",
    parameters: Mapping[str, Scalar] | None = None,
    budget_tokens: int | None = None,
) -> Generator:
    """The generator called `name`. `recording` is for `replay`, `model` and `parameters` for `llm`; `budget_tokens` is the
    run's, which bounds the spending where a price is unknown.

    Raises UsageError, with the remedy, for an unknown name and for what a generator lacks.
    """
    if name == "rewrite":
        from kbtui.generate.rewrite import RewriteGenerator

        return RewriteGenerator()
    if name == "replay":
        if recording is None:
            raise UsageError(
                "the replay generator needs a recording: give a run, a journal or a file of JSON lines by --from"
            )
        return _replay(recording)
    if name == "llm":
        from kbtui.generate.llm.generator import LlmGenerator
        from kbtui.generate.llm.provider import open_backend
        from kbtui.generate.llm.settings import read_models, read_settings

        settings, passed_on = read_settings(parameters or {})
        if find_spec("litellm") is None:
            raise UsageError(
                "the llm generator needs litellm, which is not installed: pip install 'kbtui[llm]', or use --generator rewrite"
            )
        return LlmGenerator("llm", settings, read_models(model), passed_on, open_backend, budget_tokens=budget_tokens)
    raise UsageError(f"there is no generator called {name!r}: choose one of {', '.join(GENERATORS)}")


def _replay(recording: Path) -> Generator:
    """What replays a file: the conversations of a journal with models' replies, else versions one after the other."""
    if not _is_journal(recording):
        from kbtui.generate.replay import ReplayGenerator

        return ReplayGenerator.from_file(recording)
    from kbtui.generate.llm.generator import LlmGenerator
    from kbtui.generate.llm.recorded import backend_of, read_recording
    from kbtui.generate.llm.settings import read_models, read_settings

    found = read_recording(recording)
    if not found.replies:
        from kbtui.generate.replay import ReplayGenerator

        return ReplayGenerator.from_run(found.name, found.versions)
    settings, _ = read_settings(found.parameters)
    return LlmGenerator("replay", settings, read_models(found.models), {}, backend_of(found))


class _Tagged(msgspec.Struct):
    type: str = ""


def _is_journal(file: Path) -> bool:
    """Whether the first line is an event of a run."""
    try:
        with file.open("rb") as lines:
            return bool(msgspec.json.decode(lines.readline(), type=_Tagged).type)
    except (OSError, msgspec.DecodeError):
        return False
