"""The registers of the lane at hand, as values of generated code."""

from __future__ import annotations

from llvmlite import ir

from kernelmate.backends.emulator.jit.emit import item, load, number
from kernelmate.backends.emulator.jit.frame import NativeFrame
from kernelmate.backends.emulator.jit.lowering import BOOL, DOUBLE, FLOAT, I64, type_of, widen
from kernelmate.backends.emulator.program import Immediate, Operand, Register, Sink, Special, Symbol
from kernelmate.backends.emulator.registers import immediate_bits
from kernelmate.backends.emulator.types import SIZES, is_signed


class LaneValues:
    """Register values of a lane at one point of the code; loaded on first read, and kept until the end of the lane."""

    def __init__(self, frame: NativeFrame) -> None:
        self._frame = frame
        self._env: dict[str, ir.Value] = {}
        self._b: ir.IRBuilder
        self._first: ir.Value

    def _at(self, lane: ir.Value) -> None:
        """Starts a lane of the warp whose first lane is number `_first`."""
        self._env.clear()
        self._lane = lane
        self._number = self._b.add(self._first, self._b.zext(lane, I64))

    def _element(self, name: str) -> ir.Value:
        return item(self._b, self._frame.array(name), self._number, self._frame.bits_of(name) // 8)

    def _register(self, name: str) -> ir.Value:
        """Returns a register's bits in its own width; a predicate as one bit."""
        frame, b = self._frame, self._b
        kind = ir.IntType(frame.bits_of(name))
        if name in frame.constants:
            return b.trunc(frame.uniform(("register", name)), BOOL if frame.is_predicate(name) else kind)
        found = self._env.get(name)
        if found is None:
            found = load(b, self._element(name), kind)
            if frame.is_predicate(name):
                found = b.trunc(found, BOOL)
            self._env[name] = found
        return found

    def _read(self, operand: Operand, kind: str) -> ir.Value:
        """Returns an operand as a value of a type."""
        b = self._b
        bits_ = BOOL if kind == "pred" else ir.IntType(8 * SIZES[kind])
        if isinstance(operand, Immediate):
            value = number(immediate_bits(operand, kind), bits_)
        elif isinstance(operand, Register):
            value = widen(b, self._register(operand.name), bits_, False)
            value = b.not_(value) if operand.negated else value
        elif isinstance(operand, Special):
            shared = self._frame.special(operand)
            value = widen(b, self._register(operand.name) if shared is None else shared, bits_, False)
        else:
            assert isinstance(operand, Symbol)
            value = widen(b, self._frame.symbol(operand), bits_, False)
        return b.bitcast(value, type_of(kind)) if kind in {"f32", "f64"} else value

    def _write(self, operand: Operand, kind: str, value: ir.Value, guard: ir.Value | None) -> None:
        """Writes a result to its register, which may be wider."""
        if isinstance(operand, Sink):
            return
        assert isinstance(operand, Register)
        b, frame = self._b, self._frame
        if value.type in (FLOAT, DOUBLE):
            value = b.bitcast(value, ir.IntType(8 * SIZES[kind]))
        if not frame.is_predicate(operand.name):
            value = widen(b, value, ir.IntType(frame.bits_of(operand.name)), is_signed(kind))
        if guard is not None:
            value = b.select(guard, value, self._register(operand.name))
        self._env[operand.name] = value
