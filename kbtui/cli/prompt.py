"""`kbtui prompt`: what a model would be sent, without sending it."""

from __future__ import annotations

from typing import Annotated

import typer

from kbtui.cli import output
from kbtui.cli.runs import AsJson
from kbtui.config import load_settings


def register(app: typer.Typer) -> None:
    app.command()(prompt)


def prompt(
    problem: Annotated[str | None, typer.Argument(help="A bundled problem or the path of a problem's folder.")] = None,
    strategy: Annotated[str, typer.Option(help="Such as fusion.")] = "tiling",
    run: Annotated[str | None, typer.Option(help="As it would be in this run, instead of before one.")] = None,
    parent: Annotated[
        int | None, typer.Option(min=0, help="With --run: the version to start from, such as 7; else the best.")
    ] = None,
    prompts: Annotated[str | None, typer.Option(help="A folder of prompt templates of your own.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda:0, or cpu (interpreter and estimate).")] = None,
    target: Annotated[str | None, typer.Option(help="The GPU that `cpu` compiles for, such as sm_90.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a model would be sent, and its tokens.

    Of a problem: the first prompt of a run, before anything was measured. Of a run: with all that it knows by now.
    """
    from kbtui.engine.preview import of_problem, of_run
    from kbtui.errors import UsageError

    settings, _ = load_settings({"prompts": prompts, "device": device, "target": target, "python": python})
    if run is not None and problem is None:
        preview = of_run(run, strategy, parent, settings.prompts, settings.prompt_tokens)
    elif problem is not None and run is None and parent is None:
        preview = of_problem(
            problem,
            strategy,
            settings.prompts,
            settings.prompt_tokens,
            device=settings.device,
            target=settings.target,
            python=settings.interpreter,
        )
    else:
        raise UsageError(
            "name either a PROBLEM, such as `kbtui prompt softmax`, or a run by --run (with --parent if you like)"
        )
    if as_json:
        output.json(preview)
        return
    for message in preview.messages:
        output.line(f"----- {message.role}")
        for text in message.text.split("\n"):
            output.line(text)
    about = "" if preview.exact else "about "
    output.note(f"{about}{preview.tokens} tokens (OpenAI's cl100k; other tokenizers differ by a fifth)")
