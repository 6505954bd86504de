"""Cuts basic blocks into pieces that are completely native or not at all, and determines each piece's inputs.

A piece makes all checks before its first store takes effect, so that it can be abandoned and repeated. Therefore a load
after a store to the same memory starts a new piece, which also keeps the lanes of a warp in lockstep around stores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llvmlite import ir

from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.jit import conversions, integers
from kernelmate.backends.emulator.jit.lowering import Form, NotNative, exchanges, lower, type_of
from kernelmate.backends.emulator.liveness import liveness, operands_of
from kernelmate.backends.emulator.operations import (
    WARP_OPERATIONS,
    ActiveMask,
    Barrier,
    Branch,
    BranchTable,
    Compute,
    Exit,
    Load,
    NoOperation,
    Operation,
    Store,
    Trap,
)
from kernelmate.backends.emulator.program import Operand, Special, Symbol
from kernelmate.backends.emulator.types import SIZES

_REGISTERED = (integers, conversions)
"""Importing them registers every lowering."""
ENDS = Branch | BranchTable | Exit | Trap | Barrier
_SPACES = frozenset({"global", "const", "shared", "local"})
LONGEST = 256
"""Maximum number of steps in a piece: LLVM's time grows faster than the code."""


@dataclass(frozen=True, slots=True)
class PartitionedKernel:
    """A kernel in pieces.

    Attributes:
        decoded: the same steps in smaller blocks.
        origin: the original block of each piece, or None if the piece is not its block's first.
        native: True for pieces with a native form.
    """

    decoded: DecodedKernel
    origin: tuple[int | None, ...]
    native: tuple[bool, ...]


def refine(decoded: DecodedKernel, single: frozenset[str]) -> PartitionedKernel:
    """Cuts the blocks of a kernel; `single` are registers with one definition."""
    probe = _LoweringProbe(decoded, single)
    blocks: list[BasicBlock] = []
    origin: list[int | None] = []
    native: list[bool] = []
    for block in decoded.blocks:
        for number, (start, end, is_native) in enumerate(_pieces(decoded, block, probe)):
            label = f"{block.label}+{number}" if number else block.label
            piece = replace(
                block, index=len(blocks), start=start, end=end, label=label,
                gathers=block.gathers and not number, spins=block.spins and end == block.end,
                retries=block.retries and end == block.end,
                contended=block.contended and not number,
            )  # fmt: skip
            blocks.append(piece)
            origin.append(None if number else block.index)
            native.append(is_native)
    cut = replace(decoded, blocks=tuple(blocks), block_at={block.start: block.index for block in blocks})
    return PartitionedKernel(cut, tuple(origin), tuple(native))


def _pieces(decoded: DecodedKernel, block: BasicBlock, probe: _LoweringProbe) -> list[tuple[int, int, bool]]:
    """Returns the bounds of the block's pieces, with True for native ones."""
    pieces: list[tuple[int, int, bool]] = []
    start = block.start
    current = True
    stored: set[str] = set()
    for number in range(block.start, block.end):
        step = decoded.steps[number]
        ends = isinstance(step.operation, ENDS)
        is_native = ends or probe.native(step)
        space = memory_of(step.operation)
        hazard = isinstance(step.operation, Load) and space in stored
        # The final branch of a block stays with the preceding steps.
        cut = (is_native != current and not ends) or (is_native and (hazard or number - start >= LONGEST))
        if cut and number > start:
            pieces.append((start, number, current))
            start = number
            stored.clear()
        if number == start:
            current = is_native
        if isinstance(step.operation, Store) and space:
            stored.add(space)
    pieces.append((start, block.end, current))
    return pieces


def memory_of(operation: Operation) -> str | None:
    """Returns the memory that an access addresses: `global`, `shared`, `local`; None for none."""
    if not isinstance(operation, Load | Store):
        return None
    return "global" if operation.space == "const" else operation.space


class _LoweringProbe:
    """Determines whether operations are native by lowering them into a discarded function."""

    def __init__(self, decoded: DecodedKernel, single: frozenset[str]) -> None:
        self._single = single
        self._parameters = {placed.variable.name for placed in decoded.linked.parameters}
        function = ir.Function(ir.Module("probe"), ir.FunctionType(ir.VoidType(), []), "probe")
        self._builder = ir.IRBuilder(function.append_basic_block())

    def native(self, step: DecodedStep) -> bool:
        """True if the step has a native form."""
        operation = step.operation
        if isinstance(operation, NoOperation):
            return True
        if isinstance(operation, ActiveMask):
            return step.guard is None
        if isinstance(operation, WARP_OPERATIONS):
            return exchanges(step)
        if isinstance(operation, Compute):
            return self._lowers(step, operation)
        if isinstance(operation, Load):
            if operation.space == "param":
                return self._folds(step, operation)
            return operation.space in _SPACES and not _has_special(operation.address.base)
        return isinstance(operation, Store) and operation.space in _SPACES

    def _folds(self, step: DecodedStep, operation: Load) -> bool:
        """True if a parameter's load is folded into a constant of the launch."""
        base = operation.address.base
        known = isinstance(base, Symbol) and base.name in self._parameters
        return known and step.guard is None and all(name in self._single for name in step.writes)

    def _lowers(self, step: DecodedStep, operation: Compute) -> bool:
        form = form_of(step, operation)
        try:
            values = [ir.Constant(type_of(kind), ir.Undefined) for kind in form.sources]
            results = lower(self._builder, form, values)
            return [result.type for result in results] == [type_of(kind) for kind in form.results]
        except NotNative:
            return False


def _has_special(operand: Operand | None) -> bool:
    return isinstance(operand, Special)


def form_of(step: DecodedStep, operation: Compute) -> Form:
    """Returns an operation in the form that lowerings take."""
    results = tuple(kind for _, kind in operation.results)
    return Form(tuple(step.opcode.split(".")), results, tuple(kind for _, kind in operation.sources))


@dataclass(frozen=True, slots=True)
class PieceRegisters:
    """Registers that a piece reads before writing, those it writes, and those of them that are read afterwards."""

    reads: frozenset[str]
    writes: frozenset[str]
    kept: frozenset[str]


def needs_of(decoded: DecodedKernel) -> list[PieceRegisters]:
    """Computes the liveness of registers over the pieces."""
    local, _, live_out = liveness(decoded)
    return [
        PieceRegisters(reads, writes, writes & (out | _end_reads(decoded, block)))
        for (reads, writes), out, block in zip(local, live_out, decoded.blocks, strict=True)
    ]


def _end_reads(decoded: DecodedKernel, block: BasicBlock) -> frozenset[str]:
    """Registers that the scheduler reads at the piece's end."""
    step = decoded.steps[block.end - 1]
    if not isinstance(step.operation, BranchTable | Exit | Trap | Barrier):
        return frozenset()
    names = {name for operand in operands_of(step.operation) for name in registers_in(operand)}
    return frozenset(names | ({step.guard.name} if step.guard else set()))


def bytes_of(operation: Load | Store) -> int:
    """Bytes that one lane accesses."""
    items = operation.results if isinstance(operation, Load) else operation.sources
    return SIZES[operation.kind] * len(items)
