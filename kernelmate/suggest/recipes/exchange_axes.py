"""Assigns the index that is contiguous in memory to threadIdx.x, from any axis of the launch.

Applies to kernels of two or three axes in which each axis gives one coordinate, `blockIdx.x * blockDim.x + threadIdx.x`
or `blockIdx.z` alone, and a coordinate on another axis than x is contiguous in memory. Coordinates exchange axes in the
kernel and in the launch, get guards if blocks now exceed their bounds, and blocks become long along x. The results do
not change. Improves global traffic and time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.errors import KernelmateError
from kernelmate.records import Claim, Contract
from kernelmate.source import apply_edits, launch_shape
from kernelmate.source.expressions import evaluate_integer
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.helpers import plain_helpers
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    indent_of,
    index_of,
    only_pure_calls,
    plain,
    statements,
)
from kernelmate.suggest.syntax_loops import guarded, is_global_index

AXES = ("x", "y", "z")
THREADS = 256
MOST_ROWS = 65535
"""Largest number of blocks along y and z (CUDA C++ Programming Guide, Technical Specifications)."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A coordinate that threads compute from one axis of the grid.

    `extent` is the contract's expression of its length.
    """

    variable: DeclaredVariable
    axis: int
    extent: str


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate: the contiguous coordinate on x, the others in the order of their strides."""
    tree = read_tree(request.kernel)
    lanes = None if tree is None else lanes_of(tree, request.contract)
    if tree is None or lanes is None or not _alone(tree):
        return
    coordinates = coordinates_of(tree, request.contract)
    if coordinates is None or len(coordinates) < 2:
        return
    order = by_stride(lanes, [one.variable.name for one in coordinates])
    now_on_x = next((one for one in coordinates if one.axis == 0), None)
    if order is None or now_on_x is None or order[0] == now_on_x.variable.name:
        return
    ordered = sorted(coordinates, key=lambda one: order.index(one.variable.name))
    block = _block(request.contract, ordered)
    edits = _edits(tree, request.contract, ordered, block)
    if block is None or edits is None:
        return
    grid = tuple(
        one.extent if side == 1 else f"cdiv({one.extent}, {side})" for one, side in zip(ordered, block, strict=True)
    )
    kernel, contract = relaunch(request, apply_edits(request.kernel, edits), grid=grid, block=tuple(map(str, block)))
    if any(max(launch_shape(contract, size).grid[1:]) > MOST_ROWS for size in contract.sizes):
        return
    first = ordered[0].variable.name
    why = f"`{first}` is contiguous in memory, but neighbouring lanes differ in `{now_on_x.variable.name}`; on the x axis, `{first}` lets a warp access neighbouring elements."  # fmt: skip
    yield Rewrite(kernel, contract, why)


CLAIMS = (
    Claim(
        r", but neighbouring lanes differ in (`\w+`); on the x axis, `\w+` lets a warp access neighbouring elements",
        "global_bytes",
        instead=r"; it takes the x axis in the place of \1",
    ),
)
RECIPE = Recipe("exchange-axes", ("time", "global_bytes"), (), rewrites, claims=CLAIMS)


def by_stride(lanes: LaneEvaluator, names: list[str]) -> list[str] | None:
    """Sorts coordinates by their strides in memory, weighted over all accesses; None if those are unknown."""
    costs = dict.fromkeys(names, 0.0)
    known = False
    zero = dict.fromkeys(names, 0.0)
    for access in lanes.accesses():
        index = index_of(access.element)
        base = None if index is None else lanes.value(index, (0, 0, 0), zero)
        for name in names:
            one = None if index is None else lanes.value(index, (0, 0, 0), {**zero, name: 1.0})
            if base is None or one is None:
                continue
            known = True
            costs[name] += min(abs(one - base) * access.width, 32) * access.weight
    spread = {name: costs[name] for name in names}
    # A coordinate that nothing depends on costs nothing, and is of no use on x either.
    moving = [name for name in names if spread[name] > 0]
    return [*sorted(moving, key=spread.__getitem__), *(name for name in names if name not in moving)] if known else None


def _alone(tree: Tree) -> bool:
    """Returns True if threads do not communicate, and read their position only in the declarations of coordinates."""
    text = tree.kernel.source
    if any(
        word in text
        for word in ("__shared__", "__sync", "__shfl", "__ballot", "cooperative_groups", "gridDim", "extern")
    ):
        return False
    return only_pure_calls(tree, tree.body, frozenset({"atomicAdd"}) | plain_helpers(tree.kernel))


def coordinates_of(tree: Tree, contract: Contract) -> list[Coordinate] | None:
    """Returns the coordinates of the launch's axes; None if threads also derive their position in another way."""
    found: list[Coordinate] = []
    places = 0
    sides = [*contract.block, "1", "1"][:3]
    for name, variable in tree.variables.items():
        if variable is None or variable.value is None or not constant_after_start(tree, name):
            continue
        for axis, letter in enumerate(AXES):
            width = int(sides[axis]) if sides[axis].strip().isdigit() else None
            whole = is_global_index(tree, variable.value, letter, width)
            text = plain(tree, variable.value)
            alone = text == f"threadIdx.{letter}" and [*contract.grid, "1", "1"][axis].strip() == "1"
            if not whole and not alone and text != f"blockIdx.{letter}":
                continue
            extent = str(width) if alone and width else _extent(contract, axis, whole=whole, side=width)
            if extent is None or any(one.axis == axis for one in found):
                return None
            found.append(Coordinate(variable, axis, extent))
            places += len(re.findall(r"threadIdx|blockIdx", tree.text(variable.value)))
    asked = re.findall(r"threadIdx|blockIdx", tree.kernel.source)
    return found if found and len(asked) == places else None


def _extent(contract: Contract, axis: int, *, whole: bool, side: int | None) -> str | None:
    """Returns the extent of a coordinate: the argument that the grid's side rounds up, or the whole side.

    The result is None if unknown.
    """
    grid = [*contract.grid, "1", "1"][axis].strip()
    if not whole:
        return grid if side == 1 else None
    match = re.fullmatch(r"cdiv\(\s*(.+?)\s*,\s*([\w]+)\s*\)", grid)
    if match is not None and "," not in match[1] and match[1].count("(") == match[1].count(")"):
        return match[1]
    return grid if side == 1 else None


def _block(contract: Contract, ordered: list[Coordinate]) -> tuple[int, ...] | None:
    try:
        length = evaluate_integer(ordered[0].extent, contract.sizes[0], "the extent")
    except KernelmateError:
        return None
    across = 32
    while across < THREADS and across * 2 <= length:
        across *= 2
    return (across, THREADS // across, *(1 for _ in ordered[2:]))


def _edits(
    tree: Tree, contract: Contract, ordered: list[Coordinate], block: tuple[int, ...] | None
) -> list[Edit] | None:
    """Returns edits that compute coordinates from their new axes, with guards after the last of their declarations."""
    if block is None:
        return None
    edits: list[Edit] = []
    guard = guarded(tree, statements(tree.body))
    known = set() if guard is None else {"".join(text.split()) for text in guard.conjuncts}
    guards: list[str] = []
    for place, one in enumerate(ordered):
        letter = AXES[place]
        value = one.variable.value
        assert value is not None, "a coordinate has a value"
        cast = re.match(r"\(\s*(?:size_t|long long|int64_t)\s*\)", tree.text(value))
        text = (
            f"blockIdx.{letter}" if block[place] == 1 else f"blockIdx.{letter} * blockDim.{letter} + threadIdx.{letter}"
        )
        edits.append(tree.replace(value, f"{cast[0] if cast else ''}{text}"))
        if block[place] > 1:
            bound = in_kernel(tree, contract, one.extent)
            if bound is None:
                return None
            if f"{one.variable.name}<{bound}" not in known:
                guards.append(f"{one.variable.name} >= {bound}")
    last = max((one.variable.declaration for one in ordered), key=lambda node: node.end_byte)
    if last.parent is None or last.parent.id != tree.body.id:
        return None
    if not guards:
        return edits
    end = tree.span(last)[1]
    return [*edits, (end, end, f"\n{indent_of(tree, last)}if ({' || '.join(guards)}) return;")]


def in_kernel(tree: Tree, contract: Contract, extent: str) -> str | None:
    """Translates an extent of the contract into the kernel's text.

    The result is None unless the extent consists of numbers and the kernel's arguments.
    """
    told = {argument.name for argument in contract.args if argument.shape is None and argument.value is None}
    fixed = {name: {size.get(name) for size in contract.sizes} for name in set(re.findall(r"[A-Za-z_]\w*", extent))}
    text = extent.replace("//", "/")
    for name, values in fixed.items():
        if name in told and name in {parameter.name for parameter in tree.kernel.signature.parameters}:
            continue
        if len(values) != 1 or None in values:
            return None
        text = re.sub(rf"\b{name}\b", str(values.pop()), text)
    if not re.fullmatch(r"[\w\s*+/()-]+", text):
        return None
    return text if re.fullmatch(r"\w+", text) else f"({text})"
