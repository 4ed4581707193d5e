"""The best of a run has its evidence beside it, from the first promotion on."""

from __future__ import annotations

from engine_fakes import Run, spec

from kbtui import paths
from kbtui.history.evidence import read_card


async def test_the_best_has_its_card_beside_it() -> None:
    run = Run(spec(iterations=12))
    state = await run.go()
    folder = paths.run_dir("fake-1") / "best"
    assert {file.name for file in folder.iterdir()} == {"kernel.py", "evidence.json", "evidence.txt"}
    card = read_card(folder / "evidence.json")
    assert state.best is not None
    assert card.candidate_id == state.best_id
    assert card.source == state.best.source
    assert card.chain[-1].candidate_id == 0
    assert card.hidden is not None
    assert card.hidden.stage == "hidden"
    assert card.problem_digest
    assert (folder / "kernel.py").read_text().endswith(card.source)
    assert "est" not in (folder / "evidence.txt").read_text().split("verdict", 1)[1].splitlines()[0] or (
        card.timing_kind == "modelled"
    )
