"""Reads a cubin: registers, stack frame and a digest of the machine code, without a device and without a tool.

A cubin is an ELF64 file. What a kernel needs is said by attribute records in `.nv.info` (whole file) and
`.nv.info.<kernel>`: a format byte, an attribute byte, and a 16-bit value or, for format 4, a 16-bit length and as many
bytes. The codes are NVIDIA's EIATTR_* numbers; that they mean what is read here is held by a test against `cuobjdump
-res-usage`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FORMAT_WITH_BYTES = 4
_FRAME_SIZE = 0x11
_REGISTER_COUNT = 0x2F
_NO_BITS = 8
"""ELF section type of a section without bytes in the file."""


class MalformedCubin(Exception):
    """The bytes are not an ELF64 file that NVIDIA's assembler wrote, or lack the record that was asked for."""


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    info: int
    data: bytes


@dataclass(frozen=True)
class CubinFacts:
    """`frame_bytes` is the stack frame of one thread in local memory: in Triton's kernels that is what was spilled."""

    registers: int
    frame_bytes: int
    digest: str


def sections(cubin: bytes) -> list[Section]:
    """All sections of an ELF64 little-endian file. Raises MalformedCubin."""
    if len(cubin) < 64 or cubin[:4] != b"\x7fELF" or cubin[4] != 2 or cubin[5] != 1:
        raise MalformedCubin("not an ELF64 little-endian file")
    try:
        (table,) = struct.unpack_from("<Q", cubin, 0x28)
        entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_size) for i in range(count)]
        names_at = headers[names_index][4]
        return [_section(cubin, names_at, header) for header in headers]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedCubin(f"broken section table: {error}") from error


def _section(cubin: bytes, names_at: int, header: tuple[int, ...]) -> Section:
    name, kind, _, _, offset, size, _, info, _, _ = header
    start = names_at + name
    text = cubin[start : cubin.index(b"\0", start)].decode("utf-8", "replace")
    return Section(text, kind, info, b"" if kind == _NO_BITS else cubin[offset : offset + size])


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, payload) of each record of a `.nv.info` section; the payload of a short record is its 16-bit value."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _FORMAT_WITH_BYTES:
            yield attribute, struct.pack("<H", value)
            continue
        yield attribute, data[at : at + value]
        at += value


def _by_symbol(data: bytes, wanted: int) -> dict[int, int]:
    found = {}
    for attribute, payload in attributes(data):
        if attribute == wanted and len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            found[symbol] = value
    return found


def _symbol_names(parts: dict[str, Section]) -> list[str]:
    table, strings = parts[".symtab"].data, parts[".strtab"].data
    names = []
    for at in range(0, len(table) - 23, 24):
        (start,) = struct.unpack_from("<I", table, at)
        names.append(strings[start : strings.index(b"\0", start)].decode("utf-8", "replace"))
    return names


def read(cubin: bytes, kernel: str) -> CubinFacts:
    """Facts of one kernel of a cubin. Raises MalformedCubin when it is not in there."""
    parts = {part.name: part for part in sections(cubin)}
    if f".text.{kernel}" not in parts or ".nv.info" not in parts or ".symtab" not in parts or ".strtab" not in parts:
        raise MalformedCubin(f"no kernel {kernel!r} in the cubin")
    names = _symbol_names(parts)
    registers = _by_symbol(parts[".nv.info"].data, _REGISTER_COUNT)
    frames = _by_symbol(parts[".nv.info"].data, _FRAME_SIZE)
    symbol = next((index for index in registers if index < len(names) and names[index] == kernel), None)
    if symbol is None:
        raise MalformedCubin(f"no register count of {kernel!r} in the cubin")
    # Functions that were not inlined have frames of their own; a thread pays for the deepest chain, at most for all.
    return CubinFacts(registers=registers[symbol], frame_bytes=sum(frames.values()), digest=code_digest(cubin, kernel))


def code_digest(cubin: bytes, kernel: str) -> str:
    """sha256 over machine code, constants and launch attributes of every function in the cubin, hex.

    Names, line tables and the embedded PTX do not count, so that a renamed kernel or a moved line keeps its digest.
    """
    digest = hashlib.sha256()
    for part in sorted(sections(cubin), key=lambda part: part.name.replace(kernel, "")):
        role = part.name.replace(kernel, "")
        if role.startswith((".text.", ".nv.constant", ".nv.info.")):
            digest.update(f"{role}:{len(part.data)}\n".encode())
            digest.update(part.data)
    return digest.hexdigest()
