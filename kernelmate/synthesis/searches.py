"""Device functions that search an ascending vector, for graphs with `searchsorted`."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from kernelmate.records import Contract
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel

_SEARCHES = {"left": ("count_below", "below", "<="), "right": ("count_up_to", "not above", "<")}
"""For each `side` of `np.searchsorted`, the device function, the elements that it counts, and the sign of its test."""

SPREAD = {"f": "ascending(-2, 2)", "i": "ascending(0, 8)", "u": "ascending(0, 8)"}
"""Distributions of tables by the kind of their dtype: about the numbers that other arrays have without a distribution."""


def with_ascending_tables(contract: Contract, graph: Graph) -> Contract:
    """Returns a contract in which arguments that are searched, and have no distribution, are drawn in ascending order."""
    tables = {str(node.data[1]) for node in graph.nodes if node.mapped == "searchsorted"}
    return replace(
        contract,
        args=tuple(
            replace(one, distribution=SPREAD[np.dtype(one.dtype).kind])
            if one.name in tables and one.distribution is None
            else one
            for one in contract.args
        ),
    )


def search_name(side: str, kernel: KernelText) -> str:
    """Returns the name of the device function for a side, which nothing else in the file has."""
    wanted = name = _SEARCHES[side][0]
    number = 2
    while name in kernel.names.outer:
        name, number = f"{wanted}_{number}", number + 1
    return name


def with_searches(written: WrittenKernel, kernel: KernelText) -> WrittenKernel:
    """Returns a generated kernel with the device functions that search tables, if it calls them."""
    text = written.definition + written.helpers
    called = [side for side in _SEARCHES if re.search(rf"\b{search_name(side, kernel)}\(", text)]
    functions = [_search(side, kernel) for side in called]
    return replace(written, helpers="\n\n".join(filter(None, [*functions, written.helpers])))


def _search(side: str, kernel: KernelText) -> str:
    _, words, sign = _SEARCHES[side]
    name = search_name(side, kernel)
    head = kernel.wrapped(
        f"static __device__ __forceinline__ int {name}(", ["const T* __restrict__ table", "int count", "V value"]
    )
    body = (
        "int low = 0;",
        "while (low < count) {",
        "  const int middle = low + (count - low) / 2;",
        f"  if (value {sign} table[middle]) {{",
        "    count = middle;",
        "  } else {",
        "    low = middle + 1;",
        "  }",
        "}",
        "return low;",
    )
    comment = f"// The number of elements of an ascending table that are {words} a value; for NaN, all."
    return "\n".join([comment, kernel.definition(f"template <typename T, typename V>\n{head}", body)])
