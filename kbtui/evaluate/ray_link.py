"""The process that is connected to a Ray cluster: `python -m kbtui.evaluate.ray_link FD ADDRESS`, started by `ray_client`.

Not the run process itself, because Ray ends the process that it is in when the cluster's head is gone; waits without end for a
port that is not Ray's; gives its environment to a cluster that it starts; puts the working directory first where actors import
from; and writes to the terminal. Here all that meets a process without keys, in an empty folder, that can be ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

import kbtui
from kbtui.errors import EnvironmentFailure, KbtuiError, UsageError
from kbtui.evaluate.ray_wire import (
    Asked,
    Call,
    Cancel,
    Close,
    Done,
    Failed,
    Node,
    Open,
    Ready,
    Reply,
    Said,
    Told,
    error_of,
)
from kbtui.text import clean_line, plural

PLACED_S = 60.0
"""How long an actor may wait for a free GPU or processor: those of another run do not come free soon."""
POLL_S = 0.2
"""How often the reports of a call are fetched."""
END_S = 12.0
STORE_BYTES = 80 << 20
"""Of the object store of a cluster of one's own, near the least that Ray takes: what travels is kilobytes."""
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")


def main(arguments: list[str]) -> int:
    peer = socket.socket(fileno=int(arguments[0]))
    peer.set_inheritable(False)  # a process of the cluster must not keep it open
    speaking = threading.Lock()

    def tell(told: Told) -> None:
        with speaking, contextlib.suppress(OSError):  # nobody listens any more: the loop below ends
            peer.sendall(msgspec.json.encode(told) + b"\n")

    address = arguments[1]
    try:
        ray = connected(address)  # in the main thread: what Ray starts dies with the thread that started it
    except KbtuiError as error:
        tell(Failed(number=0, error=type(error).__name__, text=str(error)))
        return 1
    desk = Desk(ray, address, tell)
    tell(Ready(resources=ray.cluster_resources(), ray=ray.__version__))
    for line in peer.makefile("rb"):
        threading.Thread(target=desk.do, args=(msgspec.json.decode(line, type=Asked),), daemon=True).start()
    desk.end()
    ray.shutdown()
    return 0


def connected(address: str) -> Any:
    """The module ray, connected to the cluster at `address` ("auto": the one of this machine; "local": a new one on loopback, for
    this process alone). Raises UsageError for other versions there, EnvironmentFailure for a cluster that does not take us."""
    import ray

    own: dict[str, Any] = {}
    if address == "local":
        own = {
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": os.getcwd(),
        }
    try:
        ray.init(address=address, namespace="kbtui", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _refused(address, str(error)) from error
    return ray


def _refused(address: str, said: str) -> KbtuiError:
    """What Ray said when it did not connect, in our words."""
    versions = _VERSIONS.findall(said)
    if len(versions) == 2:
        (their_ray, their_python), (our_ray, our_python) = versions
        return UsageError(
            f"the cluster ({address}) has Ray {their_ray} and Python {their_python}, this machine Ray {our_ray} and Python "
            f"{our_python}: install the same on all machines"
        )
    if address == "auto" and "any running Ray" in said:
        return EnvironmentFailure(
            "no Ray cluster runs on this machine: start one with `ray start --head`, or name one by --address HOST:PORT"
        )
    first = clean_line(said.strip().partition("\n")[0], 200)
    remedy = (
        "is there room in /dev/shm and /tmp?"
        if address == "local"
        else f"this machine has to be one of its nodes, by `ray start --address={address} --num-cpus=0`"
    )
    return EnvironmentFailure(f"the cluster ({address}) does not take this process ({first}): {remedy}")


@dataclass
class _Placed:
    """A lane of ours. `where` names it in sentences."""

    actor: Any
    needs: dict[str, float]
    where: str = ""
    numbers: set[int] = field(default_factory=set)


class Desk:
    """Does what it is asked, each thing in a thread of its own, and tells what came of it."""

    def __init__(self, ray: Any, address: str, tell: Callable[[Told], None]) -> None:
        self._ray, self._cluster, self._tell = ray, f"the cluster ({address})", tell
        self._lanes: dict[int, _Placed] = {}
        self._lock = threading.Lock()

    def do(self, asked: Asked) -> None:
        if isinstance(asked, Cancel):
            if (lane := self._lanes.get(asked.lane)) is not None:
                lane.actor.cancel.remote(asked.source)
            return
        try:
            value = self._answer(asked)
        except KbtuiError as error:
            self._tell(Failed(number=asked.number, error=type(error).__name__, text=str(error)))
        except Exception as error:  # noqa: BLE001  (whoever asked waits for an answer)
            said = clean_line(f"{type(error).__name__}: {error}", 200)
            text = f"the connection to {self._cluster} failed: {said}"
            self._tell(Failed(number=asked.number, error="EnvironmentFailure", text=text))
        else:
            self._tell(Done(number=asked.number, value=msgspec.Raw(value)))

    def end(self) -> None:
        """End all lanes, beside one another."""
        threads = [threading.Thread(target=self._close, args=(lane,), daemon=True) for lane in tuple(self._lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(END_S)

    def _answer(self, asked: Open | Call | Close) -> bytes:
        match asked:
            case Open():
                return self._open(asked)
            case Call():
                return self._call(asked)
            case Close():
                self._close(asked.lane)
                return b"null"

    def _open(self, asked: Open) -> bytes:
        from kbtui.evaluate.ray_actor import LaneActor

        options = {
            "num_cpus": asked.needs["CPU"],
            "num_gpus": asked.needs.get("GPU", 0),
            "max_restarts": 0,
            "max_concurrency": asked.threads,
            "scheduling_strategy": "SPREAD",
        }
        with self._lock:
            self._require_room(asked.needs)
            actor = self._ray.remote(LaneActor).options(**options).remote(bytes(asked.shipment))
            lane = self._lanes[asked.lane] = _Placed(actor, asked.needs)
        try:
            node = self._node_of(lane)
            if node.kbtui != kbtui.__version__:
                raise UsageError(
                    f"{node.host} has kbtui {node.kbtui} and this machine {kbtui.__version__}: install one version on all nodes"
                )
        except BaseException:
            self._close(asked.lane)
            raise
        lane.where = f"node {node.host} of {self._cluster}"
        return msgspec.json.encode(node)

    def _require_room(self, needs: dict[str, float]) -> None:
        """Raises UsageError for more lanes than the cluster could ever have at a time."""
        there = self._ray.cluster_resources()
        what = "GPU" if "GPU" in needs else "CPU"
        wanted = needs[what] + sum(lane.needs.get(what, 0) for lane in self._lanes.values())
        if wanted > there.get(what, 0):
            name = "GPU" if what == "GPU" else "processor"
            has = plural(int(there[what]), name) if there.get(what) else f"no {name}"
            raise UsageError(
                f"{self._cluster} has {has} and {plural(int(wanted), 'lane')} would take one each: name fewer devices by "
                "--device, or add nodes"
            )

    def _node_of(self, lane: _Placed) -> Node:
        """Where Ray put the actor, once it has."""
        ray, errors = self._ray, self._ray.exceptions
        what = "GPU" if "GPU" in lane.needs else "processor"
        try:
            return msgspec.json.decode(ray.get(lane.actor.node.remote(), timeout=PLACED_S), type=Node)
        except errors.GetTimeoutError as error:
            raise EnvironmentFailure(
                f"{self._cluster} had no free {what} for a lane within {PLACED_S:.0f} s: `ray status` says who has them"
            ) from error
        except errors.RayError as error:
            raise EnvironmentFailure(
                f"a lane does not start in {self._cluster} ({self._words(error)}): kbtui has to be installed on all nodes"
            ) from error

    def _call(self, asked: Call) -> bytes:
        ray, lane = self._ray, self._lanes.get(asked.lane)
        if lane is None:
            raise EnvironmentFailure(f"the lane in {self._cluster} has ended")
        try:
            answer = lane.actor.call.remote(asked.number, msgspec.json.encode(asked.request))
            done: list[Any] = []
            while not done:
                done, _ = ray.wait([answer], timeout=POLL_S)
                said = ray.get(lane.actor.said.remote(asked.number))
                for stage, text in msgspec.json.decode(said, type=list[tuple[str, str]]):
                    self._tell(Said(number=asked.number, stage=stage, text=text))
            lane.actor.forget.remote(asked.number)
            reply = msgspec.json.decode(ray.get(answer), type=Reply)
        except ray.exceptions.RayError as error:
            raise EnvironmentFailure(f"the lane on {lane.where} was lost: {self._words(error)}") from error
        if reply.error:
            raise error_of(reply.error, reply.text)
        return bytes(reply.value)

    def _close(self, number: int) -> None:
        """End a lane, and its actor whether it answers or not. Never raises."""
        ray, lane = self._ray, self._lanes.pop(number, None)
        if lane is None:
            return
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(lane.actor.close.remote(), timeout=END_S if lane.where else 0)
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(lane.actor)

    def _words(self, error: BaseException) -> str:
        """The line of Ray's paragraphs that says it: the first, and of an exception from the actor its own, which is the last."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raised = isinstance(error, self._ray.exceptions.RayTaskError) or "creation task" in lines[0]
        return clean_line(lines[-1 if raised else 0], 160)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
