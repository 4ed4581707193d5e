"""Runs and lanes in real Ray clusters of lanes on `cpu`, on loopback: one that loses an actor, one that loses a node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kbtui.errors import UsageError
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.ray_lane import RayLane, cluster_devices
from kbtui.problems.folder import find_problem

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra kbtui[ray]"),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra kbtui[torch]"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
PROBLEM = find_problem("vector_add")
KEY = "sk-planted-0123456789abcdef"
ON_LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's only way to stay on loopback
    "RAY_health_check_period_ms": "1000",  # a lost node is noticed in seconds
    "RAY_health_check_failure_threshold": "3",
}


def birth(pid: int) -> str | None:
    """When the process began, in the kernel's ticks; None when it is gone. A number alone may be another's by now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def descendants(of: int) -> dict[int, str]:
    """All processes below one, by pid, with when they began."""
    found: dict[int, str] = {}
    todo = [of]
    while todo:
        for children in Path(f"/proc/{todo.pop()}/task").glob("*/children"):  # of every thread
            with contextlib.suppress(OSError):
                pids = [int(pid) for pid in children.read_text().split()]
                todo += pids
                found |= {pid: began for pid in pids if (began := birth(pid)) is not None}
    return found


def left_of(processes: dict[int, str], within_s: float = 20.0) -> list[int]:
    """Which of them still run after that time."""
    end = time.monotonic() + within_s
    while (left := [pid for pid, began in processes.items() if birth(pid) == began]) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def named(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def listening(pids: set[int]) -> set[str]:
    """Addresses that processes listen on for TCP, as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").rstrip("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


@dataclass
class Finished:
    events: list[dict[str, Any]]
    summary: dict[str, Any]
    status: int

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


def run(folder: Path, *arguments: str, at_third: Callable[[int], None], extra: dict[str, str]) -> Finished:
    """A headless run of eight pulls; `at_third` is given its pid when three candidates have been verified."""
    command = [
        sys.executable, "-P", "-m", "kbtui", "run", "vector_add", "--iterations", "8", "--headless", "--json",
        "--no-dispatch", "--lanes", "ray", *arguments,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env={**os.environ, **extra}, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines: list[dict[str, Any]] = []
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for line in process.stdout:
            lines.append(json.loads(line))
            if lines[-1].get("type") == "verified" and sum(each.get("type") == "verified" for each in lines) == 3:
                at_third(process.pid)
        status = process.wait(60)
        words = process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert words == "", words
    return Finished(lines[:-1], lines[-1], status)


def require_whole(done: Finished) -> str:
    """All eight pulls are there, once each, though one device was lost: its name."""
    assert done.status == 0
    assert (done.summary["stopped_by"], done.summary["pulls"]) == ("iterations", 8)
    (dropped,) = done.of("device_dropped")
    assert done.summary["dropped"] == [dropped["device"]]
    assert "was lost" in dropped["reason"]
    assert len(done.of("selected")) == len(done.of("rewarded")) == 8
    assert [event["seq"] for event in done.events] == list(range(1, len(done.events) + 1))
    for kind in ("verified", "compiled"):
        of = [event["candidate_id"] for event in done.of(kind)]
        assert len(set(of)) == len(of), f"{kind} twice"
    (other,) = {"cpu:0", "cpu:1"} - {dropped["device"]}
    after = [event for event in done.of("verified") if event["seq"] > dropped["seq"]]
    assert after
    assert {event["device"] for event in after} == {other}
    return str(dropped["device"])


# ---------------------------------------------------------------- a cluster of the run alone


def test_a_run_goes_on_when_an_actor_is_lost(tmp_path: Path) -> None:
    """No key gets into any process of the cluster, all of it is on loopback, no file of the working folder is imported, and
    nothing is left of it."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('a file of the working folder was imported')")
    processes: dict[int, str] = {}
    seen: dict[str, Any] = {}

    def lose_one(pid: int) -> None:
        processes.update(descendants(pid))
        actors = [each for each in processes if named(each).startswith("ray::LaneActor")]
        seen["actors"] = len(actors)
        seen["keys"] = [named(each) for each in processes if KEY.encode() in Path(f"/proc/{each}/environ").read_bytes()]
        seen["addresses"] = listening(set(processes))
        os.kill(actors[-1], signal.SIGKILL)

    done = run(tmp_path, "--address", "local", "--device", "cpu,cpu", at_third=lose_one, extra={"OPENAI_API_KEY": KEY})
    assert seen["actors"] == 2
    assert seen["keys"] == []
    # 127.0.0.1, and the same written as an IPv6 address
    assert seen["addresses"]
    assert seen["addresses"] <= {"0100007F", "0000000000000000FFFF00000100007F"}
    require_whole(done)
    (started,) = done.of("run_started")
    assert (started["cluster"], started["lanes"]) == ("local", ["cpu:0", "cpu:1"])
    assert started["problem"]["path"] == str(PROBLEM.path)
    assert left_of(processes) == []


# ---------------------------------------------------------------- a cluster that was there before


@dataclass
class Nodes:
    address: str
    raylet: int
    """Of the second node."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes with a processor each."""
    program = Path(__file__).with_name("ray_nodes.py")
    process = subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, **ON_LOOPBACK},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Nodes(**json.loads(process.stdout.readline()))
        processes = descendants(process.pid)
        process.stdin.close()
        process.wait(60)
        assert left_of(processes) == []
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ON_LOOPBACK.items():
        monkeypatch.setenv(name, value)


def lane_in(nodes: Nodes, tmp_path: Path) -> RayLane:
    spec = LaneSpec(
        problem=PROBLEM.path, device="cpu", python=sys.executable, scratch=tmp_path / "lane", cluster=nodes.address
    )
    return RayLane(spec)


HANGS = """
import triton, triton.language as tl
def vector_add(x, y):
    while True:
        pass
"""


@pytest.mark.usefixtures("on_loopback")
def test_a_lane_on_a_node(nodes: Nodes, tmp_path: Path) -> None:
    """Verdicts, reports, a cancel on the way, a lane too many, and the end."""
    assert cluster_devices(nodes.address) == ("cpu",)
    lanes = [lane_in(nodes, tmp_path) for _ in range(3)]
    lane = lanes[0]
    try:
        facts = lane.start()
        assert facts.problem.path == str(PROBLEM.path)
        assert facts.versions["ray"]
        reports: list[tuple[str, str]] = []
        compiled = lane.compile(PROBLEM.kernel_source, lambda *said: reports.append(said))
        assert compiled.ok
        verified = lane.verify(PROBLEM.kernel_source, compiled.kernels, lambda *said: reports.append(said))
        assert verified.verdict == "correct"
        assert reports
        threading.Timer(3.0, lane.cancel, [HANGS]).start()
        cancelled = lane.verify(HANGS, compiled.kernels, lambda *_: None)
        assert (cancelled.verdict, cancelled.reason) == ("unknown", "cancelled")
        lanes[1].start()
        with pytest.raises(UsageError, match="has 2 processors and 3 lanes would take one each"):
            lanes[2].start()
    finally:
        for each in lanes:
            each.close()
            each.close()


@pytest.mark.usefixtures("on_loopback")
def test_a_run_goes_on_when_a_node_is_lost(nodes: Nodes, tmp_path: Path) -> None:
    """The last test of the file: the cluster has one node afterwards."""
    done = run(
        tmp_path,
        "--address",
        nodes.address,
        "--device",
        "cpu,cpu",
        at_third=lambda _: os.kill(nodes.raylet, signal.SIGKILL),
        extra={},
    )
    require_whole(done)
