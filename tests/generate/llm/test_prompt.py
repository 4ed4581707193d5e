"""What is sent: everything that is known, nothing that is secret, the source always whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from replies import PARENT
from scripted import PROBLEM, candidate, request, state_of

from kbtui.errors import ConfigError, UsageError
from kbtui.generate.llm.prompt import PromptWriter
from kbtui.generate.llm.settings import LlmSettings, Weighted, check_base, is_local, read_models, read_settings
from kbtui.generate.llm.templates import FIELDS, SHIPPED, Templates
from kbtui.generate.llm.tokens import at_most, count
from kbtui.problems.folder import find_problem
from kbtui.state.records import (
    STRATEGIES,
    CaseTiming,
    Compilation,
    KernelFacts,
    Reading,
    Signature,
    Timing,
    Verification,
)


def parent(**fields: object):
    kernel = KernelFacts(
        name="softmax_kernel", target="sm_90", registers=40, spill_bytes=16, shared_bytes=2048, num_warps=4, num_stages=3,
        threads=128, occupancy_percent=75.0, code_digest="c", constants={"BLOCK": 1024},
    )  # fmt: skip
    one = candidate(0, **fields)
    one.compilation = Compilation(ok=True, kernels=(kernel,))
    case = CaseTiming(case="r=8", ms=0.054, floor_ms=0.027, bound="DRAM")
    one.timing = Timing(kind="measured", verdict="same", cases=(case,), ratio=1.0)
    one.signature = Signature(sm=Reading(21.0, "ncu"), dram=Reading(83.0, "ncu"))
    return one


def text_of(strategy: str = "fusion", most_tokens: int = 16384, state=None, one=None) -> str:
    one = one if one is not None else parent()
    messages = PromptWriter(Templates(), most_tokens).first(request(one, strategy=strategy), state or state_of(one))
    assert [message.role for message in messages] == ["system", "user"]
    return messages[0].text + messages[1].text


def test_everything_that_is_known_is_told() -> None:
    text = text_of()
    for piece in (
        "softmax", "**fusion**", "NVIDIA H200", "232448 bytes of shared memory", "rows=8", "54.0 µs", "50%", "DRAM 83 % of peak",
        "40 registers", "16 bytes spilled", "2048 bytes of shared memory", "occupancy 75 %", "BLOCK=1024", "discarded",
        PARENT.strip(),
    ):  # fmt: skip
        assert piece in text, piece
    assert "L2" not in text.split("# What limits")[1].split("#")[0], "what is unknown is not told"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_has_its_own_advice(strategy: str) -> None:
    advice = (SHIPPED / f"{strategy}.md").read_text().strip()
    text = text_of(strategy)
    assert advice in text
    assert all((SHIPPED / f"{other}.md").read_text().strip() not in text for other in STRATEGIES if other != strategy)


def test_a_modelled_time_says_so() -> None:
    one = parent()
    case = CaseTiming(case="r=8", estimate_ms=0.054)
    one.timing = Timing(kind="modelled", verdict="unknown", cases=(case,), estimate=1.0)
    assert "54.0 µs (modelled)" in text_of(one=one)


def test_attempts_on_the_same_parent_are_told_with_their_end_and_their_lesson() -> None:
    root, other = parent(), candidate(9, "x = 1\n", parent_id=None, move="elsewhere")
    wrong = candidate(
        1, "a = 1\n", parent_id=0, pull=1, strategy="fusion", move="fold the cast", reflection="mask too wide"
    )
    wrong.verification = Verification(verdict="wrong", stage="boundary", reason="differs")
    good = candidate(2, "b = 1\n", parent_id=0, pull=2, strategy="tiling", move="bigger block")
    good.timing = Timing(kind="measured", verdict="faster", cases=(), ratio=1.4, parent_ratio=1.4)
    child = candidate(3, "c = 1\n", parent_id=9, pull=3, strategy="tiling", move="of another parent")
    state = state_of(root, other, wrong, good, child)
    history = text_of(state=state, one=root).split("# Already tried")[1].split("# The version")[0]
    assert "fold the cast: wrong, differs" in history
    assert "mask too wide" in history
    assert "bigger block: correct, 1.40x" in history
    assert "of another parent" not in history
    assert history.index("bigger block") < history.index("fold the cast"), "the newest first"


def test_the_history_is_cut_and_the_source_never() -> None:
    root = parent(source=PARENT + "\n".join(f"# line {n}" for n in range(2000)))
    made = [
        candidate(n, f"a = {n}\n", parent_id=0, pull=n, strategy="tiling", move=f"attempt {n}") for n in range(1, 300)
    ]
    text = text_of(most_tokens=1000, one=root, state=state_of(root, *made))
    assert root.source.strip() in text
    assert "299 older attempts" in text
    root = parent()
    text = text_of(most_tokens=2500, one=root, state=state_of(root, *made))
    assert "attempt 299" in text
    assert "attempt 1:" not in text
    assert count(text) <= 2600


def test_without_a_version_one_is_asked_for_from_scratch() -> None:
    text = text_of(one=candidate(0, ""))
    assert "from scratch" in text
    assert "def reference" not in text


def test_the_reference_of_a_problem_is_shown() -> None:
    problem = msgspec.structs.replace(PROBLEM, path=str(find_problem("softmax").path))
    asked = msgspec.structs.replace(request(parent()), problem=problem)
    text = PromptWriter(Templates(), 16384).first(asked, state_of(parent()))[1].text
    assert "def reference(x" in text
    assert "make_inputs" not in text, "how inputs are made is not told"


def test_a_secret_in_the_source_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted-secret-value")
    text = text_of(one=parent(source=PARENT + "# planted-secret-value sk-abcdefghijklmnop0123\n"))
    assert "planted-secret-value" not in text
    assert "sk-abcdefghijklmnop0123" not in text


# ---------------------------------------------------------------- the user's own templates


def test_a_file_of_the_same_name_replaces_a_template(tmp_path: Path) -> None:
    (tmp_path / "fusion.md").write_text("Fuse it for $$5.")
    assert Templates(tmp_path).fill("fusion", {}) == "Fuse it for $5."
    assert Templates(tmp_path).fill("tiling", {}) == Templates().fill("tiling", {})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("frame", "make $entry faster", "lacks \\$source"),
        ("frame", "$source $sauce", "uses \\$sauce, which does not exist; its fields"),
        ("tiling", "costs $ 5", "starts no field"),
        ("tilling", "", "is no prompt template"),
    ],
)
def test_a_template_that_cannot_work_is_refused_by_name(name: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.md").write_text(text)
    with pytest.raises(ConfigError, match=says) as refused:
        Templates(tmp_path)
    assert f"{name}.md" in str(refused.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        Templates(tmp_path / "none")


def test_every_template_is_shipped_and_no_other_file() -> None:
    assert {file.stem for file in SHIPPED.iterdir()} == set(FIELDS)


# ---------------------------------------------------------------- settings


def test_models_and_their_weights() -> None:
    assert read_models("openai/gpt-5") == (Weighted("openai/gpt-5"),)
    assert read_models("openai/gpt-5=2, a/b:1") == (Weighted("openai/gpt-5", 2.0), Weighted("a/b:1"))
    assert read_models("x/y=0.5")[0].provider == "x"
    for wrong in ("", "a/b=0", "a/b=x", "a/b,a/b"):
        with pytest.raises(UsageError):
            read_models(wrong)


def test_settings_of_ours_and_parameters_of_the_model() -> None:
    settings, passed_on = read_settings({"repairs": 1, "model.temperature": 0.7})
    assert (settings.repairs, passed_on) == (1, {"temperature": 0.7})
    for wrong in ({"repairs": -1}, {"repair": 1}, {"most_tokens": 1}, {"api_base": "http://me:secret@host/v1"}):
        with pytest.raises(UsageError) as refused:
            read_settings(wrong)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("base", "model", "local"),
    [
        ("http://127.0.0.1:8000/v1", "openai/x", True),
        ("http://localhost:8000/v1", "openai/x", True),
        ("http://[::1]:8000/v1", "openai/x", True),
        ("http://10.1.2.3/v1", "openai/x", True),
        ("https://8.8.8.8/v1", "openai/x", False),
        ("https://localhost.example.org/v1", "openai/x", False),
        ("", "openai/x", False),
        ("", "ollama/x", True),
        ("https://models.example/v1", "ollama/x", False),
    ],
)
def test_what_counts_as_local(base: str, model: str, local: bool) -> None:
    check_base(base)
    assert is_local(LlmSettings(api_base=base), Weighted(model)) is local
    assert is_local(LlmSettings(api_base=base, local=True), Weighted(model))


def test_no_tokenizer_makes_more_tokens_than_the_bound() -> None:
    for text in (PARENT, "ü" * 100, "", "\x00\x01" * 50):
        assert count(text) <= at_most(text)
