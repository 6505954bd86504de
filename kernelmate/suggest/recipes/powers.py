"""Replaces powers with whole exponents by products.

`powf(x, 3.0f)` takes about forty instructions, `x * x * x` two. Applies to `pow` and `powf` with a literal exponent
from 2 to 8 (or a half, or minus one), and to `powf(x, k)` in a loop that increments k, where each iteration then
multiplies once more. Improves time and registers; the last bit may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.helpers import own_trees
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, fresh, indent_of, names, only_pure_calls
from kernelmate.suggest.syntax_loops import CountingLoop, enclosing_loops, invariant, read_loop

LARGEST = 8
_NAMES = frozenset({"pow", "powf", "__powf", "std::pow"})
_SIMPLE = re.compile(r"[A-Za-z_]\w*(?:\[\w+\])?")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate, for every power that can be a product."""
    edits: list[Edit] = []
    found: list[str] = []
    for tree in own_trees(request.kernel):
        for call in tree.walk("call_expression"):
            arguments = call.child_by_field_name("arguments")
            if call_name(tree, call) not in _NAMES or arguments is None or len(arguments.named_children) != 2:
                continue
            if any(_inside(call, other) for other in tree.walk("call_expression") if other.id != call.id and call_name(tree, other) in _NAMES):  # fmt: skip
                continue
            changed = _written_out(tree, call, arguments.named_children[0], arguments.named_children[1], len(found))
            if changed:
                edits += changed
                found.append(tree.text(call))
    if edits:
        shown = ", ".join(dict.fromkeys(found[:3]))
        why = f"{shown} takes a logarithm and an exponential, with care for every special case; products give it in a few instructions."
        yield Rewrite(apply_edits(request.kernel, _merged(edits)), request.contract, why)


RECIPE = Recipe("powers", ("time", "registers"), ("accuracy",), rewrites)


def _inside(call: Node, other: Node) -> bool:
    return other.start_byte <= call.start_byte and call.end_byte <= other.end_byte


def _written_out(tree: Tree, call: Node, base: Node, exponent: Node, number: int) -> list[Edit]:
    """Returns edits for one power; empty if it does not change."""
    double = call_name(tree, call) in {"pow", "std::pow"} and not _is_float(tree, base)
    kind = "double" if double else "float"
    running = _running(tree, call, base, exponent, kind, number)
    if running:
        return running
    value = re.fullmatch(r"(-?\d+(?:\.\d*)?)[fF]?", tree.text(exponent).strip("()"))
    power = None if value is None else float(value[1])
    if power not in {*map(float, range(2, LARGEST + 1)), 0.5, -1.0, -0.5}:
        return []
    text = tree.text(strip_parentheses(base))
    edits: list[Edit] = []
    if power in {0.5, -0.5, -1.0}:
        f = "" if double else "f"
        return [
            tree.replace(
                call, {0.5: f"sqrt{f}({text})", -0.5: f"rsqrt{f}({text})", -1.0: f"(1.0{f} / ({text}))"}[power]
            )
        ]
    if not _SIMPLE.fullmatch(text):
        statement = _statement(call)
        if statement is None or not only_pure_calls(tree, base):
            return []
        name = fresh(tree, "base" if not number else f"base{number}")
        start = tree.span(statement)[0]
        edits.append((start, start, f"const {kind} {name} = {text};\n{indent_of(tree, statement)}"))
        text = name
    elif not _is_float(tree, base) and not double:
        text = f"(float){text}"
    assert power is not None
    return [*edits, tree.replace(call, _product(text, int(power)))]


def _product(text: str, power: int) -> str:
    """Returns the power as a product with few multiplications; the compiler reuses equal squares."""
    if power == 4:
        return f"(({text} * {text}) * ({text} * {text}))"
    if power > 4:
        half = f"({text} * {text} * {text})" if power >= 6 else f"({text} * {text})"
        done = 6 if power >= 6 else 4
        return f"({' * '.join([half, half, *[text] * (power - done)])})"
    return f"({' * '.join([text] * power)})"


def _is_float(tree: Tree, node: Node) -> bool:
    """Returns True if the variables in the expression are floats, or integers beside at least one float."""
    kinds = set()
    for name in names(tree, node):
        variable = tree.variable(name)
        if variable is not None:
            kinds.add(variable.type)
    return "float" in kinds and "double" not in kinds


def _statement(call: Node) -> Node | None:
    """Returns the statement of a call, if another can precede it and both run under the same conditions; else None."""
    node: Node | None = call
    while node is not None and node.type not in {"expression_statement", "declaration", "return_statement"}:
        if node.type in {"conditional_expression", "for_statement", "while_statement", "condition_clause"}:
            return None
        node = node.parent
    return node if node is not None and node.parent is not None and node.parent.type == "compound_statement" else None


def _running(tree: Tree, call: Node, base: Node, exponent: Node, kind: str, number: int) -> list[Edit]:
    """Rewrites `powf(x, k)` in the loop over k as a product that gains a factor in each iteration.

    The result is empty if the call has another form.
    """
    inner = strip_parentheses(exponent)
    if inner.type == "cast_expression":
        inner = strip_parentheses(inner.child_by_field_name("value") or inner)
    around = enclosing_loops(call)
    loop: CountingLoop | None = read_loop(tree, around[0]) if around else None
    if loop is None or loop.node.type != "for_statement" or loop.step != "1" or tree.text(inner) != loop.name:
        return []
    parent = loop.node.parent
    if parent is None or parent.type != "compound_statement" or not invariant(tree, base, loop.node):
        return []
    if (
        tree.text(loop.start) not in {"0", "1"}
        or next(tree.walk("continue_statement", under=loop.block), None) is not None
    ):
        return []
    name = fresh(tree, "power" if not number else f"power{number}")
    indent, text = indent_of(tree, loop.node), tree.text(base)
    first = f"({kind})({text})" if tree.text(loop.start) == "1" else "1"
    start = tree.span(loop.node)[0]
    edits: list[Edit] = [(start, start, f"{kind} {name} = {first};\n{indent}"), tree.replace(call, name)]
    update = loop.node.child_by_field_name("update")
    if update is None:
        return []
    end = tree.span(update)[1]
    return [*edits, (end, end, f", {name} *= {text}")]


def _merged(edits: list[Edit]) -> list[Edit]:
    """Joins insertions at the same offset into one edit, in their order."""
    joined: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        joined[start, end] = joined.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in joined.items()]
