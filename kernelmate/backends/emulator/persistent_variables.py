"""Module variables that persist between launches, and whether values read from them affect results.

Data flow through a kernel's PTX.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kernelmate.backends.emulator.link import LinkRefused, link
from kernelmate.backends.emulator.operands import PtxError
from kernelmate.backends.emulator.program import (
    Address,
    Instruction,
    Operand,
    OperandGroup,
    Position,
    Register,
    RegisterPair,
    Symbol,
    Vector,
)
from kernelmate.backends.emulator.ptx import parse_program
from kernelmate.compiler.ptx_text import used_names_of

MOST_PASSES = 12
"""Maximum passes over the instructions until a fixed point; loops take a second one."""

_WRAPPING = frozenset({"inc", "dec", "exch", "cas", "and", "or", "xor", "min", "max"})
"""Atomics that can restore a variable's value."""


@dataclass(slots=True)
class PersistentVariable:
    """A kernel's uses of a variable in global memory that the module defines.

    Attributes:
        read: position of its first read.
        loaded: True if a value read from it is used.
        written: True if a store or an atomic changes it.
        decides: True if its value reaches a branch, another array, or shared memory.
        grows: True if its new value depends on the old one.
        put_back: True if it is also set to another value.
    """

    name: str
    read: Position | None = None
    loaded: bool = False
    written: bool = False
    decides: bool = False
    grows: bool = False
    put_back: bool = False


@functools.lru_cache(maxsize=16)
def variables_of(ptx: str, kernel: str) -> tuple[PersistentVariable, ...]:
    """Returns the variables that a kernel uses; none if its PTX cannot be parsed."""
    names = used_names_of(ptx)
    if not names:
        return ()
    try:
        linked = link(parse_program(ptx, kernel), kernel)
    except (PtxError, LinkRefused):
        return ()
    used = {register for one in linked.instructions for register in _used(one)}
    flow = _VariableFlow({name: PersistentVariable(name) for name in names if name in linked.globals}, used)
    while flow.run(linked.instructions):
        pass
    return tuple(one for one in flow.variables.values() if one.loaded or one.written)


@dataclass(slots=True)
class _VariableFlow:
    """By register: variables whose address or value it may hold; `direct` registers hold an unmodified value.

    `used` are registers that some instruction reads.
    """

    variables: dict[str, PersistentVariable]
    used: set[str]
    addresses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    direct: dict[str, str] = field(default_factory=dict)
    passes: int = 0

    def run(self, instructions: Iterable[Instruction]) -> bool:
        """Makes one pass; returns True if another one may find more."""
        before = self._known()
        for instruction in instructions:
            self._follow(instruction)
        self.passes += 1
        return self._known() != before and self.passes < MOST_PASSES

    def _known(self) -> int:
        return sum(map(len, self.addresses.values())) + sum(map(len, self.values.values()))

    def _follow(self, one: Instruction) -> None:
        guarded = self._values_of([one.guard] if one.guard is not None else [])
        name, operands = one.name, one.operands
        if name in ("ld", "ldu", "atom"):
            self._load(one, guarded)
        elif name in ("st", "red"):
            self._store(one, operands[0], operands[1:], guarded)
        elif name in ("bra", "brx", "exit", "ret", "trap", "call", "bar", "barrier"):
            self._decided(guarded | self._values_of(operands))
        elif operands:
            sources = operands[1:]
            if not self._compares_with_itself(one):
                self._give(operands[0], self._values_of(sources) | guarded)
            found = {variable for operand in sources for variable in self._addresses_of(operand)}
            for register in _registers((operands[0],)):
                self.addresses[register] |= found
            if name in ("mov", "cvt") and len(sources) == 1 and isinstance(sources[0], Register):
                self._pass_on(operands[0], sources[0])

    def _pass_on(self, to: Operand, source: Register) -> None:
        if isinstance(to, Register) and source.name in self.direct:
            self.direct[to.name] = self.direct[source.name]

    def _compares_with_itself(self, one: Instruction) -> bool:
        """True if two values of one variable are compared, as in a barrier that waits for the next generation."""
        if one.name != "setp" or not (one.has("eq") or one.has("ne")):
            return False
        held = [self.direct.get(operand.name) for operand in one.operands[1:] if isinstance(operand, Register)]
        return len(one.operands) == 3 and len(held) == 2 and held[0] is not None and held[0] == held[1]

    def _load(self, one: Instruction, guarded: set[str]) -> None:
        result, address, data = one.operands[0], one.operands[1], one.operands[2:]
        found = self._addresses_of(address)
        if one.name == "atom":
            self._store(one, address, data, guarded)
        # An atomic with an unused result still has a destination register.
        for name in found if self.used.intersection(_registers((result,))) else ():
            variable = self.variables[name]
            variable.loaded, variable.read = True, variable.read or one.position
        self._give(result, found | guarded | self._values_of([address]))
        if one.name == "ld" and len(found) == 1 and isinstance(result, Register):
            self.direct[result.name] = next(iter(found))

    def _store(self, one: Instruction, address: Operand, data: Iterable[Operand], guarded: set[str]) -> None:
        into, held = self._addresses_of(address), self._values_of(data)
        self._decided(self._values_of([address]) | (held - into) | (guarded - into))
        for name in into:
            variable = self.variables[name]
            variable.written = True
            adds = one.name in ("atom", "red") and not any(one.has(word) for word in _WRAPPING)
            if adds or name in held:
                variable.grows = True
            else:
                variable.put_back = True

    def _decided(self, names: Iterable[str]) -> None:
        for name in names:
            self.variables[name].decides = True

    def _give(self, to: Operand, names: set[str]) -> None:
        for register in _registers((to,)):
            self.values[register] |= names

    def _values_of(self, operands: Iterable[Operand]) -> set[str]:
        return {name for register in _registers(operands) for name in self.values.get(register, ())}

    def _addresses_of(self, operand: Operand) -> set[str]:
        if isinstance(operand, Address):
            return set() if operand.base is None else self._addresses_of(operand.base)
        if isinstance(operand, Symbol):
            return {operand.name} & self.variables.keys()
        return {name for register in _registers((operand,)) for name in self.addresses.get(register, ())}


def _used(one: Instruction) -> Iterator[str]:
    """Yields the registers that an instruction reads, or may read."""
    writes_first = one.name not in ("st", "red", "bra", "brx", "call")
    yield from _registers(one.operands[1:] if writes_first else one.operands)
    yield from _registers(() if one.guard is None else (one.guard,))


def _registers(operands: Iterable[Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Address):
            yield from _registers(() if operand.base is None else (operand.base,))
        elif isinstance(operand, Vector | OperandGroup):
            yield from _registers(operand.items)
        elif isinstance(operand, RegisterPair):
            yield from _registers((operand.first, operand.second))
