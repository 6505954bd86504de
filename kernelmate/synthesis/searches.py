"""Device functions that search an ascending vector, for graphs with `searchsorted`."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from kernelmate.records import Contract
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel

SEARCHES = {"left": "count_below", "right": "count_up_to"}
"""Device functions by the `side` of `np.searchsorted`."""

SPREAD = {"f": "ascending(-2, 2)", "i": "ascending(0, 8)", "u": "ascending(0, 8)"}
"""Distributions of tables by the kind of their dtype: about the numbers that other arrays have without a distribution."""


def with_ascending_tables(contract: Contract, graph: Graph) -> Contract:
    """Returns a contract in which arguments that are searched, and have no distribution, are drawn in ascending order."""
    tables = {str(node.data[1]) for node in graph.nodes if node.data[:1] == ("searchsorted",)}
    return replace(
        contract,
        args=tuple(
            replace(one, distribution=SPREAD[np.dtype(one.dtype).kind])
            if one.name in tables and one.distribution is None
            else one
            for one in contract.args
        ),
    )


_MEANINGS = {"count_below": ("below", "<="), "count_up_to": ("not above", "<")}


def with_searches(written: WrittenKernel, kernel: KernelText) -> WrittenKernel:
    """Returns a generated kernel with the device functions that search tables, if it calls them."""
    called = [name for name in _MEANINGS if re.search(rf"\b{name}\(", written.definition + written.helpers)]
    functions = [_search(name, kernel) for name in called]
    return replace(written, helpers="\n\n".join(filter(None, [*functions, written.helpers])))


def _search(name: str, kernel: KernelText) -> str:
    words, sign = _MEANINGS[name]
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
