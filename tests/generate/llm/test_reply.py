"""Every way in which models wrap, cut and spoil their code."""

from __future__ import annotations

import pytest
from replies import CASES, CODE, ENTRY, PARENT, Case, fenced

from kbtui.generate.digest import syntax_digest
from kbtui.generate.llm.reply import Accepted, Refused, read_reply


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_reply_is_taken_for_what_it_is(case: Case) -> None:
    read = read_reply(case.reply, case.finish, ENTRY, PARENT)
    if case.refused:
        assert isinstance(read, Refused), read
        assert read.kind == case.refused
        assert case.says in read.reason
        assert "\n" not in read.reason
        return
    assert isinstance(read, Accepted), read
    assert syntax_digest(read.source) == syntax_digest(case.code)
    assert case.mended in " ".join(read.mended)
    assert bool(read.mended) == bool(case.mended)
    if case.title is not None:
        assert read.title == case.title


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 30
    assert {case.refused for case in CASES.values()} >= {
        "", "no code", "cut off", "left out", "diff", "syntax", "entry", "undefined", "unchanged",
    }  # fmt: skip


@pytest.mark.parametrize(
    "comment", ["# the rest of the row is masked", "# as before tuning, 8 warps", "# unchanged numerics"]
)
def test_a_comment_that_leaves_nothing_out_is_no_elision(comment: str) -> None:
    assert isinstance(read_reply(fenced(f"{comment}\n{CODE}"), "stop", ENTRY, PARENT), Accepted)


def test_the_cause_is_kept_for_later_prompts() -> None:
    read = read_reply(f"**Cause:** the mask was off by one\nTitle: mask\n{fenced(CODE)}", "stop", ENTRY, PARENT)
    assert isinstance(read, Accepted)
    assert (read.title, read.reflection) == ("mask", "the mask was off by one")


def test_a_title_can_do_nothing_to_a_terminal() -> None:
    read = read_reply(f"Title: \x1b]52;c;aGk=\x07 x{'y' * 200}\n{fenced(CODE)}", "stop", ENTRY, PARENT)
    assert isinstance(read, Accepted)
    assert "\x1b" not in read.title
    assert len(read.title) <= 60


def test_without_a_parent_any_version_will_do() -> None:
    assert isinstance(read_reply(fenced(CODE), "stop", ENTRY, ""), Accepted)
    refused = read_reply(fenced(CODE.replace("softmax(x)", "other(x)")), "stop", ENTRY, "")
    assert isinstance(refused, Refused)
    assert refused.kind == "entry"


def test_a_version_above_the_limit_is_refused() -> None:
    read = read_reply(fenced(CODE + "\nDATA = '" + "x" * (1 << 20) + "'\n"), "stop", ENTRY, PARENT)
    assert isinstance(read, Refused)
    assert read.kind == "too large"
