"""Makes the fakes importable: with importmode=importlib the folder of a test file is not on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NAME = "engine_fakes"
if _NAME not in sys.modules:
    _found = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name(f"{_NAME}.py"))
    assert _found is not None
    assert _found.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(sys.modules[_NAME])
