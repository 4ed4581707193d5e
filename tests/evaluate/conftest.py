"""Jobs of a lane run directly, for tests of what is inside them: one small zygote for compiling, one for counting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RunJob = Callable[..., dict[str, Any]]


def _server(folder: Path, job: str) -> Iterator[RunJob]:
    pytest.importorskip("triton", reason="needs triton")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    environment.pop("TRITON_INTERPRET", None)
    if job == "count":
        environment["TRITON_INTERPRET"] = "1"
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("run_job.py"))],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        number = 0

        def run(source: str, entry: str, parameters: dict[str, Any], inputs: list[Any]) -> dict[str, Any]:
            nonlocal number
            number += 1
            place = folder / str(number)
            place.mkdir()
            request = {"job": job, "source": source, "folder": str(place), "entry": entry}
            print(json.dumps({**request, "parameters": parameters, "inputs": inputs}), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, (folder / "log").read_text()[-3000:]
            found: dict[str, Any] = json.loads(line)
            assert "died" not in found, (folder / "log").read_text()[-3000:]
            return found

        yield run
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def run_compile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunJob]:
    """`run_compile(source, entry, parameters, inputs)`: the job "compile"; an input is a scalar or [dtype, shape]."""
    yield from _server(tmp_path_factory.mktemp("compile"), "compile")


@pytest.fixture(scope="session")
def run_count(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunJob]:
    """The same for the job "count", under Triton's interpreter."""
    yield from _server(tmp_path_factory.mktemp("count"), "count")
