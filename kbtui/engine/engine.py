"""A run, put together: lock, lane, journal, socket, counters and the loop; and taken apart again, in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import kbtui
from kbtui import paths
from kbtui.engine import opening
from kbtui.engine.best import summary
from kbtui.engine.desk import EmitterDesk
from kbtui.engine.emit import Emitter, Listener
from kbtui.engine.ingest import HistoryFeed, Ingest
from kbtui.engine.lane_pool import LanePool, Started
from kbtui.engine.lane_thread import LaneMaker
from kbtui.engine.loop import Loop
from kbtui.engine.scratch import scratch, sweep
from kbtui.engine.server import Server
from kbtui.engine.spec import RunSpec
from kbtui.engine.stopping import Stopped, StopSignal
from kbtui.engine.tools import Tools
from kbtui.errors import JournalError, KbtuiError
from kbtui.generate.generator import Generator
from kbtui.history.journal import HEARTBEAT_S, JournalWriter, RunLock
from kbtui.problems.folder import find_problem
from kbtui.search.policy import Policy
from kbtui.state import events as e
from kbtui.state.commands import PROTOCOL_VERSION, Hello
from kbtui.state.records import Summary
from kbtui.state.run_state import RunState
from kbtui.telemetry.sampler import Sampler


@dataclass(frozen=True)
class Parts:
    """What a run is made with; tests put in their own. `harden` hides this process from candidates and says whether it did."""

    make_lane: LaneMaker
    make_generator: Callable[[RunSpec], Generator]
    make_policy: Callable[[RunSpec], Policy]
    ingest: Ingest
    harden: Callable[[], str]


class Engine:
    """One run. `run` may be called once; `stop` at any time from the loop's thread.

    `attended` says whether someone may be there to resume: when the machine or a provider fails, an attended run pauses
    and an unattended one ends.
    """

    def __init__(self, spec: RunSpec, parts: Parts, *, attended: bool = True) -> None:
        self._spec, self._parts, self._attended = spec, parts, attended
        self._stop = StopSignal()

    def stop(self) -> None:
        """End the run in good order: the pull in flight is left for `--continue`, the summary is written."""
        self._stop.set()

    async def run(self, on_event: Listener, on_ready: Callable[[], None]) -> Summary:
        """Start or continue the run and see it to its end. `on_event` hears every event, transient ones too; `on_ready`
        is called once, when the journal says that the run goes and the socket answers.

        Raises Stopped when stopped before it was ready, and KbtuiError: before it was ready, the run did not start, and
        a new one leaves nothing behind; after that, its journal ends with `run_stopped` and "error: ...".
        """
        async with AsyncExitStack() as stack:
            loop, tools = await self._open(stack, on_event)
            on_ready()
            feed = HistoryFeed(self._parts.ingest, tools.emitter)
            tools.emitter.listen(feed.hear)
            try:
                stopped_by = await loop.run()
            except JournalError:
                raise  # there is nowhere to write how it ended
            except KbtuiError as error:
                await feed.settle()
                _finish(tools, f"error: {error}")
                raise
            await feed.settle()
            ended = _finish(tools, stopped_by)
            await feed.finish()
            return ended

    async def _open(self, stack: AsyncExitStack, on_event: Listener) -> tuple[Loop, Tools]:
        """Everything up to the first event of this process."""
        spec = opening.named(self._spec)
        lock = RunLock(spec.run_id)
        lock.acquire()
        stack.callback(lock.release)
        stack.enter_context(opening.discarded_unless_started(spec.run_id))
        state = opening.recorded_state(spec.run_id) if spec.continue_run else opening.new_state(spec.run_id)
        spec = await asyncio.to_thread(opening.completed, spec, state)  # a cluster takes seconds to answer
        problem = find_problem(spec.problem)
        policy, generator = self._parts.make_policy(spec), self._parts.make_generator(spec)
        opening.require_start(problem, generator)
        # Before the lane: a missing key or an unknown price must not cost the time that torch takes to import.
        await self._stop.unless(generator.prepare(spec.parallel))
        hidden = self._parts.harden()
        await asyncio.to_thread(sweep)
        folder = stack.enter_context(scratch(spec.run_id))
        pool = LanePool(self._parts.make_lane, opening.lane_specs(spec, problem, folder))
        stack.push_async_callback(pool.close)
        lanes = await self._stop.unless(pool.start(opening.known_devices(state)))
        opening.keep_problem(spec.run_id, problem)
        writer = stack.enter_context(JournalWriter(paths.journal_file(spec.run_id)))
        emitter = Emitter(state, writer)
        emitter.listen(on_event)
        samplers = _samplers(lanes, spec.device, _from_any_thread(emitter))
        tools = Tools(emitter, pool, generator, policy, samplers, problem.kernel_source)
        loop = Loop(tools, self._stop, opening.limits(spec), attended=self._attended)
        await stack.enter_async_context(_serving(spec.run_id, emitter, loop))
        _begin(spec, tools, lanes, hidden, writer.cut_bytes)
        generator.attach(EmitterDesk(emitter))
        await stack.enter_async_context(_beating(lock))
        for sampler in samplers.values():
            sampler.start()
            stack.callback(sampler.stop)
        return loop, tools


def _samplers(lanes: Started, device: str, show: Callable[[e.GpuSampled], None]) -> dict[str, Sampler]:
    """Counters of each device that started; where several have none, as lanes on `cpu`, one says so."""
    if device.startswith("cpu"):
        return {next(iter(lanes.facts)): Sampler("cpu", show)}
    return {name: Sampler(facts.device.uuid or name or device, show) for name, facts in lanes.facts.items()}


def _begin(spec: RunSpec, tools: Tools, lanes: Started, hidden: str, cut_bytes: int) -> None:
    """Emit the first events of this process."""
    emitter, generator, first = tools.emitter, tools.generator, lanes.first
    started = emitter.state.started
    if started is None:
        started = emitter.emit(opening.started_event(spec, lanes, tools.policy, generator, hidden))
        for text in generator.notices(first.problem, first.device, tools.kernel_source, started.iterations):
            emitter.emit(e.Noted(level="info", text=text, source=generator.name))
    else:
        emitter.emit(opening.continued_event(spec, lanes, emitter.state, generator, cut_bytes))
        if changed := opening.changed_limits(spec, emitter.state):
            emitter.emit(changed)
    for name, reason in lanes.failed.items():
        emitter.emit(e.DeviceDropped(device=name, reason=reason))
    emitter.settle()


def _finish(tools: Tools, stopped_by: str) -> Summary:
    ended = summary(tools.state, stopped_by)
    tools.emitter.emit(e.RunStopped(stopped_by=stopped_by, summary=ended))
    tools.emitter.settle()
    return ended


def _from_any_thread(emitter: Emitter) -> Callable[[e.GpuSampled], None]:
    loop = asyncio.get_running_loop()

    def show(sample: e.GpuSampled) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
            loop.call_soon_threadsafe(emitter.show, sample)

    return show


@asynccontextmanager
async def _serving(run_id: str, emitter: Emitter, loop: Loop) -> AsyncIterator[None]:
    """The run's socket answers during the block."""
    state: RunState = emitter.state

    def hello() -> Hello:
        return Hello(
            protocol=PROTOCOL_VERSION,
            kbtui=kbtui.__version__,
            run_id=run_id,
            pid=os.getpid(),
            journal=str(paths.journal_file(run_id)),
            seq=state.seq,
        )

    server = Server(paths.socket_file(run_id), hello, loop.handle)
    await server.start()
    emitter.listen(server.tell)
    try:
        yield
    finally:
        await server.close()


@asynccontextmanager
async def _beating(lock: RunLock) -> AsyncIterator[None]:
    """The heartbeat file is touched during the block, as long as the loop turns."""

    async def beat() -> None:
        while True:
            lock.beat()
            await asyncio.sleep(HEARTBEAT_S)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


__all__ = ["Engine", "Parts", "Stopped"]
