"""A lane on a node of a Ray cluster: the actor that holds it, and what travels between it and the run process.

Everything travels as JSON that msgspec checks on arrival, errors included; Ray pickles bytes and numbers only. The problem comes
as data, since nodes need not share a file system, and the lane here is the one of a machine by itself: its own oracle, its own
isolation, its own lock on the device.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

import kbtui
from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate import isolation
from kbtui.evaluate.lane import Lane, LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.problems.importing import problem_digest
from kbtui.state.records import KernelFacts, Timing

MOST_BYTES = 64 << 20
"""Of a problem's files. Inputs are made on the node, so that a problem is a few kilobytes."""


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and how its lane is made. `files` are by path within the problem's folder, `digest` what must come of them."""

    name: str
    files: dict[str, bytes]
    digest: str
    device: str
    target: str
    seed: int
    objective: str
    deadline_s: float
    compilers: int
    lanes: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a lane's method, with the arguments that it takes."""

    method: Literal["start", "compile", "verify", "confirm", "selftest", "time"]
    source: str = ""
    kernels: tuple[KernelFacts, ...] = ()
    baseline: Timing | None = None
    baseline_source: str = ""
    parent: Timing | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the method returned, as JSON, or what it raised."""

    kind: Literal["done", "environment", "problem"]
    text: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Where an actor runs."""

    host: str
    kbtui: str
    python: str


class LaneActor:
    """Holds one lane. Its methods are called from several threads at once, as those of a lane may be."""

    def __init__(self, shipment: bytes) -> None:
        isolation.harden_run_process()
        self._order = msgspec.json.decode(shipment, type=Shipment)
        self._folder = Path(tempfile.mkdtemp(prefix="kbtui-ray-"))
        self._lane: Lane | None = None
        self._said: dict[int, list[tuple[str, str]]] = {}
        self._lock = threading.Lock()

    def node(self) -> bytes:
        """A `Node`."""
        found = Node(host=socket.gethostname(), kbtui=kbtui.__version__, python=sys.version.split()[0])
        return msgspec.json.encode(found)

    def call(self, number: int, request: bytes) -> bytes:
        """Do what a `Request` asks and return a `Reply`. What is reported on the way is under `number` for `said`."""
        asked = msgspec.json.decode(request, type=Request)
        with self._lock:
            self._said[number] = []
        try:
            value = self._do(asked, lambda stage, text: self._said[number].append((stage, text)))
            reply = Reply(kind="done", value=msgspec.Raw(msgspec.json.encode(value)))
        except EnvironmentFailure as failure:
            reply = Reply(kind="environment", text=str(failure))
        except ProblemError as error:
            reply = Reply(kind="problem", text=str(error))
        return msgspec.json.encode(reply)

    def said(self, number: int) -> list[tuple[str, str]]:
        """What was reported by a call since this was last asked."""
        with self._lock:
            reports = self._said.get(number, [])
            taken = reports[:]
            del reports[: len(taken)]
        return taken

    def forget(self, number: int) -> None:
        """The call has been answered and nobody asks for its reports any more."""
        with self._lock:
            self._said.pop(number, None)

    def cancel(self, source: str | None) -> None:
        if self._lane is not None:
            self._lane.cancel(source)

    def close(self) -> None:
        """End the lane and remove what was shipped. May be called twice."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, asked: Request, report: Any) -> Any:
        if asked.method == "start":
            return self._start()
        lane = self._lane
        if lane is None:
            raise EnvironmentFailure("its lane has ended")
        match asked.method:
            case "compile":
                return lane.compile(asked.source, report)
            case "verify":
                return lane.verify(asked.source, asked.kernels, report)
            case "confirm":
                return lane.confirm(asked.source, asked.kernels, report)
            case "selftest":
                return lane.selftest(report)
            case "time":
                return lane.time(
                    asked.source, asked.kernels, asked.baseline, asked.baseline_source, asked.parent, report
                )

    def _start(self) -> Any:
        order = self._order
        problem = unpacked(order, self._folder / "problem")
        spec = LaneSpec(
            problem=problem,
            device=order.device,
            target=order.target,
            python=sys.executable,
            scratch=self._folder / "lane",
            seed=order.seed,
            objective=order.objective,
            deadline_s=order.deadline_s,
            compilers=order.compilers,
            lanes=order.lanes,
        )
        self._lane = open_lane(spec)
        return self._lane.start()


def packed(folder: Path, spec: LaneSpec, digest: str) -> Shipment:
    """A problem's folder as data. Raises ProblemError when it is too large to ship, or cannot be read."""
    files: dict[str, bytes] = {}
    try:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                files[file.relative_to(folder).as_posix()] = file.read_bytes()
                if sum(map(len, files.values())) > MOST_BYTES:
                    raise ProblemError(
                        f"{folder} holds more than {MOST_BYTES >> 20} MiB: keep only what the problem needs there, "
                        "so that it can be sent to the cluster's nodes"
                    )
    except OSError as error:
        raise ProblemError(f"{error.filename} cannot be read ({error.strerror}): mend that and try again") from error
    return Shipment(
        name=folder.name,
        files=files,
        digest=digest,
        device=spec.device if spec.device == "cpu" else "cuda:0",  # the one GPU that Ray shows to the actor
        target=spec.target,
        seed=spec.seed,
        objective=spec.objective,
        deadline_s=spec.deadline_s,
        compilers=spec.compilers,
        lanes=spec.lanes,
    )


def unpacked(shipment: Shipment, place: Path) -> Path:
    """Write a problem into `place`, under its name; the folder. Raises EnvironmentFailure when it is not what was sent."""
    folder = place / shipment.name
    for name, content in shipment.files.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise EnvironmentFailure(f"a problem came with a file outside its folder: {name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    if (found := problem_digest(folder)) != shipment.digest:
        raise EnvironmentFailure(f"the problem came with digest {found[:12]} where {shipment.digest[:12]} was sent")
    return folder
