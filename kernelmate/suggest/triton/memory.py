"""Rewrites of loads and stores of Triton kernels: eviction policies, masks, values of masked elements, wide loads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelmate.source import Edit
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.triton_contract import is_divisible, is_one
from kernelmate.suggest.triton.bounds import IndexBounds
from kernelmate.suggest.triton.program import TritonProgram, TritonRewrite

WIDEST = 16
"""Bytes of the widest load of a thread."""


# -------------------------------------------------------------------------------------------- eviction policy


def eviction_policies(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with policies by which data that is read again stays in the caches.

    `evict_last` for an array that every program reads, and for all but the last load of the same elements by one
    program; `evict_first` for elements that nothing reads again.
    """
    groups: dict[str, list[ast.Call]] = {}
    for call in program.calls("load"):
        address = program.given(call, "pointer")
        array = None if address is None else program.array(address)
        if array is not None:
            groups.setdefault(array, []).append(call)
    again: list[str] = []
    shared: list[str] = []
    once: list[str] = []
    edits: list[Edit] = []
    for array, calls in groups.items():
        if any(
            program.given(call, name) is not None for call in calls for name in ("eviction_policy", "cache_modifier")
        ):
            continue
        words = f"{array} ({_amount(program.array_bytes(array))})"
        same = len({_address_meaning(program, call) for call in calls}) == 1
        if all(_is_shared(program, call) for call in calls):
            shared.append(words)
            kept = calls
        elif same and _is_own(program, calls[0]):
            (again if len(calls) > 1 else once).append(words)
            kept = calls[:-1]
        else:
            continue
        edits += [
            program.added(call, f'eviction_policy="evict_{"last" if call in kept else "first"}"') for call in calls
        ]
    if (again or shared) and program.programs() > 1:
        groups_of = {
            f"which all {program.programs():,} programs read": ("evict_last", shared),
            "which a program reads again": ("evict_last", again),
            "read once": ("evict_first", once),
        }
        reasons = [
            f"{policy} for {' and '.join(several)}, {why}" for why, (policy, several) in groups_of.items() if several
        ]
        yield TritonRewrite(edits, "; ".join(reasons))


def _address_meaning(program: TritonProgram, call: ast.Call) -> str:
    address = program.given(call, "pointer")
    return "" if address is None else program.meaning(address)


def _is_shared(program: TritonProgram, call: ast.Call) -> bool:
    """Returns True if every program loads from the same addresses."""
    return not any(program.called(node) in ("program_id", "load") for node in _address_nodes(program, call))


def _is_own(program: TritonProgram, call: ast.Call) -> bool:
    """Returns True if no two programs load from the same address.

    Each axis of the grid must be in it without a division or remainder, which several programs would share.
    """
    nodes = list(_address_nodes(program, call))
    if any(program.called(node) not in ("", "program_id", "arange", "max_contiguous", "multiple_of") for node in nodes):
        return False
    if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div) for node in nodes):
        return False
    return {program.axis(node) for node in nodes} - {None} >= set(program.axes_used())


def _address_nodes(program: TritonProgram, call: ast.Call) -> list[ast.AST]:
    address = program.given(call, "pointer")
    return [] if address is None else list(program.closure(address))


def _amount(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


# ------------------------------------------------------------------------------------------------------ masks


def unneeded_masks(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel without the conditions that `require` makes true for all elements."""
    bounds = IndexBounds(program)
    edits: list[Edit] = []
    dropped = 0
    for call in program.calls("load", "store", "where"):
        if program.called(call) == "where":
            if len(call.args) == 3 and bounds.always(call.args[0]):
                edits.append(program.replaced(call, program.written(call.args[1])))
            continue
        mask = program.given(call, "mask")
        if mask is None or not bounds.always(mask):
            continue
        has_other = program.called(call) == "load" and program.given(call, "other") is not None
        removed = [program.removed(call, name) for name in (("mask", "other") if has_other else ("mask",))]
        if None in removed:
            return
        edits += [one for one in removed if one is not None]
        dropped += 1
    whole = [(start, end) for start, end, _ in edits]
    for node in _conjunctions(program):
        start, end = program.file.span(node)
        parts = list(_parts(node))
        left = [one for one in parts if not bounds.always(one)]
        if 0 < len(left) < len(parts) and not any(first <= start and end <= last for first, last in whole):
            written = [program.written(one) for one in left]
            edits.append((start, end, written[0] if len(written) == 1 else f"({') & ('.join(written)})"))
            dropped += 1
    if edits:
        known = f" ({', '.join(program.contract.require)})" if program.contract.require else ""
        words = "A mask has" if dropped == 1 else f"{dropped} masks have"
        yield TritonRewrite(edits, f"{words} comparisons that are true for all elements by the contract{known}")


def _conjunctions(program: TritonProgram) -> Iterator[ast.BinOp]:
    """Yields each outermost `a & b & ...`."""
    for node in program.nodes:
        if _is_and(node) and not _is_and(program.file.parents[node]):
            assert isinstance(node, ast.BinOp)
            yield node


def _is_and(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and _is_and(node):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


# ------------------------------------------------------------------------------------------------- wide loads


def wide_loads(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with sizes written as multiples of what `require` says divides them.

    Triton itself recognises only multiples of 16 (triton/runtime/jit.py, specialisation) and ignores `tl.multiple_of`
    of a parameter; from `n // 4 * 4` it derives that rows begin at a multiple of 4 elements.
    """
    bounds = IndexBounds(program)
    narrowest = min((ITEM_BYTES[one.dtype] for one in program.contract.args if one.shape is not None), default=WIDEST)
    lines, known_multiples = [], []
    for argument in program.contract.args:
        if argument.shape is not None or "int" not in argument.dtype or is_one(argument):
            continue
        multiple = bounds.multiple(argument.value or argument.name)
        together = min(multiple & -multiple, WIDEST // narrowest)
        known = is_divisible(argument, program.contract) or program.is_changed(argument.name)
        used = any(isinstance(node, ast.Name) and node.id == argument.name for node in program.nodes)
        if together > 1 and used and not known:
            lines.append(f"{argument.name} = {argument.name} // {together} * {together}")
            known_multiples.append(f"{argument.name} is a multiple of {together}")
    first = next((one for one in program.function.body if not _is_docstring(one)), None)
    if lines and first is not None:
        start, indent = program.line_start(first), program.indent(first)
        comment = f"{indent}# By the contract's require; so written, the compiler knows it and loads several elements at once.\n"
        text = comment + "".join(f"{indent}{line}\n" for line in lines)
        yield TritonRewrite(
            [(start, start, text)],
            f"{' and '.join(known_multiples)} by require, which the compiler does not know: neighbouring elements are loaded together",
        )


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# ------------------------------------------------------------------------------------------- masked elements


_NEUTRAL = {
    "max": '-float("inf")',
    "argmax": '-float("inf")',
    "min": 'float("inf")',
    "argmin": 'float("inf")',
    "sum": "0.0",
    "dot": "0.0",
}
"""Neutral elements of functions that combine elements."""


def neutral_elements(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with the neutral element of the first reduction as `other` of the masked loads that it combines."""
    edits, reasons = [], []
    reductions = program.calls(*_NEUTRAL)
    for call in program.calls("load"):
        if program.given(call, "mask") is None:
            continue
        reached = [
            program.called(one) for one in reductions for operand in one.args if call in program.closure(operand)
        ]
        address = program.given(call, "pointer")
        array = None if address is None else program.array(address)
        if not reached or array is None:
            continue
        neutral = _NEUTRAL[reached[0]]
        if "float" not in program.arguments[array].dtype:
            if neutral != "0.0":
                continue
            neutral = "0"
        other = program.given(call, "other")
        if other is None:
            edits.append(program.added(call, f"other={neutral}"))
        elif reached[0] not in ("sum", "dot") and not _is_number(other, neutral):
            edits.append(program.replaced(other, neutral))
        else:
            continue
        reasons.append(
            f"elements of {array} beyond the mask take part in tl.{reached[0]}, whose neutral element is {neutral}"
        )
    if edits:
        yield TritonRewrite(edits, "; ".join(reasons))


def _is_number(node: ast.expr, number: str) -> bool:
    """Returns True if an expression is written as this number, with the sign of an infinity before or within its text."""
    first, second = (
        re.sub(r"float\('-", "-float('", ast.unparse(one)) for one in (node, ast.parse(number, mode="eval"))
    )
    return first == second
