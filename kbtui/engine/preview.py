"""What a model would be sent for a problem or in a run; nothing is sent."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from kbtui.engine.devices import choose_device
from kbtui.engine.opening import recorded_state
from kbtui.errors import UsageError
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.generate.generator import Request
from kbtui.generate.llm import tokens
from kbtui.generate.llm.generator import preview_request
from kbtui.generate.llm.prompt import PromptWriter
from kbtui.generate.llm.templates import Templates
from kbtui.history.runs import find_run
from kbtui.problems.folder import find_problem
from kbtui.state.records import BASELINE_ID, Message
from kbtui.state.run_state import RunState


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """`exact` says whether a tokenizer counted, or the length was divided."""

    messages: tuple[Message, ...]
    tokens: int
    exact: bool


def of_problem(
    problem: str, strategy: str, prompts: str, most_tokens: int, *, device: str, target: str, python: str
) -> Preview:
    """The first prompt of a run, before anything was measured: a lane is started to say what device and cases there are.

    Raises ProblemError, UsageError for an unknown strategy, and EnvironmentFailure.
    """
    folder = find_problem(problem)
    writer = _writer(prompts, most_tokens)
    with tempfile.TemporaryDirectory(prefix="kbtui-prompt-") as scratch:
        spec = LaneSpec(
            problem=folder.path,
            device=choose_device(device),
            target=target,
            python=python,
            scratch=Path(scratch) / "lane",
        )
        lane = open_lane(spec)
        try:
            facts = lane.start()
        finally:
            lane.close()
    return _preview(writer, preview_request(facts.problem, facts.device, folder.kernel_source, strategy), RunState())


def of_run(run: str, strategy: str, parent_id: int | None, prompts: str, most_tokens: int) -> Preview:
    """What the next pull of that strategy from that parent (None: the best) would send. Raises UsageError."""
    state = recorded_state(find_run(run))
    assert state.started is not None, "a recorded state has started"
    if parent_id is None:
        parent_id = state.best_id if state.best_id is not None else BASELINE_ID
    if parent_id not in state.candidates:
        raise UsageError(f"run {state.started.run_id} has no candidate #{parent_id}")
    parent = state.candidates[parent_id]
    asked = preview_request(state.started.problem, state.started.device, parent.source, strategy)
    return _preview(_writer(prompts, most_tokens), msgspec.structs.replace(asked, parent=parent), state)


def _writer(prompts: str, most_tokens: int) -> PromptWriter:
    return PromptWriter(Templates(Path(prompts).expanduser() if prompts else None), most_tokens)


def _preview(writer: PromptWriter, request: Request, state: RunState) -> Preview:
    messages = writer.first(request, state)
    return Preview(
        messages=messages, tokens=sum(tokens.count(message.text) for message in messages), exact=tokens.exact()
    )
