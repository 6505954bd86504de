"""Moves a copy that permutes the axes of an array through a tile in shared memory, for launches of any form.

Applies to kernels of one store whose thread indices or grid axes become coordinates, if one coordinate is contiguous in
the source and another in the destination: transposes of the planes of a batch, permutations of three axes, rotations,
of elements of up to 8 bytes. Blocks of 32 x 8 threads move tiles of 32 x 32 with a column of padding, so that both
sides of the copy access neighbouring elements. Improves global traffic and time, and costs shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelmate.records import Claim, Contract
from kernelmate.source import apply_edits, launch_shape
from kernelmate.source.expressions import as_factor, evaluate_integer, names_in
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import exchange_axes, flat_order
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.tiles import ROWS, SIDE, TransposedTile, sides
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    names,
    operator,
    root_name,
    statements,
    substitute,
)
from kernelmate.suggest.syntax_loops import global_index, guarded


@dataclass(frozen=True, slots=True)
class Copy:
    """The kernel's only store, `store = right`, where `right` contains `load`.

    Locals except coordinates are substituted.
    """

    first: Node
    last: Node
    store: str
    load: str
    right: str
    type: str


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents of coordinates, as text in the kernel and in the contract.

    If the coordinates are parts of a flat index `number`, the lowest part comes first.
    """

    of: dict[str, tuple[str, str]]
    number: str | None = None

    def written(self) -> str:
        """Returns the flat index as an expression of the coordinates."""
        text = ""
        for name, (extent, _) in reversed(list(self.of.items())):
            text = name if not text else f"({text} * {extent} + {name})"
        return text

    def value(self, contract: Contract, known: dict[str, float]) -> dict[str, float]:
        """Returns the known coordinates with the flat index that follows from them at the headline size."""
        if self.number is None:
            return known
        total, step = 0.0, 1.0
        for name, (_, extent) in self.of.items():
            total += known[name] * step
            step *= evaluate_integer(extent, contract.sizes[0], "the extent")
        return {**known, self.number: total}


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate: blocks of 32 x 8 threads, each with a tile of 32 x 32."""
    tree = read_tree(request.kernel)
    lanes = None if tree is None else lanes_of(tree, request.contract)
    if tree is None or lanes is None or any(word in request.kernel.source for word in ("__shared__", "__shfl", "atomic", "for (", "while (")):  # fmt: skip
        return
    extents = _extents(tree, request, lanes)
    found = None if extents is None else _copy(tree, request.contract, lanes, extents)
    if extents is None or found is None:
        return
    copy, fast, slow = found
    others = [name for name in extents.of if name not in {fast, slow}]
    terms = [extents.of[name][1] for name in others]
    deep = terms[0] if len(terms) == 1 else " * ".join(as_factor(term) for term in terms)
    tiles = [f"cdiv({extents.of[name][1]}, {SIDE})" for name in (fast, slow)]
    folded = bool(others) and not _fits_z(request.contract, deep)
    kernel = apply_edits(request.kernel, _edits(tree, copy, extents, fast, slow, folded=folded))
    if folded:
        tiles[0] = f"{tiles[0]} * {as_factor(deep) if len(terms) == 1 else deep}"
    grid = (*tiles, *([deep] if others and not folded else []))
    kernel, contract = relaunch(request, kernel, grid=grid, block=(str(SIDE), str(ROWS)))
    if any(max(launch_shape(contract, size).grid[1:]) > exchange_axes.MOST_ROWS for size in contract.sizes):
        return
    why = f"`{fast}` runs along what is read and `{slow}` along what is written, so one of the two is in strides whichever way threads are numbered; through a tile in shared memory both are contiguous."  # fmt: skip
    yield Rewrite(kernel, contract, why)


CLAIMS = (
    Claim(
        r", so one of the two is in strides whichever way threads are numbered; through a tile in shared memory both are contiguous",
        "global_bytes",
        instead="; the copy goes through a tile in shared memory",
    ),
)
RECIPE = Recipe("tile-permute", ("global_bytes", "time"), ("shared_bytes",), rewrites, claims=CLAIMS)


def _fits_z(contract: Contract, deep: str) -> bool:
    """Returns True if as many planes as the kernel's own launch has in z are to lie in z.

    Others are folded into x, since z is limited to 65,535 blocks and sizes that the contract does not list may have more.
    """
    if len(contract.grid) < 3:
        return not names_in(deep)
    shapes = ((launch_shape(contract, size).grid[2], size) for size in contract.sizes)
    return all(own == evaluate_integer(deep, size, "the planes") for own, size in shapes)


def _extents(tree: Tree, request: SuggestRequest, lanes: LaneEvaluator) -> Extents | None:
    contract = request.contract
    number = global_index(tree, "x", lanes.shape.block[0])
    flat = (
        None if number is None or lanes.shape.block[1:] != (1, 1) else flat_order.coordinates_of(tree, contract, number)
    )
    if flat is not None and number is not None:
        return Extents({name: (text, text.replace("/", "//")) for name, text in flat.items()}, number)
    axes = exchange_axes.coordinates_of(tree, contract)
    if axes is None or len(axes) < 2:
        return None
    found: dict[str, tuple[str, str]] = {}
    for one in axes:
        text = exchange_axes.in_kernel(tree, contract, one.extent)
        if text is None:
            return None
        found[one.variable.name] = (text, one.extent)
    return Extents(found)


def _copy(tree: Tree, contract: Contract, lanes: LaneEvaluator, extents: Extents) -> tuple[Copy, str, str] | None:
    """Returns the copy, the coordinate that is contiguous in the source, and the one contiguous in the destination."""
    coordinates = list(extents.of)
    within = statements(tree.body)
    guard = guarded(tree, within)
    rest = list(within if guard is None else guard.rest)
    known = set(coordinates) | {name for name in names(tree, tree.body) if tree.variable(name) is not None}
    if (
        not rest
        or not known
        or (guard is not None and not all(_is_bound(tree, one, extents) for one in guard.conjuncts))
    ):
        return None
    *before, last = rest
    if any(node.type != "declaration" for node in before):
        return None
    expression = statement_expression(last)
    right = None if expression is None else expression.child_by_field_name("right")
    store = None if expression is None else expression.child_by_field_name("left")
    if expression is None or right is None or store is None or operator(tree, expression) != "=":
        return None
    if store.type != "subscript_expression" or not is_written(tree, store):
        return None
    given = _written_out(tree, extents)
    loads = [one for one in element_accesses(tree) if one.id != store.id]
    if len(loads) != 1 or given is None:
        return None
    kind = tree.variable(root_name(tree, loads[0]) or "")
    if kind is None or kind.pointers != 1 or ELEMENT_BYTES.get(kind.type, 16) > 8:
        return None
    fast, slow = (_along(contract, lanes, one, extents) for one in (loads[0], store))
    if fast is None or slow is None or fast == slow:
        return None
    load = substitute(tree, loads[0], given)
    text = substitute(tree, right, given)
    if text.count(load) != 1:
        return None
    first = within[0]
    return Copy(first, last, substitute(tree, store, given), load, text, kind.type), fast, slow


def _is_bound(tree: Tree, condition: str, extents: Extents) -> bool:
    """Returns True if the condition only bounds a coordinate or the flat index by its extent, as a tile's guards do."""
    sides = condition.split("<") if "<" in condition else condition.split(">")[::-1]
    if len(sides) != 2 or "=" in condition:
        return False
    name, bound = sides[0].strip(), _factors(tree, sides[1])
    if name == extents.number:
        return bound == sorted(factor for extent, _ in extents.of.values() for factor in _factors(tree, extent))
    return name in extents.of and bound == _factors(tree, extents.of[name][0])


def _factors(tree: Tree, text: str) -> list[str]:
    """Returns the factors of a product of names, with constants of the kernel substituted."""
    found: list[str] = []
    for factor in re.sub(r"[\s()]", "", text).split("*"):
        variable = tree.variable(factor) if factor.isidentifier() else None
        local = (
            variable is not None and variable.declaration.type == "declaration" and constant_after_start(tree, factor)
        )
        value = variable.value if variable is not None and local else None
        found += [factor] if value is None else _factors(tree, tree.text(value))
    return sorted(found)


def _written_out(tree: Tree, extents: Extents) -> dict[str, str] | None:
    """Returns every local variable except coordinates as an expression of the coordinates.

    The result is None if one of the variables is an array or a pointer.
    """
    given = {} if extents.number is None else {extents.number: extents.written()}
    for name, variable in tree.variables.items():
        if (
            name in extents.of
            or name in given
            or (variable is not None and variable.declaration.type == "parameter_declaration")
        ):
            continue
        if variable is None or variable.dims or variable.pointers:
            return None
        if variable.value is not None and not any(
            word in tree.text(variable.value) for word in ("threadIdx", "blockIdx")
        ):
            given[name] = f"({substitute(tree, variable.value, given)})"
    return given


def _along(contract: Contract, lanes: LaneEvaluator, element: Node, extents: Extents) -> str | None:
    """Returns the coordinate along which elements are contiguous, in either direction."""
    index = index_of(element)
    once = dict.fromkeys(extents.of, 1.0)
    base = None if index is None else lanes.value(index, (0, 0, 0), extents.value(contract, once))
    near = []
    for name in extents.of:
        known = extents.value(contract, {**once, name: 2.0})
        one = None if index is None else lanes.value(index, (0, 0, 0), known)
        if base is not None and one is not None and abs(one - base) == 1:
            near.append(name)
    return near[0] if len(near) == 1 else None


def _edits(tree: Tree, copy: Copy, extents: Extents, fast: str, slow: str, *, folded: bool) -> list[Edit]:
    """Returns the new body: coordinates of the block, a loop that reads a tile, a barrier, and a loop that writes it.

    If `folded`, the tiles along `fast` and all planes lie in one dimension of the grid.
    """
    indent, step = indent_of(tree, copy.first) or indent_step(tree), indent_step(tree)
    ends = (extents.of[fast][0], extents.of[slow][0])
    side, rows, constants = sides(tree)
    turned = TransposedTile(fresh(tree, "tile"), fresh(tree, "k"), fast, slow, ends, step, side, rows)
    before: list[str] = []
    plane = "blockIdx.z"
    if folded:
        across = fresh(tree, "across")
        before = [f"const int {across} = ({ends[0]} + {side} - 1) / {side};  // tiles in a row"]
        turned = replace(turned, blocks=(f"blockIdx.x % {across}", "blockIdx.y"))
        plane = f"blockIdx.x / {across}"
    others = [name for name in extents.of if name not in {fast, slow}]
    lines = [turned.declared(copy.type), *before]
    divisor = ""
    for place, name in enumerate(others):
        text = f"{plane}{divisor}"
        if place < len(others) - 1:
            text = f"{text} % {extents.of[name][0]}"
        divisor += f" / {extents.of[name][0]}"
        lines.append(f"const int {name} = {text};")

    lines += turned.moved(copy.load, lambda element: f"{copy.store} = {copy.right.replace(copy.load, element)};")
    start, end = tree.span(tree.body)
    inner = "".join(f"\n{indent}{line}" for line in lines)
    return [*constants, (start, end, f"{{{inner}\n{indent_of(tree, tree.function)}}}")]
