"""Importers: files of other suites become problem folders. Their code is read as syntax here, and never executed."""
