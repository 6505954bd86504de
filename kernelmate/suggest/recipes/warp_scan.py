"""Replaces a scan of the block in shared memory by warp shuffles, which need one element per warp.

Applies to the scan with doubling distances (Hillis and Steele, Data parallel algorithms, 1986), in one buffer or
alternating between two, whose results are read at the thread's own position, at the previous one, or at the last.
Improves shared memory and time: the scan had a barrier or two for each doubling. Sums of floats are added in another
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.source import apply_edits, change_launch
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.block_trees import EXTREMES, block_threads
from kernelmate.suggest.recipes.own_shared_element import indices_of
from kernelmate.suggest.recipes.restructure import WARP, ZERO, warp_width, warps
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    DeclaredVariable,
    Edit,
    Node,
    Tree,
    integer_constants,
    integer_value,
    is_barrier,
    read_tree,
    statement_expression,
)
from kernelmate.suggest.syntax_effects import (
    call_name,
    calls,
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    operator,
    plain,
    root_name,
    statements,
)
from kernelmate.suggest.syntax_loops import enclosing_loops, previous

FULL = "0xffffffffu"


@dataclass(frozen=True, slots=True)
class BlockScan:
    """One scan: from the store of each thread's value to the end of the loop.

    Attributes:
        first: the statement that stores the values.
        loop: the loop.
        value: the stored value.
        thread: the text of the thread's index.
        arrays: the buffers.
        function: the function that combines two values; None for a sum.
        between: declarations between the store and the loop.
    """

    first: Node
    loop: Node
    value: Node
    thread: str
    arrays: tuple[DeclaredVariable, ...]
    function: str | None
    between: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ScanReads:
    """Reads of the result: at the thread's own position, at the previous one, and at the last."""

    own: tuple[Node, ...]
    before: tuple[Node, ...]
    last: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that changes the first scan of the block in shared memory."""
    tree = read_tree(request.kernel)
    threads = block_threads(request.contract)
    if tree is None or threads is None:
        return
    for loop in tree.walk("for_statement"):
        scan = _scan(tree, loop, threads)
        reads = None if scan is None else _reads(tree, scan, threads)
        if scan is not None and reads is not None:
            yield from _rewrite(request, tree, scan, reads, threads)
            return


RECIPE = Recipe("warp-scan", ("shared_bytes", "time", "occupancy"), ("accuracy",), rewrites)


# -------------------------------------------------------------------------------------------- detection


def _scan(tree: Tree, loop: Node, threads: int) -> BlockScan | None:
    body = loop.child_by_field_name("body")
    if body is None or "__syncthreads" not in calls(tree, body) or not _doubles(tree, loop, threads):
        return None
    names = {root_name(tree, one) for one in element_accesses(tree, body)}
    arrays = tuple(variable for variable in tree.shared_arrays() if variable.name in names)
    if not arrays or len(arrays) > 2 or {variable.name for variable in arrays} != names:
        return None
    if len({variable.type for variable in arrays}) != 1 or arrays[0].type not in ZERO:
        return None
    before, between = previous(loop), []
    while before is not None and (is_barrier(tree, before) or before.type == "declaration"):
        if before.type == "declaration":
            between.append(before)
        before = previous(before)
    expression = None if before is None or before.type != "expression_statement" else statement_expression(before)
    left = None if expression is None else expression.child_by_field_name("left")
    value = None if expression is None else expression.child_by_field_name("right")
    if before is None or expression is None or left is None or value is None or operator(tree, expression) != "=":
        return None
    if root_name(tree, left) not in names or any(
        root_name(tree, one) in names for one in element_accesses(tree, value)
    ):
        return None
    indices = indices_of(left)
    thread = "" if not indices else plain(tree, indices[-1]).rpartition("+")[2]
    if not indices or not is_thread(tree, thread):
        return None
    return BlockScan(before, loop, value, thread, arrays, _function(tree, body, names), tuple(between))


def _doubles(tree: Tree, loop: Node, threads: int) -> bool:
    """Returns True if the loop variable takes the values 1, 2, 4, ... below the block size."""
    start, condition, update = (loop.child_by_field_name(name) for name in ("initializer", "condition", "update"))
    if start is None or condition is None or update is None:
        return False
    match = re.search(r"(\w+)=1;?$", plain(tree, start))
    name = "" if match is None else match[1]
    doubled = {f"{name}*=2", f"{name}<<=1", f"{name}={name}*2", f"{name}={name}<<1", f"{name}+={name}"}
    bound = re.fullmatch(rf"{name}<(.+)", plain(tree, condition))
    return bool(name) and bound is not None and plain(tree, update) in doubled and _is_length(tree, bound[1], threads)


def _is_length(tree: Tree, text: str, threads: int) -> bool:
    """Returns True if the text is the number of threads of the block."""
    if text == "blockDim.x" or integer_value(text, integer_constants(tree.kernel.unit.text)) == threads:
        return True
    variable = tree.variable(text)
    return (
        variable is not None
        and variable.value is not None
        and plain(tree, variable.value) in {"blockDim.x", str(threads)}
    )


def is_thread(tree: Tree, text: str) -> bool:
    """Returns True if the text is threadIdx.x, or a variable with its value."""
    if text == "threadIdx.x":
        return True
    variable = tree.variable(text)
    return (
        variable is not None
        and variable.value is not None
        and plain(tree, variable.value) in {"threadIdx.x", "(int)threadIdx.x"}
    )


def _function(tree: Tree, body: Node, names: set[str | None]) -> str | None:
    """Returns the function of an extreme that combines two values, or None for their sum."""
    for call in tree.walk("call_expression", under=body):
        if call_name(tree, call) in EXTREMES and any(
            root_name(tree, one) in names for one in element_accesses(tree, call)
        ):
            return call_name(tree, call)
    return None


def _reads(tree: Tree, scan: BlockScan, threads: int) -> ScanReads | None:
    """Returns the reads after the loop; None if the buffers have other uses."""
    found: dict[str, list[Node]] = {"own": [], "before": [], "last": []}
    names = {variable.name for variable in scan.arrays}
    low, high = scan.first.start_byte, scan.loop.end_byte
    for name in names:
        inside = [use for use in tree.uses(name) if low <= use.start_byte < high]
        elements = [one for one in element_accesses(tree) if root_name(tree, one) == name]
        outside = [one for one in elements if not low <= one.start_byte < high]
        if len(tree.uses(name)) != len(inside) + len(outside):
            return None
        for element in outside:
            indices = indices_of(element)
            index = "" if not indices else plain(tree, indices[-1])
            parent = element.parent
            written = parent is not None and parent.type in {"update_expression", "pointer_expression"}
            left = (
                None if parent is None or parent.type != "assignment_expression" else parent.child_by_field_name("left")
            )
            if element.start_byte < low or written or (left is not None and left.id == element.id):
                return None
            kind = _place(tree, index, scan.thread, threads)
            if kind is None:
                return None
            found[kind].append(element)
    reads = ScanReads(tuple(found["own"]), tuple(found["before"]), tuple(found["last"]))
    return reads if any(found.values()) else None


def _place(tree: Tree, index: str, thread: str, threads: int) -> str | None:
    tail = index
    match = re.fullmatch(r"\w+\*[\w.]+\+(.+)", index)  # `row * length + index`, an element of one row
    if match is not None:
        tail = match[1]
    if tail == thread or is_thread(tree, tail):
        return "own"
    if tail in {f"{thread}-1", "threadIdx.x-1"}:
        return "before"
    ending = re.fullmatch(r"(.+)-1", tail)
    if ending is not None and _is_length(tree, ending[1], threads):
        return "last"
    return "last" if tail == str(threads - 1) else None


# ------------------------------------------------------------------------------------------- changing it


def _rewrite(request: SuggestRequest, tree: Tree, scan: BlockScan, reads: ScanReads, threads: int) -> Iterator[Rewrite]:
    keep = scan.arrays[0]
    count = warps(tree, threads)
    names = _names(tree, scan)
    edits = [*_text(tree, scan, reads, names, count)]
    for nodes, name in ((reads.own, names.own), (reads.before, names.before), (reads.last, names.last)):
        edits += [tree.replace(node, name) for node in nodes]
    kernel_edits = [*edits, *_shrunk(tree, scan.arrays, f"{names.buffer}[{count}]")]
    contract = request.contract
    dynamic = [variable for variable in scan.arrays if "extern" in variable.qualifiers]
    if dynamic and (len(scan.arrays) > 1 or len(tree.shared_arrays()) > 1):
        return
    kernel = apply_edits(request.kernel, kernel_edits)
    if dynamic:
        contract = replace(contract, shared=str(threads // WARP * ELEMENT_BYTES[keep.type]))
        kernel = change_launch(kernel, shared=contract.shared, contract=request.contract)
    texts = " and ".join(variable.name for variable in scan.arrays)
    why = f"The scan keeps every thread's value in {texts}, with a barrier or two for each doubling; shuffles within warps need none, and leave one value per warp, {threads // WARP} in all."  # fmt: skip
    yield Rewrite(kernel, contract, why)


@dataclass(frozen=True, slots=True)
class _Names:
    """Variables of the new scan: the results, the buffer of one value per warp, and the thread's lane and warp."""

    own: str
    before: str
    last: str
    below: str
    buffer: str
    lane: str
    warp: str
    turn: str


def _names(tree: Tree, scan: BlockScan) -> _Names:
    keep = scan.arrays[0]
    many, one = ("totals", "total") if scan.function is None else ("results", "last")
    buffer = keep.name if "extern" in keep.qualifiers else fresh(tree, f"warp_{many}")
    lane, warp = (_held(tree, scan, sign) or fresh(tree, name) for sign, name in (("%", "lane"), ("/", "warp")))
    return _Names(fresh(tree, "scan"), fresh(tree, "before"), fresh(tree, one), fresh(tree, "below"), buffer, lane, warp, fresh(tree, "w"))  # fmt: skip


def _held(tree: Tree, scan: BlockScan, sign: str) -> str | None:
    """Returns the variable that holds the quotient or remainder of the thread's index by the warp size.

    The result is None if there is none.
    """
    for name, variable in tree.variables.items():
        value = None if variable is None or variable.value is None else plain(tree, variable.value)
        at_top = variable is not None and variable.declaration.parent is not None and variable.declaration.parent.id == tree.body.id  # fmt: skip
        places = {
            f"{thread}{sign}{width}" for thread in (scan.thread, "threadIdx.x") for width in ("32", warp_width(tree))
        }
        if at_top and value in places and constant_after_start(tree, name):
            return name
    return None


def _text(tree: Tree, scan: BlockScan, reads: ScanReads, names: _Names, count: str) -> Iterator[Edit]:
    indent, step = indent_of(tree, scan.first), indent_step(tree)
    keep = scan.arrays[0]
    kind, lane, warp, turn, own = keep.type, names.lane, names.warp, names.turn, names.own

    width = warp_width(tree)
    last = "31" if width == "32" else f"{width} - 1"

    def join(one: str, other: str) -> str:
        return f"{one} += {other};" if scan.function is None else f"{one} = {scan.function}({one}, {other});"

    lines = [
        f"// Each warp scans by shuffles, then takes in the {'totals' if scan.function is None else 'results'} of the warps before it.",
        f"{kind} {own} = {tree.text(scan.value)};",
        f"for (int distance = 1; distance < {width}; distance *= 2) {{",
        f"{step}const {kind} {names.below} = __shfl_up_sync({FULL}, {own}, distance);",
        f"{step}if ({lane} >= distance) {join(own, names.below)}",
        "}",
        f"if ({lane} == {last}) {names.buffer}[{warp}] = {own};",
        "__syncthreads();",
    ]
    earlier = [join(own, f"{names.buffer}[{turn}]")]
    if reads.before:
        before = names.before
        lines += [f"{kind} {before} = __shfl_up_sync({FULL}, {own}, 1);"]
        lines += [
            f"if ({lane} == 0) {before} = {ZERO[kind] if scan.function is None else f'{warp} == 0 ? {ZERO[kind]} : {names.buffer}[0]'};"
        ]
        earlier.insert(0, join(before, f"{names.buffer}[{turn}]"))
    if reads.last:
        lines += [
            f"{kind} {names.last} = {ZERO[kind] if scan.function is None else f'{names.buffer}[0]'};",
            f"for (int {turn} = 0; {turn} < {count}; ++{turn}) {{",
            *(f"{step}if ({turn} < {warp}) {one}" for one in earlier),
            f"{step}{join(names.last, f'{names.buffer}[{turn}]')}",
            "}",
        ]
    else:
        lines += [f"for (int {turn} = 0; {turn} < {warp}; ++{turn}) {one}" for one in earlier]
    if enclosing_loops(scan.loop) and not _barrier_follows(tree, scan.loop):
        lines += ["__syncthreads();"]
    lines += [tree.text(node) for node in scan.between if _needed(tree, node, scan, reads)]
    yield tree.span(scan.first)[0], tree.span(scan.loop)[1], f"\n{indent}".join(lines)
    yield from _place_of_thread(tree, scan, names)


def _place_of_thread(tree: Tree, scan: BlockScan, names: _Names) -> Iterator[Edit]:
    """Yields the declaration of the thread's lane and warp.

    It is placed after the variable with the thread's index, or before the scan's outermost statement.
    """
    parts = [f"{name} = {scan.thread} {sign} {warp_width(tree)}" for sign, name in (("%", names.lane), ("/", names.warp)) if _held(tree, scan, sign) is None]  # fmt: skip
    variable = tree.variable(scan.thread)
    if not parts:
        return
    text = f"const int {', '.join(parts)};"
    if variable is not None:
        place = tree.span(variable.declaration)[1]
        yield place, place, f"\n{indent_of(tree, variable.declaration)}{text}"
        return
    outer = scan.first
    while outer.parent is not None and outer.parent.id != tree.body.id:
        outer = outer.parent
    place = tree.span(outer)[0]
    if outer.id != scan.first.id:
        yield place, place, f"{text}\n{indent_of(tree, outer)}"
        return
    body = tree.span(statements(tree.body)[0])[0]
    yield body, body, f"{text}\n{indent_of(tree, statements(tree.body)[0])}"


def _barrier_follows(tree: Tree, loop: Node) -> bool:
    """Returns True if a barrier follows the scan in its block, so that the next iteration may write the buffer."""
    node = loop.next_named_sibling
    while node is not None and not is_barrier(tree, node):
        node = node.next_named_sibling
    return node is not None


def _needed(tree: Tree, declaration: Node, scan: BlockScan, reads: ScanReads) -> bool:
    """Returns True if remaining code uses a declaration between the scan's statements."""
    gone = [(scan.first.start_byte, scan.loop.end_byte)]
    gone += [(node.start_byte, node.end_byte) for node in (*reads.own, *reads.before, *reads.last)]
    for declarator in declaration.children_by_field_name("declarator"):
        name = tree.name_node(declarator)
        uses = [] if name is None else tree.uses(tree.text(name))
        if any(not any(low <= use.start_byte < high for low, high in gone) for use in uses):
            return True
    return False


def _shrunk(tree: Tree, arrays: Sequence[DeclaredVariable], text: str) -> Iterator[Edit]:
    """Yields edits that give the first buffer one element per warp, and remove the other one."""
    for place, variable in enumerate(arrays):
        if "extern" in variable.qualifiers:
            continue
        alone = len(variable.declaration.children_by_field_name("declarator")) == 1
        if alone and place > 0:
            yield tree.replace(variable.declaration, "")
        else:
            yield tree.replace(variable.node, text if place == 0 else f"{variable.name}[1]")
