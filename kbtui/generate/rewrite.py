"""The `rewrite` generator: small changes of the source by known moves. No model, no network, no tokens, no key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
import numpy as np

from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import Exhausted, Generator, Request, Written
from kbtui.generate.moves.move import Move, Site
from kbtui.generate.moves.registry import all_moves
from kbtui.generate.tree.module import KernelModule
from kbtui.state.records import Strategy


@dataclass(frozen=True, eq=False)
class Option:
    """One thing to do to a source. `title` is unique among the options of the source."""

    move: Move
    site: Site
    title: str


class RewriteGenerator(Generator):
    """Draws among everything the moves offer, each option as likely as any other: the seed alone decides.

    `moves` are those of `kbtui.generate.moves.registry` unless given.
    """

    name = "rewrite"

    def __init__(self, moves: Sequence[Move] | None = None) -> None:
        self._moves = list(moves) if moves is not None else all_moves()

    def moves(self, source: str, entry: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        module = read_module(source, entry)
        if module is not None:
            for move in self._moves:
                counts[move.strategy] += len(move.sites(module))
        return {strategy: n for strategy, n in counts.items() if n}

    async def write(self, request: Request) -> Written | Exhausted:
        return await asyncio.to_thread(self._write, request)

    def options(self, module: KernelModule, strategy: Strategy) -> list[Option]:
        """Everything the moves of a strategy offer on a source, in a fixed order."""
        found = [(move, site) for move in self._moves if move.strategy == strategy for site in move.sites(module)]
        titles = _unique([site for _, site in found])
        return [Option(move, site, title) for (move, site), title in zip(found, titles, strict=True)]

    def _write(self, request: Request) -> Written | Exhausted:
        module = read_module(request.parent.source, request.problem.entry)
        if module is None:
            return Exhausted(f"the source of #{request.parent.id} does not parse, so no move applies")
        options = self.options(module, request.strategy)
        if not options:
            return Exhausted(f"{request.strategy} has no move for #{request.parent.id}")
        for index in np.random.default_rng(request.seed).permutation(len(options)):
            option = options[index]
            if option.title in request.tried:
                continue
            source = option.move.apply(module, option.site)
            if syntax_digest(source) not in request.seen:
                return written(option, source)
        return Exhausted(_all_made(len(options), request))


def _all_made(count: int, request: Request) -> str:
    where = f"of #{request.parent.id}"
    if count == 1:
        return f"the only {request.strategy} move {where} was made or leads to a known version"
    return f"all {count} {request.strategy} moves {where} were made or lead to known versions"


def written(option: Option, source: str) -> Written:
    """The version that an option makes."""
    return Written(source=source, move=option.title, detail=_detail(option), change=option.site.change)


def _detail(option: Option) -> str:
    return f"{option.move.name}: {option.site.detail}" if option.site.detail else option.move.name


def read_module(source: str, entry: str) -> KernelModule | None:
    """None for source that does not parse: a person's or a model's version may not, and that is for the judge to say."""
    try:
        return KernelModule(source, entry)
    except cst.ParserSyntaxError:
        return None


def _unique(sites: Sequence[Site]) -> list[str]:
    """Titles made unique: by the kernel where that is enough, else by the line, else by a number."""
    alike: dict[str, list[Site]] = {}
    for site in sites:
        alike.setdefault(site.title, []).append(site)
    unique: dict[Site, str] = {}
    for title, group in alike.items():
        if len(group) == 1:
            names = [title]
        elif len({site.where for site in group}) == len(group):
            names = [f"{title} in {site.where}" for site in group]
        elif len({site.line for site in group}) == len(group):
            names = [f"{title} at line {site.line}" for site in group]
        else:
            names = [f"{title} at line {site.line} #{number}" for number, site in enumerate(group, 1)]
        unique.update(zip(group, names, strict=True))
    return [unique[site] for site in sites]
