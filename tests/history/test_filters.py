"""The filter language over runs."""

from __future__ import annotations

import pytest

from kbtui.history.filters import FIELDS, FilterError, parse
from kbtui.history.runs import RunEntry

NOW = 1_800_000_000.0
DAY = 86400.0


def entry(**fields: object) -> RunEntry:
    values: dict[str, object] = {
        "run_id": "softmax-1", "status": "stopped", "problem": "softmax", "device": "NVIDIA H200", "timing": "measured",
        "generator": "llm", "model": "openai/gpt-x", "policy": "ucb", "last_t": NOW - 2 * DAY, "pulls": 20,
        "candidates": 25, "correct": 18, "best_ratio": 1.42, "best_verdict": "faster", "cost_usd": 0.38,
        "stopped_by": "iterations", "tags": ("ship it", "good"),
    }  # fmt: skip
    return RunEntry(**(values | fields))  # type: ignore[arg-type]


MEASURED = entry()
MODELLED = entry(
    run_id="rope-7", problem="rope", device="cpu", timing="modelled", best_ratio=None, best_estimate=1.9,
    best_verdict="not worse", generator="rewrite", model="", cost_usd=0.0, tags=(), status="live", last_t=NOW - 60,
)  # fmt: skip
UNREADABLE = RunEntry(run_id="bad", status="crashed", error="line 1 is no event")


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", "abc"),
        ("problem:softmax speedup>1.2 -status:failed", "a"),
        ("softmax", "a"),
        ("SOFTMAX h200", "a"),
        ("-softmax", "bc"),
        ("problem=soft", ""),
        ("problem:soft", "a"),
        ("problem:rope,softmax", "ab"),
        ("status:live", "b"),
        ("status:crashed,live", "bc"),
        ("status:failed", "c"),
        ("speedup>1.42", ""),
        ("speedup>=1.42x", "a"),
        ("speedup=1.42", "a"),
        ("speedup<2", "a"),
        ("-speedup>1.2", "bc"),
        ("estimate>1.2", "b"),
        ("estimate<=1.9", "b"),
        ("cost<$0.1", "bc"),
        ("cost>=0.38", "a"),
        ("age<7d", "ab"),
        ("age<1h", "b"),
        ("age>36h", "a"),
        ("pulls>10 -rope", "a"),
        ("pulls:0", "c"),
        ("tag:ship", "a"),
        ('tag:"ship it"', "a"),
        ('"ship it"', "a"),
        ("tag=ship", ""),
        ("model:gpt generator:llm policy:ucb device:h200", "a"),
        ("timing:modelled", "b"),
        ("verdict:faster", "a"),
        ('-"a:b"', "abc"),
    ],
)
def test_what_fits(text: str, fits: str) -> None:
    runs = {"a": MEASURED, "b": MODELLED, "c": UNREADABLE}
    assert "".join(name for name, run in runs.items() if parse(text).fits(run, NOW)) == fits


def test_an_estimate_never_satisfies_speedup_whatever_the_number() -> None:
    for operator in (">", ">=", "<", "<=", "=", ":"):
        assert not parse(f"speedup{operator}1.9").fits(MODELLED, NOW)
        assert not parse(f"estimate{operator}1.42").fits(MEASURED, NOW)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour:red", "colour:red: no field is called colour; known are status, "),
        ("sped>1", "did you mean speedup?"),
        ("speedup>fast", "speedup>fast: speedup needs a number, such as speedup>1.2"),
        ("speedup>$2", "speedup needs a number"),
        ("age<7", "age needs an age with its unit (s, min, m, h, d, w), such as age<7d"),
        ("age<7y", "age needs an age with its unit"),
        ("problem>a", "problem is text and has no order; write problem:value"),
        ("status:lively", "no state is called lively; known are live, paused, stale, crashed, stopped, failed"),
        ("problem:", "nothing follows :; write a value, such as problem:softmax"),
        ('problem:""', "nothing follows :"),
        ("softmax -", "nothing follows the minus"),
        ('"soft max', "the quote is not closed"),
        ('""', "no word between the quotes"),
        ("cost<1d", "cost needs a number"),
        ("status:\x1b]52", "no state is called ␛]52"),
    ],
)
def test_what_means_nothing_is_named(text: str, said: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse(text)
    assert said in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert raised.value.exit_status == 2


def test_every_field_can_be_asked_for() -> None:
    numbers = {"speedup", "estimate", "cost", "pulls", "candidates", "correct"}
    for field in FIELDS:
        value = "7d" if field == "age" else "1" if field in numbers else "live"
        parse(f"{field}:{value}").fits(UNREADABLE, NOW)
