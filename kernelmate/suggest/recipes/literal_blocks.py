"""Conversion of literal block sizes in a kernel to `blockDim`.

Recipes recognise `blockIdx.x * blockDim.x + threadIdx.x`. If the contract's block consists of plain numbers,
`blockIdx.x * 16`, a grid stride of `gridDim.x * 16`, and a loop from `threadIdx.x` in steps of 16 are equivalent forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kernelmate.caching import text_cache
from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.syntax import Edit, Tree, integer_constants, integer_value, read_tree
from kernelmate.suggest.syntax_effects import operator, plain
from kernelmate.suggest.syntax_loops import loops

_AXIS = re.compile(r"(?:blockIdx|gridDim)\.([xyz])")


def block_sides(contract: Contract) -> tuple[int, ...] | None:
    """Returns the block's sides if the contract has them as plain integers; else None."""
    if not all(re.fullmatch(r"\s*\d+\s*", side) for side in contract.block):
        return None
    return tuple(int(side) for side in contract.block)


def with_block_dim(request: SuggestRequest) -> SuggestRequest | None:
    """Returns the request for the kernel with `blockDim`; None if the kernel has no side of its block as a literal."""
    sides = block_sides(request.contract)
    kernel = None if sides is None else _with_block_dim(request.kernel, (*sides, 1, 1)[:3])
    return None if kernel is None else replace(request, kernel=kernel)


@text_cache(32)
def _with_block_dim(kernel: Kernel, sides: tuple[int, ...]) -> Kernel | None:
    """Returns the kernel with `blockDim`; cached, since every recipe that does not apply calls it."""
    tree = read_tree(kernel)
    edits = [] if tree is None else list(_edits(tree, sides))
    return apply_edits(kernel, edits) if edits else None


def names_length(request: SuggestRequest) -> bool:
    """Returns True if the kernel contains a side of the block, or a product of sides, as a literal."""
    sides, tree = block_sides(request.contract), read_tree(request.kernel)
    if sides is None or tree is None:
        return False
    constants = integer_constants(request.kernel.unit.text)
    values = {integer_value(tree.text(node), constants) for node in tree.walk("number_literal", "identifier")}
    lengths = {side for side in sides if side > 1}
    for side in sides:
        lengths |= {length * side for length in lengths}
    return bool(values & lengths)


def _edits(tree: Tree, sides: tuple[int, ...]) -> Iterator[Edit]:
    constants = integer_constants(tree.kernel.unit.text)
    for node in tree.walk("binary_expression"):
        one, other = node.child_by_field_name("left"), node.child_by_field_name("right")
        if one is None or other is None or operator(tree, node) != "*":
            continue
        for block, length in ((one, other), (other, one)):
            axis = _AXIS.fullmatch(plain(tree, block))
            if axis is not None and integer_value(tree.text(length), constants) == sides["xyz".index(axis[1])]:
                yield tree.replace(length, f"blockDim.{axis[1]}")
    for loop in loops(tree):
        update = loop.node.child_by_field_name("update")
        step = None if update is None else update.child_by_field_name("right")
        if step is None or tree.text(step) != loop.step or integer_value(loop.step, constants) != sides[0]:
            continue
        start = tree.variable(tree.text(loop.start)) if loop.start.type == "identifier" else None
        first = plain(tree, loop.start if start is None or start.value is None else start.value)
        if first == "threadIdx.x" and sides[1:] == (1, 1):
            yield tree.replace(step, "blockDim.x")
