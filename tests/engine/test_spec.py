"""Run ids and what a specification survives."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec import UNSET

from kbtui.engine.spec import RunSpec, new_run_id, run_id_for


@pytest.mark.parametrize("name", ["softmax", "My Kernel (v2)", "é", "", "x" * 100, "---", "a_b.c"])
def test_a_run_id_is_short_and_plain(name: str) -> None:
    run_id = new_run_id(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*-\d{8}-\d{4}-[a-z0-9]{3}", run_id)
    assert len(run_id) <= 40
    RunSpec(problem="x", run_id=run_id).check()


def test_a_run_id_begins_with_the_problem() -> None:
    assert run_id_for("/somewhere/my_softmax/").startswith("my-softmax-")
    assert run_id_for("softmax").startswith("softmax-")
    assert len({new_run_id("softmax") for _ in range(50)}) > 40


@pytest.mark.parametrize("budget", [UNSET, None, 0.5])
def test_it_goes_through_json(budget: object) -> None:
    spec = RunSpec(problem="softmax", budget_usd=budget, policy_parameters={"c": 0.5}, arguments=("--x",))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(spec), type=RunSpec) == spec
