"""Resources of a kernel, read from its CUBIN (ELF) and from the log of ptxas.

Attribute numbers are those that `cuobjdump -elf` shows for `.nv.info` sections.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Resources

REGCOUNT, FRAME_SIZE, MAX_THREADS, REQNTID, PARAM_CBANK = 0x2F, 0x11, 0x05, 0x10, 0x0A
RESERVED_SHARED_BYTES = 1024
"""Bytes in `.nv.shared` sections that the system reserves, from sm_90 on."""

DEFAULT_MAX_THREADS = 1024
_FORMAT_SIZED = 4


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def read_resources(cubin: bytes, symbol: str, log: str, capability: tuple[int, int]) -> Resources:
    """Returns the resources of one kernel.

    `dynamic_shared_bytes` is 0, and spills are None if the log does not state them.

    Raises:
        ValueError: the bytes are not a CUBIN, or do not contain the kernel.
    """
    sections = _sections(cubin)
    by_name = {section.name: section for section in sections}
    code = by_name.get(f".text.{symbol}")
    if code is None:
        raise ValueError(f"no code of {symbol} in the CUBIN")
    index = next(i for i, name in enumerate(_symbols(cubin, sections)) if name == symbol)
    registers = frame = 0
    for attribute, value in _attributes(cubin, by_name.get(".nv.info")):
        if len(value) == 8 and struct.unpack("<I", value[:4])[0] == index:
            number = struct.unpack("<I", value[4:])[0]
            registers = number if attribute == REGCOUNT else registers
            frame = number if attribute == FRAME_SIZE else frame
    threads = DEFAULT_MAX_THREADS
    for attribute, value in _attributes(cubin, by_name.get(f".nv.info.{symbol}")):
        if attribute in (MAX_THREADS, REQNTID) and len(value) >= 12:
            x, y, z = struct.unpack("<III", value[:12])
            threads = x * y * z
    shared = by_name[f".nv.shared.{symbol}"].size if f".nv.shared.{symbol}" in by_name else 0
    if capability >= (9, 0) and shared:
        shared = max(0, shared - RESERVED_SHARED_BYTES)
    return Resources(registers, shared, 0, frame, _spills(log, symbol), threads, code.size)


def code_symbols(cubin: bytes) -> Iterator[str]:
    """Yields the symbols of the functions with code in a CUBIN.

    Raises:
        ValueError: the bytes are not a CUBIN.
    """
    for section in _sections(cubin):
        if section.name.startswith(".text."):
            yield section.name.removeprefix(".text.")


def parameter_offset(cubin: bytes, symbol: str) -> int | None:
    """Returns the byte offset of a kernel's parameters in constant bank 0; None if the CUBIN does not state it.

    Raises:
        ValueError: the bytes are not a CUBIN.
    """
    info = next((section for section in _sections(cubin) if section.name == f".nv.info.{symbol}"), None)
    for attribute, value in _attributes(cubin, info):
        if attribute == PARAM_CBANK and len(value) == 8:
            return int(struct.unpack("<IHH", value)[1])
    return None


def _spills(log: str, symbol: str) -> int | None:
    """Returns the bytes of spill stores and loads per thread that ptxas reports; None without a report."""
    found = re.search(
        rf"Function properties for {re.escape(symbol)}\n[^\n]*?\d+ bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads", log,
    )  # fmt: skip
    return int(found[1]) + int(found[2]) if found else None


def _sections(elf: bytes) -> list[_Section]:
    """Returns the section headers of a little-endian 64-bit ELF file (System V ABI, "Section Header")."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is not a CUBIN")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    each, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    raw = [struct.unpack_from("<IIQQQQIIQQ", elf, table + index * each) for index in range(count)]
    return [
        _Section(_string(elf, raw[names][4], name), kind, offset, size, link)
        for name, kind, _, _, offset, size, link, *_ in raw
    ]


def _symbols(elf: bytes, sections: list[_Section]) -> list[str]:
    table = next(section for section in sections if section.kind == 2)
    return [
        _string(elf, sections[table.link].offset, struct.unpack_from("<I", elf, table.offset + 24 * index)[0])
        for index in range(table.size // 24)
    ]


def _string(elf: bytes, table: int, offset: int) -> str:
    start = table + offset
    return elf[start : elf.index(b"\0", start)].decode(errors="replace")


def _attributes(elf: bytes, section: _Section | None) -> Iterator[tuple[int, bytes]]:
    if section is None:
        return
    place, end = section.offset, section.offset + section.size
    while place + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", elf, place)
        place += 4
        if form == _FORMAT_SIZED:
            yield attribute, elf[place : place + value]
            place += value
