"""The run process as a process: detached, killed, signalled, continued; and what its starter hears."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from engine_fakes import Run, journal, sequence, spec

from kbtui import paths
from kbtui.engine import launch
from kbtui.engine.client import EngineGone, RunClient, send
from kbtui.engine.launch import run_here, start_run
from kbtui.engine.ready import Ready
from kbtui.engine.run_process import run_in_foreground
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, KbtuiError, ProblemError, UsageError
from kbtui.history.journal import RunLock, heartbeat_file
from kbtui.history.runs import list_runs
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import RunState

SCRIPT = Path(__file__).with_name("process_with_fakes.py")
ME = "me@test"


class Processes:
    """Run processes with fakes, all of which are gone after the test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, spec: RunSpec, slow: str = "") -> subprocess.Popen[bytes]:
        """Returns when the process says that it is ready."""
        reading, writing = os.pipe()
        paths.run_dir(spec.run_id).mkdir(parents=True, exist_ok=True)
        with open(paths.run_dir(spec.run_id) / "run.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(writing), msgspec.json.encode(spec), slow],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
            )
        self.started.append(process)
        os.close(writing)
        with open(reading, "rb") as pipe:
            line = pipe.readline()
        assert line, (paths.run_dir(spec.run_id) / "run.log").read_text()
        assert msgspec.json.decode(line, type=Ready) == Ready()
        return process

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for run_id in ("fake-1", "fake-k"):
            paths.socket_file(run_id).unlink(missing_ok=True)  # a killed process leaves its own behind


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.end()


def until(run_id: str, condition: Callable[[RunState], bool]) -> RunState:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        state = RunState().apply_all(journal(run_id))
        if condition(state):
            return state
        time.sleep(0.02)
    raise AssertionError(f"did not happen within 30 s; the run is {state.status} after {state.pulls_ended} pulls")


def test_attach_pause_force_detach_attach_stop(processes: Processes) -> None:
    process = processes.start(spec(iterations=1000), slow="verify")

    async def first() -> None:
        client = await RunClient.connect("fake-1")
        assert client.hello is not None
        assert client.hello.pid == process.pid
        assert client.hello.journal == str(paths.journal_file("fake-1"))
        advanced = asyncio.Event()

        async def watch() -> None:
            async for message in client.messages():
                if isinstance(message, c.Advanced):
                    advanced.set()

        watching = asyncio.ensure_future(watch())
        await asyncio.wait_for(advanced.wait(), 20)
        await asyncio.to_thread(until, "fake-1", lambda state: state.pulls_ended >= 1)
        assert (await client.send(c.Pause(by=ME))).ok
        await asyncio.to_thread(until, "fake-1", lambda state: state.status == "paused" and not state.open_pulls)
        client.close()
        await watching

    asyncio.run(first())
    assert process.poll() is None  # nobody watches, and it goes on
    assert list_runs()[0].status == "paused"
    assert list_runs()[0].pid == process.pid
    reply = send("fake-1", c.Force(by=ME, strategy="pipeline", parent_id=0))
    assert reply.ok, reply.text
    assert send("fake-1", c.Resume(by=ME)).ok
    until("fake-1", lambda state: any(pull.forced and pull.strategy == "pipeline" for pull in state.pulls.values()))
    assert send("fake-1", c.Stop(by=ME)).ok
    assert process.wait(timeout=20) == 0
    state = until("fake-1", lambda state: state.status == "stopped")
    assert state.stopped_by == "user"
    assert RunLock.holder("fake-1") is None
    with pytest.raises(EngineGone):
        send("fake-1", c.Pause(by=ME))


def test_kill_9_loses_no_event_and_the_run_goes_on(processes: Processes) -> None:
    whole = Run(spec("fake-w", iterations=12))
    asyncio.run(whole.go())
    for pulls in (0, 2, 5):
        process = processes.start(
            spec("fake-k", iterations=12) if pulls == 0 else spec("fake-k", iterations=None, continue_run=True),
            slow="compile",
        )
        state = until("fake-k", lambda state, pulls=pulls: len(state.pulls) > pulls)  # type: ignore[misc]
        process.kill()
        process.wait()
        assert paths.socket_file("fake-k").exists()
        assert list_runs()[0].status == "crashed"
        assert [event.seq for event in journal("fake-k")] == list(range(1, len(journal("fake-k")) + 1))
    again = Run(spec("fake-k", iterations=None, continue_run=True))
    state = asyncio.run(again.go())
    assert state.stopped_by == "iterations"

    def course(run_id: str) -> list[tuple[object, ...]]:
        return [entry for entry in sequence(journal(run_id)) if entry[0] != "BestChanged"]

    assert course("fake-k") == course("fake-w")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_good_order(processes: Processes, number: signal.Signals) -> None:
    process = processes.start(spec(iterations=1000), slow="verify")
    until("fake-1", lambda state: state.pulls_ended >= 1)
    process.send_signal(number)
    assert process.wait(timeout=20) == 0
    assert until("fake-1", lambda state: state.status == "stopped").stopped_by == "user"


def test_a_hangup_is_not_the_runs_business(processes: Processes) -> None:
    process = processes.start(spec(iterations=1000), slow="verify")
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    process.send_signal(signal.SIGHUP)
    pulls = RunState().apply_all(journal("fake-1")).pulls_ended
    until("fake-1", lambda state: state.pulls_ended > pulls + 1)
    assert process.poll() is None


def test_it_says_that_it_is_alive(processes: Processes) -> None:
    processes.start(spec(iterations=1000), slow="verify")
    assert time.time() - heartbeat_file("fake-1").stat().st_mtime < 5
    assert list_runs()[0].status == "live"


# ---------------------------------------------------------------- start_run and run_here, the real ones


def test_the_starter_hears_what_is_wrong_in_its_class(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("def f(): ...\n")
    for bad, kind in (
        (RunSpec(problem=str(tmp_path), device="cpu"), ProblemError),
        (RunSpec(problem="vector_add", device="cpu", generator="none"), UsageError),
        (RunSpec(problem="vector_add", device="cpu", policy="none"), UsageError),
        (RunSpec(problem="vector_add", run_id="fake-none", continue_run=True), UsageError),
        (RunSpec(problem="vector_add", parallel=-1), UsageError),
    ):
        with pytest.raises(kind) as caught:
            start_run(bad)
        assert type(caught.value) is kind
        assert "\n" not in str(caught.value)
    assert list(paths.runs_dir().iterdir()) == []


def test_a_process_that_dies_or_hangs_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    original = subprocess.Popen
    made: list[subprocess.Popen[bytes]] = []
    code = "import sys; sys.exit(3)"

    def instead(arguments: list[str], **rest: object) -> subprocess.Popen[bytes]:
        assert arguments[1:4] == ["-P", "-m", "kbtui.engine.run_process"]
        made.append(original([sys.executable, "-c", code], **rest))  # type: ignore[call-overload]
        return made[-1]

    monkeypatch.setattr(launch.subprocess, "Popen", instead)
    with pytest.raises(EnvironmentFailure, match=r"ended before it was ready: see .*run\.log"):
        start_run(RunSpec(problem="vector_add", run_id="fake-dead"))
    code = "import time; time.sleep(60)"
    with pytest.raises(EnvironmentFailure, match="was not ready within 1 s"):
        start_run(RunSpec(problem="vector_add", run_id="fake-slow"), timeout_s=1)
    for process in made:
        process.wait(timeout=10)


def test_in_the_foreground_every_event_is_heard() -> None:
    run = Run(spec(iterations=3))
    summary = run_in_foreground(run.spec, run.hear, run.parts())
    assert run.events == journal("fake-1")
    assert isinstance(run.events[-1], e.RunStopped)
    assert run.events[-1].summary == summary


def test_an_interrupt_in_the_foreground_ends_with_a_summary() -> None:
    run = Run(spec(iterations=1000))
    interrupted = False

    def interrupt(event: e.Event) -> None:
        nonlocal interrupted
        if isinstance(event, e.Rewarded) and not interrupted:
            interrupted = True
            os.kill(os.getpid(), signal.SIGINT)

    run.on_event = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_in_foreground(run.spec, run.hear, run.parts())
    assert run.state.stopped_by == "user"
    assert run.state.summary is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_interrupts_do_not_wait() -> None:
    run = Run(spec(iterations=1000))
    count = 0

    def interrupt(event: e.Event) -> None:
        nonlocal count
        if isinstance(event, e.Selected) and count == 0:
            count = 2
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    run.on_event = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_in_foreground(run.spec, run.hear, run.parts())
    assert run.script.closed == 1
    assert RunLock.holder("fake-1") is None


def test_errors_reach_the_foreground() -> None:
    with pytest.raises(KbtuiError, match="There is no problem"):
        run_here(RunSpec(problem="no_such_problem", device="cpu"), lambda _: None)
    assert list(paths.runs_dir().iterdir()) == []
