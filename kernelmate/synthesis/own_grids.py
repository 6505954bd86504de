"""Grids of several sides, which a kernel keeps if its baseline has them and a generated one would fold them into one side."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace

from kernelmate.errors import ContractError
from kernelmate.records import Contract
from kernelmate.source import launch_shape
from kernelmate.source.expressions import as_factor, evaluate, names_in, parse_expression
from kernelmate.source.host_code import factors_of
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused

MOST = 65535
"""Largest number of blocks along the second and third sides of a grid."""
ROOM = 8
"""Factor by which such a side may exceed the baseline's, and must stay below the limit if it does."""


def fits_side(blocks: int, own: int) -> bool:
    """Returns True if a second or third side of a grid may have this number of blocks.

    That is at most the baseline's number, or a few times as many if the limit is far.
    """
    return blocks <= own or (blocks <= ROOM * own and blocks <= MOST // ROOM)


def with_own_sides(written: WrittenKernel, kernel: KernelText) -> WrittenKernel:
    """Returns a kernel whose grid has the sides of its baseline's, if its only side is a product of such sides.

    Args:
        written: a kernel with a grid of one side.
        kernel: the context of its text.
    """
    contract, used = kernel.contract, re.findall(r"\bblockIdx\.[xyz]|\bgridDim\b", written.definition)
    if len(written.grid) != 1 or len(contract.grid) < 2 or "blockIdx" in written.helpers or {*used} != {"blockIdx.x"}:
        return written
    factors = [ast.unparse(one) for one in factors_of(parse_expression(written.grid[0]))]
    return _of_rows(written, kernel, factors) or _of_tiles(written, contract, factors) or written


def _of_rows(written: WrittenKernel, kernel: KernelText, factors: list[str]) -> WrittenKernel | None:
    """Returns the kernel with a block for each row and the baseline's grid; None if the sides differ."""
    own = [ast.unparse(parse_expression(side)) for side in kernel.contract.grid]
    row = re.search(r"const (int|size_t) (\w+) = blockIdx\.x;", written.definition)
    if own[::-1] != factors or row is None or written.definition.count("blockIdx") > 1:
        return None
    try:
        lengths = [kernel.size(side) for side in kernel.contract.grid[:-1]]
    except Refused:
        return None
    lengths = [as_factor(one) for one in lengths]
    number = f"blockIdx.{'xyz'[len(own) - 1]}"
    number = number if row[1] == "int" else f"static_cast<size_t>({number})"
    for letter, length in zip("yx"[3 - len(own) :], lengths[::-1], strict=True):
        number = f"{f'({number})' if '+' in number else number} * {length} + blockIdx.{letter}"
    definition = written.definition.replace(row[0], f"const {row[1]} {row[2]} = {number};")
    within = re.escape(f"static_cast<int>({row[2]} % {lengths[0]})")
    helpers = re.sub(within, "blockIdx.x", written.helpers)
    return replace(written, definition=definition, helpers=helpers, grid=kernel.contract.grid)


def _of_tiles(written: WrittenKernel, contract: Contract, factors: list[str]) -> WrittenKernel | None:
    """Returns the kernel with a grid of two sides; None if it does not split its block's number into two."""
    parts = {*re.findall(r"blockIdx\.x [/%] (\w+)", written.definition)}
    if len(factors) != 2 or len(contract.grid) != 2 or len(parts) != 1:
        return None
    (across,) = parts
    declared = re.search(rf"^[ \t]+const int {across} = ([^;]*);\n", written.definition, re.MULTILINE)
    split = re.findall(rf"blockIdx\.x [/%] {across}\b(?! [/%])", written.definition)
    if declared is None or len(split) != written.definition.count("blockIdx"):
        return None
    wide = [one for one in factors if {*_names(one)} & {*re.findall(r"\w+", declared[1])}]
    if len(wide) != 1 or len({*factors}) != 2:
        return None
    grid = (wide[0], next(one for one in factors if one != wide[0]))
    if not {*_names(grid[1])} <= {*_names(contract.grid[1])} or not _fits(contract, grid[1]):
        return None
    definition = written.definition
    for sign, letter in (("%", "x"), ("/", "y")):
        part = rf"blockIdx\.x {sign} {across}\b"
        definition = re.sub(rf"\({part}\)|{part}", f"blockIdx.{letter}", definition)
    if len(re.findall(rf"\b{across}\b", definition)) == 1:
        definition = definition.replace(declared[0], "", 1)
    return replace(written, definition=definition, grid=grid)


def _fits(contract: Contract, side: str) -> bool:
    try:
        own = [(size, launch_shape(contract, size).grid[1]) for size in contract.sizes if all(size.values())]
    except ContractError:
        return False
    block = math.prod(launch_shape(contract, contract.sizes[0]).block)
    return all(fits_side(int(evaluate(side, {**size, "block": block})), blocks) for size, blocks in own)


def _names(text: str) -> list[str]:
    return [name for name, _ in names_in(text) if not name.startswith("block")]
