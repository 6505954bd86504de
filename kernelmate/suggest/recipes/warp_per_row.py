"""A thread that goes through a row (or any list) alone is replaced by a warp that shares it.

Applies to kernels of one dimension in which each thread has a number of its own, works below a bound, and joins what it meets
in loops into sums, products, extremes or the place of an extreme, or stores one element per turn. The 32 lanes take every
32nd turn and join by shuffles. Lanes then read side by side, and there are 32 times as many threads. It is for time and global
traffic; sums of floats are added in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import accumulate_in_register
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.carried import Carried, carried_values
from kernelmate.suggest.strides import lanes_of
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    names,
    only_pure_calls,
    plain,
    root_name,
    statements,
    writes,
)
from kernelmate.suggest.syntax_loops import Loop, guarded, is_global_index, read_loop

ENOUGH_THREADS = 1024
"""Threads per SM with which a GPU hides its latencies; a kernel with more gains nothing from having more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What changes: where the thread's number is computed, the loops that lanes share, and stores that one lane does."""

    index: Node
    declaration: Node
    loops: tuple[tuple[Loop, tuple[Carried, ...]], ...]
    stores: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: a warp for each thread that there was."""
    grid = _wider_grid(request.contract)
    for kernel in _with_sums_in_registers(request):
        tree = read_tree(kernel)
        plan = None if tree is None else _plan(tree, request.contract)
        if grid is not None and tree is not None and plan is not None and _worth_it(request, tree, plan):
            yield _widened(request, kernel, tree, plan, grid)
            return


RECIPE = Recipe("warp-per-row", ("time", "global_bytes"), ("registers", "accuracy"), rewrites)


def _with_sums_in_registers(request: SuggestRequest) -> Iterator[Kernel]:
    """The kernel, and the kernel with sums that it keeps in global memory in registers, where alone lanes can join them."""
    yield request.kernel
    for rewrite in accumulate_in_register.rewrites(request):
        yield rewrite.kernel


def _widened(request: SuggestRequest, kernel: Kernel, tree: Tree, plan: Plan, grid: str) -> Rewrite:
    kernel, contract = relaunch(request, apply_edits(kernel, _edits(tree, plan)), grid=(grid,))
    name = tree.text(plan.declaration.child_by_field_name("declarator") or plan.declaration)
    why = (
        f"Each thread goes through its part alone ({name.split('=')[0].strip()}), so that neighbouring lanes read far apart and few threads are "
        "at work; a warp shares it, its lanes side by side, and joins by shuffles."
    )
    return Rewrite(kernel, contract, why)


def _wider_grid(contract: Contract) -> str | None:
    """The grid for 32 times as many threads, where the block holds whole warps and the grid follows from a size."""
    if len(contract.grid) > 1 and any(side.strip() != "1" for side in contract.grid[1:]):
        return None
    shapes = [launch_shape(contract, size) for size in contract.sizes]
    if any(shape.block[0] % 32 or shape.block[1:] != (1, 1) for shape in shapes):
        return None
    match = re.fullmatch(r"\s*cdiv\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)\s*", contract.grid[0])
    if match is not None:
        work = match[1] if re.fullmatch(r"\w+", match[1]) else f"({match[1]})"
        return f"cdiv({work} * 32, {match[2]})"
    return None


# ------------------------------------------------------------------------------------------- finding


def _plan(tree: Tree, contract: Contract) -> Plan | None:
    width = int(contract.block[0]) if contract.block[0].strip().isdigit() else None
    within = statements(tree.body)
    guard = guarded(tree, within)
    if guard is None or any(word in tree.kernel.source for word in ("__shared__", "__sync", "__shfl", "atomic")):
        return None
    index = _index(tree, width)
    if index is None or tree.kernel.source.count("threadIdx") != 1 or not only_pure_calls(tree, tree.body):
        return None
    found: list[tuple[Loop, tuple[Carried, ...]]] = []
    stores: list[Node] = []
    work = [*within[: within.index(guard.node)], *guard.rest]
    for statement in work:
        loop = read_loop(tree, statement)
        if loop is not None:
            joined = _shared_loop(tree, loop)
            if joined is None:
                return None
            found.append((loop, joined))
        elif not _sort_statement(tree, statement, stores):
            return None
    if not found or not _same_lane_reads(tree, [loop for loop, _ in found]):
        return None
    declaration = index.parent
    while declaration is not None and declaration.type != "declaration":
        declaration = declaration.parent
    return None if declaration is None else Plan(index, declaration, tuple(found), tuple(stores))


def _index(tree: Tree, width: int | None) -> Node | None:
    """The expression of the thread's number, which a variable keeps."""
    for name, variable in tree.variables.items():
        if variable is not None and variable.value is not None and is_global_index(tree, variable.value, "x", width):
            return variable.value if constant_after_start(tree, name) else None
    return None


def _shared_loop(tree: Tree, loop: Loop) -> tuple[Carried, ...] | None:
    """What the loop carries from turn to turn, where lanes can share its turns; None where they cannot."""
    if loop.node.type != "for_statement" or loop.step != "1" or not loop.declared:
        return None
    if next(tree.walk("break_statement", "return_statement", "goto_statement", under=loop.block), None) is not None:
        return None
    joined = carried_values(tree, loop)
    if joined is None:
        return None
    for place in writes(tree, loop.block):
        if place.type == "identifier":
            continue
        index = index_of(place) if place.type == "subscript_expression" else None
        if index is None or loop.name not in names(tree, index):
            return None
    return joined


def _sort_statement(tree: Tree, statement: Node, stores: list[Node]) -> bool:
    """A statement outside the loops: a store that one lane does, or something that all lanes can do alike."""
    if statement.type == "declaration":
        return True
    if statement.type == "expression_statement":
        stored = [place for place in writes(tree, statement) if place.type != "identifier"]
        if stored:
            stores.append(statement)
        return all(place.type in {"subscript_expression", "identifier"} for place in stored)
    if (
        statement.type == "if_statement"
        and next(tree.walk("for_statement", "while_statement", under=statement), None) is None
    ):
        if any(place.type != "identifier" for place in writes(tree, statement)):
            if any(place.type == "identifier" for place in writes(tree, statement)):
                return False
            stores.append(statement)
        return True
    return False


def _same_lane_reads(tree: Tree, loops: list[Loop]) -> bool:
    """What is stored in a loop is read again only by the lane that stored it."""
    stored: dict[str | None, set[str]] = {}
    for element in element_accesses(tree):
        if is_written(tree, element):
            stored.setdefault(root_name(tree, element), set()).add(_turn_of(tree, element, loops))
    starts = {tree.text(loop.start) for loop in loops}
    for element in element_accesses(tree):
        name = root_name(tree, element)
        if name in stored and not is_written(tree, element):
            turn = _turn_of(tree, element, loops)
            if "@" not in turn or stored[name] != {turn} or len(starts) > 1:
                return False
    return True


def _turn_of(tree: Tree, element: Node, loops: list[Loop]) -> str:
    """The element's index with `@` for the variable of the shared loop that it is in."""
    index = index_of(element)
    around = [loop for loop in loops if loop.node.start_byte <= element.start_byte < loop.node.end_byte]
    if index is None:
        return "?"
    return plain(tree, index) if not around else re.sub(rf"(?<![\w.]){around[0].name}\b", "@", plain(tree, index))


def _worth_it(request: SuggestRequest, tree: Tree, plan: Plan) -> bool:
    """Lanes now read far apart, or too few threads are at work."""
    lanes = lanes_of(tree, request.contract)
    if lanes is None:
        return False
    shape = lanes.shape
    if shape.blocks * shape.threads < ENOUGH_THREADS * request.target.sms:
        return True
    first = plan.loops[0][0]
    for access in lanes.accesses():
        if first.node.start_byte <= access.element.start_byte < first.node.end_byte:
            one, other = lanes.address(access.element, (0, 0, 0)), lanes.address(access.element, (1, 0, 0))
            if one is not None and other is not None and abs(other - one) * access.width >= 32:
                return True
    return False


# ------------------------------------------------------------------------------------------- changing


def _edits(tree: Tree, plan: Plan) -> list[Edit]:
    lane = fresh(tree, "lane")
    indent = indent_of(tree, plan.declaration)
    end = tree.span(plan.declaration)[1]
    edits: list[Edit] = [
        tree.replace(plan.index, f"({tree.text(plan.index)}) / 32"),
        (end, end, f"\n{indent}const int {lane} = threadIdx.x % 32;"),
    ]
    for loop, joined in plan.loops:
        edits += _loop_edits(tree, loop, joined, lane)
    for statement in plan.stores:
        start = tree.span(statement)[0]
        edits.append((start, start, f"if ({lane} == 0) "))
    return edits


def _loop_edits(tree: Tree, loop: Loop, joined: tuple[Carried, ...], lane: str) -> Iterator[Edit]:
    indent, step = indent_of(tree, loop.node), indent_step(tree)
    update = loop.node.child_by_field_name("update")
    start = tree.text(loop.start)
    yield tree.replace(loop.start, lane if start.strip() in {"0", "0u"} else f"{start} + {lane}")
    if update is not None:
        yield tree.replace(update, f"{loop.name} += 32")
    first, last = tree.span(loop.node)
    resets = "".join(
        f"if ({lane} != 0) {one.name} = {one.neutral};\n{indent}" for one in joined if one.neutral is not None
    )
    if resets:
        yield first, first, resets
    offset = fresh(tree, "offset")
    lines = [line for one in joined for line in one.joined_with(offset, step)]
    if len(lines) == 1:
        yield last, last, f"\n{indent}for (int {offset} = 16; {offset} > 0; {offset} /= 2) {lines[0]}"
    elif lines:
        inner = "".join(f"\n{indent}{step}{line}" for line in lines)
        yield last, last, f"\n{indent}for (int {offset} = 16; {offset} > 0; {offset} /= 2) {{{inner}\n{indent}}}"
