"""Evidence cards: what stands on them, that modelled stays modelled, and what is refused."""

from __future__ import annotations

