"""Replaces hardware approximations by functions of full accuracy: `__expf` becomes `expf`.

Improves accuracy only, and costs some instructions per call, which memory-bound kernels hide.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, read_tree
from kernelmate.suggest.syntax_effects import call_name

EXACT = {f"__{name}f": f"{name}f" for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan", "pow", "exp10")}
"""Each approximation with the function that it approximates: CUDA C++ Programming Guide, Mathematical Functions."""

_DIVISIONS = frozenset({"__fdividef", "fdividef"})


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that replaces every approximation."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    found: list[str] = []
    for call in tree.walk("call_expression"):
        name = call_name(tree, call)
        function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if function is None or arguments is None:
            continue
        if name in EXACT:
            edits.append(tree.replace(function, EXACT[name]))
            found.append(name)
        elif name in _DIVISIONS and len(arguments.named_children) == 2:
            one, other = arguments.named_children
            (start, end), (low, high) = tree.span(call), (tree.span(one)[1], tree.span(other)[0])
            edits += [(start, tree.span(one)[0], "(("), (low, high, ") / ("), (tree.span(other)[1], end, "))")]
            found.append(name)
    if edits:
        why = f"{' and '.join(dict.fromkeys(found))} has few correct bits for large arguments; the full function has an error of at most two units in the last place."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("exact-functions", ("accuracy",), ("time", "registers"), rewrites)
