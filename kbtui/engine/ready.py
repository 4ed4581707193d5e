"""What a run process says to whoever started it."""

from __future__ import annotations

import msgspec


class Ready(msgspec.Struct, forbid_unknown_fields=True):
    """The one line that a run process writes to its ready pipe: `error` "" means that the run has started."""

    error: str = ""
    kind: str = "KbtuiError"
