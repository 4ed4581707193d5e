"""What a model was asked and what it replied, newest first, as it grows for a reply that is being written."""

from __future__ import annotations

import textwrap

from kbtui.state import events as e
from kbtui.state.records import Message
from kbtui.state.run_state import Pull, RunState
from kbtui.text import clean
from kbtui.tui import glyphs as g
from kbtui.tui.line import EMPTY, Line, LineBuilder, text_line
from kbtui.tui.views import numbers as n
from kbtui.tui.views.tree import writing_text

ASKING = {"write": "asked for a version", "rewrite": "asked again", "repair": "asked to mend"}
ROLES = {"system": "the standing instructions", "user": "the prompt", "assistant": "the model, before"}


def prompt_lines(state: RunState, pull: Pull | None, asked: list[e.Asked], generator: str, width: int) -> list[Line]:
    """The requests of a pull with their replies; or why there are none. `asked` may lack those in flight."""
    if pull is None or not (pull.replies or pull.calls or asked):
        if generator == "llm":
            return [text_line(" nothing has been asked yet", "dim")]
        return [text_line(f" no model was asked: this version comes from {generator}", "dim")]
    requests = {request.call: request for request in asked}
    requests |= {call: request for (number, call), request in state.asks.items() if number == pull.number}
    replies = {reply.call: reply for reply in pull.replies}
    lines: list[Line] = []
    for call in sorted(requests.keys() | replies.keys(), reverse=True):
        request, reply = requests.get(call), replies.get(call)
        lines += _head(call, request, reply)
        lines += _reply(state, pull, call, reply, width)
        lines += _request(request, width)
        lines.append(EMPTY)
    return lines


def _head(call: int, request: e.Asked | None, reply: e.Replied | None) -> list[Line]:
    said = reply or request
    assert said is not None
    out = LineBuilder().add(f" {call} ", "accent").add(ASKING[said.asking], "strong").gap(2).add(said.model, "text")
    if reply is None:
        return [out.line()]
    out.gap(2).add(f"{reply.prompt_tokens:,} tokens in, {reply.completion_tokens:,} out", "label")
    if reply.cached_tokens:
        out.add(f", {reply.cached_tokens:,} from the cache", "label")
    cost = "price unknown" if reply.cost_usd is None else n.money_text(reply.cost_usd)
    out.gap(2).add(cost, "label").gap(2).add(f"{reply.seconds:.1f} s", "label")
    if reply.recorded:
        out.gap(2).add(f"recorded: {reply.recorded}", "warn")
    return [out.line()]


def _reply(state: RunState, pull: Pull, call: int, reply: e.Replied | None, width: int) -> list[Line]:
    if reply is not None:
        lines = [_title("reply" if reply.finish == "stop" else f"reply, ended by {reply.finish}")]
        if reply.reasoning:
            lines += [*_block(reply.reasoning, width, "dim"), text_line("   │", "faint")]
        return lines + _block(reply.text or "(empty)", width, "text")
    growing = state.reply_deltas.get(pull.number)
    if growing is not None and growing.call == call:
        lines = [_title(f"{g.WORK} {writing_text(state, pull.number)}", "info")]
        return lines + _block(growing.tail, width, "dim" if growing.thinking else "text")
    if (pull.number, call) in state.asks and not pull.ended:
        return [_title(f"{g.WORK} waiting for the first token", "info")]
    return [_title("no reply came", "warn")]


def _request(request: e.Asked | None, width: int) -> list[Line]:
    if request is None:
        return [_title("the prompt is not in the journal that is at hand", "dim")]
    lines: list[Line] = []
    # what was said last is what is new
    for message in reversed(request.messages):
        lines += _message(message, width)
    return lines


def _message(message: Message, width: int) -> list[Line]:
    return [_title(ROLES[message.role]), *_block(message.text, width, "label" if message.role == "system" else "text")]


def _title(text: str, role: str = "label") -> Line:
    return text_line(f"   {text}", role)


def _block(text: str, width: int, role: str) -> list[Line]:
    """Text behind a rail, wrapped; code keeps its indentation."""
    room = max(width - 6, 20)
    lines = []
    for row in clean(text.replace("\r\n", "\n")).rstrip("\n").split("\n"):
        parts = textwrap.wrap(row, room, drop_whitespace=False, replace_whitespace=False) or [""]
        lines += [LineBuilder().add("   │ ", "faint").add(part, role).line() for part in parts]
    return lines
