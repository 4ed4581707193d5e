"""Scratch folders: one's own during a run, gone after it, and swept when their owner was killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_fakes import Run, spec

from kbtui import paths
from kbtui.engine.scratch import YOUNG_S, scratch, sweep

HOLD = """
import sys, time
from kbtui.engine.scratch import scratch
with scratch(sys.argv[1]) as place:
    place.mkdir()
    (place / "big").write_bytes(b"0" * 1000)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Not the user's folder: other runs may be live there."""
    folder = tmp_path / "s"
    folder.mkdir()
    monkeypatch.setattr(paths, "socket_dir", lambda: folder)
    return folder


def age(path: Path, seconds: float = 2 * YOUNG_S) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_it_is_ones_own_and_gone_afterwards(own_sockets: Path) -> None:
    with scratch("mine") as place:
        assert not place.exists()
        place.mkdir()
        assert place.parent.parent == own_sockets
        assert place.parent.stat().st_mode & 0o077 == 0
        age(place.parent)
        assert sweep() == []
    assert list(own_sockets.iterdir()) == []


def test_what_a_run_left_before_is_not_in_the_way() -> None:
    with scratch("mine") as place:
        place.mkdir()
        (place / "x").touch()
        left = place.parent
        kept = left.with_name("kept")
        left.rename(kept)
    kept.rename(left)
    with scratch("mine") as place:
        assert place.parent == left
        assert not place.exists()


def test_a_killed_owners_folder_is_swept_and_a_living_ones_is_not(
    own_sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"from kbtui import paths\nfrom pathlib import Path\npaths.socket_dir = lambda: Path({str(own_sockets)!r})\n{HOLD}"
    owners = [
        subprocess.Popen([sys.executable, "-c", code, f"run-{number}"], stdout=subprocess.PIPE) for number in range(2)
    ]
    try:
        for owner in owners:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"held\n"
        owners[0].kill()
        owners[0].wait()
        monkeypatch.setenv("KBTUI_HOME", "/elsewhere")  # whose data folder it was does not matter
        assert sweep() == []  # it may only just have been made
        for folder in own_sockets.iterdir():
            age(folder)
        (removed,) = sweep()
        assert removed.name.startswith("run-0.")
        assert [folder.name.split(".")[0] for folder in own_sockets.iterdir()] == ["run-1"]
    finally:
        for owner in owners:
            owner.kill()
            owner.wait()
            assert owner.stdout is not None
            owner.stdout.close()


def test_sockets_that_nobody_answers_are_swept(own_sockets: Path) -> None:
    dead, live = own_sockets / "dead.sock", own_sockets / "live.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(dead))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(live))
        other.listen()
        for path in (dead, live):
            age(path)
        assert sweep() == [dead]
    assert list(own_sockets.iterdir()) == [live]


async def test_the_next_run_sweeps(own_sockets: Path) -> None:
    left = own_sockets / "old-run.00000000.lane"
    (left / "lane").mkdir(parents=True)
    age(left)
    await Run(spec(iterations=1)).go()
    assert list(own_sockets.iterdir()) == []
