"""Whether a run survives: each fault at random moments of a real run process, and what was lost.

`python benchmarks/survival.py [--trials 50] [--seed 0] [--fault "disk full"] [--write FILE]` puts each fault of
`tests/engine/survival.py` into that many runs (real engine, journal, lock, socket and DuckDB; lane and generator are
stand-ins whose results follow from the source). After each, the whole journal is compared with what it held before the
fault, every pull must have ended exactly once, the course must be that of an undisturbed run, and the database must
agree. The first thing that does not hold ends the fault's trials; it is named with its seed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from kbtui import paths

TESTS = Path(__file__).resolve().parent.parent / "tests" / "engine"


def load(name: str) -> ModuleType:
    """A helper module of the engine's tests."""
    found = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", help="only this one; may be repeated")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    load("engine_fakes")
    survival = load("survival")
    faults = arguments.fault or list(survival.FAULTS)
    lines = [
        f"{arguments.trials} trials of each fault, seed {arguments.seed}; {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}",
        "",
        "| fault | trials | all checks passed | events in the journal at the fault, all kept | seconds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    failures: list[str] = []
    for fault in faults:
        began, kept, passed = time.monotonic(), 0, 0
        with tempfile.TemporaryDirectory(prefix="kbtui-survival-") as home:
            os.environ["KBTUI_HOME"] = home
            paths.runs_dir().mkdir(parents=True)
            survival.warm_up()
            calm = survival.undisturbed()
            try:
                for trial in survival.trials(fault, arguments.trials, arguments.seed, calm):
                    kept += trial.before[0].count(b"\n")
                    passed += 1
            except AssertionError as error:
                failures.append(str(error))
        seconds = time.monotonic() - began
        lines.append(f"| {fault} | {arguments.trials} | {passed} | {kept} | {seconds:.0f} |")
        print(lines[-1], flush=True)
    lines += ["", *(f"- {failure}" for failure in failures)]
    text = "\n".join(lines) + "\n"
    print("\n" + text)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
