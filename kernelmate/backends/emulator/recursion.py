"""Recursive functions, directly or through others, and the state that a call of one must save.

Other calls are inlined. A recursive function exists once; a frame in the thread's local memory holds the return target,
the function's parameters, results and variables, and the registers live across its own calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelmate.backends.emulator.program import (
    Address,
    Function,
    Instruction,
    Operand,
    OperandGroup,
    Program,
    Register,
    RegisterPair,
    Symbol,
    Variable,
    Vector,
)
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


def cycles(program: Program, entry: str, taken: frozenset[str]) -> dict[str, frozenset[str]]:
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
    for variable in (*function.parameters, *function.results, *framed(function)):
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
    own = sum(_aligned(variable.size, 8) for variable in framed(function))
    return ActivationFrame(slots, kept, _aligned(most, _ALIGN), _aligned(RETURN_BYTES + own + words, 8))


def framed(function: Function) -> list[Variable]:
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
