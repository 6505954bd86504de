"""Merged loads from shared memory: a model of ptxas, which combines several loads into one.

Loads in one basic block from one base register, whose bytes are adjacent and aligned to 8 or 16, become one LDS.64 or
LDS.128 with its wavefronts. The alignment must follow from the code: the number of zero low bits of each register is
derived from its definitions. There must be no store to shared memory between the loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.matrix_operations import FragmentStore, MatrixStore
from kernelmate.backends.emulator.operations import (
    AsyncCopy,
    Atomic,
    BulkCopy,
    Compute,
    Load,
    Operation,
    Store,
    TensorCopy,
)
from kernelmate.backends.emulator.program import Immediate, Operand, Register, Symbol
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED
from kernelmate.backends.emulator.types import SIZES

if TYPE_CHECKING:
    from kernelmate.backends.emulator.decode import BasicBlock, DecodedStep

_ALL_ZERO = 64
"""Low bits that are zero in a number that is zero."""
_WIDTHS = (16, 8)
_STORES = Store | Atomic | MatrixStore | FragmentStore | AsyncCopy | BulkCopy | TensorCopy
_Base = tuple[object, ...]


def served_loads(linked: LinkedKernel, steps: Sequence[DecodedStep], blocks: Sequence[BasicBlock]) -> Mapping[int, int]:
    """Returns merged loads: by step the bytes of the combined load, 0 for all but its first."""
    if not any(isinstance(step.operation, Load) and step.operation.space == "shared" for step in steps):
        return {}
    registers = _Registers(linked, steps)
    served: dict[int, int] = {}
    for block in blocks:
        for base, members in _groups(steps, block, registers).items():
            served |= _merged(members, registers.zeros_of_base(base))
    return served


def _merged(members: Mapping[int, tuple[int, int]], zeros: int) -> dict[int, int]:
    """Merges loads from one base: `members` maps offset to step and size."""
    served: dict[int, int] = {}
    free = dict(sorted(members.items()))
    for width in _WIDTHS:
        if zeros < width.bit_length() - 1:
            continue
        for first in list(free):
            size = free[first][1] if first in free else width
            offsets = range(first, first + width, size)
            if first % width or size >= width or any(free.get(at, (0, 0))[1] != size for at in offsets):
                continue
            for at in offsets:
                served[free.pop(at)[0]] = width if at == first else 0
    return served


def _groups(
    steps: Sequence[DecodedStep], block: BasicBlock, registers: _Registers
) -> dict[_Base, dict[int, tuple[int, int]]]:
    """Returns the block's plain loads from shared memory by base: step and bytes by offset."""
    groups: dict[_Base, dict[int, tuple[int, int]]] = {}
    versions: Counter[str] = Counter()
    epoch = 0
    for number, step in enumerate(steps[block.start : block.end], block.start):
        operation = step.operation
        if isinstance(operation, _STORES) and _may_store_shared(operation):
            epoch += 1
        elif isinstance(operation, Load) and operation.space == "shared" and step.guard is None:
            size = SIZES[operation.kind] * len(operation.results)
            if not operation.synchronizing and size in {4, 8}:
                root, offset = registers.root(operation.address.base)
                version = versions[root.name] if isinstance(root, Register) else 0
                offset += operation.address.offset
                groups.setdefault((root, version, epoch), {}).setdefault(offset, (number, size))
        versions.update(step.writes)
    return groups


def _may_store_shared(operation: Operation) -> bool:
    if isinstance(operation, TensorCopy):
        return operation.loads
    if isinstance(operation, BulkCopy):
        return operation.spaces[0] != "global"
    return isinstance(operation, AsyncCopy) or getattr(operation, "space", "") in {"shared", CLUSTER_SHARED, "generic"}


class _Registers:
    """Known facts about registers that hold addresses."""

    def __init__(self, linked: LinkedKernel, steps: Sequence[DecodedStep]) -> None:
        self._shared = {name: placed.offset for name, placed in linked.shared.items()}
        written: Counter[str] = Counter()
        for step in steps:
            written.update(dict.fromkeys(step.writes, 1 if step.guard is None else 2))
        self._single = {
            step.writes[0]: step for step in steps if len(step.writes) == 1 and written[step.writes[0]] == 1
        }
        self._once = frozenset(name for name, times in written.items() if times == 1)
        self._zeros = self._fixpoint(steps)

    def root(self, base: Operand | None) -> tuple[Operand | None, int]:
        """Returns the register (None for absolute) from which a base has a constant distance, and the distance."""
        offset = 0
        while True:
            if isinstance(base, Symbol):
                return None, offset + self._shared.get(base.name, 0) + base.offset
            step = self._single.get(base.name) if isinstance(base, Register) else None
            if step is None or not isinstance(step.operation, Compute):
                return base, offset
            sources = [operand for operand, _ in step.operation.sources]
            name = step.opcode.split(".")[0]
            if name == "mov" and len(sources) == 1 and isinstance(sources[0], Register | Symbol):
                following: Operand = sources[0]
            elif name == "add" and isinstance(sources[1], Immediate) and isinstance(sources[0], Register):
                following = sources[0]
                offset += _signed(sources[1].bits)
            else:
                return base, offset
            # A register that changes may have had another value when this one was derived from it.
            if isinstance(following, Register) and following.name not in self._once:
                return base, offset
            base = following

    def zeros_of_base(self, base: _Base) -> int:
        """Returns the number of low bits that are zero in a base of `_groups`."""
        root = base[0]
        return self._zeros.get(root.name, 0) if isinstance(root, Register) else _ALL_ZERO

    def _fixpoint(self, steps: Sequence[DecodedStep]) -> dict[str, int]:
        """Returns the zero low bits of every register over all its definitions.

        Starting from all zero, down to a fixed point.
        """
        zeros: dict[str, int] = {name: _ALL_ZERO for step in steps for name in step.writes}
        changed = True
        while changed:
            changed = False
            for step in steps:
                found = self._zeros_written(step, zeros) if step.writes else 0
                for name in step.writes:
                    if found < zeros[name]:
                        zeros[name], changed = found, True
        return zeros

    def _zeros_written(self, step: DecodedStep, zeros: Mapping[str, int]) -> int:
        if not isinstance(step.operation, Compute):
            return 0
        kinds = [kind for _, kind in step.operation.sources]
        if any(kind[0] not in "usb" for kind in kinds):
            return 0
        known = [self._zeros_read(operand, zeros) for operand, _ in step.operation.sources]
        name = step.opcode.split(".")[0]
        if name in {"mov", "cvt", "cvta"} and len(known) == 1:
            return known[0]
        if name in {"add", "sub", "or", "xor", "min", "max"}:
            return min(known[:2])
        if name == "and":
            return max(known)
        if name in {"mul", "mad"} and "hi" not in step.opcode:
            product = min(known[0] + known[1], _ALL_ZERO)
            return min(product, known[2]) if name == "mad" else product
        shifted = step.operation.sources[1][0] if name == "shl" else None
        return min(known[0] + shifted.bits, _ALL_ZERO) if isinstance(shifted, Immediate) else 0

    def _zeros_read(self, operand: Operand, zeros: Mapping[str, int]) -> int:
        if isinstance(operand, Immediate):
            return _zeros_in(operand.bits)
        if isinstance(operand, Symbol) and operand.name in self._shared:
            return _zeros_in(self._shared[operand.name] + operand.offset)
        return zeros.get(operand.name, 0) if isinstance(operand, Register) else 0


def _zeros_in(value: int) -> int:
    return _ALL_ZERO if value == 0 else (value & -value).bit_length() - 1


def _signed(bits: int) -> int:
    """Returns a constant of 32 or 64 bits as signed, since PTX also writes negative ones."""
    bits &= (1 << 64) - 1
    if bits >> 63:
        return bits - (1 << 64)
    return bits - (1 << 32) if (1 << 31) <= bits < (1 << 32) else bits
