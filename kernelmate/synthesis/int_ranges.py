"""Value ranges of a graph's 64-bit integers; those that fit an `int` are computed in 32 bits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph

_OF_DTYPE = {
    "bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
}  # fmt: skip

_SIGNED = (-(2**31), 2**31 - 1)

_BITS = 64

Range = tuple[int, int]


def fits_int(graph: Graph, index: int) -> bool:
    """Returns True if the values of a node and of its operands fit an `int`, whatever the arrays contain."""
    return _range(graph, index) is not None


def needs_no_cast(graph: Graph, index: int) -> bool:
    """Returns True if a narrow integer need not be widened, because all results computed from it fit an `int`."""
    users = [one for one, node in enumerate(graph.nodes) if index in node.args]
    narrowed = ("int8", "int16", "int32", "uint8", "uint16")
    return bool(users) and all(
        graph.nodes[one].dtype in narrowed
        if graph.nodes[one].op == "cast"
        else graph.nodes[one].op == "map" and fits_int(graph, one)
        for one in users
    )


def is_shift_of(graph: Graph, index: int, bits: int) -> bool:
    """Returns True if a node's values are valid shift counts for integers of `bits` bits."""
    found = _few_bits(graph, index)
    return found is not None and found[0] >= 0 and found[1] < bits


def _few_bits(graph: Graph, index: int) -> Range | None:
    """Returns the range of a value of few bits, such as `(x >> 28) + 4` or `x & 31`, for any contents of the words from which it is computed."""
    known = _range(graph, index, positions=True)
    node = graph.nodes[index]
    if node.op == "constant" and isinstance(node.data[0], int):
        return node.data[0], node.data[0]
    if known is not None or node.op not in ("map", "cast", "view") or "float" in node.dtype:
        return known
    if node.op != "map":
        whole = graph.nodes[node.args[0]].dtype[:3] in ("int", "uin")
        return _held(_few_bits(graph, node.args[0]), node.dtype) if whole else None
    ranges = [_few_bits(graph, one) for one in node.args]
    first, last = ranges[0], ranges[-1]
    source = graph.nodes[node.args[0]].dtype
    if last is not None and last[0] == last[1]:
        number = last[0]
        match str(node.data[0]):
            case "bitwise_and" if number >= 0:
                return 0, number if first is None or first[0] < 0 else min(first[1], number)
            case "right_shift" if first is not None and 0 <= number < _BITS and first[0] >= 0:
                return first[0] >> number, first[1] >> number
            case "right_shift" if source.startswith("uint") and 0 <= number < int(source[4:]):
                return 0, 2 ** int(source[4:]) - 1 >> number
            case "remainder" if number > 0:
                return 0, number - 1
    if first is None or last is None or node.data[0] not in ("add", "subtract", "maximum", "minimum", "bitwise_and"):
        return None
    return _held(_mapped(str(node.data[0]), [first, last]), node.dtype)


def _held(found: Range | None, dtype: str) -> Range | None:
    """Returns a range that an integer type and `int` hold, so that no value wraps; else None."""
    limits = _OF_DTYPE.get(dtype, (0 if dtype.startswith("uint") else _SIGNED[0], _SIGNED[1]))
    return found if found is not None and limits[0] <= found[0] and found[1] <= limits[1] else None


def _range(graph: Graph, index: int, *, positions: bool = False) -> Range | None:
    """Returns the minimum and maximum of a node's values.

    The result is None if these values, or those of an operand, are unknown or do not fit an `int`. Positions along an axis,
    which are written in 64 bits, are known only if `positions` is True and the axis has a constant length.
    """
    node = graph.nodes[index]
    if node.op == "iota" and positions and node.shape[0].isdigit():
        return 0, max(int(node.shape[0]) - 1, 0)
    if node.op == "constant":
        value = node.data[0]
        return (value, value) if isinstance(value, int) and _SIGNED[0] <= value <= _SIGNED[1] else None
    if node.op not in ("input", "map", "cast", "view", "reshape", "window") or "float" in node.dtype:
        return None
    if node.mapped == "searchsorted":
        return 0, _SIGNED[1] - 1
    if node.op == "input":
        return _OF_DTYPE.get(node.dtype)
    ranges = [_range(graph, one, positions=positions) for one in node.args]
    known = [one for one in ranges if one is not None]
    if len(known) < len(ranges):
        return None
    found = (
        (min(low for low, _ in known), max(high for _, high in known))
        if node.op != "map"
        else _mapped(str(node.data[0]), known)
    )
    return _held(found, node.dtype)


def _mapped(name: str, ranges: list[Range]) -> Range | None:
    (low, high), (least, most) = ranges[0], ranges[-1]
    match name:
        case "add":
            return low + least, high + most
        case "subtract":
            return low - most, high - least
        case "multiply":
            ends = [low * least, low * most, high * least, high * most]
            return min(ends), max(ends)
        case "negative":
            return -high, -low
        case "maximum":
            return max(low, least), max(high, most)
        case "minimum":
            return min(low, least), min(high, most)
        case "right_shift" if least >= 0 and most < 32:
            return min(low >> least, low >> most), max(high >> least, high >> most)
        case "bitwise_and" if min(low, least) >= 0:
            return 0, min(high, most)
    return None


_WRAPPING = frozenset({"add", "subtract", "multiply", "negative"})
"""Operations whose lower 32 bits depend on those of the operands alone."""


def in_32_bits(graph: Graph, dtypes: Mapping[int, str], source: str) -> Graph:
    """Returns the graph with sums of integers in 32 bits, if the results have no more and the old kernel had none wider.

    NumPy sums integers of 32 bits in 64.

    Args:
        graph: the graph.
        dtypes: the dtype of the array that each output is stored in, by the output's node.
        source: the old kernel's text.
    """
    if re.search(r"\blong\b|int64|size_t \w+ = 0", source) or not re.search(r"\bint\b|int32_t", source):
        return graph
    nodes, found = list(graph.nodes), set[int]()
    stack = [one for one in graph.outputs if dtypes[one] == "int32" and nodes[one].dtype == "int64"]
    while stack:
        index = stack.pop()
        if index in found:
            continue
        if not _wraps(graph, nodes[index]):
            return graph
        found.add(index)
        stack += [one for one in nodes[index].args if nodes[one].dtype == "int64"]
    sums = any(nodes[one].op in ("scan", "reduce") for one in found)
    shared = any(one in found and index not in found for index, node in enumerate(nodes) for one in node.args)
    if not sums or shared or any(one in found and dtypes[one] != "int32" for one in graph.outputs):
        return graph
    for index in found:
        nodes[index] = replace(nodes[index], dtype="int32")
    plain = {index: nodes[index].args[0] for index in found if _is_plain(nodes, index)}
    nodes = [replace(node, args=tuple(plain.get(one, one) for one in node.args)) for node in nodes]
    return sorted_graph(nodes, [plain.get(one, one) for one in graph.outputs])


def _wraps(graph: Graph, node: Node) -> bool:
    """Returns True for an operation that may be computed in 32 bits if only the lower 32 bits of its result are needed."""
    match node.op:
        case "map":
            return node.data[0] in _WRAPPING
        case "scan" | "reduce":
            return node.data[0] == "sum"
        case "cast":
            return graph.nodes[node.args[0]].dtype in ("int32", *_OF_DTYPE)
        case "constant":
            return isinstance(node.data[0], int) and _SIGNED[0] <= node.data[0] <= _SIGNED[1]
    return node.op in ("view", "reshape")


def _is_plain(nodes: list[Node], index: int) -> bool:
    """Returns True for a conversion to the type that its operand has."""
    return nodes[index].op == "cast" and nodes[nodes[index].args[0]].dtype == "int32"
