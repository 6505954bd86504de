"""Replaces functions of full accuracy by hardware approximations, within the tolerance.

Applies to calls such as expf and sinf, and to float quotients of them. Errors are a few units in the last place for
small arguments and grow with large ones (CUDA C++ Programming Guide, Intrinsic Functions); the verdict decides whether
they are acceptable. Improves time and registers, and changes results.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, names, operator

FAST = {
    "expf": "__expf", "logf": "__logf", "log2f": "__log2f", "log10f": "__log10f", "sinf": "__sinf", "cosf": "__cosf",
    "tanf": "__tanf", "powf": "__powf", "exp10f": "__exp10f",
}  # fmt: skip
OVERLOADED = {"exp": "__expf", "log": "__logf", "sin": "__sinf", "cos": "__cosf", "pow": "__powf"}
"""Overloaded functions that call the float version for a float argument, with its approximation."""
ERRORS = {
    "__expf": "up to 2 + |1.17 x| ulp", "__exp10f": "up to 2 + |2.97 x| ulp", "__logf": "up to 3 ulp, 2^-21.4 absolute in [0.5, 2]",
    "__log2f": "up to 2 ulp, 2^-22 absolute in [0.5, 2]", "__log10f": "up to 2 ulp, 2^-24 absolute in [0.5, 2]",
    "__sinf": "up to 2^-21.4 absolute in [-pi, pi], more beyond", "__cosf": "up to 2^-21.2 absolute in [-pi, pi], more beyond",
    "__tanf": "that of __sinf(x) / __cosf(x)", "__powf": "that of exp2f(y * __log2f(x))",
}  # fmt: skip
"""Errors of the approximations: CUDA C++ Programming Guide, Intrinsic Functions."""
STRICTEST = 2e-7
"""Smallest declared relative tolerance for which approximations are tried."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that changes every call with an approximation, and quotients of floats that contain one."""
    tree = read_tree(request.kernel)
    tolerance = request.contract.tolerance
    if tree is None or (tolerance is not None and max(tolerance.rtol, tolerance.atol) < STRICTEST):
        return
    edits: list[Edit] = []
    changed: list[str] = []
    for call in tree.walk("call_expression"):
        function = call.child_by_field_name("function")
        name = call_name(tree, call).removeprefix("std::")
        fast = FAST.get(name) or (OVERLOADED.get(name) if _float_arguments(tree, call) else None)
        if fast is None or function is None:
            continue
        edits.append(tree.replace(function, fast))
        if not any(one.endswith(f" by {fast}") for one in changed):
            edits += _comment(tree, call, fast)
        changed.append(f"{name} by {fast}")
    edits += _reciprocal_roots(tree, changed)
    if edits:
        why = f"The hardware's approximations take a fraction of the time: {', '.join(dict.fromkeys(changed))}. Results change slightly; the tolerance decides whether that is allowed."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("fast-intrinsics", ("time", "registers"), ("accuracy",), rewrites)


def _comment(tree: Tree, call: Node, fast: str) -> Iterator[Edit]:
    """Yields a comment on the loss of accuracy above the statement with the first call of an approximation."""
    node: Node | None = call
    while node is not None and (node.parent is None or node.parent.type != "compound_statement"):
        node = node.parent
    text = tree.kernel.unit.text
    start = 0 if node is None else tree.span(node)[0]
    line = text.rfind("\n", 0, start) + 1
    pragma = text[:line].rstrip().rpartition("\n")[2].lstrip().startswith("#")
    if node is not None and not text[line:start].strip() and not pragma:
        yield line, line, f"{text[line:start]}// Error of {fast}: {ERRORS[fast]}.\n"


def _float_arguments(tree: Tree, call: Node) -> bool:
    """Returns True if all variables in the arguments are floats, and there are no casts or double literals."""
    arguments = call.child_by_field_name("arguments")
    if arguments is None or next(tree.walk("cast_expression", under=arguments), None) is not None:
        return False
    for name in names(tree, arguments):
        variable = tree.variable(name)
        if variable is None or variable.type not in {"float", "int"}:
            return False
    literals = (tree.text(node) for node in tree.walk("number_literal", under=arguments))
    floats = any((v := tree.variable(name)) is not None and v.type == "float" for name in names(tree, arguments))
    return floats and all("." not in text or text[-1] in "fF" for text in literals)


def _reciprocal_roots(tree: Tree, changed: list[str]) -> Iterator[Edit]:
    """Rewrites `1.0f / sqrtf(x)` as `rsqrtf(x)`."""
    for node in tree.walk("binary_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator(tree, node) != "/" or left is None or right is None or tree.text(left) not in {"1.0f", "1.f"}:
            continue
        call = strip_parentheses(right)
        function = call.child_by_field_name("function") if call.type == "call_expression" else None
        if function is None or tree.text(function) != "sqrtf":
            continue
        changed.append("1 / sqrtf by rsqrtf")
        yield tree.span(left)[0], tree.span(function)[1], "rsqrtf" if call.id == right.id else "(rsqrtf"
