"""From a traced graph to kernels: which schedule computes it, and the texts that the schedule writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.angles import within_a_turn
from kernelmate.synthesis.attention_plan import attention_of
from kernelmate.synthesis.components import PLACES, with_terms
from kernelmate.synthesis.counted import for_counts
from kernelmate.synthesis.diagonals import diagonals_first
from kernelmate.synthesis.distances import with_differences
from kernelmate.synthesis.elements import BY_NUMBER
from kernelmate.synthesis.graph import BITWISE, Graph, pruned
from kernelmate.synthesis.grouped import regrouped, with_groups
from kernelmate.synthesis.int_ranges import in_32_bits
from kernelmate.synthesis.interlaced import with_stacked_parts
from kernelmate.synthesis.joint_sums import without_common_factors
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, those_written
from kernelmate.synthesis.launched_sizes import with_launched_sizes
from kernelmate.synthesis.merging import merged, merged_shape
from kernelmate.synthesis.neutral import without_neutral
from kernelmate.synthesis.own_grids import with_own_sides
from kernelmate.synthesis.own_scalars import with_own_scalars
from kernelmate.synthesis.parts import slices_first, with_both_sides, with_parts
from kernelmate.synthesis.pitches import with_pitches
from kernelmate.synthesis.plan import (
    FLAT,
    DifferentReductions,
    Plan,
    Refused,
    free_plan,
    plan_of,
    reshapes_last,
    without_reshapes,
)
from kernelmate.synthesis.prefixes import with_scans
from kernelmate.synthesis.schedules import (
    added_results,
    apart,
    assigned,
    attention,
    bags,
    both_ways,
    columns,
    contraction,
    convolution,
    extremes_by_number,
    filters,
    gather,
    histogram,
    interleaved,
    pairs,
    permutation,
    plane_scan,
    pointwise,
    recurrence,
    reduced_products,
    row_sums,
    row_totals,
    row_windows,
    rows,
    scaled_products,
    scan,
    segment_passes,
    segments,
    stacked_results,
    staged_block,
    staged_rows,
    state_recurrence,
    sweeps,
    total,
    vector_recurrence,
    window_scan,
    windows,
)
from kernelmate.synthesis.searches import with_searches
from kernelmate.synthesis.size_text import MissingSize
from kernelmate.synthesis.splitting import with_split_axes
from kernelmate.synthesis.stacked import spread_stacks, with_joined_results
from kernelmate.synthesis.templates import for_every_type, with_block_sides
from kernelmate.synthesis.transposed import with_columns
from kernelmate.synthesis.window_plan import output_shapes

SHORT = 16
"""Row length, in elements, up to which one thread reads a row: from 32 on a warp has one element per thread."""

_SCHEDULES = {"map": pointwise, "rows": rows, "columns": columns}

_ELEMENTWISE = frozenset({"input", "scalar", "size", "constant", "iota", "map", "cast", "view", "reshape", "reduce"})
"""Operations of graphs whose reductions are of bits."""

_OWN = {
    "recur": recurrence, "scan": scan, "scatter": histogram, "repeat": segment_passes, "segment": segments, "window": windows, "pick": gather, "along": gather,
}  # fmt: skip
"""Operations that determine the schedule; the first one that a graph contains decides."""


def kernels_for(graph: Graph, kernel: Kernel, contract: Contract, *, new: bool = False) -> Iterator[WrittenKernel]:
    """Kernels with the baseline's name and parameters that compute the graph, the likeliest first.

    Args:
        graph: the reference's graph.
        kernel: the baseline.
        contract: its contract.
        new: True if there is no kernel yet, so that one whose blocks compute some values again is better than none.

    Raises:
        Refused: no schedule computes it, or the kernel has a form that is not written.
    """
    if contract.passing:
        raise Refused("its contract has structs, pointers or variables")
    contract = for_counts(graph, contract)
    graph = with_own_scalars(with_scans(with_columns(within_a_turn(graph))), kernel, contract)
    results = [one.dtype for one in contract.args if one.direction in ("out", "inout")]
    graph = in_32_bits(graph, dict(zip(graph.outputs, results, strict=False)), kernel.source)
    if any(one.direction == "scratch" for one in contract.args):
        yield total.in_scratch(graph, KernelText(kernel, contract))
        return
    assumed = RANKS_ASSUME if _takes_ranks(graph) else ""
    several = len(contract.grid) > 1
    moves = {node.op for node in graph.nodes} <= {"input", "view", "reshape", "take", "gather"}
    ways: list[Callable[[], Iterator[WrittenKernel]]] = [
        partial(_kernels, graph, KernelText(kernel, contract), new=new),
        partial(_with_grid, graph, kernel, contract, new=new),
    ]
    missing: Refused | None = None
    for way in reversed(ways) if several else ways:  # a block for each row needs no number of rows
        try:
            for one in way():
                own = KernelText(kernel, contract)
                template, text = with_block_sides(kernel, own.template, one.definition, one.helpers)
                text = for_every_type(template, text, one.helpers) if moves else text
                found = with_own_sides(replace(one, why=one.why + assumed, definition=text), own)
                yield with_searches(found, own)
            return
        except MissingSize as reason:
            missing = reason.__cause__ if isinstance(reason.__cause__, Refused) else missing or reason
    if missing is not None:
        raise missing


RANKS_ASSUME = " A row with fewer finite values than are taken in order may give the place of one of them twice."
"""Sentence of the reason for a kernel that finds places in order, of which it leaves out those that were found before."""


def _takes_ranks(graph: Graph) -> bool:
    """Returns True if an argmax or argmin excludes elements that earlier ones found."""
    nodes = graph.nodes
    places = {index for index, node in enumerate(nodes) if node.op == "reduce" and str(node.data[0]).startswith("arg")}
    for index in places:
        operand = nodes[nodes[index].args[0]]
        if operand.data != ("where",):
            continue
        stack = [operand.args[0]]
        while stack:
            one = stack.pop()
            if one in places:
                return True
            stack += nodes[one].args if nodes[one].op in ("map", "view") else ()
    return False


def _with_grid(graph: Graph, kernel: Kernel, contract: Contract, *, new: bool) -> Iterator[WrittenKernel]:
    """Yields the kernels, which find sizes in their grid where that permits a better schedule.

    Raises:
        MissingSize: a size is neither a parameter nor a side of the grid, or no text has room for it there.
        Refused: as `kernels_for`.
    """
    launched: list[str] = []
    while True:
        text = KernelText(kernel, contract, launched=launched, finds_sizes=True)
        try:
            texts = _kernels(graph, text, new=new)
            if launched:
                texts = those_written(partial(with_launched_sizes, one, text.again()) for one in texts)
            yield from texts
            return
        except MissingSize as reason:
            if not text.finds(reason.size):
                raise
            launched.append(reason.size)
        except Refused as reason:
            if launched:
                raise MissingSize(launched[-1]) from reason
            raise


def _kernels(graph: Graph, text: KernelText, *, new: bool = False) -> Iterator[WrittenKernel]:
    """Yields the kernels for a context of their text, as `kernels_for`."""
    of_bits = any(node.op == "reduce" and node.data[0] in BITWISE for node in graph.nodes)
    if of_bits:
        yield from _of_bits(graph, text)
        return
    others = [
        cache(one)
        for one in (
            partial(regrouped, graph),
            partial(slices_first, graph, text.contract),
            partial(with_split_axes, graph, text.contract),
            partial(diagonals_first, graph),
        )
    ]
    ways: list[Callable[[KernelText], Iterator[WrittenKernel]]] = []
    for writer in (_of_numbers, _staged):
        ways += [partial(writer, graph), *(partial(_of_another_form, one, writer) for one in others)]
    if new:
        ways += [partial(vector_recurrence.staged, graph), partial(_masked, graph)]
    loops = [node for node in graph.nodes if node.op in ("scan", "recur")]
    if loops:
        within_rows = all(node.op == "scan" and node.data[1] == len(node.shape) - 1 for node in loops)
        scanned = within_rows and any(node.op == "window" for node in graph.nodes)
        ways += [partial(window_scan.written, without_neutral(graph))] * scanned
        ways += [partial(staged_block.written, graph)] * within_rows + [partial(sweeps.written, graph)]
    ways.append(partial(added_results.written, graph, writer=_kernels))
    try:
        yield from _first(ways, text)
    except MissingSize:
        raise
    except Refused as reason:
        yield from _in_one_block(graph, text.again(), reason)


def _of_another_form(
    make: Callable[[], Graph | None],
    writer: Callable[[Graph, KernelText], Iterator[WrittenKernel]],
    text: KernelText,
) -> Iterator[WrittenKernel]:
    """Yields kernels of a graph in another form, which is made only once the forms before it are refused."""
    graph = make()
    if graph is None:
        raise Refused("the reference has no other form")
    yield from writer(graph, text)


def _in_one_block(graph: Graph, text: KernelText, reason: Refused) -> Iterator[WrittenKernel]:
    """Yields kernels of stages within a block, for a graph that all other schedules refuse.

    Raises:
        Refused: for the reason of the others, with that of the stages if its reductions differ.
    """
    try:
        yield from staged_block.written(graph, text)
    except MissingSize:
        raise
    except Refused as own:
        raise Refused(f"{reason}, and {own}") if isinstance(reason, DifferentReductions) else reason from None


def _staged(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of stages, in which slices of arrays are arrays of their own."""
    parted = with_parts(graph, [*text.parameters]) if any(one.op == "window" for one in graph.nodes) else None
    if parted is not None:
        graph, text = parted[0], text.again(parted[1])
    yield from staged_rows.written(graph, text)


def _masked(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels in which sums by index search all samples."""
    masked = row_sums.as_masked(graph, text)
    yield from _either([partial(vector_recurrence.staged, masked), partial(_of_numbers, masked)], text)


def _first(
    ways: Sequence[Callable[[KernelText], Iterator[WrittenKernel]]], text: KernelText
) -> Iterator[WrittenKernel]:
    """Yields the kernels of the first writer that gives any.

    Raises:
        Refused: none does; as the first one said. MissingSize: one that comes before all that do lacks a size.
    """
    first: Refused | None = None
    for way in ways:
        try:
            yield from way(text.again())
            return
        except MissingSize:
            raise
        except Refused as reason:
            first = first or reason
    if first is not None:
        raise first


def _of_bits(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of reductions of bits, which few schedules have."""
    if any(node.op not in _ELEMENTWISE for node in graph.nodes):
        raise Refused("it reduces bits beside operations other than element-wise ones and reductions")
    plan = plan_of(graph)
    yield from _scheduled(plan)(plan, text)


def _of_numbers(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of all other graphs."""
    contract, nodes = text.contract, graph.nodes
    if any(len(nodes[one].shape) > len(node.shape) for node in nodes if node.op == "recur" for one in node.args):
        yield from vector_recurrence.written(graph, text)  # numbers beside vectors
        return
    try:
        yield from pairs.written(graph, text.again())
        return
    except MissingSize:
        raise
    except Refused:
        graph = with_differences(graph)
    attended = attention_of(with_groups(graph), contract)
    if attended is not None:
        yield from attention.written(attended, text)
        return
    if any(node.op in ("segment", "repeat") for node in graph.nodes):
        graph = segments.offsets_by_number(graph)
    ways: list[Callable[[KernelText], Iterator[WrittenKernel]]] = []
    if any(node.op == "window" for node in graph.nodes):
        ways = [partial(stacked_results.written, without_neutral(graph)), partial(_parted, graph)]
    ways.append(partial(_of_whole_arrays, graph))
    spread = spread_stacks(graph, 2)
    ways += [] if spread is graph else [partial(_of_whole_arrays, pruned(spread.nodes, spread.outputs))]
    yield from _either(ways, text)


def _parted(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels in which slices of equal length are read as arrays of their own."""
    parted = with_parts(graph, [*text.parameters])
    if parted is None:
        raise Refused("it has other parts of arrays than slices of equal length")
    own = _by_operation if any(node.op == "scatter" for node in graph.nodes) else _free
    yield from own(parted[0], text.again(parted[1]))


def _of_whole_arrays(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels in which parts of arrays are index maps."""
    found = {node.op for node in graph.nodes}
    if "window" in found and found & {"scatter", "segment", "repeat"}:
        raise Refused("it has elements by index beside parts of arrays")
    if any(assigned.is_place(graph, node) for node in graph.nodes):
        yield from assigned.written(graph, text)
        return
    padded = with_pitches(graph, [one.name for one in text.outputs()]) if "window" in found else None
    if len(graph.outputs) > 1 and "scatter" in found:
        yield from apart.written(graph, text, _by_operation)
        return
    bagged = "reduce" in found and found & {"take", "pick", "along"} and not found & {"window", "scan"}
    ways: list[Callable[[KernelText], Iterator[WrittenKernel]]] = [partial(scaled_products.written, graph)]
    ways += [partial(one, graph) for one in (reduced_products.written, contraction.joint, row_totals.written)]
    ways += [partial(_of_both_sides, graph), partial(_bilinear, graph), partial(_by_operation, graph)]
    if bagged:
        ways.insert(1, partial(bags.written, graph))
    if padded is not None:
        ways.insert(0, partial(_padded, *padded))
    if interleaved.is_of_small_matrices(graph):
        ways.insert(0, partial(interleaved.written, without_neutral(graph)))
    if sum(node.op == "scan" for node in graph.nodes) > 1:
        ways.insert(0, partial(plane_scan.written, graph))
    if state_recurrence.sums_states(graph):
        ways.append(partial(state_recurrence.written, graph))
    if vector_recurrence.is_over_vectors(graph):
        ways.append(partial(vector_recurrence.written, graph))
    yield from _either(ways, text)


def _bilinear(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of bilinear forms: sums of a product's rows, which are multiplied by a factor each."""
    factored = without_common_factors(graph)
    if len(factored.nodes) == len(graph.nodes):
        raise Refused("its sums have no factors in common")
    yield from reduced_products.written(factored, text)


def _of_both_sides(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Kernels of products of an array with itself."""
    found = with_both_sides(graph, [*text.parameters])
    if found is None:
        raise Refused("it multiplies no array by itself along other axes")
    yield from _free(found[0], text.again(found[1]))


def _padded(graph: Graph, pitches: Mapping[str, str], text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of reductions over the beginnings of longer rows."""
    plan = plan_of(graph)
    if plan.kind != "rows" or plan.split == 0:
        raise Refused("it takes the beginnings of rows without reducing them")
    yield from rows.written(replace(plan, pitches=tuple(pitches.items())), text)


def _by_operation(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of the schedule that an operation determines, or else of the graph's plan."""
    found = {node.op for node in graph.nodes}
    for op, own in _OWN.items():
        if op in found:
            if op == "scatter" and any(node.op == "scatter" and len(node.shape) > 1 for node in graph.nodes):
                own = row_sums
            if op == "scatter" and any(node.op == "scatter" and node.data for node in graph.nodes):
                own = extremes_by_number
            yield from _windowed(graph, text) if own is windows else own.written(without_neutral(graph), text)
            return
    graph = without_neutral(graph)
    try:
        plan = plan_of(graph)
        ways = [partial(_windowed, graph)] * _has_short_rows(plan) + [partial(_scheduled(plan), plan)]
        yield from _either(ways, text)
    except Refused as reason:
        others: list[Callable[[KernelText], Iterator[WrittenKernel]]] = [partial(_free, graph)]
        if _unpacks(graph):
            others.insert(0, partial(_windowed, graph))
        others += [partial(both_ways.written, graph)] * (len(graph.outputs) > 1)
        others += [partial(_windowed, graph)] * any(node.op == "reshape" for node in graph.nodes)
        others += [partial(gather.written, graph)] * any(node.op in BY_NUMBER for node in graph.nodes)
        others += [partial(_of_other_shapes, graph)] * any(node.op == "reshape" for node in graph.nodes)
        try:
            yield from _either(others, text)
        except MissingSize:
            raise
        except Refused:
            raise reason from None


def _scheduled(plan: Plan) -> Callable[[Plan, KernelText], Iterator[WrittenKernel]]:
    """Returns the writer of the schedule for a plan."""
    return total.written if plan.kind == "rows" and plan.split == 0 else _SCHEDULES[plan.kind].written


def _of_other_shapes(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels that use arrays in the shapes to which the reference changes them."""
    plan = plan_of(without_reshapes(graph))
    yield from _scheduled(plan)(plan, text)


def _unpacks(graph: Graph) -> bool:
    """True if results have a short axis of a fixed length for each element, such as nibbles of a word, which one thread writes."""
    for output in graph.outputs:
        node = graph.nodes[output]
        side = graph.nodes[node.args[0]].shape[-1:] if node.op == "reshape" else ()
        if not side or not side[0].isdigit() or int(side[0]) > SHORT:
            return False
    return True


def _either(
    ways: Sequence[Callable[[KernelText], Iterator[WrittenKernel]]], text: KernelText
) -> Iterator[WrittenKernel]:
    """Yields the kernels of the first writer that gives any.

    Raises:
        Refused: none does; the reason is the last one's, or that of a writer that only lacks a size.
    """
    reasons: list[Refused] = []
    for way in ways:
        try:
            yield from way(text.again())
            return
        except Refused as reason:
            if isinstance(reason, MissingSize) and text.finds(reason.size):
                raise
            reasons.append(reason)
    # The schedule that would suit it lacks no more than a parameter.
    raise next((one for one in reasons if isinstance(one, MissingSize)), reasons[-1])


def _has_short_rows(plan: Plan) -> bool:
    """True if rows are so short that one thread reads each, like adjacent windows, and computes one result for it."""
    short = plan.kind == "rows" and plan.split > 0 and plan.columns.isdigit() and int(plan.columns) <= SHORT
    return short and not any({FLAT, *plan.gone} & {*key[1]} for key in plan.outputs)


def _windowed(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels of windows: a convolution over channels, or a thread per result on as few axes as possible."""
    graph = reshapes_last(with_stacked_parts(graph, text.contract))
    graph = with_terms(graph, PLACES) or graph
    names, shapes = output_shapes(text)
    few = merged(graph)
    rank = len(few.nodes[few.outputs[0]].shape)
    fewer = names, tuple(merged_shape(one, rank) for one in shapes)
    pooled = partial(windows.written, few, shapes=fewer)
    plain = without_neutral(graph)
    packed = [partial(interleaved.written, without_neutral(few), shapes=fewer), partial(interleaved.written, plain)]
    terms = with_terms(plain) if any(one.op == "window" and len(one.args) > 1 for one in graph.nodes) else None
    packed += [] if terms is None else [partial(interleaved.written, terms)]
    tiled = [partial(filters.written, plain), partial(convolution.written, plain)]
    joined = with_joined_results(graph)
    packed += [partial(windows.written, joined)] * (joined is not graph)
    try:
        yield from _either([*tiled, *packed, pooled, partial(windows.written, graph)], text)
    except MissingSize:
        raise
    except Refused as reason:
        try:
            yield from row_windows.written(plain, text.again())
        except Refused:
            raise reason from None


def _free(graph: Graph, text: KernelText) -> Iterator[WrittenKernel]:
    """Yields kernels that access arrays with any order of axes."""
    free = free_plan(graph)
    reduces = any(node.op == "reduce" for node in free.graph.nodes)
    yield from (contraction if reduces else permutation).written(free, text)
