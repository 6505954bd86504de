"""Lowering of operations to LLVM instructions: a registry by opcode name, and helpers of all generated code.

The helpers access memory by address, loop over lanes, and exchange values between lanes. Shuffles, votes and warp
barriers have a native form where all 32 lanes are present and named by every mask. Any other case is left to the
scheduler, which waits for missing lanes and reports wrong masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from kernelmate.backends.emulator.decode import DecodedStep
from kernelmate.backends.emulator.operations import Shuffle, Vote, WarpBarrier
from kernelmate.backends.emulator.types import FLOATS, SIZES

BOOL = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
FLOAT = ir.FloatType()
DOUBLE = ir.DoubleType()


class NotNative(Exception):
    """The operation, or this form of it, has no native form, and NumPy executes it."""


@dataclass(frozen=True, slots=True)
class Form:
    """Operation to be lowered: the opcode's parts, and the types of results and sources as `Compute` has them."""

    parts: tuple[str, ...]
    results: tuple[str, ...]
    sources: tuple[str, ...]

    def has(self, qualifier: str) -> bool:
        """True if the qualifier is among the opcode's parts."""
        return qualifier in self.parts[1:]

    def require(self, *known: str) -> None:
        """Raises NotNative if there is any other qualifier (apart from types)."""
        for part in self.parts[1:]:
            if part not in known and part not in SIZES:
                raise NotNative


_NARROW = FLOATS - {"f32", "f64"}
"""Formats without native arithmetic; some of their operations act on plain bits, but differ from those for integers."""
Lowering = Callable[[ir.IRBuilder, Form, Sequence[ir.Value]], Any]
"""Function from one value per source, typed as its kind, to the result, or to a tuple of results."""

LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a lowering for opcodes of these names."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


def type_of(kind: str) -> ir.Type:
    """Returns the LLVM type of a PTX type's values; of narrow floats it is that of their bits.

    Raises:
        NotNative: it has no native type.
    """
    if kind == "pred":
        return BOOL
    if kind == "f32":
        return FLOAT
    if kind == "f64":
        return DOUBLE
    if (kind[0] in "usb" and kind[1:].isdigit()) or kind in _NARROW:
        return ir.IntType(8 * SIZES[kind])
    raise NotNative


def is_float(kind: str) -> bool:
    """True if it is a type with native float arithmetic."""
    return kind in {"f32", "f64"}


def is_signed(kind: str) -> bool:
    """True if it is a signed integer type."""
    return kind[0] == "s" and kind[1:].isdigit()


def constant(value: ir.Value, number: float) -> ir.Constant:
    """Returns a constant of another value's type."""
    return ir.Constant(value.type, number)


def intrinsic(b: ir.IRBuilder, name: str, arguments: Sequence[ir.Value], *types: ir.Type) -> ir.Value:
    """Calls an LLVM intrinsic whose result has its first argument's type."""
    kinds = types or (arguments[0].type,)
    kind = ir.FunctionType(arguments[0].type, [argument.type for argument in arguments])
    return b.call(b.module.declare_intrinsic(name, kinds, kind), arguments)


def widen(b: ir.IRBuilder, value: ir.Value, target: ir.Type, signed: bool) -> ir.Value:
    """Returns an integer extended or truncated to a width."""
    if value.type.width == target.width:
        return value
    if value.type.width > target.width:
        return b.trunc(value, target)
    return b.sext(value, target) if signed else b.zext(value, target)


def lower(b: ir.IRBuilder, form: Form, values: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
    """Returns the results of an operation.

    Raises:
        NotNative: it has no native form.
    """
    found = LOWERINGS.get(form.parts[0])
    if found is None or (form.parts[0] != "cvt" and not _NARROW.isdisjoint(form.parts)):
        raise NotNative
    results = found(b, form, values)
    return results if isinstance(results, tuple) else (results,)


POINTER = ir.PointerType()
VOID = ir.VoidType()
CHOSEN = ir.VectorType(ir.IntType(1), 32)
"""Mask vector of a warp's lanes, the first lane in the lowest bit."""


def number(value: int, kind: ir.Type = I64) -> ir.Constant:
    """Returns an integer constant."""
    return ir.Constant(kind, value)


def load(b: ir.IRBuilder, address: ir.Value, kind: ir.Type = I64, align: int | None = None) -> ir.Value:
    """Returns the value at an integer address."""
    return b.load(b.inttoptr(address, POINTER), typ=kind, align=align or max(1, _bytes(kind)))


def store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int | None = None) -> None:
    """Writes a value to an integer address."""
    b.store(value, b.inttoptr(address, POINTER), align=align or max(1, _bytes(value.type)))


def _bytes(kind: ir.Type) -> int:
    return kind.width // 8 if isinstance(kind, ir.IntType) else 8


def broadcast(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Broadcasts a value to every lane of a warp."""
    kind = ir.VectorType(value.type, 32)
    first = b.insert_element(ir.Constant(kind, None), value, number(0, I32))
    return b.shuffle_vector(first, ir.Constant(kind, None), ir.Constant(ir.VectorType(I32, 32), [0] * 32))


def element_address(b: ir.IRBuilder, base: ir.Value, index: ir.Value, size: int) -> ir.Value:
    """Returns the address of an element."""
    return b.add(base, b.mul(b.zext(index, I64) if index.type != I64 else index, number(size)))


def add_to_counter(b: ir.IRBuilder, address: ir.Value, amount: ir.Value) -> None:
    """Add to the 64-bit counter at an address."""
    store(b, b.add(load(b, address), amount), address)


@contextmanager
def each_lane(b: ir.IRBuilder, mask: ir.Value) -> Iterator[ir.Value]:
    """Context manager: its code runs for every set bit of a non-zero mask, lowest first."""
    before = b.block
    body, after = b.append_basic_block("lane"), b.append_basic_block("lanes_done")
    b.branch(body)
    b.position_at_end(body)
    left = b.phi(I32, "left")
    left.add_incoming(mask, before)
    yield intrinsic(b, "llvm.cttz", [left, ir.Constant(ir.IntType(1), 1)], I32)
    rest = b.and_(left, b.sub(left, number(1, I32)))
    left.add_incoming(rest, b.block)
    b.cbranch(b.icmp_unsigned("!=", rest, number(0, I32)), body, after)
    b.position_at_end(after)


@contextmanager
def counting(b: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """Context manager: its code runs for 0 to count - 1."""
    before = b.block
    head, body, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(count.type, "index")
    index.add_incoming(ir.Constant(count.type, 0), before)
    b.cbranch(b.icmp_unsigned("<", index, count), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, ir.Constant(count.type, 1)), b.block)
    b.branch(head)
    b.position_at_end(after)


def stack_array(b: ir.IRBuilder, kind: ir.Type, size: int) -> ir.Value:
    """Allocates an array on the stack; returns its address as an integer. The builder must be in the function's entry."""
    return b.ptrtoint(b.alloca(ir.ArrayType(kind, size)), I64)


EVERYONE = -1
_VOTES = frozenset({"ballot", "all", "any", "uni"})


def exchanges(step: DecodedStep) -> bool:
    """True if the step has a native form among whole warps."""
    operation = step.operation
    if step.guard is not None:
        return False
    if isinstance(operation, Vote):
        return operation.mode in _VOTES
    return isinstance(operation, Shuffle | WarpBarrier)


def source_lane(
    b: ir.IRBuilder, mode: str, own: ir.Value, lane: ir.Value, clamp: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Returns the lane that a lane reads from (itself if outside its segment), and whether it is within (PTX, shfl)."""
    lane = b.and_(lane, number(31, I32))
    bound = b.and_(clamp, number(31, I32))
    segment = b.and_(b.lshr(clamp, number(8, I32)), number(31, I32))
    lowest = b.and_(own, segment)
    highest = b.or_(lowest, b.and_(bound, b.not_(segment)))
    source = {
        "up": lambda: b.sub(own, lane),
        "down": lambda: b.add(own, lane),
        "bfly": lambda: b.xor(own, lane),
        "idx": lambda: b.or_(lowest, b.and_(lane, b.not_(segment))),
    }[mode]()
    valid = b.icmp_signed(">=" if mode == "up" else "<=", source, highest)
    return b.select(valid, source, own), valid


def vote_result(b: ir.IRBuilder, mode: str, bits: ir.Value) -> ir.Value:
    """Returns the result of a vote for every lane, from the lanes whose predicate is true."""
    nobody, everybody = number(0, I32), number(EVERYONE, I32)
    results: dict[str, Callable[[], ir.Value]] = {
        "ballot": lambda: bits,
        "all": lambda: b.icmp_unsigned("==", bits, everybody),
        "any": lambda: b.icmp_unsigned("!=", bits, nobody),
        "uni": lambda: b.or_(b.icmp_unsigned("==", bits, everybody), b.icmp_unsigned("==", bits, nobody)),
    }
    return results[mode]()
