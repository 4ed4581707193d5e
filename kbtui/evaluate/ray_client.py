"""The run process's end of a connection to a Ray cluster. What is connected is a process of its own (`ray_link` says why),
one for all lanes of the run; when it goes, all of them have failed."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import queue
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kbtui import paths
from kbtui.errors import EnvironmentFailure, UsageError
from kbtui.evaluate import isolation
from kbtui.evaluate.lane import Report
from kbtui.evaluate.ray_wire import Asked, Call, Close, Done, Failed, Open, Ready, Said, Told, error_of
from kbtui.evaluate.scratch import SUFFIX, owned
from kbtui.text import clean_line

REACH_S = 5.0
"""How long a cluster may take to answer at its address at all."""
CONNECT_S = 30.0
"""And to take us in. Longer means that what answers there is not Ray."""
BEGIN_S = 120.0
"""How long a cluster of one's own may take to start: 13 s on a machine with two busy processors."""
END_S = 15.0
_LOGGED = re.compile(r"^\[[\d-]+ [\d:,]+ \w \d+ \d+\] (?:\([^)]*\) )?\S+:\d+: ")
"""What Ray puts before a line of its log: time, level, process and place."""
_RAY_NEEDS = ("HOME", "USER", "LOGNAME", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_sharing = threading.Lock()
_links: dict[str, tuple[Link, int]] = {}
"""The connection to each address, and how many use it."""


def acquire(address: str) -> Link:
    """The connection to the cluster at `address`: "auto" is the one of this machine, "local" a new one for this process alone.
    `release` it once.

    Raises UsageError without ray, for what is no address and for another version of Ray or Python there; EnvironmentFailure for
    a cluster that does not answer.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("ray is not installed: pip install 'kbtui[ray]'")
    with _sharing:
        link, users = _links.get(address, (None, 0))
        if link is None or link.lost:
            _require_reachable(address)
            link, users = Link(address), 0  # those of a lost one release that
        _links[address] = (link, users + 1)
        return link


def release(link: Link) -> None:
    """Give a connection back; with its last user it ends, and with it a cluster of one's own."""
    with _sharing:
        shared, users = _links.get(link.address, (None, 0))
        if shared is link and users > 1:
            _links[link.address] = (link, users - 1)
            return
        if shared is link:
            del _links[link.address]
    link.close()


@contextlib.contextmanager
def connection(address: str) -> Iterator[Link]:
    link = acquire(address)
    try:
        yield link
    finally:
        release(link)


def link_environment(address: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the connected process, and of all processes of a cluster that it starts: an allow-list, as a lane's is.
    What is said to Ray by variables reaches it."""
    kept = isolation.kept_environment(environment)
    kept |= {name: environment[name] for name in _RAY_NEEDS if name in environment}
    kept |= {name: value for name, value in environment.items() if name.startswith("RAY_")}
    kept["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == "local":
        kept |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's only way to stay on loopback: without it, it listens everywhere
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
    return kept


class Link:
    """One connected process. `lost` says why it is gone, "" while it works. Methods may be called from any thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lost = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Told | None]] = {0: queue.SimpleQueue()}
        self._lock = threading.Lock()
        self._own = ExitStack()
        self._grace_s = 0.0  # it has nothing to end in good order yet
        try:
            self._launch()
            self.ready = self._await_ready()
            self._grace_s = END_S
        except BaseException:
            self.close()
            raise

    def number(self) -> int:
        """One that no other request or lane of this connection has."""
        return next(self._numbers)

    def ask(self, asked: Open | Call | Close, report: Report) -> bytes:
        """Have something done; its answer is JSON. Raises what it raised there, and EnvironmentFailure when the connection
        ends."""
        answers: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        with self._lock:
            self._waiting[asked.number] = answers
        try:
            self.tell(asked)
            while True:
                match answers.get():
                    case Said(stage=stage, text=text):
                        report(stage, text)
                    case Done(value=value):
                        return bytes(value)
                    case Failed(error=error, text=text):
                        raise error_of(error, text)
                    case _:
                        raise EnvironmentFailure(self.lost)
        finally:
            with self._lock:
                del self._waiting[asked.number]

    def tell(self, asked: Asked) -> None:
        """Raises EnvironmentFailure when the connection has ended."""
        with self._lock:
            if self.lost:
                raise EnvironmentFailure(self.lost)
            with contextlib.suppress(OSError):  # it is ending: the reader finds out, and answers for it
                self._socket.sendall(msgspec.json.encode(asked) + b"\n")

    def close(self) -> None:
        """End the process, its lanes, and a cluster of its own. May be called twice; never raises."""
        self._own.close()

    def _launch(self) -> None:
        folder = self._own.enter_context(owned(paths.socket_dir() / f"ray-{secrets.token_hex(4)}{SUFFIX}"))
        self._log = folder / "link.log"
        self._socket, theirs = socket.socketpair()
        self._own.callback(self._socket.close)
        with theirs, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: a file in the folder must not shadow a module of ours
                [sys.executable, "-P", "-m", "kbtui.evaluate.ray_link", str(theirs.fileno()), self.address],
                pass_fds=(theirs.fileno(),),
                env=link_environment(self.address),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt is for the run process, which ends this in good order
            )
        self._own.callback(self._end)
        threading.Thread(target=self._listen, name="ray link", daemon=True).start()

    def _await_ready(self) -> Ready:
        limit = BEGIN_S if self.address == "local" else CONNECT_S
        try:
            match self._waiting[0].get(timeout=limit):
                case Ready() as ready:
                    return ready
                case Failed(error=error, text=text):
                    raise error_of(error, text)
                case _:
                    raise EnvironmentFailure(self.lost)
        except queue.Empty:
            raise EnvironmentFailure(
                f"the cluster ({self.address}) did not take this process within {limit:.0f} s: is that the port of Ray's head "
                "(6379 unless said otherwise), and is this machine one of its nodes?"
            ) from None

    def _listen(self) -> None:
        """Hand out what comes, until the end of it."""
        with contextlib.suppress(OSError, ValueError):
            for line in self._socket.makefile("rb"):
                told = msgspec.json.decode(line, type=Told)
                with self._lock:
                    if (answers := self._waiting.get(told.number)) is not None:
                        answers.put(told)
        with self._lock:
            self.lost = f"the connection to the cluster ({self.address}) ended" + _last_words(self._log)
            for answers in self._waiting.values():
                answers.put(None)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        process = os.pidfd_open(self._process.pid)
        try:
            select.select([process], [], [], self._grace_s)
        finally:
            os.close(process)
        # Not reaped yet, so that the number is still its group's: what it left of a cluster of its own ends too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _require_reachable(address: str) -> None:
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(
            f"--address {address} is no address: give HOST:PORT, auto for this machine's cluster, or local"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except OSError as error:
        raise EnvironmentFailure(
            f"no cluster answers at {address} ({error}): start one with `ray start --head --port={port}` there"
        ) from error


def _last_words(log: Path) -> str:
    """The last line of the process's output, where it left one."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    said = [line for line in lines if line.strip()]
    return f": {clean_line(_LOGGED.sub('', said[-1]), 120)}" if said else ""
