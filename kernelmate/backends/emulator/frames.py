"""Calls of recursive functions as plain instructions: frames in local memory, and a branch back to the call site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from kernelmate.backends.emulator.program import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Position,
    Program,
    Register,
    Symbol,
    Variable,
)
from kernelmate.backends.emulator.recursion import STACK_BYTES, ActivationFrame, frame_of
from kernelmate.backends.emulator.spaces import CALL_PARAMETERS
from kernelmate.backends.emulator.types import SIZES

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
        """Append an instruction."""

    def jump(self, label: str, position: Position | None, guard: Register | None = None) -> None:
        """Append a branch."""

    def add(self, function: Function, suffix: str, aliases: dict[str, str], end: str | None) -> None:
        """Appends a copy of a function's body."""

    def place(self, variable: Variable) -> None:
        """Assigns a variable a place in local memory."""


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
        """Append a call; `aliases` maps parameters and results to the caller's variables."""
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
