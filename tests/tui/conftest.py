"""The cockpit's tests share a sample run and a way to drive the app; this puts their module on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
