"""What a run is asked to do."""

from __future__ import annotations

import os
import re
import secrets
import time

import msgspec
from msgspec import UNSET, UnsetType

from kbtui import clock
from kbtui.config import OBJECTIVES
from kbtui.errors import UsageError
from kbtui.state.records import Scalar

DEFAULT_ITERATIONS = 20
DEFAULT_BUDGET_USD = 1.0
DEFAULT_SPEED_OF_LIGHT = 95.0
"""Percent. What is left beyond it is within the error of the peaks that it is measured against."""
MOST_PARALLEL = 64
_RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SUFFIX_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class RunSpec(msgspec.Struct, kw_only=True):
    """One run, as the command line or the home screen asks for it.

    A new run needs `problem` (a bundled name or a folder); `run_id` "" makes one up. With `continue_run` only `run_id`,
    `iterations`, the budgets, `patience` and `python` count: everything else is what the journal recorded.

    `iterations` None and UNSET for the other limits mean "not said": the defaults for a new run, what was recorded for a
    continued one. None is no limit (a recorded limit can be changed, not lifted). `budget_minutes` are of the run's own
    clock, `patience` counts rewarded pulls without a new best, `speed_of_light` is the percentage at which the best is
    good enough. `dispatch` has the end of a run try one version that picks among others by the sizes of its inputs.
    `device` "" is cuda:0 where the machine has a GPU, else cpu. `python` "" is this interpreter for a new
    run, the recorded one for a continued one.
    """

    problem: str
    run_id: str = ""
    generator: str = "rewrite"
    model: str = ""
    generator_parameters: dict[str, Scalar] = {}
    policy: str = "ucb"
    policy_parameters: dict[str, Scalar] = {}
    iterations: int | None = None
    budget_usd: float | UnsetType | None = UNSET
    budget_tokens: int | UnsetType | None = UNSET
    budget_minutes: float | UnsetType | None = UNSET
    patience: int | UnsetType | None = UNSET
    speed_of_light: float | None = DEFAULT_SPEED_OF_LIGHT
    objective: str = "geomean"
    dispatch: bool = True
    device: str = ""
    target: str = "sm_90"
    python: str = ""
    seed: int = 0
    parallel: int = 0
    """Pulls in flight; 0: as many as keep the devices busy."""
    cluster: str = ""
    """Address of the Ray cluster whose nodes have the lanes; "": they are on this machine."""
    arguments: tuple[str, ...] = ()
    continue_run: bool = False

    def check(self) -> None:
        """Refuse what no run could do. Raises UsageError with one sentence."""
        if self.run_id and not _RUN_ID.fullmatch(self.run_id):
            raise UsageError(f"{self.run_id!r} is not a run id: use up to 40 of a-z, 0-9 and -")
        if self.continue_run and not self.run_id:
            raise UsageError("to continue a run, name it: kbtui run --continue RUN")
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(f"--iterations {self.iterations}: a run needs at least 1 pull")
        if isinstance(self.budget_usd, float | int) and self.budget_usd < 0:
            raise UsageError(f"--budget-usd {self.budget_usd}: a budget cannot be negative")
        if isinstance(self.budget_tokens, int) and self.budget_tokens < 1:
            raise UsageError(f"--budget-tokens {self.budget_tokens}: a budget needs at least 1 token")
        if isinstance(self.budget_minutes, float | int) and self.budget_minutes <= 0:
            raise UsageError(f"--budget-minutes {self.budget_minutes}: a run needs some time")
        if isinstance(self.patience, int) and self.patience < 1:
            raise UsageError(f"--patience {self.patience}: a run needs at least 1 pull to gain anything")
        if self.speed_of_light is not None and not 0 < self.speed_of_light <= 100:
            raise UsageError(f"--speed-of-light {self.speed_of_light}: give a percentage over 0, up to 100")
        if self.objective not in OBJECTIVES:
            raise UsageError(f"--objective {self.objective} is unknown: use one of {', '.join(OBJECTIVES)}")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: a seed is 0 or more")
        if not 0 <= self.parallel <= MOST_PARALLEL:
            raise UsageError(
                f"--parallel {self.parallel}: from 1 to {MOST_PARALLEL} pulls can be in flight at a time; 0 lets kbtui choose"
            )


def new_run_id(problem_name: str) -> str:
    """A fresh id such as `softmax-20261130-2112-k3f`: problem, local date and minute, three random letters; 40 at most."""
    slug = re.sub(r"[^a-z0-9]+", "-", problem_name.lower()).strip("-")[:22].strip("-") or "run"
    stamp = time.strftime("%Y%m%d-%H%M", time.localtime(clock.wall()))
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(3))
    return f"{slug}-{stamp}-{suffix}"


def run_id_for(problem: str) -> str:
    """A fresh id for a run over `problem`, a bundled name or the path of a folder."""
    return new_run_id(os.path.basename(os.path.normpath(problem)))
