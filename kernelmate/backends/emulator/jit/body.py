"""Code of one piece for one warp: a loop that computes and loads, then the stores, then the counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from kernelmate.backends.emulator.counters import rows_of
from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep
from kernelmate.backends.emulator.jit.accesses import (
    AccessGroup,
    NativeAccess,
    accesses_of,
    check_global,
    check_window,
    note,
    place_of,
    watch_access,
    watch_index,
)
from kernelmate.backends.emulator.jit.frame import LaneValues, NativeFrame
from kernelmate.backends.emulator.jit.helpers import bits
from kernelmate.backends.emulator.jit.layout import COUNT_BYTES, Count, Slot
from kernelmate.backends.emulator.jit.lowering import (
    BOOL,
    EVERYONE,
    FLOAT,
    I8,
    I32,
    I64,
    add_to_counter,
    each_lane,
    element_address,
    load,
    lower,
    number,
    source_lane,
    store,
    vote_result,
    widen,
)
from kernelmate.backends.emulator.jit.refine import ENDS, PieceRegisters, form_of
from kernelmate.backends.emulator.operations import (
    ActiveMask,
    Branch,
    Compute,
    Load,
    Operation,
    Shuffle,
    Store,
    Vote,
    WarpBarrier,
)
from kernelmate.backends.emulator.program import Register, Symbol
from kernelmate.backends.emulator.ranges import range_of
from kernelmate.backends.emulator.types import SIZES, is_signed


@dataclass(slots=True)
class Warp:
    """The current warp.

    Attributes:
        first: its first lane's number.
        shared: start of its block's shared memory.
        mask: active lanes.
        shadow: byte offset of the block's shared-memory shadow.
        stamp: stamp of its first lane.
    """

    first: ir.Value
    shared: ir.Value
    mask: ir.Value
    shadow: ir.Value
    stamp: ir.Value


@dataclass(slots=True)
class _DeferredStore:
    """A store that is made after the lanes' loop: tables of addresses, values and, if predicated, lanes."""

    places: ir.Value
    values: list[tuple[ir.Value, ir.Type]]
    size: int
    guarded: ir.Value | None


@dataclass(slots=True)
class _CountedAccess:
    """A memory instruction to count: table of its addresses and, if predicated, its lanes."""

    access: NativeAccess
    group: AccessGroup
    addresses: ir.Value
    guarded: ir.Value | None


class Body(LaneValues):
    """Writes the code of one piece.

    Args:
        counts: count memory instructions.
    """

    def __init__(
        self, frame: NativeFrame, decoded: DecodedKernel, block: BasicBlock, needs: PieceRegisters, counts: bool
    ) -> None:
        super().__init__(frame)
        self._decoded = decoded
        self._block = block
        self._needs = needs
        self._counts = counts
        self._accesses = accesses_of(decoded, block, frame)
        self._tables = 0
        self._later: list[_DeferredStore] = []
        self._counted: list[_CountedAccess] = []
        memories = [access.memory for access, _ in self._accesses.values()]
        # A single access to a memory space may store at once; of several, each is made for all lanes before the next
        # one.
        self._at_once = {memory for memory in memories if memories.count(memory) == 1}
        self._taken: ir.Value | None = None
        steps = range(block.start, block.end) if counts else range(0)
        self._unusual = {place: frame.variable(BOOL) for place in steps if range_of(decoded.steps[place]) is not None}

    def begin(self, b: ir.IRBuilder, warp: Warp) -> ir.Value | None:
        """Handles shuffles at the piece's start; returns whether the whole warp takes part, None if irrelevant."""
        operation = self._decoded.steps[self._block.start].operation
        if not isinstance(operation, Shuffle | Vote | WarpBarrier):
            return None
        self._b, self._warp, self._first = b, warp, warp.first
        self._offered = self._table()
        self._bits, named = self._frame.variable(I32), self._frame.variable(I32)
        b.store(number(0, I32), self._bits)
        b.store(number(EVERYONE, I32), named)
        with each_lane(b, warp.mask) as lane:
            self._at(lane)
            if operation.mask is not None:
                b.store(b.and_(b.load(named, typ=I32), self._read(operation.mask, "b32")), named)
            if isinstance(operation, Shuffle):
                store(b, self._read(operation.value, "b32"), element_address(b, self._offered, lane, 8))
            elif isinstance(operation, Vote):
                bit = b.shl(b.zext(self._read(operation.source, "pred"), I32), lane)
                b.store(b.or_(b.load(self._bits, typ=I32), bit), self._bits)
        both = b.and_(warp.mask, b.load(named, typ=I32))
        return b.icmp_unsigned("==", both, number(EVERYONE, I32))

    def _exchange(self, operation: Operation) -> None:
        b = self._b
        if isinstance(operation, ActiveMask):
            self._write(operation.result, "b32", self._warp.mask, None)
        elif isinstance(operation, Vote):
            result = vote_result(b, operation.mode, b.load(self._bits, typ=I32))
            self._write(operation.result, "b32" if operation.mode == "ballot" else "pred", result, None)
        elif isinstance(operation, Shuffle):
            lane, clamp = (self._read(operand, "u32") for operand in (operation.lane, operation.clamp))
            source, valid = source_lane(b, operation.mode, self._lane, lane, clamp)
            self._write(operation.result, "b32", load(b, element_address(b, self._offered, source, 8), I32), None)
            if operation.predicate is not None:
                self._write(operation.predicate, "pred", valid, None)

    def write(self, b: ir.IRBuilder, warp: Warp, fail: ir.Block) -> ir.Value:
        """Generates the whole piece; returns the mask of lanes whose final branch is taken.

        If a check fails, the code branches to `fail`, before anything has been stored.
        """
        frame, mask = self._frame, warp.mask
        self._b, self._warp, self._first, self._fail = b, warp, warp.first, fail
        kept = sorted(self._needs.kept - frame.constants)
        # A register that the piece also reads must keep its value until no check can fail any more.
        held = {name: self._table() for name in kept if name in self._needs.reads and self._accesses}
        self._taken = frame.variable(I32)
        b.store(number(0, I32), self._taken)
        guard = self._decoded.steps[self._block.end - 1].guard if self._ends() else None
        self._clear_guards(b)
        for variable in self._unusual.values():
            b.store(number(0, BOOL), variable)
        with each_lane(b, mask) as lane:
            self._start_lane(lane)
            self._steps()
            for name in kept:
                value = self._register(name)
                place = element_address(b, held[name], lane, 8) if name in held else self._element(name)
                store(b, widen(b, value, I8, False) if value.type == BOOL else value, place)
            if guard is not None:
                holds = self._read(guard, "pred")
                bit = b.shl(b.zext(holds, I32), lane)
                b.store(b.or_(b.load(self._taken, typ=I32), bit), self._taken)
        for later in self._later:
            self._store_now(b, later, mask)
        self._copy(b, held, mask)
        for counted in self._shared_counts():
            self._count(b, *counted, mask)
        self._note_unusual(b)
        return b.load(self._taken, typ=I32) if guard is not None else mask

    def _ends(self) -> bool:
        return isinstance(self._decoded.steps[self._block.end - 1].operation, ENDS)

    def _table(self) -> ir.Value:
        self._tables += 1
        return self._frame.scratch(self._tables - 1)

    def _clear_guards(self, b: ir.IRBuilder) -> None:
        self._guards = {
            step: self._frame.variable(I32) for step in self._accesses if self._decoded.steps[step].guard is not None
        }
        for variable in self._guards.values():
            b.store(number(0, I32), variable)

    def _start_lane(self, lane: ir.Value) -> None:
        self._at(lane)
        for _, group in self._accesses.values():
            group.checked = None
        # Uniform values are loaded at the top, so that they dominate every branch of the lane's code.
        for name in sorted(self._needs.reads):
            if name not in self._frame.constants:
                self._register(name)

    def _steps(self) -> None:
        for place, step in enumerate(self._decoded.steps[self._block.start : self._block.end], self._block.start):
            operation = step.operation
            if isinstance(operation, Compute):
                if not all(name in self._frame.constants for name in step.writes) or not step.writes:
                    self._compute(place, step, operation)
            elif place in self._accesses:
                self._access(step, *self._accesses[place])
            else:
                self._exchange(operation)

    def _compute(self, place: int, step: DecodedStep, operation: Compute) -> None:
        values = [self._read(operand, kind) for operand, kind in operation.sources]
        guard = self._read(step.guard, "pred") if step.guard is not None else None
        results = lower(self._b, form_of(step, operation), values)
        if place in self._unusual:
            self._watch_range(place, step, values, guard)
        checks = self._frame.checks
        if checks is not None and place in checks.indices:
            watch_index(self._b, self._frame, step, values, results[0], guard)
        for (operand, kind), result in zip(operation.results, results, strict=True):
            self._write(operand, kind, result, guard)

    def _watch_range(self, place: int, step: DecodedStep, values: list[ir.Value], guard: ir.Value | None) -> None:
        """Records that a lane's operand is where a division or square root may take its slow path."""
        limits, b = range_of(step), self._b
        assert limits is not None, "only what has a range is watched"
        for value in values:
            kind = I32 if value.type == FLOAT else I64
            bits = b.sub(b.and_(b.bitcast(value, kind), number(limits.mask, kind)), number(limits.low, kind))
            outside = b.icmp_unsigned(">", bits, number(limits.span, kind))
            outside = outside if guard is None else b.and_(outside, guard)
            variable = self._unusual[place]
            b.store(b.or_(b.load(variable, typ=BOOL), outside), variable)

    def _note_unusual(self, b: ir.IRBuilder) -> None:
        for place, variable in self._unusual.items():
            row = element_address(b, self._frame.slot(Slot.SITES_AT), number(place), COUNT_BYTES)
            add_to_counter(b, b.add(row, number(8 * Count.LANES)), b.zext(b.load(variable, typ=BOOL), I64))

    # --------------------------------------------------------------------------------------------- memory

    def _access(self, step: DecodedStep, access: NativeAccess, group: AccessGroup) -> None:
        if step.guard is None:
            self._access_now(step, access, group)
            return
        b = self._b
        before = dict(self._env)
        for name in step.writes:
            before[name] = self._register(name)
        guard = self._read(step.guard, "pred")
        variable = self._guards[access.step]
        bit = b.shl(b.zext(guard, I32), self._lane)
        b.store(b.or_(b.load(variable, typ=I32), bit), variable)
        here, then, after = b.block, b.append_basic_block("guarded"), b.append_basic_block("guarded_done")
        b.cbranch(guard, then, after)
        b.position_at_end(then)
        self._access_now(step, access, group)
        came = b.block
        b.branch(after)
        b.position_at_end(after)
        results = {name: self._env[name] for name in step.writes}
        self._env = before
        for name, result in results.items():
            merged = b.phi(result.type)
            merged.add_incoming(before[name], here)
            merged.add_incoming(result, came)
            self._env[name] = merged

    def _access_now(self, step: DecodedStep, access: NativeAccess, group: AccessGroup) -> None:
        b, frame = self._b, self._frame
        if group.checked is None:
            check = check_global if group.memory == "global" else check_window
            check(b, frame, group, self._base(group), self._fail)
        window = None
        if group.memory == "shared":
            window = self._warp.shared
        elif group.memory == "local":
            window = b.add(frame.slot(Slot.LOCAL_AT), b.mul(self._number, frame.slot(Slot.LOCAL_STRIDE)))
        place, own = place_of(b, group, access, window)
        note(b, frame, group, access, own, self._counts)
        if frame.checks is not None:
            me = b.or_(self._warp.stamp, b.zext(self._lane, I64))
            watch_access(b, frame, group, access, own, place, self._warp.shadow, me)
        if self._counts:
            self._remember(access, group, self._interleaved(own) if group.memory == "local" else own)
        if isinstance(access.operation, Load):
            self._load(access.operation, place)
        else:
            self._store(access, place)

    def _base(self, group: AccessGroup) -> ir.Value:
        if group.base is None:
            return number(0)
        if isinstance(group.base, Symbol):
            return self._frame.symbol(group.base)
        assert isinstance(group.base, Register)
        value = self._register(group.base.name)
        return widen(self._b, value, I64, True)

    def _load(self, operation: Load, place: ir.Value) -> None:
        size = SIZES[operation.kind]
        kind = ir.IntType(8 * size)
        bits_kind = ("s" if is_signed(operation.kind) else "b") + str(8 * size)
        for index, operand in enumerate(operation.results):
            value = load(self._b, self._b.add(place, number(index * size)), kind, 1)
            self._write(operand, bits_kind, value, None)

    def _store(self, access: NativeAccess, place: ir.Value) -> None:
        assert isinstance(access.operation, Store)
        b, operation = self._b, access.operation
        size = SIZES[operation.kind]
        values = [self._read(operand, f"b{8 * size}") for operand in operation.sources]
        if access.memory in self._at_once:
            for index, value in enumerate(values):
                store(b, value, b.add(place, number(index * size)), 1)
            if not any(later.guarded is None and not later.values for later in self._later):
                self._later.append(_DeferredStore(place, [], size, None))
            return
        places = self._table()
        store(b, place, element_address(b, places, self._lane, 8))
        kept = []
        for value in values:
            table = self._table()
            store(b, value, element_address(b, table, self._lane, 8))
            kept.append((table, value.type))
        self._later.append(_DeferredStore(places, kept, size, self._guards.get(access.step)))

    def _lanes(self, b: ir.IRBuilder, guarded: ir.Value | None, mask: ir.Value) -> ir.Value:
        return mask if guarded is None else b.load(guarded, typ=I32)

    def _store_now(self, b: ir.IRBuilder, later: _DeferredStore, mask: ir.Value) -> None:
        """Generates one store instruction, lane after lane: of several to one address the last one stays."""
        if not later.values:
            add_to_counter(b, self._frame.slot_at(b, Slot.CHANGES), number(1))
            return
        lanes = self._lanes(b, later.guarded, mask)
        with b.if_then(b.icmp_unsigned("!=", lanes, number(0, I32))):
            with each_lane(b, lanes) as lane:
                place = load(b, element_address(b, later.places, lane, 8))
                for index, (table, kind) in enumerate(later.values):
                    value = load(b, element_address(b, table, lane, 8), kind)
                    store(b, value, b.add(place, number(index * later.size)), 1)
            add_to_counter(b, self._frame.slot_at(b, Slot.CHANGES), number(1))

    def _copy(self, b: ir.IRBuilder, held: dict[str, ir.Value], mask: ir.Value) -> None:
        if not held:
            return
        with each_lane(b, mask) as lane:
            place = b.add(self._warp.first, b.zext(lane, I64))
            for name, table in held.items():
                size = self._frame.bits_of(name) // 8
                value = load(b, element_address(b, table, lane, 8), ir.IntType(8 * size))
                store(b, value, element_address(b, self._frame.array(name), place, size))

    # -------------------------------------------------------------------------------------------- counters

    def _interleaved(self, own: ir.Value) -> ir.Value:
        """Returns the interleaved offset of a byte in a thread's local frame: four bytes of each lane side by side."""
        b = self._b
        row = b.shl(b.lshr(own, number(2)), number(7))
        return b.or_(b.or_(row, b.shl(b.zext(self._lane, I64), number(2))), b.and_(own, number(3)))

    def _remember(self, access: NativeAccess, group: AccessGroup, own: ir.Value) -> None:
        """Stores the address for counting, unless another access of the group has the same pattern."""
        if not access.served:
            return
        grain = 128 if group.memory == "global" else 4
        for other in self._counted:
            same = other.group is group and other.access.served == access.served
            if same and (other.access.offset - access.offset) % grain == 0 and other.access.stores == access.stores:
                self._counted.append(_CountedAccess(access, group, other.addresses, None))
                return
        addresses = self._table()
        store(self._b, own, element_address(self._b, addresses, self._lane, 8))
        self._counted.append(_CountedAccess(access, group, addresses, self._guards.get(access.step)))

    def _shared_counts(self) -> list[tuple[_CountedAccess, list[int]]]:
        """Returns each distinct pattern with the steps that have it."""
        found: dict[int, tuple[_CountedAccess, list[int]]] = {}
        for counted in self._counted:
            _, steps = found.setdefault(id(counted.addresses), (counted, []))
            steps.append(counted.access.step)
        return list(found.values())

    def _count(self, b: ir.IRBuilder, counted: _CountedAccess, steps: list[int], mask: ir.Value) -> None:
        frame = self._frame
        lanes = self._lanes(b, counted.guarded, mask)
        with b.if_then(b.icmp_unsigned("!=", lanes, number(0, I32))):
            if counted.group.memory == "global":
                requests: Any = number(1)
                both = b.call(frame.helpers.sectors, [counted.addresses, lanes])
                passes, lines = b.and_(both, number(0xFFFFFFFF)), b.lshr(both, number(32))
            elif counted.group.memory == "local":
                both = b.call(frame.helpers.sectors, [counted.addresses, lanes])
                rows = number(rows_of(counted.access.size))
                requests, passes, lines = number(1), b.mul(b.and_(both, number(0xFFFFFFFF)), rows), number(0)
            else:
                both = b.call(frame.helpers.wavefronts(counted.access.served), [counted.addresses, lanes])
                requests, passes, lines = b.lshr(both, number(32)), b.and_(both, number(0xFFFFFFFF)), number(0)
            for step in steps:
                row = element_address(b, frame.slot(Slot.SITES_AT), number(step), COUNT_BYTES)
                for which, amount in (
                    (Count.REQUESTS, requests),
                    (Count.PASSES, passes),
                    (Count.LANES, bits(b, lanes)),
                    (Count.LINES, lines),
                ):
                    add_to_counter(b, b.add(row, number(8 * which)), amount)


def is_backward(decoded: DecodedKernel, block: BasicBlock) -> bool:
    """True if the piece ends in a branch to itself or to one before it."""
    operation = decoded.steps[block.end - 1].operation
    return isinstance(operation, Branch) and decoded.block_at[operation.target] <= block.index
