"""Links an entry to one flat instruction list: calls inlined, variables laid out, labels resolved.

Each call gets a copy of the called function, so that lanes in different calls have one program order and reconverge
afterwards; only recursive functions exist once (see `frames`). A call through a pointer becomes a chain of tests
against every function whose address is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelmate.backends.emulator.frames import Stack, callee_of, instruction_of, recursive_cycles, shape_of
from kernelmate.backends.emulator.operands import PtxError
from kernelmate.backends.emulator.program import (
    Address,
    Function,
    Instruction,
    Operand,
    OperandGroup,
    Position,
    Program,
    Register,
    RegisterPair,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)
from kernelmate.backends.emulator.spaces import FUNCTION_BASE

MOST_INSTRUCTIONS = 200_000
HOST_FUNCTIONS = frozenset({"vprintf", "__assertfail"})
"""Functions of the device runtime that the emulator implements."""


class LinkRefused(Exception):
    """The kernel cannot be run; the position is that of the cause."""

    def __init__(self, message: str, position: Position | None) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class PlacedVariable:
    """A variable and its byte offset in its space."""

    variable: Variable
    offset: int


@dataclass(frozen=True, slots=True)
class LinkedKernel:
    """One kernel, ready to decode.

    Attributes:
        labels: index of each label in `instructions`.
        parameters: the kernel's parameters, placed in its parameter block of `parameter_bytes`.
        shared: placed in the block's shared memory; `shared_bytes` is its static size. The unsized external arrays all
            start at its end, rounded to 16.
        local: placed in each thread's frame of `local_bytes`; call parameters are `call_parameters` among them.
        globals: variables in global and constant memory, by name.
        functions: address of every function whose address may be taken.
    """

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]]
    registers: Mapping[str, str]
    parameters: tuple[PlacedVariable, ...]
    parameter_bytes: int
    shared: Mapping[str, PlacedVariable]
    shared_bytes: int
    local: Mapping[str, PlacedVariable]
    local_bytes: int
    call_parameters: frozenset[str]
    globals: Mapping[str, Variable]
    functions: Mapping[str, int]


def link(program: Program, entry: str) -> LinkedKernel:
    """Links the entry.

    Raises:
        Refused: it calls an unsupported function, or grows too large.
        PtxError: it names an undefined symbol.
    """
    function = program.functions.get(entry)
    if function is None or not function.defined:
        raise PtxError(f"the PTX has no entry {entry!r}")
    linker = _Linker(program, entry)
    if linker.stack.cycles:
        linker.stack.begin()
    linker.add(function, "", {}, None)
    linker.stack.add_bodies()
    return linker.finish(function)


@dataclass
class _Layout:
    offset: int = 0
    placed: dict[str, PlacedVariable] = field(default_factory=dict)

    def add(self, variable: Variable) -> None:
        align = max(variable.align, 1)
        self.offset = -(-self.offset // align) * align
        self.placed[variable.name] = PlacedVariable(variable, self.offset)
        self.offset += variable.size


class _Linker:
    def __init__(self, program: Program, entry: str) -> None:
        self.program = program
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.registers: dict[str, str] = {"%cc": "pred"}
        self.shared = _Layout()
        self.local = _Layout()
        self.call_parameters: set[str] = set()
        self.calls = 0
        self.functions = {name: FUNCTION_BASE + 16 * (1 + index) for index, name in enumerate(program.functions)}
        self.taken = _taken(program)
        self.stack = Stack(self, recursive_cycles(program, entry, self.taken))

    def add(self, function: Function, suffix: str, aliases: dict[str, str], end: str | None) -> None:
        """Appends a copy of `function`; `aliases` maps its parameters to variables of the caller."""
        before = self.stack.at
        names = dict(aliases)
        for name, kind in function.registers.items():
            names[name] = name + suffix
            self.registers[name + suffix] = kind
        for name in (*function.labels, *function.tables):
            names[name] = name + suffix
        for variable in function.variables:
            if variable.name not in aliases:
                self._place(variable, suffix, names)
        for name, labels in function.tables.items():
            self.tables[names[name]] = tuple(names.get(label, label) for label in labels)
        at: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            at.setdefault(index, []).append(names[label])
        for index, instruction in enumerate(function.body):
            for label in at.get(index, ()):
                self.labels[label] = len(self.instructions)
            self.stack.at = index
            self._instruction(instruction, names, end)
        for label in at.get(len(function.body), ()):
            self.labels[label] = len(self.instructions)
        self.stack.at = before
        if end is None:
            self.append(instruction_of("exit", (), None))

    def _place(self, variable: Variable, suffix: str, names: dict[str, str]) -> None:
        if variable.space == "shared":
            if variable.name not in self.shared.placed:
                self.shared.add(variable)
            return
        renamed = replace(variable, name=variable.name + suffix)
        names[variable.name] = renamed.name
        self.local.add(renamed)
        if variable.space == "param":
            self.call_parameters.add(renamed.name)

    def place(self, variable: Variable) -> None:
        """Assigns a variable an offset in local memory."""
        self.local.add(variable)

    def append(self, instruction: Instruction) -> None:
        """Appends one instruction whose operands have their final names."""
        self.instructions += self.stack.placed(instruction)

    def _instruction(self, instruction: Instruction, names: Mapping[str, str], end: str | None) -> None:
        if len(self.instructions) > MOST_INSTRUCTIONS:
            raise LinkRefused(
                f"the kernel has over {MOST_INSTRUCTIONS} instructions with its calls", instruction.position
            )
        guard = instruction.guard
        if guard is not None and guard.name in names:
            guard = replace(guard, name=names[guard.name])
        if instruction.name == "call":
            self._call(instruction, guard, names)
            return
        if instruction.name == "ret" and end is not None:
            self.jump(end, instruction.position, guard)
            return
        operands = tuple(_renamed(operand, names) for operand in instruction.operands)
        self.append(replace(instruction, operands=operands, guard=guard))

    def _call(self, call: Instruction, guard: Register | None, names: Mapping[str, str]) -> None:
        operands = [_renamed(operand, names) for operand in call.operands]
        first, *rest = operands
        results = first if isinstance(first, OperandGroup) else OperandGroup(())
        callee = rest.pop(0) if isinstance(first, OperandGroup) else first
        arguments = next((operand for operand in rest if isinstance(operand, OperandGroup)), OperandGroup(()))
        self.calls += 1
        after = f"$after@{self.calls}"
        if guard is not None:
            skip = replace(guard, negated=not guard.negated)
            self.jump(after, call.position, skip)
        if isinstance(callee, Register):
            self._call_pointer(callee, results, arguments, after, call)
        elif isinstance(callee, Symbol):
            self._call_named(callee.name, results, arguments, after, call)
        else:
            raise LinkRefused(f"cannot read the call {call.opcode}", call.position)
        self.labels[after] = len(self.instructions)

    def _call_named(
        self, name: str, results: OperandGroup, arguments: OperandGroup, after: str, call: Instruction
    ) -> None:
        function = self.program.functions.get(name)
        if name in HOST_FUNCTIONS:
            self.append(replace(call, opcode="call", parts=("call", name), operands=arguments.items, guard=None))
            return
        if function is None or not function.defined:
            raise LinkRefused(_not_provided(name), call.position)
        aliases: dict[str, str] = {}
        for formal, actual in zip(
            (*function.results, *function.parameters), (*results.items, *arguments.items), strict=False
        ):
            if not isinstance(actual, Symbol):
                raise LinkRefused(
                    f"the call of {plain_name(name)} passes registers; parameters are supported", call.position
                )
            aliases[formal.name] = actual.name
        if name in self.stack.cycles:
            self.stack.call(function, aliases, call.position)
            return
        self.calls += 1
        try:
            self.add(function, f"@call{self.calls}", aliases, after)
        except LinkRefused as refused:
            raise LinkRefused(str(refused), refused.position or call.position) from None

    def _call_pointer(
        self, pointer: Register, results: OperandGroup, arguments: OperandGroup, after: str, call: Instruction
    ) -> None:
        tested = f"%callee@{self.calls}"
        self.registers[tested] = "pred"
        for name in sorted(self.taken):
            function = self.program.functions[name]
            if not function.defined or shape_of(function) != callee_of(call)[1]:
                continue
            self.calls += 1
            following = f"$next@{self.calls}"
            self.append(instruction_of("setp.ne.u64", (Register(tested), pointer, Symbol(name)), call.position))
            self.jump(following, call.position, Register(tested))
            self._call_named(name, results, arguments, after, call)
            self.jump(after, call.position)
            self.labels[following] = len(self.instructions)
        self.append(instruction_of("trap.pointer", (), call.position))

    def jump(self, label: str, position: Position | None, guard: Register | None = None) -> None:
        """Appends a branch."""
        self.append(Instruction("bra", ("bra",), (Symbol(label),), guard, position))

    def finish(self, entry: Function) -> LinkedKernel:
        """Lays out the remaining parts, and returns the linked kernel."""
        self.stack.finish()
        used = _used_symbols(self.instructions)
        variables: dict[str, Variable] = {}
        queue = [name for name in used if name in self.program.variables]
        while queue:
            name = queue.pop()
            variable = self.program.variables[name]
            if variable.space == "shared":
                if name not in self.shared.placed and variable.size:
                    self.shared.add(variable)
            elif name not in variables:
                variables[name] = variable
                queue += [symbol.name for _, symbol in variable.relocations if symbol.name in self.program.variables]
        end = self.shared.offset
        dynamic = -(-end // 16) * 16
        for name in used:
            candidate = self.program.variables.get(name)
            if candidate is not None and candidate.space == "shared" and not candidate.size:
                self.shared.placed[name] = PlacedVariable(candidate, dynamic)
        parameters = _Layout()
        for parameter in entry.parameters:
            parameters.add(parameter)
        return LinkedKernel(
            entry.name, tuple(self.instructions), self.labels, self.tables, self.registers,
            tuple(parameters.placed.values()), parameters.offset, self.shared.placed, end,
            self.local.placed, self.local.offset, frozenset(self.call_parameters), variables, self.functions,
        )  # fmt: skip


def _renamed(operand: Operand, names: Mapping[str, str]) -> Operand:
    if isinstance(operand, Register | Symbol):
        return replace(operand, name=names[operand.name]) if operand.name in names else operand
    if isinstance(operand, Address) and operand.base is not None and operand.base.name in names:
        return replace(operand, base=replace(operand.base, name=names[operand.base.name]))
    if isinstance(operand, TensorAddress):
        coordinates = Vector(tuple(_renamed(item, names) for item in operand.coordinates.items))
        place = _renamed(operand.map, names)
        assert isinstance(place, Address)
        return TensorAddress(place, coordinates)
    if isinstance(operand, Vector | OperandGroup):
        return replace(operand, items=tuple(_renamed(item, names) for item in operand.items))
    if isinstance(operand, RegisterPair):
        return RegisterPair(_renamed(operand.first, names), _renamed(operand.second, names))
    return operand


def _symbols(operand: Operand) -> list[str]:
    if isinstance(operand, Symbol):
        return [operand.name]
    if isinstance(operand, Address) and isinstance(operand.base, Symbol):
        return [operand.base.name]
    if isinstance(operand, Vector | OperandGroup):
        return [name for item in operand.items for name in _symbols(item)]
    return []


def _used_symbols(instructions: list[Instruction]) -> dict[str, None]:
    """Returns the names in order of first use."""
    return {
        name: None for instruction in instructions for operand in instruction.operands for name in _symbols(operand)
    }


def _taken(program: Program) -> frozenset[str]:
    """Returns functions whose address occurs in an initialiser or an operand other than a call's."""
    names = {symbol.name for variable in program.variables.values() for _, symbol in variable.relocations}
    for function in program.functions.values():
        for instruction in function.body:
            if instruction.name != "call":
                names.update(name for operand in instruction.operands for name in _symbols(operand))
    return frozenset(names & set(program.functions))


def _not_provided(name: str) -> str:
    plain = plain_name(name)
    if name in {"malloc", "free", "__nv_aligned_device_malloc"}:
        return (
            f"the kernel calls {plain}, and the emulator has no heap on the device: allocate the memory before the launch "
            "and pass a pointer, or use an array of the thread or of shared memory"
        )
    return f"the kernel calls {plain}, which the emulator does not provide"


def plain_name(name: str) -> str:
    """Returns the last identifier of a mangled name, for messages."""
    found = re.match(r"_ZN?(?:\d+[A-Za-z_]\w*?)*?(\d+)([A-Za-z_]\w*)", name)
    return found[2][: int(found[1])] if found else name
