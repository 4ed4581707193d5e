"""What may not be set: parameters that kbtui sends itself, and keys anywhere but in the environment."""

from __future__ import annotations

import pytest

from kbtui.errors import UsageError
from kbtui.generate.llm.settings import OURS, check_base, read_settings
from kbtui.text import redact_growing

KEY = "planted-0123456789"


@pytest.mark.parametrize("name", ["api_key", "Authorization", "extra_headers"])
def test_a_key_is_no_parameter(name: str) -> None:
    with pytest.raises(UsageError, match="would be written down") as refused:
        read_settings({f"model.{name}": KEY})
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_kbtui_sends_itself_is_no_parameter(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is set by kbtui itself: use "):
        read_settings({f"model.{name}": 1})


def test_other_parameters_pass() -> None:
    assert read_settings({"model.temperature": 0.7, "model.reasoning_effort": "low"})[1] == {
        "temperature": 0.7,
        "reasoning_effort": "low",
    }


@pytest.mark.parametrize("query", [f"key={KEY}", f"a=1&API_KEY={KEY}", f"sig={KEY}", f"token={KEY}"])
def test_an_address_with_a_key_is_refused(query: str) -> None:
    with pytest.raises(UsageError, match="holds a key") as refused:
        check_base(f"https://h/v1?{query}")
    assert KEY not in str(refused.value)
    check_base("https://h/v1?api-version=2024-06-01")


def test_no_piece_of_a_key_is_shown_while_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", KEY)
    text = f"the key is {KEY}, they say"
    for length in range(len(text) + 1):
        shown = redact_growing(text[:length])
        assert KEY[:5] not in shown
        assert shown.startswith("the key is "[:length])
    assert redact_growing(text) == "the key is [redacted], they say"
    assert redact_growing("no plan") == "no plan", "a few characters in common are no secret"
