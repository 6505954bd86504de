"""Computes index arithmetic that overflows 32 bits in 64 bits.

The first factor of the product is cast to `long long`, and variables that hold such products become `long long`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS, FindingCode
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import BOUNDS, Repair, findings, statement_at
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import element_accesses, index_of, names, operator

_NARROW = {"int", "unsigned", "unsigned int", "int32_t", "uint32_t", "uint"}
WIDE = "long long"


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for the indices of the reported statements, then one for every index of the kernel."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    found = [
        statement_at(tree, spot) for spot in findings(request, frozenset({FindingCode.INDEX_OVERFLOW}), warnings=True)
    ]
    named = [statement for statement in found if statement is not None]
    for places in ([*named], [tree.body]):
        edits = list(dict.fromkeys(_edits(tree, places)))
        if edits:
            why = "The index is computed in 32 bits and overflows at the sizes of the contract; 64 bits hold it."
            yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


REPAIR = Repair("wide-index", ("correct",), (), rewrites, BOUNDS | WRONG_OUTPUTS | {FindingCode.INDEX_OVERFLOW})


def _edits(tree: Tree, places: list[Node]) -> Iterator[Edit]:
    elements = [element for place in places for element in element_accesses(tree, place)]
    indices = [index for element in elements if (index := index_of(element)) is not None]
    waiting = [name for index in indices for name in sorted(names(tree, index))]
    for index in indices:
        yield from _products(tree, index)
    seen: set[str] = set()
    while waiting:
        variable = tree.variable(name := waiting.pop())
        if name in seen or variable is None or variable.pointers or variable.dims or variable.type not in _NARROW:
            continue
        seen.add(name)
        if variable.value is not None and _multiplies(tree, variable.value):
            yield from _retyped(tree, variable)
            yield from _products(tree, variable.value)
            waiting += sorted(names(tree, variable.value))


def _multiplies(tree: Tree, value: Node) -> bool:
    """Returns True if an expression contains a product other than those of the thread's index in the grid."""
    text = re.sub(r"\s+", "", tree.text(value))
    numbers = re.sub(r"(?:blockIdx|blockDim|gridDim)\.[xyz]\*(?:blockIdx|blockDim|gridDim)\.[xyz]", "", text)
    return "*" in numbers or "<<" in numbers


def _products(tree: Tree, value: Node) -> Iterator[Edit]:
    """Yields a cast before the first factor of each product."""
    for product in tree.walk("binary_expression", under=value):
        if operator(tree, product) not in {"*", "<<"} or _inside_product(tree, product, value):
            continue
        first = product
        while first.type == "binary_expression" and operator(tree, first) in {"*", "<<"}:
            left = first.child_by_field_name("left")
            if left is None:
                break
            first = left
        if not re.match(r"\((?:size_t|long long|int64_t)\)", tree.text(first)):
            start = tree.span(first)[0]
            yield start, start, f"({WIDE})"


def _inside_product(tree: Tree, product: Node, value: Node) -> bool:
    parent = product.parent
    left = None if parent is None else parent.child_by_field_name("left")
    joined = parent is not None and parent.type == "binary_expression" and operator(tree, parent) in {"*", "<<"}
    return product.id != value.id and joined and left is not None and left.id == product.id


def _retyped(tree: Tree, variable: DeclaredVariable) -> Iterator[Edit]:
    node = variable.declaration.child_by_field_name("type")
    declared = len(variable.declaration.children_by_field_name("declarator"))
    if node is not None and declared == 1 and variable.declaration.type == "declaration":
        yield tree.replace(node, WIDE)
