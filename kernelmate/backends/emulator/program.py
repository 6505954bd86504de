"""A parsed PTX module: variables, functions, instructions, operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """A register by name, unique within its function; `negated` for `!%p`."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A special register: `%tid.x`, `%laneid`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. `bits` is an integer value of any size, or the bit pattern of a float of `float_bytes` bytes."""

    bits: int
    float_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, function or label, with a byte offset; `generic` for `generic(name)` in initialisers."""

    name: str
    offset: int = 0
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """An operand in square brackets."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """An operand `[map, {x, y}]`: the address of a tensor map, and coordinates, the fastest first."""

    map: Address
    coordinates: Vector


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class RegisterPair:
    """Two destinations: `%p1|%p2`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """A result that is thrown away: `_`."""


@dataclass(frozen=True, slots=True)
class OperandGroup:
    """Operands in parentheses: results and arguments of a call."""

    items: tuple[Operand, ...]


Operand = (
    Register | Special | Immediate | Symbol | Address | TensorAddress | Vector | RegisterPair | Sink | OperandGroup
)


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the unit's text; `line` 0 means unknown."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: as written: `mad.lo.s32`.
        parts: the same, split at the dots.
        guard: its predicate, or None.
        position: position in the user's text, or None.
        line: line of the PTX text; 0 if generated.
    """

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    position: Position | None = None
    line: int = 0

    @property
    def name(self) -> str:
        """The operation without its qualifiers."""
        return self.parts[0]

    @property
    def kind(self) -> str:
        """Returns the last qualifier, the type of most instructions."""
        return self.parts[-1]

    def has(self, qualifier: str) -> bool:
        """Returns True if the qualifier is one of the instruction's parts."""
        return qualifier in self.parts[1:]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of one state space.

    Attributes:
        space: `global`, `const`, `shared`, `local` or `param`.
        size: bytes; 0 for an unsized external array, whose size the launch decides.
        initial: its first bytes; the rest is zero.
        relocations: (byte offset, symbol): eight-byte addresses to fill in.
    """

    name: str
    space: str
    kind: str
    align: int
    size: int
    initial: bytes = b""
    relocations: tuple[tuple[int, Symbol], ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function. `body` is empty, and `defined` False, for a declaration.

    Attributes:
        registers: type by name.
        labels: index into `body`.
        tables: targets by the name of a `.branchtargets` list.
    """

    name: str
    entry: bool
    defined: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    body: tuple[Instruction, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """A whole module. `target` is its `.target`, for messages."""

    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]
    target: str
