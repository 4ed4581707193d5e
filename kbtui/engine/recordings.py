"""Where the recording of a `replay` is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kbtui import paths
from kbtui.engine.spec import RunSpec
from kbtui.errors import UsageError
from kbtui.history.runs import find_run
from kbtui.state.events import RunStarted, decode

RECORDING = "recording"
"""The generator parameter that names a recording: a file or a run; "" is the one that comes with kbtui."""


def recording_for(spec: RunSpec) -> Path | None:
    """The file that a run replays; None for any generator but `replay`. Raises UsageError or RunNotFoundError."""
    if spec.generator != "replay":
        return None
    named = str(spec.generator_parameters.get(RECORDING, ""))
    return named_recording(named) if named else bundled(Path(spec.problem).name)


def named_recording(text: str) -> Path:
    """A recording by its file or by the run that it is the journal of. Raises RunNotFoundError."""
    file = Path(text).expanduser()
    return file if file.is_file() else paths.journal_file(find_run(text))


def recorded_start(file: Path) -> RunStarted | None:
    """How the recorded run began; None for a file that is no journal."""
    try:
        with file.open("rb") as lines:
            first = decode(lines.readline())
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from None
    except msgspec.DecodeError:
        return None
    return first if isinstance(first, RunStarted) else None


def bundled(problem: str) -> Path:
    """The recording that comes with kbtui for a problem. Raises UsageError when there is none."""
    from kbtui.generate.llm.recorded import FOLDER, bundled_recording

    found = bundled_recording(problem)
    if found is None:
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.jsonl")))
        raise UsageError(f"kbtui brings no recording for {problem} (only for {names}): name a run or a file by --from")
    return found
