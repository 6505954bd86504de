"""Helpers that every part of the generated code uses: access to memory by address, and loops over lanes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from kernelmate.backends.emulator.jit.lowering import I32, I64, intrinsic

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
    """Write a value to an integer address."""
    b.store(value, b.inttoptr(address, POINTER), align=align or max(1, _bytes(value.type)))


def _bytes(kind: ir.Type) -> int:
    return kind.width // 8 if isinstance(kind, ir.IntType) else 8


def whole(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Broadcasts a value to every lane of a warp."""
    kind = ir.VectorType(value.type, 32)
    first = b.insert_element(ir.Constant(kind, None), value, number(0, I32))
    return b.shuffle_vector(first, ir.Constant(kind, None), ir.Constant(ir.VectorType(I32, 32), [0] * 32))


def item(b: ir.IRBuilder, base: ir.Value, index: ir.Value, size: int) -> ir.Value:
    """Returns the address of an element."""
    return b.add(base, b.mul(b.zext(index, I64) if index.type != I64 else index, number(size)))


def bump(b: ir.IRBuilder, address: ir.Value, amount: ir.Value) -> None:
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


def table(b: ir.IRBuilder, kind: ir.Type, size: int) -> ir.Value:
    """Allocates an array on the stack; returns its address as an integer. The builder must be in the function's entry."""
    return b.ptrtoint(b.alloca(ir.ArrayType(kind, size)), I64)
