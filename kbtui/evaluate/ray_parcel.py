"""A problem as data, since the nodes of a cluster need not share a file system."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.ray_wire import Shipment
from kbtui.problems.importing import import_name

MOST_BYTES = 64 << 20
"""Of a problem's files. Inputs are made on the node, so that a problem is a few kilobytes."""


def packed(spec: LaneSpec) -> Shipment:
    """The files of `spec.problem`, with the modules of the package that it lies in, and how its lane is made. Hidden files, which
    may hold what is nobody else's, stay here.

    Raises ProblemError for what is too large to send, or cannot be read.
    """
    folder = spec.problem.resolve()
    root, package = import_name(folder)
    base = root if package else folder.parent
    files: dict[str, bytes] = {}
    size = 0
    try:
        for file in _files(folder, base / package.partition(".")[0] if package else None):
            content = files[file.relative_to(base).as_posix()] = file.read_bytes()
            size += len(content)
            if size > MOST_BYTES:
                raise ProblemError(
                    f"{folder} holds more than {MOST_BYTES >> 20} MiB with its package: keep only what the problem needs there, "
                    "so that it can be sent to the cluster's nodes"
                )
    except OSError as error:
        raise ProblemError(f"{error.filename} cannot be read ({error.strerror}): mend that and try again") from error
    return Shipment(
        folder=folder.relative_to(base).as_posix(),
        files=files,
        digest=_digest(files),
        device=spec.device if spec.device == "cpu" else "cuda:0",  # the one GPU that Ray shows to the actor
        target=spec.target,
        seed=spec.seed,
        objective=spec.objective,
        deadline_s=spec.deadline_s,
        compilers=spec.compilers,
        lanes=spec.lanes,
    )


def unpacked(shipment: Shipment, place: Path) -> Path:
    """Write the files below `place`, which is this process's own; the problem's folder. Raises EnvironmentFailure when they
    are not what was sent."""
    if (found := _digest(shipment.files)) != shipment.digest:
        raise EnvironmentFailure(f"the problem came with digest {found[:12]} where {shipment.digest[:12]} was sent")
    for name, content in shipment.files.items():
        file = place / name
        if not file.resolve().is_relative_to(place.resolve()):
            raise EnvironmentFailure(f"a problem came with a file outside its folder: {name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return place / shipment.folder


def _files(folder: Path, package: Path | None) -> Iterator[Path]:
    """All files of the folder, each once, and the modules of the package around it."""
    yield from _visible(folder, "*")
    if package is not None:
        yield from (file for file in _visible(package, "*.py") if not file.is_relative_to(folder))


def _visible(folder: Path, pattern: str) -> Iterator[Path]:
    for file in sorted(folder.rglob(pattern)):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield file


def _digest(files: Mapping[str, bytes]) -> str:
    """sha256 (hex) over names and contents, each preceded by its length so that nothing can move between them."""
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        for piece in (name.encode(), content):
            whole.update(b"%d:" % len(piece))
            whole.update(piece)
    return whole.hexdigest()
