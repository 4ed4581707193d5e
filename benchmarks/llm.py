"""Models: are requests kept in flight at the limit, what does a request cost beside the model, does the cap hold?

    python benchmarks/llm.py [RUNS]

Three tables: requests in flight over a run's time against a local server that answers after a fixed time, for --parallel 1, 4, 8;
the time that kbtui and litellm add to a request; and the most that any of RUNS (1,000) simulated runs spent of its budget, with
random prices, replies, failures and crashes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from kbtui.errors import ProviderFailure
from kbtui.generate.desk import LooseDesk
from kbtui.generate.generator import BudgetSpent, Request
from kbtui.generate.llm import patience
from kbtui.generate.llm.chat import Answer, Chat, Failure, OnText, Question
from kbtui.generate.llm.generator import Backend, LlmGenerator, preview_request
from kbtui.generate.llm.provider import open_backend
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.state import events as e
from kbtui.state.records import DeviceInfo, ProblemInfo
from kbtui.state.run_state import RunState

TESTS = Path(__file__).resolve().parents[1] / "tests" / "generate" / "llm"
ANSWER_S = 3.0
PROBLEM = ProblemInfo(name="p", path="/nowhere", entry="f", digest="0" * 64, cases=())
DEVICE = DeviceInfo(lane="cpu", kind="cpu", name="cpu", target="sm_90")
SOURCE = "import triton\n\n\ndef f(x):\n    return x\n"


def source(number: int) -> str:
    return f"Title: version {number}\n```python\n{SOURCE}\n\nX = {number}\n```\n"


def request(pull: int) -> Request:
    import msgspec

    return msgspec.structs.replace(preview_request(PROBLEM, DEVICE, SOURCE), pull=pull, seed=(0, pull, 3))


def begin(state: RunState, pull: int) -> None:
    state.apply(e.Selected(pull=pull, cluster=0, strategy="tiling", parent_id=0, scores=()))


def chat_server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_server", TESTS / "chat_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chat_server"] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- requests in flight


async def in_flight(server: ModuleType, parallel: int, pulls: int) -> tuple[float, float, float]:
    """(mean requests in flight between the first and the last begin, most, seconds) of so many pulls kept `parallel` at a
    time, as the engine keeps them."""
    numbers = iter(range(1, 10_000))
    answered = server.ChatServer(lambda _: server.Answer(source(next(numbers)), delay_s=ANSWER_S))
    with answered as at:
        generator = LlmGenerator("llm", LlmSettings(api_base=at.base), (Weighted("openai/x"),), {}, open_backend)
        await generator.prepare(parallel)
        desk = LooseDesk()
        generator.attach(desk)
        places = asyncio.Semaphore(parallel)

        async def pull(number: int) -> None:
            async with places:
                begin(desk.state, number)
                await generator.write(request(number))

        await pull(pulls + 1)  # the first request opens connections
        at.flight.clear()
        began = time.monotonic()
        await asyncio.gather(*(pull(number) for number in range(1, pulls + 1)))
        took = time.monotonic() - began
        # The end, where fewer requests are left than places, is no evidence.
        begun = [moment for (moment, now), (_, before) in zip(at.flight[1:], at.flight, strict=False) if now > before]
        return _mean(at.flight, begun[-1]), at.most_in_flight, took


def _mean(flight: list[tuple[float, int]], until: float) -> float:
    inside = [(moment, now) for moment, now in flight if moment <= until]
    spans = [(after[0] - at[0], at[1]) for at, after in itertools.pairwise(inside)]
    return sum(span * now for span, now in spans) / sum(span for span, _ in spans)


# ---------------------------------------------------------------- overhead


async def overhead(server: ModuleType, calls: int) -> dict[str, tuple[float, float]]:
    """Milliseconds (median, 95th percentile) of a request to a server that answers at once: through kbtui and litellm, and
    what kbtui does of it (prompt, budget, journal events, reading the reply), with a model in memory."""
    numbers = iter(range(1, 1_000_000))
    with server.ChatServer(lambda _: server.Answer(source(next(numbers)))) as at:
        through = await _timed(calls, LlmSettings(api_base=at.base), open_backend)

    async def in_memory(_: LlmSettings, __: tuple[Weighted, ...]) -> Backend:
        return Backend(chat=AtOnce(), tariff=Prices(0.0, 0.0), longest_reply=lambda _: None, versions={})

    alone = await _timed(calls, LlmSettings(), in_memory)
    return {"with litellm and HTTP": through, "kbtui's part": alone}


async def _timed(calls: int, settings: LlmSettings, backend: object) -> tuple[float, float]:
    generator = LlmGenerator("llm", settings, (Weighted("openai/x"),), {}, backend)  # type: ignore[arg-type]
    await generator.prepare(1)
    desk = LooseDesk()
    generator.attach(desk)
    took = []
    for number in range(1, calls + 6):
        begin(desk.state, number)
        began = time.perf_counter()
        await generator.write(request(number))
        took.append(1000 * (time.perf_counter() - began))
    kept = sorted(took[5:])  # the first ones open connections
    return statistics.median(kept), kept[int(0.95 * len(kept))]


class AtOnce(Chat):
    def __init__(self) -> None:
        self._numbers = iter(range(1, 1_000_000))

    async def answer(self, question: Question, on_text: OnText) -> Answer:  # noqa: ARG002
        return Answer(text=source(next(self._numbers)), prompt_tokens=500, completion_tokens=100, cost_usd=0.0)


# ---------------------------------------------------------------- the cap


@dataclass
class Prices:
    prompt: float
    completion: float

    def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float:  # noqa: ARG002
        return prompt * self.prompt + completion * self.completion


@dataclass
class Gambler(Chat):
    """A provider whose replies are as long as they may get now and then, and which drops, refuses and empties some.

    `billed` is what it charges: the truth that the cap is held against."""

    draw: random.Random
    prices: Prices
    billed: float = 0.0
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    async def answer(self, question: Question, on_text: OnText) -> Answer:  # noqa: ARG002
        for _ in range(self.draw.randrange(4)):
            await asyncio.sleep(0)
        prompt = sum(len(message.text) for message in question.messages) // self.draw.choice((2, 3, 4))
        kind = self.draw.random()
        if kind < 0.05:
            raise Failure("rate limit", "429", wait_s=0.0)
        if kind < 0.10:
            text = "word " * self.draw.randrange(1, 300)
            self.billed += self.prices.cost("", prompt, len(text) // 5)
            raise Failure("dropped", "cut", partial=text, usage=(prompt, len(text) // 5))
        completion = question.most_tokens if kind < 0.4 else self.draw.randrange(50, question.most_tokens + 1)
        cost = self.prices.cost("", prompt, completion)
        self.billed += cost
        if kind < 0.15:
            raise Failure("empty", "empty", usage=(prompt, completion))
        text = "no code" if kind < 0.25 else source(next(self.numbers))
        return Answer(text=text, prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)


async def simulate(seed: int) -> tuple[float, float, float]:
    """(budget, billed, counted) of one run with up to 8 requests in flight, ended by its budget or after 40 pulls. In a third
    of the runs the process is killed once, with requests in flight, and goes on from its events."""
    draw = random.Random(seed)
    parallel = draw.choice((1, 2, 4, 8))
    budget = draw.choice((0.02, 0.1, 0.5, 1.0, 3.0))
    prices = Prices(draw.choice((0.1, 1.25, 15.0)) * 1e-6, draw.choice((0.4, 10.0, 75.0)) * 1e-6)
    provider = Gambler(draw, prices)
    state = RunState()
    state.budget_usd = budget
    killed = draw.randrange(2, 12) if draw.random() < 1 / 3 else None
    pulls = iter(range(1, 41))
    while True:
        if not await _process(provider, state, parallel, pulls, killed):
            break
        killed = None
        state.apply(e.RunContinued(pid=2))
    return budget, provider.billed, state.cost_usd


async def _process(provider: Gambler, state: RunState, parallel: int, pulls: Iterator[int], killed: int | None) -> bool:
    """One process of a run. True when it was killed."""

    async def backend(_: LlmSettings, __: tuple[Weighted, ...]) -> Backend:
        return Backend(chat=provider, tariff=provider.prices, longest_reply=lambda _: None, versions={})

    generator = LlmGenerator("llm", LlmSettings(most_tokens=8192), (Weighted("openai/x"),), {}, backend)
    await generator.prepare(parallel)
    desk = Killable(state)
    generator.attach(desk)
    generator._asking().jitter = lambda: 0.0

    async def place() -> None:
        for pull in pulls:
            begin(state, pull)
            try:
                await generator.write(request(pull))
            except BudgetSpent:
                return
            except ProviderFailure:
                continue

    places = [asyncio.create_task(place()) for _ in range(parallel)]
    if killed is None:
        await asyncio.gather(*places)
        return False
    while sum(isinstance(event, e.Asked) for event in desk.events) < killed and not all(p.done() for p in places):
        await asyncio.sleep(0)
    desk.dead = True  # nothing after this is written, as after a SIGKILL
    for one in places:
        one.cancel()
    await asyncio.gather(*places, return_exceptions=True)
    return True


class Killable(LooseDesk):
    dead = False

    def write(self, event: e.Event) -> None:  # type: ignore[override]
        if not self.dead:
            super().write(event)  # type: ignore[arg-type]


async def caps(runs: int) -> tuple[int, float, int]:
    """(runs over their cap, the largest share of a budget that was billed, runs that came near it)"""
    patience.FIRST_WAIT_S = 0.0  # simulated time does not pass
    over, largest, near = 0, 0.0, 0
    for seed in range(runs):
        budget, billed, _ = await simulate(seed)
        over += billed > budget * (1 + 1e-9)
        near += billed > 0.5 * budget
        largest = max(largest, billed / budget)
    return over, largest, near


async def main(runs: int) -> None:
    server = chat_server()
    print(
        f"{platform.node() and platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}\n"
    )
    print(f"requests in flight, answers after {ANSWER_S:g} s\n")
    print(f"{'parallel':>9} {'mean':>7} {'most':>5} {'pulls':>6} {'seconds':>8} {'at best':>8}")
    for parallel in (1, 4, 8):
        pulls = 4 * parallel
        mean, most, took = await in_flight(server, parallel, pulls)
        print(f"{parallel:>9} {mean:>7.2f} {most:>5} {pulls:>6} {took:>8.2f} {ANSWER_S * pulls / parallel:>8.2f}")
    print("\ntime added to a request, ms\n")
    print(f"{'':24} {'median':>8} {'95 %':>8}")
    for name, (median, high) in (await overhead(server, 200)).items():
        print(f"{name:24} {median:>8.2f} {high:>8.2f}")
    over, largest, near = await caps(runs)
    print(f"\n{runs} simulated runs: {over} over their cap; the most that was billed of a budget: {largest:.1%};")
    print(f"{near} of them used more than half of it")
    if over:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
