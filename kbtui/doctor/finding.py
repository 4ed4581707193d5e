"""One line of the report."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["ok", "limits", "fails", "absent"]
"""`limits`: a run works, with less. `fails`: a run would fail. `absent`: not there, and not needed for every run."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the report; `text` ends with the remedy where there is something to mend."""

    subject: str
    state: State
    text: str
