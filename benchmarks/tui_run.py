"""A stand-in for a run process: a real lock, journal and socket, with scripted events at a pace.

    python benchmarks/tui_run.py RUN PULLS [PACE SECONDS]

Writes the journal of a run of PULLS pulls; with a pace it then serves the run's socket and goes on at PACE events per second,
with a GPU sample each second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import msgspec

from kbtui import __version__, paths
from kbtui.engine.server import Server
from kbtui.history.journal import JournalWriter, RunLock
from kbtui.state import events as e
from kbtui.state.commands import PROTOCOL_VERSION, Hello

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "tui"))

from tui_sample import gpu, sample


def main(run_id: str, pulls: int, pace: float = 0.0, seconds: float = 0.0) -> None:
    lock = RunLock(run_id)
    lock.acquire()
    later = int(pace * seconds / 4) + 1 if pace else 0
    events = [event for event in sample(pulls=pulls + later).events if not isinstance(event, e.GpuSampled)]
    cut = (
        next(i for i, event in enumerate(events) if isinstance(event, e.Selected) and event.pull > pulls)
        if later
        else len(events)
    )
    now = time.time() - events[cut - 1].elapsed
    with JournalWriter(paths.journal_file(run_id)) as journal:
        for event in events[:cut]:
            journal.append(
                msgspec.structs.replace(event, t=now + event.elapsed, run_id=run_id)
                if isinstance(event, e.RunStarted)
                else msgspec.structs.replace(event, t=now + event.elapsed)
            )
        journal.flush()
        print("ready", flush=True)
        if pace:
            asyncio.run(_serve(run_id, journal, events[cut:], events[cut - 1].elapsed, pace, seconds))
    lock.release()


async def _serve(
    run_id: str, journal: JournalWriter, events: list[e.Event], elapsed: float, pace: float, seconds: float
) -> None:
    def hello() -> Hello:
        return Hello(PROTOCOL_VERSION, __version__, run_id, 0, str(journal.path), journal.seq)

    server = Server(paths.socket_file(run_id), hello, lambda _command: (True, "done"))
    await server.start()
    begun = time.monotonic()
    sent, sampled = 0, 0.0
    while (passed := time.monotonic() - begun) < seconds:
        while sent < min(int(passed * pace), len(events)):
            fresh = msgspec.structs.replace(events[sent], t=time.time(), elapsed=elapsed + passed)
            server.tell(journal.append(fresh))
            sent += 1
        if passed - sampled >= 1.0:
            sampled = passed
            server.tell(gpu(40 + 7 * (int(passed) % 8), time.time()))
        await asyncio.sleep(min(1 / pace, 0.02))
    await server.close()
    print(f"sent {sent}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:5]))
