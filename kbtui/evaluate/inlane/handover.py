"""How a candidate's outputs leave its process: large ones of a device into the oracle's own memory, others in a memfd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane import cuda_ipc
from kbtui.evaluate.inlane.candidate import JobContext
from kbtui.evaluate.inlane.exchange import SMALL
from kbtui.evaluate.inlane.tensors import pack


def hand_over(ctx: JobContext, tensors: Sequence[torch.Tensor]) -> tuple[list[dict[str, Any]], int, list[int]]:
    """Descriptions, bytes taken, and the memfd that holds them; none where they are in the room that was asked for.

    The descriptor is the caller's to close. Raises NotPortable.
    """
    if ctx.device != "cpu":
        descriptions, size = cuda_ipc.laid_out(tensors)
        if size > SMALL:
            handle = ctx.request("room", bytes=size)["memory"]
            if handle is not None:
                with cuda_ipc.opened(handle, ctx.device) as memory:
                    cuda_ipc.write(tensors, descriptions, memory)
                return descriptions, size, []
    descriptions, descriptor, size = pack(tensors)
    return descriptions, size, [descriptor]
