"""Makes the fakes importable: with importmode=importlib the folder of a test file is not on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for _name in ("engine_fakes", "survival"):
    if _name not in sys.modules:
        _found = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
        assert _found is not None
        assert _found.loader is not None
        sys.modules[_name] = importlib.util.module_from_spec(_found)
        _found.loader.exec_module(sys.modules[_name])
