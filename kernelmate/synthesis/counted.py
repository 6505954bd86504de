"""Integer scalars of a contract that count a loop's iterations: sizes of the reference's graph, though not of any array."""

from __future__ import annotations

import re
from dataclasses import replace

from kernelmate.records import Argument, Contract
from kernelmate.synthesis.graph import Graph

FEWEST = 9
"""Minimum number of iterations that are a loop in the kernel too; fewer are written out, so that more schedules apply."""


def is_count(argument: Argument) -> bool:
    """Returns True if an argument is an integer literal of the contract that may count a loop's iterations."""
    value = argument.value or ""
    return argument.shape is None and argument.dtype.startswith(("int", "uint")) and value.isdigit()


def with_counts(contract: Contract, names: set[str] | None = None) -> Contract | None:
    """Returns the contract in which scalars are sizes, of the value that they have; None if there are none.

    Args:
        contract: the contract.
        names: the scalars; None for all integer literals of at least `FEWEST`.
    """
    taken = {name for size in contract.sizes for name in size}
    counts = {
        one.name: int(one.value or 0)
        for one in contract.args
        if is_count(one)
        and one.name not in taken
        and (int(one.value or 0) >= FEWEST if names is None else one.name in names)
    }
    if not counts:
        return None
    args = tuple(replace(one, value=None) if one.name in counts else one for one in contract.args)
    return replace(contract, args=args, sizes=tuple({**size, **counts} for size in contract.sizes))


def counted_by(graph: Graph) -> set[str]:
    """Returns the words in the numbers of iterations of a graph's recurrences and scans."""
    counts = [str(node.data[5]) for node in graph.nodes if node.op == "recur"]
    counts += [node.shape[int(node.data[1] or 0)] for node in graph.nodes if node.op == "scan"]
    return {word for count in counts for word in re.findall(r"[A-Za-z_]\w*", count)}


_ELEMENTWISE = frozenset(
    {"input", "scalar", "size", "constant", "table", "iota", "map", "cast", "view", "reshape", "state", "recur"}
)
"""Operations beside which loops of a fixed number of iterations stay loops."""


def repeats_steps(graph: Graph) -> bool:
    """Returns True if a graph has loops of a fixed number of iterations, which only repeat steps and read no array along them.

    Everything else in it is element-wise: schedules for reductions and products have no loops over steps.
    """
    if not {node.op for node in graph.nodes} <= _ELEMENTWISE:
        return False
    counts = {str(node.data[5]) for node in graph.nodes if node.op == "recur" and str(node.data[5]).isdigit()}
    along = {node.op for node in graph.nodes if node.op != "recur" and node.shape[:1] and node.shape[0] in counts}
    return bool(counts) and along <= {"map", "cast", "state", "view", "iota", "constant"}


def for_counts(graph: Graph, contract: Contract) -> Contract:
    """Returns the contract for a graph, in which scalars that count its loops' iterations are sizes."""
    return with_counts(contract, counted_by(graph)) or contract
