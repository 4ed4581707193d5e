"""The reply of the job "count", and which compiled kernel each counted launch is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kbtui.state.records import KernelFacts

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Text = Annotated[str, msgspec.Meta(max_length=512)]


class TensorTraffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mean traffic of one program with one argument, in bytes; sectors of 32 bytes except `asked`. `bytes` is the
    tensor's size (0: unknown), `distinct` the share of a wave's loads that is left when shared ones are merged."""

    bytes: Count
    asked: Amount
    lanes: Amount
    loaded: Amount
    loaded_again: Amount
    stored: Amount
    distinct: Annotated[float, msgspec.Meta(ge=0, le=1)]


class TileWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`times` matrix products (m, k) x (k, n) in `dtype` per program."""

    dtype: Text
    m: Count
    n: Count
    k: Count
    item_bytes: Count
    times: Amount


class CountedLaunch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launch; amounts are means per program. `phases`: how often a program waits for memory, one after another."""

    name: Text
    constants: dict[Text, int | float | bool | Text]
    num_warps: Count
    grid: tuple[Count, Count, Count]
    sampled: Count
    wave: Count
    tensors: Annotated[list[TensorTraffic], msgspec.Meta(max_length=1024)]
    tiles: Annotated[list[TileWork], msgspec.Meta(max_length=1024)]
    simple: Amount
    special: Amount
    reduced: Amount
    barriers: Amount
    phases: Amount

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


class CountedCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failed: Text
    launches: Annotated[list[list[CountedLaunch]], msgspec.Meta(max_length=4096)]


class CountReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cases: Annotated[list[CountedCase], msgspec.Meta(max_length=4096)]


def read_counts(reply: dict[str, Any]) -> CountReply:
    """Raises msgspec.ValidationError for anything outside the schema."""
    return msgspec.convert(reply, CountReply)


def find_kernel(launch: CountedLaunch, case: str, kernels: tuple[KernelFacts, ...]) -> KernelFacts | None:
    """The compiled kernel of a counted launch: same name, grid and constants in that case; None when there is none.

    Configurations of an autotuner can share all three and differ in warps or stages; then the number of warps decides.
    """
    found = [
        kernel
        for kernel in kernels
        if case in kernel.cases
        and kernel.grid == launch.grid
        and all(launch.constants.get(name, value) == value for name, value in kernel.constants.items())
    ]
    named = [kernel for kernel in found if kernel.name == launch.name] or found
    by_warps = [kernel for kernel in named if launch.num_warps == kernel.num_warps] or named
    return by_warps[0] if by_warps else None
