"""Replaces a single thread that processes a row (or any list) by a warp.

Applies to kernels in which each thread has an index of its own, works below a bound, and combines elements in loops
into sums, products, extremes or the position of an extreme, or stores one element per iteration. Each of the 32 lanes
runs every 32nd iteration of such a loop, or of an inner loop over neighbouring elements, and the lanes combine their
values by shuffles. Lanes then read neighbouring elements, and there are 32 times as many threads. Further axes of the
grid do not change. Improves time and global traffic; sums of floats are added in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.helpers import plain_helpers
from kernelmate.suggest.recipes import accumulate_in_register
from kernelmate.suggest.recipes.base import Recipe, Rewrite, covered, relaunch
from kernelmate.suggest.recipes.carried import CarriedValue, carried_values
from kernelmate.suggest.recipes.restructure import further_in, half_warp, warp_width
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
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
from kernelmate.suggest.syntax_loops import CountingLoop, guarded, is_global_index, read_loop


@dataclass(frozen=True, slots=True)
class Shared:
    """A loop whose iterations lanes share.

    The values `joined` are combined after `around`, which is the loop or one around it.
    """

    loop: CountingLoop
    joined: tuple[CarriedValue, ...]
    around: Node


@dataclass(slots=True)
class Sharing:
    """Work of a thread that the lanes of a warp share: loops divided among lanes, and stores that one lane executes."""

    loops: list[Shared] = field(default_factory=list)
    stores: list[Node] = field(default_factory=list)


def share(tree: Tree, work: Sequence[Node], *, inside: bool) -> Sharing | None:
    """Returns how the lanes of a warp can share a thread's statements; None if they cannot.

    Args:
        tree: the kernel.
        work: a thread's statements without its early returns.
        inside: True to share inner loops if possible, else the outermost ones.
    """
    found = Sharing()
    if not all(_place(tree, statement, found, inside=inside) for statement in work) or not found.loops:
        return None
    return found if _same_lane_reads(tree, [one.loop for one in found.loops]) else None


def _place(tree: Tree, statement: Node, found: Sharing, *, inside: bool) -> bool:
    """Assigns one statement to lanes; False if they cannot execute it."""
    if statement.type not in {"for_statement", "while_statement"}:
        return _sort(tree, statement, found.stores)
    loop = read_loop(tree, statement)
    if loop is not None and inside:
        deeper = _deeper(tree, loop)
        if deeper is not None:
            found.loops += deeper.loops
            found.stores += deeper.stores
            return True
    joined = None if loop is None else _shared_loop(tree, loop)
    if loop is not None and joined is not None:
        found.loops.append(Shared(loop, joined, loop.node))
        return True
    deeper = None if loop is None else _deeper(tree, loop)
    if deeper is None:
        return False
    found.loops += deeper.loops
    found.stores += deeper.stores
    return True


def _deeper(tree: Tree, loop: CountingLoop) -> Sharing | None:
    """Returns the shared inner loops of a loop that all lanes execute.

    The result is None if there are none or the body prevents it.
    """
    if loop.node.type != "for_statement":
        return None
    inner = [read_loop(tree, node) for node in loop.body if node.type in {"for_statement", "while_statement"}]
    if not inner:
        return None
    outer = carried_values(tree, loop)
    if outer is not None and len(inner) == 1 and inner[0] is not None:
        whole = _joined_outside(tree, loop, inner[0], outer)
        if whole is not None:
            return whole
    if loop.block.type != "compound_statement":
        return None
    found = Sharing()
    fine = all(_place(tree, statement, found, inside=True) for statement in loop.body)
    return found if fine and found.loops else None


def _joined_outside(
    tree: Tree, loop: CountingLoop, inner: CountingLoop, outer: tuple[CarriedValue, ...]
) -> Sharing | None:
    """Returns the inner loop as shared, with its values combined once after the outer loop, not in each iteration."""
    if _shared_loop(tree, inner) is None or not outer:
        return None
    names_ = {one.name for one in outer}
    for place in writes(tree, loop.block):
        inside = inner.node.start_byte <= place.start_byte < inner.node.end_byte
        if not inside and (place.type != "identifier" or tree.text(place) in names_):
            return None
    if any(place.type != "identifier" for place in writes(tree, inner.block)):
        return None
    rest = [node for node in loop.body if node.id != inner.node.id]
    if any(node.type != "declaration" for node in rest) or not all(one.kind == "sum" for one in outer):
        return None
    return Sharing([Shared(inner, outer, loop.node)])


def _shared_loop(tree: Tree, loop: CountingLoop) -> tuple[CarriedValue, ...] | None:
    """Returns the values that the loop carries between iterations, if lanes can share its iterations; else None."""
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


def _sort(tree: Tree, statement: Node, stores: list[Node]) -> bool:
    """Classifies a statement outside the shared loops: a store by one lane, or work of all lanes; False if neither."""
    if statement.type in {"declaration", "preproc_call", "continue_statement"}:
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


def _same_lane_reads(tree: Tree, loops: list[CountingLoop]) -> bool:
    """Returns True if values stored in a loop are read again only by the lane that stored them."""
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


def _turn_of(tree: Tree, element: Node, loops: list[CountingLoop]) -> str:
    """Returns the element's index with `@` for the variable of the shared loop around it."""
    index = index_of(element)
    around = [loop for loop in loops if loop.node.start_byte <= element.start_byte < loop.node.end_byte]
    if index is None:
        return "?"
    return plain(tree, index) if not around else re.sub(rf"(?<![\w.]){around[0].name}\b", "@", plain(tree, index))


ENOUGH_THREADS = 1024
"""Threads per SM that suffice to hide latency."""
ROWS = 8
"""Rows of the block if its x axis becomes a warp."""
FAR = 32
"""Smallest distance in bytes at which the reads of two lanes touch different sectors."""


@dataclass(frozen=True, slots=True)
class WarpPlan:
    """A planned rewrite: the computation of the thread's index, and the work that lanes share.

    `flat` is True if the block has one dimension.
    """

    index: Node
    declaration: Node
    sharing: Sharing
    flat: bool


@dataclass(frozen=True, slots=True)
class WarpLaunch:
    """Grid and block with 32 lanes for each former thread."""

    grid: tuple[str, ...]
    block: tuple[str, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields candidates with a warp per former thread: one shares the outermost loops, the other inner loops."""
    launch = _wider_launch(request.contract)
    if launch is None:
        return
    seen: set[str] = set()
    for inside in (False, True):
        for kernel in _with_sums_in_registers(request):
            tree = read_tree(kernel)
            plan = None if tree is None else _plan(tree, request.contract, inside=inside)
            if tree is None or plan is None or not _worth_it(request, tree, plan):
                continue
            rewrite = _widened(request, kernel, tree, plan, launch)
            if rewrite.kernel.unit.text not in seen:
                seen.add(rewrite.kernel.unit.text)
                yield rewrite
            break


RECIPE = Recipe("warp-per-row", ("time", "global_bytes"), ("registers", "accuracy"), rewrites)


def _with_sums_in_registers(request: SuggestRequest) -> Iterator[Kernel]:
    """Yields the kernel, and the kernel with sums in registers instead of global memory, which lanes can combine."""
    yield request.kernel
    for rewrite in accumulate_in_register.rewrites(request):
        yield rewrite.kernel


def _neighbours(tree: Tree, sharing: Sharing) -> bool:
    """Returns True if consecutive turns of a shared loop access neighbouring elements of an array."""
    for loop in (one.loop for one in sharing.loops):
        alone = re.compile(rf"(?<![*/%] )\b{re.escape(loop.name)}\b(?! ?[*/%])")
        if any(alone.search(index) for index in re.findall(r"\[([^\[\]]*)\]", tree.text(loop.node))):
            return True
    return False


def _widened(request: SuggestRequest, kernel: Kernel, tree: Tree, plan: WarpPlan, launch: WarpLaunch) -> Rewrite:
    kernel, contract = relaunch(request, apply_edits(kernel, _edits(tree, plan)), grid=launch.grid, block=launch.block)
    name = tree.text(plan.declaration.child_by_field_name("declarator") or plan.declaration)
    own = name.split("=")[0].strip()
    if _neighbours(tree, plan.sharing):
        why = (
            f"Each thread processes its part alone ({own}), so that neighbouring lanes read far apart and few threads "
            "work; a warp shares the part, its lanes access neighbouring elements, and shuffles combine their results."
        )
    else:
        why = f"Each thread processes its part alone ({own}), so that few threads work; a warp shares the part, and shuffles combine the results of its lanes."
    return Rewrite(kernel, contract, why)


# ------------------------------------------------------------------------------------------- the launch


def _wider_launch(contract: Contract) -> WarpLaunch | None:
    """Returns the launch with 32 times as many threads, if the grid's first side follows from a size; else None."""
    shapes = [launch_shape(contract, size) for size in contract.sizes]
    rounded = covered(contract.grid[0])
    if rounded is None:
        return None
    work = rounded[0] if re.fullmatch(r"\w+", rounded[0]) else f"({rounded[0]})"
    if all(shape.block[1:] == (1, 1) for shape in shapes):
        if all(shape.block[0] % 32 == 0 for shape in shapes):
            return WarpLaunch((f"cdiv({work} * 32, {rounded[1]})", *contract.grid[1:]), contract.block)
        return None
    if any(shape.block[2] != 1 for shape in shapes) or len(contract.grid) < 2:
        return None
    second = covered(contract.grid[1])
    if second is None or not (second[1].isdigit() or second[1] == "block_y"):
        return None
    return WarpLaunch((work, f"cdiv({second[0]}, {ROWS})", *contract.grid[2:]), ("32", str(ROWS)))


# ----------------------------------------------------------------------------------------- detection


def _plan(tree: Tree, contract: Contract, *, inside: bool) -> WarpPlan | None:
    flat = len(contract.block) == 1 or all(side.strip() == "1" for side in contract.block[1:])
    width = int(contract.block[0]) if contract.block[0].strip().isdigit() and flat else None
    within = statements(tree.body)
    guard = guarded(tree, within)
    if guard is None or any(word in tree.kernel.source for word in ("__shared__", "__sync", "__shfl", "atomic")):
        return None
    index = _index(tree, "x", width)
    once = tree.kernel.source.count("threadIdx") == (1 if flat else 2)
    if index is None or not once or not only_pure_calls(tree, tree.body, plain_helpers(tree.kernel)):
        return None
    if not flat and _index(tree, "y", None) is None:
        return None
    work = [*within[: within.index(guard.node)], *guard.rest]
    sharing = share(tree, work, inside=inside)
    declaration = index.parent
    while declaration is not None and declaration.type != "declaration":
        declaration = declaration.parent
    return None if declaration is None or sharing is None else WarpPlan(index, declaration, sharing, flat)


def _index(tree: Tree, axis: str, width: int | None) -> Node | None:
    """Returns the expression of the thread's index along an axis, if a constant variable holds it; else None."""
    for name, variable in tree.variables.items():
        if variable is not None and variable.value is not None and is_global_index(tree, variable.value, axis, width):
            return variable.value if constant_after_start(tree, name) else None
    return None


def _worth_it(request: SuggestRequest, tree: Tree, plan: WarpPlan) -> bool:
    """Returns True if lanes now read distant elements, or the launch has too few threads to hide latency."""
    lanes = lanes_of(tree, request.contract)
    if lanes is None:
        return False
    shape = lanes.shape
    if request.objective.metric == "time" and shape.blocks * shape.threads < ENOUGH_THREADS * request.target.sms:
        return True
    return any(_far_apart(lanes, one) for one in plan.sharing.loops)


def _far_apart(lanes: LaneEvaluator, shared: Shared) -> bool:
    """Returns True if two lanes read from different sectors in a loop, or from addresses that depend on data."""
    for access in lanes.accesses():
        if shared.loop.node.start_byte <= access.element.start_byte < shared.loop.node.end_byte:
            one, other = lanes.address(access.element, (0, 0, 0)), lanes.address(access.element, (1, 0, 0))
            if one is None or other is None or abs(other - one) * access.width >= FAR:
                return True
    return False


# ------------------------------------------------------------------------------------------- changing


def _edits(tree: Tree, plan: WarpPlan) -> list[Edit]:
    lane = fresh(tree, "lane")
    name = tree.text(tree.name_node(plan.declaration) or plan.index)
    indent = indent_of(tree, plan.declaration)
    end = tree.span(plan.declaration)[1]
    width = warp_width(tree)
    number = f"({tree.text(plan.index)}) / {width}" if plan.flat else "blockIdx.x"
    count = f"threadIdx.x % {width}" if plan.flat else "threadIdx.x"
    whole = f": blocks need a multiple of {width} threads" if plan.flat else ""
    edits: list[Edit] = [
        tree.replace(plan.index, number),
        (end, end, f"\n{indent}const int {lane} = {count};  // a warp for each {name}{whole}"),
    ]
    for shared in plan.sharing.loops:
        edits += _loop_edits(tree, shared, lane)
    for stores in _adjacent(plan.sharing.stores):
        first, last = tree.span(stores[0])[0], tree.span(stores[-1])[1]
        if len(stores) == 1:
            edits.append((first, first, f"if ({lane} == 0) "))
            continue
        own = indent_of(tree, stores[0])
        edits += [(first, first, f"if ({lane} == 0) {{\n{own}{indent_step(tree)}"), (last, last, f"\n{own}}}")]
        edits += further_in(tree, first, last)
    return edits


def _adjacent(stores: Sequence[Node]) -> list[list[Node]]:
    """Groups stores that directly follow each other."""
    runs: list[list[Node]] = []
    for store in stores:
        if runs and runs[-1][-1].next_named_sibling == store:
            runs[-1].append(store)
        else:
            runs.append([store])
    return runs


def _loop_edits(tree: Tree, shared: Shared, lane: str) -> Iterator[Edit]:
    loop, joined = shared.loop, shared.joined
    indent, step = indent_of(tree, shared.around), indent_step(tree)
    update = loop.node.child_by_field_name("update")
    start = tree.text(loop.start)
    yield tree.replace(loop.start, lane if start.strip() in {"0", "0u"} else f"{start} + {lane}")
    if update is not None:
        yield tree.replace(update, f"{loop.name} += {warp_width(tree)}")
    first, last = tree.span(shared.around)
    resets = "".join(
        f"if ({lane} != 0) {one.name} = {one.neutral};\n{indent}"
        for one in joined
        if one.neutral is not None and not _starts_neutral(tree, one, shared.around)
    )
    if resets:
        yield first, first, resets
    offset = fresh(tree, "distance" if "offsets" in tree.variables else "offset")
    lines = [line for one in joined for line in one.joined_with(offset, step)]
    if len(lines) == 1:
        yield last, last, f"\n{indent}for (int {offset} = {half_warp(tree)}; {offset} > 0; {offset} /= 2) {lines[0]}"
    elif lines:
        inner = "".join(f"\n{indent}{step}{line}" for line in lines)
        yield (
            last,
            last,
            f"\n{indent}for (int {offset} = {half_warp(tree)}; {offset} > 0; {offset} /= 2) {{{inner}\n{indent}}}",
        )


def _starts_neutral(tree: Tree, one: CarriedValue, around: Node) -> bool:
    """Returns True if the value is initialised to the neutral element beside the loop and unchanged before it."""
    variable = tree.variable(one.name)
    if variable is None or variable.value is None or variable.declaration.parent != around.parent:
        return False
    text = tree.text(variable.value).rstrip("fFuUlL").strip()
    number = re.fullmatch(r"\d+(?:\.\d*)?", text)
    between = (variable.declaration.end_byte, around.start_byte)
    met = any(between[0] <= use.start_byte < between[1] for use in tree.uses(one.name))
    return number is not None and not met and str(int(float(text))) == one.neutral and float(text).is_integer()
