"""Reorders an index that is split by division and remainder: the contiguous coordinate becomes its lowest part.

Applies to one-dimensional launches whose thread index becomes coordinates by `/` and `%`, if a coordinate other than
the lowest is contiguous in memory, so that neighbouring threads access distant elements. Other threads then compute
each element, with the same results. Improves global traffic and time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim, Contract
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.exchange_axes import by_stride, in_kernel
from kernelmate.suggest.strides import lanes_of
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import constant_after_start, operator, plain
from kernelmate.suggest.syntax_loops import global_index


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A part of an index, `number / divisor % modulus`.

    `divisor` and `modulus` are lists of factors; without a modulus the part is the whole quotient.
    """

    divisor: tuple[str, ...]
    modulus: tuple[str, ...] | None


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate: the same coordinates, ordered by their strides."""
    tree = read_tree(request.kernel)
    lanes = None if tree is None else lanes_of(tree, request.contract)
    number = None if tree is None else global_index(tree, "x", lanes.shape.block[0] if lanes is not None else None)
    if tree is None or lanes is None or number is None or "__shared__" in request.kernel.source or "__shfl" in request.kernel.source:  # fmt: skip
        return
    parts = _parts(tree, number)
    extents = None if _indexes(tree, number, parts) else coordinates_of(tree, request.contract, number)
    order = None if extents is None else by_stride(lanes, list(extents))
    if extents is None or order is None or order[0] == next(iter(extents)):
        return
    edits = _edits(tree, number, extents, order)
    gone = [name for name in parts if name not in extents]
    edits += [edit for name in gone for edit in _removed(tree, name)]
    why = f"`{number}` is split with `{next(iter(extents))}` as its lowest part, but `{order[0]}` is contiguous in memory; split the other way, neighbouring threads access neighbouring elements."  # fmt: skip
    yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (Claim(r"; split the other way, neighbouring threads access neighbouring elements", "global_bytes"),)
RECIPE = Recipe("flat-order", ("time", "global_bytes"), (), rewrites, claims=CLAIMS)


def coordinates_of(tree: Tree, contract: Contract, number: str) -> dict[str, str] | None:
    """Returns the coordinates that a flat index is divided into, lowest first, with their extents as kernel expressions."""
    final = _coordinates(tree, _parts(tree, number))
    return None if final is None else _extents(tree, contract, final)


def _parts(tree: Tree, number: str) -> dict[str, IndexPart]:
    """Returns every variable that is a part of the flat index, in order of declaration."""
    found: dict[str, IndexPart] = {number: IndexPart((), None)}
    for name, variable in tree.variables.items():
        if variable is None or variable.value is None or variable.pointers or name == number:
            continue
        part = _part(tree, variable.value, found) if constant_after_start(tree, name) else None
        if part is not None:
            found[name] = part
    del found[number]
    return found


def _part(tree: Tree, node: Node, known: dict[str, IndexPart]) -> IndexPart | None:
    node = strip_parentheses(node)
    if node.type == "identifier":
        return known.get(tree.text(node))
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type != "binary_expression" or left is None or right is None:
        return None
    base, factors = _part(tree, left, known), _factors(tree, right)
    if base is None or factors is None:
        return None
    if operator(tree, node) == "%":
        return IndexPart(base.divisor, factors)
    if operator(tree, node) != "/":
        return None
    modulus = base.modulus
    if modulus is not None:
        rest = list(modulus)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        modulus = tuple(rest)
    return IndexPart((*base.divisor, *factors), modulus)


def _factors(tree: Tree, node: Node) -> tuple[str, ...] | None:
    """Returns the factors of a product of unchanging names and numbers."""
    found: list[str] = []
    for text in plain(tree, node).replace("(", "").replace(")", "").split("*"):
        variable = tree.variable(text)
        if not re.fullmatch(r"\w+", text):
            return None
        if variable is None or variable.declaration.type != "declaration":
            found.append(text)
            continue
        inner = None if variable.value is None else _factors(tree, variable.value)
        if inner is None or not constant_after_start(tree, text):
            return None
        found += inner
    return tuple(found)


def _coordinates(tree: Tree, parts: dict[str, IndexPart]) -> dict[str, IndexPart] | None:
    """Returns the parts that together make up the index, lowest first; None if they do not, or if it has other uses."""
    final: dict[str, IndexPart] = {}
    divisor: tuple[str, ...] = ()
    while True:
        fitting = [
            name for name, part in parts.items() if sorted(part.divisor) == sorted(divisor) and name not in final
        ]
        used = [name for name in fitting if _used_beside(tree, name, parts)]
        if len(used) != 1:
            return None
        part = parts[used[0]]
        final[used[0]] = part
        if part.modulus is None:
            break
        divisor = (*divisor, *part.modulus)
    others = [name for name in parts if name not in final and _used_beside(tree, name, parts)]
    return None if others or len(final) < 2 else final


def _used_beside(tree: Tree, name: str, parts: dict[str, IndexPart]) -> bool:
    """Returns True if the part is used outside the declarations of other parts."""
    spans = [_span(tree.variable(other)) for other in parts]
    return any(not any(low <= use.start_byte < high for low, high in spans) for use in tree.uses(name))


def _span(variable: DeclaredVariable | None) -> tuple[int, int]:
    return (0, 0) if variable is None else (variable.node.start_byte, variable.node.end_byte)


def _indexes(tree: Tree, number: str, parts: dict[str, IndexPart]) -> bool:
    """Returns True if the flat index itself is used as an index, which the rewrite would not follow."""
    spans = [_span(tree.variable(other)) for other in parts]
    for use in tree.uses(number):
        node = use
        while node.parent is not None and node.parent.type != "function_definition":
            if node.parent.type in {"subscript_argument_list", "subscript_expression", "init_declarator"} and not any(
                low <= use.start_byte < high for low, high in spans
            ):
                return True
            node = node.parent
    return False


def _extents(tree: Tree, contract: Contract, final: dict[str, IndexPart]) -> dict[str, str] | None:
    """Returns the extent of each coordinate as an expression in the kernel; None if one of them is unknown."""
    found: dict[str, str] = {}
    taken: list[str] = []
    for name, part in final.items():
        if part.modulus is not None:
            found[name] = _product(list(part.modulus))
            taken += part.modulus
            continue
        last = _rest(tree, contract, taken)
        if last is None:
            return None
        found[name] = last
    return found


def _rest(tree: Tree, contract: Contract, taken: list[str]) -> str | None:
    """Returns the number of threads, or the size of an array, divided by the extents `taken`.

    The result is None if the extents are not factors of it.
    """
    match = re.fullmatch(r"\s*cdiv\(\s*(.+?)\s*,\s*\w+\s*\)\s*", contract.grid[0])
    totals = [] if match is None else [re.split(r"\s*\*\s*", match[1])]
    totals += [list(argument.shape) for argument in contract.args if argument.shape is not None]
    values = {**contract.sizes[0]}
    for total in totals:
        rest = [part.strip("() ") for part in total]
        for factor in taken:
            same = next((p for p in rest if p == factor or (p.isdigit() and str(values.get(factor)) == p)), None)
            if same is None:
                break
            rest.remove(same)
        else:
            text = None if not rest else in_kernel(tree, contract, " * ".join(rest))
            if text is not None:
                return text
    return None


def _product(factors: list[str]) -> str:
    return factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"


def _edits(tree: Tree, number: str, extents: dict[str, str], order: list[str]) -> list[Edit]:
    edits: list[Edit] = []
    below: list[str] = []
    for place, name in enumerate(order):
        variable = tree.variable(name)
        if variable is None or variable.value is None:
            return []
        text = number if not below else f"{number} / {_product(below)}"
        if place < len(order) - 1:
            text = f"{text} % {extents[name]}"
        below.append(extents[name])
        edits.append(tree.replace(variable.value, text))
    return edits


def _removed(tree: Tree, name: str) -> Iterator[Edit]:
    """Yields edits that remove a part's declaration if only other parts use it."""
    variable = tree.variable(name)
    if variable is not None and len(variable.declaration.children_by_field_name("declarator")) == 1:
        start, end = tree.span(variable.declaration)
        text = tree.kernel.unit.text
        line = text.rfind("\n", 0, start) + 1
        alone = not text[line:start].strip() and text[end : end + 1] == "\n"
        yield (line, end + 1, "") if alone else (start, end, "")
