"""Policies played without a lane: worlds that answer at once, and the play itself."""
