"""Sizes that no parameter of a kernel holds, and that the kernel reads as sides of its grid."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.source.folding import folded
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.names import words_of
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.size_text import blocks_text

_LETTERS = "xyz"

_GUARDED = re.compile(r"blockIdx\.x\)? \* blockDim\.x \+ threadIdx\.x;\n\s*if \(\w+ >= .*\) return;")
"""A thread's number, and the return of threads past the last element, which those of further blocks are, too."""


def with_launched_sizes(written: WrittenKernel, kernel: KernelText) -> WrittenKernel:
    """Returns a kernel whose grid has `kernel.launched` as sides, and one more side for the remaining blocks.

    Args:
        written: a kernel that uses the sizes' names, with a grid of one side.
        kernel: the context, with the sizes and names.

    Raises:
        Refused: its grid has several sides already.
    """
    several = re.search(r"\bgridDim\b|\bblockIdx\.[yz]", written.definition)
    if len(written.grid) != 1 or several or re.search(r"\bgridDim\b|\bblockIdx\b", written.helpers):
        raise Refused("its grid has several sides already, or its helpers take their block from it")
    (whole,) = written.grid
    rest, exact = _without(whole, kernel.launched)
    given = [side for side in kernel.contract.grid if side in kernel.launched]
    more = [] if rest == "1" else [rest]
    sides = [*given, *more] if kernel.contract.grid[0] in given else [*more, *given]
    opening, brace, body = written.definition.partition("{\n")
    lines = [
        f"const int {kernel.sizes[side]} = gridDim.{letter};  // no parameter holds it"
        for side, letter in zip(sides, _LETTERS, strict=False)
        if side in kernel.launched and (not exact or kernel.sizes[side] in words_of(body))
    ]
    if len(sides) > 1:
        block = kernel.names.fresh("block")
        body = re.sub(r"\bblockIdx\.x\b", block, body)
        lines.append(f"const int {block} = {_block_number(len(sides))};")
        if not exact and not _GUARDED.search(written.definition):
            blocks = kernel.names.fresh("blocks")
            lines.append(f"const int {blocks} = {_number_of_blocks(whole, kernel)};")
            lines.append(f"if ({block} >= {blocks}) return;  // the grid may have more")
    head = "".join(f"{kernel.styled(piece)}\n" for line in lines for piece in folded(f"  {line}", kernel.width))
    return replace(written, definition=f"{opening}{brace}{head}{body}", grid=tuple(sides))


def _number_of_blocks(whole: str, kernel: KernelText) -> str:
    try:
        return blocks_text(whole, kernel.size)
    except Refused as reason:
        size = ", ".join(kernel.launched)
        raise Refused(f"the kernel gets the size {size} only through its grid, and {reason}") from reason


def _block_number(sides: int) -> str:
    inner = "blockIdx.y" if sides == 2 else "(blockIdx.z * gridDim.y + blockIdx.y)"
    return f"{inner} * gridDim.x + blockIdx.x"


def _without(whole: str, sizes: Sequence[str]) -> tuple[str, bool]:
    """Returns a number of blocks divided by some sizes, and True if the division is exact."""
    factors = _factors(ast.parse(whole, mode="eval").body)
    left = [one for one in sizes if one not in factors]
    for one in sizes:
        if one in factors:
            factors.remove(one)
    rest = " * ".join(factors) or "1"
    return (f"cdiv({rest}, {' * '.join(left)})", False) if left else (rest, True)


def _factors(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) + _factors(node.right)
    text = ast.unparse(node)
    return [text if isinstance(node, ast.Name | ast.Call | ast.Constant) else f"({text})"]
