"""Reads PTX text into a `Program`.

The grammar is that of the PTX ISA as NVRTC and nvcc print it and as people write it by hand: directives, functions with
nested scopes, instructions with guards, vectors, addresses and calls.

A `.loc` in an inlined function names its call site, which may itself be inlined: the chain is followed outwards to the
file of the kernel.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kernelmate.backends.emulator.operands import PtxError, parse_operand, parse_operands, split_top
from kernelmate.backends.emulator.program import (
    Function,
    Instruction,
    Position,
    Program,
    Register,
    Symbol,
    Variable,
)
from kernelmate.backends.emulator.types import SIZES

_ON_A_GPU = "judge this kernel on a GPU (--backend cuda)"
_INSTEAD = {
    ("tex", "tld4"):
        "it executes fetches of 32-bit results from textures of one to three dimensions and layers of two; contracts describe no other "
        "textures; for offsets and results of 16 bits " + _ON_A_GPU,
    ("txq", "istypep"): "pass the extents of the texture as arguments instead",
    ("suld", "sust"):
        "it executes accesses by bytes to surfaces of one to three dimensions and layers of two; contracts describe no other surfaces",
    ("sured", "suq"): "reduce in an array through a pointer, and pass the extents as arguments, instead",
    ("cp.async.bulk", "cp.reduce.async.bulk", "tensormap"):
        "the emulator copies in bulk to one block, without byte masks, and boxes in tile mode by maps of the host: use these, or "
        + _ON_A_GPU,
    ("tcgen05", "mma.sp", "wgmma.mma_async.sp"):
        "matrix instructions of sparse matrices or of one GPU generation: use mma.sync, or " + _ON_A_GPU,
    ("st.async", "red.async"): "it completes bytes of an mbarrier: use st or red, and mbarrier.arrive, or " + _ON_A_GPU,
    ("alloca", "stacksave", "stackrestore"): "memory of a size known only at run time: use an array of a fixed size instead",
    ("discard",): "it discards the contents of a cache line: remove it, since no result depends on it",
    ("atom", "red"): "add the parts one by one, or " + _ON_A_GPU,
}  # fmt: skip


def full_opcode(opcode: str) -> str:
    """Returns an opcode as PTX writes it."""
    return opcode.replace("__", "::")


def refusal(opcode: str, detail: str = "") -> str:
    """Returns the message for an unsupported instruction; `detail` names the unsupported part."""
    name = full_opcode(opcode)
    instead = next(
        (text for names, text in _INSTEAD.items() if any(f"{name}.".startswith(f"{start}.") for start in names)),
        _ON_A_GPU,
    )
    more = f" ({full_opcode(detail)})" if detail and detail != opcode else ""
    return f"the PTX instruction {name} is not supported by the emulator{more}; {instead}"


_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LONGEST_CHAIN = 64

Place = tuple[int, int, int]


class LocPositions:
    """Follows the `.loc` directives of one function. `home` is the file number of the user's unit."""

    def __init__(self, home: int | None) -> None:
        self._home = home
        self._callers: dict[Place, Place] = {}
        self._resolved: dict[Place, Position | None] = {}
        self.current: Position | None = None

    def read(self, line: str) -> None:
        """Reads one `.loc` line."""
        match = _LOC.match(line)
        if match is None:
            return
        file, row, column = (int(part) for part in match.groups()[:3])
        place = (file, row, column)
        if self._home is None:
            self._home = file
        if match.group(4) is not None:
            caller = (int(match.group(4)), int(match.group(5)), int(match.group(6)))
            if caller != place and self._callers.get(place) != caller:
                self._callers[place] = caller
                self._resolved.clear()
        if place not in self._resolved:
            self._resolved[place] = self._resolve(place)
        found = self._resolved[place]
        if found is not None:
            self.current = found

    def _resolve(self, place: Place) -> Position | None:
        for _ in range(_LONGEST_CHAIN):
            if place[0] == self._home and place[1] > 0:
                return Position(place[1], max(place[2], 1))
            outer = self._callers.get(place)
            if outer is None:
                return None
            place = outer
        return None


__all__ = ["PtxError", "parse_program"]

_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
_SPACE = re.compile(r"\s*")
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file|version|target|address_size)\b[^\n]*")
_SECTION = re.compile(r"\.section\s+[^{]*\{[^}]*\}", re.S)
_LABEL = re.compile(r"([\w$%.]+)\s*:(?!:)")
_FUNCTION = re.compile(r"\s*((?:\.(?:visible|extern|weak|common)\s+)*)\.(entry|func)\b")
_STATEMENT = re.compile(r'(?:[^;"{}]|"(?:[^"\\]|\\.)*"|\{(?:[^{}]|\{[^{}]*\})*\})*;')
_GUARDED = re.compile(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*);$", re.S)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*);$", re.S)
_RANGE = re.compile(r"([%\w$]+)<(\d+)>$")
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common|managed)\s+)*\.(global|const|shared|local|param)\s*"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.v([248])\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s*(?:\.(?:global|const|shared|local|generic)\s*)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$%.]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*?))?\s*;?$",
    re.S,
)
_TABLE = re.compile(r"\.(?:branchtargets|calltargets)\s+(.*);$", re.S)


def parse_program(text: str, entry: str) -> Program:
    """Parses a module; positions are resolved to the file of the lines of `entry`.

    Raises:
        PtxError: the text is not PTX that this reader knows.
    """
    target = re.search(r"^\s*\.target\s+([\w, ]+)", text, re.M)
    text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " " + "\n" * found[0].count("\n"), text)
    start = re.search(r"\.entry\s+" + re.escape(entry) + r"(?![\w$])", text)
    if start is None:
        raise PtxError(f"the PTX has no entry {entry!r}")
    first = re.compile(r"\.loc\s+(\d+)").search(text, start.end())
    reader = _PtxReader(text, int(first[1]) if first else None)
    reader.read_module()
    return Program(reader.functions, reader.variables, target[1].strip() if target else "")


class _PtxReader:
    def __init__(self, text: str, home: int | None) -> None:
        self.text = text
        self.home = home
        self.at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}

    def line(self) -> int:
        """Number of the line that is being read, from 1."""
        return bisect_left(self._ends, self.at) + 1

    def read_module(self) -> None:
        while self._skip_space():
            if match := (_LINE_DIRECTIVE.match(self.text, self.at) or _SECTION.match(self.text, self.at)):
                self.at = match.end()
            elif match := _FUNCTION.match(self.text, self.at):
                self.at = match.end()
                self._read_function(entry=match[2] == "entry")
            else:
                statement = self._statement()
                if _VARIABLE.match(statement):
                    variable = parse_variable(statement)
                    self.variables[variable.name] = variable
                elif not statement.startswith((".pragma", ".alias")):
                    raise PtxError(f"cannot read the PTX directive {statement[:80]!r}")

    def _skip_space(self) -> bool:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def _statement(self) -> str:
        match = _STATEMENT.match(self.text, self.at)
        if match is None:
            raise PtxError(f"cannot read the PTX at {self.text[self.at : self.at + 80]!r}")
        self.at = match.end()
        return match[0]

    def _parameters(self) -> tuple[Variable, ...]:
        """Parses an optional list in round brackets."""
        self._skip_space()
        if self.text[self.at] != "(":
            return ()
        end = self.text.index(")", self.at)
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return tuple(parse_variable(part) for part in split_top(inside) if part.startswith((".param", ".reg")))

    def _read_function(self, *, entry: bool) -> None:
        results = () if entry else self._parameters()
        self._skip_space()
        name = re.compile(r"[\w$%.]+").match(self.text, self.at)
        if name is None:
            raise PtxError("a PTX function has no name")
        self.at = name.end()
        parameters = self._parameters()
        opening = re.compile(r"[^;{]*").match(self.text, self.at)
        self.at = opening.end() if opening else self.at
        if self.text[self.at] == ";":
            self.at += 1
            self.functions.setdefault(name[0], Function(name[0], entry, False, parameters, results))
            return
        self.at += 1
        body = _Body(self, LocPositions(self.home))
        body.read()
        self.functions[name[0]] = Function(
            name[0], entry, True, parameters, results,
            body.registers, tuple(body.variables), tuple(body.instructions), body.labels, body.tables,
        )  # fmt: skip


@dataclass(slots=True)
class _LabelScope:
    """A nested scope: its number, its first instruction, and the unique names of its labels."""

    number: int
    start: int
    labels: dict[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """Adds a label and returns its unique name."""
        return self.labels.setdefault(name, f"{name}@{self.number}")


class _Body:
    """Parser of one function's body; nested scopes are flattened with unique names."""

    def __init__(self, reader: _PtxReader, positions: LocPositions) -> None:
        self.reader = reader
        self.positions = positions
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self._scopes: list[dict[str, str]] = [{}]
        self._scope_count = 0
        self._open: list[_LabelScope] = []

    def read(self) -> None:
        reader = self.reader
        while self._scopes:
            if not reader._skip_space():
                raise PtxError("a PTX function does not end")
            character = reader.text[reader.at]
            if character in "{}":
                reader.at += 1
                if character == "{":
                    self._scope_count += 1
                    self._scopes.append({})
                    self._open.append(_LabelScope(self._scope_count, len(self.instructions)))
                else:
                    self._scopes.pop()
                    self._close()
            elif match := _LINE_DIRECTIVE.match(reader.text, reader.at):
                reader.at = match.end()
                self.positions.read(match[0])
            elif character != "." and (match := _LABEL.match(reader.text, reader.at)):
                reader.at = match.end()
                self._label(match[1])
            else:
                line = reader.line()
                self._statement(reader._statement(), line)

    def _label(self, name: str) -> None:
        self.reader._skip_space()
        if self.reader.text.startswith((".branchtargets", ".calltargets"), self.reader.at):
            table = _TABLE.match(self.reader._statement())
            self.tables[name] = tuple(part.strip() for part in table[1].split(",")) if table else ()
        elif self.reader.text.startswith(".callprototype", self.reader.at):
            self.reader._statement()
        else:
            unique = self._open[-1].label(name) if self._open else name
            self.labels[unique] = len(self.instructions)

    def _close(self) -> None:
        """Ends a nested scope: branches in it that name one of its labels, which may follow them, get the unique name."""
        scope = self._open.pop() if self._open else None
        if scope is None or not scope.labels:
            return
        for number in range(scope.start, len(self.instructions)):
            instruction = self.instructions[number]
            operands = tuple(
                replace(operand, name=scope.labels.get(operand.name, operand.name))
                if isinstance(operand, Symbol)
                else operand
                for operand in instruction.operands
            )
            self.instructions[number] = replace(instruction, operands=operands)

    def _rename(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _declare(self, name: str) -> str:
        unique = name if len(self._scopes) == 1 else f"{name}@{self._scope_count}"
        self._scopes[-1][name] = unique
        return unique

    def _statement(self, statement: str, line: int) -> None:
        if match := _REGISTERS.match(statement):
            self._declare_registers(match[1], match[2])
        elif statement.startswith("."):
            if _VARIABLE.match(statement):
                self.variables.append(parse_variable(statement, self._declare))
            elif not statement.startswith((".pragma", ".noreturn")):
                raise PtxError(f"cannot read the PTX directive {statement[:80]!r}")
        elif match := _GUARDED.match(statement):
            negated, guard, opcode, rest = match.groups()
            try:
                operands = parse_operands(rest, self._rename, self.registers)
            except PtxError as error:
                raise PtxError(refusal(opcode, str(error)), self.positions.current) from None
            self.instructions.append(
                Instruction(
                    opcode,
                    tuple(opcode.replace("::", "__").split(".")),
                    operands,
                    Register(self._rename(guard), bool(negated)) if guard else None,
                    self.positions.current,
                    line,
                )
            )
        elif statement.strip() != ";":
            raise PtxError(f"cannot read the PTX statement {statement[:80]!r}", self.positions.current)

    def _declare_registers(self, kind: str, names: str) -> None:
        for name in (part.strip() for part in names.split(",")):
            if span := _RANGE.match(name):
                for number in range(int(span[2])):
                    self.registers[self._declare(f"{span[1]}{number}")] = kind
            else:
                self.registers[self._declare(name)] = kind


def parse_variable(text: str, declare: object = None) -> Variable:
    """Parses one variable or parameter declaration, with its initialiser.

    Raises:
        PtxError: it is not a declaration.
    """
    match = _VARIABLE.match(text.strip())
    if match is None:
        raise PtxError(f"cannot read the PTX declaration {text.strip()[:80]!r}")
    space, align, vector, kind, name, dimensions, initial = match.groups()
    if kind not in SIZES:
        raise PtxError(f"variable {name}: type .{kind} is not supported")
    count = int(vector or 1)
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", dimensions):
        count *= int(dimension or 0)
    if callable(declare):
        name = declare(name)
    content, relocations = _initialiser(initial, kind) if initial else (b"", ())
    size = max(SIZES[kind] * count, len(content))
    return Variable(name, space, kind, int(align or SIZES[kind] * int(vector or 1)), size, content, relocations)


def _initialiser(text: str, kind: str) -> tuple[bytes, tuple[tuple[int, Symbol], ...]]:
    content = bytearray()
    relocations: list[tuple[int, Symbol]] = []
    size = SIZES[kind]
    for item in _flat(text):
        if mask := re.match(r"(0x[0-9A-Fa-f]+)\(([\w$.]+)(?:\+(\d+))?\)$", item):
            _byte_relocation(mask, len(content), relocations)
            content += bytes(size)
            continue
        operand = parse_operand(item, lambda name: name, {})
        if isinstance(operand, Symbol):
            relocations.append((len(content), operand))
            content += bytes(size)
        else:
            content += _constant(item, kind, size)
    return bytes(content), tuple(relocations)


def _byte_relocation(mask: re.Match[str], offset: int, relocations: list[tuple[int, Symbol]]) -> None:
    """`0xFF(name)` and the following seven spell an address byte by byte; the first represents all."""
    if int(mask[1], 16) == 0xFF:
        relocations.append((offset, Symbol(mask[2], int(mask[3] or 0))))


def _flat(text: str) -> Iterator[str]:
    for part in split_top(text.strip()):
        if part.startswith("{"):
            yield from _flat(part[1:-1])
        elif part:
            yield part


def _constant(item: str, kind: str, size: int) -> bytes:
    if re.match(r"0[fF][0-9A-Fa-f]{8}$", item):
        return struct.pack("<I", int(item[2:], 16))
    if re.match(r"0[dD][0-9A-Fa-f]{16}$", item):
        return struct.pack("<Q", int(item[2:], 16))
    if kind in {"f32", "f64"}:
        return struct.pack("<f" if kind == "f32" else "<d", float(item))
    value = int(item.rstrip("uU"), 0)
    return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
