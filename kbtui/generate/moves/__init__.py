"""The moves of the `rewrite` generator: one family, one file, behind `move.Move`."""
