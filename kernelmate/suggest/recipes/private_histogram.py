"""Counts a histogram of global memory in shared memory per block, and adds it once per block.

Applies to `atomicAdd(&counts[bin], n)` with a number of bins that the contract fixes and that fits into shared memory;
tables of several dimensions count as one row of bins. Improves time, because atomics of the whole GPU on one address
are serialised. Costs shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim, Kernel
from kernelmate.source import apply_edits, argument_shapes
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.restructure import BINS, known, named, without_early_returns
from kernelmate.suggest.strides import lanes_of
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    BARRIERS,
    BUILTINS,
    call_name,
    calls,
    fresh,
    indent_of,
    indent_step,
    index_of,
    names,
    operator,
    statements,
)

LARGEST = 48 * 1024
"""Bytes of static shared memory that every GPU allows a block: CUDA C++ Programming Guide, Technical Specifications."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """An array of `bins` counts of `type`; its only uses are the atomics `calls` on the elements `elements`."""

    array: str
    type: str
    bins: int
    calls: tuple[Node, ...]
    elements: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for each array of counts."""
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None or calls(tree) & BARRIERS:
        return
    for parameter in kernel.signature.parameters:
        found = _histogram(request, tree, parameter.name) if parameter.pointer else None
        if found is not None:
            yield Rewrite(_private(kernel, tree, found), request.contract, _why(found))


CLAIMS = (
    Claim(
        r"in global memory, where all blocks wait for each other; counted",
        "atomic_requests",
        instead="in global memory; counted",
    ),
)
RECIPE = Recipe("private-histogram", ("time",), ("shared_bytes",), rewrites, claims=CLAIMS)


def _histogram(request: SuggestRequest, tree: Tree, array: str) -> Histogram | None:
    variable = tree.variable(array)
    if variable is None or variable.type not in ELEMENT_BYTES:
        return None
    bins = {argument_shapes(request.contract, size)[array] for size in request.contract.sizes}
    shape = bins.pop()
    count = math.prod(shape)
    if bins or not 1 < count <= LARGEST // ELEMENT_BYTES[variable.type]:
        return None
    added, elements = [], []
    for use in tree.uses(array):
        call = _adding_call(tree, use)
        if call is None or strip_parentheses(call[1]).type != "subscript_expression":
            return None
        added.append(call[0])
        elements.append(call[1])
    if not added or not all(_depends_on_data(request, tree, element) for element in elements):
        return None
    return Histogram(array, variable.type, count, tuple(added), tuple(elements))


def _adding_call(tree: Tree, use: Node) -> tuple[Node, Node] | None:
    """Returns the call and the element of the statement `atomicAdd(&use[...], n);` around a use.

    The result is None for other uses.
    """
    element = use.parent
    address = None if element is None else element.parent
    arguments = None if address is None else address.parent
    call = None if arguments is None else arguments.parent
    if element is None or address is None or arguments is None or call is None or call.type != "call_expression":
        return None
    if element.type != "subscript_expression" or address.type != "pointer_expression" or operator(tree, address) != "&":
        return None
    first = arguments.named_children[0]
    lone = call.parent is not None and call.parent.type == "expression_statement"
    if first.id != address.id or call_name(tree, call) != "atomicAdd" or not lone:
        return None
    return call, element


def _depends_on_data(request: SuggestRequest, tree: Tree, element: Node) -> bool:
    """Returns True if the bin depends on data, not only on the thread's index; only then do blocks contend for it."""
    index = index_of(element)
    lanes = lanes_of(tree, request.contract)
    return (
        index is not None
        and lanes is not None
        and lanes.value(index, (0, 0, 0)) is None
        and not names(tree, index) & BUILTINS
    )


def _private(kernel: Kernel, tree: Tree, found: Histogram) -> Kernel:
    text = kernel.unit.text
    local = fresh(tree, f"block_{found.array}")
    k = fresh(tree, "bin")
    indent, step = indent_of(tree, statements(tree.body)[0]), indent_step(tree)
    opening = tree.span(tree.body)[0] + 1
    closing = tree.span(tree.body)[1] - 1
    line = text.rfind("\n", 0, closing) + 1
    thread, threads = "threadIdx.x", "blockDim.x"
    if any("threadIdx.y" in tree.text(node) for node in tree.walk("field_expression")):
        thread, threads = "threadIdx.y * blockDim.x + threadIdx.x", "blockDim.x * blockDim.y"
    bins, constant = _bins(tree, found)
    loop = f"for (int {k} = {thread}; {k} < {bins}; {k} += {threads})"
    head = (
        f"\n{indent}__shared__ {found.type} {local}[{bins}];"
        f"\n{indent}{loop} {local}[{k}] = 0;"
        f"\n{indent}__syncthreads();"
    )
    tail = (
        f"{indent}__syncthreads();\n{indent}{loop} {{\n"
        f"{indent}{step}if ({local}[{k}] != 0) atomicAdd(&{found.array}[{k}], {local}[{k}]);\n{indent}}}\n"
    )
    edits: list[Edit] = [(opening, opening, head), *constant]
    for element in found.elements:
        base = element.child_by_field_name("argument")
        if base is not None:
            edits.append(tree.replace(base, local))
    lone = not text[line:closing].strip()
    edits.append((line, line, tail) if lone else (closing, closing, f"\n{tail}"))
    return apply_edits(kernel, edits)


def _bins(tree: Tree, found: Histogram) -> tuple[str, list[Edit]]:
    """Returns the name of the constant for the number of bins, and the edit that declares it if the file lacks it."""
    name = known(tree, found.bins, BINS)
    if name is not None:
        return name, []
    name, edit = named(tree, "Bins", found.bins, f"length of {found.array}")
    return name, [edit]


def _why(found: Histogram) -> str:
    size = found.bins * ELEMENT_BYTES[found.type]
    return (
        f"Every sample is an atomic on {found.array} in global memory, where all blocks wait for each other; counted in {size} "
        f"bytes of shared memory, each block adds each of its {found.bins} bins once."
    )
