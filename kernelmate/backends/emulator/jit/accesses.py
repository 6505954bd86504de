"""Loads and stores of one piece: which are checked together, and the code that checks them.

Accesses from one base register are checked once, over all their offsets. A check that fails may mean no more than an
unusual address: the NumPy operations find out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir

from kernelmate.backends.emulator.decode import BasicBlock, Decoded
from kernelmate.backends.emulator.jit.emit import item, load, number, store
from kernelmate.backends.emulator.jit.frame import NativeFrame
from kernelmate.backends.emulator.jit.helpers import field as field_of
from kernelmate.backends.emulator.jit.layout import Field, Slot
from kernelmate.backends.emulator.jit.lowering import I64
from kernelmate.backends.emulator.jit.refine import bytes_of, memory_of
from kernelmate.backends.emulator.operations import Load, Store
from kernelmate.backends.emulator.program import Operand, Symbol


@dataclass(slots=True)
class NativeAccess:
    """One memory instruction of a piece; `offset` is added to its base, `served` as in `machine.Site`."""

    step: int
    operation: Load | Store
    memory: str
    base: Operand | None
    offset: int
    size: int
    served: int

    @property
    def stores(self) -> bool:
        """True if it writes."""
        return isinstance(self.operation, Store)


@dataclass(slots=True)
class AccessGroup:
    """Accesses from one base that always run together.

    Attributes:
        cache: number of the group's cache, for global memory.
        checked: base address and, for global memory, buffer, of the current lane.
    """

    memory: str
    base: Operand | None
    members: list[NativeAccess] = field(default_factory=list)
    cache: int = 0
    checked: tuple[ir.Value, ir.Value | None] | None = None

    @property
    def low(self) -> int:
        """Lowest offset of the group's accesses."""
        return min(access.offset for access in self.members)

    @property
    def extent(self) -> int:
        """Bytes from the lowest offset to the end of the highest access."""
        return max(access.offset + access.size for access in self.members) - self.low

    @property
    def stores(self) -> bool:
        """True if any of them writes."""
        return any(access.stores for access in self.members)


def accesses_of(decoded: Decoded, block: BasicBlock, frame: NativeFrame) -> dict[int, tuple[NativeAccess, AccessGroup]]:
    """Returns the memory instructions of a piece by step."""
    found: dict[int, tuple[NativeAccess, AccessGroup]] = {}
    groups: dict[object, AccessGroup] = {}
    versions: dict[str, int] = {}
    for number_, step in enumerate(decoded.steps[block.start : block.end], block.start):
        operation = step.operation
        if isinstance(operation, Load | Store) and operation.space != "param":
            access = _access(number_, operation, decoded)
            key: object = (access.memory, access.base, versions.get(getattr(access.base, "name", ""), 0))
            if step.guard is not None:
                key = number_
            group = groups.get(key)
            if group is None:
                group = groups[key] = AccessGroup(access.memory, access.base)
                if access.memory == "global":
                    group.cache = frame.new_group()
            group.members.append(access)
            found[number_] = (access, group)
        for name in step.writes:
            versions[name] = versions.get(name, 0) + 1
    return found


def _access(step: int, operation: Load | Store, decoded: Decoded) -> NativeAccess:
    linked = decoded.linked
    memory = memory_of(operation) or ""
    base: Operand | None = operation.address.base
    offset = operation.address.offset
    if isinstance(base, Symbol):
        for space, placed in (("local", linked.local), ("shared", linked.shared)):
            if base.name in placed:
                memory, offset, base = space, offset + placed[base.name].offset, None
                break
    size = bytes_of(operation)
    return NativeAccess(step, operation, memory, base, offset, size, decoded.served.get(step, size))


def check_window(b: ir.IRBuilder, frame: NativeFrame, group: AccessGroup, base: ir.Value, fail: ir.Block) -> None:
    """Check accesses to shared or local memory; `base` is the offset in the window, signed 64 bits."""
    limit = frame.slot(Slot.SHARED_LIMIT if group.memory == "shared" else Slot.LOCAL_LIMIT)
    room = b.sub(limit, number(group.extent))
    inside = b.icmp_unsigned("<=", b.add(base, number(group.low)), room)
    good = b.and_(inside, b.icmp_signed(">=", room, number(0)))
    _pass_or(b, b.and_(good, _aligned(b, group, base)), fail)
    group.checked = (base, None)


def check_global(b: ir.IRBuilder, frame: NativeFrame, group: AccessGroup, base: ir.Value, fail: ir.Block) -> None:
    """Generates the check of global accesses against the buffer accessed last, then against all buffers."""
    cache = item(b, frame.slot(Slot.CACHES_AT), number(group.cache), 8)
    known = load(b, cache)
    low = b.add(base, number(group.low))
    room = b.sub(field_of(b, known, Field.SIZE), number(group.extent))
    inside = b.icmp_unsigned("<=", b.sub(low, field_of(b, known, Field.START)), room)
    good = b.and_(inside, b.icmp_signed(">=", room, number(0)))
    here, search, done = b.block, b.append_basic_block("search"), b.append_basic_block("found")
    b.cbranch(good, done, search)
    b.position_at_end(search)
    other = b.call(frame.helpers.find, [frame.context, low, number(group.extent), number(int(group.stores))])
    _pass_or(b, b.icmp_unsigned("!=", other, number(0)), fail)
    store(b, other, cache)
    searched = b.block
    b.branch(done)
    b.position_at_end(done)
    buffer = b.phi(I64, "buffer")
    buffer.add_incoming(known, here)
    buffer.add_incoming(other, searched)
    aligned = _aligned(b, group, base)
    if not (isinstance(aligned, ir.Constant) and aligned.constant == 1):
        _pass_or(b, aligned, fail)
    group.checked = (base, buffer)


def _aligned(b: ir.IRBuilder, group: AccessGroup, base: ir.Value) -> ir.Value:
    """Returns the condition that every access's address is a multiple of its size."""
    result: ir.Value = ir.Constant(ir.IntType(1), 1)
    seen: set[tuple[int, int]] = set()
    for access in group.members:
        key = (access.size, access.offset % access.size)
        if access.size == 1 or key in seen:
            continue
        seen.add(key)
        low = b.and_(b.add(base, number(key[1])), number(access.size - 1))
        result = b.and_(result, b.icmp_unsigned("==", low, number(0)))
    return result


def _pass_or(b: ir.IRBuilder, good: ir.Value, fail: ir.Block) -> None:
    go_on = b.append_basic_block("checked")
    b.cbranch(good, go_on, fail)
    b.position_at_end(go_on)


def place_of(
    b: ir.IRBuilder, group: AccessGroup, access: NativeAccess, window: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Returns the address of a checked access's bytes in this process, and the kernel's address or offset."""
    assert group.checked is not None
    base, buffer = group.checked
    own = b.add(base, number(access.offset))
    if buffer is None:
        assert window is not None
        return b.add(window, own), own
    start = field_of(b, buffer, Field.START)
    return b.add(field_of(b, buffer, Field.DATA_AT), b.sub(own, start)), own


def note(
    b: ir.IRBuilder, frame: NativeFrame, group: AccessGroup, access: NativeAccess, own: ir.Value, counts: bool
) -> None:
    """Updates a buffer's records: read first, stored, touched."""
    assert group.checked is not None
    buffer = group.checked[1]
    if buffer is None:
        return
    offset = b.add(b.sub(own, field_of(b, buffer, Field.START)), field_of(b, buffer, Field.LEAD))
    with b.if_then(b.icmp_unsigned("!=", field_of(b, buffer, Field.NOTED), number(0)), likely=access.stores):
        b.call(frame.helpers.note(access.stores), [frame.context, buffer, offset, number(access.size)])
    if counts:
        kind = ir.IntType(frame.marks.width)
        place = item(b, field_of(b, buffer, Field.TOUCHED_AT), b.lshr(offset, number(5)), frame.marks.width // 8)
        store(b, b.or_(load(b, place, kind), number(frame.marks.mark(access.step), kind)), place)
