"""Benchmarks: one method over every kernel of a suite, each an ordinary run before the same judge, and the table of it."""
