"""Job "time": a candidate's calls timed on a GPU, a turn at a time.

Two such processes, one for the baseline and one for a candidate, wait for turns from the run process and only one has
the device at a time. Times are taken with events around many launches (a CUDA graph of them): events around a single
launch of a few microseconds measure the CPU. The run process holds a second clock to it (`burst`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from triton.runtime.jit import JITFunction

from kbtui.evaluate.inlane import device, verify
from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.faults import formatted, one_line, said
from kbtui.evaluate.inlane.integrity import Integrity, refuse_tampering
from kbtui.evaluate.inlane.launches import OnDevice
from kbtui.evaluate.inlane.tensors import flatten_outputs

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext

DROPPED_CALLS = 3
"""Calls before a block that are not timed: clocks, caches and the instruction cache settle."""
READING_S = 200e-6
"""Device time that one reading should cover; shorter kernels are launched many times in it."""
MOST_LAUNCHES = 100
LEAST_READINGS = 5
MOST_READINGS = 200
CALLED = 20
LONG_S = 5e-3
"""A call of so long settles within itself and is read well by few readings: it is warmed up by one call, not DROPPED_CALLS."""
CALLED_S = 0.05
"""Time after which the calls of `called` are enough, however few they are (at least two)."""


@dataclass
class Prepared:
    """One case, ready to be timed: inputs on the device and, where it can be captured, a graph of `launches` calls."""

    inputs: tuple[Any, ...]
    launches: int
    call_s: float
    """Device seconds of one call, about."""
    graph: Any = None
    why_no_graph: str = ""
    kept: list[Any] = field(default_factory=list)
    """What the captured calls returned: their memory is the graph's and must not be given to others."""
    in_place: bool = False
    """A call writes to its inputs, as the audit saw: the timed graph does so once for every launch in it."""

    @property
    def long(self) -> bool:
        return self.call_s >= LONG_S

    @property
    def dropped_calls(self) -> int:
        """Calls before a block that are not timed."""
        return 1 if self.long else DROPPED_CALLS

    @property
    def least_readings(self) -> int:
        """Readings in a block at least: two of a long call agree as well."""
        return 2 if self.long else LEAST_READINGS

    @property
    def reading_s(self) -> float:
        """Device seconds that a block takes at least, about."""
        return (self.dropped_calls + self.least_readings * self.launches) * self.call_s


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: `flush_bytes` (more than the L2 cache holds), `cold` (flush before every reading).

    Asks "turn" with the result of the last one and does what the answer says: {"do": "prepare" | "read" | "burst" |
    "called" | "loop" | "audit" | "audit_graph" | "drop", "case": number, ...} or {"do": "end"}. Reply: {"turns": number}.
    """
    device.begin(ctx.device)
    guard = Integrity(ctx.folder / "kernel.py", (JITFunction,))
    entry = ctx.load()
    refuse_tampering(guard, "load")
    bench = Bench(ctx, entry, guard)
    turns = 0
    order = ctx.request("turn", ready=True)
    while order["do"] != "end":
        ctx.say("time", f"case {order['case'] + 1}")
        try:
            result = bench.take(order)
        except CandidateFault:
            raise
        except Exception as error:
            # It was correct before, so what it raises now is its own: out of memory, an illegal address, a changed mind.
            raise CandidateFault("crash", "time", said(error), formatted(error)) from error
        turns += 1
        order = ctx.request("turn", **result)
    return {"turns": turns}


class Bench:
    """The cases of one candidate on the device."""

    def __init__(self, ctx: JobContext, entry: Callable[..., Any], guard: Integrity) -> None:
        self._ctx = ctx
        self._guard = guard
        self._entry = entry
        self._cases: dict[int, Prepared] = {}
        self._cold = bool(ctx.parameters.get("cold", False))
        self._flush_bytes = int(ctx.parameters["flush_bytes"])
        self._flushed: torch.Tensor | None = None
        self._checks: OnDevice | None = None

    def take(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do one turn and return its result as JSON fields."""
        case = int(order["case"])
        match order["do"]:
            case "prepare":
                return self._prepare(case)
            case "read":
                readings = [self._read(self._cases[one], float(order["seconds"])) for one in order["cases"]]
                return {"readings_ms": readings}
            case "burst":
                return self._burst(self._cases[case], int(order["rounds"]))
            case "called":
                return self._called(self._cases[case])
            case "loop":
                return self._loop(self._cases[case], float(order["seconds"]))
            case "audit":
                return self._audit(case, self._cases[case], int(order["call"]), lambda held: self._entry(*held.inputs))
            case "audit_graph":
                return self._audit(case, self._auditable(self._cases[case]), int(order["call"]), _replayed)
            case "drop":
                for one in order["cases"]:
                    self._cases.pop(one, None)
                torch.cuda.empty_cache()
                return {"dropped": order["cases"]}
        raise ValueError(f"no turn is called {order['do']!r}")

    # preparing

    def _prepare(self, case: int) -> dict[str, Any]:
        """Tune, compile and warm up on other data at the addresses that will be timed, then put the real data there.

        The other data is the same values in reverse: still valid indices, the same distribution, another result. Whoever
        keeps results by address returns those of the wrong data from now on, and the audit sees it.
        """
        inputs = self._ctx.inputs(case)
        _reverse(inputs)
        for _ in range(DROPPED_CALLS):
            self._entry(*inputs)
        torch.cuda.synchronize()
        _reverse(inputs)
        estimate = self._seconds_of(lambda: self._entry(*inputs), calls=1)
        if estimate < LONG_S:
            estimate = self._seconds_of(lambda: self._entry(*inputs), calls=5)
        launches = 1 if self._cold else min(MOST_LAUNCHES, max(1, math.ceil(READING_S / estimate)))
        prepared = Prepared(inputs, launches, estimate)
        self._capture(prepared)
        if prepared.graph is not None and not self._cold:
            self._lengthen(prepared)
        self._cases[case] = prepared
        free, _ = torch.cuda.mem_get_info()
        return {
            "launches": prepared.launches,
            "reading_ms": 1e3 * prepared.reading_s,
            "graph": prepared.graph is not None,
            "why_no_graph": prepared.why_no_graph[:200],
            "free_bytes": int(free),
        }

    def _capture(self, prepared: Prepared) -> None:
        """Capture the calls in a graph. Not every wrapper can be: one that synchronises or reads a value back cannot."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(side):
                self._entry(*prepared.inputs)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            # the outer block is for a capture that fails: torch leaves its stream the current one then
            with torch.cuda.stream(side), torch.cuda.graph(graph, stream=side):
                for _ in range(prepared.launches):
                    # dropped before the next call, whose outputs get the same memory, as in a program that uses them up
                    prepared.kept.clear()
                    prepared.kept.append(self._entry(*prepared.inputs))
            graph.replay()
            torch.cuda.synchronize()
        except (RuntimeError, AssertionError) as error:
            prepared.why_no_graph = one_line(error)
            prepared.kept = []
            torch.cuda.synchronize()
            return
        prepared.graph = graph

    def _lengthen(self, prepared: Prepared) -> None:
        """Put more launches into the graph where the first estimate was the wrapper's CPU time and not the device's."""
        one = self._seconds_of(lambda: self._once(prepared), calls=1 if prepared.long else 3) / prepared.launches
        prepared.call_s = one
        wanted = min(MOST_LAUNCHES, math.ceil(READING_S / one))
        if wanted > 1.5 * prepared.launches:
            prepared.launches = wanted
            prepared.graph = None
            self._capture(prepared)

    # timing

    def _once(self, prepared: Prepared) -> None:
        """`launches` calls, queued on the current stream."""
        if prepared.graph is not None:
            prepared.graph.replay()
            return
        for _ in range(prepared.launches):
            self._entry(*prepared.inputs)

    def _warm(self, prepared: Prepared) -> None:
        for _ in range(math.ceil(prepared.dropped_calls / prepared.launches)):
            self._once(prepared)

    def _read(self, prepared: Prepared, seconds: float) -> list[float]:
        """A block: readings of the time of one call in ms, for about `seconds` of device time."""
        self._warm(prepared)
        torch.cuda.synchronize()
        readings: list[float] = []
        spent = 0.0
        least = prepared.least_readings
        stream = torch.cuda.current_stream()  # asked for once: twenty microseconds for every event
        while len(readings) < least or (spent < seconds and len(readings) < MOST_READINGS):
            events = [
                (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(least)
            ]
            for start, end in events:
                if self._cold:
                    self._flush()
                start.record(stream)
                self._once(prepared)
                end.record(stream)
            # The device and not the stream: work left on other streams must not run into the other's turn.
            torch.cuda.synchronize()
            for start, end in events:
                elapsed = start.elapsed_time(end)
                readings.append(elapsed / prepared.launches)
                spent += elapsed / 1e3
        return readings

    def _burst(self, prepared: Prepared, rounds: int) -> dict[str, Any]:
        """`rounds` times the launches of one reading, in one go and with nothing before: the run process times the turn."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began = time.perf_counter()
        start.record()
        for _ in range(rounds):
            self._once(prepared)
        end.record()
        torch.cuda.synchronize()
        return {
            "calls": rounds * prepared.launches,
            "device_ms": start.elapsed_time(end),
            "host_ms": 1e3 * (time.perf_counter() - began),
        }

    def _called(self, prepared: Prepared) -> dict[str, Any]:
        """The time of one plain call of the wrapper, CPU work included, in ms."""
        for _ in range(prepared.dropped_calls):
            self._entry(*prepared.inputs)
        torch.cuda.synchronize()
        calls = max(2, min(CALLED, math.ceil(CALLED_S / prepared.call_s)))
        began = time.perf_counter()
        for _ in range(calls):
            self._entry(*prepared.inputs)
        torch.cuda.synchronize()
        return {"called_ms": 1e3 * (time.perf_counter() - began) / calls}

    def _loop(self, prepared: Prepared, seconds: float) -> dict[str, Any]:
        """Keep the device busy with the case for `seconds`, for whoever samples its counters."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(5):
                self._once(prepared)
            torch.cuda.synchronize()
        return {"looped": seconds}

    def _seconds_of(self, call: Callable[[], Any], calls: int) -> float:
        """Device seconds of one `call`, at least a microsecond."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        call()
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return max(1e-6, float(start.elapsed_time(end)) / 1e3 / calls)

    def _flush(self) -> None:
        """Overwrite more than the L2 cache holds, on the same stream and outside the timed region."""
        if self._flushed is None:
            self._flushed = torch.empty(self._flush_bytes, dtype=torch.uint8, device=self._ctx.device)
        self._flushed.zero_()

    # checking

    def _auditable(self, prepared: Prepared) -> Prepared:
        """What to replay for an audit: the timed graph, or of a call in place one more of a single launch, since what many
        in a row leave behind is no output of the reference."""
        if not prepared.in_place or prepared.launches == 1:
            return prepared
        single = Prepared(prepared.inputs, 1, prepared.call_s, in_place=True)
        self._capture(single)
        if single.graph is None:
            reason = f"its calls could be captured in a graph once and cannot again: {single.why_no_graph}"
            raise CandidateFault("crash", "time", reason)
        return single

    def _audit(self, case: int, prepared: Prepared, call: int, once_more: Callable[[Prepared], Any]) -> dict[str, Any]:
        """Call `once_more` on fresh values at the timed addresses and hand the outputs over for comparison."""
        inputs = prepared.inputs
        for held, fresh in zip(inputs, self._ctx.inputs(case), strict=True):
            if isinstance(held, torch.Tensor):
                held.copy_(fresh)
        before = [verify.bytes_of(value) for value in inputs]
        refuse_tampering(self._guard, "timing")
        if self._checks is None:
            # Not earlier: the hook that it sets costs time at every launch.
            self._checks = OnDevice()
            self._guard.renew()  # the hook is ours
        self._checks.reset()
        returned = once_more(prepared)
        torch.cuda.synchronize()
        changed = [index for index, value in enumerate(inputs) if verify.was_changed(before[index], value)]
        prepared.in_place = bool(changed)
        seen = self._checks.seen(self._ctx)
        return {"accepted": verify.hand_over(self._ctx, (case, call), returned, inputs, changed, seen)}


def _replayed(prepared: Prepared) -> Any:
    """What the timed graph leaves in the outputs of its last call, which held something else before: work that a wrapper
    does on a stream of its own is in no graph, and would be timed as nothing."""
    (returned,) = prepared.kept
    inputs = {value.untyped_storage().data_ptr() for value in prepared.inputs if isinstance(value, torch.Tensor)}
    for _, tensor in flatten_outputs(returned):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in inputs:
            torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(verify.PATTERN)
    prepared.graph.replay()
    return returned


def _reverse(inputs: tuple[Any, ...]) -> None:
    """Reverse the elements of every tensor in place; twice is once not at all."""
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.numel() > 1:
            value.copy_(value.flatten().flip(0).view(value.shape).clone())
