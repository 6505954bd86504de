"""State of one native function: the launch's table, uniforms, scratch space, and the registers of the lane at hand."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from llvmlite import ir

from kernelmate.backends.emulator.jit.helpers import HelperFunctions
from kernelmate.backends.emulator.jit.layout import SLOT_BYTES, Checks, Slot
from kernelmate.backends.emulator.jit.lowering import (
    BOOL,
    DOUBLE,
    FLOAT,
    I32,
    I64,
    element_address,
    load,
    number,
    stack_array,
    type_of,
    widen,
)
from kernelmate.backends.emulator.memory import Marks
from kernelmate.backends.emulator.program import Immediate, Operand, Register, Sink, Special, Symbol
from kernelmate.backends.emulator.registers import immediate_bits
from kernelmate.backends.emulator.types import SIZES, is_signed

Uniform = Hashable
"""A value that is equal in all lanes: ("register", name), ("special", name) or ("symbol", name, offset)."""


class NativeFrame:
    """The function under construction.

    Args:
        kinds: type of each register.
        constants: registers with one value for the launch.
        fixed: likewise special registers.
        marks: mark bits for touched sectors.

    Attributes:
        entry: builder at the end of the entry block.
        registers: index of each register's array in the table.
        uniforms: index of each uniform.
        groups: number of access caches.
    """

    def __init__(
        self, function: ir.Function, helpers: HelperFunctions, kinds: Mapping[str, str],
        constants: frozenset[str], fixed: frozenset[str], checks: Checks | None,
        marks: Marks,
    ) -> None:  # fmt: skip
        self.checks = checks
        self.marks = marks
        self.helpers = helpers
        self.context = function.args[0]
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        self.constants = constants
        self.fixed = fixed
        self._kinds = kinds
        self.registers: dict[str, int] = {}
        self.uniforms: dict[Uniform, int] = {}
        self.groups = 0
        self._slots: dict[Slot, ir.Value] = {}
        self._arrays: dict[str, ir.Value] = {}
        self._uniforms: dict[Uniform, ir.Value] = {}
        self._tables: dict[int, ir.Value] = {}

    def slot(self, which: Slot) -> ir.Value:
        """Returns a slot's content, read once."""
        found = self._slots.get(which)
        if found is None:
            found = self._slots[which] = load(self.entry, self.slot_at(self.entry, which))
        return found

    def slot_at(self, b: ir.IRBuilder, which: Slot) -> ir.Value:
        """Returns a slot's address."""
        return b.add(self.context, number(SLOT_BYTES * which))

    def bits_of(self, name: str) -> int:
        """Returns the width in bits of a register's array element."""
        return 32 if name not in self._kinds else 8 * SIZES[self._kinds[name]]

    def is_predicate(self, name: str) -> bool:
        """True if a register is one."""
        return self._kinds.get(name) == "pred"

    def array(self, name: str) -> ir.Value:
        """Returns the address of a register's array, or of a special register's."""
        found = self._arrays.get(name)
        if found is None:
            place = self.registers.setdefault(name, len(self.registers))
            at = element_address(self.entry, self.slot(Slot.REGISTERS_AT), number(place), 8)
            found = self._arrays[name] = load(self.entry, at)
        return found

    def uniform(self, key: Uniform) -> ir.Value:
        """Returns a value that is uniform over the launch, as 64 bits."""
        found = self._uniforms.get(key)
        if found is None:
            place = self.uniforms.setdefault(key, len(self.uniforms))
            at = element_address(self.entry, self.slot(Slot.UNIFORMS_AT), number(place), 8)
            found = self._uniforms[key] = load(self.entry, at)
        return found

    def symbol(self, symbol: Symbol) -> ir.Value:
        """Returns a variable's address."""
        return self.uniform(("symbol", symbol.name, symbol.offset))

    def special(self, special: Special) -> ir.Value | None:
        """Returns a special register shared by all lanes; None if it differs by lane."""
        return self.uniform(("special", special.name)) if special.name in self.fixed else None

    def scratch(self, which: int) -> ir.Value:
        """Returns the address of a scratch table of 32 slots; pieces use them one after another."""
        found = self._tables.get(which)
        if found is None:
            found = self._tables[which] = stack_array(self.entry, I64, 32)
        return found

    def variable(self, kind: ir.Type = I32) -> ir.Value:
        """Returns a new variable on the stack."""
        return self.entry.alloca(kind)

    def new_group(self) -> int:
        """Returns the number of a cache for one more group of global accesses."""
        self.groups += 1
        return self.groups - 1


class LaneValues:
    """Register values of a lane at one point of the code; loaded on first read, and kept until the end of the lane."""

    def __init__(self, frame: NativeFrame) -> None:
        self._frame = frame
        self._env: dict[str, ir.Value] = {}
        self._b: ir.IRBuilder
        self._first: ir.Value

    def _at(self, lane: ir.Value) -> None:
        """Starts a lane of the warp whose first lane is number `_first`."""
        self._env.clear()
        self._lane = lane
        self._number = self._b.add(self._first, self._b.zext(lane, I64))

    def _element(self, name: str) -> ir.Value:
        return element_address(self._b, self._frame.array(name), self._number, self._frame.bits_of(name) // 8)

    def _register(self, name: str) -> ir.Value:
        """Returns a register's bits in its own width; a predicate as one bit."""
        frame, b = self._frame, self._b
        kind = ir.IntType(frame.bits_of(name))
        if name in frame.constants:
            return b.trunc(frame.uniform(("register", name)), BOOL if frame.is_predicate(name) else kind)
        found = self._env.get(name)
        if found is None:
            found = load(b, self._element(name), kind)
            if frame.is_predicate(name):
                found = b.trunc(found, BOOL)
            self._env[name] = found
        return found

    def _read(self, operand: Operand, kind: str) -> ir.Value:
        """Returns an operand as a value of a type."""
        b = self._b
        bits_ = BOOL if kind == "pred" else ir.IntType(8 * SIZES[kind])
        if isinstance(operand, Immediate):
            value = number(immediate_bits(operand, kind), bits_)
        elif isinstance(operand, Register):
            value = widen(b, self._register(operand.name), bits_, False)
            value = b.not_(value) if operand.negated else value
        elif isinstance(operand, Special):
            shared = self._frame.special(operand)
            value = widen(b, self._register(operand.name) if shared is None else shared, bits_, False)
        else:
            assert isinstance(operand, Symbol)
            value = widen(b, self._frame.symbol(operand), bits_, False)
        return b.bitcast(value, type_of(kind)) if kind in {"f32", "f64"} else value

    def _write(self, operand: Operand, kind: str, value: ir.Value, guard: ir.Value | None) -> None:
        """Writes a result to its register, which may be wider."""
        if isinstance(operand, Sink):
            return
        assert isinstance(operand, Register)
        b, frame = self._b, self._frame
        if value.type in (FLOAT, DOUBLE):
            value = b.bitcast(value, ir.IntType(8 * SIZES[kind]))
        if not frame.is_predicate(operand.name):
            value = widen(b, value, ir.IntType(frame.bits_of(operand.name)), is_signed(kind))
        if guard is not None:
            value = b.select(guard, value, self._register(operand.name))
        self._env[operand.name] = value
