"""What a candidate process may say, as a strict schema; anything else makes the candidate a cheat, never us an exception.

Bounded in length and nesting. Numbers that describe memory are checked against the memory itself before it is read.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from kbtui.evaluate.inlane.memfd import SealError, check_sealed
from kbtui.state.records import Correctness

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 44)]
Small = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]
Word = Annotated[str, msgspec.Meta(max_length=256)]
Sentence = Annotated[str, msgspec.Meta(max_length=2000)]
Long = Annotated[str, msgspec.Meta(max_length=20_000)]
MOST_TENSORS = 64
MOST_DIMENSIONS = 16

ITEM_BYTES: dict[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}
"""Bytes of an element of every dtype that crosses a process boundary, by torch's name."""


class Malformed(Exception):
    """A candidate process said something that no part of ours says; the sentence tells what."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of what a candidate process sends."""


class Say(Message, frozen=True, tag="say"):
    stage: Annotated[str, msgspec.Meta(max_length=64)]
    text: Sentence


class Ask(Message, frozen=True, tag="ask"):
    """A question that the job's caller answers: "inputs" and "describe" are answered by the oracle."""

    what: Annotated[str, msgspec.Meta(max_length=64)]
    fields: dict[Word, Any]


class TensorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`strides` in elements; `span` elements lie from the first to the last one reachable; `offset` bytes into the memfd."""

    dtype: Word
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=MOST_DIMENSIONS)]
    strides: Annotated[tuple[Size, ...], msgspec.Meta(max_length=MOST_DIMENSIONS)]
    span: Size
    offset: Size


class ChangedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: Small
    tensor: TensorInfo


class Outputs(Message, frozen=True, tag="outputs"):
    """What the entry returned for a case, with one memfd of `size` bytes, or none where so much device memory was given.

    `shared[i]` is the input whose storage output i shares, -1 for none; `own` says whether a kernel of the candidate's
    own was launched; `work` compares with that of other calls of the process, `handed` is what torch was asked to compute.
    """

    case: Small
    call: Small
    size: Size
    names: Annotated[tuple[Word, ...], msgspec.Meta(max_length=MOST_TENSORS)]
    tensors: Annotated[tuple[TensorInfo, ...], msgspec.Meta(max_length=MOST_TENSORS)]
    changed: Annotated[tuple[ChangedInput, ...], msgspec.Meta(max_length=MOST_TENSORS)]
    shared: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)], ...], msgspec.Meta(max_length=MOST_TENSORS)
    ]
    launched: Annotated[tuple[Word, ...], msgspec.Meta(max_length=1024)]
    own: bool
    work: Size = 0
    handed: Annotated[tuple[Word, ...], msgspec.Meta(max_length=64)] = ()


class Skipped(Message, frozen=True, tag="skipped"):
    """A case was too much for this way of running."""

    case: Small
    call: Small


class Done(Message, frozen=True, tag="done"):
    """The job returned. `value` is for the job's own schema to check."""

    value: dict[str, Any]


class Fault(Message, frozen=True, tag="fault"):
    """The job found the candidate at fault."""

    outcome: Correctness
    stage: Annotated[str, msgspec.Meta(max_length=64)]
    reason: Sentence
    detail: Long


CandidateMessage = Say | Ask | Outputs | Skipped | Done | Fault
_DECODER = msgspec.json.Decoder(CandidateMessage)


def read_message(body: bytes) -> CandidateMessage:
    """The message of one frame. Raises Malformed."""
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Malformed(f"its process sent a message outside the protocol: {error}") from error


def check_outputs(outputs: Outputs, memory: int | None, most_bytes: int) -> None:
    """Raise Malformed unless the memfd is sealed, has the stated size, and holds every tensor that is described.

    `memory` None: they are in memory of the oracle's, of at least the stated size.

    `most_bytes` bounds the memory of one hand-over.
    """
    if not len(outputs.names) == len(outputs.tensors) == len(outputs.shared):
        raise Malformed("its outputs have no name or no description each")
    if outputs.size > most_bytes:
        raise Malformed(f"it hands over {outputs.size} bytes where {most_bytes} are allowed")
    try:
        if memory is not None:
            check_sealed(memory, outputs.size)
    except SealError as error:
        raise Malformed(f"its outputs cannot be trusted: {error}") from error
    for tensor in (*outputs.tensors, *(changed.tensor for changed in outputs.changed)):
        _check_tensor(tensor, outputs.size)


def _check_tensor(tensor: TensorInfo, size: int) -> None:
    item = ITEM_BYTES.get(tensor.dtype)
    if item is None:
        raise Malformed(f"an output is of dtype {tensor.dtype!r}, which nothing here knows")
    if len(tensor.shape) != len(tensor.strides):
        raise Malformed("an output's shape and strides do not fit one another")
    reach = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides, strict=True))
    if tensor.span != (1 + reach if math.prod(tensor.shape) else 0):
        raise Malformed("an output's span is not what its shape and strides reach")
    if tensor.offset + tensor.span * item > size:
        raise Malformed("an output reaches beyond the memory handed over")


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a job's process ended, as its zygote saw it. `reason` "" when it ended by itself, else "deadline", "memory",
    "disk" or "killed"; `swept` counts processes it left behind, which were killed."""

    number: int
    status: int | None
    signal: int | None
    reason: str
    swept: int
    peak_bytes: int


class Started(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    pid: int


class ZygoteReady(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: int
    versions: dict[str, str]
    isolation: dict[str, str]


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oracle on one output; see `inlane.compare.Comparison`."""

    reason: str
    error: float
    allowed: float
    index: tuple[int, ...] | None
    wrong: int
    elements: int


class Compared(msgspec.Struct, frozen=True):
    """The oracle's answer to outputs: a sentence in `refused` or `forged`, or a comparison for each."""

    refused: str = ""
    forged: str = ""
    comparisons: tuple[Comparison, ...] = ()
    floors: tuple[float, ...] = ()
    own_dtype: bool = False
    reference_dtypes: tuple[str, ...] = ()
    """What the reference returns for the inputs as they are, told of a baseline's outputs; () where that is not known."""


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oracle's answer to what outputs have to be like; see `inlane.oracle.Oracle`."""

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    shared: tuple[int, ...]
    floors: tuple[float, ...]
    own_dtype: bool


class CaseKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of inputs: a case's fields and what is done to its values. With the lane's seed it fixes every value."""

    fields: dict[str, int | float | str | bool]
    variant: str = ""
    draw: int = 0
    """Which of the endless draws of random values."""

    def __hash__(self) -> int:
        return hash((tuple(self.fields.items()), self.variant, self.draw))

    @property
    def name(self) -> str:
        """Such as `rows=3 cols=129 dtype=float32, wide values`."""
        text = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{text}, {self.variant} values" if self.variant else text


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[CaseKey, ...]
    notes: tuple[str, ...]
