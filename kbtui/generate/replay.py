"""The `replay` generator: recorded replies, for deterministic tests, demonstrations and comparisons of policies.

A recording is a file of JSON lines, one reply each: `{"strategy": ..., "source": ..., "move": ..., "detail": ...}`.
`strategy` may be left out: then the reply serves any. `parent` (a syntax digest) may be given: then it serves that parent only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbtui.errors import UsageError
from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import Exhausted, Generator, Request, Written
from kbtui.state.events import Generated
from kbtui.state.records import STRATEGIES, Strategy


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a recording."""

    source: str
    move: str
    detail: str = ""
    strategy: Strategy | None = None
    parent: str | None = None

    def serves(self, strategy: str, parent: str) -> bool:
        return self.strategy in (None, strategy) and self.parent in (None, parent)


class ReplayGenerator(Generator):
    """Gives the first recorded reply that fits the request and is new to the run.

    It keeps no position: what was given shows in `seen` and `tried`, so that a continued run goes on where it was. The
    seed plays no part.
    """

    name = "replay"
    from_scratch = True

    def __init__(self, replies: list[Reply]) -> None:
        self._replies = replies

    @classmethod
    def from_file(cls, path: Path) -> ReplayGenerator:
        """Raises UsageError naming the file and the line for what is missing or malformed."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"cannot read the recording {path}: {error.strerror}") from None
        replies = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                replies.append(msgspec.json.decode(line, type=Reply))
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}, line {number} is not a recorded reply: {error}") from None
        if not replies:
            raise UsageError(f"the recording {path} holds no reply")
        return cls(replies)

    @classmethod
    def from_run(cls, name: str, versions: Iterable[Generated]) -> ReplayGenerator:
        """The versions of a run, each for the parent and the strategy it was made from.
        Raises UsageError when there is none."""
        made = list(versions)
        digests = {version.candidate_id: version.syntax_digest for version in made}
        replies = [
            Reply(
                source=version.source,
                move=version.move,
                detail=version.detail,
                strategy=version.strategy,
                parent=digests.get(version.parent_id) if version.parent_id is not None else None,
            )
            for version in made
            if version.strategy is not None
        ]
        if not replies:
            raise UsageError(f"{name} holds no version that a strategy made: there is nothing to replay")
        return cls(replies)

    def moves(self, source: str, entry: str) -> dict[str, int]:  # noqa: ARG002
        parent = syntax_digest(source)
        counts = Counter({s: sum(reply.serves(s, parent) for reply in self._replies) for s in STRATEGIES})
        return {strategy: n for strategy, n in counts.items() if n}

    async def write(self, request: Request) -> Written | Exhausted:
        for reply in self._replies:
            known = reply.move in request.tried or syntax_digest(reply.source) in request.seen
            if not known and reply.serves(request.strategy, request.parent.syntax_digest):
                return Written(source=reply.source, move=reply.move, detail=reply.detail)
        return Exhausted(f"the recording holds no further {request.strategy} reply for #{request.parent.id}")
