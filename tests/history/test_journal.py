"""The journal: nothing finished is lost, nothing torn is read, nothing damaged passes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kbtui.errors import JournalError
from kbtui.history.journal import JournalReader, JournalWriter, RunLock, heartbeat_file, read_journal
from kbtui.paths import run_dir
from kbtui.state import events as e


def note(text: str) -> e.Noted:
    return e.Noted(level="info", text=text)


def texts(events: list[e.Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, e.Noted)]


def write(path: Path, *lines: str) -> None:
    with JournalWriter(path) as writer:
        for line in lines:
            writer.append(note(line))


def test_appended_events_are_numbered_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    with JournalWriter(path) as writer:
        first = writer.append(note("a"))
        second = writer.append(note("b\nwith a newline and \x1b[31m"))
        writer.flush()
    assert (first.seq, second.seq) == (1, 2)
    assert read_journal(path) == [first, second]


def test_an_event_is_visible_to_readers_before_the_flush(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    reader = JournalReader(path)
    assert reader.read() == []
    with JournalWriter(path) as writer:
        writer.append(note("a"))
        assert texts(reader.read()) == ["a"]
        assert reader.read() == []
        writer.append(note("b"))
        assert texts(reader.read()) == ["b"]


def test_numbers_go_on_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b")
    with JournalWriter(path) as writer:
        assert writer.cut_bytes == 0
        assert writer.append(note("c")).seq == 3


@pytest.mark.parametrize("kept", [1, 20, -2, -1])
def test_a_torn_line_is_ignored_by_readers_and_cut_by_the_writer(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b")
    whole = path.read_bytes()
    torn = e.encode(msgspec.structs.replace(note("c"), seq=3))[:kept]
    path.write_bytes(whole + torn)
    reader = JournalReader(path)
    assert texts(reader.read()) == ["a", "b"]
    with JournalWriter(path) as writer:
        assert writer.cut_bytes == len(torn)
        assert path.read_bytes() == whole
        writer.append(note("d"))
    assert texts(reader.read()) == ["d"]


def test_a_torn_first_line_leaves_an_empty_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"type":"run_sta')
    assert read_journal(path) == []
    with JournalWriter(path) as writer:
        assert (writer.cut_bytes, writer.seq) == (16, 0)
        assert writer.append(note("a")).seq == 1


def test_a_torn_line_longer_than_one_block_is_cut_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a" * 200_000)
    with open(path, "ab") as file:
        file.write(b"x" * 200_000)
    with JournalWriter(path) as writer:
        assert (writer.cut_bytes, writer.seq) == (200_000, 1)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0\0\0\n" + lines[2])
    with pytest.raises(JournalError, match=r"journal\.jsonl, line 2:"):
        read_journal(path)


def test_an_incremental_reader_names_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b")
    reader = JournalReader(path)
    reader.read()
    with open(path, "ab") as file:
        file.write(b'{"type":"stepped"}\n')
    with pytest.raises(JournalError, match="line 3:"):
        reader.read()


@pytest.mark.parametrize("order", [(0, 2), (0, 0), (1, 0)])
def test_a_missing_doubled_or_swapped_event_is_an_error(tmp_path: Path, order: tuple[int, int]) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[index] for index in order))
    with pytest.raises(JournalError, match="its number is"):
        read_journal(path)


def test_two_events_on_one_line_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b")
    path.write_bytes(path.read_bytes().replace(b"\n", b"", 1))
    with pytest.raises(JournalError, match="line 1:"):
        read_journal(path)


def test_a_writer_refuses_a_journal_whose_last_line_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a")
    with open(path, "ab") as file:
        file.write(b"hello\n")
    with pytest.raises(JournalError, match="last line"):
        JournalWriter(path)
    assert path.read_bytes().endswith(b"hello\n")


def test_a_journal_of_a_newer_kbtui_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"type":"run_started","seq":1,"journal_version":99,"unheard_of":1}\n')
    with pytest.raises(JournalError, match=r"version 99.*upgrade"):
        read_journal(path)


def test_a_journal_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, "a", "b")
    reader = JournalReader(path)
    reader.read()
    path.write_bytes(b"")
    with pytest.raises(JournalError, match="shrank"):
        reader.read()


def test_transient_events_are_refused(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal.jsonl") as writer, pytest.raises(TypeError, match="transient"):
        writer.append(e.Progressed(stage="idle"))


def test_a_full_disk_leaves_no_torn_line_and_the_event_can_be_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path) as writer:
        writer.append(note("a"))
        real = os.write

        def half(descriptor: int, data: bytes) -> int:
            return real(descriptor, data[: len(data) // 2])

        def full(_descriptor: int, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        for failing in (half, full):
            monkeypatch.setattr(os, "write", failing)
            with pytest.raises(JournalError, match=r"journal\.jsonl.*make room"):
                writer.append(note("b"))
        monkeypatch.setattr(os, "write", real)
        assert writer.append(note("b")).seq == 2
    assert texts(read_journal(path)) == ["a", "b"]


_KILLED = """
import sys
from pathlib import Path
from kbtui.history.journal import JournalWriter, RunLock
from kbtui.state import events as e
RunLock(sys.argv[1]).acquire()
writer = JournalWriter(Path(sys.argv[2]))
while True:
    event = writer.append(e.Noted(level="info", text="x" * 500))
    print(event.seq, flush=True)
"""


def test_a_killed_process_loses_no_appended_event_and_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    child = subprocess.Popen([sys.executable, "-c", _KILLED, "killed", str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        seen = 0
        while seen < 200:
            seen = int(child.stdout.readline())
        assert RunLock.holder("killed") == child.pid
        with pytest.raises(JournalError, match=str(child.pid)):
            RunLock("killed").acquire()
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        said = max([seen, *(int(line) for line in rest[:-1])])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert len(read_journal(path)) >= said
    assert RunLock.holder("killed") is None
    with RunLock("killed"):
        assert RunLock.holder("killed") == os.getpid()
    assert RunLock.holder("killed") is None


def test_a_lock_is_given_back_once_and_leaves_a_heartbeat() -> None:
    assert RunLock.holder("a") is None
    lock = RunLock("a")
    lock.acquire()
    assert heartbeat_file("a").exists()
    assert (run_dir("a") / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    with RunLock("a"):
        assert RunLock.holder("a") == os.getpid()
