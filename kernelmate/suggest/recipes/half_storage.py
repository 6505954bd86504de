"""Stores float arrays in shared memory as halves; arithmetic stays in float.

Applies if every element comes from a half, so that nothing is lost, or if the contract has a relative tolerance of a
thousandth or more. Halves the size of the arrays, for shared memory and occupancy. The reason states when results
change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim, Kernel
from kernelmate.source import apply_edits, same_kernel, with_text
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, element_accesses, is_written, operator, plain, root_name

LOOSE = 1e-3
"""Relative tolerance from which halves (precision 2^-11) may suffice."""

STORED = {
    "half": ("__half", "__half2float", "__float2half", "cuda_fp16.h"),
    "bfloat16": ("__nv_bfloat16", "__bfloat162float", "__float2bfloat16", "cuda_bf16.h"),
}
"""Type, conversion to and from float, and header of each way to store."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for all shared float arrays that can be stored as half, or as bfloat16 if the kernel uses it."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    tolerance = request.contract.tolerance
    loose = tolerance is not None and tolerance.rtol >= LOOSE
    kind = "bfloat16" if "__nv_bfloat16" in request.kernel.source else "half"
    found = []
    exact = True
    for variable in tree.shared_arrays():
        stored = _stored(tree, variable)
        if stored is None:
            continue
        lossless = all(call_name(tree, strip_parentheses(value)) == STORED[kind][1] for value in stored)
        if lossless or loose:
            found.append(variable)
            exact = exact and lossless
    if not found:
        return
    edits = [edit for variable in found for edit in _edits(tree, variable, kind)]
    kernel = _with_header(apply_edits(request.kernel, edits), STORED[kind][3])
    names = " and ".join(variable.name for variable in found)
    numerics = "every element was one to begin with, so nothing is lost" if exact else "this changes numerics, within the contract's tolerance if the judge says so"  # fmt: skip
    yield Rewrite(kernel, request.contract, f"{names} in shared memory as {kind}, half as large; {numerics}.")


CLAIMS = (Claim(r", half as large", "shared_bytes"),)
RECIPE = Recipe("half-storage", ("shared_bytes", "occupancy"), ("accuracy", "time"), rewrites, claims=CLAIMS)


def _stored(tree: Tree, variable: DeclaredVariable) -> list[Node] | None:
    """Returns all values that are stored into a float array; None unless plain loads and stores are its only uses."""
    if variable.type != "float" or "extern" in variable.qualifiers or "volatile" in variable.qualifiers:
        return None
    accesses = [element for element in element_accesses(tree) if root_name(tree, element) == variable.name]
    if len(accesses) != len(tree.uses(variable.name)):
        return None
    values = []
    for element in accesses:
        parent = element.parent
        if parent is None or parent.type == "pointer_expression":
            return None
        if is_written(tree, element):
            right = parent.child_by_field_name("right")
            lone = parent.parent is not None and parent.parent.type == "expression_statement"
            if parent.type != "assignment_expression" or operator(tree, parent) != "=" or right is None or not lone:
                return None
            values.append(right)
        elif parent.type == "argument_list" and len(variable.dims) != plain(tree, element).count("["):
            return None
    return values or None


def _edits(tree: Tree, variable: DeclaredVariable, kind: str) -> Iterator[Edit]:
    type_, to_float, from_float, _ = STORED[kind]
    node = variable.declaration.child_by_field_name("type")
    if node is None or len(variable.declaration.children_by_field_name("declarator")) != 1:
        return
    yield tree.replace(node, type_)
    for element in element_accesses(tree):
        if root_name(tree, element) != variable.name:
            continue
        start, end = tree.span(element)
        parent = element.parent
        if parent is not None and is_written(tree, element):
            right = parent.child_by_field_name("right")
            if right is not None:
                low, high = tree.span(right)
                yield low, low, f"{from_float}("
                yield high, high, ")"
        else:
            yield start, start, f"{to_float}("
            yield end, end, ")"


def _with_header(kernel: Kernel, header: str) -> Kernel:
    """Returns the kernel's unit with the header included, before its first line of code."""
    text = kernel.unit.text
    if re.search(rf"^[ \t]*#[ \t]*include[ \t]*[<\"]{re.escape(header)}", text, re.MULTILINE):
        return kernel
    first = re.search(r"^(?!\s*//)(?!\s*$).", text, re.MULTILINE)
    at = first.start() if first is not None and not text.lstrip().startswith("/*") else 0
    return same_kernel(kernel, with_text(kernel.unit, f"{text[:at]}#include <{header}>\n{text[at:]}"))
