"""A run process that is real in everything but its lane and its generator. Arguments: READY_FD SPEC METHOD.

With METHOD the lane is slow in it, so that a test can find the process at work.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import msgspec

from kbtui.engine import run_process
from kbtui.engine.spec import RunSpec


def _fakes() -> ModuleType:
    found = importlib.util.spec_from_file_location("engine_fakes", Path(__file__).with_name("engine_fakes.py"))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["engine_fakes"] = module
    found.loader.exec_module(module)
    return module


def main() -> int:
    fakes = _fakes()
    spec = msgspec.json.decode(sys.argv[2], type=RunSpec)
    run = fakes.Run(spec, attended=True)
    if sys.argv[3]:

        class SlowLane(fakes.FakeLane):  # type: ignore[misc, name-defined]
            def _begin(self, method, source, report):  # type: ignore[no-untyped-def]
                if method == sys.argv[3]:
                    time.sleep(0.2)
                return super()._begin(method, source, report)

        fakes.FakeLane = SlowLane
    ready = run_process._ReadyPipe(int(sys.argv[1]))
    return run_process.own(spec, run.parts(), ready.tell)


if __name__ == "__main__":
    sys.exit(main())
