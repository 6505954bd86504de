"""Computes the maximum and the sum of exponentials of a softmax in one pass instead of two.

Applies to a loop that computes a maximum, followed by one over the same elements that adds `exp(element - maximum)`.
The sum is kept relative to the running maximum and rescaled when the maximum grows (Milakov and Gimelshein, Online
normalizer calculation for softmax, 2018). Elements are read one time less, at the cost of a few more exponentials. The
code between the two loops, which combines the maxima of the block's threads, does not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.passes import Pass, pairs, squeezed, with_variable
from kernelmate.suggest.syntax import Edit, Tree, read_tree
from kernelmate.suggest.syntax_effects import body_span, fresh, indent_of, indent_step, plain
from kernelmate.suggest.syntax_loops import previous

_EXPONENTIAL = re.compile(r"(__expf|expf|exp|std::exp)\((.+)-(\w+)\)")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that merges the first loop of a maximum and the loop of exponentials after it."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    for largest, total in pairs(tree):
        function = _function(largest, total)
        if function is None or largest.carried.type != "float":
            continue
        first = _first_value(tree, largest, total)
        if first is None:
            continue
        kernel = apply_edits(request.kernel, list(_edits(tree, largest, total, function, first)))
        why = f"{squeezed(largest.value)} is read for the maximum and again for the sum of exponentials; kept relative to the largest so far, the sum is found in the same pass."  # fmt: skip
        yield Rewrite(kernel, request.contract, why)
        return


CLAIMS = (
    Claim(
        r"is read for the maximum and again for the sum of exponentials; kept",
        "load_requests",
        instead="needs one pass for both: kept",
    ),
)
RECIPE = Recipe("online-softmax", ("time", "global_bytes"), ("registers", "accuracy"), rewrites, claims=CLAIMS)


def _function(largest: Pass, total: Pass) -> str | None:
    """Returns the exponential function if the second loop adds `exp(element - maximum)` of the same elements.

    The result is None otherwise.
    """
    rising = largest.carried.comparison == ">" or (largest.carried.function or "").removeprefix("std::") in {"fmaxf", "fmax", "max"}  # fmt: skip
    if largest.carried.kind != "extreme" or not rising or total.carried.kind != "sum":
        return None
    match = _EXPONENTIAL.fullmatch(squeezed(total.value))
    if match is None or match[3] != largest.carried.name:
        return None
    wanted = squeezed(with_variable(largest.value, largest.loop.name, total.loop.name))
    return match[1] if match[2] in {wanted, f"({wanted})"} else None


def _first_value(tree: Tree, largest: Pass, total: Pass) -> str | None:
    """Returns the initial value of the sum: 0, or 1 if the maximum was initialised with the first element.

    The result is None if the loops start in another way.
    """
    early, late = plain(tree, largest.loop.start), plain(tree, total.loop.start)
    if early == late:
        return "0.0f"
    before = previous(largest.loop.node)
    started = None if before is None or before.type != "declaration" else squeezed(tree.text(before))
    first = squeezed(with_variable(largest.value, largest.loop.name, late))
    simple = {first, first.replace("+0]", "]").replace("[0+", "[")}
    if (early, late) == ("1", "0") and started is not None and any(started.endswith(f"{largest.carried.name}={one};") for one in simple):  # fmt: skip
        return "1.0f"
    return None


def _edits(tree: Tree, largest: Pass, total: Pass, function: str, first: str) -> Iterator[Edit]:
    indent, step = indent_of(tree, largest.loop.node), indent_step(tree)
    name = largest.carried.name
    top, sum_, value = fresh(tree, f"own_{name}"), fresh(tree, "own_sum"), fresh(tree, "value")
    start = tree.span(largest.loop.node)[0]
    yield start, start, f"float {top} = {name}, {sum_} = {first};\n{indent}"
    body_start, body_end = body_span(tree, largest.loop.node, largest.loop.block)
    lines = [
        f"const float {value} = {largest.value};",
        f"if ({value} > {top}) {{",
        f"{step}{sum_} = {sum_} * {function}({top} - {value}) + 1.0f;",
        f"{step}{top} = {value};",
        f"}} else if ({value} != -INFINITY) {{",
        f"{step}{sum_} += {function}({value} - {top});",
        "}",
    ]
    inner = "".join(f"\n{indent}{step}{line}" for line in lines)
    yield body_start, body_end, f" {{{inner}\n{indent}}}\n{indent}{name} = {top};"
    late_start, late_end = tree.span(total.loop.node)
    yield late_start, late_end, f"if ({sum_} != 0.0f) {total.carried.name} += {sum_} * {function}({top} - {name});"
