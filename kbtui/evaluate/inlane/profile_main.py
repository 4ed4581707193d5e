"""Runs a candidate's cases once each under a profiler: `python -I -B profile_main.py SPEC.json`.

SPEC: {"source": path, "problem_folder": path, "entry": name, "device": "cuda:0", "cases": [[argument, ...], ...]}, an
argument being {"empty": description} or {"value": scalar} or {"float": repr}. Only the last call of each case is seen
by the profiler. Float tensors get random values, integers zeros: counters do not depend on them as results do.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

WARM_CALLS = 3


def main(path: str) -> int:
    """Exit status 0; whatever a candidate raises ends the process."""
    _find_our_modules()
    import torch

    from kbtui.evaluate.inlane import gpus, sandbox
    from kbtui.evaluate.inlane.tensors import arguments_from
    from kbtui.problems.importing import load_source_file

    sandbox.attempt(sandbox.no_new_privileges)
    sandbox.attempt(sandbox.no_core_files)
    spec = json.loads(Path(path).read_text("utf-8"))
    spec["device"] = gpus.only(spec["device"])
    torch.cuda.set_device(spec["device"])
    module = load_source_file(Path(spec["problem_folder"]), "kernel", Path(spec["source"]))
    entry = getattr(module, spec["entry"])

    for case in spec["cases"]:
        arguments = arguments_from(case, (), 0, spec["device"])
        for value in arguments:
            if isinstance(value, torch.Tensor):
                _fill(value)
        for _ in range(WARM_CALLS):
            entry(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        entry(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return 0


def _fill(tensor: Any) -> None:
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor.normal_()
    else:
        tensor.zero_()


def _find_our_modules() -> None:
    """Make the parts of kbtui that belong into a lane importable, as `bootstrap` does."""
    path = Path(__file__).with_name("bootstrap.py")
    found = importlib.util.spec_from_file_location("kbtui_lane_bootstrap", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    sys.meta_path.insert(0, module.LaneFinder())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
