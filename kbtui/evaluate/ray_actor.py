"""A lane on a node of a Ray cluster: the actor that holds it.

The lane is the one of a machine by itself: its own oracle, its own isolation, its own lock on the device.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from contextlib import ExitStack
from typing import Any

import msgspec

import kbtui
from kbtui import paths
from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.evaluate import isolation
from kbtui.evaluate.lane import Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.lanes import open_lane
from kbtui.evaluate.ray_parcel import unpacked
from kbtui.evaluate.ray_wire import Node, Reply, Request, Shipment
from kbtui.evaluate.scratch import SUFFIX, owned, sweep


class LaneActor:
    """Holds one lane. Its methods are called from several threads at once, as those of a lane may be."""

    def __init__(self, shipment: bytes) -> None:
        isolation.harden_run_process()
        self._shipment = (
            shipment  # read at the start: another version of kbtui may have other fields, and says so before
        )
        self._own = ExitStack()
        self._lane: Lane | None = None
        self._said: dict[int, list[tuple[str, str]]] = {}
        self._lock = threading.Lock()

    def node(self) -> bytes:
        """A `Node`."""
        return msgspec.json.encode(Node(host=socket.gethostname(), kbtui=kbtui.__version__))

    def call(self, number: int, request: bytes) -> bytes:
        """Do what a `Request` asks and return a `Reply`. What is reported on the way is under `number` for `said`."""
        asked = msgspec.json.decode(request, type=Request)
        reports: list[tuple[str, str]] = []
        with self._lock:
            self._said[number] = reports
        try:
            value = self._do(asked, lambda stage, text: reports.append((stage, text)))
            reply = Reply(value=msgspec.Raw(msgspec.json.encode(value)))
        except KbtuiError as error:
            reply = Reply(error=type(error).__name__, text=str(error))
        return msgspec.json.encode(reply)

    def said(self, number: int) -> bytes:
        """What was reported by a call since this was last asked: pairs of stage and text."""
        with self._lock:
            reports = self._said.get(number, [])
        taken = reports[:]
        del reports[: len(taken)]
        return msgspec.json.encode(taken)

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
        self._own.close()

    def _do(self, asked: Request, report: Report) -> Any:
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

    def _start(self) -> LaneFacts:
        sweep()  # an actor that was killed, or whose run was, left its folder
        # A short name: Unix sockets in it may have paths of 107 bytes.
        folder = self._own.enter_context(owned(paths.socket_dir() / f"ray-{secrets.token_hex(4)}{SUFFIX}"))
        shipment = msgspec.json.decode(self._shipment, type=Shipment)
        spec = LaneSpec(
            problem=unpacked(shipment, folder / "problem"),
            device=shipment.device,
            target=shipment.target,
            python=sys.executable,
            scratch=folder / "lane",
            seed=shipment.seed,
            objective=shipment.objective,
            deadline_s=shipment.deadline_s,
            compilers=shipment.compilers,
            lanes=shipment.lanes,
        )
        self._lane = open_lane(spec)
        return self._lane.start()
