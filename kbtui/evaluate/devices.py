"""Peaks that were measured on devices, kept between runs: one small file for each device in the data folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from kbtui.paths import data_dir


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    torch: str
    peaks: dict[str, float]


def _file(uuid: str) -> Path:
    safe = "".join(letter for letter in uuid if letter.isalnum() or letter == "-")
    return data_dir() / "devices" / f"{safe or 'unknown'}.json"


def kept_peaks(uuid: str, versions: dict[str, str]) -> dict[str, float] | None:
    """Peaks of an earlier run under the same torch (another one brings other matrix products); None when there are none."""
    try:
        kept = msgspec.json.decode(_file(uuid).read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept.peaks if kept.torch == versions.get("torch") else None


def keep_peaks(uuid: str, versions: dict[str, str], peaks: dict[str, float]) -> None:
    """Write them for the next run. A data folder that cannot be written to costs a second of measuring each time."""
    path = _file(uuid)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(msgspec.json.encode(_Kept(torch=versions.get("torch", ""), peaks=peaks)))
        partial.replace(path)
