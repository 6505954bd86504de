"""Binds a decoded kernel to the registers, memory and monitors of one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kernelmate.backends.emulator.atomics import bind_atomic
from kernelmate.backends.emulator.barriers import bind_barrier
from kernelmate.backends.emulator.bound import BoundBlock
from kernelmate.backends.emulator.bulk import bind_bulk_copy, bind_bulk_group, bind_copy, bind_group
from kernelmate.backends.emulator.clusters import BoundClusterBarrier
from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.fragments import bind_fragment_load, bind_fragment_store, fragment_layouts
from kernelmate.backends.emulator.happens_before import SCOPES
from kernelmate.backends.emulator.host_calls import bind_assert, bind_print
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.liveness import guessing_loads, read_at_entry
from kernelmate.backends.emulator.load_store import bind_load, bind_store, element_dtype, site_of
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.matrices import (
    bind_matrix_load,
    bind_matrix_move,
    bind_matrix_store,
    bind_multiply,
    mma_layouts,
)
from kernelmate.backends.emulator.matrix_operations import (
    MATRIX_OPERATIONS,
    WARPGROUP_OPERATIONS,
    FragmentLoad,
    FragmentStore,
    MatrixLoad,
    MatrixMove,
    MatrixMultiply,
    MatrixStore,
    WarpgroupMultiply,
    WarpgroupOrder,
)
from kernelmate.backends.emulator.mbarriers import bind_phase_barrier
from kernelmate.backends.emulator.operations import (
    ActiveMask,
    Assert,
    AsyncCopy,
    AsyncGroup,
    Atomic,
    Barrier,
    Branch,
    BranchTable,
    BulkCopy,
    BulkGroup,
    ClusterBarrier,
    Compute,
    ElectLane,
    Exit,
    Load,
    Match,
    NoOperation,
    Operation,
    PhaseBarrier,
    Print,
    ReadClock,
    Shuffle,
    Store,
    SurfaceAccess,
    TensorCopy,
    TextureFetch,
    Trap,
    Vote,
    WarpBarrier,
    WarpReduce,
)
from kernelmate.backends.emulator.program import Operand, Register, Symbol
from kernelmate.backends.emulator.ranges import range_of, with_range_check
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, LaneOperand, bind_compute, evaluate, spread
from kernelmate.backends.emulator.shadow import ADDRESSING, Shadows
from kernelmate.backends.emulator.tensors import bind_tensor_copy
from kernelmate.backends.emulator.textures import bind_fetch, bind_surface
from kernelmate.backends.emulator.types import SIZES, UNSIGNED
from kernelmate.backends.emulator.warp import (
    Gathering,
    bind_active_mask,
    bind_elect,
    bind_match,
    bind_reduce,
    bind_shuffle,
    bind_vote,
)
from kernelmate.backends.emulator.warpgroups import WarpgroupGathering, bind_warpgroup_multiply, bind_warpgroup_order


def bind_clock(operation: ReadClock, machine: Machine) -> Bound:
    """Reads the number of issued instructions, which stands for cycles or nanoseconds."""
    operand, kind = operation.result
    target = machine.registers.target(operand, f"b{8 * SIZES[kind]}")
    first, each = machine.environment.clock if machine.environment is not None else (0, 1)
    shift = 32 if operation.register.endswith("_hi") else 0
    dtype = UNSIGNED[SIZES[kind]]

    def run(group: Group | None, active: Group) -> None:
        del group
        machine.ticks += each
        if target is not None:
            target[active] = dtype.type(((first + machine.ticks) >> shift) & int(np.iinfo(dtype).max))

    return run


_ENDS = Branch | BranchTable | Exit | Trap | Barrier | ClusterBarrier


def single_definitions(decoded: DecodedKernel) -> frozenset[str]:
    """Returns registers that exactly one instruction writes, without a guard."""
    written: Counter[str] = Counter()
    for step in decoded.steps:
        # A predicated write keeps the register's other lanes, so it counts like two writers.
        written.update(dict.fromkeys(step.writes, 1 if step.guard is None else 2))
    return frozenset(name for name, times in written.items() if times == 1)


def foldable_operations(decoded: DecodedKernel, single: frozenset[str]) -> tuple[Compute | Load, ...]:
    """Returns operations that may be uniform over threads.

    Their sources are not registers, or results of such operations.
    """
    found: list[Compute | Load] = []
    written: set[str] = set()
    for step in decoded.steps:
        operation = step.operation
        if step.guard is not None or not single.issuperset(step.writes):
            continue
        if isinstance(operation, Compute):
            if not all(written.issuperset(registers_in(operand)) for operand, _ in operation.sources):
                continue
        elif not (
            isinstance(operation, Load) and operation.space == "param" and isinstance(operation.address.base, Symbol)
        ):
            continue
        found.append(operation)
        written.update(step.writes)
    return tuple(found)


def fold_constants(foldable: Sequence[Compute | Load], decoded: DecodedKernel, machine: Machine) -> None:
    """Computes values that are uniform over all threads of the launch, once.

    For a launch in a chosen environment, watched conditions are left out, since their outcomes are recorded when they
    run, and so are registers that are read before they are written.
    """
    registers = machine.registers
    around = machine.environment
    if around is not None:
        unwritten = read_at_entry(decoded)
        kept = {id(decoded.steps[number].operation) for number in around.watched}
        kept |= {id(step.operation) for step in decoded.steps if not unwritten.isdisjoint(step.writes)}
        foldable = [operation for operation in foldable if id(operation) not in kept]
    offsets = {placed.variable.name: placed.offset for placed in decoded.linked.parameters}
    for operation in foldable:
        if isinstance(operation, Compute):
            if all(registers.known(operand) for operand, _ in operation.sources):
                evaluate(operation, registers)
        elif isinstance(operation.address.base, Symbol):
            start = offsets.get(operation.address.base.name)
            if start is not None:
                _fold_parameter(operation, start + operation.address.offset, machine)


def _fold_parameter(operation: Load, start: int, machine: Machine) -> None:
    dtype = element_dtype(operation.kind)
    kind = ("s" if dtype.kind == "i" else "b") + str(8 * dtype.itemsize)
    for index, operand in enumerate(operation.results):
        first = start + index * dtype.itemsize
        raw = machine.parameters[first : first + dtype.itemsize]
        machine.registers.set_constant(operand, kind, raw.view(dtype)[0])


_OF_UNITS = BulkCopy | TensorCopy | BulkGroup | TextureFetch | SurfaceAccess
"""Operations of the units for bulk copies and for textures."""


class Binder:
    """Binds decoded blocks to a machine."""

    def __init__(self, decoded: DecodedKernel, machine: Machine, shadows: Shadows | None = None) -> None:
        self._decoded = decoded
        self._machine = machine
        self._shadows = shadows
        self._guesses = guessing_loads(decoded.steps) if machine.order is not None else frozenset[int]()

    def blocks(self) -> list[BoundBlock]:
        """Returns every basic block of the kernel.

        Operations are bound when a block is first executed: many blocks of a launch are not, or run as native code.
        """
        return [self._block(block) for block in self._decoded.blocks]

    def _block(self, block: BasicBlock) -> BoundBlock:
        steps = self._decoded.steps[block.start : block.end]
        bound = BoundBlock(block, len(steps), lambda: self._operations(block))
        for step in steps[-1:]:
            if isinstance(step.operation, _ENDS):
                self._end(bound, step)
        bound.position = bound.position or next((step.position for step in reversed(steps) if step.position), None)
        first = steps[0]
        if block.gathers and not self._never(first.guard):
            bound.gathering = self._gathering(first)
        return bound

    def _gathering(self, step: DecodedStep) -> Gathering:
        if isinstance(step.operation, WARPGROUP_OPERATIONS):
            return WarpgroupGathering(self._machine, step.position)
        mask: Operand | None = getattr(step.operation, "mask", None)
        barrier = isinstance(step.operation, WarpBarrier)
        return Gathering(self._machine, mask, step.position, is_barrier=barrier)

    def _operations(self, block: BasicBlock) -> list[Bound]:
        found = []
        for number, step in enumerate(self._decoded.steps[block.start : block.end], block.start):
            operation = None if isinstance(step.operation, _ENDS) else self._operation(step, number)
            if operation is not None:
                found.append(operation)
        return found

    def _never(self, guard: Register | None) -> bool:
        if guard is None:
            return False
        value = self._machine.registers.read(guard, "pred")
        return isinstance(value, ConstantOperand) and not bool(value.value)

    def _end(self, bound: BoundBlock, step: DecodedStep) -> None:
        operation = step.operation
        bound.position = step.position
        if step.guard is not None:
            guard = self._machine.registers.read(step.guard, "pred")
            if isinstance(guard, LaneOperand):
                bound.guard = guard
            elif not bool(guard.value):
                return
        at = self._decoded.block_at
        if isinstance(operation, Branch):
            bound.targets = (at[operation.target],)
        elif isinstance(operation, BranchTable):
            bound.targets = tuple(at[target] for target in operation.targets)
            bound.index = self._machine.registers.read(operation.index, "u32")
        if isinstance(operation, Barrier):
            bound.end = bind_barrier(
                operation, self._machine, step.position, self._decoded.detours.get(bound.block.end - 1)
            )
        elif isinstance(operation, ClusterBarrier):
            number = bound.block.end - 1
            around = self._decoded.detours.get(number, frozenset())
            bound.end = BoundClusterBarrier(operation, step.position, number, around)
        elif isinstance(operation, Branch | BranchTable | Exit | Trap):
            bound.end = operation

    def _operation(self, step: DecodedStep, number: int) -> Bound | None:
        registers = self._machine.registers
        names = step.writes
        if names and all(name in registers.constants for name in names):
            return None
        bound = self._bind(step, number)
        around = self._machine.environment
        if bound is not None and around is not None and number in around.watched:
            bound = _with_outcomes(step, number, bound, self._machine, around.forced.get(number))
        if bound is not None and self._machine.register_order is not None:
            bound = self._machine.register_order.follow(step, number, bound)
        if bound is not None and self._shadows:
            bound = self._shadows.follow(step, bound)
            if isinstance(step.operation, ADDRESSING):
                bound = self._shadows.check(step.operation.address, step.position, bound)
        if bound is None or step.guard is None:
            return bound
        guard = registers.read(step.guard, "pred")
        if isinstance(guard, ConstantOperand):
            return bound if bool(guard.value) else None
        return _guarded(bound, guard, self._machine)

    def _bind(self, step: DecodedStep, number: int) -> Bound | None:
        operation: Operation = step.operation
        machine, linked = self._machine, self._decoded.linked
        if isinstance(operation, Compute):
            bound = bind_compute(operation, machine.registers)
            limits = None if machine.unusual is None else range_of(step)
            if limits is None:
                return bound
            values = [machine.registers.read(operand, kind) for operand, kind in operation.sources]
            return with_range_check(bound, values, limits, machine, number)
        if isinstance(operation, Load | Store | Atomic):
            site = site_of(operation, number, step.position, step.opcode)
            site.guess = number in self._guesses
            site.unused = number in self._decoded.unused
            if isinstance(operation, Load):
                site.served = self._decoded.served.get(number)
                return bind_load(operation, machine, linked, site)
            if isinstance(operation, Store):
                return bind_store(operation, machine, linked, site)
            return bind_atomic(operation, machine, linked, site)
        if isinstance(operation, Shuffle):
            return bind_shuffle(operation, machine, step.position)
        if isinstance(operation, AsyncCopy):
            return bind_copy(operation, machine, linked, number, step.position)
        if isinstance(operation, AsyncGroup):
            return bind_group(operation, machine)
        if isinstance(operation, WarpgroupMultiply):
            return bind_warpgroup_multiply(operation, machine, number, step.position)
        if isinstance(operation, WarpgroupOrder):
            return bind_warpgroup_order(operation, machine, step.position)
        if isinstance(operation, NoOperation | WarpBarrier):
            return bind_order(operation, machine, step.opcode)
        return self._bind_rare(operation, step, number)

    def _bind_rare(self, operation: Operation, step: DecodedStep, number: int) -> Bound | None:
        machine, linked = self._machine, self._decoded.linked
        if isinstance(operation, Vote):
            return bind_vote(operation, machine)
        if isinstance(operation, ActiveMask):
            return bind_active_mask(operation, machine)
        if isinstance(operation, Match):
            return bind_match(operation, machine)
        if isinstance(operation, WarpReduce):
            return bind_reduce(operation, machine)
        if isinstance(operation, ElectLane):
            return bind_elect(operation, machine)
        if isinstance(operation, _OF_UNITS):
            return self._bind_unit(operation, step, number)
        if isinstance(operation, PhaseBarrier):
            return bind_phase_barrier(operation, machine, linked, number, step.position, step.opcode)
        if isinstance(operation, MATRIX_OPERATIONS):
            return self._bind_matrix(operation, step, number)
        if isinstance(operation, ReadClock):
            return bind_clock(operation, machine)
        if isinstance(operation, Print):
            return bind_print(operation, machine, linked, step.position)
        assert isinstance(operation, Assert)
        return bind_assert(operation, machine, linked, step.position)

    def _bind_unit(
        self,
        operation: BulkCopy | TensorCopy | BulkGroup | TextureFetch | SurfaceAccess,
        step: DecodedStep,
        number: int,
    ) -> Bound | None:
        machine, linked = self._machine, self._decoded.linked
        if isinstance(operation, BulkCopy):
            return bind_bulk_copy(operation, machine, linked, number, step.position)
        if isinstance(operation, TensorCopy):
            return bind_tensor_copy(operation, machine, linked, number, step.position)
        if isinstance(operation, TextureFetch):
            return bind_fetch(operation, machine, number, step.position)
        if isinstance(operation, SurfaceAccess):
            return bind_surface(operation, machine, number, step.position)
        return bind_bulk_group(operation, machine)

    def _bind_matrix(
        self,
        operation: MatrixMultiply | MatrixLoad | MatrixStore | MatrixMove | FragmentLoad | FragmentStore,
        step: DecodedStep,
        number: int,
    ) -> Bound:
        machine, linked = self._machine, self._decoded.linked
        if isinstance(operation, MatrixMultiply):
            layouts = fragment_layouts(operation) if operation.fragments else mma_layouts(operation)
            return bind_multiply(operation, layouts, machine, step.position)
        if isinstance(operation, FragmentLoad):
            return bind_fragment_load(operation, machine, linked, number, step.position)
        if isinstance(operation, FragmentStore):
            return bind_fragment_store(operation, machine, linked, number, step.position)
        if isinstance(operation, MatrixLoad):
            return bind_matrix_load(operation, machine, linked, number, step.position)
        if isinstance(operation, MatrixStore):
            return bind_matrix_store(operation, machine, linked, number, step.position)
        return bind_matrix_move(operation, machine, step.position)


def bind_order(operation: NoOperation | WarpBarrier, machine: Machine, opcode: str) -> Bound | None:
    """Binds fences and warp barriers, whose only effect is to order surrounding accesses."""
    order = machine.order
    if order is None or operation == NoOperation():
        return None
    if isinstance(operation, WarpBarrier):
        mask = machine.registers.read(operation.mask, "b32")

        def meet(group: Group | None, active: Group) -> None:
            del group
            lanes = machine.lanes_of(active)
            order.warp_barrier(lanes, spread(mask, active, len(lanes)))

        return meet
    scope = next((SCOPES[word] for word in opcode.split(".")[1:] if word in SCOPES), SCOPES["sys"])

    def fence(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        if operation.proxy:
            order.proxies.fence(lanes, operation.proxy)
        if operation.fence:
            order.fence(lanes, scope)

    return fence


def _with_outcomes(step: DecodedStep, number: int, bound: Bound, machine: Machine, forced: bool | None) -> Bound:
    """Returns a step that writes predicates and records their values, or sets them to `forced`.

    A second predicate gets the opposite.
    """
    targets = [machine.registers.storage(name) for name in step.writes]
    seen = machine.outcomes.setdefault(number, set())

    def run(group: Group | None, active: Group) -> None:
        bound(group, active)
        lanes = machine.lanes_of(active)
        if forced is None:
            seen.update(bool(value) for value in np.unique(targets[0][lanes]))
            return
        for index, target in enumerate(targets):
            target[lanes] = forced != bool(index)

    return run


def _guarded(bound: Bound, guard: LaneOperand, machine: Machine) -> Bound:
    """Restricts an operation to lanes whose predicate holds."""
    array, negated = guard.array, guard.negated

    def run(group: Group | None, active: Group) -> None:
        lanes = machine.lanes_of(active)
        holds = array.take(lanes)
        if negated:
            holds = ~holds
        count = int(np.count_nonzero(holds))
        if count == len(lanes):
            bound(group, active)
        elif count:
            chosen = lanes[holds]
            bound(chosen, chosen)

    return run
