"""Execution of those instructions of an entry that sizes alone decide, for many sizes at once and without a launch.

Loops, tables of constants and calls are followed. A branch that depends on anything else, such as the thread or an element,
is taken towards the instruction of interest: the result selects sizes to try, and proves nothing about others.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernelmate.checks.positions import Statement, entry_statements, function_statements
from kernelmate.checks.precision import Array
from kernelmate.checks.ptx_values import evaluated, number

MOST_STEPS, MOST_VALUES = 20_000, 20_000_000
"""Maximum instructions of one execution, and values after which no loop is repeated: a second or two for a version."""

MOST_LOCAL = 1 << 12
"""Maximum bytes of local memory that are followed."""

MOST_CALLS = 64
"""Maximum number of calls that are replaced by the code of the function."""

FIRST_ADDRESS, TABLE_BYTES = 1 << 40, 1 << 20
"""Address of the first table, and the distance between two."""

_TABLE = re.compile(r"^(?:\.\w+ )*\.(?:const|global) \.align \d+ \.b8 ([\w$]+)\[(\d+)\] = \{([\d, ]*)\};", re.MULTILINE)
_SINGLE = re.compile(r"^(?:\.\w+ )*\.(?:const|global) \.align \d+ \.[bsu](\d+) ([\w$]+) = (-?\d+);", re.MULTILINE)
_LOCAL = re.compile(r"\.local \.align \d+ \.b8\s+([\w$]+)\[(\d+)\];")
_REGISTER = re.compile(r"%[\w$]+(?:\.[xyz]\b)?")
_PLACE = re.compile(r"\[\s*([%\w$]+)\s*(?:\+?\s*(-?\d+))?\s*\]")
_KIND = re.compile(r"[subf](?:8|16|32|64)")
_ENDS = frozenset({"ret", "exit", "trap"})
_NO_RESULT = frozenset({"bra", "st", "bar", "barrier", "red", "call", "membar", "fence", *_ENDS})


def written(statement: Statement) -> list[str]:
    """Returns the registers that an instruction writes."""
    if statement.label or statement.opcode[0] in _NO_RESULT:
        return []
    first = statement.operands.strip()
    first = first.partition("}")[0] if first.startswith("{") else first.partition(",")[0]
    return [word.strip() for word in first.strip("{ ").replace("|", ",").split(",") if word.strip().startswith("%")]


@functools.lru_cache(16)
def inlined_statements(ptx: str, entry: str) -> tuple[Mapping[str, int], tuple[Statement, ...]]:
    """Returns the parameter indices of an entry, and its statements with those of the functions that it calls."""
    places, statements = entry_statements(ptx, entry)
    if not any(one.opcode[0] == "call" for one in statements):
        return places, tuple(statements)
    return places, tuple(_Inlining(ptx).of(statements, ""))


class _Inlining:
    """Replaces calls by the code of their functions, with registers and labels of their own for each call."""

    def __init__(self, ptx: str) -> None:
        self._functions = function_statements(ptx)
        self._calls = 0

    def of(self, statements: Sequence[Statement], scope: str, depth: int = 0) -> Iterator[Statement]:
        given: list[str] = []
        for one in statements:
            if one.opcode[:2] == ("st", "param"):
                yield _moved(one, scope)
                continue
            call = re.fullmatch(r"\s*(?:\(([^()]*)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^()]*)\)\s*)?", one.operands)
            if one.opcode[0] != "call" or call is None or call[2] not in self._functions:
                yield _moved(one, scope) if _is_of_call(one) else one
                continue
            if depth > 8 or self._calls == MOST_CALLS:
                yield one
                continue
            self._calls += 1
            given = [name.strip() for name in (call[3] or "").split(",")]
            results = [name.strip() for name in (call[1] or "").split(",")]
            parameters, returned, body = self._functions[call[2]]
            names = {**dict(zip(parameters, given, strict=False)), **dict(zip(returned, results, strict=False))}
            inner = f"{self._calls}"
            renamed = [_renamed(statement, inner, names, scope) for statement in body]
            yield from self.of(renamed, inner, depth + 1)
            yield Statement(f"$end{inner}", False, "", ("",), "")


def _is_of_call(statement: Statement) -> bool:
    return (
        statement.opcode[:2] == ("ld", "param") and re.search(r"\[(?:param|retval)\d+", statement.operands) is not None
    )


def _moved(statement: Statement, scope: str) -> Statement:
    """Returns an access to a parameter of a call as a move to or from a register of that name."""
    place = _PLACE.search(statement.operands)
    if place is None or statement.opcode[2:3] in (("v2",), ("v4",)):
        return statement
    name = f"%of{scope}${place[1]}${place[2] or 0}"
    other = _PLACE.sub("", statement.operands).replace(",", "").strip()
    operands = f"{name}, {other}" if statement.opcode[0] == "st" else f"{other}, {name}"
    return replace(statement, opcode=("mov", statement.opcode[-1]), operands=operands)


def _renamed(statement: Statement, inner: str, names: Mapping[str, str], outer: str) -> Statement:
    """Returns a statement of a function as one of a call, with the caller's names for its parameters and results."""

    def own(found: re.Match[str]) -> str:
        return found[0] if "." in found[0] or found[0] in _SPECIAL else f"{found[0]}${inner}"

    if statement.label:
        return replace(statement, label=f"{statement.label}${inner}")
    place = _PLACE.search(statement.operands) if "param" in statement.opcode[:2] else None
    if place is not None and place[1] in names:
        statement = _moved(replace(statement, operands=statement.operands.replace(place[1], names[place[1]])), outer)
        keep = f"%of{outer}${names[place[1]]}${place[2] or 0}"
        operands = ", ".join(
            part if (part := word.strip()) == keep else _REGISTER.sub(own, part)
            for word in statement.operands.split(",")
        )
    else:
        operands = _REGISTER.sub(own, statement.operands)
    guard = f"{statement.guard}${inner}" if statement.guard else ""
    if statement.opcode[0] == "ret":
        return replace(statement, opcode=("bra",), operands=f"$end{inner}", guard=guard)
    if statement.opcode[0] == "bra":
        operands = f"{statement.operands.strip()}${inner}"
    return replace(statement, operands=operands, guard=guard)


_SPECIAL = frozenset({"%laneid", "%warpid", "%smid", "%nsmid", "%gridid", "%clock", "%clock64", "%globaltimer"})


def tables_of(ptx: str) -> dict[str, bytes]:
    """Returns the contents of initialised variables by name."""
    found = {name: bytes(map(int, text.split(","))).ljust(int(size), b"\0") for name, size, text in _TABLE.findall(ptx)}
    found |= {name: bytes(int(size)) for name, size in _LOCAL.findall(ptx) if int(size) <= MOST_LOCAL}
    for bits, name, text in _SINGLE.findall(ptx):
        found[name] = (int(text) % (1 << int(bits))).to_bytes(int(bits) // 8, "little")
    return found


@dataclass(slots=True)
class SizeCode:
    """The statements of an entry, and those among them that sizes alone decide.

    Attributes:
        places: indices of the parameters by name.
        statements: see `inlined_statements`.
        tables: contents of initialised variables by name; zeros of local memory.
        known: names of parameters and special registers that have a value for each size.
    """

    places: Mapping[str, int]
    statements: Sequence[Statement]
    tables: Mapping[str, bytes]
    known: Collection[str]
    writers: dict[str, list[int]] = field(default_factory=dict)
    reads: list[list[str]] = field(default_factory=list)
    jumps: list[tuple[int, int]] = field(default_factory=list)
    free: set[str] = field(default_factory=set)
    stores: list[int] = field(default_factory=list)
    spent: int = 0

    def __post_init__(self) -> None:
        labels = {one.label: place for place, one in enumerate(self.statements) if one.label}
        for place, one in enumerate(self.statements):
            for register in written(one):
                self.writers.setdefault(register, []).append(place)
            self.reads.append(self._read(one))
            if one.opcode[:2] == ("st", "local"):
                self.stores.append(place)
            if one.opcode[0] == "bra":
                self.jumps.append((place, labels.get(one.operands.strip(), len(self.statements))))
            elif one.opcode[0] in _ENDS:
                self.jumps.append((place, len(self.statements)))
        self._spread()

    def _read(self, one: Statement) -> list[str]:
        registers = _REGISTER.findall(one.operands)
        return [*registers[len(written(one)) :], *([one.guard] if one.guard else [])]

    def _spread(self) -> None:
        """Collects the registers that depend on something else than sizes."""
        changed = True
        while changed:
            changed = False
            for place, one in enumerate(self.statements):
                names = written(one)
                if names and not self.free.issuperset(names) and self._is_free(place, one):
                    self.free.update(names)
                    changed = True

    def _is_free(self, place: int, one: Statement) -> bool:
        if one.opcode[0] == "ld":
            base = _PLACE.search(one.operands)
            if base is None:
                return True
            if one.opcode[1] == "param":
                return base[1] not in self.known
            if one.opcode[1] == "local" and any(self._is_unknown(r) for at in self.stores for r in self.reads[at]):
                return True
            if not base[1].startswith("%"):
                return base[1] not in self.tables
        elif one.opcode[0] in ("atom", "shfl", "vote", "match", "activemask", "tex", "ldu", "ldmatrix", "mma", "wmma"):
            return True
        return any(self._is_unknown(register) for register in self.reads[place])

    def _is_unknown(self, register: str) -> bool:
        return register in self.free or (register not in self.writers and register not in self.known)

    def part_for(self, wanted: Collection[int]) -> dict[int, int | None]:
        """Returns the instructions that decide those of `wanted` whose values follow from sizes alone, by index.

        The value is the index that a jump leads to, -1 less that index for a jump that only skips other
        instructions, and None for an instruction that does not jump.
        """
        parts = [part for place in wanted if (part := self._part(place)) is not None]
        needed: dict[int, int | None] = dict.fromkeys(set().union(*parts))
        targets = dict(self.jumps)
        steps = sorted(at for at in needed if at not in targets)
        for jump, to in self.jumps:
            guard = self.statements[jump].guard
            if jump in needed:
                needed[jump] = to
            elif guard and self._is_unknown(guard) and jump < to and self._is_between(jump, to, steps):
                needed[jump] = -1 - to
        return needed

    @staticmethod
    def _is_between(first: int, last: int, steps: Sequence[int]) -> bool:
        """Returns True if no step lies between two indices, but one lies after them."""
        return bool(steps) and last <= steps[-1] and bisect.bisect(steps, first) == bisect.bisect_left(steps, last)

    def _part(self, place: int) -> set[int] | None:
        """Returns the indices of the instructions that decide one; None if it does not follow from sizes alone."""
        needed, todo = set[int](), [place]
        while todo:
            at = todo.pop()
            if at in needed:
                continue
            needed.add(at)
            if any(self._is_unknown(register) for register in self.reads[at]):
                return None
            for register in self.reads[at]:
                todo += self.writers.get(register, ())
            if self.statements[at].opcode[:2] == ("ld", "local"):
                todo += self.stores
            for jump, to in self._around(at):
                guard = self.statements[jump].guard
                if not (guard and self._is_unknown(guard)):
                    todo.append(jump)
                elif to <= at:
                    return None
        return needed

    def leave_out(self, place: int) -> None:
        """Marks the results of an instruction, and all values that depend on them, as undecided."""
        self.free.update(written(self.statements[place]))
        self._spread()

    def _around(self, at: int) -> Iterator[tuple[int, int]]:
        """Yields the jumps that decide if an instruction runs."""
        return ((jump, to) for jump, to in self.jumps if min(jump, to) < at < max(jump, to))


class SizeRun:
    """One execution of the part of a kernel that decides an instruction, an array element for each size."""

    def __init__(self, code: SizeCode, values: Mapping[str, Array], lanes: int) -> None:
        self._code, self._values, self._lanes = code, values, lanes
        self._registers: dict[str, Array] = {}
        self._bases = {name: FIRST_ADDRESS + TABLE_BYTES * number for number, name in enumerate(code.tables)}
        self._local: dict[str, Array] = {}

    def outcomes(self, places: Collection[int]) -> dict[int, tuple[Array, Array]]:
        """Returns, for each instruction that sizes determine, masks of sizes at which its result is ever true, and ever false."""
        part = self._code.part_for(places)
        ever = {at: (np.zeros(self._lanes, bool), np.zeros(self._lanes, bool)) for at in places if at in part}
        order, pending = sorted(part), {0: np.arange(self._lanes)}
        loops = {here for here, at in enumerate(order) if (to := part[at]) is not None and 0 <= to < at}
        steps = values = 0
        while pending and ever and steps < MOST_STEPS:
            here = min(pending)
            lanes = pending.pop(here)
            if here == len(order) or (max(values, self._code.spent) > MOST_VALUES and here in loops):
                continue
            at, steps, values = order[here], steps + 1, values + len(lanes)
            to = part[at]
            if to is None:
                truth = self._execute(self._code.statements[at], lanes)
                if truth is None:
                    self._code.leave_out(at)
                    return self.outcomes(places)
                if at in ever:
                    ever[at][0][lanes[truth]] = ever[at][1][lanes[~truth]] = True
                going = [(here + 1, lanes)]
            else:
                going = self._split(order, at, here, to, lanes)
            for key, some in going:
                if len(some):
                    there = pending.get(key)
                    pending[key] = some if there is None else np.sort(np.concatenate((there, some)))
        self._code.spent += values
        return ever

    def _split(self, order: list[int], at: int, here: int, to: int, lanes: Array) -> list[tuple[int, Array]]:
        """Returns the lanes that go on after a jump and those that take it, with their next instructions."""
        if to < 0:
            return [(bisect.bisect_left(order, -1 - to), lanes)]
        holds = self._guard(self._code.statements[at], lanes)
        return [(here + 1, lanes[~holds]), (bisect.bisect_left(order, to), lanes[holds])]

    def _guard(self, statement: Statement, lanes: Array) -> Array:
        if not statement.guard:
            return np.ones(len(lanes), bool)
        return np.asarray((self._register(statement.guard, lanes) != 0) != statement.negated)

    def _register(self, name: str, lanes: Array) -> Array:
        held = self._registers.get(name)
        if held is None:
            held = self._values.get(name)
        if held is None:
            return np.zeros(len(lanes), np.int64)
        return held if held.ndim == 0 or len(lanes) == self._lanes else held[lanes]

    def _execute(self, statement: Statement, lanes: Array) -> Array | None:
        """Executes an instruction; returns the truth of its result for each lane, None if it is not modelled."""
        if statement.guard:
            lanes = lanes[self._guard(statement, lanes)]
        names = written(statement)
        results = self._results(statement, lanes, len(names))
        if results is None or len(results) != len(names) or any(one is None for one in results):
            return None
        truth = np.zeros(len(lanes), bool)
        for name, result in zip(names, results, strict=True):
            assert result is not None
            value = np.broadcast_to(result, lanes.shape)
            held = self._registers.get(name)
            if len(lanes) == self._lanes:
                self._registers[name] = value.copy()
            else:
                if held is None or held.dtype != value.dtype:
                    held = self._registers[name] = (
                        np.zeros(self._lanes, value.dtype) if held is None else held.astype(value.dtype)
                    )
                held[lanes] = value
            truth = np.asarray(value != 0)
        if statement.opcode[0] in ("min", "max"):
            return np.broadcast_to(np.asarray(results[0] == self._operand(statement, 1, lanes)), lanes.shape)
        return truth

    def _results(self, statement: Statement, lanes: Array, count: int) -> list[Array | None] | None:
        if statement.opcode[0] == "ld":
            return self._loaded(statement, lanes, count)
        if statement.opcode[0] == "st":
            return self._store(statement, lanes)
        if statement.operands.lstrip().startswith("{"):
            return None
        operands = [self._operand(statement, place, lanes) for place in range(1, statement.operands.count(",") + 1)]
        values = [one for one in operands if one is not None]
        if len(values) != len(operands):
            return None
        opcode = ("mov", *statement.opcode[-1:]) if statement.opcode[0] == "cvta" else statement.opcode
        return [evaluated(opcode, values)]

    def _operand(self, statement: Statement, place: int, lanes: Array) -> Array | None:
        text = statement.operands.split(",")[place].strip()
        plain = text.removeprefix("!")
        if plain in self._bases:
            return np.array(self._bases[plain])
        value = self._register(plain, lanes) if plain.startswith("%") else number(plain)
        return value if value is None or plain == text else np.asarray(value == 0)

    def _address(self, statement: Statement, lanes: Array) -> tuple[Array, str, int]:
        """Returns the addresses of an access, and the type and the bytes of one element."""
        place = _PLACE.search(statement.operands)
        assert place is not None
        kind = [part for part in statement.opcode if _KIND.fullmatch(part)][-1]
        base = self._bases.get(place[1])
        address = np.array(base) if base is not None else self._register(place[1], lanes)
        return address + int(place[2] or 0), kind, int(kind[1:]) // 8

    def _loaded(self, statement: Statement, lanes: Array, count: int) -> list[Array | None]:
        if statement.opcode[1] == "param":
            return [self._register(name, lanes) for name in _PLACE.findall(statement.operands)[0][:1]]
        address, kind, size = self._address(statement, lanes)
        return [self._at(address + size * one, kind, size, lanes) for one in range(count)]

    def _at(self, address: Array, kind: str, size: int, lanes: Array) -> Array:
        """Returns the values of tables and local memory at addresses; zero outside of them."""
        dtype = np.dtype(f"{'f' if kind[0] == 'f' else 'i' if kind[0] == 's' else 'u'}{size}")
        found = np.zeros(np.shape(address), dtype)
        for name, base in self._bases.items():
            held = self._local.get(name, np.frombuffer(self._code.tables[name], np.uint8))
            inside = (address >= base) & (address - base + size <= held.shape[-1])
            if inside.any():
                places = np.where(inside, address - base, 0)[..., None] + np.arange(size)
                value = (
                    held[places]
                    if held.ndim == 1
                    else held[lanes[:, None], np.broadcast_to(places, (len(lanes), size))]
                )
                found = np.where(inside, np.ascontiguousarray(value).view(dtype)[..., 0], found)
        return found if kind[0] == "f" else found.astype(np.int64)

    def _store(self, statement: Statement, lanes: Array) -> list[Array | None] | None:
        """Writes registers or numbers to local memory."""
        address, kind, size = self._address(statement, lanes)
        for one, text in enumerate(_PLACE.sub("", statement.operands).strip(" \t,{}").split(",")):
            value = self._register(text.strip(), lanes) if text.strip().startswith("%") else number(text.strip())
            if value is None:
                return None
            dtype = np.dtype(f"f{size}" if kind[0] == "f" else f"i{size}")
            held = (
                np.ascontiguousarray(np.broadcast_to(value.astype(dtype), lanes.shape)).view(np.uint8).reshape(-1, size)
            )
            for name, base in self._bases.items():
                offset = np.broadcast_to(address + size * one - base, lanes.shape)
                inside = (offset >= 0) & (offset + size <= len(self._code.tables[name]))
                if inside.any():
                    memory = self._local.setdefault(
                        name, np.zeros((self._lanes, len(self._code.tables[name])), np.uint8)
                    )
                    memory[lanes[inside, None], offset[inside, None] + np.arange(size)] = held[inside]
        return []
