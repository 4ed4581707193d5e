"""The methods that a suite can be run with: what each sets in a run. The judge, the budget and the seeds are the same."""

from __future__ import annotations

import msgspec

from kbtui.engine.spec import RunSpec
from kbtui.errors import UsageError
from kbtui.state.records import Scalar

OFFSPRING = 5
"""Versions of one parent that `geak` asks for before it goes on from the best."""
REFLECTIONS = 3
"""How often `geak` sends a version back with what was wrong with it."""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """`policy` "" leaves the run's own. `measured` methods need times and mean nothing without a GPU. A method without a
    `generator` searches for nothing: it times what is there, and no run is made."""

    name: str
    summary: str
    generator: str
    policy: str = ""
    measured: bool = False

    @property
    def searches(self) -> bool:
        return bool(self.generator)

    def shape(self, spec: RunSpec, iterations: int) -> RunSpec:
        """The run that this method makes of `spec`; of one that searches for nothing, what it is timed under. Raises UsageError
        for what does not fit together."""
        if self.measured and spec.device == "cpu":
            needs = (
                "chooses by measured times, and cpu has none" if self.searches else "is timed, and cpu times nothing"
            )
            raise UsageError(f"{self.name} {needs}: give --device cuda:0, or another --method")
        if not self.searches:
            return msgspec.structs.replace(spec, generator="", model="", iterations=0, generator_parameters={})
        policy, parameters = (self.policy, {}) if self.policy else (spec.policy, dict(spec.policy_parameters))
        return msgspec.structs.replace(
            spec,
            generator=self.generator,
            model=spec.model if self.generator == "llm" else "",
            generator_parameters=self._generator_parameters(spec),
            policy=policy,
            policy_parameters={**parameters, **self._policy_parameters(iterations)},
            iterations=iterations,
            speed_of_light=None,  # every method has all its pulls
        )

    def _policy_parameters(self, iterations: int) -> dict[str, Scalar]:
        if self.name == "best-of-n":
            return {"n": iterations, "tune": 0}
        if self.name == "geak":
            return {"n": OFFSPRING, "tune": 0}
        return {"tune": iterations} if self.name == "autotune" else {}

    def _generator_parameters(self, spec: RunSpec) -> dict[str, Scalar]:
        if self.generator != "llm":
            return {}
        said = dict(spec.generator_parameters)
        if self.name == "geak":
            said["repairs"] = REFLECTIONS
        if self.name == "best-of-n":
            said["repairs"] = 0  # samples that know nothing of one another
        return said


_METHODS = (
    Method(name="rewrite", summary="known changes of the source, steered by the bandit; no model", generator="rewrite"),
    Method(name="llm", summary="a model's versions, steered by the bandit", generator="llm"),
    Method(name="paper", summary="a model's versions under the published policy", generator="llm", policy="paper"),
    Method(
        name="best-of-n",
        summary="as many independent versions of the baseline by a model as there are pulls",
        generator="llm",
        policy="best_of_n",
    ),
    Method(
        name="geak",
        summary=f"a model reflects on what failed and mends it; {OFFSPRING} versions of the best so far a round",
        generator="llm",
        policy="best_of_n",
    ),
    Method(
        name="autotune",
        summary="block sizes, warps and stages alone, one step at a time from the fastest version",
        generator="rewrite",
        policy="ucb",
        measured=True,
    ),
    Method(
        name="torch-compile",
        summary="no search: the problem's PyTorch reference under torch.compile, beside the kernel",
        generator="",
        measured=True,
    ),
)
METHODS = {method.name: method for method in _METHODS}
"""By the name that `--method` takes."""


def find_method(name: str) -> Method:
    """Raises UsageError for a name that is none."""
    if name not in METHODS:
        raise UsageError(f"--method {name} is unknown: use one of {', '.join(METHODS)}")
    return METHODS[name]
