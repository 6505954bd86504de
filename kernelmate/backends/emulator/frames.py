"""Calls of recursive functions as plain instructions: frames in local memory, and a branch back to the call site.

Other calls are inlined. A function that calls itself, directly or through others, exists once; a frame in the thread's
local memory holds the return target, the function's parameters, results and variables, and the registers live across its
own calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kernelmate.backends.emulator.program import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    OperandGroup,
    Position,
    Program,
    Register,
    RegisterPair,
    Symbol,
    Variable,
    Vector,
)
from kernelmate.backends.emulator.spaces import CALL_PARAMETERS
from kernelmate.backends.emulator.types import SIZES

STACK_BYTES = 1024
"""CUDA's default stack per thread in bytes (`cudaLimitStackSize`)."""
RETURN_BYTES = 8
_ALIGN = 16
_USES_ALL = frozenset({"bar", "barrier", "brx", "call", "nanosleep", "pmevent"})
"""Instructions whose first register operand may be read instead of written."""


@dataclass(frozen=True, slots=True)
class ActivationFrame:
    """Stack frame of a recursive function.

    Attributes:
        slots: byte offset of each of the function's variables, parameters and results.
        kept: registers live across the call at an index of the body, each with its slot.
        size: bytes of the frame.
        cost: approximate bytes of stack on a GPU: variables, kept registers and the return address.
    """

    slots: Mapping[str, int]
    kept: Mapping[int, tuple[tuple[str, int], ...]]
    size: int
    cost: int


def recursive_cycles(program: Program, entry: str, taken: frozenset[str]) -> dict[str, frozenset[str]]:
    """Returns for each recursive function reachable from the entry the functions of its cycle, itself included."""
    called = {name: frozenset(_callees(program, function, taken)) for name, function in program.functions.items()}
    reached: dict[str, frozenset[str]] = {}
    for name in _reach(called, entry):
        reached[name] = _reach(called, name)
    recursive = {name for name, others in reached.items() if name in others}
    return {
        name: frozenset(other for other in recursive if other in reached[name] and name in reached[other])
        for name in recursive
    }


def _callees(program: Program, function: Function, taken: frozenset[str]) -> Iterator[str]:
    for instruction in function.body:
        if instruction.name == "call":
            callee, shape = callee_of(instruction)
            if isinstance(callee, Symbol):
                yield callee.name
            else:
                yield from (name for name in taken if shape_of(program.functions[name]) == shape)


def callee_of(call: Instruction) -> tuple[Operand, tuple[int, int]]:
    """Returns the callee of a call, and its numbers of results and arguments."""
    groups = [len(operand.items) for operand in call.operands if isinstance(operand, OperandGroup)]
    with_results = isinstance(call.operands[0], OperandGroup)
    callee = call.operands[1] if with_results else call.operands[0]
    results = groups[0] if with_results else 0
    arguments = groups[1:] if with_results else groups
    return callee, (results, arguments[0] if arguments else 0)


def shape_of(function: Function) -> tuple[int, int]:
    """Returns the numbers of results and parameters of a function."""
    return len(function.results), len(function.parameters)


def _reach(called: Mapping[str, frozenset[str]], start: str) -> frozenset[str]:
    """Returns the functions reachable by calls from a function."""
    found: set[str] = set()
    queue = [start] if start not in called else list(called[start])
    while queue:
        name = queue.pop()
        if name in called and name not in found:
            found.add(name)
            queue += called[name]
    return frozenset(found)


def frame_of(function: Function, again: frozenset[str]) -> ActivationFrame:
    """Returns the frame of a recursive function; `again` are the functions from which it can be re-entered."""
    slots: dict[str, int] = {}
    offset = RETURN_BYTES
    for variable in (*function.parameters, *function.results, *frame_variables(function)):
        offset = _aligned(offset, variable.align)
        slots[variable.name] = offset
        offset += variable.size
    live = _live_after_calls(function)
    kept: dict[int, tuple[tuple[str, int], ...]] = {}
    most = end = offset
    words = 0
    for index, names in live.items():
        callee, _ = callee_of(function.body[index])
        if isinstance(callee, Symbol) and callee.name not in again:
            continue
        places = []
        end = _aligned(offset, 8)
        for name in sorted(names):
            places.append((name, end))
            end += 8
        kept[index] = tuple(places)
        most = max(most, end)
        words = max(words, sum(max(4, SIZES[function.registers[name]]) for name in names))
    own = sum(_aligned(variable.size, 8) for variable in frame_variables(function))
    return ActivationFrame(slots, kept, _aligned(most, _ALIGN), _aligned(RETURN_BYTES + own + words, 8))


def frame_variables(function: Function) -> list[Variable]:
    """Returns the variables that each activation needs for itself; call arguments are consumed at once."""
    return [variable for variable in function.variables if variable.space == "local"]


def _aligned(offset: int, align: int) -> int:
    return -(-offset // max(align, 1)) * max(align, 1)


def _live_after_calls(function: Function) -> dict[int, frozenset[str]]:
    """Returns the registers live after each call of the body."""
    body = function.body
    reads, writes = zip(*(_used(instruction, function.registers) for instruction in body), strict=True)
    live: list[frozenset[str]] = [frozenset()] * (len(body) + 1)
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(body))):
            after = frozenset().union(*(live[at] for at in _following(function, index)))
            before = reads[index] | (after - writes[index])
            changed = changed or before != live[index]
            live[index] = before
    return {index: live[index + 1] for index, instruction in enumerate(body) if instruction.name == "call"}


def _following(function: Function, index: int) -> list[int]:
    instruction = function.body[index]
    further = [index + 1]
    if instruction.name == "bra":
        targets = [operand.name for operand in instruction.operands if isinstance(operand, Symbol)]
    elif instruction.name == "brx":
        table = instruction.operands[1]
        targets = list(function.tables[table.name]) if isinstance(table, Symbol) else []
    elif instruction.name in {"ret", "exit", "trap"}:
        targets = []
    else:
        return further
    return [function.labels[name] for name in targets] + (further if instruction.guard is not None else [])


def _used(instruction: Instruction, registers: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """Returns registers that an instruction reads, and registers that it certainly writes."""
    operands = instruction.operands
    results: tuple[Operand, ...] = ()
    if operands and instruction.name not in _USES_ALL and isinstance(operands[0], Register | Vector | RegisterPair):
        results, operands = operands[:1], operands[1:]
    reads = {name for operand in operands for name in _registers(operand)} & set(registers)
    writes = {name for operand in results for name in _registers(operand)} & set(registers)
    if instruction.guard is not None:
        reads |= writes | {instruction.guard.name}
        writes = set()
    return frozenset(reads), frozenset(writes)


def _registers(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Address) and isinstance(operand.base, Register):
        yield operand.base.name
    elif isinstance(operand, Vector | OperandGroup):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, RegisterPair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


STACK = "$stack"
"""The local-memory variable that holds the frames."""
_FRAME, _CALLEE, _ADDRESS = Register("%frame@"), Register("%callee@"), Register("%address@")
_USED, _SITE, _DEEP = Register("%used@"), Register("%site@"), Register("%deep@")
_COPIES = {8: Register("%copy64@"), 4: Register("%copy32@"), 2: Register("%copy16@"), 1: Register("%copy16@")}
_REGISTERS = {
    **{register.name: "b64" for register in (_FRAME, _CALLEE, _ADDRESS, _COPIES[8])},
    **{register.name: "b32" for register in (_USED, _SITE, _COPIES[4])},
    _COPIES[2].name: "b16",
    _DEEP.name: "pred",
}


class Assembler(Protocol):
    """The linker's interface for appending code."""

    program: Program
    instructions: list[Instruction]
    labels: dict[str, int]
    tables: dict[str, tuple[str, ...]]
    registers: dict[str, str]
    call_parameters: set[str]

    def append(self, instruction: Instruction) -> None:
        """Appends an instruction."""

    def jump(self, label: str, position: Position | None, guard: Register | None = None) -> None:
        """Appends a branch."""

    def add(self, function: Function, suffix: str, aliases: dict[str, str], end: str | None) -> None:
        """Appends a copy of a function's body."""

    def place(self, variable: Variable) -> None:
        """Assigns a variable an offset in local memory."""


def instruction_of(opcode: str, operands: tuple[Operand, ...], position: Position | None) -> Instruction:
    """Returns an instruction that is not in the PTX text."""
    return Instruction(opcode, tuple(opcode.split(".")), operands, None, position)


class Stack:
    """The recursive functions of one kernel.

    Args:
        output: receives their code.
        cycles: each recursive function's name with the functions of its call cycles.
    """

    def __init__(self, output: Assembler, cycles: Mapping[str, frozenset[str]]) -> None:
        self.cycles = cycles
        self.at = 0
        """Index, in the body that is being appended, of the current instruction."""
        self._output = output
        self._owner: str | None = None
        self._frames: dict[str, ActivationFrame] = {}
        self._slots: dict[str, tuple[int, bool]] = {}
        self._sites: dict[str, list[str]] = {}
        self._queue: list[str] = []
        if cycles:
            output.registers.update(_REGISTERS)

    def begin(self) -> None:
        """Emits the first instructions of a thread."""
        self._output.append(instruction_of("mov.u32", (_USED, Immediate(0)), None))

    def call(self, function: Function, aliases: Mapping[str, str], position: Position | None) -> None:
        """Appends a call; `aliases` maps parameters and results to the caller's variables."""
        output, frame = self._output, self._frame(function)
        own = self._frames[self._owner] if self._owner else None
        kept = own.kept.get(self.at, ()) if own and self._owner in self.cycles[function.name] else ()
        for name, slot in kept:
            self._store(name, slot, position)
        if own is None:
            self._emit("sub.u64", position, _CALLEE, Symbol(STACK), Immediate(CALL_PARAMETERS))
        else:
            self._emit("add.u64", position, _CALLEE, _FRAME, Immediate(own.size))
        self._emit("add.u32", position, _USED, _USED, Immediate(frame.cost))
        self._emit("setp.gt.u32", position, _DEEP, _USED, Immediate(STACK_BYTES))
        output.append(replace(instruction_of("trap.stack", (Symbol(function.name),), position), guard=_DEEP))
        for formal in function.parameters:
            self._copy(formal, Symbol(aliases[formal.name]), (_CALLEE, frame.slots[formal.name]), position)
        sites = self._sites[function.name]
        label = f"$back@{function.name}@{len(sites)}"
        self._emit("mov.u32", position, _SITE, Immediate(len(sites)))
        self._emit("st.local.u32", position, Address(_CALLEE, 0), _SITE)
        self._emit("mov.u64", position, _FRAME, _CALLEE)
        sites.append(label)
        output.jump(f"$body@{function.name}", position)
        output.labels[label] = len(output.instructions)
        self._return(function, frame, own, aliases, position)
        for name, slot in kept:
            self._load(name, slot, position)

    def _return(
        self,
        function: Function,
        frame: ActivationFrame,
        own: ActivationFrame | None,
        aliases: Mapping[str, str],
        position: Position | None,
    ) -> None:
        self._emit("mov.u64", position, _CALLEE, _FRAME)
        if own is not None:
            self._emit("sub.u64", position, _FRAME, _FRAME, Immediate(own.size))
        self._emit("sub.u32", position, _USED, _USED, Immediate(frame.cost))
        for formal in function.results:
            self._copy(formal, (_CALLEE, frame.slots[formal.name]), Symbol(aliases[formal.name]), position)

    def add_bodies(self) -> None:
        """Appends every called function, and those that it calls."""
        output = self._output
        while self._queue:
            name = self._queue.pop(0)
            function, frame = output.program.functions[name], self._frames[name]
            suffix = f"@{name}"
            self._owner = name
            aliases = {variable: variable + suffix for variable in frame.slots}
            passed = {variable.name for variable in (*function.parameters, *function.results)}
            self._slots.update(
                {aliases[variable]: (slot, variable in passed) for variable, slot in frame.slots.items()}
            )
            output.labels[f"$body@{name}"] = len(output.instructions)
            output.add(function, suffix, aliases, f"$leave@{name}")
            output.labels[f"$leave@{name}"] = len(output.instructions)
            self._emit("ld.local.u32", None, _SITE, Address(_FRAME, 0))
            self._emit("brx.idx", None, _SITE, Symbol(f"$sites@{name}"))

    def finish(self) -> None:
        """Lays out the stack when all frames and calls are known."""
        for name, sites in self._sites.items():
            self._output.tables[f"$sites@{name}"] = tuple(sites)
        if self._frames:
            # The deepest stack is determined by the function that needs the most bytes here per byte of CUDA's stack.
            each = max(frame.size / frame.cost for frame in self._frames.values())
            size = int(STACK_BYTES * each) + 2 * max(frame.size for frame in self._frames.values())
            self._output.place(Variable(STACK, "local", "b8", 16, size))
            self._output.call_parameters.add(STACK)

    def placed(self, instruction: Instruction) -> Iterator[Instruction]:
        """Replaces frame variables of an instruction by addresses relative to the frame."""
        operands: list[Operand] = []
        moved = False
        for operand in instruction.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Symbol) and operand.base.name in self._slots:
                slot, _ = self._slots[operand.base.name]
                operands.append(Address(_FRAME, slot + operand.offset))
                moved = True
            elif isinstance(operand, Symbol) and operand.name in self._slots:
                slot, passed = self._slots[operand.name]
                start = Immediate(slot + operand.offset + (CALL_PARAMETERS if passed else 0))
                yield instruction_of("add.u64", (_ADDRESS, _FRAME, start), instruction.position)
                operands.append(_ADDRESS)
            else:
                operands.append(operand)
        parts = instruction.parts
        if moved:
            parts = tuple("local" if part.partition("__")[0] == "param" else part for part in parts)
        yield replace(instruction, operands=tuple(operands), parts=parts, opcode=".".join(parts))

    def _frame(self, function: Function) -> ActivationFrame:
        if function.name not in self._frames:
            self._frames[function.name] = frame_of(function, self.cycles[function.name])
            self._sites[function.name] = []
            self._queue.append(function.name)
        return self._frames[function.name]

    def _emit(self, opcode: str, position: Position | None, *operands: Operand) -> None:
        self._output.append(instruction_of(opcode, operands, position))

    def _copy(
        self, formal: Variable, source: Symbol | tuple[Register, int], to: Symbol | tuple[Register, int],
        position: Position | None,
    ) -> None:  # fmt: skip
        for offset, size in pieces(formal.size, formal.align):
            copy = _COPIES[size]
            self._emit(f"ld.{_space(source)}.b{8 * size}", position, copy, _moved(source, offset))
            self._emit(f"st.{_space(to)}.b{8 * size}", position, _moved(to, offset), copy)

    def _kind(self, name: str) -> str:
        return self._output.registers[f"{name}@{self._owner}"]

    def _store(self, name: str, slot: int, position: Position | None) -> None:
        register, kind = Register(f"{name}@{self._owner}"), self._kind(name)
        if kind == "pred":
            self._emit("selp.u32", position, _COPIES[4], Immediate(1), Immediate(0), register)
            register, kind = _COPIES[4], "b32"
        self._emit(f"st.local.b{8 * SIZES[kind]}", position, Address(_FRAME, slot), register)

    def _load(self, name: str, slot: int, position: Position | None) -> None:
        register, kind = Register(f"{name}@{self._owner}"), self._kind(name)
        if kind == "pred":
            self._emit("ld.local.b32", position, _COPIES[4], Address(_FRAME, slot))
            self._emit("setp.ne.u32", position, register, _COPIES[4], Immediate(0))
        else:
            self._emit(f"ld.local.b{8 * SIZES[kind]}", position, register, Address(_FRAME, slot))


def pieces(size: int, align: int) -> Iterator[tuple[int, int]]:
    """Yields offsets and sizes of the accesses that copy a variable."""
    offset = 0
    while offset < size:
        step = next(width for width in (8, 4, 2, 1) if width <= max(align, 1) and offset + width <= size)
        yield offset, step
        offset += step


def _space(place: Symbol | tuple[Register, int]) -> str:
    return "param" if isinstance(place, Symbol) else "local"


def _moved(place: Symbol | tuple[Register, int], offset: int) -> Address:
    return Address(place, offset) if isinstance(place, Symbol) else Address(place[0], place[1] + offset)
