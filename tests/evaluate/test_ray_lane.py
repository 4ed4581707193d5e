"""Lanes in a Ray cluster without a cluster: what travels, what is refused, and the connection's end of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui import paths
from kbtui.errors import EnvironmentFailure, KbtuiError, ProblemError, UsageError
from kbtui.evaluate import isolation, ray_client, ray_link, ray_parcel
from kbtui.evaluate.lane import Evaluated, LaneFacts, LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.evaluate.ray_actor import LaneActor
from kbtui.evaluate.ray_client import link_environment
from kbtui.evaluate.ray_parcel import packed, unpacked
from kbtui.evaluate.ray_wire import Asked, Call, Cancel, Close, Failed, Reply, Request, Shipment, Told, error_of
from kbtui.problems.folder import find_problem
from kbtui.state.records import Compilation, Verification

PROBLEM = find_problem("vector_add")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra kbtui[ray]")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra kbtui[torch]")


def spec_for(tmp_path: Path, cluster: str = "auto", problem: Path = PROBLEM.path, device: str = "cpu") -> LaneSpec:
    return LaneSpec(problem=problem, device=device, python=sys.executable, scratch=tmp_path / "lane", cluster=cluster)


# ---------------------------------------------------------------- a problem as data


def test_a_problem_arrives_as_it_was_sent(tmp_path: Path) -> None:
    over = msgspec.json.decode(msgspec.json.encode(packed(spec_for(tmp_path))), type=Shipment)
    folder = unpacked(over, tmp_path / "there")
    assert folder.name == "vector_add"
    assert (folder / "kernel.py").read_text() == PROBLEM.kernel_source
    assert sorted(over.files) == ["vector_add/kernel.py", "vector_add/problem.py"]
    assert over.device == "cpu"


def test_a_gpu_of_a_cluster_is_the_first_that_its_actor_sees(tmp_path: Path) -> None:
    assert packed(spec_for(tmp_path, device="cuda:5")).device == "cuda:0"


def test_another_problem_than_was_sent_is_refused(tmp_path: Path) -> None:
    """Any file of it, not only the two that a problem has."""
    problem = tmp_path / "mine"
    problem.mkdir()
    for name in ("kernel.py", "problem.py", "sizes.json"):
        (problem / name).write_text("1")
    shipment = packed(spec_for(tmp_path, problem=problem))
    for name in shipment.files:
        changed = msgspec.structs.replace(shipment, files={**shipment.files, name: b"2"})
        with pytest.raises(EnvironmentFailure, match=f"where {shipment.digest[:12]} was sent"):
            unpacked(changed, tmp_path / "there")
    assert unpacked(shipment, tmp_path / "there").is_dir()


def test_hidden_files_stay_here(tmp_path: Path) -> None:
    problem = tmp_path / "mine"
    for name in (".env", ".git/config", "__pycache__/kernel.pyc", "kernel.py", "problem.py", "data/table.csv"):
        file = problem / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert sorted(packed(spec_for(tmp_path, problem=problem)).files) == [
        "mine/data/table.csv",
        "mine/kernel.py",
        "mine/problem.py",
    ]


def test_the_package_of_a_problem_comes_along(tmp_path: Path) -> None:
    package = tmp_path / "kernels"
    problem = package / "add"
    problem.mkdir(parents=True)
    for name in ("__init__.py", "common.py", "weights.bin", "add/__init__.py", "add/kernel.py", "add/problem.py"):
        (package / name).write_text(name)
    shipment = packed(spec_for(tmp_path, problem=problem))
    assert shipment.folder == "kernels/add"
    assert sorted(shipment.files) == [
        "kernels/__init__.py",
        "kernels/add/__init__.py",
        "kernels/add/kernel.py",
        "kernels/add/problem.py",
        "kernels/common.py",
    ]
    folder = unpacked(shipment, tmp_path / "there")
    assert (folder.parent / "common.py").read_text() == "common.py"


def test_nothing_is_written_beside_the_folder(tmp_path: Path) -> None:
    shipment = packed(spec_for(tmp_path))
    files = {**shipment.files, "../outside.py": b"1"}
    outside = msgspec.structs.replace(shipment, files=files, digest=ray_parcel._digest(files))
    with pytest.raises(EnvironmentFailure, match="outside its folder"):
        unpacked(outside, tmp_path / "there")
    assert not (tmp_path / "outside.py").exists()


def test_a_folder_of_many_megabytes_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_parcel, "MOST_BYTES", 100)
    with pytest.raises(ProblemError, match="keep only what the problem needs"):
        packed(spec_for(tmp_path))


# ---------------------------------------------------------------- the actor, without Ray


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not the user's folder: other runs may be live there."""
    folder = tmp_path / "sockets"
    folder.mkdir()
    monkeypatch.setattr(paths, "socket_dir", lambda: folder)
    return folder


@pytest.fixture
def actor(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LaneActor]:
    monkeypatch.setattr(isolation, "harden_run_process", lambda: "on")
    made = LaneActor(msgspec.json.encode(packed(spec_for(tmp_path))))
    yield made
    made.close()
    made.close()
    assert list(sockets.iterdir()) == []


def asked(actor: LaneActor, number: int, request: Request) -> Reply:
    return msgspec.json.decode(actor.call(number, msgspec.json.encode(request)), type=Reply)


@needs_torch
def test_an_actor_judges_as_a_lane_does(actor: LaneActor) -> None:
    """By what travels. The lane in it is a real one."""
    before = asked(actor, 0, Request(method="selftest"))
    assert (before.error, before.text) == ("EnvironmentFailure", "its lane has ended")
    facts = msgspec.json.decode(asked(actor, 1, Request(method="start")).value, type=LaneFacts)
    assert (facts.problem.name, facts.problem.digest) == ("vector_add", PROBLEM.digest)
    source = PROBLEM.kernel_source
    compiled = msgspec.json.decode(asked(actor, 2, Request(method="compile", source=source)).value, type=Compilation)
    assert compiled.ok
    verify = Request(method="verify", source=source, kernels=compiled.kernels)
    found = msgspec.json.decode(asked(actor, 3, verify).value, type=Verification)
    assert (found.verdict, found.cases_checked > 10) == ("correct", True)
    said = msgspec.json.decode(actor.said(3), type=list[tuple[str, str]])
    assert said
    assert all(stage for stage, _ in said)
    assert actor.said(3) == b"[]"
    actor.forget(3)
    timed = Request(method="time", source=source, kernels=compiled.kernels, baseline_source=source)
    evaluated = msgspec.json.decode(asked(actor, 4, timed).value, type=Evaluated)
    assert evaluated.timing.kind == "modelled"
    wrong = source.replace("x + y", "x - y")
    assert wrong != source
    verify = Request(method="verify", source=wrong, kernels=compiled.kernels)
    assert msgspec.json.decode(asked(actor, 5, verify).value, type=Verification).verdict == "wrong"


def test_what_a_lane_raises_keeps_its_class(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that does not exist is the user's mistake on a node, too, and not the machine's."""
    monkeypatch.setattr(isolation, "harden_run_process", lambda: "on")
    spec = msgspec.structs.replace(spec_for(tmp_path), target="sm_1")
    actor = LaneActor(msgspec.json.encode(packed(spec)))
    reply = asked(actor, 0, Request(method="start"))
    actor.close()
    error = error_of(reply.error, reply.text)
    assert type(error) is UsageError
    assert "nothing is known of target 'sm_1'" in str(error)


@pytest.mark.parametrize(
    ("name", "kind"), [("ProblemError", ProblemError), ("KeyError", KbtuiError), ("Path", KbtuiError)]
)
def test_only_errors_of_ours_are_raised_by_name(name: str, kind: type[KbtuiError]) -> None:
    assert type(error_of(name, "so")) is kind


# ---------------------------------------------------------------- what the connected process gets


def test_no_key_reaches_the_process_that_is_connected() -> None:
    given = {"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "MY_THING": "x", "RAY_AUTH_TOKEN": "t", "HOME": "/home/me"}
    found = link_environment("head:6379", given)
    assert found == {"PATH": "/bin", "HOME": "/home/me", "RAY_AUTH_TOKEN": "t", "RAY_USAGE_STATS_ENABLED": "0"}


def test_a_cluster_of_ones_own_has_its_own_token_and_stays_on_loopback() -> None:
    one, two = (link_environment("local", {"RAY_AUTH_TOKEN": "mine", "RAY_USAGE_STATS_ENABLED": "1"}) for _ in range(2))
    assert one["RAY_AUTH_MODE"] == "token"
    assert len({one["RAY_AUTH_TOKEN"], two["RAY_AUTH_TOKEN"], "mine"}) == 3
    assert one["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == one["RAY_USAGE_STATS_ENABLED"] == "0"


# ---------------------------------------------------------------- the connection, with a stand-in for the other end

STAND_IN = """
    import os, socket, sys, time
    import msgspec
    from kbtui.evaluate.ray_wire import *
    peer = socket.socket(fileno=int(sys.argv[1]))
    def tell(told): peer.sendall(msgspec.json.encode(told) + b"\\n")
    tell(Ready(resources={"CPU": 2.0}, ray="2"))
    for line in peer.makefile("rb"):
        asked = msgspec.json.decode(line, type=Asked)
        if isinstance(asked, Close):
            tell(Failed(number=asked.number, error="UsageError", text="no lane of that number"))
        elif asked.request.source == "die":
            print("[2026-12-01 14:54:41,866 E 18757 18958] rpc_client.h:204: the head is gone", flush=True)
            os._exit(3)
        else:
            tell(Said(number=asked.number, stage="s", text="one"))
            tell(Said(number=asked.number + 1000, stage="s", text="for nobody"))
            tell(Said(number=asked.number, stage="s", text="two"))
            tell(Done(number=asked.number, value=msgspec.Raw(b"7")))
"""


@pytest.fixture
def link(sockets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ray_client.Link]:
    program = tmp_path / "stand_in.py"
    program.write_text(textwrap.dedent(STAND_IN))
    start = subprocess.Popen

    def popen(command: list[str], **given: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, str(program), *command[4:]], **given)

    monkeypatch.setattr(ray_client.subprocess, "Popen", popen)
    made = ray_client.Link("local")
    yield made
    made.close()
    made.close()
    assert list(sockets.iterdir()) == []


def call(link: ray_client.Link, source: str = "") -> Call:
    return Call(number=link.number(), lane=1, request=Request(method="compile", source=source))


def test_reports_come_before_the_answer_and_to_whoever_asked(link: ray_client.Link) -> None:
    heard: list[tuple[str, str]] = []
    assert link.ask(call(link), lambda stage, text: heard.append((stage, text))) == b"7"
    assert heard == [("s", "one"), ("s", "two")]
    assert link.ready.resources == {"CPU": 2.0}


def test_several_ask_at_once(link: ray_client.Link) -> None:
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda: answers.append(link.ask(call(link), lambda *_: None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == [b"7"] * 8


def test_an_error_there_is_raised_here(link: ray_client.Link) -> None:
    with pytest.raises(UsageError, match=r"^no lane of that number$"):
        link.ask(Close(number=link.number(), lane=1), lambda *_: None)


def test_when_the_connection_ends_all_that_wait_fail(link: ray_client.Link) -> None:
    """With Ray's last words, and without what its log puts before them. Whoever asks later hears the same."""
    words = r"^the connection to the cluster \(local\) ended: the head is gone$"
    with pytest.raises(EnvironmentFailure, match=words):
        link.ask(call(link, "die"), lambda *_: None)
    with pytest.raises(EnvironmentFailure, match=words):
        link.ask(call(link), lambda *_: None)
    with pytest.raises(EnvironmentFailure, match=words):
        link.tell(Cancel(lane=1, source=None))


# ---------------------------------------------------------------- what is refused


def test_without_ray_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^ray is not installed: pip install 'kbtui\[ray\]'$"):
        open_lane(spec_for(tmp_path)).start()


@pytest.fixture
def some_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused before Ray is asked is refused on machines without it, too."""
    monkeypatch.setattr(ray_client.importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("some_ray")
@pytest.mark.parametrize("address", ["nonsense", "host:port", "ray://127.0.0.1:10001", ":1", "host:0", "host:99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match=f"--address {address} is no address: give HOST:PORT"):
        ray_client.acquire(address)


@pytest.mark.usefixtures("some_ray")
def test_a_cluster_that_does_not_answer() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        port = held.getsockname()[1]
        with pytest.raises(EnvironmentFailure, match=f"no cluster answers at 127.0.0.1:{port}"):
            ray_client.acquire(f"127.0.0.1:{port}")


@needs_ray
def test_what_answers_and_is_not_ray(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would wait for it without end."""
    monkeypatch.setattr(ray_client, "CONNECT_S", 3.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(EnvironmentFailure, match=f"the cluster \\(127.0.0.1:{port}\\) did not take this process"):
            ray_client.acquire(f"127.0.0.1:{port}")
        assert time.monotonic() - began < 20
    assert list(sockets.iterdir()) == []


def test_other_versions_are_said_in_our_words() -> None:
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.44.0\n    Python: 3.12.3\n"
        "This process on node 127.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    error = ray_link._refused("head:6379", said)
    assert type(error) is UsageError
    assert str(error) == (
        "the cluster (head:6379) has Ray 2.44.0 and Python 3.12.3, this machine Ray 2.60.0 and Python 3.11.7: install the same "
        "on all machines"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--address", "127.0.0.1:1"], "--address is for --lanes ray"),
        (["--lanes", "ray", "--python", sys.executable], "--python is for lanes on this machine"),
        (["--lanes", "elsewhere"], "elsewhere"),
    ],
)
def test_what_does_not_fit_together(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    from kbtui.cli import main as program

    assert program.main(["run", "vector_add", "--headless", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_run_process_does_not_import_ray() -> None:
    code = "import sys, kbtui.evaluate.ray_lane, kbtui.engine.run_process as r; r.default_parts(); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "False\n"


def test_every_request_and_answer_survives_the_way() -> None:
    for sent in (Cancel(lane=1, source=None), Cancel(lane=1, source="x"), Close(number=2, lane=1)):
        assert msgspec.json.decode(msgspec.json.encode(sent), type=Asked) == sent
    failed = Failed(number=0, error="UsageError", text="a\nb")
    line = msgspec.json.encode(failed)
    assert b"\n" not in line  # one line each
    assert msgspec.json.decode(line, type=Told) == failed
