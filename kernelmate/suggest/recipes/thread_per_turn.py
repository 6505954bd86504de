"""Gives each independent iteration of a thread's loop a thread of its own.

Applies to one-dimensional launches in which the work of a thread is one loop of independent iterations, such as a row
of outputs or the parts of a packed word. Thread index and loop variable become quotient and remainder of one index, so
that neighbouring threads run neighbouring iterations and store neighbouring elements. Improves global traffic, and time
if few threads were active. Every thread repeats the code before the loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.exchange_axes import in_kernel
from kernelmate.suggest.recipes.independent import independent_turns
from kernelmate.suggest.strides import lanes_of
from kernelmate.suggest.syntax import Edit, Node, Tree, integer_constants, integer_value, read_tree
from kernelmate.suggest.syntax_effects import body_span, declared_names, fresh, indent_of, names, statements, writes
from kernelmate.suggest.syntax_loops import CountingLoop, global_index, guarded, read_loop


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate: a thread for each iteration of the last loop."""
    tree = read_tree(request.kernel)
    lanes = None if tree is None else lanes_of(tree, request.contract)
    if tree is None or lanes is None or lanes.shape.block[1:] != (1, 1) or len(request.contract.grid) != 1:
        return
    number = global_index(tree, "x", lanes.shape.block[0])
    loop = None if number is None else _loop(tree)
    rounded = re.fullmatch(r"\s*cdiv\(\s*(.+?)\s*,\s*([^,()]+?)\s*\)\s*", request.contract.grid[0])
    if number is None or loop is None or rounded is None or tree.kernel.source.count("threadIdx") != 1:
        return
    turns = _turns(tree, request, loop)
    if turns is None:
        return
    grid = f"cdiv(({rounded[1]}) * {turns[1]}, {rounded[2]})"
    kernel, contract = relaunch(
        request, apply_edits(request.kernel, _edits(tree, loop, number, turns[0])), grid=(grid,)
    )
    why = f"Each thread does all {turns[0]} iterations over `{loop.name}`, whose elements are adjacent in memory; with a thread for each iteration, those of a warp are."  # fmt: skip
    yield Rewrite(kernel, contract, why)


CLAIMS = (
    Claim(
        r", whose elements are adjacent in memory; with a thread for each iteration, those of a warp are",
        "global_bytes",
        instead="; now there is a thread for each iteration",
    ),
)
RECIPE = Recipe("thread-per-turn", ("global_bytes", "time"), (), rewrites, claims=CLAIMS)


def _loop(tree: Tree) -> CountingLoop | None:
    """Returns the last loop, if only variables are written before it; else None."""
    within = statements(tree.body)
    guard = guarded(tree, within)
    rest = list(within if guard is None else guard.rest)
    if (
        guard is None
        or not rest
        or any(word in tree.kernel.source for word in ("__shared__", "__sync", "__shfl", "atomic"))
    ):
        return None
    *before, last = rest
    loop = read_loop(tree, last)
    if loop is None or loop.node.type != "for_statement" or loop.step != "1" or not loop.declared or loop.inclusive:
        return None
    if tree.text(loop.start).strip() not in {"0", "0u"} or not independent_turns(tree, loop):
        return None
    if any(node.type in {"for_statement", "while_statement", "if_statement"} for node in before):
        return None
    if any(place.type != "identifier" for node in before for place in writes(tree, node)):
        return None
    outer = {tree.text(place) for place in writes(tree, loop.block) if place.type == "identifier"}
    return None if outer - declared_names(tree, loop.block) else loop


def _turns(tree: Tree, request: SuggestRequest, loop: CountingLoop) -> tuple[str, str] | None:
    """Returns the number of iterations as text of the kernel and of the contract.

    The result is None if it may differ between threads.
    """
    text = tree.text(loop.bound)
    known = integer_value(text, integer_constants(tree.kernel.unit.text))
    if known is not None:
        return str(known), str(known)
    local = {name for name in names(tree, loop.bound) if (v := tree.variable(name)) is not None and v.declaration.type == "declaration"}  # fmt: skip
    if local or in_kernel(tree, request.contract, text) is None or not re.fullmatch(r"\w+", text):
        return None
    return text, text


def _edits(tree: Tree, loop: CountingLoop, number: str, turns: str) -> list[Edit]:
    variable = tree.variable(number)
    assert variable is not None, "a number is a variable"
    value: Node | None = variable.value
    assert value is not None, "a number has its value from where it is declared"
    turn = fresh(tree, "turn")
    indent = indent_of(tree, variable.declaration)
    start = tree.span(variable.declaration)[0]
    first, last = tree.span(loop.node)[0], body_span(tree, loop.node, loop.block)[0]
    head = f"const int {loop.name} = {turn} % {turns};"
    opening = tree.span(loop.block)[0] + 1 if loop.block.type == "compound_statement" else None
    edits: list[Edit] = [
        (
            start,
            start,
            f"const {loop.declared if 'const' not in loop.declared else 'int'} {turn} = {tree.text(value)};\n{indent}",
        ),
        tree.replace(value, f"{turn} / {turns}"),
    ]
    if opening is not None:
        return [*edits, (first, opening, f"{{\n{indent_of(tree, loop.node)}  {head}")]
    return [*edits, (first, last, f"{{ {head}"), (tree.span(loop.block)[1], tree.span(loop.block)[1], " }")]
