"""The base of our modes over torch's operators."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """A `TorchDispatchMode` that is never compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports the whole of dynamo, seconds of work
