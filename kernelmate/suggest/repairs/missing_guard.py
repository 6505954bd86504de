"""Adds the missing guard for threads past the end of an array: they return, or skip the access.

Thread indices are the variables that hold a position in the grid. The bound is an integer parameter of the kernel,
those in the array's shape first. If every thread must reach a barrier, only the reported accesses are guarded. An
access to a neighbouring element (`x[i - 1]`) outside of the array reads zero, or the nearest valid element.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import FindingCode
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import BOUNDS, FaultLocation, Repair, findings, simple_statements_at
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, integer_constants, read_tree
from kernelmate.suggest.syntax_effects import (
    BARRIERS,
    calls,
    element_accesses,
    indent_of,
    indent_step,
    index_of,
    is_written,
    root_name,
)
from kernelmate.suggest.syntax_loops import is_global_index

MOST = 6
_AXES = ("x", "y", "z")
_BEFORE = "before the start"


@dataclass(frozen=True, slots=True)
class ThreadBound:
    """A thread index and its exclusive upper bound."""

    number: str
    below: str


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields early returns if there is no barrier, then guards around the statements, then guarded reads."""
    tree = read_tree(request.kernel)
    spots = findings(request, BOUNDS, warnings=True)
    if tree is None or not spots:
        return
    numbers = _numbers(tree)
    guards = list(itertools.islice(_guards(request, tree, numbers, spots), MOST))
    for bounds in guards:
        if not calls(tree) & BARRIERS and numbers:
            yield _left_early(request, tree, numbers, bounds)
        guarded = _guarded_statements(request, tree, bounds, spots)
        if guarded is not None:
            yield guarded
    yield from _guarded_reads(request, tree, spots)


REPAIR = Repair("missing-guard", ("correct",), (), rewrites, BOUNDS)


def _numbers(tree: Tree) -> list[DeclaredVariable]:
    """Returns the variables that hold the thread's position along an axis of the grid, in order."""
    found = [
        variable
        for variable in tree.variables.values()
        if variable is not None
        and variable.value is not None
        and variable.declaration.parent is not None
        and variable.declaration.parent.id == tree.body.id
        and any(
            is_global_index(tree, variable.value, axis, width) for axis in _AXES for width in (None, *_widths(tree))
        )
    ]
    return sorted(found, key=lambda variable: variable.node.start_byte)


def _widths(tree: Tree) -> list[int]:
    return sorted({constant.value for constant in integer_constants(tree.kernel.unit.text).values()})


def _guards(
    request: SuggestRequest, tree: Tree, numbers: list[DeclaredVariable], spots: list[FaultLocation]
) -> Iterator[tuple[ThreadBound, ...]]:
    """Yields assignments of bounds to thread indices, the most probable first."""
    limits = _limits(request, spots)
    names = [variable.name for variable in numbers] or [text for text in [_written_out(tree)] if text is not None]
    whole = _whole(request, spots, limits)
    if not names:
        return
    if len(names) == 1:
        yield from ((ThreadBound(names[0], limit),) for limit in dict.fromkeys([*limits, *whole]))
        return
    # The innermost side of an array goes with x, which comes first: rows and columns are named the other way round.
    axes = [_axis(tree, variable) for variable in numbers]
    ordered = [name for _, name in sorted(zip(axes, names, strict=True), reverse=True)]
    for chosen in itertools.permutations(limits, min(len(names), len(limits))):
        yield tuple(ThreadBound(name, limit) for name, limit in zip(ordered, chosen, strict=False))


def _axis(tree: Tree, variable: DeclaredVariable) -> int:
    text = "" if variable.value is None else tree.text(variable.value)
    return next((place for place, axis in enumerate(_AXES) if f"threadIdx.{axis}" in text), 0)


def _written_out(tree: Tree) -> str | None:
    """Returns the expression of the thread's index if no variable holds it; None if there is none."""
    for node in tree.walk("binary_expression"):
        if is_global_index(tree, node):
            return tree.text(node)
    return None


def _limits(request: SuggestRequest, spots: list[FaultLocation]) -> list[str]:
    """Returns the names of integer parameters, those in the shapes of the overrun arrays first."""
    whole = [p.name for p in request.kernel.signature.parameters if not p.pointer and "int" in (p.dtype or "")]
    shapes = [" ".join(arg.shape or ()) for arg in request.contract.args if arg.name in {spot.buffer for spot in spots}]
    near = [name for shape in shapes for name in _words(shape) if name in whole]
    return list(dict.fromkeys([*near, *whole]))


def _whole(request: SuggestRequest, spots: list[FaultLocation], limits: list[str]) -> list[str]:
    """Returns the element counts, as text, of multidimensional arrays whose sides are all parameters."""
    shapes = [arg.shape for arg in request.contract.args if arg.shape and arg.name in {spot.buffer for spot in spots}]
    return [" * ".join(shape) for shape in shapes if len(shape) > 1 and set(shape) <= set(limits)]


def _words(text: str) -> list[str]:
    return [
        word for word in "".join(c if c.isalnum() or c == "_" else " " for c in text).split() if not word[0].isdigit()
    ]


def _left_early(
    request: SuggestRequest, tree: Tree, numbers: list[DeclaredVariable], bounds: tuple[ThreadBound, ...]
) -> Rewrite:
    """Returns a rewrite that inserts `if (i >= n) return;` after the last of the thread indices."""
    last = max(variable.declaration.end_byte for variable in numbers)
    node = next(variable.declaration for variable in numbers if variable.declaration.end_byte == last)
    end = tree.span(node)[1]
    condition = " || ".join(f"{bound.number} >= {bound.below}" for bound in bounds)
    edit = (end, end, f"\n{indent_of(tree, node)}if ({condition}) return;")
    said = " and ".join(f"{bound.number} from {bound.below} on" for bound in bounds)
    return Rewrite(apply_edits(request.kernel, [edit]), request.contract, f"Threads with {said} have no element of their own: they return early.")  # fmt: skip


def _guarded_statements(
    request: SuggestRequest, tree: Tree, bounds: tuple[ThreadBound, ...], spots: list[FaultLocation]
) -> Rewrite | None:
    """Returns a rewrite with `if (i < n)` before each reported statement; a declaration gets zero outside the bound."""
    inside = " && ".join(f"{bound.number} < {bound.below}" for bound in bounds)
    edits: list[Edit] = []
    found = [node for spot in spots for node in simple_statements_at(tree, spot)]
    for statement in {node.id: node for node in found}.values():
        edits += _guard(request, tree, statement, inside)
    if not edits:
        return None
    why = f"Only threads with {inside} have an element there; the others skip the access."
    return Rewrite(apply_edits(request.kernel, edits), request.contract, why)


def _guard(request: SuggestRequest, tree: Tree, statement: Node, inside: str) -> Iterator[Edit]:
    reads = [e for e in element_accesses(tree, statement) if not is_written(tree, e) and _parameter(request, tree, e)]
    start, end = tree.span(statement)
    stores_shared = any(
        is_written(tree, e) and not _parameter(request, tree, e) for e in element_accesses(tree, statement)
    )
    if statement.type == "declaration" or stores_shared:
        # Every thread needs the variable, and every element of a shared array a value.
        for element in reads:
            yield tree.replace(element, f"({inside} ? {tree.text(element)} : {_zero(request, tree, element)})")
    elif statement.type == "expression_statement":
        if "\n" in tree.text(statement):
            indent, step = indent_of(tree, statement), indent_step(tree)
            yield start, start, f"if ({inside}) {{\n{indent}{step}"
            yield end, end, f"\n{indent}}}"
        else:
            yield start, start, f"if ({inside}) "


def _parameter(request: SuggestRequest, tree: Tree, element: Node) -> str | None:
    """Returns the array parameter that an element belongs to; None for other arrays."""
    name = root_name(tree, element)
    return name if name in {p.name for p in request.kernel.signature.parameters if p.pointer} else None


def _zero(request: SuggestRequest, tree: Tree, element: Node) -> str:
    name = root_name(tree, element)
    base = next((p.base for p in request.kernel.signature.parameters if p.name == name), "float")
    return f"({base})0"


def _guarded_reads(request: SuggestRequest, tree: Tree, spots: list[FaultLocation]) -> Iterator[Rewrite]:
    """Yields two rewrites of reads outside an array's bounds: they return zero, or the nearest element."""
    sizes = {arg.name: arg.shape for arg in request.contract.args if arg.shape}
    zeros: list[Edit] = []
    nearest: list[Edit] = []
    for spot in spots:
        shape = sizes.get(spot.buffer or "")
        if shape is None or spot.code == FindingCode.OUT_OF_BOUNDS_WRITE:
            continue
        size = " * ".join(side if side.isidentifier() or side.isdigit() else f"({side})" for side in shape)
        elements = (e for node in simple_statements_at(tree, spot) for e in element_accesses(tree, node))
        for element in elements:
            index = index_of(element)
            beside = index is not None and index.type == "binary_expression"
            if root_name(tree, element) != spot.buffer or index is None or is_written(tree, element) or not beside:
                continue
            text = tree.text(index)
            low = _BEFORE in spot.message
            sign, other = (
                (f"{text} >= 0", f"max({text}, 0)") if low else (f"{text} < {size}", f"min({text}, {size} - 1)")
            )
            zeros.append(tree.replace(element, f"({sign} ? {tree.text(element)} : {_zero(request, tree, element)})"))
            nearest.append(tree.replace(index, other))
    for edits, what in ((zeros, "zero is used instead"), (nearest, "the nearest one is used instead")):
        chosen = list(dict.fromkeys(edits))
        if chosen:
            why = f"There is no such element outside of the array: {what}."
            yield Rewrite(apply_edits(request.kernel, chosen), request.contract, why)
