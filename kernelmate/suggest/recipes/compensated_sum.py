"""Keeps the rounding error of each step of a long float sum, and adds it in the next step.

Applies to `s += e` in a loop that does not use `s` otherwise (Kahan, Further remarks on reducing truncation errors,
1965). The error no longer grows with the number of terms. Improves accuracy, and costs three additions per iteration
and a register. Compilers keep the order of the steps unless an option allows reassociation (`--use_fast_math` does
not).
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import fresh, indent_of, names, operator, plain
from kernelmate.suggest.syntax_loops import enclosing_loops


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate, for all floats that a loop sums."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    found: list[str] = []
    for statement in tree.walk("expression_statement"):
        added = _added(tree, statement)
        if added is None or added[0] in found or not _alone(tree, added[0], statement):
            continue
        found.append(added[0])
        edits += _edits(tree, statement, *added)
    if edits:
        sums = " and ".join(f"`{name}`" for name in found)
        why = f"{sums} loses the last bits of every term once it has grown; the rounding error of each step is kept and added in the next."
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("compensated-sum", ("accuracy",), ("registers", "time"), rewrites)


def _added(tree: Tree, statement: Node) -> tuple[str, str, str] | None:
    """Returns name, type and term of `s += e;` or `s = s + e;` in a loop; None for other statements."""
    expression = statement.named_children[0] if statement.named_children else None
    if expression is None or expression.type != "assignment_expression" or not enclosing_loops(statement):
        return None
    left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
    if left is None or right is None or left.type != "identifier":
        return None
    name = tree.text(left)
    variable = tree.variable(name)
    if variable is None or variable.pointers or variable.dims or variable.type not in {"float", "double"}:
        return None
    if operator(tree, expression) == "+=" and name not in names(tree, right):
        return name, variable.type, tree.text(right)
    right = strip_parentheses(right)
    if operator(tree, expression) == "=" and right.type == "binary_expression" and operator(tree, right) == "+":
        one, other = right.child_by_field_name("left"), right.child_by_field_name("right")
        if one is not None and other is not None and plain(tree, one) == name and name not in names(tree, other):
            return name, variable.type, tree.text(other)
    return None


def _alone(tree: Tree, name: str, statement: Node) -> bool:
    """Returns True if the innermost loop is a counting loop without shuffles that uses the sum nowhere else."""
    loop = enclosing_loops(statement)[0]
    inside = [use for use in tree.uses(name) if loop.start_byte <= use.start_byte < loop.end_byte]
    own = [use for use in inside if statement.start_byte <= use.start_byte < statement.end_byte]
    variable = tree.variable(name)
    outside = variable is not None and not loop.start_byte <= variable.node.start_byte < loop.end_byte
    return len(inside) == len(own) and outside and "__shfl" not in tree.text(loop)


def _edits(tree: Tree, statement: Node, name: str, kind: str, term: str) -> Iterator[Edit]:
    lost, taken, after = (fresh(tree, f"{name}_{word}") for word in ("lost", "term", "sum"))
    loop = enclosing_loops(statement)[0]
    indent = indent_of(tree, loop)
    start = tree.span(loop)[0]
    yield start, start, f"{kind} {lost} = 0;\n{indent}"
    text = f"const {kind} {taken} = ({term}) - {lost}, {after} = {name} + {taken}; {lost} = ({after} - {name}) - {taken}; {name} = {after};"  # fmt: skip
    yield tree.replace(statement, f"{{ {text} }}")
