"""A model in memory: what it says follows from a script, without litellm, without time passing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from replies import CODE, ENTRY, PARENT

from kbtui.generate.desk import LooseDesk
from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import Request
from kbtui.generate.llm.chat import Answer, Chat, Failure, OnText, Question
from kbtui.generate.llm.generator import Backend, LlmGenerator
from kbtui.generate.llm.settings import LlmSettings, Weighted
from kbtui.state import events as e
from kbtui.state.records import CaseInfo, DeviceInfo, ProblemInfo, Scalar
from kbtui.state.run_state import Candidate, RunState

MODEL = "openai/scripted"
PROBLEM = ProblemInfo(
    name="softmax",
    path="/nowhere",
    entry=ENTRY,
    digest="0" * 64,
    cases=(CaseInfo(name="r=8", fields={"rows": 8, "dtype": "float32"}),),
    summary="softmax over the last dimension",
)
DEVICE = DeviceInfo(lane="cuda:0", kind="cuda", name="NVIDIA H200", target="sm_90", shared_limit_bytes=232448)
Said = Answer | Failure | Callable[[Question], Answer]


def said(text: str, **changes: object) -> Answer:
    fields: dict[str, object] = {"prompt_tokens": 1000, "completion_tokens": 500, "cost_usd": 0.01, **changes}
    return Answer(text=text, **fields)  # type: ignore[arg-type]


def version(warps: int, title: str = "") -> str:
    """A reply that holds a version of its own."""
    code = CODE.replace("num_warps=8", f"num_warps={warps}")
    return f"Title: {title or f'{warps} warps'}\n```python\n{code}```\n"


@dataclass
class ScriptedChat(Chat):
    """Says one thing after the other; the last one again and again."""

    script: Sequence[Said]
    asked: list[Question] = field(default_factory=list)

    async def answer(self, question: Question, on_text: OnText) -> Answer:
        self.asked.append(question)
        now = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(now, Failure):
            raise now
        answer = now if isinstance(now, Answer) else now(question)
        on_text(answer.text, False)
        return answer


@dataclass(frozen=True)
class Flat:
    """So much for every token of a prompt and a reply; None for an unknown price."""

    prompt: float | None = 1e-6
    completion: float = 1e-5

    def cost(self, name: str, prompt: int, completion: int, cached: int = 0) -> float | None:
        return None if self.prompt is None else prompt * self.prompt + completion * self.completion


def candidate(number: int, source: str = PARENT, **fields: object) -> Candidate:
    made: dict[str, object] = {
        "parent_id": None, "pull": 0, "strategy": None, "generator": "llm", "move": f"move {number}",
        "source_digest": "", "syntax_digest": syntax_digest(source), **fields,
    }  # fmt: skip
    return Candidate(id=number, source=source, **made)  # type: ignore[arg-type]


def selected(pull: int) -> e.Selected:
    return e.Selected(pull=pull, cluster=0, strategy="tiling", parent_id=0, scores=())


def state_of(*candidates: Candidate, pulls: int = 1) -> RunState:
    """A state with these candidates and so many pulls begun."""
    state = RunState()
    for one in candidates:
        state.candidates[one.id] = one
        state.digests.setdefault(one.syntax_digest, one.id)
        if one.parent_id is not None:
            state.candidates[one.parent_id].children.append(one.id)
    for number in range(1, pulls + 1):
        state.apply(selected(number))
    return state


def request(parent: Candidate, pull: int = 1, strategy: str = "tiling") -> Request:
    return Request(
        problem=PROBLEM,
        device=DEVICE,
        parent=parent,
        strategy=strategy,  # type: ignore[arg-type]
        pull=pull,
        seed=(0, pull, 3),
        seen=frozenset(),
        tried=frozenset(),
    )


@dataclass
class Table:
    """A generator with its desk and its model, ready to be asked."""

    generator: LlmGenerator
    desk: LooseDesk
    chat: ScriptedChat
    parent: Candidate

    def events(self, kind: type[e.Event]) -> list[e.Event]:
        return [event for event in self.desk.events if isinstance(event, kind)]


async def table(
    *script: Said,
    state: RunState | None = None,
    tariff: Flat | None = None,
    models: tuple[Weighted, ...] = (Weighted(MODEL),),
    passed_on: dict[str, Scalar] | None = None,
    parallel: int = 1,
    **settings: object,
) -> Table:
    """What asks a scripted model. `settings` are LlmSettings' fields."""
    parent = candidate(0)
    state = state if state is not None else state_of(parent)
    chat = ScriptedChat(script)
    backend = Backend(chat=chat, tariff=tariff or Flat(), longest_reply=lambda _: None, versions={"litellm": "0"})

    async def open_backend(_: LlmSettings, __: tuple[Weighted, ...]) -> Backend:
        return backend

    generator = LlmGenerator(
        "llm",
        msgspec.convert({"deadline_s": 5.0, **settings}, LlmSettings),
        models,
        passed_on or {},
        open_backend,
        budget_tokens=state.budget_tokens,
    )
    await generator.prepare(parallel)
    desk = LooseDesk(state)
    generator.attach(desk)
    return Table(generator, desk, chat, state.candidates.get(0, parent))
