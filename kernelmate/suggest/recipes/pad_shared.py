"""Pads a shared tile that is accessed by columns, so that the elements of a column are in different banks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
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

REASON = "so that the elements of a column lie in different banks"
BANKS = 32
BANK_BYTES = 4
WORST_STRIDE = 4
"""Smallest common factor of row length and number of banks for which padding is proposed."""


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A shared array whose row length maps a column to few banks.

    Attributes:
        variable: the array's declaration.
        rows: number of rows of the whole array.
        columns: elements of a row.
        element_bytes: bytes of an element.
        ways: largest number of rows that map to one bank.
        padding: number of elements to add to a row.
    """

    variable: DeclaredVariable
    rows: int
    columns: int
    element_bytes: int
    ways: int
    padding: int


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate that pads all tiles accessed by columns, then one for each tile if there are several."""
    counters = request.verdict.counters
    conflicts = None if counters is None else counters.bank_conflicts
    tree = read_tree(request.kernel)
    if tree is None or not conflicts:
        return
    tiles = [tile for tile in _tiles(tree) if _walked_by_columns(tree, tile.variable, request)]
    groups = [tiles] + ([[tile] for tile in tiles] if len(tiles) > 1 else [])
    for group in groups:
        if group:
            edits = [edit for tile in group for edit in _pad(tree, tile)]
            yield Rewrite(apply_edits(request.kernel, edits), request.contract, _why(group, conflicts))


CLAIMS = (
    Claim(r"The launch has \d+ bank conflicts, and in", "bank_conflicts", "present", instead="In"),
    Claim(r" spreads a column over all \d+ banks", "bank_conflicts", instead=" moves the rows apart"),
)
RECIPE = Recipe("pad-shared-tile", ("time",), ("shared_bytes",), rewrites, claims=CLAIMS)


def _tiles(tree: Tree) -> Iterator[SharedTile]:
    constants = integer_constants(tree.kernel.unit.text)
    for variable in tree.shared_arrays():
        sizes = [integer_value(text, constants) for text in variable.dims]
        element = ELEMENT_BYTES.get(variable.type)
        if element is None or len(sizes) < 2 or variable.pointers or not _always_indexed(tree, variable):
            continue
        rows = 1
        for size in sizes[:-1]:
            rows *= size or 0
        columns = sizes[-1]
        if not rows or not columns or columns * element % BANK_BYTES:
            continue
        ways = gcd(columns * element // BANK_BYTES, BANKS)
        if ways >= WORST_STRIDE:
            yield SharedTile(variable, rows, columns, element, ways, max(1, BANK_BYTES // element))


def _always_indexed(tree: Tree, variable: DeclaredVariable) -> bool:
    """Returns True if every use has all indices, so that nothing else depends on the row length."""
    return all(_indices(tree, use, len(variable.dims)) is not None for use in tree.uses(variable.name))


def _indices(tree: Tree, use: Node, count: int) -> list[Node] | None:
    """Returns the index expressions of `tile[a][b]`; None for any other use."""
    found: list[Node] = []
    node = use
    while len(found) < count:
        parent = node.parent
        if parent is None or parent.type != "subscript_expression":
            return None
        argument = parent.child_by_field_name("argument")
        indices = parent.child_by_field_name("indices")
        if argument is None or argument.id != node.id or indices is None or len(indices.named_children) != 1:
            return None
        found.append(indices.named_children[0])
        node = parent
    outer = node.parent
    if outer is not None and outer.type == "pointer_expression" and tree.text(outer).startswith("&"):
        return None
    return found


def _walked_by_columns(tree: Tree, variable: DeclaredVariable, request: SuggestRequest) -> bool:
    """Returns True if neighbouring lanes access different rows: an index before the last depends on the lane."""
    lane = _lane_names(tree, request)
    for use in tree.uses(variable.name):
        indices = _indices(tree, use, len(variable.dims)) or []
        if any(_mentions(tree, index, lane) for index in indices[:-1]):
            return True
    return False


def _lane_names(tree: Tree, request: SuggestRequest) -> set[str]:
    """Returns expressions that differ between the lanes of a warp.

    These are threadIdx.x, variables computed from it, and threadIdx.y if a row of the block is shorter than a warp.
    """
    names = {"threadIdx.x"}
    if len(request.contract.block) > 1:
        first = request.contract.block[0].strip()
        if not first.isdigit() or int(first) < BANKS:
            names.add("threadIdx.y")
    grown = True
    while grown:
        grown = False
        for variable in tree.variables.values():
            if variable is None or variable.name in names or variable.value is None:
                continue
            if _mentions(tree, variable.value, names):
                names.add(variable.name)
                grown = True
    return names


def _mentions(tree: Tree, node: Node, names: set[str]) -> bool:
    return any(
        tree.text(inner).replace(" ", "") in names for inner in tree.walk("identifier", "field_expression", under=node)
    )


def _pad(tree: Tree, tile: SharedTile) -> Iterator[Edit]:
    """Yields edits that lengthen the row, and add a comment with the reason at the end of its line."""
    array = next(tree.walk("array_declarator", under=tile.variable.node))
    size = array.child_by_field_name("size")
    assert size is not None, "a tile's last dimension was read before"
    text = tree.text(size)
    padded = str(int(text) + tile.padding) if text.isdigit() else f"{text} + {tile.padding}"
    yield tree.replace(size, padded)
    unit, end = tree.kernel.unit.text, tree.span(tile.variable.declaration)[1]
    after = unit[end:].split("\n", 1)[0]
    if not after.strip():
        yield end, end, f"  // {f'{text} + ' if text.isdigit() else '+ '}{tile.padding}, {REASON}"


def _why(tiles: list[SharedTile], conflicts: int) -> str:
    names = " and ".join(f"{tile.variable.name}{''.join(f'[{size}]' for size in tile.variable.dims)}" for tile in tiles)
    bytes_more = sum(tile.rows * tile.padding * tile.element_bytes for tile in tiles)
    ways = max(tile.ways for tile in tiles)
    columns = "one column" if tiles[0].padding == 1 else f"{tiles[0].padding} columns"
    return (
        f"The launch has {conflicts} bank conflicts, and in {names} up to {ways} rows begin on one bank: {columns} of padding "
        f"({bytes_more} bytes more) spreads a column over all {BANKS} banks."
    )
