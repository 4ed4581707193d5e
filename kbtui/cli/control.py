"""Commands to a live run. Each becomes one event of the run, with who gave it."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbtui.cli import output
from kbtui.config import MOST_PULLS, MOST_WHOLE
from kbtui.errors import KbtuiError, UsageError

if TYPE_CHECKING:
    from kbtui.state.commands import AnyCommand
    from kbtui.state.records import Strategy

LARGEST_SOURCE = 1 << 20
"""Bytes of an injected file. A kernel takes some kilobytes; what is larger was named by mistake."""

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the start or end of one, or a problem's name.")]
StrategyName = Annotated[str, typer.Option("--strategy", "-s", help="Such as tiling; the cockpit shows all six.")]
Cluster = Annotated[int | None, typer.Option("--cluster", "-c", min=0, help="Such as 1 for c1; all when left out.")]
CandidateId = Annotated[int, typer.Argument(metavar="CANDIDATE", min=0, help="Such as 7 for #7.")]
AsJson = Annotated[bool, typer.Option("--json", help="The run's answer as one JSON value.")]


def register(app: typer.Typer) -> None:
    for command in (
        pause, resume, step, stop, force, ban, unban, inject, pin, unpin, kill, cancel, tag, hint, budget, undo
    ):  # fmt: skip
        app.command()(command)


def pause(
    run: Run, reason: Annotated[str, typer.Option(help="Shown beside the status.")] = "", as_json: AsJson = False
) -> None:
    """Start no new pull; finish the one in flight."""
    from kbtui.state.commands import Pause

    _send(run, Pause(by=_me(), reason=reason), as_json=as_json)


def resume(run: Run, as_json: AsJson = False) -> None:
    """Go on after a pause."""
    from kbtui.state.commands import Resume

    _send(run, Resume(by=_me()), as_json=as_json)


def step(run: Run, as_json: AsJson = False) -> None:
    """Do one pull, then pause again."""
    from kbtui.state.commands import Step

    _send(run, Step(by=_me()), as_json=as_json)


def stop(run: Run, as_json: AsJson = False) -> None:
    """End a run.

    The pull in flight is abandoned, the summary is written and the run process ends. `kbtui run --continue RUN` goes on
    later.
    """
    from kbtui.state.commands import Stop

    _send(run, Stop(by=_me()), as_json=as_json)


def force(
    run: Run,
    strategy: StrategyName,
    cluster: Cluster = None,
    parent: Annotated[int | None, typer.Option(min=0, help="The candidate to start from, such as 7 for #7.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the next pull take an arm.

    Whatever the policy says; only a ban is stronger.
    """
    from kbtui.state.commands import Force

    _send(run, Force(by=_me(), strategy=_strategy(strategy), cluster=cluster, parent_id=parent), as_json=as_json)


def ban(run: Run, strategy: StrategyName, cluster: Cluster = None, as_json: AsJson = False) -> None:
    """Allow no pull on an arm until `unban`."""
    from kbtui.state.commands import Ban

    _send(run, Ban(by=_me(), strategy=_strategy(strategy), cluster=cluster), as_json=as_json)


def unban(run: Run, strategy: StrategyName, cluster: Cluster = None, as_json: AsJson = False) -> None:
    """Lift a ban."""
    from kbtui.state.commands import Unban

    _send(run, Unban(by=_me(), strategy=_strategy(strategy), cluster=cluster), as_json=as_json)


def inject(
    run: Run,
    file: Annotated[Path, typer.Argument(help="A version of kernel.py of your own.")],
    as_json: AsJson = False,
) -> None:
    """Queue a version of your own.

    It is compiled, verified and timed like any other candidate.
    """
    from kbtui.state.commands import Inject

    _send(run, Inject(by=_me(), name=file.name, source=read_source(file)), as_json=as_json)


def pin(run: Run, candidate: CandidateId, as_json: AsJson = False) -> None:
    """Make pulls start from one candidate."""
    from kbtui.state.commands import Pin

    _send(run, Pin(by=_me(), parent_id=candidate), as_json=as_json)


def unpin(run: Run, as_json: AsJson = False) -> None:
    """Leave the parent to the policy again."""
    from kbtui.state.commands import Pin

    _send(run, Pin(by=_me(), parent_id=None), as_json=as_json)


def kill(run: Run, candidate: CandidateId, as_json: AsJson = False) -> None:
    """Judge a candidate no further, and end what runs for it.

    Its pull is dropped, so the bandit learns nothing from it; the run goes on.
    """
    from kbtui.state.commands import Kill

    _send(run, Kill(by=_me(), candidate_id=candidate), as_json=as_json)


def cancel(
    run: Run,
    pull: Annotated[int | None, typer.Option(min=1, help="Such as 7; else all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give up replies that models are writing.

    What had arrived of them is charged; their pulls are dropped, and the run goes on.
    """
    from kbtui.state.commands import Cancel

    _send(run, Cancel(by=_me(), pull=pull), as_json=as_json)


def tag(
    run: Run,
    candidate: CandidateId,
    word: Annotated[str, typer.Argument(metavar="TAG", help="A word, shown beside the candidate.")] = "",
    note: Annotated[str, typer.Option("--note", "-n", help="More than a word, shown with its verdict.")] = "",
    as_json: AsJson = False,
) -> None:
    """Mark a candidate with a word, a note, or both."""
    from kbtui.state.commands import Tag

    _send(run, Tag(by=_me(), candidate_id=candidate, tag=word, note=note), as_json=as_json)


def hint(
    run: Run,
    text: Annotated[str, typer.Argument(help="What coming prompts say besides, instead of the hint before.")] = "",
    clear: Annotated[bool, typer.Option("--clear", help="Take the hint back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell the model something.

    Every coming prompt carries the hint until another one, `--clear` or `kbtui undo`.
    """
    from kbtui.state.commands import Hint

    if bool(text.strip()) == clear:
        raise UsageError("give either the hint's text or --clear")
    _send(run, Hint(by=_me(), text=text), as_json=as_json)


def budget(
    run: Run,
    iterations: Annotated[
        int | None, typer.Option("--iterations", "-n", min=1, max=MOST_PULLS, help="Pulls in all.")
    ] = None,
    usd: Annotated[float | None, typer.Option("--budget-usd", min=0, help="Dollars in all.")] = None,
    tokens: Annotated[int | None, typer.Option("--budget-tokens", min=1, max=MOST_WHOLE, help="Tokens in all.")] = None,
    minutes: Annotated[float | None, typer.Option("--budget-minutes", min=0, help="Of the run's clock.")] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, max=MOST_PULLS, help="Pulls without a gain before the run ends.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change what a run may use. What is not named stays."""
    from kbtui.state.commands import SetBudget

    if all(limit is None for limit in (iterations, usd, tokens, minutes, patience)):
        raise UsageError("name what is to change, such as `kbtui budget RUN --iterations 40`")
    limits = SetBudget(
        by=_me(), iterations=iterations, budget_usd=usd, tokens=tokens, minutes=minutes, patience=patience
    )
    _send(run, limits, as_json=as_json)


def undo(run: Run, as_json: AsJson = False) -> None:
    """Take the last steering act back.

    A ban, an unban, a pin, a tag, a hint, a budget, a pause, or a force or an injection that has not been played yet.
    """
    from kbtui.state.commands import Undo

    _send(run, Undo(by=_me()), as_json=as_json)


def read_source(file: Path) -> str:
    """The text of a source file. Raises UsageError when it cannot be read, is too large or is not UTF-8."""
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_SOURCE + 1)
        if len(content) > LARGEST_SOURCE:
            raise UsageError(f"{file} is larger than {LARGEST_SOURCE >> 20} MiB, which no kernel is")
        return content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None


def _strategy(name: str) -> Strategy:
    from kbtui.state.records import STRATEGIES

    for strategy in STRATEGIES:
        if strategy == name:
            return strategy
    raise UsageError(f"no strategy is called {name!r}; there are {', '.join(STRATEGIES)}")


def _me() -> str:
    """user@terminal, or user@script where there is none."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id may have no name
        user = str(os.getuid())
    place = os.ttyname(0).removeprefix("/dev/") if sys.stdin is not None and sys.stdin.isatty() else "script"
    return f"{user}@{place}"


def _send(run: str, command: AnyCommand, *, as_json: bool = False) -> None:
    """Send a command and print the run's answer. Raises KbtuiError with it when it is a refusal; as JSON that is printed
    too, and the exit status is the same."""
    from kbtui.engine.client import send
    from kbtui.history.runs import find_run

    run_id = find_run(run, to_steer=True)
    reply = send(run_id, command)
    if as_json:
        output.json({"run_id": run_id, "ok": reply.ok, "text": reply.text})
    elif reply.ok:
        output.line(reply.text)
    if not reply.ok:
        raise KbtuiError(reply.text)
