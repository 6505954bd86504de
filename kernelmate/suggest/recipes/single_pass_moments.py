"""Computes mean and variance in one pass over the data instead of two.

Applies to a loop that adds elements, followed by one over the same elements that adds squared distances from the mean.
Each thread sums distances from its own first element, and derives the sum of squares about any mean from them (Chan,
Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983). This keeps the digits that E[x^2] - E[x]^2 would
lose, unless the first element is far from the others; the verdict checks the tolerance. Elements are read one time
less.
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
from kernelmate.suggest.syntax_effects import body_span, fresh, indent_of, indent_step, plain, written_names


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that merges the first pair of loops for mean and variance."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    for total, squares in pairs(tree):
        mean = _mean(tree, total, squares)
        if mean is None or total.carried.type not in {"float", "double"} or total.carried.type != squares.carried.type:
            continue
        kernel = apply_edits(request.kernel, list(_edits(tree, total, squares, mean)))
        why = f"{squeezed(total.value)} is read for the mean and again for the variance; sums of distances from each thread's first element give both in one pass."  # fmt: skip
        yield Rewrite(kernel, request.contract, why)
        return


CLAIMS = (
    Claim(
        r"is read for the mean and again for the variance; sums",
        "load_requests",
        instead="needs one pass for both: sums",
    ),
)
RECIPE = Recipe("single-pass-moments", ("time", "global_bytes"), ("registers", "accuracy"), rewrites, claims=CLAIMS)


def _mean(tree: Tree, total: Pass, squares: Pass) -> str | None:
    """Returns the name of the mean, if the second loop adds squared distances from it; else None."""
    if total.carried.kind != "sum" or squares.carried.kind != "sum":
        return None
    if plain(tree, total.loop.start) != plain(tree, squares.loop.start):
        return None
    element = squeezed(with_variable(total.value, total.loop.name, squares.loop.name))
    distance = rf"\((?:{re.escape(element)}|\({re.escape(element)}\))-(\w+)\)"
    match = re.fullmatch(rf"{distance}\*{distance}", squeezed(squares.value))
    if match is None or match[1] != match[2] or match[1] in written_names(tree, squares.loop.block):
        return None
    return match[1]


def _edits(tree: Tree, total: Pass, squares: Pass, mean: str) -> Iterator[Edit]:
    indent, step = indent_of(tree, total.loop.node), indent_step(tree)
    kind = total.carried.type
    first, count, sum_, square, value, away = (
        fresh(tree, name) for name in ("shift", "taken", "shifted", "shifted2", "value", "delta")
    )
    start = tree.span(total.loop.node)[0]
    yield start, start, f"// One pass: distances from the thread's first element lose no digits, whatever the mean.\n{indent}{kind} {first} = 0, {count} = 0, {sum_} = 0, {square} = 0;\n{indent}"  # fmt: skip
    body_start, body_end = body_span(tree, total.loop.node, total.loop.block)
    lines = [
        f"const {kind} {value} = {total.value};",
        f"if ({count} == 0) {first} = {value};",
        f"{count} += 1;",
        f"{total.carried.name} += {value};",
        f"{sum_} += {value} - {first};",
        f"{square} += ({value} - {first}) * ({value} - {first});",
    ]
    inner = "".join(f"\n{indent}{step}{line}" for line in lines)
    yield body_start, body_end, f" {{{inner}\n{indent}}}"
    late_start, late_end = tree.span(squares.loop.node)
    late_indent = indent_of(tree, squares.loop.node)
    lines = [
        f"const {kind} {away} = {first} + {sum_} / {count} - {mean};",
        f"{squares.carried.name} += {square} - {sum_} / {count} * {sum_} + {count} * {away} * {away};",
    ]
    inner = "".join(f"\n{late_indent}{step}{line}" for line in lines)
    yield late_start, late_end, f"if ({count} > 0) {{{inner}\n{late_indent}}}"
