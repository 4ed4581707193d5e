"""The messages that a model gets, cut to a number of tokens with the parent's source always whole."""

from __future__ import annotations

from dataclasses import dataclass

from kbtui.generate.generator import Request
from kbtui.generate.llm import facts
from kbtui.generate.llm.reply import Refused
from kbtui.generate.llm.templates import Templates
from kbtui.generate.llm.tokens import count
from kbtui.state.records import Message
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import redact

FAILURE_TOKENS = 2000
"""A compiler's message may be long; its end says what is wrong."""
_CUT = "\n[cut here]\n"


@dataclass(frozen=True)
class PromptWriter:
    """`most_tokens` bounds a first prompt; the parent's source is never cut, so a long one may pass it."""

    templates: Templates
    most_tokens: int

    def first(self, request: Request, state: RunState) -> tuple[Message, ...]:
        """What asks for a new version of the parent; from scratch where the parent holds no source."""
        parent = request.parent
        name = "frame" if parent.source.strip() else "scratch"
        fields = {
            "entry": request.problem.entry,
            "contract": facts.contract(request.problem),
            "device": facts.device(request.device),
            "reference": facts.reference(request.problem),
            "times": facts.times(request.problem, parent.timing),
            "history": "",
        }
        if name == "frame":
            fields |= {
                "strategy": request.strategy.replace("_", " "),
                "advice": self.templates.fill(request.strategy, {}),
                "limits": facts.limits(parent),
                "source": parent.source.rstrip(),
            }
        system = self.templates.fill("system", {})
        # After the template and not in it: a template of the user's own knows of no hint.
        hint = f"\n\n## A hint from the person who watches this run\n\n{state.hint}\n" if state.hint else ""
        room = self.most_tokens - count(system) - count(self.templates.fill(name, fields)) - count(hint)
        fields["history"] = _as_fits(facts.attempts(state, parent if name == "frame" else None), room)
        return _redacted(Message("system", system), Message("user", self.templates.fill(name, fields) + hint))

    def again(self, first: tuple[Message, ...], reply: str, refused: Refused) -> tuple[Message, ...]:
        """What asks for a reply that can be used, after one that could not."""
        said = Message("assistant", _tail(reply, self.most_tokens // 2) or "(an empty reply)")
        return _redacted(*first, said, Message("user", self.templates.fill("unusable", {"reason": refused.reason})))

    def repair(self, first: tuple[Message, ...], failed: Candidate) -> tuple[Message, ...]:
        """What asks to mend a version that failed: its source as the model's own answer, then what went wrong."""
        verdict, stage, failure = facts.failure(failed)
        answer = f"Title: {failed.move}\n```python\n{failed.source.rstrip()}\n```"
        fields = {"verdict": verdict, "stage": stage, "failure": _tail(failure, FAILURE_TOKENS)}
        return _redacted(*first, Message("assistant", answer), Message("user", self.templates.fill("repair", fields)))


def _as_fits(lines: list[str], room: int) -> str:
    """As many of the lines as have room, the first ones first; how many were left out is said."""
    kept: list[str] = []
    for line in lines:
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"- and {len(lines) - len(kept)} older attempts")
    return "\n".join(kept) or "nothing yet"


def _tail(text: str, most_tokens: int) -> str:
    """The end of `text`, of about so many tokens at most."""
    characters = most_tokens * 3
    return text if len(text) <= characters else _CUT.lstrip() + text[-characters:]


def _redacted(*messages: Message) -> tuple[Message, ...]:
    """Before anything is sent, and so before anything is written down."""
    return tuple(Message(message.role, redact(message.text)) for message in messages)
