"""Lanes on the nodes of a Ray cluster, seen from the run process: `kbtui run --lanes ray --address ADDRESS`.

One actor for each lane holds a lane as a machine by itself has it (`ray_actor`). Ray chooses the node and shows the actor one
GPU. An actor that is lost, with its node or alone, is a device that fell out: the engine does its work again elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

import kbtui
from kbtui.errors import EnvironmentFailure, ProblemError, UsageError
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.ray_actor import LaneActor, Node, Reply, Request, packed
from kbtui.evaluate.selftest import SelfTest
from kbtui.problems.folder import read_folder
from kbtui.state.records import Compilation, KernelFacts, Timing, Verification
from kbtui.text import clean_line, is_secret_name

T = TypeVar("T")
REACH_S = 5.0
"""How long a cluster may take to answer at its address at all."""
PLACED_S = 60.0
"""How long an actor may wait for a free GPU or processor: those of another run do not come free soon."""
POLL_S = 0.2
"""How often the reports of a call are fetched."""
END_S = 15.0
_connecting = threading.Lock()
_lanes: set[int] = set()
"""Those of this process that have an actor: with the last one its connection ends, and a cluster of its own."""


def connected(address: str) -> Any:
    """The module ray, connected to the cluster at `address` ("auto": the one of this machine; "local": a new one for this process
    alone). Raises UsageError without ray and for an address that is none, EnvironmentFailure for a cluster that does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # what Ray prints would be among the lines of --json
    try:
        import ray
    except ImportError:
        raise UsageError("ray is not installed: pip install 'kbtui[ray]'") from None
    _require_reachable(address)
    with _connecting:
        if not ray.is_initialized():
            _connect(ray, address)
    return ray


def _require_reachable(address: str) -> None:
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(
            f"--address {address} is no address: give HOST:PORT, auto for this machine's cluster, or local"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFailure(
            f"no cluster answers at {address} ({error}): start one with `ray start --head --port={port}` there"
        ) from error


def _connect(ray: Any, address: str) -> None:
    own = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address == "local" else {}
    try:
        with _without_secrets():
            ray.init(address=address, namespace="kbtui", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        said = clean_line(str(error).partition("\n")[0], 200)
        raise EnvironmentFailure(f"the cluster at {address} does not take this process: {said}") from error


@contextlib.contextmanager
def _without_secrets() -> Iterator[None]:
    """A cluster that this process starts inherits its environment, and so would every worker."""
    kept = {name: value for name, value in os.environ.items() if is_secret_name(name)}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


def cluster_devices(address: str) -> tuple[str, ...]:
    """A device for each GPU of the cluster, by the names that the run gives them; one on `cpu` where it has none.

    Raises as `connected`.
    """
    gpus = int(connected(address).cluster_resources().get("GPU", 0))
    return tuple(f"cuda:{number}" for number in range(gpus)) or ("cpu",)


class RayLane(Lane):
    """See `Lane`. `spec.cluster` is the address, `spec.device` says what the lane needs and not which GPU it gets."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._problem = read_folder(spec.problem)
        self._numbers = itertools.count()
        self._actor: Any = None
        self._where = spec.cluster
        self._ray: Any = None

    # life

    def start(self) -> LaneFacts:
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> LaneFacts:
        ray = self._ray = connected(self._spec.cluster)
        shipment = packed(self._problem.path, self._spec, self._problem.digest)
        needs = {"num_cpus": 1} if self._spec.device == "cpu" else {"num_gpus": 1, "num_cpus": 1}
        # threads for the lane, its compilers, reports and cancels
        options = {**needs, "max_restarts": 0, "max_concurrency": self._spec.compilers + 4}
        self._actor = ray.remote(LaneActor).options(**options).remote(msgspec.json.encode(shipment))
        with _connecting:
            _lanes.add(id(self))
        node = self._placed()
        if node.kbtui != kbtui.__version__:
            raise UsageError(
                f"{node.host} has kbtui {node.kbtui} and this machine {kbtui.__version__}: install one version on all nodes"
            )
        self._where = f"node {node.host} of the cluster ({self._spec.cluster})"
        facts = self._ask(Request(method="start"), LaneFacts, _unheard)
        problem = msgspec.structs.replace(facts.problem, path=str(self._spec.problem))
        versions = {**facts.versions, "ray": str(ray.__version__), "node": node.host}
        self.facts = msgspec.structs.replace(facts, problem=problem, versions=versions)
        return self.facts

    def _placed(self) -> Node:
        ray = self._ray
        what = "processor" if self._spec.device == "cpu" else "GPU"
        try:
            return msgspec.json.decode(ray.get(self._actor.node.remote(), timeout=PLACED_S), type=Node)
        except ray.exceptions.GetTimeoutError as error:
            raise EnvironmentFailure(
                f"the cluster ({self._spec.cluster}) had no free {what} for a lane within {PLACED_S:.0f} s: "
                "`ray status` says who has them"
            ) from error
        except ray.exceptions.RayError as error:
            raise EnvironmentFailure(
                f"a lane could not start in the cluster ({self._spec.cluster}; {_first_line(error)}): "
                "kbtui has to be installed on all nodes"
            ) from error

    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is None:
            return
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(actor.close.remote(), timeout=END_S)
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)
        with _connecting:
            _lanes.discard(id(self))
            if not _lanes:
                self._ray.shutdown()

    def cancel(self, source: str | None = None) -> None:
        if self._actor is not None:
            self._actor.cancel.remote(source)

    # jobs

    def compile(self, source: str, report: Report) -> Compilation:
        return self._ask(Request(method="compile", source=source), Compilation, report)

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        return self._ask(Request(method="verify", source=source, kernels=kernels), Verification, report)

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        return self._ask(Request(method="confirm", source=source, kernels=kernels), Verification, report)

    def selftest(self, report: Report) -> SelfTest:
        return self._ask(Request(method="selftest"), SelfTest, report)

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        asked = Request(
            method="time",
            source=source,
            kernels=kernels,
            baseline=baseline,
            baseline_source=baseline_source,
            parent=parent,
        )
        return self._ask(asked, Evaluated, report)

    def _ask(self, asked: Request, kind: type[T], report: Report) -> T:
        actor, ray = self._actor, self._ray
        if actor is None:
            raise EnvironmentFailure(f"the lane on {self._where} has ended")
        number = next(self._numbers)
        try:
            answer = actor.call.remote(number, msgspec.json.encode(asked))
            done: list[Any] = []
            while not done:
                done, _ = ray.wait([answer], timeout=POLL_S)
                for stage, text in ray.get(actor.said.remote(number)):
                    report(stage, text)
            actor.forget.remote(number)
            reply = msgspec.json.decode(ray.get(answer), type=Reply)
        except ray.exceptions.RayError as error:
            raise EnvironmentFailure(f"the lane on {self._where} was lost: {_first_line(error)}") from error
        if reply.kind == "environment":
            raise EnvironmentFailure(reply.text)
        if reply.kind == "problem":
            raise ProblemError(reply.text)
        return msgspec.json.decode(reply.value, type=kind)


def _unheard(stage: str, text: str) -> None:
    """Progress that nobody reads."""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return clean_line(lines[0], 160) if lines else type(error).__name__
