"""Candidates that crash, hang, cheat the protocol or reach out: each costs one candidate and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.job import Outcome
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.state.records import KernelFacts, Verification

pytest.importorskip("triton", reason="needs triton")
PROBLEM = Path(__file__).with_name("data") / "scale"
KERNEL = (PROBLEM / "kernel.py").read_text()
FACTS = KernelFacts(
    name="scale_kernel",
    target="sm_90",
    registers=16,
    spill_bytes=0,
    shared_bytes=0,
    num_warps=4,
    num_stages=2,
    threads=128,
    occupancy_percent=100.0,
    code_digest="0" * 64,
    constants={"BLOCK": 64},
)


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


def inside(folder: Path) -> list[int]:
    """Processes that work in a folder or below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                    found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuLane]:
    scratch = tmp_path_factory.mktemp("lane") / "scratch"
    made = open_lane(LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=scratch, deadline_s=30))
    assert isinstance(made, CpuLane)
    made.start()
    yield made
    pids = inside(scratch)
    assert len(pids) >= 3
    made.close()
    made.close()
    assert not scratch.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.fixture
def outcomes(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """How the processes of this test's jobs ended."""
    seen: list[Outcome] = []
    run = lane._verifier._run_job

    def recording(*arguments: object) -> Outcome:
        seen.append(run(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(lane._verifier, "_run_job", recording)
    return seen


def in_entry(code: str, before: str = "") -> str:
    """The baseline with `code` at the start of its entry, `before` at the top of the file."""
    signature = "def scale(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:\n"
    body = "".join(f"    {line}\n" for line in code.strip().splitlines())
    return before + KERNEL.replace(signature, signature + body)


def verify(lane: CpuLane, source: str) -> Verification:
    return lane.verify(source, (FACTS,), quiet)


def still_works(lane: CpuLane) -> bool:
    return verify(lane, KERNEL + "\n# still here\n").verdict == "correct"


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_segmentation_fault_is_a_crash(lane: CpuLane) -> None:
    found = verify(lane, in_entry("import ctypes\nctypes.string_at(0)"))
    assert (found.verdict, found.owner) == ("crash", "candidate")
    assert "SIGSEGV" in found.reason
    assert still_works(lane)


@pytest.mark.parametrize("code", ["import os\nos._exit(0)", "import os\nos.abort()", "raise SystemExit(0)"])
def test_leaving_early_is_a_crash(lane: CpuLane, code: str) -> None:
    found = verify(lane, in_entry(code))
    assert (found.verdict, found.stage) == ("crash", "call")
    assert found.cases_checked == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os\nos._exit(0)", "a call of its entry ended the process with status 0, as os._exit does"),
        ("import ctypes\nctypes.string_at(0)", "its process died of SIGSEGV"),
        ("raise SystemExit(0)", "SystemExit: 0 (kernel.py:19)"),
    ],
)
def test_what_ends_the_process_in_the_entry_is_no_failure_to_compile(lane: CpuLane, code: str, reason: str) -> None:
    found = lane.compile(in_entry(code), quiet)
    assert (found.outcome, found.stage, found.reason) == ("crash", "call", reason)


def test_an_exception_out_of_the_entry_reads_alike_wherever_it_is_called(lane: CpuLane) -> None:
    source = in_entry("if x.shape[0]:\n    raise ValueError('no such shape')")
    compiled, verified = lane.compile(source, quiet), verify(lane, source)
    assert (verified.stage, verified.reason, verified.detail) == (compiled.stage, compiled.reason, compiled.detail)
    assert verified.reason == "ValueError: no such shape (kernel.py:20)"
    assert verified.detail == "  File \"kernel.py\", line 20, in scale\n    raise ValueError('no such shape')"


@pytest.mark.parametrize(
    ("before", "reason", "shown"),
    [
        ("raise SystemExit(2)\n", "importing it raises SystemExit: 2 (kernel.py:1)", "raise SystemExit(2)"),
        ("def (\n", "importing it raises SyntaxError: invalid syntax (kernel.py, line 1)", "^"),
    ],
)
def test_a_module_that_does_not_import_names_the_line(lane: CpuLane, before: str, reason: str, shown: str) -> None:
    found = lane.compile(before + KERNEL, quiet)
    assert (found.outcome, found.stage, found.reason) == ("invalid", "load", reason)
    assert found.detail.startswith('  File "kernel.py", line 1')
    assert found.detail.endswith(shown)


def test_an_endless_loop_is_a_hang(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane._verifier, "_given", msgspec.structs.replace(lane._verifier._given, deadline_s=1.0))
    began = time.monotonic()
    found = verify(lane, in_entry("while True:\n    pass"))
    assert (found.verdict, found.stage) == ("hang", "call")
    assert "1 s" in found.reason
    assert time.monotonic() - began < 10


def test_a_memory_hog_is_ended(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> None:
    given = msgspec.structs.replace(lane._verifier._given, memory_bytes=1 << 30)
    monkeypatch.setattr(lane._verifier, "_given", given)
    hog = "held = []\nimport time\nwhile True:\n    held.append(bytearray(b'x') * (1 << 26))\n    time.sleep(0.01)"
    found = verify(lane, in_entry(hog))
    assert found.verdict == "crash"
    assert "memory" in found.reason


def test_a_daemon_is_swept(lane: CpuLane, outcomes: list[Outcome]) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(0.2)
os._exit(3)
"""
    found = verify(lane, in_entry(code))
    assert found.verdict == "crash"
    assert "status 3" in found.reason
    pid = int(outcomes[-1].output.split()[1])
    assert outcomes[-1].swept == 1
    assert not alive(pid)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("channel.sendall(struct.pack('!II', 1 << 31, 0))", id="huge"),
        pytest.param('frame(b\'{"type":"say","stage":"x","text":"\' + b\'a\' * 4000 + b\'"}\')', id="long text"),
        pytest.param("frame(pickle.dumps({'verdict': 'correct'}))", id="pickle"),
        pytest.param('frame(b\'{"type":"verdict","verdict":"correct"}\')', id="unknown type"),
        pytest.param("frame(b'[' * 100000)", id="nested"),
        pytest.param('frame(b\'{"type":"ask","what":"expected","fields":{"case":0}}\')', id="answers"),
        pytest.param('frame(b\'{"type":"ask","what":"inputs","fields":{"case":99}}\')', id="case"),
        pytest.param("channel.sendall(struct.pack('!II', 2, 4) + b'{}')", id="missing descriptors"),
        pytest.param("outputs(os.memfd_create('x', os.MFD_ALLOW_SEALING), 64)", id="unsealed"),
        pytest.param("outputs(os.open('kernel.py', os.O_RDONLY), 64)", id="a file"),
        pytest.param("outputs(sealed(16), 64)", id="truncated"),
        pytest.param("outputs(sealed(1 << 20), 1 << 20, shape=1 << 40)", id="beyond its memory"),
        pytest.param('frame(b\'{"type":"done","value":{"verdict":"correct","calls":20}}\'); os._exit(0)', id="done"),
    ],
)
def test_breaking_the_protocol_is_a_cheat(lane: CpuLane, code: str) -> None:
    before = """
import fcntl, json, os, pickle, socket, struct, time
channel = socket.socket(fileno=3)
def frame(body, fds=()):
    socket.send_fds(channel, [struct.pack("!II", len(body), len(fds)) + body], list(fds))
def sealed(size):
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd
def outputs(fd, size, shape=16):
    tensor = {"dtype": "float32", "shape": [shape], "strides": [1], "span": shape, "offset": 0}
    frame(json.dumps({"type": "outputs", "case": 0, "call": 0, "size": size, "names": ["0"], "tensors": [tensor],
                      "changed": [], "shared": [-1], "launched": ["scale_kernel"], "own": True}).encode(), [fd])
"""
    found = verify(lane, in_entry(code + "\ntime.sleep(20)", before))
    assert found.verdict == "cheat", found
    assert found.seconds < 15
    assert still_works(lane)


def test_half_a_frame_costs_its_own_deadline(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane._verifier, "_given", msgspec.structs.replace(lane._verifier._given, deadline_s=1.0))
    code = "import os, time\nos.write(3, bytes([0, 0, 1, 0, 0, 0, 0, 0]) + b'{')\ntime.sleep(20)"
    assert verify(lane, in_entry(code)).verdict == "hang"


def test_a_printed_verdict_counts_for_nothing(lane: CpuLane) -> None:
    code = 'print(\'{"verdict": "correct"}\' * 100000, flush=True)\nreturn torch.zeros_like(x)'
    assert verify(lane, in_entry(code)).verdict in ("wrong", "cheat")


def test_keys_are_out_of_reach(lane: CpuLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key-0123456789")
    code = f"""
import os
assert not [name for name in os.environ if "KEY" in name or "TOKEN" in name]
for pid in (os.getppid(), {os.getpid()}):
    try:
        open(f"/proc/{{pid}}/environ", "rb").read()
    except PermissionError:
        continue
    raise ValueError("read the environment of another process")
"""
    expected = lane.facts.isolation["run process hidden"]
    found = verify(lane, in_entry(code))
    assert (found.verdict == "correct") == (expected == "on"), found
    assert lane.facts.isolation["environment"] == "on"


def test_files_outside_and_the_oracle_are_out_of_reach(lane: CpuLane, tmp_path: Path) -> None:
    if lane.facts.isolation["landlock"] != "on":
        pytest.skip(lane.facts.isolation["landlock"])
    code = f"""
for attempt in (lambda: open({str(tmp_path / "x")!r}, "w"), lambda: open({str(PROBLEM / "problem.py")!r}).read()):
    try:
        attempt()
    except PermissionError:
        continue
    raise ValueError("reached outside")
"""
    assert verify(lane, in_entry(code)).verdict == "correct"


def test_importing_the_oracle_is_a_cheat(lane: CpuLane) -> None:
    found = verify(lane, in_entry("return scale_reference(x, w)", "from problem import reference as scale_reference\n"))
    assert (found.verdict, found.stage) == ("cheat", "load")
    assert "reference" in found.reason


def test_the_network_is_out_of_reach(lane: CpuLane) -> None:
    isolation = lane.facts.isolation
    if "on" not in (isolation["network namespace"], isolation["landlock"]):
        pytest.skip(isolation["network namespace"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=1).close()
except OSError:
    pass
else:
    raise ValueError("connected")
"""
        found = verify(lane, in_entry(code))
        assert (found.verdict, found.stage) == ("cheat", "tampering"), found
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_killing_the_zygote_costs_the_candidate(lane: CpuLane) -> None:
    if lane.facts.isolation["landlock"] == "on":
        # the signal scope refuses it, and the candidate goes on
        code = "import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    pass"
        assert verify(lane, in_entry(code)).verdict == "correct"
    else:
        assert verify(lane, in_entry("import os\nos.kill(os.getppid(), 9)")).verdict == "crash"
    assert still_works(lane)


def test_lane_processes_are_started_again(lane: CpuLane) -> None:
    for pid in (lane._interpret.pid, lane._oracle.pid):
        assert pid is not None
        os.kill(pid, 9)
    assert still_works(lane)


def test_cancel_ends_the_job_that_runs(lane: CpuLane) -> None:
    threading.Timer(1.0, lane.cancel).start()
    began = time.monotonic()
    found = verify(lane, in_entry("while True:\n    pass"))
    assert (found.verdict, found.owner, found.reason) == ("unknown", "environment", "cancelled")
    assert time.monotonic() - began < 10
    assert still_works(lane)


def test_jobs_leave_nothing_behind(lane: CpuLane) -> None:
    still_works(lane)
    descriptors = len(os.listdir("/proc/self/fd"))
    for code in ("import os\nos._exit(1)", "import os\nos.write(3, b'x' * 64)", "pass"):
        verify(lane, in_entry(code))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    folder = lane._spec.scratch / "interpret"
    assert [path.name for path in folder.iterdir() if path.name.startswith("job")] == []


def test_a_job_whose_zygote_is_closed_has_ended(lane: CpuLane) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    order = msgspec.structs.replace(lane._order("empty", "", {}, 10.0), memory_bytes=0)
    job = lane._interpret.start(order)
    lane._interpret.launch()
    lane._interpret.await_ready()
    assert job.ended is not None
    job.close()
    lane._interpret.forget(job)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert still_works(lane)


def test_an_interpreter_that_is_none_is_said_in_words(tmp_path: Path) -> None:
    spec = LaneSpec(problem=PROBLEM, device="cpu", python="/bin/false", scratch=tmp_path / "lane", deadline_s=30)
    lane = open_lane(spec)
    with pytest.raises(EnvironmentFailure, match=r"under /bin/false did not start: it ended without a word"):
        lane.start()
    lane.close()
