"""Cuts a program into parts: the order of its operations, and the lengths of parts that are tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate_torch.operations import HEAVY, STRIDED, VIEWS
from kernelmate_torch.parts import interface
from kernelmate_torch.program import GraphNode, ModelProgram

MOST_HEAVY = 3
"""Matrix products and convolutions of the largest part: attention has two."""

UNTILED = ("staged-", "windows", "row-windows", "interleaved")
"""Beginnings of the names of schedules that compute products without tiles."""


def has_no_statement(node: GraphNode) -> bool:
    """Returns True for sizes, which the text has as expressions, and for checks of what is exported."""
    name = node.target.removeprefix("aten.")
    return (node.target.startswith("python.") and node.target != "python.getitem") or name.startswith(
        ("sym_", "_assert")
    )


def is_library(nodes: Sequence[GraphNode]) -> bool:
    """Returns True for one library call and views, which would gain nothing from being one kernel."""
    computing = [one for one in nodes if one.target not in VIEWS]
    return len(computing) == 1 and computing[0].target in HEAVY


def part_lengths(program: ModelProgram, nodes: Sequence[GraphNode]) -> Iterator[int]:
    """Yields lengths of parts to try: up to the next library calls, the longest first, then shorter ones.

    The shorter ones are parts of three, two and one quarter of the operations, and the longest ones of at most these
    lengths that have one result. Those with many operations to a result come first.
    """
    heavy = [place for place, node in enumerate(nodes) if node.target in HEAVY]
    limit = heavy[MOST_HEAVY] if len(heavy) > MOST_HEAVY else len(nodes)
    cuts = [limit, *(place for place in reversed(heavy) if 0 < place < limit)]
    first = cuts[-1]
    results = {end: max(len(interface(program, nodes[:end])[1]), 1) for end in range(1, first + 1)}
    lengths = {first * share // 4 for share in (3, 2, 1)}
    single = [end for end, count in results.items() if count == 1 and end < first]
    lengths |= {max((end for end in single if end <= most), default=1) for most in (first, *lengths)} | {1, 2, 3}
    if first in heavy:  # a part of its own, before the first library call
        lengths.add(cuts.pop())
    shorter = sorted(lengths & results.keys(), key=lambda end: (end / results[end], -results[end]), reverse=True)
    seen: set[int] = set()
    for one in [*cuts, *shorter]:
        end = one
        while end > 1 and _computes_nothing(nodes[end - 1]):  # they stay PyTorch's at the end of a part
            end -= 1
        if end not in seen and not all(map(_computes_nothing, nodes[:end])):
            seen.add(end)
            yield end


def connected_count(program: ModelProgram, nodes: Sequence[GraphNode]) -> int:
    """Returns the number of nodes connected to the first one if these come first, else the number of all nodes.

    Nodes are connected if they compute or take the same value; parameters and buffers do not count.
    """
    groups: list[tuple[set[int], set[str]]] = []
    for place, node in enumerate(nodes):
        values = {node.name, *(one for one in node.uses if program.node(one).kind in ("input", "call"))}
        joined = [one for one in groups if one[1] & values]
        groups = [one for one in groups if one not in joined]
        groups.append(({place}.union(*(one[0] for one in joined)), values.union(*(one[1] for one in joined))))
    first = next(one for one, _ in groups if 0 in one)
    return len(first) if first == set(range(len(first))) else len(nodes)


def untiled(nodes: Sequence[GraphNode]) -> tuple[str, ...]:
    """Returns prefixes of the names of schedules that a port leaves to a library: matrix products without tiles.

    A single convolution keeps `windows` and `interleaved`, which suit one of few channels in a group.
    """
    products = [one.target for one in nodes if one.target in HEAVY]
    alone = len(products) == 1 and "conv" in products[0]
    return UNTILED[:1] if alone else UNTILED if products else ()


def views_late(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Returns nodes with each view before the first operation that takes it, so that a kernel may read through it."""
    views = {one.name: one for one in nodes if one.target in VIEWS and one.tensor is not None}
    order: dict[str, GraphNode] = {}

    def place(node: GraphNode) -> None:
        for name in node.uses:
            if name in views and name not in order:
                place(views[name])
        order[node.name] = node

    for node in [*(one for one in nodes if one.name not in views), *views.values()]:
        if node.name not in order:
            place(node)
    return list(order.values())


def reorders_elements(nodes: Sequence[GraphNode], views: int) -> bool:
    """Returns True if views give elements out of order to an operation that is not a library's, which would copy them."""
    return (
        any(one.target in STRIDED for one in nodes[:views])
        and nodes[views : views + 1] != []
        and nodes[views].target not in HEAVY
    )


def products_first(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Returns nodes in an order in which products come as early as their operands allow.

    Nodes between two products then become adjacent, as silu and product in `silu(gate(x)) * up(x)`. With gradients they
    are a part of their own, since the products' results are saved.
    """
    order: list[GraphNode] = []
    places: dict[str, int] = {}
    for node in nodes:
        at = len(order)
        if node.target in HEAVY:
            at = max((places[name] + 1 for name in node.uses if name in places), default=0)
        order.insert(at, node)
        places = {one.name: place for place, one in enumerate(order)}
    return order


def before_product(nodes: Sequence[GraphNode]) -> int:
    """Returns the number of nodes before the first product that takes a value which they compute.

    With gradients this operand is needed again, so it is computed once and saved, not in each tile of the product.
    """
    computed: set[str] = set()
    for place, node in enumerate(nodes):
        taken = computed & set(node.uses)
        if node.target in HEAVY and taken:
            return place
        if node.target not in VIEWS or taken:
            computed.add(node.name)
    return len(nodes)


def _computes_nothing(node: GraphNode) -> bool:
    """Returns True for views and constants."""
    return node.target in VIEWS or not node.uses
