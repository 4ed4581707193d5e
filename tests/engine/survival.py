"""Faults put into a real run process at random moments, and what must hold after each.

The process is forked from here, so that a trial costs a fraction of a second: real engine, journal, lock, socket and
DuckDB; the lane and the generator are the fakes of `engine_fakes`, whose results follow from the source alone. `trial`
raises AssertionError with the fault, the seed and the moment when something was lost or doubled.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import duckdb
import msgspec
from engine_fakes import Run, check_devices, journal, sequence, spec

from kbtui import clock, paths
from kbtui.engine import devices as run_devices
from kbtui.engine import run_process
from kbtui.engine.client import EngineGone, send
from kbtui.engine.ready import Ready
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, HistoryError
from kbtui.history.database import History
from kbtui.history.journal import JournalWriter, RunLock
from kbtui.history.runs import list_runs
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.run_state import RunState

PULLS = 10
STEP_S = 0.004
"""How long each step of the lane takes: a run lasts about half a second, so that most moments are in the middle of something."""
GIVE_UP_S = 60.0
ME = "me@test"


@dataclass
class Child:
    """A run process of ours: its pid, and the pipe that says that it is ready."""

    pid: int
    ready: int
    status: int | None = None

    def wait_ready(self) -> Ready | None:
        """What the process said of its start; None when it ended without a word."""
        with open(self.ready, "rb") as pipe:
            line = pipe.readline()
        return msgspec.json.decode(line, type=Ready) if line else None

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def wait(self) -> int:
        deadline = time.monotonic() + GIVE_UP_S
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"run process {self.pid} did not end within {GIVE_UP_S:g} s")
            time.sleep(0.002)
        assert self.status is not None
        return self.status


@dataclass
class Trial:
    """One run that meets one fault. `notes` is what the fault wants said when something does not hold."""

    run_id: str
    rng: Random
    course: list[tuple[object, ...]]
    """That of a run nobody disturbed."""
    seconds: float
    """What such a run takes."""
    devices: str = "cpu"
    notes: list[str] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    """Every journal as it was, up to its last newline, when a process had ended."""

    @property
    def path(self) -> Path:
        return paths.journal_file(self.run_id)

    def moment(self) -> float:
        """A random moment of the run, a little after its end included."""
        return self.rng.uniform(0, 1.1 * self.seconds)

    def start(self, **fail: dict[Any, Any]) -> Child:
        """The run, or its continuation if it has a journal."""
        made = spec(self.run_id, iterations=PULLS, device=self.devices)
        if RunState().apply_all(journal(self.run_id)).started is not None:
            made = spec(self.run_id, iterations=None, continue_run=True)
        child = forked(made, **fail)
        said = child.wait_ready()
        assert said == Ready(), f"it did not start: {said}"
        return child

    def ended(self, child: Child) -> None:
        """Keep what the journal holds once `child` is gone: nothing of it may be lost."""
        child.wait()
        assert RunLock.holder(self.run_id) is None
        whole = self.path.read_bytes()
        self.before.append(whole[: whole.rfind(b"\n") + 1])

    def finish(self) -> None:
        """Go on until the run has ended by itself."""
        for _ in range(3):
            if RunState().apply_all(journal(self.run_id)).stopped_by == "iterations":
                return
            child = self.start()
            assert child.wait() == 0, f"status {child.status}: {log_of(self.run_id)}"
        raise AssertionError("the run does not come to its end")

    def check(self, *, same_course: bool = True) -> None:
        """Nothing lost, nothing doubled, the pulls of an undisturbed run, history complete, nobody left behind."""
        whole = self.path.read_bytes()
        for kept in self.before:
            assert whole.startswith(kept), f"{len(kept)} bytes were in the journal and are not any more"
        events = journal(self.run_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        ends = Counter(event.pull for event in events if isinstance(event, e.Rewarded | e.PullDropped))
        several = "," in self.devices
        pulls = max(ends) if several else PULLS  # where pulls overlap, some may make no candidate and not count
        assert ends == Counter(range(1, pulls + 1)), "each pull ends once"
        made = Counter(event.candidate_id for event in events if isinstance(event, e.Generated))
        assert set(made.values()) == {1}
        state = RunState().apply_all(events)
        assert state.stopped_by == "iterations"
        assert state.pulls_ended == PULLS
        if several:
            check_devices(events)
        assert all(before.elapsed <= after.elapsed for before, after in itertools.pairwise(events))
        if same_course and not several:
            assert course(self.run_id) == self.course
        self._check_history(state)
        assert RunLock.holder(self.run_id) is None

    def _check_history(self, state: RunState) -> None:
        history = History(wait_s=10)
        try:
            history.ingest()
            self._ask_history(history, state)
        except HistoryError:  # damage may show only in a block that a question reads; then the answer is the same
            history.rebuild()
            self._ask_history(history, state)

    def _ask_history(self, history: History, state: RunState) -> None:
        assert history.unreadable == {}
        where = f"where run_id = '{self.run_id}'"
        pulls = len(state.pulls)
        assert history.sql(f"select count(*), count(distinct pull) from pulls {where}").rows == [(pulls, pulls)]
        assert history.sql(f"select count(*) from candidates {where}").rows == [(len(state.candidates),)]
        assert history.sql(f"select round(cost_usd, 6) from runs {where}").rows == [(round(state.cost_usd, 6),)]


Fault = Callable[[Trial], None]


def forked(made: RunSpec, **fail: dict[Any, Any]) -> Child:
    """A run process with `made`, in a session of its own. `fail` goes into its script."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading)
    status = 70
    try:
        os.setsid()
        os.close(reading)
        log = os.open(paths.runs_dir() / f"{made.run_id}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        _watch_the_clock()
        _note_what_is_synced()
        run = Run(made, attended=True)
        run.script.seconds = dict.fromkeys(("compile", "verify", "time", "confirm"), STEP_S)
        for name, value in fail.items():
            setattr(run.script, name, value)
        run_devices.gpu_count = _many  # the devices are stand-ins, however many the machine has
        parts = replace(run.parts(), ingest=lambda: History(wait_s=0.2).ingest())
        ready = run_process._ReadyPipe(writing)
        status = run_process.own(made, parts, ready.tell)
    except BaseException:  # noqa: BLE001 - whatever it is goes into the log, and nothing of the parent's may run
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _many(_: object) -> int:
    return 8


def log_of(run_id: str) -> str:
    """The end of what the run's processes printed."""
    return (paths.runs_dir() / f"{run_id}.log").read_text(errors="replace")[-2000:]


def synced_file(run_id: str) -> Path:
    """Where a forked process keeps how many bytes of its journal have been put on the disk."""
    return paths.run_dir(run_id) / "synced"


def _note_what_is_synced() -> None:
    original = JournalWriter.flush

    def flush(writer: JournalWriter) -> None:
        size = writer.path.stat().st_size
        original(writer)
        fresh = writer.path.parent / "synced.new"
        fresh.write_text(str(size))
        fresh.replace(writer.path.parent / "synced")  # a kill in between leaves the number before

    JournalWriter.flush = flush  # type: ignore[method-assign]  # this process ends with the run


def _watch_the_clock() -> None:
    """SIGUSR1 sets the wall clock a day back, SIGUSR2 a day forth, as an operator or a time server may."""
    shift = [0.0]
    wall = clock.wall

    def jump(number: int, frame: FrameType | None) -> None:
        shift[0] += -86400 if number == signal.SIGUSR1 else 86400

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, jump)
    clock.wall = lambda: wall() + shift[0]


def course(run_id: str) -> list[tuple[object, ...]]:
    """What happened, without times and without what only says that a process came or went."""
    return [entry for entry in sequence(journal(run_id)) if entry[0] not in ("BestChanged", "BudgetChanged")]


# ------------------------------------------------------------------------------------------------- the faults


def run_process_killed(trial: Trial) -> None:
    """`kill -9` of the run process, up to three times in one run."""
    for _ in range(trial.rng.randint(1, 3)):
        child = trial.start()
        time.sleep(trial.moment())
        child.kill()
        trial.ended(child)
    trial.finish()


def power_cut(trial: Trial) -> None:
    """The machine goes down: what was not put on the disk yet may be cut anywhere, and `/tmp` is empty after the boot."""
    child = trial.start()
    time.sleep(trial.moment())
    child.kill()
    child.wait()
    synced = int(synced_file(trial.run_id).read_text())
    size = trial.path.stat().st_size
    os.truncate(trial.path, trial.rng.randint(synced, size))
    trial.notes.append(f"{synced} bytes synced of {size}")
    trial.before.append(trial.path.read_bytes()[:synced])
    paths.socket_file(trial.run_id).unlink(missing_ok=True)
    (paths.run_dir(trial.run_id) / "lock").write_text(f"{os.getpid()}\n")  # another process has that number now
    assert {entry.run_id: entry.status for entry in list_runs()}[trial.run_id] in ("crashed", "stopped")
    trial.finish()


def disk_full(trial: Trial) -> None:
    """No file grows beyond a size that falls into the middle of some line of the journal."""
    child = trial.start()
    time.sleep(trial.moment())
    with contextlib.suppress(ProcessLookupError):
        limit = trial.path.stat().st_size + trial.rng.randint(0, 1500)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit, limit))
    trial.ended(child)
    trial.finish()


def viewer_killed(trial: Trial) -> None:
    """A viewer dies with `kill -9`, another stops reading for good: neither holds up the run."""
    child = trial.start()
    viewers = [_viewer(trial.run_id, read=trial.rng.random() < 0.5) for _ in range(2)]
    time.sleep(trial.moment())
    os.kill(viewers[0], signal.SIGKILL)
    os.kill(viewers[1], signal.SIGSTOP)
    status = child.wait()
    for pid in viewers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert status == 0
    trial.ended(child)


def history_locked(trial: Trial) -> None:
    """Another program keeps the database open while the run goes on."""
    History().ingest()
    child = trial.start()
    time.sleep(trial.moment() / 2)
    holder = _database_holder(trial.moment())
    trial.ended(child)
    os.waitpid(holder, 0)
    trial.finish()


def history_corrupt(trial: Trial) -> None:
    """The database is overwritten in its middle, or cut short."""
    History().ingest()
    child = trial.start()
    time.sleep(trial.moment())
    file = paths.history_file()
    if file.exists():
        size = file.stat().st_size
        if trial.rng.random() < 0.5:
            os.truncate(file, trial.rng.randint(0, size))
        else:
            with open(file, "r+b") as damaged:
                damaged.seek(trial.rng.randrange(max(1, size // 2)))
                damaged.write(trial.rng.randbytes(20000))
    trial.ended(child)
    trial.finish()


def clock_jumps(trial: Trial) -> None:
    """The wall clock is set a day back and forth."""
    child = trial.start()
    for _ in range(3):
        time.sleep(trial.moment() / 3)
        child.kill(trial.rng.choice((signal.SIGUSR1, signal.SIGUSR2)))
    trial.ended(child)
    trial.finish()


def hang_up(trial: Trial) -> None:
    """The terminal or the SSH link goes: SIGHUP to the run process, and its starter is gone."""
    child = trial.start()
    time.sleep(trial.moment())
    child.kill(signal.SIGHUP)
    assert child.wait() == 0
    trial.ended(child)


def stopped_and_continued(trial: Trial) -> None:
    """SIGTERM, as a logout or a batch system sends it, and going on."""
    child = trial.start()
    time.sleep(trial.moment())
    child.kill(signal.SIGTERM)
    trial.ended(child)
    trial.finish()


def lane_lost(trial: Trial) -> None:
    """The device fails in the middle of a job: the run pauses and says why; it goes on when told."""
    where = (trial.rng.choice(("compile", "verify", "time")), trial.rng.randint(1, 9))
    child = trial.start(fail_nth={where: EnvironmentFailure("the driver is gone")})
    deadline = time.monotonic() + GIVE_UP_S
    while child.poll() is None and time.monotonic() < deadline:
        state = RunState().apply_all(journal(trial.run_id))
        if state.status == "paused":
            assert "the driver is gone" in state.pause_reason
            with contextlib.suppress(EngineGone):
                send(trial.run_id, c.Resume(by=ME))
        time.sleep(0.01)
    trial.notes.append(f"the lane fails at {where}")
    trial.ended(child)
    trial.finish()


def _with_a_failing_device(trial: Trial) -> Child:
    """The run process, started; a device of its fails in the middle of a job."""
    device = trial.rng.choice(trial.devices.split(","))
    where = (device, trial.rng.choice(("compile", "verify", "time")), trial.rng.randint(1, 5))
    child = trial.start(fail_on={where: EnvironmentFailure("the driver is gone")})
    trial.notes.append(f"it fails at {where}")
    return child


def one_device_lost(trial: Trial) -> None:
    """One of several devices fails in the middle of a job: the run goes on with the others by itself."""
    child = _with_a_failing_device(trial)
    assert child.wait() == 0
    trial.ended(child)
    dropped = [event for event in journal(trial.run_id) if isinstance(event, e.PullDropped)]
    assert not [event for event in dropped if "driver" in event.reason], "what the device was doing is redone"
    trial.finish()


def one_device_lost_and_killed(trial: Trial) -> None:
    """So, and the run process is killed at some moment; the continued run tries the device again."""
    child = _with_a_failing_device(trial)
    time.sleep(trial.moment())
    child.kill()
    trial.ended(child)
    trial.finish()
    if trial.before[0] != trial.path.read_bytes():
        assert RunState().apply_all(journal(trial.run_id)).dropped == {}


def one_device_absent(trial: Trial) -> None:
    """One of several devices does not start, and the run process is killed: the continued run has them all."""
    device = trial.rng.choice(trial.devices.split(","))
    child = trial.start(start_fails={device: [EnvironmentFailure(f"{device} cannot be used")]})
    time.sleep(trial.moment())
    child.kill()
    trial.ended(child)
    trial.finish()
    state = RunState().apply_all(journal(trial.run_id))
    assert set(state.devices) == set(trial.devices.split(",")) or set(state.dropped) == {device}


FAULTS: dict[str, Fault] = {
    function.__name__.replace("_", " "): function
    for function in (
        run_process_killed,
        power_cut,
        disk_full,
        viewer_killed,
        history_locked,
        history_corrupt,
        clock_jumps,
        hang_up,
        stopped_and_continued,
        lane_lost,
    )
}
OF_SEVERAL: dict[str, Fault] = {
    function.__name__.replace("_", " "): function
    for function in (
        run_process_killed,
        power_cut,
        stopped_and_continued,
        one_device_lost,
        one_device_lost_and_killed,
        one_device_absent,
    )
}
"""What is done to runs on two devices."""
CHANGES_COURSE = frozenset({"lane lost"})
"""Faults whose pulls are dropped, as a pull is whose device failed: later pulls then differ from an undisturbed run's."""


def _viewer(run_id: str, *, read: bool) -> int:
    """A process that connects to the run's socket and then reads, or does not."""
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(paths.socket_file(run_id)))
        while read and connection.recv(4096):
            pass
        signal.pause()
    os._exit(0)


def _database_holder(seconds: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(duckdb.Error):
        connection = duckdb.connect(str(paths.history_file()), read_only=True)
        time.sleep(seconds)
        connection.close()
    os._exit(0)


def undisturbed(run_id: str = "calm", devices: str = "cpu") -> tuple[list[tuple[object, ...]], float]:
    """The course of a run nobody disturbs, and its seconds from ready to end."""
    child = forked(spec(run_id, iterations=PULLS, device=devices))
    assert child.wait_ready() == Ready()
    began = time.monotonic()
    assert child.wait() == 0
    return course(run_id), time.monotonic() - began


def trials(
    fault: str, count: int, seed: int, calm: tuple[list[tuple[object, ...]], float], devices: str = "cpu"
) -> Iterator[Trial]:
    """Do `fault` at `count` random moments. Raises AssertionError at the first thing that does not hold."""
    for number in range(count):
        trial = Trial(f"{fault.replace(' ', '-')}-{number}", Random(f"{seed} {fault} {number}"), *calm, devices)
        try:
            (FAULTS if devices == "cpu" else OF_SEVERAL)[fault](trial)
            trial.check(same_course=fault not in CHANGES_COURSE)
        except AssertionError as error:
            raise AssertionError(f"{fault}, seed {seed}, trial {number} ({'; '.join(trial.notes)}): {error}") from error
        yield trial


def warm_up() -> None:
    """Import what a run process imports late, so that each fork has it."""
    import sklearn.cluster

    assert sklearn.cluster
    asyncio.run(asyncio.sleep(0))
