"""README and docs: every `kbtui` line is one that the program takes, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kbtui.cli.program import app
from kbtui.config import load_settings
from kbtui.paths import config_file
from kbtui.tui.keymap import read_keymap

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), ROOT / "themes" / "README.md"]
)
_BLOCK = re.compile(r"^```(?:sh|console|bash|text)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(kbtui [^`]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_PLACEHOLDER = {"N": "3", "URL": "http://127.0.0.1:8000/v1", "N.N": "1.5"}
"""What stands for a number or an address in a sentence."""
_GRAMMAR = ("...", "…", "|", "[", "COMMAND")
"""What is in a line that describes commands instead of being one."""


def commands() -> Iterator[tuple[str, str]]:
    """(page, line) of everything that a reader could type."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
        lines += _INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in lines:
            line = line.strip().removeprefix("$ ")
            if re.match(r"kbtui(\s|$)", line) and not any(sign in line for sign in _GRAMMAR):
                yield page.name, line


COMMANDS = sorted(set(commands()))


def test_there_are_commands_to_look_at() -> None:
    assert len(COMMANDS) > 60
    assert ("README.md", "kbtui run softmax") in COMMANDS


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_program_takes_what_the_page_says(page: str, line: str) -> None:
    words = [_PLACEHOLDER.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    command: Any = typer.main.get_command(app)  # typer has a click of its own in newer releases
    context: Any = command.make_context("kbtui", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, arguments = command.resolve_command(context, rest)
        # A sentence may name a command without its arguments: then only that it exists is looked at.
        required = any(parameter.required for parameter in command.params)
        if not arguments and (required or hasattr(command, "resolve_command")):
            return
        context = command.make_context(name, list(arguments), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(
            re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        )
        if page.name == "configuration.md"
    ],
)
def test_the_examples_of_a_configuration_are_taken(block: str) -> None:
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block, encoding="utf-8")
    settings, origins = load_settings()
    keymap = read_keymap(settings.keys, origins["keys"])
    assert set(keymap.changed) == set(settings.keys)
