"""What the `problem.py` of an imported suite calls: inputs by re-running the suite's own code, its own kernel as reference.

Imported inside lanes: standard library and torch only. `kbtui.problems.importers` writes the files that use it.
"""
