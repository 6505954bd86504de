"""Arguments whose values become addresses or loop bounds, and the constants they are compared with, from a kernel's PTX."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.checks import ptx_values
from kernelmate.records import Contract, Version

_ENTRY = r"\.entry\s+{}(?![\w$])\s*\((.*?)\)(.*?)\n\}}"
_FUNCTION = re.compile(r"\.func\b\s*(?:\(([^()]*)\))?\s*([\w$]+)\s*\(([^()]*)\)[^;{}]*\{(.*?)\n\}", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|reg|pragma)\b[^\n]*", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"([\w$]+)(?:\[\d+\])?\s*(?:,|$)")
_STATEMENT = re.compile(r"([\w$]+):(?!:)|(?:@(!?)(%[\w$]+)\s+)?([a-z][\w.:]*)([^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);")
_WORD = re.compile(r"[\w$]+")
_REGISTER = re.compile(r"%[\w$]+")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)[^\]]*\]")
_ACCESSES = frozenset(
    {"ld", "ldu", "st", "atom", "red", "prefetch", "cp", "ldmatrix", "stmatrix", "wmma", "tex", "mbarrier"}
)


Taint = tuple[str, int]
"""Source of a value, as kind and parameter index: `argument`, or `element` for values loaded through a pointer."""


@dataclass(frozen=True, slots=True)
class ArgumentUses:
    """Arguments classified by the use of their values: array elements and scalars.

    Attributes:
        addresses: used in the address of a load or a store.
        loops: used in a loop's exit condition.
        guards: used in an instruction's predicate.
    """

    addresses: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()


def uses_of(version: Version, contract: Contract) -> ArgumentUses:
    """Returns the uses of a version's arguments, by the contract's names; none without PTX."""
    found = _uses(version.compiled.ptx, version.compiled.lowered_name)
    kinds = {
        (a.name, "argument" if a.shape is None else "element", place)
        for place, a in enumerate(contract.parameters)
        if a is not None
    }
    return ArgumentUses(*(frozenset(name for name, kind, place in kinds if (kind, place) in used) for used in found))


@dataclass(frozen=True, slots=True)
class ConstantComparison:
    """A constant that elements of an array, or a scalar, are compared with.

    Attributes:
        name: the argument's name.
        value: the constant; an integer may also be the bit pattern of a float.
        equal: True if the comparison tests equality.
    """

    name: str
    value: float
    equal: bool


ONE_BITS = 0x3F800000
"""Bits of 1 in float32, for those bits of an operand that a comparison leaves out."""

HUGE_DIVISOR = 1.5 * 2.0**126
"""Magnitude beyond which approximate division gives zero (PTX ISA, div.approx)."""


def comparisons_of(version: Version, contract: Contract) -> tuple[ConstantComparison, ...]:
    """Returns the constants that a version compares arguments with, in the order of its code; none without PTX.

    Comparisons inside called functions count for all arrays.
    """
    names = {place: a.name for place, a in enumerate(contract.parameters) if a is not None}
    arrays = [place for place, a in enumerate(contract.parameters) if a is not None and a.shape is not None]
    found = [
        ConstantComparison(names[place], value, equal)
        for value, equal, places in _compared(version.compiled.ptx, version.compiled.lowered_name)
        for place in (arrays if places is None else sorted(places))
        if place in names
    ]
    return tuple(dict.fromkeys(found))


def kept_ranges(version: Version, contract: Contract) -> frozenset[tuple[str, int]]:
    """Returns scalar arguments of whose values code keeps low bits or a remainder, with the number of values that remain."""
    names = {place: a.name for place, a in enumerate(contract.parameters) if a is not None and a.shape is None}
    found = _kept(version.compiled.ptx, version.compiled.lowered_name)
    return frozenset((names[place], kept) for place, kept in found if place in names)


@functools.lru_cache(16)
def _kept(ptx: str, entry: str) -> frozenset[tuple[int, int]]:
    """Returns parameter indices of scalars, with the number of values that a mask or a remainder leaves."""
    places, statements = entry_statements(ptx, entry)
    flow = _ArgumentFlow(places, statements)
    flow.follow()
    writers, found = _writers(statements), set[tuple[int, int]]()
    for one in statements:
        operands = [part.strip() for part in one.operands.split(",")]
        if one.opcode[0] in ("and", "rem", "sub") and "pred" not in one.opcode and len(operands) == 3:
            kept = _range_of(one.opcode[0], operands[2], writers)
            found |= {(place, kept) for kind, place in flow.sources(operands[1]) if kind == "argument" and kept > 1}
    return frozenset(found)


def _range_of(name: str, operand: str, writers: dict[str, Statement | None]) -> int:
    """Returns the number of values that a mask, a remainder, or the subtraction of a multiple leaves; 0 if unknown."""
    writer = writers.get(operand)
    if name == "sub" and writer is not None and writer.opcode[:2] == ("mul", "lo"):
        operand = writer.operands.rpartition(",")[2].strip()
    elif name == "sub":
        return 0
    value = _constant(operand, writers)
    if not isinstance(value, int):
        return 0
    return value if name != "and" else 0 if value & (value + 1) else value + 1


DEEPEST, MOST_FACTORS, FARTHEST_FACTOR = 6, 4, 2.0**20
"""Maximum number of instructions between a factor and its rounding, of factors, and of their size or its inverse."""


@functools.lru_cache(16)
def rounded_factors(ptx: str, entry: str) -> tuple[float, ...]:
    """Returns the constants by which a kernel multiplies values that it then rounds to integers, in the order of its code."""
    _, statements = entry_statements(ptx, entry)
    writers = _writers(statements)
    found = [
        abs(factor)
        for one in statements
        if one.opcode[0] == "cvt" and {"rni", "rzi", "rmi", "rpi"} & set(one.opcode)
        for factor in _factors(one.operands.rpartition(",")[2].strip(), 1.0, writers, DEEPEST)
        if 1 / FARTHEST_FACTOR <= abs(factor) <= FARTHEST_FACTOR and abs(factor) != 1
    ]
    return tuple(dict.fromkeys(found))[:MOST_FACTORS]


def _factors(register: str, factor: float, writers: dict[str, Statement | None], depth: int) -> Iterator[float]:
    """Yields the factors between a register and each register from which it is computed, times `factor`."""
    yield factor
    writer = writers.get(register)
    if writer is None or not depth or writer.opcode[0] in _ACCESSES:
        return
    name, (_, *sources) = writer.opcode[0], [part.strip() for part in writer.operands.split(",")]
    if name == "add" and len(sources) == 2 and sources[0] == sources[1]:
        yield from _factors(sources[0], 2 * factor, writers, depth - 1)
        return
    values = [_constant(source, writers) for source in sources]
    for place, source in enumerate(sources):
        other = values[1 - place] if name in ("mul", "fma", "div") and place < 2 else None
        if not source.startswith("%") or values[place] is not None or (name == "div" and place):
            continue
        if isinstance(other, float) and other:
            yield from _factors(source, factor / other if name == "div" else factor * other, writers, depth - 1)
        else:
            yield from _factors(source, factor, writers, depth - 1)


@functools.lru_cache(16)
def _compared(ptx: str, entry: str) -> tuple[tuple[float, bool, frozenset[int] | None], ...]:
    """Returns constants, True if the comparison tests equality, and parameter indices; None means all arrays."""
    places, statements = entry_statements(ptx, entry)
    flow = _ArgumentFlow(places, statements)
    flow.follow()
    found: list[tuple[float, bool, frozenset[int] | None]] = []
    for register, value, equal in _comparisons(statements):
        sources = frozenset(place for _, place in flow.sources(register))
        if sources:
            found.append((value, equal, sources))
    for *_, body in _FUNCTION.findall(_COMMENT.sub("", ptx)) if places else ():
        found += [(value, equal, None) for _, value, equal in _comparisons(_statements(body))]
    return tuple(dict.fromkeys(found))


def _comparisons(statements: Sequence[Statement]) -> Iterator[tuple[str, float, bool]]:
    """Yields registers with the constants they are compared with, also if a constant was added or multiplied before."""
    writers = _writers(statements)
    for one in statements:
        operands = [part.strip() for part in one.operands.split(",")]
        if one.opcode[:2] == ("div", "approx") and len(operands) == 3:
            yield from ((register, HUGE_DIVISOR, False) for register in operands[1:])
        if one.opcode[0] not in ("setp", "set", "min", "max") or len(operands) < 3:
            continue
        equal = bool({"eq", "ne", "equ", "neu"} & set(one.opcode))
        for register, other in (operands[1:3], operands[2:0:-1]):
            value = _constant(other, writers)
            if value is not None and register.startswith("%"):
                yield register, value, equal
                yield from ((register, moved, equal) for moved in _moved(register, value, writers))


def _writers(statements: Sequence[Statement]) -> dict[str, Statement | None]:
    """Returns the instruction that writes each register; None for registers with several."""
    writers: dict[str, Statement | None] = {}
    for one in statements:
        for register in _REGISTER.findall(_halves(one.operands)[0]):
            writers[register] = None if register in writers else one
    return writers


def _constant(operand: str, writers: dict[str, Statement | None]) -> float | None:
    """Returns the constant value of an operand, or of its register; None for others."""
    writer = writers.get(operand)
    if writer is not None and writer.opcode[0] == "mov":
        operand = writer.operands.rpartition(",")[2].strip()
    found = ptx_values.number(operand)
    return None if found is None else found.item()


def _moved(register: str, value: float, writers: dict[str, Statement | None]) -> Iterator[float]:
    """Yields constants that a register's operand equals if the register equals `value`, or 0.

    The register is a sum with, or for floating values a product by, a constant, or some of the operand's bits.
    """
    writer = writers.get(register)
    if writer is not None and writer.opcode[0] == "and" and isinstance(value, int):
        mask = _constant(writer.operands.rpartition(",")[2].strip(), writers)
        if isinstance(mask, int):
            yield value & mask | ONE_BITS & ~mask
    if writer is not None and writer.opcode[0] == "mul" and isinstance(value, float):
        factor = _constant(writer.operands.rpartition(",")[2].strip(), writers)
        if isinstance(factor, float) and factor:
            yield value / factor
    if writer is not None and writer.opcode[0] in ("add", "sub", "xor") and isinstance(value, int):
        added = _constant(writer.operands.rpartition(",")[2].strip(), writers)
        if isinstance(added, int):
            if writer.opcode[0] == "xor":
                yield value ^ added
            else:
                sign = 1 if writer.opcode[0] == "add" else -1
                yield from (value - sign * added, -sign * added)


@functools.lru_cache(16)
def has_running_product(ptx: str, entry: str) -> bool:
    """Returns True if a kernel multiplies a floating-point register again and again by elements that it loads.

    Such a product overflows, or vanishes, in the middle of some orders of its factors and not of others.
    """
    _, statements = entry_statements(ptx, entry)
    writers = _writers(statements)
    for one in statements:
        if one.opcode[0] not in ("mul", "fma") or not {"f32", "f64"} & set(one.opcode):
            continue
        result, *factors = (part.strip() for part in one.operands.split(","))
        if result in factors[:2] and any(
            _is_loaded(other, writers, DEEPEST) for other in factors[:2] if other != result
        ):
            return True
    return False


def _is_loaded(register: str, writers: dict[str, Statement | None], depth: int) -> bool:
    """Returns True if a register holds an element as it was loaded, converted, or selected."""
    writer = writers.get(register)
    if writer is None or not depth:
        return False
    if writer.opcode[0] == "ld":
        return "param" not in writer.opcode
    sources = writer.operands.split(",")[1:3] if writer.opcode[0] in ("mov", "cvt", "selp") else []
    return any(_is_loaded(source.strip(), writers, depth - 1) for source in sources)


@functools.lru_cache(16)
def _uses(ptx: str, entry: str) -> tuple[frozenset[Taint], ...]:
    return _ArgumentFlow(*entry_statements(ptx, entry)).used()


@dataclass(frozen=True, slots=True)
class Statement:
    """A label, or an instruction with its guard; `negated` is True if it runs when the guard is false."""

    label: str
    negated: bool
    guard: str
    opcode: tuple[str, ...]
    operands: str


def entry_statements(ptx: str, entry: str) -> tuple[dict[str, int], list[Statement]]:
    """Returns the parameter indices of a PTX entry by name, and its statements; both empty if it is not found."""
    found = re.search(_ENTRY.format(re.escape(entry)), _COMMENT.sub("", ptx), re.DOTALL) if entry else None
    if found is None:
        return {}, []
    places = {name: place for place, name in enumerate(_PARAMETER.findall(found[1].strip()))}
    return places, _statements(found[2])


def function_statements(ptx: str) -> dict[str, tuple[list[str], list[str], list[Statement]]]:
    """Returns the names of parameters and of results of a PTX text's functions, and their statements, by function."""
    return {
        name: (_PARAMETER.findall(given.strip()), _PARAMETER.findall(returned.strip()), _statements(body))
        for returned, name, given, body in _FUNCTION.findall(_COMMENT.sub("", ptx))
    }


def read_parameters(ptx: str, entry: str) -> frozenset[int]:
    """Returns the indices of the parameters that an entry loads or takes the address of; all parts of a struct count."""
    places, statements = entry_statements(ptx, entry)
    words = {word for one in statements for word in _WORD.findall(one.operands)}
    return frozenset(place for name, place in places.items() if name in words)


def _statements(body: str) -> list[Statement]:
    return [
        Statement(label, negated == "!", guard, tuple(opcode.split(".")), operands)
        for label, negated, guard, opcode, operands in _STATEMENT.findall(body)
    ]


class _ArgumentFlow:
    """Flow-insensitive data flow of argument values through registers, shared and local memory."""

    def __init__(self, places: dict[str, int], statements: list[Statement]) -> None:
        self._places, self._statements = places, statements
        self._taints: dict[str, frozenset[Taint]] = {}
        self._changed = True

    def follow(self) -> None:
        """Finds the sources of all registers."""
        while self._changed:
            self._changed = False
            for statement in self._statements:
                if not statement.label:
                    self._follow(statement)

    def sources(self, register: str) -> frozenset[Taint]:
        """Returns the sources of a register's value."""
        return self._of(register)

    def used(self) -> tuple[frozenset[Taint], ...]:
        """Returns the sources of addresses, of loop conditions, and of predicates."""
        self.follow()
        addresses: set[Taint] = set()
        for statement in self._statements:
            if statement.opcode[0] in _ACCESSES:
                for base in _ADDRESS.findall(statement.operands):
                    addresses |= self._of(base)
        guards = frozenset[Taint]().union(*(self._of(statement.guard) for statement in self._statements))
        return frozenset(addresses), frozenset(self._loops()), guards

    def _of(self, name: str) -> frozenset[Taint]:
        return self._taints.get(name, frozenset())

    def _add(self, name: str, taints: frozenset[Taint]) -> None:
        if not taints <= self._of(name):
            self._taints[name] = self._of(name) | taints
            self._changed = True

    def _follow(self, statement: Statement) -> None:
        name, operands = statement.opcode[0], statement.operands
        bases = _ADDRESS.findall(operands) if name in _ACCESSES else []
        if not bases:
            written, _, read = _halves(operands)
            taints = frozenset[Taint]().union(*(self._of(one) for one in _REGISTER.findall(read)))
            for register in _REGISTER.findall(written):
                self._add(register, taints)
            return
        memory = next((part for part in statement.opcode if part in ("shared", "local", "param")), "")
        if name == "wmma":
            name = ".".join(statement.opcode[:2])
        if name in ("ld", "ldu", "atom", "tex", "ldmatrix", "wmma.load"):
            held = self._loaded(bases[0], memory)
            for register in _REGISTER.findall(operands[: operands.index("[")]):
                self._add(register, held)
        if name in ("st", "stmatrix", "wmma.store") and memory:
            for register in _REGISTER.findall(_ADDRESS.sub("", operands).partition("}")[0]):
                self._add(memory, self._of(register))
        if name == "cp":
            self._add("shared", frozenset[Taint]().union(*(self._loaded(base, "") for base in bases[1:])))

    def _loaded(self, base: str, memory: str) -> frozenset[Taint]:
        """Returns the sources of a value loaded from an address."""
        if base in self._places:
            return frozenset({("argument", self._places[base])})
        taints = self._of(base)
        through = frozenset(("element", place) for _, place in taints)
        return through | self._of(memory)

    def _loops(self) -> set[Taint]:
        """Returns sources of predicates on branches that leave or repeat a loop."""
        labels = {one.label: number for number, one in enumerate(self._statements) if one.label}
        branches = [
            (number, labels[target], one.guard)
            for number, one in enumerate(self._statements)
            if one.opcode[0] == "bra" and (target := one.operands.strip()) in labels
        ]
        loops = [(to, number) for number, to, _ in branches if to < number]
        ends: set[Taint] = set()
        for number, to, guard in branches:
            if guard and any(first <= number <= last and not first < to <= last for first, last in loops):
                ends |= self._of(guard)
        return ends


def _halves(operands: str) -> tuple[str, str, str]:
    """Splits operands into the destination (one register, or several in braces), the separator, and the sources."""
    text = operands.strip()
    if text.startswith("{"):
        written, comma, read = text.partition("}")
        return written, comma, read
    return text.partition(",")
