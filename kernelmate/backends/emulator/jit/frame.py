"""State of one native function: the launch's table, registers, uniforms, and scratch space."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from llvmlite import ir

from kernelmate.backends.emulator.footprints import Marks
from kernelmate.backends.emulator.jit.emit import item, load, number, table
from kernelmate.backends.emulator.jit.helpers import HelperFunctions
from kernelmate.backends.emulator.jit.layout import SLOT_BYTES, Checks, Slot
from kernelmate.backends.emulator.jit.lowering import I32, I64
from kernelmate.backends.emulator.program import Special, Symbol
from kernelmate.backends.emulator.types import SIZES

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
            at = item(self.entry, self.slot(Slot.REGISTERS_AT), number(place), 8)
            found = self._arrays[name] = load(self.entry, at)
        return found

    def uniform(self, key: Uniform) -> ir.Value:
        """Returns a uniform as 64 bits."""
        found = self._uniforms.get(key)
        if found is None:
            place = self.uniforms.setdefault(key, len(self.uniforms))
            at = item(self.entry, self.slot(Slot.UNIFORMS_AT), number(place), 8)
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
            found = self._tables[which] = table(self.entry, I64, 32)
        return found

    def variable(self, kind: ir.Type = I32) -> ir.Value:
        """Returns a new variable on the stack."""
        return self.entry.alloca(kind)

    def new_group(self) -> int:
        """Returns the number of a cache for one more group of global accesses."""
        self.groups += 1
        return self.groups - 1
