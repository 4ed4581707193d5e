"""What there is to choose from and what this machine offers: policies, themes, keys, doctor."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from kbtui.cli import output
from kbtui.cli.output import Column
from kbtui.cli.runs import AsJson
from kbtui.config import load_settings


def register(app: typer.Typer) -> None:
    for command in (policies, doctor, themes, keys):
        app.command()(command)


def policies(as_json: AsJson = False) -> None:
    """List what can choose arms."""
    from kbtui.search.registry import POLICIES, make_policy

    found = [(policy, make_policy(name, {}).parameters) for name, policy in POLICIES.items()]
    if as_json:
        output.json(
            [
                {"name": policy.name, "summary": policy.summary, "source": policy.source, "parameters": parameters}
                for policy, parameters in found
            ]
        )
        return
    columns = (Column("policy"), Column("what it does", gives=True), Column("source"), Column("parameters", gives=True))
    rows = []
    for policy, parameters in found:
        spelled = " ".join(f"{key}={value}" for key, value in parameters.items())
        rows.append([policy.name, policy.summary, policy.source, spelled])
    output.table(columns, rows)


def doctor(
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="PROVIDER/NAME", help="Ask this model for a few tokens, too; may be repeated."),
    ] = None,
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="A server of your own for the model.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what this machine offers and lacks.

    Lists every setting with where it came from, too. Exit status 1 if a run would fail.
    """
    from kbtui.doctor import examine

    settings, origins = load_settings({"python": python, "api_base": api_base})
    findings = examine(settings)
    if model:
        from kbtui.doctor.model import model_findings

        findings += model_findings(settings, ",".join(model), settings.api_base)
    merged = {key: {"value": getattr(settings, key), "origin": origin} for key, origin in origins.items()}
    if as_json:
        output.json({"findings": findings, "settings": merged})
    else:
        output.table(
            (Column("subject"), Column("state"), Column("what was found", gives=False)),
            [[finding.subject, finding.state, finding.text] for finding in findings],
        )
        output.line()
        output.table(
            (Column("setting"), Column("value", gives=True), Column("from")),
            [
                [key, msgspec.json.encode(entry["value"]).decode(), str(entry["origin"])]
                for key, entry in merged.items()
            ],
        )
    if any(finding.state == "fails" for finding in findings):
        raise typer.Exit(1)


def themes(as_json: AsJson = False) -> None:
    """List the cockpit's themes."""
    from kbtui import paths
    from kbtui.tui.themes import DEFAULT, load_themes

    found, bad = load_themes()
    if as_json:
        output.json(
            [{"name": theme.name, "dark": theme.dark, "default": theme.name == DEFAULT} for theme in found.values()]
        )
    else:
        columns = (Column("theme"), Column("ground"), Column(""))
        rows = [[t.name, "dark" if t.dark else "light", "default" if t.name == DEFAULT else ""] for t in found.values()]
        output.table(columns, rows)
        output.line()
        output.line(f"shipped in {paths.themes_dir()}; put your own into {paths.user_themes_dir()}")
    for each in bad:
        output.note(each.reason)


def keys(
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation's page.")] = False,
) -> None:
    """List every key of the cockpit, as the configuration has them."""
    from kbtui.tui.actions import ACTIONS, PLACES, key_name, keys_page
    from kbtui.tui.keymap import read_keymap

    settings, origins = load_settings()
    keymap = read_keymap(settings.keys, origins["keys"])
    if as_json:
        output.json(
            [
                {
                    "id": a.id, "place": a.place, "name": a.full_id, "keys": keymap.keys_of(a), "help": a.help,
                    "changed": a.full_id in keymap.changed,
                }
                for a in ACTIONS
            ]
        )  # fmt: skip
        return
    if markdown:
        for each in keys_page(keymap.keys_of).splitlines():
            output.line(each)
        return
    columns = (Column("where"), Column("keys"), Column("what it does"))
    output.table(columns, [[PLACES[a.place], " ".join(map(key_name, keymap.keys_of(a))), a.help] for a in ACTIONS])
