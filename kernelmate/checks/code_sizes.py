"""Sizes at which compiled code takes a branch that it takes at no size tried so far.

Conditions in PTX that depend only on launch parameters and constants are evaluated for many sizes at once, without a
launch. Since PTX is analysed, macros, functions and constants are already resolved.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernelmate.checks.positions import Statement
from kernelmate.checks.precision import Array
from kernelmate.checks.ptx_values import evaluated, number
from kernelmate.checks.size_runs import SizeCode, SizeRun, inlined_statements, tables_of, written
from kernelmate.checks.sizes import USUAL, key_of, threads_at, usable
from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size, Version
from kernelmate.source import launch_shape
from kernelmate.source.expressions import parse_expression

MOST_SIZES = 6
"""Maximum number of sizes for the conditions of one version."""

MOST_ELEMENTS = 1 << 20
MOST_THREADS = 1 << 19
"""Maximum elements over all arrays, and threads of the launch, at such a size: a fraction of a second in the emulator."""

MOST_SWEPT = 1 << 12, 1 << 16
"""Largest values tried for a single name; all values up to the first one are tried, then all up to the second one."""

DRAWN, DRAWN_BELOW = 1 << 13, 600
"""Number of sizes drawn with all names at random, and the exclusive upper bound of their values."""

PROBED = 8
"""Maximum number of sizes tested for a valid launch, per outcome of a condition."""

MOST_TEXT = 1 << 19
"""Maximum length in characters of PTX that is analysed."""

DEEPEST = 200


class CodeDecision(NamedTuple):
    """A branch in code: the text of its condition, and the decisions that lead to it."""

    text: str
    register: str
    guards: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _EntryCode:
    """The single-assignment instructions of an entry, by register, and its decisions in order."""

    places: Mapping[str, int]
    writers: Mapping[str, Statement]
    decisions: tuple[CodeDecision, ...]
    statements: tuple[Statement, ...]
    tables: Mapping[str, bytes]


def code_sizes(contract: Contract, tried: Sequence[Size], version: Version, baseline: Version) -> tuple[Size, ...]:
    """Returns sizes that give branches of a version's code, absent from its baseline, an outcome not seen so far.

    Args:
        contract: says which sizes are allowed, and which scalars hold them.
        tried: the sizes that are tried anyway.
        version: the version under judgement.
        baseline: the version that it was made from.
    """
    if not tried or not tried[0] or len(version.compiled.ptx) > MOST_TEXT:
        return ()
    code = _code_of(version.compiled.ptx, version.compiled.lowered_name)
    theirs = {one.text for one in _code_of(baseline.compiled.ptx, baseline.compiled.lowered_name).decisions}
    decisions = [one for one in code.decisions if one.text not in theirs]
    return _CodeSearch(contract, list(tried), version, code).all(decisions) if decisions else ()


@functools.lru_cache(4)
def _looped(code: _EntryCode, known: frozenset[str]) -> SizeCode:
    return SizeCode(code.places, code.statements, code.tables, known)


@functools.lru_cache(16)
def _code_of(ptx: str, entry: str) -> _EntryCode:
    places, statements = inlined_statements(ptx, entry)
    writers: dict[str, Statement] = {}
    many: set[str] = set()
    for one in statements:
        for register in written(one):
            many |= {register} if register in writers or one.guard or "|" in one.operands else set()
            writers[register] = one
    for register in many:
        del writers[register]
    texts: dict[str, str] = {}
    found = [
        CodeDecision(_text(register, writers, texts), register, guards)
        for register, guards in _decided(statements)
        if register in writers
    ]
    return _EntryCode(places, writers, tuple(found), statements, tables_of(ptx))


def _decided(statements: Sequence[Statement]) -> Iterator[tuple[str, tuple[tuple[str, bool], ...]]]:
    """Yields registers that decide a branch, with the guards and outcomes of the branches that lead to it.

    The code after a label is guarded by the conditions that all forward branches to it share. Branches from below are those of loops,
    whose bodies keep the guards of their entry in every iteration.
    """
    guards: tuple[tuple[str, bool], ...] = ()
    ways: dict[str, list[tuple[tuple[str, bool], ...]]] = {}
    ended = False
    for one in statements:
        if one.label:
            above = ways.get(one.label, []) + ([] if ended else [guards])
            guards = _shared(above)
            ended = False
            continue
        name = one.opcode[0]
        if name in ("setp", "min", "max") or (name in ("and", "or", "xor", "not") and one.opcode[-1] == "pred"):
            yield from ((register, guards) for register in written(one)[:1])
        elif name == "shr" and one.operands.rpartition(",")[2].strip() in ("31", "63"):
            yield from ((register, guards) for register in written(one))
        if name == "bra":
            taken = (*guards, (one.guard, not one.negated)) if one.guard else guards
            ways.setdefault(one.operands.strip(), []).append(taken)
            guards = (*guards, (one.guard, one.negated)) if one.guard else ()
        ended = name in ("bra", "ret", "exit", "trap") and not one.guard


def _shared(ways: Sequence[tuple[tuple[str, bool], ...]]) -> tuple[tuple[str, bool], ...]:
    """Returns the guards with which all ways begin."""
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*ways, strict=False))
    return tuple(level[0] for level in levels)


def _text(register: str, writers: Mapping[str, Statement], known: dict[str, str], depth: int = 0) -> str:
    """Returns the expression that a register is computed from, with no register names in it."""
    if register in known or register not in writers or depth > DEEPEST:
        return known.get(register, "?")
    statement = writers[register]
    parts = [part.strip() for part in statement.operands.split(",")[1:]]
    inner = [_text(part, writers, known, depth + 1) if part.startswith("%") else part for part in parts]
    # Of long sums only that they are alike or not is of interest.
    text = f"{'.'.join(statement.opcode)}({', '.join(inner)})"
    known[register] = text if len(text) < 400 else f"{statement.opcode[0]}#{hash(text)}"
    return known[register]


@dataclass(slots=True)
class _SizeLanes:
    """Register values at many sizes at once, one array element per size; None if sizes alone do not determine them."""

    code: _EntryCode
    parameters: Mapping[int, Array]
    specials: Mapping[str, Array]
    lanes: int
    wanted: frozenset[str]
    known: dict[str, Array | None] = field(default_factory=dict)
    ever: dict[str, tuple[Array, Array]] | None = None

    def value(self, register: str, depth: int = 0) -> Array | None:
        """Returns the value of a register."""
        if register not in self.known:
            self.known[register] = None  # it may depend on itself
            if depth < DEEPEST:
                self.known[register] = self._computed(self.code.writers.get(register), depth)
        return self.known[register]

    def _computed(self, statement: Statement | None, depth: int) -> Array | None:
        if statement is None:
            return None
        operands = [part.strip() for part in statement.operands.split(",")[1:]]
        if statement.opcode[:2] == ("ld", "param"):
            place = self.code.places.get(operands[0].strip("[]").strip())
            return None if place is None else self.parameters.get(place)
        values: list[Array] = []
        for operand in operands:
            plain = operand.removeprefix("!")
            known = self.specials.get(plain)
            found = self.value(plain, depth + 1) if known is None and plain.startswith("%") else None
            if found is None:
                found = number(plain) if known is None else known
            if found is None:
                return None
            values.append(found == 0 if plain != operand else found)
        return evaluated(statement.opcode, values)

    def outcome(self, decision: CodeDecision, truth: bool) -> Array | None:
        """Returns the mask of sizes that reach a decision and take this outcome; None if sizes do not decide it."""
        found = self.value(decision.register)
        if found is None:
            ever = self._ever(decision.register)
            return None if ever is None else ever[0 if truth else 1]
        lanes: Array = np.asarray(self._truth(decision.register, found) == truth)
        for register, wanted in decision.guards:
            guard = self.value(register)
            if guard is not None:
                lanes = lanes & ((guard != 0) == wanted)
        return lanes

    def _ever(self, register: str) -> tuple[Array, Array] | None:
        """Returns the masks of sizes at which a decision in a loop, or after one, is ever true and ever false."""
        if self.ever is None:
            values = {
                name: self.parameters[place] for name, place in self.code.places.items() if place in self.parameters
            }
            values |= self.specials
            looped = _looped(self.code, frozenset(values))
            places = {one: looped.writers[one][0] for one in self.wanted if self.value(one) is None}
            found = SizeRun(looped, values, self.lanes).outcomes(places.values())
            self.ever = {one: found[place] for one, place in places.items() if place in found}
        return self.ever.get(register)

    def _truth(self, register: str, found: Array) -> Array:
        """Returns the truth of a predicate or a sign, or if `min` or `max` selects its first operand."""
        statement = self.code.writers[register]
        if statement.opcode[0] not in ("min", "max"):
            return np.asarray(found != 0)
        operand = statement.operands.split(",")[1].strip()
        first = self.value(operand)
        return np.asarray(found == (number(operand) if first is None else first))


class _CodeSearch:
    def __init__(self, contract: Contract, tried: list[Size], version: Version, code: _EntryCode) -> None:
        self.contract, self.tried, self.version, self.code = contract, tried, version, code
        self.names, self.registers = list(tried[0]), frozenset[str]()
        self.base: Size = {name: min(USUAL, tried[0][name]) for name in self.names}
        self.most_threads = max(MOST_THREADS, min(threads_at(contract, size) for size in tried))

    def all(self, decisions: Sequence[CodeDecision]) -> tuple[Size, ...]:
        self.registers = frozenset(one.register for one in decisions)
        seen = self._lanes(self.tried)
        wanted = [
            (one, truth)
            for one in decisions
            for truth in (True, False)
            if (had := seen.outcome(one, truth)) is not None and not had.any()
        ]
        self.registers = frozenset(one.register for one, _ in wanted)
        found: list[Size] = []
        for most in MOST_SWEPT if wanted else ():
            sweeps = list(self._sweeps(most))
            for one, truth in wanted:
                if len(found) < MOST_SIZES and not self._had(found, one, truth):
                    size = next((size for sizes, lanes in sweeps for size in self._at(sizes, lanes, one, truth)), None)
                    found += [] if size is None else [size]
        return tuple(found)

    def _had(self, found: list[Size], decision: CodeDecision, truth: bool) -> bool:
        had = self._lanes(found).outcome(decision, truth) if found else None
        return had is not None and bool(had.any())

    def _at(
        self, sizes: Callable[[int], Size], lanes: _SizeLanes, decision: CodeDecision, truth: bool
    ) -> Iterator[Size]:
        """Yields up to `PROBED` of the smallest sizes that have an outcome and can be launched."""
        outcome = lanes.outcome(decision, truth)
        if outcome is None or not outcome.any():
            return
        for lane in np.flatnonzero(np.broadcast_to(outcome, (lanes.lanes,)))[:PROBED]:
            size = sizes(int(lane))
            if usable(self.contract, size, self.most_threads, MOST_ELEMENTS) and key_of(size) not in map(
                key_of, self.tried
            ):
                yield size

    def _sweeps(self, most: int) -> Iterator[tuple[Callable[[int], Size], _SizeLanes]]:
        """Yields sweeps: all values of each name with the others usual or 1, all names equal, and random sizes."""
        values = np.arange(1, most + 1, dtype=np.int64)
        for name in self.names:
            for others in (self.base, dict.fromkeys(self.names, 1)):
                yield functools.partial(_with, others, (name,)), self._lanes_of({**others, name: values})
                if len(self.names) == 1:
                    break
        if len(self.names) > 1:
            yield functools.partial(_with, self.base, self.names), self._lanes_of(dict.fromkeys(self.names, values))
            rng = np.random.default_rng(len(self.names))
            drawn = {name: rng.integers(1, DRAWN_BELOW, DRAWN) for name in self.names}
            yield (lambda lane: {name: int(drawn[name][lane]) for name in self.names}), self._lanes_of(drawn)

    def _lanes(self, sizes: Sequence[Size]) -> _SizeLanes:
        return self._lanes_of({name: np.array([size[name] for size in sizes], np.int64) for name in self.names})

    def _lanes_of(self, values: Mapping[str, Array | int]) -> _SizeLanes:
        """Returns the register values at sizes."""
        sizes = {name: np.asarray(value) for name, value in values.items()}
        parameters: dict[int, Array] = {}
        for place, argument in enumerate(self.contract.args):
            text = argument.value if argument.value is not None else argument.name if argument.name in sizes else None
            value = None if argument.shape is not None or text is None else _over(str(text), sizes)
            if value is not None:
                parameters[place] = value
        lanes = max(map(np.size, sizes.values()))
        return _SizeLanes(self.code, parameters, self._launch(sizes), lanes, self.registers)

    def _launch(self, sizes: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the special registers of the launch at sizes."""
        contract = self.version.contract
        try:
            block = launch_shape(contract, self.tried[0]).block
        except ContractError:
            return {}
        found = {f"%ntid.{axis}": np.array(side) for axis, side in zip("xyz", block, strict=False)}
        known = {**sizes, "block": np.array(math.prod(block))}
        known |= {f"block_{axis}": np.array(side) for axis, side in zip("xyz", block, strict=False)}
        for axis, text in itertools.zip_longest("xyz", contract.grid, fillvalue="1"):
            side = _over(text, known)
            found |= {} if side is None else {f"%nctaid.{axis}": side}
        return found


_ON_ARRAYS: dict[type[ast.AST], Callable[..., Array]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Not: np.logical_not, ast.And: np.logical_and, ast.Or: np.logical_or, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "cdiv": lambda a, b: -(-a // b), "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def _over(expression: str, sizes: Mapping[str, Array]) -> Array | None:
    """Returns the values of a contract's expression at many sizes; None if it has none."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(_of(parse_expression(expression), sizes))
    except (ContractError, KeyError, TypeError):
        return None


def _of(node: ast.expr, sizes: Mapping[str, Array]) -> Array:
    match node:
        case ast.Name(name):
            return sizes[name]
        case ast.BinOp(left, how, right):
            return _ON_ARRAYS[type(how)](_of(left, sizes), _of(right, sizes))
        case ast.UnaryOp(how, operand):
            return _ON_ARRAYS[type(how)](_of(operand, sizes))
        case ast.BoolOp(how, operands):
            return functools.reduce(_ON_ARRAYS[type(how)], [_of(one, sizes) for one in operands])
        case ast.Compare(left, [how], [right]):
            return _ON_ARRAYS[type(how)](_of(left, sizes), _of(right, sizes))
        case ast.IfExp(test, body, otherwise):
            return np.where(*(_of(one, sizes) for one in (test, body, otherwise)))
        case ast.Call(ast.Name(name), operands):
            return functools.reduce(_FUNCTIONS[name], [_of(one, sizes) for one in operands])
        case ast.Constant(int() | float() as value):
            return np.array(value)
    raise KeyError(node)


def _with(size: Size, names: Sequence[str], lane: int) -> Size:
    return {**size, **dict.fromkeys(names, lane + 1)}
