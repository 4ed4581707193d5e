"""Fixtures for the whole suite: no test sees the user's data or configuration."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """KBTUI_HOME and XDG_* in a temporary folder; no KBTUI_* setting and no API key of the user's gets in."""
    import os

    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith("KBTUI_") or name.endswith(("_API_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KBTUI_HOME", str(home / "data"))
    monkeypatch.setenv("HOME", str(home))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    return home
