"""Arguments whose values become addresses or loop bounds, found in a kernel's PTX."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from kernelmate.records import Contract, Version

_ENTRY = r"\.entry\s+{}(?![\w$])\s*\((.*?)\)(.*?)\n\}}"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|reg|pragma)\b[^\n]*", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"([\w$]+)(?:\[\d+\])?\s*(?:,|$)")
_STATEMENT = re.compile(r"([\w$]+):(?!:)|(?:@(!?)(%[\w$]+)\s+)?([a-z][\w.:]*)([^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);")
_REGISTER = re.compile(r"%[\w$]+")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)[^\]]*\]")
_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red", "prefetch", "cp", "ldmatrix", "stmatrix", "tex", "mbarrier"})


Taint = tuple[str, int]
"""Source of a value: `argument` or `element` (of an array, loaded through it), and the parameter's position."""


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
    kinds = {(a.name, "argument" if a.shape is None else "element", place) for place, a in enumerate(contract.args)}
    return ArgumentUses(*(frozenset(name for name, kind, place in kinds if (kind, place) in used) for used in found))


@functools.lru_cache(16)
def _uses(ptx: str, entry: str) -> tuple[frozenset[Taint], ...]:
    return _ArgumentFlow(*entry_statements(ptx, entry)).used()


@dataclass(frozen=True, slots=True)
class Statement:
    """A label, or an instruction with its guard; `negated` where it runs if the guard is false."""

    label: str
    negated: bool
    guard: str
    opcode: tuple[str, ...]
    operands: str


def entry_statements(ptx: str, entry: str) -> tuple[dict[str, int], list[Statement]]:
    """The parameters of an entry of PTX with their places, and its statements in order; none where it is not found."""
    found = re.search(_ENTRY.format(re.escape(entry)), _COMMENT.sub("", ptx), re.DOTALL) if entry else None
    if found is None:
        return {}, []
    places = {name: place for place, name in enumerate(_PARAMETER.findall(found[1].strip()))}
    return places, [
        Statement(label, negated == "!", guard, tuple(opcode.split(".")), operands)
        for label, negated, guard, opcode, operands in _STATEMENT.findall(found[2])
    ]


class _ArgumentFlow:
    """Data flow of argument values through registers, shared and local memory; flow-insensitive."""

    def __init__(self, places: dict[str, int], statements: list[Statement]) -> None:
        self._places, self._statements = places, statements
        self._taints: dict[str, frozenset[Taint]] = {}
        self._changed = True

    def used(self) -> tuple[frozenset[Taint], ...]:
        """Returns the sources of addresses, of loop conditions, and of predicates."""
        while self._changed:
            self._changed = False
            for statement in self._statements:
                if not statement.label:
                    self._follow(statement)
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
        if name in ("ld", "ldu", "atom", "tex", "ldmatrix"):
            held = self._loaded(bases[0], memory)
            for register in _REGISTER.findall(operands[: operands.index("[")]):
                self._add(register, held)
        if name in ("st", "stmatrix") and memory:
            for register in _REGISTER.findall(_ADDRESS.sub("", operands)):
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
    """Splits operands into the one written, possibly several registers, and those read."""
    text = operands.strip()
    if text.startswith("{"):
        written, comma, read = text.partition("}")
        return written, comma, read
    return text.partition(",")
