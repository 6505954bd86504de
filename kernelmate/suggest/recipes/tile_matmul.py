"""Reads the operands of a product-like loop over two matrices through tiles in shared memory.

Applies if each thread of a two-dimensional block has one row and one column and combines, in one loop, elements that
depend on its row and the loop variable with elements that depend on its column and the loop variable, as in matrix
products or distances of all pairs. Every element is then read from global memory once per block instead of once per
thread. Improves time and global traffic, and costs shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Claim, Contract, Kernel
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.launch import follow_block
from kernelmate.suggest.recipes.literal_blocks import block_sides
from kernelmate.suggest.recipes.restructure import ZERO, further_in, known, last_return, named
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    names,
    only_pure_calls,
    reindented,
    replaced,
    root_name,
    statements,
    substitute,
    writes,
)
from kernelmate.suggest.syntax_loops import CountingLoop, GuardedWork, global_index, guarded, read_loop

SIDES = (32, 16)
"""Sides of the tiles to try, in threads; only the value of the file's constant for a tile's side, if it has one."""
TILE_NAMES = "tile|block_?size|block_?dim"


@dataclass(frozen=True, slots=True)
class Operand:
    """One matrix that the loop reads.

    Attributes:
        element: the access.
        array: the pointer's name.
        type: the type of an element.
        axis: `x` or `y`, the side of the block whose thread index selects the row or column.
        owner: the variable that numbers rows or columns.
        along: True if neighbouring values of the loop variable access neighbouring elements.
    """

    element: Node
    array: str
    type: str
    axis: str
    owner: str
    along: bool


@dataclass(frozen=True, slots=True)
class Product:
    """A product-like loop in a kernel.

    Attributes:
        guard: the guard around it.
        loop: the loop over the shared axis.
        before, after: the guarded statements before and after the loop.
        operands: the two matrices.
        plain_sum: True if the loop only adds products of their elements.
    """

    guard: GuardedWork
    loop: CountingLoop
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    operands: tuple[Operand, ...]
    plain_sum: bool


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for each side of the tiles."""
    tree = read_tree(request.kernel)
    sides = block_sides(request.contract)
    if tree is None or sides is None or len(sides) != 2 or min(sides) < 2:
        return
    lanes = lanes_of(tree, request.contract)
    product = None if lanes is None else _product(tree, lanes)
    followed = follow_block(request.contract, sides)
    if lanes is None or product is None or followed is None or _tied(tree, sides):
        return
    for side in [side for side in SIDES if known(tree, side, TILE_NAMES)] or SIDES:
        if any(ELEMENT_BYTES.get(one.type, 8) * side * (side + 1) > 24 * 1024 for one in product.operands):
            continue
        yield _rewrite(request, tree, lanes, product, followed, side)


CLAIMS = (
    Claim(
        r"is read from global memory by every thread of a row or column of the block; through (tiles of \d+ x \d+ in shared memory) it is read once per block",
        "load_requests",
        instead=r"goes through \1",
    ),
)
RECIPE = Recipe("tile-shared", ("time", "global_bytes"), ("shared_bytes", "registers"), rewrites, claims=CLAIMS)


def _tied(tree: Tree, sides: Sequence[int]) -> bool:
    """Returns True if the kernel contains a side of the block as a literal."""
    numbers = {tree.text(node).rstrip("uU") for node in tree.walk("number_literal")}
    return bool(numbers & {str(side) for side in sides})


def _product(tree: Tree, lanes: LaneEvaluator) -> Product | None:
    if any(word in tree.kernel.source for word in ("__shared__", "__sync", "__shfl", "atomic")):
        return None
    guard = guarded(tree, statements(tree.body))
    row, col = global_index(tree, "x"), global_index(tree, "y")
    if guard is None or row is None or col is None or not only_pure_calls(tree, tree.body):
        return None
    found = [(place, loop) for place, node in enumerate(guard.rest) if (loop := read_loop(tree, node)) is not None]
    if len(found) != 1:
        return None
    place, loop = found[0]
    before, after = guard.rest[:place], guard.rest[place + 1 :]
    harmless = all(node.type == "declaration" and not list(element_accesses(tree, node)) for node in before)
    if not harmless or loop.node.type != "for_statement" or loop.step != "1" or loop.inclusive or not after:
        return None
    if any(place.type != "identifier" for place in writes(tree, loop.block)) or not _conjuncts_apart(guard, row, col):
        return None
    operands = _operands(tree, loop, lanes, {"x": row, "y": col})
    if operands is None:
        return None
    return Product(guard, loop, tuple(before), tuple(after), operands, _plain_sum(tree, loop, operands))


def _conjuncts_apart(guard: GuardedWork, row: str, col: str) -> bool:
    """Returns True if each condition of the guard concerns either the row or the column, not both."""
    for text in guard.conjuncts:
        named = set(re.findall(r"[A-Za-z_]\w*", text))
        if (row in named) == (col in named):
            return False
    return True


def _operands(
    tree: Tree, loop: CountingLoop, lanes: LaneEvaluator, owners: dict[str, str]
) -> tuple[Operand, ...] | None:
    """Returns the two matrices.

    The result is None if the loop reads any other array at an index that depends on the loop variable.
    """
    found: dict[str, Operand] = {}
    for element in element_accesses(tree, loop.block):
        array, index = root_name(tree, element), index_of(element)
        parameter = next((p for p in tree.kernel.signature.parameters if p.pointer and p.name == array), None)
        if parameter is None or array is None or index is None or is_written(tree, element):
            return None
        named = names(tree, index)
        own = [(axis, name) for axis, name in owners.items() if name in named]
        if len(own) != 1 or loop.name not in named or named & _declared_in(tree, loop):
            return None
        one = lanes.value(index, (0, 0, 0), {loop.name: 1})
        zero = lanes.value(index, (0, 0, 0), {loop.name: 0})
        if one is None or zero is None:
            return None
        axis, owner = own[0]
        known = found.get(tree.text(element))
        if known is None:
            found[tree.text(element)] = Operand(element, array, parameter.base, axis, owner, one - zero == 1)
    operands = tuple(found.values())
    return operands if len(operands) == 2 and {one.axis for one in operands} == {"x", "y"} else None


def _declared_in(tree: Tree, loop: CountingLoop) -> set[str]:
    found = set()
    for declaration in tree.walk("declaration", under=loop.block):
        for declarator in declaration.children_by_field_name("declarator"):
            name = tree.name_node(declarator)
            if name is not None:
                found.add(tree.text(name))
    return found


def _plain_sum(tree: Tree, loop: CountingLoop, operands: tuple[Operand, ...]) -> bool:
    """Returns True if the loop adds products of the two elements, so that zeros outside the matrices change nothing."""
    a, b = (re.escape("".join(tree.text(one.element).split())) for one in operands)
    text = "".join(tree.text(loop.block).split()).strip("{}")
    return re.fullmatch(rf"\w+\+=(?:{a}\*{b}|{b}\*{a});", text) is not None


def _rewrite(
    request: SuggestRequest, tree: Tree, lanes: LaneEvaluator, product: Product, followed: Contract, side: int
) -> Rewrite:
    product, turned = _lanes_along_result(tree, lanes, product)
    kernel = apply_edits(request.kernel, [*turned, *_edits(tree, product, side)])
    kernel, contract = _launched(request, kernel, followed, side)
    blocks = launch_shape(contract, contract.sizes[0]).blocks
    arrays = " and ".join(one.array for one in product.operands)
    why = (
        f"Each element of {arrays} is read from global memory by every thread of a row or column of the block; through tiles of "
        f"{side} x {side} in shared memory it is read once per block ({blocks} blocks)."
    )
    return Rewrite(kernel, contract, why)


def _launched(request: SuggestRequest, kernel: Kernel, followed: Contract, side: int) -> tuple[Kernel, Contract]:
    if block_sides(request.contract) == (side, side):
        return kernel, request.contract
    return relaunch(request, kernel, grid=followed.grid, block=(str(side), str(side)))


def _lanes_along_result(tree: Tree, lanes: LaneEvaluator, product: Product) -> tuple[Product, list[Edit]]:
    """Returns the product and edits with the block's axes exchanged, if stores are contiguous along y."""
    owners = {one.axis: one.owner for one in product.operands}
    variables = {axis: tree.variable(owner) for axis, owner in owners.items()}
    zero = dict.fromkeys(owners.values(), 0.0)
    written = [e for node in product.after for e in element_accesses(tree, node) if is_written(tree, e)]
    strides = {axis: [_stride(lanes, index_of(e), zero, owner) for e in written] for axis, owner in owners.items()}
    threads = [node for node in tree.walk("field_expression") if tree.text(node).startswith("threadIdx")]
    if not written or any(one != 1 for one in strides["y"]) or 1 in strides["x"] or len(threads) != 2:
        return product, []
    other = {"x": "y", "y": "x"}
    edits: list[Edit] = []
    for axis, variable in variables.items():
        value = None if variable is None else variable.value
        own = [] if value is None else [node for node in tree.walk("field_expression", under=value) if node in threads]
        if len(own) != 1:
            return product, []
        edits.append(tree.replace(own[0], f"threadIdx.{other[axis]}"))
    first = min(tree.span(one.declaration)[0] for one in variables.values() if one is not None)
    edits.append((first, first, f"// threadIdx.x runs along {owners['y']}, so that stores are coalesced; blocks are square.\n{indent_of(tree, tree.body)}{indent_step(tree)}"))  # fmt: skip
    return replace(product, operands=tuple(replace(one, axis=other[one.axis]) for one in product.operands)), edits


def _stride(lanes: LaneEvaluator, index: Node | None, zero: dict[str, float], name: str) -> float | None:
    one = None if index is None else lanes.value(index, (0, 0, 0), {**zero, name: 1.0})
    none = None if index is None else lanes.value(index, (0, 0, 0), zero)
    return None if one is None or none is None else one - none


def _edits(tree: Tree, product: Product, side: int) -> Iterator[Edit]:
    """Yields edits that move the guard after the loop, and split the loop into tiles."""
    guard, loop = product.guard, product.loop
    step = indent_step(tree)
    own = indent_of(tree, loop.node)
    if guard.returns:
        yield _whole_lines(tree, tree.span(guard.node)[0], tree.span(last_return(guard))[1])
    else:
        then = guard.node.child_by_field_name("consequence")
        if then is None:
            return
        start = tree.span(then)[0] if then.type == "compound_statement" else tree.span(guard.node)[1]
        yield tree.span(guard.node)[0], start, ""
    name = known(tree, side, TILE_NAMES)
    if name is None:
        name, constant = named(tree, "Tile", side, "rows and columns of a tile in shared memory")
        yield constant
    tiles = [fresh(tree, f"tile_{one.array}") for one in product.operands]
    opening = tree.span(tree.body)[0] + 1
    yield opening, opening, "".join(f"\n{step}{one}" for one in _declared(product, tiles, name))
    yield tree.span(loop.node)[0], tree.span(loop.node)[1], _tiled_loop(tree, product, tiles, name, own, step)
    first, last = tree.span(product.after[0])[0], tree.span(product.after[-1])[1]
    if len(product.after) == 1:
        yield first, first, f"if ({guard.inside}) "
    else:
        yield first, first, f"if ({guard.inside}) {{\n{own}{step}"
        yield from further_in(tree, first, last)
        yield last, last, f"\n{own}}}"


def _whole_lines(tree: Tree, start: int, end: int) -> Edit:
    """Returns an edit that removes statements, and their lines if these contain nothing else."""
    text = tree.kernel.unit.text
    line = text.rfind("\n", 0, start) + 1
    alone = not text[line:start].strip() and text[end : end + 1] == "\n"
    return (line, end + 1, "") if alone else (start, end, "")


def _declared(product: Product, tiles: Sequence[str], side: str) -> Iterator[str]:
    """Yields the tiles' declarations; a tile whose rows are selected by lanes gets a column of padding."""
    for one, tile in zip(product.operands, tiles, strict=True):
        padded = one.along and one.axis == "x"
        yield f"__shared__ {one.type} {tile}[{side}][{side}{' + 1' if padded else ''}];" + (
            "  // + 1, so that the elements of a column lie in different banks" if padded else ""
        )


def _tiled_loop(tree: Tree, product: Product, tiles: Sequence[str], side: str, indent: str, step: str) -> str:
    loop = product.loop
    outside = _names_outside(tree, product)
    base, inner = fresh(tree, "start"), fresh(tree, f"{loop.name}_in") if outside else loop.name
    bound = tree.text(loop.bound)
    lines = [f"for ({loop.declared or 'int'} {base} = {tree.text(loop.start)}; {base} < {bound}; {base} += {side}) {{"]
    for one, tile in zip(product.operands, tiles, strict=True):
        lines += [step + line for line in _load(tree, product, one, tile, base, bound)]
    lines.append(f"{step}__syncthreads();")
    changes = [
        (found.start_byte, found.end_byte, f"{tile}[threadIdx.{one.axis}][{inner}]" if one.along else f"{tile}[{inner}][threadIdx.{one.axis}]")
        for one, tile in zip(product.operands, tiles, strict=True)
        for found in element_accesses(tree, loop.block)
        if tree.text(found) == tree.text(one.element)
    ]  # fmt: skip
    limit = "" if product.plain_sum else f" && {base} + {inner} < {bound}"
    body = reindented(replaced(tree, loop.block, changes), indent, indent + step)
    if loop.block.type != "compound_statement":
        body = f"{{ {body} }}" if "\n" in body else body
    if outside:
        turn = f"const {loop.declared or 'int'} {loop.name} = {base} + {inner};"
        block = loop.block.type == "compound_statement" and body.startswith("{\n")
        body = f"{{\n{indent}{step * 2}{turn}{body[1:]}" if block else f"{{ {turn} {body} }}"
    lines.append(f"{step}#pragma unroll" if product.plain_sum else f"{step}#pragma unroll 8")
    lines.append(f"{step}for (int {inner} = 0; {inner} < {side}{limit}; ++{inner}) {body}")
    lines += [f"{step}__syncthreads();", "}"]
    return f"\n{indent}".join(lines).replace(f"{indent}{step}#pragma", "#pragma")


def _names_outside(tree: Tree, product: Product) -> bool:
    """Returns True if the loop variable is used other than to index the two matrices."""
    spans = [(e.start_byte, e.end_byte) for e in element_accesses(tree, product.loop.block)]
    return any(
        tree.text(node) == product.loop.name and not any(low <= node.start_byte < high for low, high in spans)
        for node in tree.walk("identifier", under=product.loop.block)
    )


def _load(tree: Tree, product: Product, one: Operand, tile: str, base: str, bound: str) -> list[str]:
    """Returns statements in which each thread loads one element; lanes load contiguous elements."""
    owner = tree.variable(one.owner)
    assert owner is not None
    assert owner.value is not None
    across, deep = ("threadIdx.y", "threadIdx.x") if one.along else ("threadIdx.x", "threadIdx.y")
    turn = fresh(tree, f"{product.loop.name}_{one.array}")
    lines = [f"const {product.loop.declared or 'int'} {turn} = {base} + {deep};"]
    number = one.owner
    if across != f"threadIdx.{one.axis}":
        number = fresh(tree, f"{one.owner}_{one.array}")
        place = re.sub(r"\bthreadIdx\s*\.\s*[xy]\b", across, tree.text(owner.value))
        lines.append(f"const {owner.type} {number} = {place};")
    conditions = [
        re.sub(rf"\b{one.owner}\b", number, text)
        for text in product.guard.conjuncts
        if re.search(rf"\b{one.owner}\b", text)
    ]
    element = substitute(tree, one.element, {one.owner: number, product.loop.name: turn})
    there = " && ".join([*conditions, f"{turn} < {bound}"])
    zero = ZERO.get(one.type, f"{one.type}(0)")
    place = "[threadIdx.y][threadIdx.x]"  # lanes store side by side whichever way the matrix lies
    return [*lines, f"{tile}{place} = {there} ? {element} : {zero};"]
