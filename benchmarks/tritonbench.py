"""Reading TritonBench-G files, and compiling what one launches without a device. Used by moves.py.

A file of that suite holds an implementation, a line of 146 `#`, and code that calls it. Nothing of it is kept here: the
folder comes from the user.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE = "#" * 146


@dataclass(frozen=True)
class Suite:
    """One file. `entries` are the functions and classes of the implementation that its test code names."""

    name: str
    implementation: str
    test: str
    entries: tuple[str, ...]


def read_suite(folder: Path) -> list[Suite]:
    """Every file of `folder`, by name."""
    return [_read(path) for path in sorted(folder.glob("*.py"))]


def _read(path: Path) -> Suite:
    implementation, _, test = path.read_text(encoding="utf-8").partition(LINE)
    defined: dict[str, ast.stmt] = {}
    for statement in ast.parse(implementation).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            defined.update({t.id: statement for t in statement.targets if isinstance(t, ast.Name)})
    named = {node.id: None for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name) and node.id in defined}
    entries = tuple(name for name in named if not _is_kernel(defined[name]))
    return Suite(path.stem, implementation, test, entries)


def _is_kernel(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    used = [d.func if isinstance(d, ast.Call) else d for d in statement.decorator_list]
    return any(isinstance(d, ast.Attribute | ast.Name) and _last(d) in ("jit", "autotune", "heuristics") for d in used)


def _last(name: ast.Attribute | ast.Name) -> str:
    return name.attr if isinstance(name, ast.Attribute) else name.id


# ------------------------------------------------------------ compiling without a device


@dataclass(frozen=True)
class Launched:
    """What a file launched: (kernel, digest of its machine code, grid) each; `failure` says why it is incomplete."""

    code: frozenset[tuple[str, str, tuple[int, ...]]] = frozenset()
    failure: str = ""


class Compiler:
    """Compiles in forked processes: this one imports torch and triton once, and never launches anything itself."""

    def __init__(self, target: str, deadline_s: float) -> None:
        from kbtui.evaluate import facts
        from kbtui.evaluate.targets import device_info, find_target

        self._parameters = facts.compile_parameters(device_info(find_target(target)), 0)
        self._deadline_s = deadline_s

    def launches(self, implementation: str, test: str) -> Launched:
        """Everything that running the test code launches, each compiled for the target; no kernel runs."""
        with tempfile.TemporaryDirectory(prefix="kbtui-moves-", ignore_cleanup_errors=True) as folder:
            return self._forked(f"{implementation}\n{test}", folder)

    def _forked(self, source: str, folder: str) -> Launched:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(source, writer, folder)
        os.close(writer)
        try:
            reply = self._reply(reader)
        finally:
            os.close(reader)
            os.killpg(child, signal.SIGKILL) if _leads_a_group(child) else os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not reply:
            return Launched(failure=f"no answer within {self._deadline_s:g} s")
        found = json.loads(reply)
        return Launched(frozenset((n, d, tuple(g)) for n, d, g in found["code"]), found["failure"])

    def _reply(self, reader: int) -> bytes:
        reply = b""
        while select.select([reader], [], [], self._deadline_s)[0]:
            piece = os.read(reader, 65536)
            if not piece:
                return reply
            reply += piece
        return b""

    def _child(self, source: str, writer: int, folder: str) -> None:
        """Does not return."""
        os.setpgid(0, 0)
        os.environ["TRITON_CACHE_DIR"] = folder
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code, failure = self._run(source, Path(folder) / "suite_file.py")
        os.write(writer, json.dumps({"code": code, "failure": failure}).encode())
        os._exit(0)

    def _run(self, source: str, path: Path) -> tuple[list[Any], str]:
        import triton

        from kbtui.evaluate.inlane.capture import replace_benchmarks
        from kbtui.evaluate.inlane.pretend import pretending
        from kbtui.evaluate.inlane.stub import Recorder, StubDriver

        properties, (major, minor) = self._parameters["properties"], self._parameters["capability"]
        recorder = Recorder()
        triton.runtime.driver.set_active(StubDriver(recorder, properties, (major, minor)))
        replace_benchmarks(recorder)
        path.write_text(source, encoding="utf-8")
        failure = ""
        with pretending(properties, (major, minor)):
            try:
                spec = importlib.util.spec_from_file_location("suite_file", path)
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                sys.modules["suite_file"] = module
                spec.loader.exec_module(module)
            except (Exception, SystemExit) as error:  # noqa: BLE001  a file may raise anything, and the table shows it
                failure = traceback.format_exception_only(error)[-1].strip()[:200]
        launched = {(launch.binary.name, launch.binary.facts.digest, launch.grid) for launch in recorder.launches}
        return sorted(launched), failure


def _leads_a_group(child: int) -> bool:
    try:
        return os.getpgid(child) == child
    except ProcessLookupError:
        return False
