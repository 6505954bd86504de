"""Comparisons, selections and address conversions as LLVM instructions."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from kernelmate.backends.emulator.jit.floats import flush
from kernelmate.backends.emulator.jit.lowering import Form, NotNative, constant, is_float, is_signed, lowers
from kernelmate.backends.emulator.spaces import from_generic, to_generic

Values = Sequence[ir.Value]
_SIGNS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip


def _compare(b: ir.IRBuilder, name: str, kind: str, left: ir.Value, right: ir.Value) -> ir.Value:
    if not is_float(kind):
        if name not in _SIGNS:
            raise NotNative
        return (b.icmp_signed if is_signed(kind) else b.icmp_unsigned)(_SIGNS[name], left, right)
    if name in {"num", "nan"}:
        return b.fcmp_ordered("ord", left, right) if name == "num" else b.fcmp_unordered("uno", left, right)
    if name in _SIGNS:
        return b.fcmp_ordered(_SIGNS[name], left, right)
    if name[-1] == "u" and name[:-1] in _SIGNS:
        return b.fcmp_unordered(_SIGNS[name[:-1]], left, right)
    raise NotNative


@lowers("setp")
def lower_setp(b: ir.IRBuilder, form: Form, values: Values) -> tuple[ir.Value, ...]:
    """Compare, combine with another predicate, and set one or two predicates."""
    kind = form.sources[0]
    left, right, *third = values
    if form.has("ftz"):
        left, right = flush(b, left), flush(b, right)
    true = _compare(b, form.parts[1], kind, left, right)
    false = b.not_(true)
    combine = next((part for part in form.parts[2:-1] if part in {"and", "or", "xor"}), None)
    if (combine is None) != (not third):
        raise NotNative
    if combine is not None:
        join = {"and": b.and_, "or": b.or_, "xor": b.xor}[combine]
        true, false = join(true, third[0]), join(false, third[0])
    return (true, false)[: len(form.results)]


@lowers("selp")
def lower_select(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `selp`: the first operand if the predicate is true, else the second."""
    form.require()
    first, second, predicate = values
    return b.select(predicate, first, second)


@lowers("slct")
def lower_slct(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `slct`: the first operand if the third is not negative, else the second."""
    first, second, third = values
    if is_float(form.sources[2]):
        third = flush(b, third) if form.has("ftz") else third
        return b.select(b.fcmp_ordered(">=", third, constant(third, 0.0)), first, second)
    compare = b.icmp_signed if is_signed(form.sources[2]) else b.icmp_unsigned
    return b.select(compare(">=", third, constant(third, 0)), first, second)


@lowers("cvta")
def lower_address(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `cvta`: between addresses of a state space and generic ones."""
    import numpy as np

    space = next((part for part in form.parts[1:] if part not in {"to", "u64"}), "")
    convert = from_generic(space) if form.has("to") else to_generic(space)
    moved = int(convert(np.zeros(1, np.uint64))[0])
    return b.add(values[0], constant(values[0], moved)) if moved else values[0]
