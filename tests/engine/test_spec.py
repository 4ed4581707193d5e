"""Run ids and what a specification survives."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec import UNSET

from kbtui.engine import opening
from kbtui.engine.spec import RunSpec, new_run_id, run_id_for
from kbtui.errors import UsageError
from kbtui.state.run_state import RunState


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


@pytest.mark.parametrize(
    ("device", "asked", "pulls"),
    [
        ("cuda:0", 0, 2),
        ("cuda:0", 1, 1),
        ("cuda:0,cuda:1", 0, 4),
        ("cuda:0,cuda:1", 1, 2),
        ("cpu", 0, 1),
        ("cpu,cpu", 0, 2),
        ("cpu", 5, 5),
    ],
)
def test_as_many_pulls_as_keep_the_devices_busy(
    device: str, asked: int, pulls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"cpu:{number}" for number in range(2)] if device == "cpu,cpu" else device.split(",")
    monkeypatch.setattr(opening, "choose_devices", lambda _: names)
    spec = RunSpec(problem="softmax", device=device, parallel=asked)
    assert opening.completed(spec, RunState()).parallel == pulls


def test_pulls_in_flight_are_a_number_of_some_size() -> None:
    RunSpec(problem="softmax", parallel=0).check()
    for parallel in (-1, 10_000):
        with pytest.raises(UsageError, match=f"--parallel {parallel}: from 1 to"):
            RunSpec(problem="softmax", parallel=parallel).check()
