"""A model behind files: the prompt goes out, the run is asked to stop, and the reply of the same name is taken later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kbtui.errors import EnvironmentFailure
from kbtui.generate.llm import by_files
from kbtui.generate.llm.by_files import FileChat
from kbtui.generate.llm.chat import Question
from kbtui.state.records import Message

QUESTION = Question(
    model="files/model",
    messages=(Message("system", "You write kernels."), Message("user", "Make this faster.")),
    most_tokens=1000,
    strategy="tiling",
    asking="write",
    pull=3,
    call=1,
)


async def test_a_prompt_waits_and_its_reply_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_files, "GATHER_S", 0.0)
    waited = asyncio.Event()
    chat = FileChat(tmp_path / "p", tmp_path / "r", waited.set)
    asking = asyncio.create_task(chat.answer(QUESTION, lambda *_: None))
    await asyncio.wait_for(waited.wait(), 5)
    asking.cancel()
    (prompt,) = (tmp_path / "p").iterdir()
    assert prompt.name == f"003-write-{QUESTION.digest[:12]}.md"
    assert prompt.read_text() == "<<<<<<<< system\nYou write kernels.\n\n<<<<<<<< user\nMake this faster.\n"
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / prompt.name).write_text("a reply")
    heard: list[tuple[str, bool]] = []
    answer = await chat.answer(QUESTION, lambda text, thinking: heard.append((text, thinking)))
    assert (answer.text, answer.cost_usd, heard) == ("a reply", 0.0, [("a reply", False)])
    assert not list((tmp_path / "p").iterdir())  # what is left there waits


async def test_a_reply_that_cannot_be_read_is_the_machines_fault(tmp_path: Path) -> None:
    chat = FileChat(tmp_path / "p", tmp_path, lambda: None)
    reply = tmp_path / f"003-write-{QUESTION.digest[:12]}.md"
    reply.write_bytes(b"\xff\xfe")
    with pytest.raises(EnvironmentFailure, match="is not UTF-8"):
        await chat.answer(QUESTION, lambda *_: None)
