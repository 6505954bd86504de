"""`printf` and `assert`: calls of kernels to the host."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from kernelmate.backends.base import MOST_PRINTED
from kernelmate.backends.emulator.findings import LaunchStopped
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import Assert, Print
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound
from kernelmate.backends.emulator.spaces import LOCAL_WINDOW, space_of
from kernelmate.records import FindingCode

_LONGEST_STRING = 4096
_SPECIFIER = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGaAcsp%])")


@dataclass(frozen=True, slots=True)
class _ArgumentReader:
    """Reads one lane's argument list and strings."""

    machine: Machine
    lane: int
    values: int

    def value_at(self, offset: int, size: int) -> bytes:
        return _bytes(self.machine, self.lane, self.values + offset, size)

    def string_at(self, address: int) -> bytes:
        return _string(self.machine, self.lane, address)


def bind_print(operation: Print, machine: Machine, linked: LinkedKernel, position: Position | None) -> Bound:
    """Binds `vprintf`: prints each lane's line in slot order. Beyond the limit the launch ends with a finding."""
    places = [linked.local[name].offset for name in (operation.format, operation.values)]

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        for lane in lanes:
            if machine.printed_bytes >= MOST_PRINTED:
                machine.findings.report(
                    FindingCode.OUTPUT_FLOOD, position, lanes, lambda: f"prints more than {MOST_PRINTED} bytes"
                )
                raise LaunchStopped
            form, values = (_parameter(machine, int(lane), place, "<Q") for place in places)
            reader = _ArgumentReader(machine, int(lane), values)
            text = format_line(reader.string_at(form), reader.value_at, reader.string_at)
            text = text[: MOST_PRINTED - machine.printed_bytes]
            machine.printed.append(text)
            machine.printed_bytes += len(text)

    return run


def bind_assert(operation: Assert, machine: Machine, linked: LinkedKernel, position: Position | None) -> Bound:
    """Binds `__assertfail`: reports the failed condition, and ends the launch."""
    places = [linked.local[name].offset for name in operation.variables[:4]]

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        lane = int(lanes[0])
        message = _string(machine, lane, _parameter(machine, lane, places[0], "<Q")).decode(errors="replace")
        line = _parameter(machine, lane, places[2], "<I")
        machine.findings.report(
            FindingCode.TRAP, position, lanes, lambda: f"assertion {message!r} of line {line} failed"
        )
        raise LaunchStopped

    return run


def _parameter(machine: Machine, lane: int, offset: int, form: str) -> int:
    start = lane * machine.local.stride + offset
    return int(struct.unpack_from(form, machine.local.data.data, start)[0])


def _bytes(machine: Machine, lane: int, address: int, size: int) -> bytes:
    """Returns bytes at a generic address; zeros for unmapped ones."""
    if space_of(address) == "local":
        start = lane * machine.local.stride + address - LOCAL_WINDOW
        return machine.local.data[start : start + size].tobytes()
    buffer = machine.memory.at(address)
    if buffer is None or address < buffer.address or address + size > buffer.origin + buffer.limit:
        return bytes(size)
    start = address - buffer.origin
    return buffer.data[start : start + size].tobytes()


def _string(machine: Machine, lane: int, address: int) -> bytes:
    buffer = machine.memory.at(address)
    if buffer is None:
        return _bytes(machine, lane, address, 256).split(b"\0")[0] if space_of(address) == "local" else b"(null)"
    start = address - buffer.origin
    end = min(buffer.limit, start + _LONGEST_STRING)
    return buffer.data[max(start, 0) : end].tobytes().split(b"\0")[0]


def format_line(form: bytes, value_at: Callable[[int, int], bytes], string_at: Callable[[int], bytes]) -> str:
    """Formats one output, with C's meaning of the specifiers.

    Args:
        form: the format string.
        value_at: returns the bytes (offset, size) of the argument list, in which each argument is aligned to its size.
        string_at: returns the bytes of the string at an address.
    """
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        found = value_at(offset, size)
        offset += size
        return found

    def one(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, letter = match.groups()
        if letter == b"%":
            return b"%"
        stars = [str(struct.unpack("<i", take(4))[0]).encode() if part == b"*" else part for part in (width, precision)]
        spec = b"%" + flags + (stars[0] or b"") + (b"." + stars[1] if stars[1] is not None else b"")
        return _converted(spec.decode(), letter.decode(), length, take, string_at)

    return _SPECIFIER.sub(one, form).decode(errors="replace")


def _converted(
    spec: str, letter: str, length: bytes | None, take: Callable[[int], bytes], string_at: Callable[[int], bytes]
) -> bytes:
    if letter in "eEfFgG":
        return (spec + letter).__mod__(struct.unpack("<d", take(8))[0]).encode()
    if letter in "aA":
        return _hexadecimal(struct.unpack("<d", take(8))[0], upper=letter == "A")
    if letter == "s":
        return (spec + "s").__mod__(string_at(struct.unpack("<Q", take(8))[0]).decode(errors="replace")).encode()
    if letter == "p":
        return f"{struct.unpack('<Q', take(8))[0]:#x}".encode()
    if letter == "c":
        return (spec + "c").__mod__(chr(take(4)[0])).encode()
    wide = length in {b"l", b"ll", b"z", b"j", b"t"}
    size = 8 if wide else 4
    number = int.from_bytes(take(size), "little", signed=letter in "di")
    if length in {b"h", b"hh"}:
        bits = 16 if length == b"h" else 8
        number &= (1 << bits) - 1
        if letter in "di" and number >> (bits - 1):
            number -= 1 << bits
    return (spec + ("d" if letter in "diu" else letter)).__mod__(number).encode()


def _hexadecimal(value: float, *, upper: bool) -> bytes:
    """Formats `%a` as C does: without the zeros that Python keeps at the end of the fraction."""
    text = re.sub(r"\.?0*p", "p", value.hex())
    return (text.upper() if upper else text).encode()
