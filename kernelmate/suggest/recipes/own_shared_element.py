"""Replaces a shared array in which each thread uses one element of its own by a variable of the thread.

Applies if all accesses have the same index, which differs between the threads of the block. A value that a thread
passes to itself needs no shared memory, and without a remaining shared array no barrier. Improves shared memory and
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, is_barrier, read_tree
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    element_accesses,
    fresh,
    names,
    plain,
    root_name,
    written_names,
)
from kernelmate.suggest.syntax_loops import enclosing_loops


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that replaces every shared array of which each thread uses only its own element."""
    tree = read_tree(request.kernel)
    lanes = None if tree is None else lanes_of(tree, request.contract)
    if tree is None or lanes is None:
        return
    arrays = tree.shared_arrays()
    found = [variable for variable in arrays if _own(tree, lanes, variable)]
    edits = [edit for variable in found for edit in _edits(tree, variable)]
    if not edits:
        return
    if len(found) == len(arrays):
        edits += [tree.replace(node, "") for node in tree.walk("expression_statement") if is_barrier(tree, node)]
    texts = " and ".join(variable.name for variable in found)
    why = f"Each thread reads from {texts} only what it stored there itself; a variable of its own holds that without shared memory."
    yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("own-shared-element", ("shared_bytes", "time", "occupancy"), ("registers",), rewrites)


def _own(tree: Tree, lanes: LaneEvaluator, variable: DeclaredVariable) -> bool:
    if "extern" in variable.qualifiers or "volatile" in variable.qualifiers:
        return False
    elements = [one for one in element_accesses(tree) if root_name(tree, one) == variable.name]
    texts = {plain(tree, one) for one in elements}
    if not elements or len(elements) != len(tree.uses(variable.name)) or len(texts) != 1:
        return False
    if any(one.parent is None or one.parent.type == "pointer_expression" for one in elements):
        return False
    indices = indices_of(elements[0])
    used = {name for index in indices for name in names(tree, index)}
    inside = {name for one in elements for loop in enclosing_loops(one) for name in written_names(tree, loop)}
    local = {name for name in used if tree.variable(name) is not None and name not in arguments_of(tree)}
    if len(indices) != len(variable.dims) or used & inside or not all(constant_after_start(tree, n) for n in local):
        return False
    sides = lanes.shape.block
    places = {
        tuple(lanes.value(index, (x, y, z)) for index in indices)
        for x, y, z in product(range(sides[0]), range(sides[1]), range(sides[2]))
    }
    return len(places) == lanes.shape.threads and not any(None in place for place in places)


def arguments_of(tree: Tree) -> set[str]:
    """Returns the names of the kernel's parameters."""
    return {parameter.name for parameter in tree.kernel.signature.parameters}


def indices_of(element: Node) -> list[Node]:
    """Returns the indices of an element of a multidimensional array, the outermost first."""
    found: list[Node] = []
    node: Node | None = element
    while node is not None and node.type == "subscript_expression":
        inner = node.child_by_field_name("indices")
        found = [*([] if inner is None else inner.named_children[:1]), *found]
        node = node.child_by_field_name("argument")
    return found


def _edits(tree: Tree, variable: DeclaredVariable) -> Iterator[Edit]:
    name = fresh(tree, f"own_{variable.name}")
    if len(variable.declaration.children_by_field_name("declarator")) == 1:
        yield tree.replace(variable.declaration, f"{variable.type} {name};")
        for one in element_accesses(tree):
            if root_name(tree, one) == variable.name:
                yield tree.replace(one, name)
