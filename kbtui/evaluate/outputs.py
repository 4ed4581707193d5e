"""What outputs have to be like, and the sentence that says where they are not: for candidates and for mutants alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kbtui.evaluate import wire
from kbtui.evaluate.oracle import Oracle
from kbtui.state.records import Verification

ERROR_FACTOR = 3.0
"""A candidate may err by so many times the baseline's own error (or by the floor of its dtype)."""
MOST_OUTPUT_BYTES = 64 << 30


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What the baseline did on a case: the contract for candidates. `error` by output, `seconds` with hand-over."""

    errors: tuple[float, ...]
    floors: tuple[float, ...]
    tensors: tuple[wire.TensorInfo, ...]
    shared: tuple[int, ...]
    own: bool
    handed: frozenset[str]
    own_dtype: bool
    seconds: float

    @property
    def allowed(self) -> list[float]:
        return [max(ERROR_FACTOR * error, floor) for error, floor in zip(self.errors, self.floors, strict=True)]


REFERENCE_CASE_S = 1.0
"""What is taken for a baseline's time on a case where there is none."""


def by_reference(contract: wire.Contract) -> Passed:
    """The contract where no baseline shows one: the reference's dtypes and shapes, contiguous, the floors as limits."""
    return Passed(
        errors=(0.0,) * len(contract.floors),
        floors=contract.floors,
        tensors=tuple(map(_contiguous, contract.dtypes, contract.shapes)),
        shared=contract.shared,
        own=True,
        handed=frozenset(),
        own_dtype=contract.own_dtype,
        seconds=REFERENCE_CASE_S,
    )


def _contiguous(dtype: str, shape: tuple[int, ...]) -> wire.TensorInfo:
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= max(length, 1)
    return wire.TensorInfo(dtype=dtype, shape=shape, strides=tuple(strides), span=math.prod(shape), offset=0)


def rejection(oracle: Oracle, key: wire.CaseKey, outputs: wire.Outputs, memory: Sequence[int], contract: Passed) -> str:
    """Why outputs on a case are wrong, whoever made them, "" when nothing speaks against them. Raises wire.Malformed."""
    trouble = kind_trouble(outputs, contract)
    if trouble:
        return trouble
    compared = compared_with(oracle, key, outputs, memory, contract.allowed)
    return compared.refused or first_reason(compared, key)


def contract_trouble(outputs: wire.Outputs, contract: Passed) -> str:
    """Where the outputs are not of the kind that the baseline returns, or not laid out as there; values aside."""
    return kind_trouble(outputs, contract) or _layout_trouble(outputs, contract)


def kind_trouble(outputs: wire.Outputs, contract: Passed) -> str:
    """Where number, dtypes or shapes are not those of the baseline's outputs."""
    if len(outputs.tensors) != len(contract.tensors):
        return f"it returns {len(outputs.tensors)} tensors where {len(contract.tensors)} are expected"
    for at, (tensor, right) in enumerate(zip(outputs.tensors, contract.tensors, strict=True)):
        if tensor.dtype != right.dtype:
            return f"output {at} is {tensor.dtype} where {right.dtype} is expected"
        if tensor.shape != right.shape:
            return f"output {at} has shape {tensor.shape} where {right.shape} is expected"
    return ""


def _layout_trouble(outputs: wire.Outputs, contract: Passed) -> str:
    for at, (tensor, right) in enumerate(zip(outputs.tensors, contract.tensors, strict=True)):
        if _steps(tensor) != _steps(right):
            return f"output {at} has strides {tensor.strides} where {right.strides} are expected"
        if outputs.shared[at] >= 0 and outputs.shared[at] != contract.shared[at]:
            return f"output {at} shares memory with input {outputs.shared[at]}"
    return ""


def _steps(tensor: wire.TensorInfo) -> list[int]:
    """Strides that matter: those of axes with more than one place."""
    return [stride for length, stride in zip(tensor.shape, tensor.strides, strict=True) if length > 1]


def nothing_in(outputs: wire.Outputs) -> bool:
    """Whether what was returned has no element at all, as on zero rows: then there is nothing that a kernel had to do."""
    return bool(outputs.tensors) and not any(tensor.span for tensor in outputs.tensors) and not outputs.changed


def dtype_remarks(outputs: wire.Outputs, reference: Sequence[str]) -> list[str]:
    """Where a baseline's outputs, which are what candidates have to return, have other dtypes than the reference's."""
    if len(reference) != len(outputs.tensors):
        return []
    alone = len(reference) == 1
    return [
        f"output dtype: {'outputs are' if alone else f'output {at} is'} {tensor.dtype} where the reference gives {right}; "
        "the baseline's is asked of candidates"
        for at, (tensor, right) in enumerate(zip(outputs.tensors, reference, strict=True))
        if tensor.dtype != right
    ]


def check_memory(outputs: wire.Outputs, descriptors: list[int], granted: int) -> None:
    """Outputs are in one memfd, or in the device memory of `granted` bytes that was given for them."""
    if len(descriptors) > 1 or (not descriptors and not 0 < outputs.size <= granted):
        raise wire.Malformed("its outputs came without memory")
    wire.check_outputs(outputs, descriptors[0] if descriptors else None, MOST_OUTPUT_BYTES)


def compared_with(
    oracle: Oracle, key: wire.CaseKey, outputs: wire.Outputs, memory: Sequence[int], allowed: Sequence[float]
) -> wire.Compared:
    """The oracle's comparison. Raises wire.Malformed for memory that is not what was said of it."""
    compared = oracle.compare(key, outputs, memory, allowed)
    if compared.forged:
        raise wire.Malformed(f"its outputs cannot be trusted: {compared.forged}")
    return compared


def first_reason(compared: wire.Compared, key: wire.CaseKey) -> str:
    """The sentence about the first output that is wrong, "" if none is."""
    for at, one in enumerate(compared.comparisons):
        if not one.reason:
            continue
        what = f"error {one.error:.2g} where {one.allowed:.2g} is allowed" if one.reason == "error" else one.reason
        share = f"{one.wrong} of {one.elements} elements" if one.wrong > 1 else "one element"
        return f"output {at}[{', '.join(map(str, one.index or ()))}] {what} ({share} wrong) on {key.name}"
    return ""


def wrong(key: wire.CaseKey, compared: wire.Compared, reason: str) -> Verification:
    bad = next((one for one in compared.comparisons if one.reason), None)
    return Verification(
        verdict="wrong",
        stage="boundary",
        reason=reason,
        worst_case=key.name,
        error=bad.error if bad is not None else None,
        allowed=bad.allowed if bad is not None else None,
        first_wrong_index=bad.index if bad is not None else None,
    )
