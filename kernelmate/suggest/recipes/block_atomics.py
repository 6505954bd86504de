"""Replaces atomic additions of every thread to one number by one addition per block.

Applies to `atomicAdd(total, value)` if the address is the same for all threads of a block and the old value is not
used. Each thread adds its part in a register, warps combine them by shuffles, and the block adds in shared memory.
Improves time. Floats are added in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim, Kernel
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.restructure import WARPS, half_warp, warp_width, without_early_returns
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import call_name, fresh, indent_of, indent_step, names, root_name, statements

TYPES = frozenset({"int", "unsigned int", "unsigned", "float", "double", "unsigned long long", "long long"})
"""Types that both shuffles and atomicAdd support."""


@dataclass(frozen=True, slots=True)
class Total:
    """A number that all threads add to.

    `pointer` is the text of its address, `type` its type, and `calls` are the atomic additions.
    """

    pointer: str
    type: str
    calls: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields two candidates: one addition per block, and one per warp without shared memory."""
    shapes = [launch_shape(request.contract, size) for size in request.contract.sizes]
    if any(shape.threads % 32 or shape.block[1:] != (1, 1) for shape in shapes):
        return
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    if kernel is None or tree is None:
        return
    total = _total(tree)
    if total is None:
        return
    yield Rewrite(_joined(kernel, tree, total, whole_block=True), request.contract, _why(total, "block"))
    yield Rewrite(_joined(kernel, tree, total, whole_block=False), request.contract, _why(total, "warp"))


CLAIMS = (Claim(r" by an atomic of its own, one after the other", "atomic_requests"),)
RECIPE = Recipe("block-atomics", ("time",), ("shared_bytes", "accuracy"), rewrites, claims=CLAIMS)


def _total(tree: Tree) -> Total | None:
    """Returns the only address that is added to; None if there are several, or if single threads add already."""
    found = [call for call in tree.walk("call_expression") if call_name(tree, call) == "atomicAdd"]
    if not found:
        return None
    pointers = set()
    for call in found:
        arguments = call.child_by_field_name("arguments")
        if arguments is None or len(arguments.named_children) != 2 or call.parent is None or call.parent.type != "expression_statement":  # fmt: skip
            return None
        place = arguments.named_children[0]
        if not _same_for_block(tree, place) or _by_single_threads(tree, call):
            return None
        pointers.add(tree.text(place))
    if len(pointers) != 1:
        return None
    place = found[0].child_by_field_name("arguments").named_children[0]  # type: ignore[union-attr]
    array = _array(tree, place)
    variable = None if array is None else tree.variable(array)
    if variable is None or variable.type not in TYPES or len(tree.uses(variable.name)) != len(found):
        return None
    return Total(pointers.pop(), variable.type, tuple(found))


def _array(tree: Tree, place: Node) -> str | None:
    if place.type == "pointer_expression" and place.named_children:
        return root_name(tree, place.named_children[0])
    return root_name(tree, place)


def _same_for_block(tree: Tree, place: Node) -> bool:
    """Returns True if the address depends only on parameters, numbers and blockIdx."""
    parameters = {parameter.name for parameter in tree.kernel.signature.parameters}
    return names(tree, place) <= parameters | {"blockIdx"}


def _by_single_threads(tree: Tree, call: Node) -> bool:
    """Returns True if a condition on the thread's index selects few threads, so that values are already combined."""
    node = call.parent
    while node is not None and node.type != "function_definition":
        if node.type == "if_statement":
            clause = node.child_by_field_name("condition")
            text = "" if clause is None else tree.text(clause)
            if re.search(r"==\s*0|!\s*\w+\s*\)|%\s*(?:32|warpSize)|&\s*31", text):
                return True
        node = node.parent
    return False


def _joined(kernel: Kernel, tree: Tree, total: Total, *, whole_block: bool) -> Kernel:
    text = kernel.unit.text
    width = warp_width(tree)
    own, offset = fresh(tree, "own"), fresh(tree, "offset")
    indent, step = indent_of(tree, statements(tree.body)[0]), indent_step(tree)
    edits: list[Edit] = []
    for call in total.calls:
        value = call.child_by_field_name("arguments").named_children[1]  # type: ignore[union-attr]
        edits.append(tree.replace(call, f"{own} += {tree.text(value)}"))
    opening, closing = tree.span(tree.body)[0] + 1, tree.span(tree.body)[1] - 1
    edits.append((opening, opening, f"\n{indent}{total.type} {own} = 0;"))
    shuffle = f"for (int {offset} = {half_warp(tree)}; {offset} > 0; {offset} /= 2) {own} += __shfl_down_sync(0xffffffffu, {own}, {offset});"
    lines = [shuffle]
    if whole_block:
        warps = fresh(tree, "warp_sums")
        lines += [
            f"__shared__ {total.type} {warps}[{WARPS}];  // a block has at most {WARPS} warps",
            f"if (threadIdx.x % {width} == 0) {warps}[threadIdx.x / {width}] = {own};",
            "__syncthreads();",
            f"if (threadIdx.x < {width}) {{",
            f"{step}{own} = threadIdx.x < blockDim.x / {width} ? {warps}[threadIdx.x] : 0;",
            f"{step}{shuffle}",
            f"{step}if (threadIdx.x == 0) atomicAdd({total.pointer}, {own});",
            "}",
        ]
    else:
        lines.append(f"if (threadIdx.x % {width} == 0) atomicAdd({total.pointer}, {own});")
    tail = "".join(f"{indent}{line}\n" for line in lines)
    line = text.rfind("\n", 0, closing) + 1
    lone = not text[line:closing].strip()
    edits.append((line, line, tail) if lone else (closing, closing, f"\n{tail}"))
    return apply_edits(kernel, edits)


def _why(total: Total, group: str) -> str:
    return (
        f"Every thread adds to {total.pointer} by an atomic of its own, one after the other; summed in registers and by "
        f"shuffles first, it is one atomic per {group}."
    )
