"""Lanes on the nodes of a Ray cluster, seen from the run process: `kbtui run --lanes ray --address ADDRESS`.

One actor for each lane holds a lane as a machine by itself has it (`ray_actor`). Ray chooses the node and shows the actor one
GPU. An actor that is lost, with its node or alone, is a device that fell out: the engine does its work again elsewhere.
"""

from __future__ import annotations

import contextlib
from typing import TypeVar

import msgspec

from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.evaluate import ray_client
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.ray_parcel import packed
from kbtui.evaluate.ray_wire import Call, Cancel, Close, Node, Open, Request
from kbtui.evaluate.selftest import SelfTest
from kbtui.state.records import Compilation, KernelFacts, Timing, Verification

T = TypeVar("T")


def cluster_devices(address: str) -> tuple[str, ...]:
    """A device for each GPU of the cluster, by the names that the run gives them; one on `cpu` where it has none.

    Raises as `ray_client.acquire`.
    """
    with ray_client.connection(address) as link:
        gpus = int(link.ready.resources.get("GPU", 0))
    return tuple(f"cuda:{number}" for number in range(gpus)) or ("cpu",)


class RayLane(Lane):
    """See `Lane`. `spec.cluster` is the address, `spec.device` says what the lane needs and not which GPU it gets."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._link: ray_client.Link | None = None
        self._number = 0

    # life

    def start(self) -> LaneFacts:
        try:
            self.facts = self._start()
        except BaseException:
            self.close()
            raise
        return self.facts

    def _start(self) -> LaneFacts:
        spec = self._spec
        shipment = msgspec.json.encode(packed(spec))
        link = self._link = ray_client.acquire(spec.cluster)
        self._number = link.number()
        asked = Open(
            number=link.number(),
            lane=self._number,
            needs={"CPU": 1.0} if spec.device == "cpu" else {"CPU": 1.0, "GPU": 1.0},
            threads=spec.compilers + 4,  # the lane's own, reports, cancels and the end
            shipment=msgspec.Raw(shipment),
        )
        node = msgspec.json.decode(link.ask(asked, _unheard), type=Node)
        facts = self._ask(Request(method="start"), LaneFacts, _unheard)
        return msgspec.structs.replace(
            facts,
            problem=msgspec.structs.replace(facts.problem, path=str(spec.problem)),
            versions={**facts.versions, "ray": link.ready.ray, "node": node.host},
        )

    def close(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        with contextlib.suppress(KbtuiError):
            link.ask(Close(number=link.number(), lane=self._number), _unheard)
        ray_client.release(link)

    def cancel(self, source: str | None = None) -> None:
        if (link := self._link) is not None:
            with contextlib.suppress(EnvironmentFailure):  # what is to be ended has ended
                link.tell(Cancel(lane=self._number, source=source))

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

    def _ask(self, request: Request, kind: type[T], report: Report) -> T:
        link = self._link
        if link is None:
            raise EnvironmentFailure(f"the lane in the cluster ({self._spec.cluster}) has ended")
        asked = Call(number=link.number(), lane=self._number, request=request)
        return msgspec.json.decode(link.ask(asked, report), type=kind)


def _unheard(stage: str, text: str) -> None:
    """Progress that nobody reads."""
