"""Reduces values within each warp first, if one thread loops over a value of every thread.

Applies to `part[t] = value; __syncthreads();` followed by a loop over the whole block that combines `part` into a sum,
a product or an extreme. Warps reduce by shuffles first, which divides the shared memory and the loop's iterations by
32. Improves shared memory and time; sums of floats are added in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.block_trees import block_threads
from kernelmate.suggest.recipes.carried import CarriedValue, carried_values
from kernelmate.suggest.recipes.restructure import ZERO, half_warp, warp_width
from kernelmate.suggest.recipes.warp_scan import is_thread
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    DeclaredVariable,
    Edit,
    Node,
    Tree,
    integer_constants,
    integer_value,
    read_tree,
)
from kernelmate.suggest.syntax_effects import (
    element_accesses,
    fresh,
    indent_of,
    index_of,
    is_written,
    operator,
    plain,
    root_name,
)
from kernelmate.suggest.syntax_loops import CountingLoop, loops


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that changes every array that one thread reduces alone."""
    tree = read_tree(request.kernel)
    threads = block_threads(request.contract)
    if tree is None or threads is None:
        return
    edits: list[Edit] = []
    told: list[str] = []
    for variable in tree.shared_arrays():
        changed = _of(tree, variable, threads)
        if changed:
            edits += changed
            told.append(variable.name)
    if edits:
        less = sum(ELEMENT_BYTES[v.type] * (threads - threads // 32) for v in tree.shared_arrays() if v.name in told)
        why = f"One thread reads a value of each of {threads} threads from {' and '.join(told)}; shuffles combine those of each warp first, which leaves {threads // 32} values and {less} bytes of shared memory less."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (Claim(r" and \d+ bytes of shared memory less", "shared_bytes"),)
RECIPE = Recipe("serial-reduction", ("shared_bytes", "time", "occupancy"), ("accuracy",), rewrites, claims=CLAIMS)


def _of(tree: Tree, variable: DeclaredVariable, threads: int) -> list[Edit]:
    constants = integer_constants(tree.kernel.unit.text)
    if len(variable.dims) != 1 or "extern" in variable.qualifiers or variable.type not in ZERO:
        return []
    elements = [one for one in element_accesses(tree) if root_name(tree, one) == variable.name]
    if integer_value(variable.dims[0], constants) != threads or len(elements) != len(tree.uses(variable.name)):
        return []
    stores = [one for one in elements if is_written(tree, one)]
    loop = next((loop for loop in loops(tree) if _reads_all(tree, loop, elements, threads)), None)
    if len(stores) != 1 or loop is None:
        return []
    joined = carried_values(tree, loop)
    rest = [one for one in elements if one.id != stores[0].id and not _within(one, loop)]
    started = tree.text(loop.start) == "1"
    if (
        joined is None
        or len(joined) != 1
        or joined[0].places
        or any(plain(tree, one) != f"{variable.name}[0]" for one in rest)
    ):
        return []
    if len(rest) != (1 if started else 0) or not re.fullmatch(r"[01]u?", tree.text(loop.start)):
        return []
    store = _stored(tree, stores[0], variable, joined[0])
    array = next(tree.walk("array_declarator", under=variable.node), None)
    size = None if array is None else array.child_by_field_name("size")
    if store is None or size is None:
        return []
    return [store, tree.replace(size, str(threads // 32)), tree.replace(loop.bound, str(threads // 32))]


def _within(node: Node, loop: CountingLoop) -> bool:
    return loop.node.start_byte <= node.start_byte < loop.node.end_byte


def _reads_all(tree: Tree, loop: CountingLoop, elements: list[Node], threads: int) -> bool:
    """True if the loop runs over the whole block and reads the array once per iteration, at the loop variable."""
    bound = plain(tree, loop.bound)
    whole = bound == "blockDim.x" or integer_value(bound, integer_constants(tree.kernel.unit.text)) == threads
    inside = [one for one in elements if _within(one, loop)]
    places = [index_of(one) for one in inside]
    return (
        whole
        and len(inside) == 1
        and places[0] is not None
        and plain(tree, places[0]) == loop.name
        and loop.step == "1"
    )


def _stored(tree: Tree, element: Node, variable: DeclaredVariable, joined: CarriedValue) -> Edit | None:
    """Returns the edit by which the store stores the result of a reduction within the warp.

    The result is None if it has another form.
    """
    expression, index = element.parent, index_of(element)
    statement = None if expression is None else expression.parent
    value = None if expression is None else expression.child_by_field_name("right")
    if expression is None or statement is None or value is None or index is None or operator(tree, expression) != "=":
        return None
    block = statement.parent
    if statement.type != "expression_statement" or block is None or block.id != tree.body.id:
        return None
    thread = plain(tree, index)
    if not is_thread(tree, thread) or joined.comparison is not None:
        return None
    name, offset = fresh(tree, f"{variable.name}_value"), fresh(tree, "offset")
    other = f"__shfl_xor_sync(0xffffffffu, {name}, {offset})"
    join = (
        f"{name} {joined.operator} {other};"
        if joined.function is None
        else f"{name} = {joined.function}({name}, {other});"
    )
    indent, width = indent_of(tree, statement), warp_width(tree)
    lines = [
        f"{variable.type} {name} = {tree.text(value)};",
        f"for (int {offset} = {half_warp(tree)}; {offset} > 0; {offset} /= 2) {join}",
        f"if ({thread} % {width} == 0) {variable.name}[{thread} / {width}] = {name};",
    ]
    return tree.replace(statement, f"\n{indent}".join(lines))
