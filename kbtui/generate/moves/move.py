"""The interface of a move: a small change of a kernel's source that may make it faster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edits
from kbtui.state.records import NumberChange, Strategy


@dataclass(frozen=True, eq=False)
class Site:
    """One way to make a move on one source.

    `title` is short and says old and new value ("num_warps 4 → 8"); `where` names the kernel or function and `line` the
    place, for when two titles are equal. `change` is for the numeric search.
    """

    title: str
    where: str
    line: int
    edits: Edits = field(repr=False)
    detail: str = ""
    change: NumberChange | None = None
    """The number that it changes, when it changes one and nothing else by choice."""


class Move(ABC):
    """A move changes only what it says, keeps comments and layout, and leaves correctness to the judge.

    Its precondition is that `sites` gives something: a site is offered where the move is expected to keep the kernel
    correct by what can be read from the source.
    """

    name: str
    """As in docs/moves.md."""
    strategy: Strategy
    kind: Literal["parameter", "structural"]
    """Whether it changes numbers and hints only, or what the program does in which order."""
    summary: str
    """One line: what it changes and when it is offered."""

    @abstractmethod
    def sites(self, module: KernelModule) -> list[Site]:
        """Every way to make the move on `module`, in source order; empty when its precondition does not hold. Never raises."""

    def apply(self, module: KernelModule, site: Site) -> str:
        """The new source. `site` comes from `sites(module)` of the same module."""
        return module.rewritten(site.edits)
