"""The worlds that policies are played on offline, and the play: counted pulls, exactness, determinism."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from kbtui.search.registry import POLICIES, make_policy
from kbtui.state.records import CaseInfo, DeviceInfo

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are not part of a source distribution")


@pytest.fixture(scope="module")
def offline() -> Iterator[ModuleType]:
    """The package `offline` with its modules, imported as the benchmarks do."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import offline.grid
        import offline.play
        import offline.simulated

        yield offline
    finally:
        sys.path.remove(str(BENCHMARKS))


def small_grid(offline: Any) -> Any:
    """Four points in a square; the way to the best one leads over a slower one, and one move leads to a wrong version."""
    point = offline.grid.Point
    common: dict[str, Any] = {"ms": (1.0,), "registers": 32, "shared_bytes": 1024, "threads": 128, "occupancy": 50.0}
    return offline.grid.Grid(
        format=offline.grid.FORMAT, problem="p", digest="d", timing="measured", complete=True, versions={}, signatures="ncu",
        device=DeviceInfo(lane="cuda:0", kind="cuda", name="GPU", target="sm_90"), cases=(CaseInfo(name="a", fields={}),),
        moves=("block_size",),
        points=(
            point(speed=1.0, **common),
            point(made=(0, "x"), speed=0.9, dram=50.0, **common),
            point(made=(1, "y"), speed=2.0, low=1.9, high=2.1, **common),
            point(made=(0, "z"), failed="wrong: no"),
        ),
        edges=(
            (0, "tiling", 1), (1, "tiling", 0), (1, "pipeline", 2), (2, "pipeline", 1), (0, "fusion", 3), (2, "tiling", 0),
        ),
    )  # fmt: skip


def test_a_grid_survives_its_file(offline: Any, tmp_path: Path) -> None:
    grid = small_grid(offline)
    path = tmp_path / "g.json"
    offline.grid.write_grid(path, grid)
    assert offline.grid.read_grid(path) == grid


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 0}, "format 0"),
        ({"edges": ((0, "tiling", 9),)}, "a point that it does not have"),
        ({"points": ()}, "no baseline"),
    ],
)
def test_a_grid_that_cannot_be_played_is_refused(
    offline: Any, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "g.json"
    offline.grid.write_grid(path, msgspec.structs.replace(small_grid(offline), **change))
    with pytest.raises(ValueError, match=sentence):
        offline.grid.read_grid(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"g\.json is no grid"):
        offline.grid.read_grid(path)


def test_points_without_a_way_back_are_counted(offline: Any) -> None:
    grid = small_grid(offline)
    assert offline.grid.unconnected(grid) == 0
    one_way = [edge for edge in grid.edges if edge[0] != 2]
    assert offline.grid.unconnected(msgspec.structs.replace(grid, edges=tuple(one_way))) == 1


def test_a_pull_on_a_grid_leads_where_the_move_leads(offline: Any) -> None:
    world = offline.grid.GridWorld(small_grid(offline))
    [start] = world.starts
    generator = np.random.default_rng(0)
    assert world.best == 2.0
    assert world.moves(start) == {
        "tiling": 1, "fusion": 1, "vectorization": 0, "pipeline": 0, "reordering": 0, "access_layout": 0
    }  # fmt: skip
    child = world.pull(start, "tiling", {"0"}, generator)
    assert (child.key, child.speed) == ("1", 0.9)
    assert world.pull(start, "tiling", {"0", "1"}, generator) is None
    assert world.pull(start, "fusion", {"0"}, generator).speed is None
    assert world.expected(child, "pipeline") == pytest.approx(np.log(2.0 / 0.9))
    assert world.expected(start, "tiling") == 0.0


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_finds_the_best_of_a_small_grid(offline: Any, name: str) -> None:
    world = offline.grid.GridWorld(small_grid(offline))
    played = offline.play.Play(world, make_policy(name, {}), 3).run(10)
    assert len(played.best) == 10
    assert played.best[-1] == 2.0
    assert len(played.on_best) == 3  # as many versions as there are beside the baseline
    assert played.best == sorted(played.best)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_play_is_the_same_again_and_counts_its_pulls(offline: Any, name: str) -> None:
    found = []
    for _ in range(2):
        play = offline.play.Play(offline.simulated.SimulatedWorld(3, 5), make_policy(name, {}), 5, parallel=3)
        found.append(play.run(30))
        assert sum(pull.seen for pull in play.state.pulls.values()) == 30
        assert not play.state.open_pulls
    assert found[0] == found[1]
    assert len(found[0].on_best) == 30


def test_an_outcome_is_known_only_after_the_pulls_in_flight(offline: Any) -> None:
    policy = make_policy("ucb", {})
    alone = offline.play.Play(offline.simulated.SimulatedWorld(1, 1), policy, 1, parallel=1)
    beside = offline.play.Play(offline.simulated.SimulatedWorld(1, 1), policy, 1, parallel=4)
    alone.run(8)
    beside.run(8)
    parents = [{pull.parent_id for number, pull in play.state.pulls.items() if number <= 4} for play in (alone, beside)]
    assert parents[1] == {0}
    assert len(parents[0]) > 1


def test_the_simulated_failures_and_gains_are_as_said(offline: Any) -> None:
    world = offline.simulated.SimulatedWorld(1, 7)
    [start] = world.starts
    generator = np.random.default_rng(1)
    for strategy in ("tiling", "fusion"):
        children = [world.pull(start, strategy, set(), generator) for _ in range(4000)]
        failed = sum(child.speed is None for child in children) / len(children)
        assert 0.37 < failed < 0.63
        gains = [max(0.0, float(np.log(child.speed))) if child.speed else 0.0 for child in children]
        assert np.mean(gains) == pytest.approx(world.expected(start, strategy), abs=0.006)
    worn = next(child for child in (world.pull(start, "tiling", set(), generator) for _ in range(50)) if child.speed)
    assert world.expected(worn, "tiling") < world.expected(start, "tiling")
    assert world.expected(worn, "fusion") == world.expected(start, "fusion")
