"""Makes the helpers beside these tests importable: with importmode=importlib their folder is not on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent


def _make_importable(name: str, folder: Path) -> None:
    if name in sys.modules:
        return
    found = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(sys.modules[name])


for _name in ("replies", "chat_server", "scripted"):
    _make_importable(_name, HERE)
