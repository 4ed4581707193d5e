"""How often a case is called in one process, with which values, and what each call is to show. Standard library only.

All calls of a case use the same tensors: new values are written to the same addresses, so that a result kept by
pointer, by identity or by content shows as one that is wrong, or as work that was not done.
"""

from __future__ import annotations

FIRST = "first"
"""The case as it is."""
FRESH = "fresh"
"""Other values at the same addresses; memory that is allocated and not written holds another pattern."""
AGAIN = "again"
"""The values of the first call once more: as much work has to be done as before."""
IDLE = "idle"
"""Values not seen before, and launches that do nothing: whose outputs are right all the same had the work done elsewhere."""
DRAWS = {FIRST: 0, FRESH: 1, AGAIN: 0, IDLE: 2}
"""Which draw of random values a call gets."""

ONCE = (FIRST,)
TWICE = (FIRST, FRESH)
AUDITED = (FIRST, FRESH, AGAIN)
AUDITED_IDLE = (FIRST, FRESH, AGAIN, IDLE)
