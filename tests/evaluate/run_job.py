"""Runs one job of a lane in this process, without isolation: `python run_job.py REQUEST.json` prints the reply.

REQUEST: {"job": "compile"|"count", "source": path, "entry": name, "parameters": {...}, "inputs": [[[dtype, shape] | value,
...], ...]}. The reply is {"reply": ...} or {"fault": {...}}.
"""

import importlib.util
import json
import sys

import torch

from kbtui.evaluate.inlane.candidate import CandidateFault


class Context:
    def __init__(self, request):
        self.parameters = request["parameters"]
        self._request = request

    def load(self):
        spec = importlib.util.spec_from_file_location("candidate_kernel", self._request["source"])
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_kernel"] = self.module
        spec.loader.exec_module(self.module)
        return getattr(self.module, self._request["entry"])

    def say(self, stage, text=""):
        pass

    def describe_inputs(self, case):
        pieces = self._request["inputs"][case]
        return [{"tensor": {"dtype": p[0], "shape": p[1]}} if isinstance(p, list) else {"value": p} for p in pieces]

    def empty_inputs(self, case):
        return tuple(
            torch.empty(piece[1], dtype=getattr(torch, piece[0])) if isinstance(piece, list) else piece
            for piece in self._request["inputs"][case]
        )

    def inputs(self, case):
        return tuple(
            torch.zeros(piece[1], dtype=getattr(torch, piece[0])) if isinstance(piece, list) else piece
            for piece in self._request["inputs"][case]
        )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    if request["job"] == "compile":
        from kbtui.evaluate.inlane import capture as job
    else:
        from kbtui.evaluate.inlane import count as job
    try:
        answer = {"reply": job.run(Context(request))}
    except CandidateFault as fault:
        answer = {
            "fault": {
                "outcome": fault.outcome,
                "stage": fault.stage,
                "reason": fault.reason,
                "detail": fault.detail,
            }
        }
    print("\n" + json.dumps(answer))


main()
