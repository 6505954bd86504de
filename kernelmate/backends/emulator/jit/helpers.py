"""Helper functions of generated code: buffer lookup by address, sectors, wavefronts, and records of stores."""

from __future__ import annotations

from llvmlite import ir

from kernelmate.backends.emulator.jit.layout import FIELD_BYTES, Field, Slot
from kernelmate.backends.emulator.jit.lowering import (
    BOOL,
    CHOSEN,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    add_to_counter,
    broadcast,
    counting,
    each_lane,
    element_address,
    intrinsic,
    load,
    number,
    stack_array,
    store,
)
from kernelmate.backends.emulator.spaces import BUFFER_SPACING, GLOBAL_BASE

_SPACING_SHIFT = BUFFER_SPACING.bit_length() - 1
_BANKS = 32


def field(b: ir.IRBuilder, buffer: ir.Value, which: Field) -> ir.Value:
    """Loads a field of a buffer's table."""
    return load(b, b.add(buffer, number(8 * which)))


class HelperFunctions:
    """The helper functions of one module, each generated on first use."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._made: dict[str, ir.Function] = {}

    def function(self, name: str, result: ir.Type, *arguments: ir.Type) -> tuple[ir.Function, ir.IRBuilder | None]:
        """Returns a function by name, and a builder if it is new."""
        if name in self._made:
            return self._made[name], None
        return self._function(name, result, *arguments)

    def _function(self, name: str, result: ir.Type, *arguments: ir.Type) -> tuple[ir.Function, ir.IRBuilder]:
        function = ir.Function(self._module, ir.FunctionType(result, arguments), name)
        function.linkage = "internal"
        # Inlining at every access would multiply code size and compile time.
        function.attributes.add("noinline")
        self._made[name] = function
        return function, ir.IRBuilder(function.append_basic_block("entry"))

    @property
    def find(self) -> ir.Function:
        """Returns the function that finds the buffer which contains all bytes of an access and permits it.

        Its arguments are (context, address, bytes, writes); its result is 0 for none.
        """
        if "find" in self._made:
            return self._made["find"]
        function, b = self._function("find", I64, I64, I64, I64, I64)
        context, address, extent, writes = function.args
        slot = b.lshr(b.sub(address, number(GLOBAL_BASE)), number(_SPACING_SHIFT))
        known = b.icmp_unsigned("<", slot, load(b, b.add(context, number(8 * Slot.BUFFERS))))
        nothing = number(0)
        with b.if_then(b.not_(known)):
            b.ret(nothing)
        buffer = b.add(load(b, b.add(context, number(8 * Slot.BUFFERS_AT))), b.mul(slot, number(FIELD_BYTES)))
        room = b.sub(field(b, buffer, Field.SIZE), extent)
        inside = b.icmp_unsigned("<=", b.sub(address, field(b, buffer, Field.START)), room)
        fits = b.and_(inside, b.icmp_signed(">=", room, nothing))
        allowed = b.or_(
            b.icmp_unsigned("==", writes, nothing),
            b.icmp_unsigned("!=", field(b, buffer, Field.WRITABLE), nothing),
        )
        b.ret(b.select(b.and_(fits, allowed), buffer, nothing))
        return function

    def note(self, stores: bool) -> ir.Function:
        """Returns the function that records a store, or a load of unwritten bytes.

        Its arguments are (context, buffer, offset from its origin, bytes).
        """
        name = "note_store" if stores else "note_load"
        if name in self._made:
            return self._made[name]
        function, b = self._function(name, VOID, I64, I64, I64, I64)
        context, buffer, offset, extent = function.args
        shift = load(b, b.add(context, number(8 * Slot.GRANULE_SHIFT)))
        first = b.add(field(b, buffer, Field.STORED_AT), b.lshr(offset, shift))
        granules = b.lshr(extent, shift)
        granules = b.select(b.icmp_unsigned("==", granules, number(0)), number(1), granules)
        with counting(b, granules) as index:
            at = b.add(first, index)
            if stores:
                store(b, number(1, I8), at)
            else:
                with b.if_then(b.icmp_unsigned("==", load(b, at, I8), number(0, I8))):
                    # Read before written: from now on the buffer counts as read, and nothing more is recorded.
                    store(b, number(0), b.add(buffer, number(8 * Field.NOTED)))
        b.ret_void()
        return function

    @property
    def put(self) -> ir.Function:
        """Returns the function (address of a warp's places, lanes, place) that sets the position of these lanes."""
        if "put" in self._made:
            return self._made["put"]
        function, b = self._function("put", VOID, I64, I32, I32)
        places, mask, place = function.args
        at = b.inttoptr(places, POINTER)
        standing = b.load(at, typ=ir.VectorType(I32, 32), align=4)
        b.store(b.select(b.bitcast(mask, CHOSEN), broadcast(b, place), standing), at, align=4)
        b.ret_void()
        return function

    @property
    def took(self) -> ir.Function:
        """Returns the function (address of a warp's counts, lanes, instructions) that adds to the counts of these lanes."""
        if "took" in self._made:
            return self._made["took"]
        function, b = self._function("took", VOID, I64, I32, I64)
        counts, mask, steps = function.args
        kind = ir.VectorType(I64, 32)
        amount = b.select(b.bitcast(mask, CHOSEN), broadcast(b, steps), ir.Constant(kind, None))
        at = b.inttoptr(counts, POINTER)
        b.store(b.add(b.load(at, typ=kind, align=8), amount), at, align=8)
        b.ret_void()
        return function

    @property
    def sectors(self) -> ir.Function:
        """Returns the function (address of 32 addresses, lanes) that counts distinct 32-byte sectors.

        The upper half of its result counts 128-byte lines.
        """
        if "sectors" in self._made:
            return self._made["sectors"]
        function, b = self._function("sectors", I64, I64, I32)
        addresses, mask = function.args
        seen = stack_array(b, I64, 32)
        last, count, falls, lines = (b.alloca(I64) for _ in range(4))
        for variable, value in ((last, -4), (count, 0), (falls, 0), (lines, 0)):
            b.store(number(value), variable)
        with each_lane(b, mask) as lane:
            sector = b.lshr(load(b, element_address(b, addresses, lane, 8)), number(5))
            before = b.load(last)
            with b.if_then(b.icmp_signed("!=", sector, before)):
                b.store(b.or_(b.load(falls), b.zext(b.icmp_signed("<", sector, before), I64)), falls)
                store(b, sector, element_address(b, seen, b.load(count), 8))
                b.store(b.add(b.load(count), number(1)), count)
                other_line = b.icmp_signed("!=", b.ashr(sector, number(2)), b.ashr(before, number(2)))
                b.store(b.add(b.load(lines), b.zext(other_line, I64)), lines)
                b.store(sector, last)
        with b.if_then(b.icmp_unsigned("==", b.load(falls), number(0))):
            b.ret(b.or_(b.load(count), b.shl(b.load(lines), number(32))))
        # A sector follows a higher one: count those not among the preceding ones.
        distinct = self._distinct(b, seen, b.load(count), 0)
        b.ret(b.or_(distinct, b.shl(self._distinct(b, seen, b.load(count), 2), number(32))))
        return function

    @staticmethod
    def _distinct(b: ir.IRBuilder, seen: ir.Value, count: ir.Value, shift: int) -> ir.Value:
        """Number of different numbers in a table, each shifted right."""
        distinct, known = b.alloca(I64), b.alloca(BOOL)
        b.store(number(0), distinct)
        with counting(b, count) as index:
            mine = b.lshr(load(b, element_address(b, seen, index, 8)), number(shift))
            b.store(number(0, BOOL), known)
            with counting(b, index) as earlier:
                same = b.icmp_unsigned("==", mine, b.lshr(load(b, element_address(b, seen, earlier, 8)), number(shift)))
                b.store(b.or_(b.load(known), same), known)
            b.store(b.add(b.load(distinct), b.zext(b.not_(b.load(known)), I64)), distinct)
        return b.load(distinct)

    def wavefronts(self, size: int) -> ir.Function:
        """Returns the function (address of 32 offsets, lanes) that counts wavefronts.

        The upper half of its result counts the groups of lanes served together.
        """
        wide = max(1, size // 4)
        name = f"wavefronts{wide}"
        if name in self._made:
            return self._made[name]
        part_function = self._part(wide)
        paired = self._paired if wide > 1 else None
        function, b = self._function(name, I64, I64, I32)
        offsets, mask = function.args
        total = b.alloca(I64)
        b.store(number(0), total)

        def serve(chosen: ir.Value) -> None:
            with b.if_then(b.icmp_unsigned("!=", chosen, number(0, I32))):
                depth = b.call(part_function, [offsets, chosen])
                b.store(b.add(b.load(total), b.or_(depth, number(1 << 32))), total)

        lanes = 32 // wide
        for part in range(0, wide, 2):
            first, second = (
                b.and_(mask, number(((1 << lanes) - 1) << (index * lanes), I32)) for index in (part, part + 1)
            )
            if paired is None:
                serve(mask)
                continue
            both = b.or_(first, second)
            together = b.or_(*(b.call(paired, [offsets, both, number(step, I32)]) for step in (1, 2)))
            with b.if_else(together) as (yes, no):
                with yes:
                    serve(both)
                with no:
                    serve(first)
                    serve(second)
        b.ret(b.load(total))
        return function

    @property
    def _paired(self) -> ir.Function:
        """Returns the function that is true if each lane has the address of lane ^ step, wherever that lane is active.

        Its arguments are (address of 32 offsets, lanes, step).
        """
        if "paired" in self._made:
            return self._made["paired"]
        function, b = self._function("paired", BOOL, I64, I32, I32)
        offsets, mask, step = function.args
        alike = b.alloca(BOOL)
        b.store(number(1, BOOL), alike)
        with each_lane(b, mask) as lane:
            other = b.xor(b.trunc(lane, I32), step)
            active = b.trunc(b.lshr(mask, other), BOOL)
            mine = load(b, element_address(b, offsets, lane, 8))
            same = b.icmp_unsigned("==", mine, load(b, element_address(b, offsets, b.zext(other, I64), 8)))
            b.store(b.and_(b.load(alike), b.or_(same, b.not_(active))), alike)
        b.ret(b.load(alike))
        return function

    def _part(self, wide: int) -> ir.Function:
        """Returns the function (address of 32 offsets, lanes) that gives the maximum of distinct words in one bank."""
        function, b = self._function(f"depth{wide}", I64, I64, I32)
        offsets, mask = function.args
        depths = stack_array(b, I64, _BANKS)
        words = stack_array(b, I64, _BANKS * 32)
        deepest, known = b.alloca(I64), b.alloca(BOOL)
        b.store(number(0), deepest)
        with counting(b, number(_BANKS)) as bank:
            store(b, number(0), element_address(b, depths, bank, 8))
        with each_lane(b, mask) as lane:
            first = b.ashr(load(b, element_address(b, offsets, lane, 8)), number(2))
            for index in range(wide):
                word = b.add(first, number(index))
                bank = b.and_(word, number(_BANKS - 1))
                depth = load(b, element_address(b, depths, bank, 8))
                row = element_address(b, words, bank, 8 * 32)
                b.store(number(0, BOOL), known)
                with counting(b, depth) as earlier:
                    same = b.icmp_unsigned("==", word, load(b, element_address(b, row, earlier, 8)))
                    b.store(b.or_(b.load(known), same), known)
                with b.if_then(b.not_(b.load(known))):
                    store(b, word, element_address(b, row, depth, 8))
                    add_to_counter(b, element_address(b, depths, bank, 8), number(1))
                    more = b.add(depth, number(1))
                    top = b.load(deepest)
                    b.store(b.select(b.icmp_unsigned(">", more, top), more, top), deepest)
        b.ret(b.load(deepest))
        return function


def bits(b: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Number of lanes in a mask."""
    return b.zext(intrinsic(b, "llvm.ctpop", [mask]), I64)
