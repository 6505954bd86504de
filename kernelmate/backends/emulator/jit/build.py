"""Generates one native function for a kernel: it runs each warp until its lanes need the scheduler.

Within a warp, lanes that are first in program order run first, and lanes at one piece run together, as the scheduler
does with whole batches. So lanes diverge and reconverge at the same places, with equal instruction counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llvmlite import ir

from kernelmate.backends.emulator.decode import BasicBlock
from kernelmate.backends.emulator.jit.body import Body, Warp, is_backward
from kernelmate.backends.emulator.jit.frame import NativeFrame, Uniform
from kernelmate.backends.emulator.jit.helpers import HelperFunctions, bits
from kernelmate.backends.emulator.jit.layout import Checks, Places, Slot
from kernelmate.backends.emulator.jit.lowering import (
    BOOL,
    I32,
    I64,
    POINTER,
    VOID,
    add_to_counter,
    broadcast,
    element_address,
    load,
    number,
)
from kernelmate.backends.emulator.jit.refine import ENDS, PartitionedKernel, needs_of
from kernelmate.backends.emulator.llvm import ENTRY
from kernelmate.backends.emulator.memory import marks_of
from kernelmate.backends.emulator.operations import Branch


@dataclass(frozen=True, slots=True)
class Interface:
    """A launch's layout for native code: indices of registers and uniforms in their tables, and the number of caches."""

    registers: Mapping[str, int]
    uniforms: Mapping[Uniform, int]
    groups: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a launch that change the generated code.

    Attributes:
        constants: registers with one value for the launch.
        fixed: likewise special registers.
        counts: True to count memory instructions.
        checks: checks of accesses and index arithmetic.
    """

    constants: frozenset[str]
    fixed: frozenset[str]
    counts: bool
    checks: Checks | None


def build(refined: PartitionedKernel, shape: Shape) -> tuple[str, Interface]:
    """Returns LLVM's text of the function, and its interface."""
    module = ir.Module("kernel")
    function = ir.Function(module, ir.FunctionType(VOID, [I64]), ENTRY)
    frame = NativeFrame(
        function, HelperFunctions(module), refined.decoded.linked.registers, shape.constants, shape.fixed, shape.checks,
        marks_of(refined.decoded),
    )  # fmt: skip
    _FunctionWriter(function, frame, refined, shape.counts).write()
    return str(module), Interface(dict(frame.registers), dict(frame.uniforms), frame.groups)


class _FunctionWriter:
    def __init__(self, function: ir.Function, frame: NativeFrame, refined: PartitionedKernel, counts: bool) -> None:
        self._function = function
        self._frame = frame
        self._refined = refined
        self._counts = counts
        self._places = Places(len(refined.native))
        self._mask, self._turns, self._issued, self._noted = (frame.variable(kind) for kind in (I32, I64, I64, I64))
        self._alone = frame.variable(BOOL)
        self._next_warp = function.append_basic_block("next_warp")
        self._pick = function.append_basic_block("pick")
        self._warp_done = function.append_basic_block("warp_done")
        self._starts = {
            index: function.append_basic_block(f"piece{index}")
            for index, native in enumerate(refined.native) if native
        }  # fmt: skip

    def write(self) -> None:
        """Generates the whole function."""
        frame = self._frame
        b = ir.IRBuilder(self._next_warp)
        index = b.phi(I64, "index")
        self._index = index
        with b.if_then(b.icmp_unsigned(">=", index, frame.slot(Slot.WARPS))):
            b.ret_void()
        self._warp = load(b, element_address(b, frame.slot(Slot.WARPS_AT), index, 8))
        self._first = b.mul(self._warp, number(32))
        self._lane_places = element_address(b, frame.slot(Slot.PLACES_AT), self._first, 4)
        self._lane_steps = element_address(b, frame.slot(Slot.LANE_STEPS_AT), self._first, 8)
        block = b.udiv(self._warp, frame.slot(Slot.WARPS_PER_BLOCK))
        offset = b.mul(block, frame.slot(Slot.SHARED_STRIDE))
        self._shared = b.add(frame.slot(Slot.SHARED_AT), offset)
        self._shadow, self._stamp = offset, number(0)
        if frame.checks is not None:
            self._shadow = b.shl(b.lshr(offset, number(frame.checks.shared_shift)), number(3))
            self._stamp = load(b, element_address(b, frame.slot(Slot.STAMPS_AT), self._warp, 8))
        for variable in (self._turns, self._issued, self._noted):
            b.store(number(0), variable)
        b.store(number(0, I32), self._mask)
        b.branch(self._pick)
        self._write_pick()
        needs = needs_of(self._refined.decoded)
        for number_, start in self._starts.items():
            self._piece(start, self._refined.decoded.blocks[number_], Body(
                frame, self._refined.decoded, self._refined.decoded.blocks[number_], needs[number_], self._counts
            ))  # fmt: skip
        b = ir.IRBuilder(self._warp_done)
        self._note_steps(b)
        add_to_counter(b, element_address(b, frame.slot(Slot.STEPS_AT), self._warp, 8), b.load(self._issued, typ=I64))
        following = b.add(index, number(1))
        b.branch(self._next_warp)
        index.add_incoming(following, self._warp_done)
        index.add_incoming(number(0), frame.entry.block)
        frame.entry.branch(self._next_warp)

    def _note_steps(self, b: ir.IRBuilder) -> None:
        """Adds the instructions of lanes that have run together to their counts."""
        issued = b.load(self._issued, typ=I64)
        taken = b.sub(issued, b.load(self._noted, typ=I64))
        b.store(issued, self._noted)
        b.call(self._frame.helpers.took, [self._lane_steps, b.load(self._mask, typ=I32), taken])

    def _write_pick(self) -> None:
        """Generates the choice of the next lanes; leaves the warp if they need the scheduler."""
        b = ir.IRBuilder(self._pick)
        kind = ir.VectorType(I32, 32)
        places = b.load(b.inttoptr(self._lane_places, POINTER), typ=kind, align=4)
        least = b.module.declare_intrinsic("llvm.vector.reduce.umin.v32i32", (), ir.FunctionType(I32, [kind]))
        first = b.call(least, [places])
        mask = b.bitcast(b.icmp_unsigned("==", places, broadcast(b, first)), I32)
        inside = b.icmp_unsigned("<", places, broadcast(b, number(self._places.pieces, I32)))
        with b.if_then(b.icmp_unsigned("!=", mask, b.load(self._mask, typ=I32))):
            self._note_steps(b)
            b.store(mask, self._mask)
        b.store(b.icmp_unsigned("==", mask, b.bitcast(inside, I32)), self._alone)
        switch = b.switch(first, self._warp_done)
        for index, start in self._starts.items():
            switch.add_case(number(index, I32), start)

    def _piece(self, start: ir.Block, block: BasicBlock, body: Body) -> None:
        frame, b = self._frame, ir.IRBuilder(start)
        mask = b.load(self._mask, typ=I32)
        fail = b.append_basic_block("again")
        warp = Warp(self._first, self._shared, mask, self._shadow, self._stamp)
        whole = body.begin(b, warp)
        if whole is not None:
            partly, go_on = b.append_basic_block("partly"), b.append_basic_block("whole")
            b.cbranch(whole, go_on, partly)
            b.position_at_end(partly)
            self._put(b, mask, self._places.partly + block.index)
            b.branch(self._pick)
            b.position_at_end(go_on)
        taken = body.write(b, warp, fail)
        add_to_counter(b, element_address(b, frame.slot(Slot.ENTERED_AT), number(block.index), 8), bits(b, mask))
        steps = number(block.end - block.start)
        b.store(b.add(b.load(self._issued, typ=I64), steps), self._issued)
        self._end(b, block, mask, taken)
        b = ir.IRBuilder(fail)
        self._put(b, mask, self._places.again + block.index)
        b.branch(self._pick)

    def _end(self, b: ir.IRBuilder, block: BasicBlock, mask: ir.Value, taken: ir.Value) -> None:
        """Generates the code that selects where each lane continues after a piece."""
        step = self._refined.decoded.steps[block.end - 1]
        operation = step.operation
        following = block.index + 1
        if isinstance(operation, Branch):
            target = self._refined.decoded.block_at[operation.target]
            if step.guard is None:
                self._go_back_or_on(b, block, mask, target, None)
                return
            self._branch(b, block, mask, taken, target)
            return
        if not isinstance(operation, ENDS):
            self._go(b, mask, following)
            return
        ended = self._places.ended + block.index
        if step.guard is None:
            self._put(b, mask, ended)
            b.branch(self._pick)
            return
        staying = b.and_(mask, b.not_(taken))
        with b.if_then(b.icmp_unsigned("==", taken, number(0, I32))):
            go_on = b.append_basic_block("nobody_ends")
            b.branch(go_on)
            self._go(ir.IRBuilder(go_on), mask, following)
            b.position_at_end(b.append_basic_block("unused"))
        self._put(b, taken, ended)
        with b.if_then(b.icmp_unsigned("!=", staying, number(0, I32))):
            self._put(b, staying, following)
        b.branch(self._pick)

    def _branch(self, b: ir.IRBuilder, block: BasicBlock, mask: ir.Value, taken: ir.Value, target: int) -> None:
        nobody, everybody, both = (b.append_basic_block(name) for name in ("nobody", "everybody", "both"))
        some = b.append_basic_block("some")
        b.cbranch(b.icmp_unsigned("==", taken, number(0, I32)), nobody, some)
        self._go(ir.IRBuilder(nobody), mask, block.index + 1)
        b.position_at_end(some)
        b.cbranch(b.icmp_unsigned("==", taken, mask), everybody, both)
        self._go_back_or_on(ir.IRBuilder(everybody), block, mask, target, None)
        b.position_at_end(both)
        add_to_counter(b, element_address(b, self._frame.slot(Slot.DIVERGED_AT), number(block.index), 8), number(1))
        self._put(b, b.and_(mask, b.not_(taken)), block.index + 1)
        self._go_back_or_on(b, block, taken, target, self._pick)

    def _go_back_or_on(
        self, b: ir.IRBuilder, block: BasicBlock, mask: ir.Value, target: int, after: ir.Block | None
    ) -> None:
        """Generates a branch to a block; a backward branch counts turns, and leaves the warp at their limit.

        Args:
            b: the builder.
            block: the block that ends with the branch.
            mask: the lanes that branch.
            target: the index of the block that they go to.
            after: the code that chooses among the waiting lanes of the warp; None if no others wait.
        """
        if is_backward(self._refined.decoded, block):
            turns = b.add(b.load(self._turns, typ=I64), number(1))
            b.store(turns, self._turns)
            over = b.icmp_unsigned(">=", turns, self._frame.slot(Slot.TURN))
            leave, stay = b.append_basic_block("turned"), b.append_basic_block("stays")
            b.cbranch(over, leave, stay)
            b.position_at_end(leave)
            self._put(b, mask, self._places.turned + block.index)
            b.branch(self._warp_done)
            b.position_at_end(stay)
        if after is None:
            self._go(b, mask, target)
        else:
            self._put(b, mask, target)
            b.branch(after)

    def _go(self, b: ir.IRBuilder, mask: ir.Value, target: int) -> None:
        """Continues at a piece: at once if no other lane of the warp runs, else with the first lanes in program order."""
        if target in self._starts:
            at_once, wait = b.append_basic_block("at_once"), b.append_basic_block("wait")
            b.cbranch(b.load(self._alone, typ=BOOL), at_once, wait)
            ir.IRBuilder(at_once).branch(self._starts[target])
            b.position_at_end(wait)
        self._put(b, mask, target)
        b.branch(self._pick)

    def _put(self, b: ir.IRBuilder, mask: ir.Value, place: int) -> None:
        """Records the position of lanes."""
        b.call(self._frame.helpers.put, [self._lane_places, mask, number(place, I32)])
