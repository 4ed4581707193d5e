"""Job "survey": loads a problem and makes every input of it from shapes alone. No kernel runs, and nothing is compared.

For problems that were just imported: what their own code cannot give shows now, and not in the middle of a run.
"""

from __future__ import annotations

from typing import Any

import torch

from kbtui.evaluate.inlane import gold
from kbtui.evaluate.inlane.candidate import CandidateFault, JobContext
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault
from kbtui.evaluate.inlane.shapes import ShapesOnly

MOST_NOTES = 6


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameter: `pretend`, see `gold.prepare`. Reply: {"cases", "checks", "notes"}. Raises CandidateFault for a problem that
    cannot be loaded, or has an input that cannot be made."""
    gold.prepare("cpu", ctx.parameters["pretend"])
    try:
        problem = Problem(ctx.problem_folder)
        for case in (*problem.cases, *problem.checks):
            generator = torch.Generator().manual_seed(0)
            try:
                with ShapesOnly(0):
                    problem.arguments(case, generator, "cpu")
            except ProblemFault:
                problem.arguments(case, generator, "cpu")
    except ProblemFault as fault:
        raise CandidateFault("invalid", "survey", str(fault).removeprefix(f"{ctx.problem_folder}/")) from fault
    notes = [note[:200] for note in problem.notes[:MOST_NOTES]]
    return {"cases": len(problem.cases), "checks": len(problem.checks), "notes": notes}
