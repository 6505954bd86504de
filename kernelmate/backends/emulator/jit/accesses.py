"""Loads and stores of one piece: the code that checks their addresses, and the code that proves that nothing is to report.

Accesses from one base register are checked once, over all their offsets. A check that fails may mean no more than an
unusual address: the NumPy operations find out.

The proof is conservative: a store of an unchanged value, ordering by a fence, or a wrapped sum that never reaches an
address make the launch suspicious, and a suspicious launch runs again under the exact checks. A launch without suspicion
has no race, no read of unwritten memory and no wrapped index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep
from kernelmate.backends.emulator.jit.frame import NativeFrame
from kernelmate.backends.emulator.jit.helpers import field as field_of
from kernelmate.backends.emulator.jit.layout import Field, Slot, Stamp
from kernelmate.backends.emulator.jit.lowering import I64, VOID, element_address, load, number, store, widen
from kernelmate.backends.emulator.jit.refine import bytes_of, memory_of
from kernelmate.backends.emulator.operations import Compute, Load, Store
from kernelmate.backends.emulator.program import Operand, Symbol


@dataclass(slots=True)
class NativeAccess:
    """One memory instruction of a piece; `offset` is added to its base, `served` as in `machine.MemoryInstruction`."""

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


def accesses_of(
    decoded: DecodedKernel, block: BasicBlock, frame: NativeFrame
) -> dict[int, tuple[NativeAccess, AccessGroup]]:
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


def _access(step: int, operation: Load | Store, decoded: DecodedKernel) -> NativeAccess:
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
    """Checks accesses to shared or local memory; `base` is the offset in the window, signed 64 bits."""
    limit = frame.slot(Slot.SHARED_LIMIT if group.memory == "shared" else Slot.LOCAL_LIMIT)
    room = b.sub(limit, number(group.extent))
    inside = b.icmp_unsigned("<=", b.add(base, number(group.low)), room)
    good = b.and_(inside, b.icmp_signed(">=", room, number(0)))
    _pass_or(b, b.and_(good, _aligned(b, group, base)), fail)
    group.checked = (base, None)


def check_global(b: ir.IRBuilder, frame: NativeFrame, group: AccessGroup, base: ir.Value, fail: ir.Block) -> None:
    """Generates the check of global accesses against the buffer accessed last, then against all buffers."""
    cache = element_address(b, frame.slot(Slot.CACHES_AT), number(group.cache), 8)
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
        place = element_address(
            b, field_of(b, buffer, Field.TOUCHED_AT), b.lshr(offset, number(5)), frame.marks.width // 8
        )
        store(b, b.or_(load(b, place, kind), number(frame.marks.mark(access.step), kind)), place)


_WRAPPING = frozenset({"add", "sub", "mul", "mad", "shl", "neg"})


def suspect(b: ir.IRBuilder, frame: NativeFrame, when: ir.Value) -> None:
    """Marks the launch as suspicious under a condition."""
    with b.if_then(when, likely=False):
        store(b, number(1), frame.slot_at(b, Slot.SUSPECT))


def watch_index(
    b: ir.IRBuilder,
    frame: NativeFrame,
    step: DecodedStep,
    values: Sequence[ir.Value],
    result: ir.Value,
    guard: ir.Value | None,
) -> None:
    """Marks sums and products of less than 64 bits that differ from their 64-bit values."""
    parts = step.opcode.split(".")
    operation = step.operation
    assert isinstance(operation, Compute)
    if parts[0] not in _WRAPPING or result.type == I64 or "hi" in parts:
        return
    wide = [widen(b, value, I64, True) for value in values]
    if parts[0] in {"mul", "mad"}:
        exact = b.mul(wide[0], wide[1])
        exact = b.add(exact, wide[2]) if parts[0] == "mad" else exact
    elif parts[0] == "neg":
        exact = b.neg(wide[0])
    else:
        exact = {"add": b.add, "sub": b.sub, "shl": b.shl}[parts[0]](wide[0], wide[1])
    wrapped = b.icmp_signed("!=", exact, widen(b, result, I64, True))
    suspect(b, frame, wrapped if guard is None else b.and_(wrapped, guard))


def watch_access(
    b: ir.IRBuilder, frame: NativeFrame, group: AccessGroup, access: NativeAccess, own: ir.Value, place: ir.Value,
    shadow: ir.Value, me: ir.Value,
) -> None:  # fmt: skip
    """Checks an access for races; `own` is its address or offset, `place` its position, `me` the lane's stamp."""
    assert frame.checks is not None
    assert group.checked is not None
    if group.memory == "local":
        _watch_local(b, frame, access, place)
        return
    buffer = group.checked[1]
    if buffer is None:
        shift = frame.checks.shared_shift
        first = b.add(shadow, b.shl(b.lshr(own, number(shift)), number(3)))
        writers, readers = (b.add(frame.slot(slot), first) for slot in (Slot.SHARED_WRITERS_AT, Slot.SHARED_READERS_AT))
        _watch_granules(b, frame, access, writers, readers, me, shift, anywhere=False)
        return
    shift = frame.checks.global_shift
    base = field_of(b, buffer, Field.WRITERS_AT)
    with b.if_then(b.icmp_unsigned("!=", base, number(0))):
        offset = b.add(b.sub(own, field_of(b, buffer, Field.START)), field_of(b, buffer, Field.LEAD))
        first = b.shl(b.lshr(offset, number(shift)), number(3))
        readers = b.add(field_of(b, buffer, Field.READERS_AT), first)
        _watch_granules(b, frame, access, b.add(base, first), readers, me, shift, anywhere=True)


def _watch_local(b: ir.IRBuilder, frame: NativeFrame, access: NativeAccess, place: ir.Value) -> None:
    """Watches local memory by a byte for each of its bytes: one once it was written."""
    at = b.add(b.sub(place, frame.slot(Slot.LOCAL_AT)), frame.slot(Slot.LOCAL_WRITTEN_AT))
    kind = ir.IntType(8 * access.size)
    ones = ir.Constant(kind, int.from_bytes(b"\1" * access.size, "little"))
    if access.stores:
        store(b, ones, at, 1)
    else:
        suspect(b, frame, b.icmp_unsigned("!=", load(b, at, kind, 1), ones))


def _watch_granules(
    b: ir.IRBuilder, frame: NativeFrame, access: NativeAccess, writers: ir.Value, readers: ir.Value, me: ir.Value,
    shift: int, *, anywhere: bool,
) -> None:  # fmt: skip
    watch = _store_watcher(frame, anywhere) if access.stores else _load_watcher(frame, anywhere)
    for granule in range(max(1, access.size >> shift)):
        writer_at, reader_at = (b.add(at, number(8 * granule)) for at in (writers, readers))
        if access.stores:
            b.call(watch, [frame.context, writer_at, reader_at, me])
            continue
        with b.if_then(b.not_(_plain_load(b, load(b, writer_at), load(b, reader_at), me, anywhere)), likely=False):
            b.call(watch, [frame.context, writer_at, reader_at, me])


def _plain_load(b: ir.IRBuilder, writer: ir.Value, reader: ir.Value, me: ir.Value, anywhere: bool) -> ir.Value:
    """Returns the condition of the ordinary case: written before the barrier or by the thread itself, and read before."""
    difference = b.xor(writer, me)
    earlier = b.icmp_unsigned("!=", b.lshr(difference, number(Stamp.TIME_SHIFT)), number(0))
    same_block = b.icmp_unsigned("==", b.lshr(difference, number(Stamp.BLOCK_SHIFT)), number(0))
    fine = b.or_(b.and_(earlier, same_block), b.icmp_unsigned("==", difference, number(0)))
    if anywhere:
        fine = b.or_(fine, b.icmp_unsigned("==", writer, number(0)))
    seen = b.xor(reader, me)
    several = number(Stamp.MANY >> Stamp.TIME_SHIFT)
    known = b.or_(
        b.icmp_unsigned("==", seen, number(0)),
        b.icmp_unsigned("==", b.lshr(seen, number(Stamp.TIME_SHIFT)), several),
    )
    return b.and_(fine, known)


class _Relation:
    """Relation of a stamp to a thread's own."""

    def __init__(self, b: ir.IRBuilder, stamp: ir.Value, me: ir.Value) -> None:
        zero = number(0)
        difference = b.xor(stamp, me)
        self.there = b.icmp_unsigned("!=", stamp, zero)
        self.other_block = b.icmp_unsigned("!=", b.and_(difference, number(Stamp.BLOCK)), zero)
        when = b.and_(difference, number(Stamp.BLOCK | Stamp.TIME))
        self.same_time = b.icmp_unsigned("==", when, zero)
        other_thread = b.icmp_unsigned("!=", b.and_(difference, number(Stamp.THREAD)), zero)
        self.not_alone = b.or_(other_thread, b.icmp_signed("<", stamp, zero))

    def clash(self, b: ir.IRBuilder, anywhere: bool) -> ir.Value:
        """Returns the condition that nothing orders the two accesses."""
        unordered = b.and_(self.same_time, self.not_alone)
        if anywhere:
            unordered = b.or_(unordered, self.other_block)
        return b.and_(self.there, unordered)


def _load_watcher(frame: NativeFrame, anywhere: bool) -> ir.Function:
    """Returns the function that checks a load of one granule.

    Its arguments are the context, the addresses of the writer's and the readers' stamps, and the thread's own stamp.
    """
    name = f"watch_load_{'global' if anywhere else 'shared'}"
    function, b = frame.helpers.function(name, VOID, I64, I64, I64, I64)
    if b is None:
        return function
    context, writer_at, reader_at, me = function.args
    writer = _Relation(b, load(b, writer_at), me)
    wrong = writer.clash(b, anywhere)
    if not anywhere:
        # Shared memory starts empty, so another block's stamp counts as none.
        wrong = b.or_(wrong, b.or_(b.not_(writer.there), writer.other_block))
    with b.if_then(wrong):
        store(b, number(1), b.add(context, number(8 * Slot.SUSPECT)))
    old = load(b, reader_at)
    reader = _Relation(b, old, me)
    shared_with = b.select(reader.not_alone, b.or_(old, number(Stamp.MANY)), old)
    new = b.select(reader.same_time, shared_with, me)
    if anywhere:
        new = b.select(b.and_(reader.there, reader.other_block), number(-1), new)
    store(b, new, reader_at)
    b.ret_void()
    return function


def _store_watcher(frame: NativeFrame, anywhere: bool) -> ir.Function:
    """Returns the function that checks a store to one granule, with the arguments of `_load_watcher`."""
    name = f"watch_store_{'global' if anywhere else 'shared'}"
    function, b = frame.helpers.function(name, VOID, I64, I64, I64, I64)
    if b is None:
        return function
    context, writer_at, reader_at, me = function.args
    relations = [_Relation(b, load(b, at), me) for at in (writer_at, reader_at)]
    with b.if_then(b.or_(*(relation.clash(b, anywhere) for relation in relations))):
        store(b, number(1), b.add(context, number(8 * Slot.SUSPECT)))
    store(b, me, writer_at)
    b.ret_void()
    return function
