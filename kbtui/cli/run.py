"""`kbtui run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kbtui.cli import headless as printing
from kbtui.cli import options, output
from kbtui.cli.cockpit import drawing_flags, open_cockpit
from kbtui.cli.continuing import refuse_used_up
from kbtui.cli.screen import Ascii, LowBandwidth, NoMouse, Theme
from kbtui.config import OBJECTIVES, Settings, load_settings
from kbtui.errors import KbtuiError, UnknownPriceError, UsageError

if TYPE_CHECKING:
    from kbtui.engine.spec import RunSpec
    from kbtui.state.run_state import RunState


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    problem: Annotated[str | None, typer.Argument(help="A bundled problem or the path of a problem's folder.")] = None,
    generator: Annotated[str | None, typer.Option(help="What writes candidates, such as rewrite.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="PROVIDER/NAME[=WEIGHT]", help="The model, with --generator llm; several by repeating."),
    ] = None,
    model_parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Sent to the model, such as temperature=0.7; may be repeated."),
    ] = None,
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="A server of your own for the model.")] = None,
    allow_unknown_price: Annotated[
        bool, typer.Option("--allow-unknown-price", help="Ask models whose price nobody knows.")
    ] = False,
    recording: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="What --generator replay replays: a run or a file.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="What chooses arms; `kbtui policies` lists them.")] = None,
    policy_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the policy; may be repeated.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Pulls before the run ends.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Dollars before the run ends.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens of models before the run ends.")] = None,
    budget_minutes: Annotated[float | None, typer.Option(help="Minutes before the run ends.")] = None,
    patience: Annotated[int | None, typer.Option(help="Pulls without a new best before the run ends.")] = None,
    speed_of_light: Annotated[
        float | None, typer.Option(help="Percent of the speed of light at which the best is good enough (95).")
    ] = None,
    objective: Annotated[str | None, typer.Option(help=f"Over the cases: {', '.join(OBJECTIVES)}.")] = None,
    dispatch: Annotated[
        bool | None,
        typer.Option("--dispatch/--no-dispatch", help="At the end, try one kernel that picks versions by input size."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda:0, several as cuda:0,cuda:1, or cpu (interpreter and estimate).")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The GPU that `cpu` compiles for, such as sm_90.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw.")] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Pulls in flight at a time; 0: two for each GPU, one on cpu.")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option(help="Where candidates are judged: local, or ray for the nodes of a Ray cluster.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The Ray cluster; auto is this machine's, local a new one.")
    ] = None,
    continue_run: Annotated[str | None, typer.Option("--continue", metavar="RUN", help="Go on with this run.")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Without the cockpit; ends with the run.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start in the background; print the run's id.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --headless: one event per line.")] = False,
    theme: Theme = None,
    plain: Ascii = False,
    no_mouse: NoMouse = False,
    low_bandwidth: LowBandwidth = False,
) -> None:
    """Search for a faster version of a kernel.

    The cockpit shows the run; `q` detaches and the run goes on. --headless runs without the cockpit.
    """
    settings, origins = load_settings(
        {
            "generator": generator,
            "model": ",".join(model) if model else None,
            "model_parameters": options.pairs(model_parameter, "--model-parameter"),
            "api_base": api_base,
            "allow_unknown_price": True if allow_unknown_price else None,
            "policy": policy,
            "policy_parameters": options.pairs(policy_parameter),
            "iterations": iterations,
            "budget_usd": budget_usd,
            "budget_tokens": budget_tokens,
            "budget_minutes": budget_minutes,
            "patience": patience,
            "speed_of_light": speed_of_light,
            "objective": objective,
            "dispatch": dispatch,
            "device": device,
            "target": target,
            "python": python,
            "seed": seed,
            "parallel": parallel,
            "lanes": lanes,
            "address": address,
        }
    )
    _require_one_way_to_watch(headless=headless, detach=detach, as_json=as_json)
    if continue_run is None and problem is not None:
        spec = _fresh(problem, settings, origins, recording)
    elif continue_run is not None and problem is None:
        spec = options.continued(continue_run, settings, origins)
        refuse_used_up(spec, _state_before(spec))
    else:
        raise UsageError("name either a PROBLEM to start on, such as `kbtui run softmax`, or a run to `--continue`")
    if headless:
        _run_headless(spec, as_json)
    elif detach:
        _run_detached(spec, as_json)
    else:
        raise typer.Exit(_run_attended(spec, drawing_flags(theme, plain, no_mouse, low_bandwidth)))


def _require_one_way_to_watch(*, headless: bool, detach: bool, as_json: bool) -> None:
    if headless and detach:
        raise UsageError("--headless stays until the run ends and --detach does not: choose one")
    if as_json and not (headless or detach):
        raise UsageError(
            "--json prints a run's events and so needs --headless (or --detach, which prints the run's id)"
        )


def _fresh(problem: str, settings: Settings, origins: Mapping[str, str], recording: str | None) -> RunSpec:
    options.refuse_unused(settings.generator, origins)
    options.refuse_unused_place(settings, origins)
    spec = options.fresh(problem, settings)
    if settings.generator == "replay":
        return options.replayed(spec, recording, origins)
    if recording is not None:
        raise UsageError("--from names what --generator replay replays: add --generator replay, or leave it out")
    return spec


def _start_run(spec: RunSpec) -> str:
    """Start the run in a process of its own. Where a price is unknown, whoever sits there decides."""
    from kbtui.engine.launch import start_run

    try:
        return start_run(spec)
    except UnknownPriceError as unknown:
        if not sys.stdin.isatty():
            raise
        question = f"{unknown}.\nAsk it anyway, without a dollar limit that could hold?"
        if not typer.confirm(question, err=True):
            raise KbtuiError("nothing was started and nothing spent") from None
    known = {**spec.generator_parameters, "allow_unknown_price": True}
    return start_run(msgspec.structs.replace(spec, generator_parameters=known))


def _run_headless(spec: RunSpec, as_json: bool) -> None:
    from kbtui.engine.launch import run_here

    watcher = printing.EventLines() if as_json else printing.Progress(_state_before(spec))
    watcher.finish(run_here(spec, watcher.show))


def _state_before(spec: RunSpec) -> RunState:
    """What a run that goes on was so far; of a new one, nothing. Raises RunNotFoundError or JournalError."""
    from kbtui.history.runs import load_state
    from kbtui.state.run_state import RunState

    return load_state(spec.run_id) if spec.continue_run else RunState()


def _run_detached(spec: RunSpec, as_json: bool) -> None:
    run_id = _start_run(spec)
    if as_json:
        output.json({"run_id": run_id})
    else:
        output.line(run_id)


def _run_attended(spec: RunSpec, flags: dict[str, object]) -> int:
    from kbtui.tui.terminal import require_terminal

    require_terminal("kbtui run", "add --headless to run without the cockpit, or --detach to run in the background")
    output.note("starting the run: the lane imports torch and describes the problem ...")
    return open_cockpit(_start_run(spec), flags)
