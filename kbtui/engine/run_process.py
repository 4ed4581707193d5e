"""The process that owns a run: `python -m kbtui.engine.run_process READY_FD SPEC`, started by `launch.start_run`; and the
same engine in the foreground, for `--headless`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import msgspec

from kbtui.engine.engine import Engine, Parts
from kbtui.engine.ready import Ready
from kbtui.engine.recordings import recording_for
from kbtui.engine.spec import RunSpec
from kbtui.engine.stopping import Stopped
from kbtui.errors import KbtuiError
from kbtui.state.events import Event
from kbtui.state.records import Scalar, Summary


def default_parts() -> Parts:
    """What real runs are made with."""
    from kbtui.evaluate.isolation import harden_run_process
    from kbtui.evaluate.lanes import open_lane
    from kbtui.generate.registry import make_generator
    from kbtui.history.database import History
    from kbtui.search.registry import make_policy

    return Parts(
        make_lane=open_lane,
        make_generator=lambda spec: make_generator(
            spec.generator,
            recording=recording_for(spec),
            model=spec.model,
            parameters=spec.generator_parameters,
            budget_tokens=spec.budget_tokens if isinstance(spec.budget_tokens, int) else None,
        ),
        make_policy=lambda spec: make_policy(spec.policy, {**free_pulls(spec), **spec.policy_parameters}),
        ingest=lambda: History().ingest(),
        harden=harden_run_process,
    )


def free_pulls(spec: RunSpec) -> dict[str, Scalar]:
    """What a policy is set to unless told otherwise: where models are paid for each version, every other pull may set a
    number of the fastest one, which costs nothing. The published policy stays as published."""
    return {"tune": 1} if spec.generator == "llm" and spec.policy != "paper" else {}


def run_in_foreground(
    spec: RunSpec,
    on_event: Callable[[Event], None],
    parts: Parts | None = None,
    on_engine: Callable[[Engine], None] = lambda _: None,
) -> Summary:
    """See `launch.run_here`. `on_engine` is given the engine before it starts, in its event loop, for whoever may have to
    stop it."""
    engine = Engine(spec, parts or default_parts(), attended=False)
    summary = asyncio.run(_interruptible(engine, on_event, on_engine))
    if summary is None:
        raise KeyboardInterrupt
    return summary


def main(arguments: list[str]) -> int:
    """Own the run to its end and return the exit status."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    ready = _ReadyPipe(int(arguments[0]))
    spec = msgspec.json.decode(arguments[1], type=RunSpec)
    return own(spec, default_parts(), ready.tell)


def own(spec: RunSpec, parts: Parts, tell_ready: Callable[[Ready], None]) -> int:
    """Run `spec` with `parts`, telling once how the start went. Returns the exit status. A terminal that hangs up is no
    reason to end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(_stoppable(Engine(spec, parts), lambda: tell_ready(Ready())))
    except Stopped:
        tell_ready(Ready(error="the run was stopped before it started"))
        return 1
    except KbtuiError as error:
        print(f"kbtui: {error}", file=sys.stderr)
        tell_ready(Ready(error=str(error), kind=type(error).__name__))
        return error.exit_status
    return 0


class _ReadyPipe:
    """The pipe to whoever started us. It hears one line; later ones are nobody's business."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # a lane's processes must not keep it open
        self._descriptor: int | None = descriptor

    def tell(self, ready: Ready) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(BrokenPipeError):  # the starter is gone; the run goes on
            os.write(self._descriptor, msgspec.json.encode(ready) + b"\n")
        os.close(self._descriptor)
        self._descriptor = None


async def _stoppable(engine: Engine, on_ready: Callable[[], None]) -> Summary:
    with _on_signals(engine.stop, signal.SIGINT, signal.SIGTERM):
        return await engine.run(lambda _: None, on_ready)


async def _interruptible(
    engine: Engine, on_event: Callable[[Event], None], on_engine: Callable[[Engine], None]
) -> Summary | None:
    """None when a SIGINT ended the run; after the first one its journal is complete, a second one does not wait for it."""
    task = asyncio.current_task()
    assert task is not None
    on_engine(engine)
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            engine.stop()
        else:
            task.cancel()

    with _on_signals(interrupt, signal.SIGINT), _on_signals(engine.stop, signal.SIGTERM):
        try:
            summary = await engine.run(on_event, lambda: None)
        except (Stopped, asyncio.CancelledError):
            return None
    return None if interrupts else summary


@contextlib.contextmanager
def _on_signals(action: Callable[[], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `action` in the loop for each of the signals. Only a main thread can be interrupted; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
