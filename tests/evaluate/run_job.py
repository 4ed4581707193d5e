"""A zygote for tests: imports torch and triton once, then forks for each request, without isolation.

One request per line on stdin: {"job": "compile"|"count", "source": text, "folder": path, "entry": name,
"parameters": {...}, "inputs": [[[dtype, shape] | value, ...], ...]}. One line on stdout for each: {"reply": ...},
{"fault": {...}} or {"died": status}.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import torch
import triton  # noqa: F401  imported before the fork, so that a job does not pay for it

from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.jobs import find_job


class Context:
    """What a job uses of its JobContext."""

    def __init__(self, request):
        self.parameters = request["parameters"]
        self.folder = Path(request["folder"])
        self._request = request

    def load(self):
        path = Path(self._request["folder"]) / "kernel.py"
        path.write_text(self._request["source"])
        spec = importlib.util.spec_from_file_location("candidate_kernel", path)
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_kernel"] = self.module
        spec.loader.exec_module(self.module)
        return getattr(self.module, self._request["entry"])

    def say(self, stage, text=""):
        pass

    def _made(self, case, make):
        pieces = self._request["inputs"][case]
        return tuple(make(p[1], dtype=getattr(torch, p[0])) if isinstance(p, list) else p for p in pieces)

    def empty_inputs(self, case):
        return self._made(case, torch.empty)

    def shaped_inputs(self, case):
        return self._made(case, torch.zeros)


def answer(request):
    os.environ["TRITON_CACHE_DIR"] = str(Path(request["folder"]) / "cache")
    try:
        return {"reply": find_job(request["job"])(Context(request))}
    except CandidateFault as fault:
        names = ("outcome", "stage", "reason", "detail")
        return {"fault": {name: getattr(fault, name) for name in names}}


def main():
    find_job("count" if os.environ.get("TRITON_INTERPRET") else "compile")
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            with os.fdopen(writing, "w") as out:
                out.write(json.dumps(answer(json.loads(line))))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as back:
            text = back.read()
        _, status = os.waitpid(child, 0)
        print(text if status == 0 else json.dumps({"died": status}), flush=True)


main()
