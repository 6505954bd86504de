"""Counts a histogram of global memory in shared memory per block, and adds it once per block.

Applies to `atomicAdd(&counts[bin], n)` with a number of bins that fits into shared memory; tables of several dimensions
count as one row of bins. If the number is an argument of the kernel, the launch requests as much shared memory, and more
bins than fit are counted in global memory as before. Improves time, because atomics of the whole GPU on one address
are serialised. Costs shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim, Kernel
from kernelmate.source import apply_edits, argument_shapes
from kernelmate.source.expressions import as_factor, names_in
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.exchange_axes import in_kernel
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
    """An array of `bins` counts of `type` at the headline size; its only uses are the atomics `calls` on `elements`.

    If the number of bins differs between sizes, `extent` is its expression in the contract and `length` its text in the
    kernel.
    """

    array: str
    type: str
    bins: int
    calls: tuple[Node, ...]
    elements: tuple[Node, ...]
    extent: str | None = None
    length: str = ""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for each array of counts."""
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None or calls(tree) & BARRIERS:
        return
    for parameter in kernel.signature.parameters:
        found = _histogram(request, tree, parameter.name) if parameter.pointer else None
        if found is None:
            continue
        if found.extent is None:
            yield Rewrite(_private(kernel, tree, found), request.contract, _why(found))
        else:
            text = _private_or_global(kernel, tree, found)
            yield Rewrite(*relaunch(request, text, shared=_shared_bytes(found)), _why(found))


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
    bins = [math.prod(argument_shapes(request.contract, size)[array]) for size in request.contract.sizes]
    extent, length = _extent(request, tree, array) if len(set(bins)) > 1 else (None, "")
    count = bins[0]
    if (len(set(bins)) > 1 and extent is None) or not 1 < count <= LARGEST // ELEMENT_BYTES[variable.type]:
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
    return Histogram(array, variable.type, count, tuple(added), tuple(elements), extent, length)


def _extent(request: SuggestRequest, tree: Tree, array: str) -> tuple[str | None, str]:
    """Returns a number of bins that differs between sizes, for the contract and in the kernel; None if it cannot be used.

    It must not grow with the grid, as a block would then add more counts than it has samples, and the kernel must have
    neither dynamic shared memory nor a launch that depends on its own.
    """
    contract = request.contract
    shape = next((one.shape for one in contract.args if one.name == array), None)
    sizes = set(contract.sizes[0])
    extent = " * ".join(as_factor(side) for side in shape or ())
    if not extent or contract.shared.strip() != "0" or "extern" in tree.kernel.source:
        return None, ""
    used = [{name for name, _ in names_in(text)} for text in (extent, *contract.grid)]
    if used[0] & sizes & set().union(*used[1:]):
        return None, ""
    length = in_kernel(tree, contract, extent)
    return (None, "") if length is None else (extent, length)


def _shared_bytes(found: Histogram) -> str:
    """Returns the dynamic shared memory as an expression of the contract: none if the counts do not fit."""
    size = ELEMENT_BYTES[found.type]
    return f"{found.extent} * {size} if {found.extent} <= {LARGEST // size} else 0"


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
    local, k = fresh(tree, f"block_{found.array}"), fresh(tree, "bin")
    indent, step = indent_of(tree, statements(tree.body)[0]), indent_step(tree)
    bins, constant = _bins(tree, found)
    loop = _loop(tree, k, bins)
    head = (
        f"\n{indent}__shared__ {found.type} {local}[{bins}];"
        f"\n{indent}{loop} {local}[{k}] = 0;"
        f"\n{indent}__syncthreads();"
    )
    tail = (
        f"{indent}__syncthreads();\n{indent}{loop} {{\n"
        f"{indent}{step}if ({local}[{k}] != 0) atomicAdd(&{found.array}[{k}], {local}[{k}]);\n{indent}}}\n"
    )
    edits: list[Edit] = [*_around(tree, head, tail), *constant]
    for element in found.elements:
        base = element.child_by_field_name("argument")
        if base is not None:
            edits.append(tree.replace(base, local))
    return apply_edits(kernel, edits)


def _private_or_global(kernel: Kernel, tree: Tree, found: Histogram) -> Kernel:
    """Returns the kernel with counts in dynamic shared memory if they fit, else in global memory as before."""
    local, k, fits = fresh(tree, f"block_{found.array}"), fresh(tree, "bin"), fresh(tree, "fits")
    indent, step = indent_of(tree, statements(tree.body)[0]), indent_step(tree)
    most, constant = named(tree, "MostBins", LARGEST // ELEMENT_BYTES[found.type], "counts in 48 KB of shared memory")
    length = found.length
    loop = _loop(tree, k, length)
    head = (
        f"\n{indent}extern __shared__ {found.type} {local}[];"
        f"\n{indent}const bool {fits} = {length} <= {most};  // else the launch has no shared memory for them"
        f"\n{indent}if ({fits}) {{\n{indent}{step}{loop} {local}[{k}] = 0;\n{indent}}}"
        f"\n{indent}__syncthreads();"
    )
    tail = (
        f"{indent}__syncthreads();\n{indent}if ({fits}) {{\n{indent}{step}{loop} {{\n"
        f"{indent}{step * 2}if ({local}[{k}] != 0) atomicAdd(&{found.array}[{k}], {local}[{k}]);\n"
        f"{indent}{step}}}\n{indent}}}\n"
    )
    edits: list[Edit] = [*_around(tree, head, tail), constant]
    for call, element in zip(found.calls, found.elements, strict=True):
        statement, base = call.parent, element.child_by_field_name("argument")
        if statement is None or base is None:
            continue
        start, end = tree.span(statement)
        first, last = tree.span(base)
        was = kernel.unit.text[start:end]
        mine = was[: first - start] + local + was[last - start :]
        around = indent_of(tree, statement)
        edits.append(
            (start, end, f"if ({fits}) {{\n{around}{step}{mine}\n{around}}} else {{\n{around}{step}{was}\n{around}}}")
        )
    return apply_edits(kernel, edits)


def _loop(tree: Tree, name: str, bins: str) -> str:
    """Returns the head of a loop in which the threads of a block share the bins."""
    thread, threads = "threadIdx.x", "blockDim.x"
    if any("threadIdx.y" in tree.text(node) for node in tree.walk("field_expression")):
        thread, threads = "threadIdx.y * blockDim.x + threadIdx.x", "blockDim.x * blockDim.y"
    return f"for (int {name} = {thread}; {name} < {bins}; {name} += {threads})"


def _around(tree: Tree, head: str, tail: str) -> list[Edit]:
    """Returns the edits that insert text at the beginning and the end of the kernel's body."""
    text = tree.kernel.unit.text
    opening, closing = tree.span(tree.body)[0] + 1, tree.span(tree.body)[1] - 1
    line = text.rfind("\n", 0, closing) + 1
    lone = not text[line:closing].strip()
    return [(opening, opening, head), (line, line, tail) if lone else (closing, closing, f"\n{tail}")]


def _bins(tree: Tree, found: Histogram) -> tuple[str, list[Edit]]:
    """Returns the name of the constant for the number of bins, and the edit that declares it if the file lacks it."""
    name = known(tree, found.bins, BINS)
    if name is not None:
        return name, []
    name, edit = named(tree, "Bins", found.bins, f"length of {found.array}")
    return name, [edit]


def _why(found: Histogram) -> str:
    size = found.bins * ELEMENT_BYTES[found.type]
    if found.extent is not None:
        return (
            f"Every sample is an atomic on {found.array} in global memory, where all blocks wait for each other; counted in shared "
            f"memory, {size} bytes at the headline size, each block adds each of its bins once. More bins than fit are counted as before."
        )
    return (
        f"Every sample is an atomic on {found.array} in global memory, where all blocks wait for each other; counted in {size} "
        f"bytes of shared memory, each block adds each of its {found.bins} bins once."
    )
