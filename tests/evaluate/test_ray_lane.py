"""Lanes in a Ray cluster: what travels, what is refused, and a run on a real local cluster that loses a lane on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from kbtui.errors import EnvironmentFailure, ProblemError, UsageError
from kbtui.evaluate import ray_actor, ray_lane
from kbtui.evaluate.lane import Evaluated, LaneFacts, LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.evaluate.ray_actor import LaneActor, Reply, Request, packed, unpacked
from kbtui.problems.folder import find_problem
from kbtui.state.records import Compilation, Verification

PROBLEM = find_problem("vector_add")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra kbtui[ray]")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra kbtui[torch]")


def spec_for(tmp_path: Path, cluster: str = "auto") -> LaneSpec:
    return LaneSpec(
        problem=PROBLEM.path, device="cpu", python=sys.executable, scratch=tmp_path / "lane", cluster=cluster
    )


# ---------------------------------------------------------------- what travels


def test_a_problem_arrives_as_it_was_sent(tmp_path: Path) -> None:
    shipment = packed(PROBLEM.path, spec_for(tmp_path), PROBLEM.digest)
    over = msgspec.json.decode(msgspec.json.encode(shipment), type=ray_actor.Shipment)
    folder = unpacked(over, tmp_path / "there")
    assert folder.name == "vector_add"
    assert (folder / "kernel.py").read_text() == PROBLEM.kernel_source
    assert over.device == "cpu"


def test_another_problem_than_was_sent_is_refused(tmp_path: Path) -> None:
    shipment = packed(PROBLEM.path, spec_for(tmp_path), PROBLEM.digest)
    changed = msgspec.structs.replace(shipment, files={**shipment.files, "kernel.py": b"def vector_add(): ..."})
    with pytest.raises(EnvironmentFailure, match=f"where {PROBLEM.digest[:12]} was sent"):
        unpacked(changed, tmp_path / "there")


def test_nothing_is_written_beside_the_folder(tmp_path: Path) -> None:
    shipment = packed(PROBLEM.path, spec_for(tmp_path), PROBLEM.digest)
    outside = msgspec.structs.replace(shipment, files={**shipment.files, "../../outside.py": b"1"})
    with pytest.raises(EnvironmentFailure, match="outside its folder"):
        unpacked(outside, tmp_path / "there")
    assert not (tmp_path / "outside.py").exists()


def test_a_folder_of_many_megabytes_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actor, "MOST_BYTES", 100)
    with pytest.raises(ProblemError, match="keep only what the problem needs"):
        packed(PROBLEM.path, spec_for(tmp_path), PROBLEM.digest)


def test_a_gpu_of_a_cluster_is_the_first_that_its_actor_sees(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(spec_for(tmp_path), device="cuda:5")
    assert packed(PROBLEM.path, spec, PROBLEM.digest).device == "cuda:0"


@needs_torch
def test_an_actor_judges_as_a_lane_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Ray: its methods, by what travels. The lane in it is a real one."""
    monkeypatch.setattr(ray_actor.isolation, "harden_run_process", lambda: "on")
    actor = LaneActor(msgspec.json.encode(packed(PROBLEM.path, spec_for(tmp_path), PROBLEM.digest)))
    folder = actor._folder

    def ask(number: int, request: Request) -> Reply:
        return msgspec.json.decode(actor.call(number, msgspec.json.encode(request)), type=Reply)

    try:
        assert ask(0, Request(method="selftest")).kind == "environment"  # before it started
        facts = msgspec.json.decode(ask(1, Request(method="start")).value, type=LaneFacts)
        assert (facts.problem.name, facts.problem.digest) == ("vector_add", PROBLEM.digest)
        source = PROBLEM.kernel_source
        compiled = msgspec.json.decode(ask(2, Request(method="compile", source=source)).value, type=Compilation)
        assert compiled.ok
        asked = Request(method="verify", source=source, kernels=compiled.kernels)
        found = msgspec.json.decode(ask(3, asked).value, type=Verification)
        assert (found.verdict, found.cases_checked > 10) == ("correct", True)
        said = actor.said(3)
        assert said
        assert all(stage and isinstance(text, str) for stage, text in said)
        assert actor.said(3) == []
        actor.forget(3)
        timed = Request(method="time", source=source, kernels=compiled.kernels, baseline_source=source)
        evaluated = msgspec.json.decode(ask(4, timed).value, type=Evaluated)
        assert evaluated.timing.kind == "modelled"
        wrong = source.replace("x + y", "x - y")
        assert wrong != source
        asked = Request(method="verify", source=wrong, kernels=compiled.kernels)
        assert msgspec.json.decode(ask(5, asked).value, type=Verification).verdict == "wrong"
        actor.cancel(None)
    finally:
        actor.close()
        actor.close()
    assert not folder.exists()


# ---------------------------------------------------------------- what is refused


def test_without_ray_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^ray is not installed: pip install 'kbtui\[ray\]'$"):
        open_lane(spec_for(tmp_path)).start()


@needs_ray
@pytest.mark.parametrize("address", ["nonsense", "host:port", "ray://127.0.0.1", ":1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match=f"--address {address} is no address: give HOST:PORT"):
        ray_lane.connected(address)


@needs_ray
def test_a_cluster_that_does_not_answer() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        port = held.getsockname()[1]
        with pytest.raises(EnvironmentFailure, match=f"no cluster answers at 127.0.0.1:{port}"):
            ray_lane.connected(f"127.0.0.1:{port}")


def test_an_address_without_lanes_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from kbtui.cli import main as program

    assert program.main(["run", "vector_add", "--address", "127.0.0.1:1", "--headless"]) == 2
    assert "--address is for --lanes ray" in capsys.readouterr().err


# ---------------------------------------------------------------- a real cluster

KEY = "sk-planted-0123456789abcdef"


def lane_actors(of: int) -> list[int]:
    """Processes that hold a lane, among the descendants of a process."""
    found, todo = [], [of]
    while todo:
        pid = todo.pop()
        try:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):  # of every thread
                todo += map(int, children.read_text().split())
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::LaneActor"):
                found.append(pid)
        except OSError:
            continue
    return found


@needs_ray
@needs_torch
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_in_a_cluster_goes_on_when_a_lane_is_lost(tmp_path: Path) -> None:
    """A cluster of this process alone, two lanes on cpu. One actor is killed in the third pull; no key gets into either."""
    command = [
        sys.executable, "-m", "kbtui", "run", "vector_add", "--lanes", "ray", "--address", "local",
        "--device", "cpu,cpu", "--iterations", "8", "--headless", "--json", "--no-dispatch",
    ]  # fmt: skip
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    run = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killed: list[int] = []
    events = []
    assert run.stdout is not None
    try:
        for line in run.stdout:
            events.append(json.loads(line))
            if not killed and sum(event.get("type") == "verified" for event in events) == 3:
                actors = lane_actors(run.pid)
                assert len(actors) == 2
                for pid in actors:
                    assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
                os.kill(actors[-1], signal.SIGKILL)
                killed = actors[-1:]
        assert run.wait(60) == 0, run.stderr.read() if run.stderr is not None else ""
    finally:
        run.kill()
        run.communicate()
    summary = events.pop()  # the last line is no event
    assert (summary["stopped_by"], summary["pulls"]) == ("iterations", 8)
    (lost,) = summary["dropped"]
    assert lost in ("cpu:0", "cpu:1")  # which actor is whose, only the cluster knows
    kinds = [event["type"] for event in events]
    assert kinds.count("device_dropped") == 1
    (dropped,) = [event for event in events if event["type"] == "device_dropped"]
    assert dropped["device"] == lost
    assert "was lost" in dropped["reason"]
    assert kinds.count("selected") == kinds.count("rewarded") == 8
    (started,) = [event for event in events if event["type"] == "run_started"]
    assert (started["cluster"], started["lanes"]) == ("local", ["cpu:0", "cpu:1"])
    assert started["problem"]["path"] == str(PROBLEM.path)
    verified = [event for event in events if event["type"] == "verified"]
    assert len({event["candidate_id"] for event in verified}) == len(verified)  # none twice
    assert lane_actors(run.pid) == []
