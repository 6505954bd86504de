"""Instruction mix of a launch's SASS, or the reason why it cannot be determined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property

from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.ranges import range_of
from kernelmate.backends.emulator.sass.code import SassOp, taken_apart
from kernelmate.backends.emulator.sass.graph import ControlFlowGraph, Unknown, graph_of
from kernelmate.backends.emulator.sass.operands import ConstantBank
from kernelmate.backends.emulator.sass.walk import Visits, WarpWalker
from kernelmate.compiler.disassembly import class_of
from kernelmate.compiler.listing import reading_code
from kernelmate.compiler.resources import parameter_offset
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Compiled, InstructionMix, LaunchShape, OpcodeCount, SassInstruction

_BOTH = {"st": "ST", "atom": "ATOM", "red": ("RED", "ATOM"), "bar": "BAR", "barrier": "BAR", "shfl": "SHFL"}
"""PTX instructions that ptxas neither drops, moves nor duplicates, with the prefixes of their SASS opcodes."""
_BLACKWELL = (10, 0)
_KEPT = 64

Told = tuple[InstructionMix | None, str | None]
"""An instruction mix, or the reason for having none."""


class Sass:
    """A kernel's SASS, parsed on first use."""

    def __init__(self, compiled: Compiled, decoded: DecodedKernel, capability: tuple[int, int]) -> None:
        self._compiled = compiled
        self._decoded = decoded
        self._capability = capability
        self._told: dict[tuple[LaunchShape, bytes], Visits | Unknown] = {}
        self._reading: Callable[[], tuple[SassInstruction, ...]] | None = None

    def begin(self) -> None:
        """Starts the disassembly in the background; `mix` waits for it."""
        if self._reading is None and self._compiled.cubin:
            # `mix` reports the error to its caller.
            with suppress(CompilerUnavailable):
                self._reading = reading_code(self._compiled)

    def mix(self, shape: LaunchShape, parameters: bytes, entered: Mapping[str, int], unusual: Set[int]) -> Told:
        """Instructions that a launch executes.

        Args:
            shape: the shape of the launch.
            parameters: the kernel's parameter block.
            entered: how often threads entered each block of PTX, by label.
            unusual: divisions and roots with operands outside their `ranges`, by their numbers in PTX.
        """
        try:
            visits = self._follow(shape, parameters)
            self._check(visits, entered)
            self._check_usual(visits, unusual)
            return _counted(self._graph, visits), None
        except CompilerUnavailable as reason:
            return None, str(reason)
        except Unknown as reason:
            return None, str(reason)

    def _follow(self, shape: LaunchShape, parameters: bytes) -> Visits:
        if not self._compiled.cubin:
            raise Unknown("there is no CUBIN")
        ran = re.search(r"^\.target\s+sm_(\d+)", self._compiled.ptx, re.MULTILINE)
        if ran is not None and f"sm_{ran[1]}" != self._compiled.arch.rstrip("af"):
            raise Unknown(f"the code that ran is for sm_{ran[1]}, and the CUBIN is for {self._compiled.arch}")
        key = shape, parameters
        if key not in self._told:
            if len(self._told) >= _KEPT:
                self._told.clear()
            try:
                frame = ConstantBank(self._constants(shape, parameters))
                self._told[key] = WarpWalker(self._graph, frame).follow(shape)
            except Unknown as reason:
                self._told[key] = reason
        told = self._told[key]
        if isinstance(told, Unknown):
            raise told
        return told

    @cached_property
    def _graph(self) -> ControlFlowGraph:
        read = self._reading or reading_code(self._compiled)
        return graph_of([taken_apart(instruction) for instruction in read()])

    def _constants(self, shape: LaunchShape, parameters: bytes) -> dict[int, int]:
        """Returns constant bank 0 as the driver fills it: the launch's shape, then the parameters.

        The offsets of the shape were derived from compiled code; those of the parameters are in the CUBIN.
        """
        block, grid = (0x360, 0x370) if self._capability >= _BLACKWELL else (0x0, 0xC)
        words = {block + 4 * axis: extent for axis, extent in enumerate(shape.block)}
        words |= {grid + 4 * axis: extent for axis, extent in enumerate(shape.grid)}
        first = parameter_offset(self._compiled.cubin, self._compiled.lowered_name)
        if first is None:
            raise Unknown("the CUBIN does not state where parameters are")
        padded = parameters + bytes(-len(parameters) % 4)
        words |= {first + at: int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4)}
        return words

    def _check(self, visits: Visits, entered: Mapping[str, int]) -> None:
        """Compares the followed SASS with the counted PTX.

        Raises:
            Unknown: something is unknown, or the two differ.
        """
        graph = self._graph
        for branch in visits.skipped:
            if visits.threads.get(branch):
                raise Unknown(_by_data(graph.ops[graph.blocks[branch].end - 1], self._ptx))
        for block in graph.blocks:
            if block.calls is not None and visits.threads.get(block.index):
                raise Unknown(f"it calls {graph.ops[graph.blocks[block.calls].start].function}")
        wanted = self._asked(entered)
        got = _by_line(graph, visits)
        for line, (name, threads) in wanted.items():
            if line in got and got[line] not in {None, threads}:
                raise Unknown(
                    f"the SASS of {name} (PTX line {line}) would run {got[line]} times, and that of PTX ran {threads} times"
                )

    def _check_usual(self, visits: Visits, unusual: Set[int]) -> None:
        """Checks the operands of divisions and square roots whose slow paths were assumed to be avoided.

        Raises:
            Unknown: an operand was out of range, or ranges were not recorded.
        """
        graph, decoded = self._graph, self._decoded
        watched = {
            instruction.line: number in unusual
            for number, instruction in enumerate(decoded.linked.instructions)
            if range_of(decoded.steps[number]) is not None
        }
        for index in visits.usual:
            op = graph.ops[graph.blocks[index].end - 1]
            if visits.threads.get(index) and watched.get(op.ptx_line or 0) is not False:
                raise Unknown(f"{_by_data(op, self._ptx)}, which may call a slow path for some operands")

    @cached_property
    def _ptx(self) -> Sequence[str]:
        return self._compiled.ptx.splitlines()

    def _asked(self, entered: Mapping[str, int]) -> dict[int, tuple[str, int]]:
        """Returns, by line of PTX, the opcode that SASS must execute equally often, and how many threads executed it."""
        decoded = self._decoded
        found: dict[int, tuple[str, int]] = {}
        conditional = set()
        for block in decoded.blocks:
            for instruction in decoded.linked.instructions[block.start : block.end]:
                if instruction.name in _BOTH and instruction.line:
                    before = found.get(instruction.line, ("", 0))[1]
                    found[instruction.line] = instruction.opcode, before + entered.get(block.label, 0)
                    if instruction.guard is not None:
                        conditional.add(instruction.line)
        return {line: asked for line, asked in found.items() if line not in conditional}


def _by_data(op: SassOp, ptx: Sequence[str]) -> str:
    made = ptx[op.ptx_line - 1].strip() if op.ptx_line and op.ptx_line <= len(ptx) else ""
    return f"data decides a branch of the SASS (at {op.address:#x}{f', of `{made}`' if made else ''})"


def _by_line(graph: ControlFlowGraph, visits: Visits) -> dict[int, int | None]:
    """Returns, for each PTX line, the threads that execute its store, atomic, barrier or shuffle.

    The number is None if a predicate decides which threads execute it.
    """
    found: dict[int, int | None] = {}
    starts = ("ST", "ATOM", "RED", "BAR", "SHFL")
    for block in graph.blocks:
        for op in graph.ops[block.start : block.end]:
            if op.ptx_line is not None and op.name.startswith(starts):
                before = found.get(op.ptx_line, 0)
                known = None if op.partial or before is None else before + visits.threads.get(block.index, 0)
                found[op.ptx_line] = known
    return found


def _counted(graph: ControlFlowGraph, visits: Visits) -> InstructionMix:
    threads: Counter[str] = Counter()
    warps: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for block in graph.blocks:
        came, groups = visits.threads.get(block.index, 0), visits.warps.get(block.index, 0)
        for number in range(block.start, block.end):
            op = graph.ops[number]
            waiting = visits.waits.get(block.index) if number == block.start else None
            threads[op.name] += came
            warps[op.name] += groups if waiting is None else waiting
            kinds.setdefault(op.name, class_of(op.opcode))
    opcodes = tuple(OpcodeCount(name, kinds[name], warps[name], threads[name]) for name, n in warps.most_common() if n)
    return InstructionMix(sum(warps.values()), sum(threads.values()), opcodes)
