"""Journals and the DuckDB database derived from them."""
