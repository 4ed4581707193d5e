"""Conversations with a scripted model: repairs, refusals, budgets, failures, and what stands in the journal of them."""

from __future__ import annotations

import asyncio

import pytest
from replies import CODE, PARENT
from scripted import MODEL, Flat, Table, candidate, request, said, selected, state_of, table, version

from kbtui import clock
from kbtui.errors import ProviderFailure, UnknownPriceError
from kbtui.generate.generator import BudgetSpent, Exhausted, Unusable, Written
from kbtui.generate.llm.chat import Answer, Failure, Question
from kbtui.generate.llm.settings import Weighted
from kbtui.state import events as e
from kbtui.state.records import Compilation, Message, Verification
from kbtui.state.run_state import RunState


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping takes no time and moves the clock; the waits are kept."""
    now = [1000.0]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr("kbtui.generate.llm.asking.asyncio.sleep", sleep)
    return waits


async def write(at: Table, pull: int = 1) -> Written | Exhausted | Unusable:
    return await at.generator.write(request(at.parent, pull))


async def test_a_version_with_all_that_is_known_of_it() -> None:
    at = await table(said(f"Title: eight warps\n```python\n{CODE}```"))
    written = await write(at)
    assert isinstance(written, Written)
    assert (written.move, written.model, written.cost_usd, written.tokens) == ("eight warps", MODEL, 0.01, 1500)
    asked, replied, read = at.desk.events
    assert isinstance(asked, e.Asked)
    assert isinstance(replied, e.Replied)
    assert isinstance(read, e.ReplyRead)
    assert (asked.call, asked.asking, asked.messages[0].role) == (1, "write", "system")
    assert asked.prompt_digest == replied.prompt_digest
    assert asked.reserved_usd > 0.01
    assert (replied.text, replied.cost_usd, replied.counted_by) == (at.chat.script[0].text, 0.01, "provider")  # type: ignore[union-attr]
    assert read.refused == ""
    assert at.desk.state.reserved_usd == 0
    assert at.desk.state.cost_usd == 0.01


async def test_an_unusable_reply_gets_one_more_request_that_says_why() -> None:
    at = await table(said("I would use more warps."), said(version(4)))
    written = await write(at)
    assert isinstance(written, Written)
    assert written.cost_usd == 0.02
    first, second = at.chat.asked
    assert second.messages[:2] == first.messages
    assert second.messages[2] == Message("assistant", "I would use more warps.")
    assert "holds no Python code" in second.messages[3].text
    assert second.asking == "rewrite"
    assert [event.refused for event in at.events(e.ReplyRead)] == ["no code", ""]  # type: ignore[attr-defined]


async def test_two_unusable_replies_end_it() -> None:
    at = await table(said("no"), said("no"), said(version(4)))
    ended = await write(at)
    assert isinstance(ended, Unusable)
    assert "no code" in ended.reason
    assert len(at.chat.asked) == 2
    assert at.desk.state.pulls[1].refused == 2


async def test_three_duplicates_rest_the_arm() -> None:
    at = await table(said(f"```python\n{PARENT}```"))
    ended = await write(at)
    assert isinstance(ended, Exhausted)
    assert ended.duplicates == 3
    assert len(at.chat.asked) == 3


async def test_a_version_of_the_run_is_a_duplicate_and_named() -> None:
    state = state_of(candidate(0), candidate(7, CODE, parent_id=0))
    at = await table(said(f"```python\n{CODE}```"), said(version(2)), state=state)
    written = await write(at)
    assert isinstance(written, Written)
    assert "#7" in at.chat.asked[1].messages[-1].text


async def test_a_reply_that_thinking_ate_gets_twice_the_room_once() -> None:
    cut = said("", finish="length", reasoning="hm")
    at = await table(cut, said(version(4)))
    assert isinstance(await write(at), Written)
    assert [question.most_tokens for question in at.chat.asked] == [16384, 32768]
    at = await table(cut)
    ended = await write(at)
    assert isinstance(ended, Unusable)
    assert "cut off" in ended.reason


async def test_titles_are_unique_among_the_children_of_a_parent() -> None:
    state = state_of(candidate(0), candidate(1, CODE, parent_id=0, move="warps"))
    at = await table(said(version(2, "warps")), state=state)
    written = await write(at)
    assert isinstance(written, Written)
    assert written.move == "warps (2)"


# ---------------------------------------------------------------- repairs


def broken(number: int = 1) -> RunState:
    state = state_of(candidate(0), candidate(number, CODE, parent_id=0, pull=1, strategy="tiling", model=MODEL))
    state.candidates[number].compilation = Compilation(ok=True)
    state.candidates[number].verification = Verification(
        verdict="wrong",
        stage="boundary",
        reason="the output differs",
        detail="max |y - ref| = 0.2",
        error=0.2,
        allowed=1e-5,
        worst_case="rows=1, cols=17",
        first_wrong_index=(0, 16),
    )
    return state


async def test_a_repair_shows_the_version_and_everything_that_went_wrong() -> None:
    state = broken()
    at = await table(said(f"Cause: the mask was off by one\n{version(2)}"), state=state)
    written = await at.generator.repair(request(at.parent), state.candidates[1])
    assert isinstance(written, Written)
    assert written.reflection == "the mask was off by one"
    asked = at.chat.asked[0]
    assert asked.asking == "repair"
    assert CODE.strip() in asked.messages[2].text
    for piece in ("wrong", "boundary", "rows=1, cols=17", "[0, 16]", "0.2", "1e-05", "max |y - ref|"):
        assert piece in asked.messages[3].text
    assert at.events(e.Asked)[0].about == 1  # type: ignore[attr-defined]


async def test_a_compiler_s_message_is_sent_with_its_end() -> None:
    state = broken()
    state.candidates[1].verification = None
    state.candidates[1].compilation = Compilation(
        ok=False, reason="bad types", detail="x" * 20_000 + "\nerror at line 9"
    )
    at = await table(said(version(2)), state=state)
    await at.generator.repair(request(at.parent), state.candidates[1])
    text = at.chat.asked[0].messages[3].text
    assert "error at line 9" in text
    assert len(text) < 10_000


async def test_a_repair_is_asked_of_the_model_that_wrote_it() -> None:
    models = (Weighted("a/x", 1000.0), Weighted(MODEL))
    state = broken()
    at = await table(said(version(2)), state=state, models=models)
    await at.generator.repair(request(at.parent), state.candidates[1])
    assert at.chat.asked[0].model == MODEL


# ---------------------------------------------------------------- what was paid for is used first


async def test_replies_in_the_journal_are_used_before_anything_is_asked() -> None:
    before = await table(said("no code here"), said(version(4)))
    first = await write(before)
    for kept in range(1, len(before.desk.events) + 1):
        state = state_of(candidate(0))
        state.apply_all(before.desk.events[:kept])
        state.apply(e.RunContinued(pid=2))
        paid = sum(isinstance(event, e.Replied) for event in before.desk.events[:kept])
        at = await table(*before.chat.script[paid:], state=state)
        again = await write(at)
        assert isinstance(again, Written)
        assert isinstance(first, Written)
        assert (again.source, again.move, again.cost_usd) == (first.source, first.move, first.cost_usd)
        assert len(at.chat.asked) == 2 - paid
        assert state.cost_usd == pytest.approx(0.02)
        calls = [event.call for event in (*before.desk.events[:kept], *at.desk.events) if isinstance(event, e.Asked)]
        assert len(set(calls)) == len(calls), "a request that a crash cut off keeps its number"


async def test_replies_to_the_first_question_are_none_to_a_repair() -> None:
    at = await table(said(version(4)), said(version(2)), state=broken())
    await write(at)
    written = await at.generator.repair(request(at.parent), at.desk.state.candidates[1])
    assert isinstance(written, Written)
    assert len(at.chat.asked) == 2


# ---------------------------------------------------------------- money


async def test_an_unknown_price_is_refused_with_the_ways_out() -> None:
    with pytest.raises(UnknownPriceError, match=r"--budget-tokens N, or --allow-unknown-price"):
        await table(said(""), tariff=Flat(prompt=None))
    assert (await table(said(version(4)), tariff=Flat(prompt=None), allow_unknown_price=True)).generator.name == "llm"
    state = state_of(candidate(0))
    state.budget_tokens = 100_000
    at = await table(said(version(4), cost_usd=None), tariff=Flat(prompt=None), state=state)
    assert isinstance(await write(at), Written)
    assert at.events(e.Replied)[0].cost_usd is None  # type: ignore[attr-defined]


async def test_a_request_that_the_budget_cannot_pay_is_not_sent() -> None:
    state = state_of(candidate(0))
    state.budget_usd = 0.02
    at = await table(said(version(4)), state=state)
    with pytest.raises(BudgetSpent, match=r"\$0\.0200 of the budget are left") as caught:
        await write(at)
    assert caught.value.budget == "budget"
    assert at.chat.asked == []
    assert at.desk.events == []


async def test_a_reply_is_cut_to_what_the_budget_pays_for() -> None:
    state = state_of(candidate(0))
    state.budget_usd = 0.06
    at = await table(said(version(4)), state=state)
    await write(at)
    asked = at.chat.asked[0]
    assert 2048 <= asked.most_tokens < 16384
    reserved = at.events(e.Asked)[0].reserved_usd  # type: ignore[attr-defined]
    assert 0.0599 < reserved <= 0.06


async def test_a_token_budget_bounds_a_reply_too() -> None:
    state = state_of(candidate(0))
    state.budget_tokens = 9000
    at = await table(said(version(4)), state=state)
    await write(at)
    assert at.events(e.Asked)[0].reserved_tokens == 9000  # type: ignore[attr-defined]
    state = state_of(candidate(0))
    state.budget_tokens = 3000
    at = await table(said(version(4)), state=state)
    with pytest.raises(BudgetSpent) as caught:
        await write(at)
    assert caught.value.budget == "tokens"


async def test_a_request_waits_for_what_others_in_flight_give_back() -> None:
    state = state_of(candidate(0), pulls=2)
    state.budget_usd = 0.08
    go = asyncio.Event()
    at = await table(said(version(4)), state=state, parallel=2, most_tokens=6000)

    class Slow:
        async def answer(self, question: Question, on_text: object) -> Answer:
            await go.wait()
            return said(version(2 if question.pull == 1 else 4))

    at.generator._asking().chat = Slow()  # type: ignore[assignment]
    first = asyncio.create_task(write(at, 1))
    await asyncio.sleep(0)
    second = asyncio.create_task(write(at, 2))
    await asyncio.sleep(0.01)
    assert [event.pull for event in at.events(e.Asked)] == [1]  # type: ignore[attr-defined]
    go.set()
    assert isinstance(await first, Written)
    assert isinstance(await second, Written)
    assert state.cost_usd <= 0.08


async def test_a_reply_without_counts_is_counted_by_the_tokenizer() -> None:
    at = await table(said(version(4), prompt_tokens=None, completion_tokens=None, cost_usd=None))
    written = await write(at)
    assert isinstance(written, Written)
    replied = at.events(e.Replied)[0]
    assert replied.counted_by == "tokenizer"  # type: ignore[attr-defined]
    assert written.tokens > 200
    assert written.cost_usd > 0.001


# ---------------------------------------------------------------- failures of the provider


def rate_limit(wait_s: float | None = None) -> Failure:
    return Failure("rate limit", "429, too many requests: slow", status=429, wait_s=wait_s)


async def test_what_passes_is_waited_for_in_sight(no_waiting: list[float]) -> None:
    at = await table(rate_limit(3.0), Failure("overloaded", "500"), said(version(4)), deadline_s=60.0)
    assert isinstance(await write(at), Written)
    assert no_waiting[0] == pytest.approx(3.0)
    assert 1.0 <= no_waiting[-1] <= 2.0
    assert len(at.events(e.Asked)) == 1, "an attempt that cost nothing is no request of its own"
    notes = [event.text for event in at.events(e.Noted)]  # type: ignore[attr-defined]
    assert "waiting 3 s (nothing charged to the arm)" in notes[0]
    assert any(isinstance(event, e.Progressed) and event.stage == "waiting" for event in at.desk.shown)


async def test_the_deadline_is_total(no_waiting: list[float]) -> None:
    at = await table(rate_limit(), deadline_s=60.0)
    with pytest.raises(ProviderFailure, match="429"):
        await write(at)
    assert sum(no_waiting) <= 60
    assert len(at.chat.asked) > 3
    failed = at.events(e.AskFailed)[0]
    assert (failed.kind, failed.cost_usd) == ("rate limit", 0.0)  # type: ignore[attr-defined]
    assert at.desk.state.reserved_usd == 0


async def test_a_wait_beyond_the_deadline_is_not_begun(no_waiting: list[float]) -> None:
    at = await table(rate_limit(3600.0), deadline_s=60.0)
    with pytest.raises(ProviderFailure):
        await write(at)
    assert no_waiting == []


@pytest.mark.parametrize("kind", ["key", "forbidden", "no model", "quota", "filtered", "refused", "parameter"])
async def test_what_does_not_pass_is_not_tried_again(kind: str, no_waiting: list[float]) -> None:
    at = await table(Failure(kind, "no"))  # type: ignore[arg-type]
    with pytest.raises(ProviderFailure):
        await write(at)
    assert len(at.chat.asked) == 1
    assert no_waiting == []


async def test_a_dropped_stream_is_charged_for_and_asked_again_as_a_new_request(no_waiting: list[float]) -> None:
    at = await table(Failure("dropped", "cut", partial="word " * 200), said(version(4)))
    written = await write(at)
    assert isinstance(written, Written)
    assert [event.call for event in at.events(e.Asked)] == [1, 2]  # type: ignore[attr-defined]
    failed = at.events(e.AskFailed)[0]
    assert failed.tokens > 200  # type: ignore[attr-defined]
    assert failed.cost_usd > 0.002  # type: ignore[attr-defined]
    assert at.desk.state.cost_usd == pytest.approx(failed.cost_usd + 0.01)  # type: ignore[attr-defined]


async def test_empty_replies_are_paid_for_and_given_up_after_three(no_waiting: list[float]) -> None:
    at = await table(Failure("empty", "empty", usage=(1000, 0)), deadline_s=600.0)
    with pytest.raises(ProviderFailure, match="empty"):
        await write(at)
    assert len(at.chat.asked) == 3
    assert at.desk.state.cost_usd == pytest.approx(0.003)


async def test_a_refused_parameter_is_left_out_from_then_on_and_shown() -> None:
    refused = Failure("parameter", "no temperature", parameter="temperature")
    at = await table(refused, said(version(4)), passed_on={"temperature": 0.7, "top_p": 0.9})
    assert isinstance(await write(at), Written)
    assert [question.parameters for question in at.chat.asked] == [{"temperature": 0.7, "top_p": 0.9}, {"top_p": 0.9}]
    assert at.desk.state.dropped_parameters == {MODEL: {"temperature"}}
    assert "temperature" in at.desk.state.log[-1].text
    at.desk.state.apply(selected(2))
    at.chat.script = [said(version(2))]
    await write(at, 2)
    assert at.chat.asked[-1].parameters == {"top_p": 0.9}
    assert len(at.events(e.ParameterDropped)) == 1


async def test_a_prompt_that_is_too_long_is_cut_once() -> None:
    old = [candidate(n, PARENT + f"# {n}\n", parent_id=0, pull=1, move="word " * 60) for n in range(1, 500)]
    state = state_of(candidate(0), *old)
    at = await table(Failure("too long", "context"), said(version(4)), state=state, prompt_tokens=6000)
    assert isinstance(await write(at), Written)
    long, short = (sum(len(message.text) for message in question.messages) for question in at.chat.asked)
    assert short < 0.7 * long
    assert all(PARENT.strip() in question.messages[1].text for question in at.chat.asked)
    at = await table(Failure("too long", "context"))
    with pytest.raises(ProviderFailure):
        await write(at)
    assert len(at.chat.asked) == 2


async def test_cancelling_charges_what_had_arrived() -> None:
    at = await table(said(version(4)))

    class Endless:
        async def answer(self, question: Question, on_text: object) -> Answer:
            on_text("word " * 100, False)  # type: ignore[operator]
            await asyncio.sleep(60)
            raise AssertionError

    at.generator._asking().chat = Endless()  # type: ignore[assignment]
    task = asyncio.create_task(write(at))
    await asyncio.sleep(0.01)
    assert at.desk.state.reply_deltas[1].characters == 500
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    failed = at.events(e.AskFailed)[0]
    assert failed.kind == "cancelled"  # type: ignore[attr-defined]
    assert failed.tokens > 100  # type: ignore[attr-defined]
    assert at.desk.state.reserved_usd == 0


# ---------------------------------------------------------------- several models


async def test_weights_decide_and_the_seed_fixes_the_choice() -> None:
    models = (Weighted("a/x", 3.0), Weighted("b/y", 1.0))
    chosen = []
    for pull in range(1, 201):
        at = await table(said(version(4)), models=models, state=state_of(candidate(0), pulls=pull))
        await write(at, pull)
        chosen.append(at.chat.asked[0].model)
    assert 0.65 < chosen.count("a/x") / 200 < 0.85
    at = await table(said(version(4)), models=models, state=state_of(candidate(0), pulls=200))
    await write(at, 200)
    assert at.chat.asked[0].model == chosen[-1]


async def test_by_cost_the_model_with_more_gain_per_dollar_is_asked_more() -> None:
    models = (Weighted("a/dear"), Weighted("b/cheap"))

    class Prices(Flat):
        def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float | None:
            return (prompt + completion) * (1e-5 if name == "a/dear" else 1e-6)

    chosen = []
    for pull in range(1, 101):
        state = state_of(candidate(0), pulls=pull)
        at = await table(said(version(4)), models=models, state=state, tariff=Prices(), choice="cost")
        await write(at, pull)
        chosen.append(at.chat.asked[0].model)
    assert 0.8 < chosen.count("b/cheap") / 100 < 1.0
