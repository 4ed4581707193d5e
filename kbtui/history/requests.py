"""What models were asked in a pull, read from the journal: the state keeps only the requests that are in flight."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kbtui.errors import JournalError
from kbtui.state import events as e

_ASKED = b'{"type":"asked"'


def requests_of(journal: Path, pull: int) -> list[e.Asked]:
    """The requests of a pull, in order. None of a journal that is not there (yet).

    Only the lines of requests are decoded, so that a long journal is read as fast as the disk. Raises JournalError when it
    cannot be read.
    """
    found = []
    try:
        with journal.open("rb") as lines:
            for line in lines:
                if line.startswith(_ASKED) and line.endswith(b"\n"):
                    event = e.decode(line)
                    if isinstance(event, e.Asked) and event.pull == pull:
                        found.append(event)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {journal}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise JournalError(f"{journal}: a request in it cannot be read: {error}") from error
    return found
