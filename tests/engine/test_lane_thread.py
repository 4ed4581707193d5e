"""A lane in its thread: one job at a time, cancelled for sure, closed for sure, restarted after a failure."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from engine_fakes import FakeLane, Script

from kbtui.engine.lane_thread import LaneLost, LaneThread
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate.lane import LaneSpec
from kbtui.paths import library_dir


def lane(script: Script) -> LaneThread:
    made = LaneSpec(problem=library_dir() / "vector_add", device="cpu", python="python", scratch=Path("/nowhere"))
    return LaneThread(lambda spec: FakeLane(spec, script), made)


async def test_all_jobs_run_in_one_thread_that_is_not_the_loops() -> None:
    one = lane(Script())
    facts = await one.start()
    assert facts.problem.name == "vector_add"
    threads = [await one.call(lambda _: threading.get_ident()) for _ in range(3)]
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    await one.close()


async def test_jobs_do_not_overlap() -> None:
    one = lane(Script())
    await one.start()
    running: list[int] = []
    most: list[int] = []

    def job(_: object) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    await asyncio.gather(*(one.call(job) for _ in range(5)))
    assert max(most) == 1
    await one.close()


async def test_cancel_reaches_a_job_that_is_only_starting() -> None:
    """A cancel that comes before the lane can be cancelled finds nothing; it must come again."""
    script = Script()
    one = lane(script)
    await one.start()
    began = threading.Event()

    def job(inner: object) -> None:
        began.set()
        time.sleep(0.3)  # deaf: a cancel now is lost
        script.go.clear()
        script.go.wait(timeout=20)

    task = asyncio.ensure_future(one.call(job))
    await asyncio.to_thread(began.wait)
    task.cancel()
    start = time.monotonic()
    await one.cancel()
    assert 0.2 < time.monotonic() - start < 5
    assert await one.call(lambda _: "free again") == "free again"
    await one.close()
    assert script.closed == 1


async def test_a_lane_that_hangs_does_not_hold_up_the_end() -> None:
    one = lane(Script())
    await one.start()
    release = threading.Event()
    task = asyncio.ensure_future(one.call(lambda _: release.wait(20)))
    await asyncio.sleep(0.05)
    task.cancel()
    began = time.monotonic()
    await one.close(grace_s=0.3)
    assert time.monotonic() - began < 2
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "lane")
    release.set()


def failing(_: object) -> None:
    raise EnvironmentFailure("gone")


async def test_after_a_failure_the_lane_is_started_anew() -> None:
    script = Script()
    one = lane(script)
    await one.start()
    with pytest.raises(EnvironmentFailure, match="gone"):
        await one.call(failing)
    assert script.started == 1  # not before it is needed
    assert await one.call(lambda _: 5) == 5
    assert (script.started, script.closed) == (2, 1)
    await one.close()


async def test_a_lane_that_does_not_start_again_is_lost() -> None:
    script = Script()
    one = lane(script)
    await one.start()
    with pytest.raises(EnvironmentFailure):
        await one.call(failing)
    script.start_errors.append(EnvironmentFailure("still gone"))
    with pytest.raises(LaneLost, match="cpu does not start again: still gone"):
        await one.call(lambda _: 5)
    await one.close()


async def test_a_bug_in_a_job_is_not_hidden() -> None:
    one = lane(Script())
    await one.start()

    def bug(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one.call(bug)
    await one.close()
