"""Which GPU a process of a lane sees: its lane's, as cuda:0, and none beside it.

Kernels are written for one GPU. A wrapper allocates on "cuda", which is the current device, and Triton launches there; on
cuda:1 both would go to another lane's GPU. Standard library only: this runs before torch looks at any device.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VISIBLE = "CUDA_VISIBLE_DEVICES"


def only(device: str, environment: MutableMapping[str, str] = os.environ) -> str:
    """Have this process see `device` alone, and return its name from now on. Before CUDA is initialised, which reads the
    environment once.

    "cpu" stays, and so does cuda:0, which is the current device anyway. A number that `CUDA_VISIBLE_DEVICES` has no entry
    for stays as it is, for torch to say that there is no such GPU.
    """
    kind, _, number = device.partition(":")
    index = int(number or 0)
    if kind != "cuda" or index == 0:
        return device
    shown = [one.strip() for one in environment[VISIBLE].split(",")] if VISIBLE in environment else None
    if shown is not None and index >= len(shown):
        return device
    environment[VISIBLE] = str(index) if shown is None else shown[index]
    return "cuda:0"
