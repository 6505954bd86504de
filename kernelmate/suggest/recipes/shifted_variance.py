"""Computes a variance E[x^2] - E[x]^2 about the first element instead of about zero.

Applies to a loop that adds elements and their squares, followed by a variance `q / n - mean * mean`. If the mean is
large compared with the spread, the two terms agree in most digits and the difference has few correct ones; about one of
the elements both terms are small (Chan, Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983). All
threads of a block use the same shift, so the code that combines their sums does not change. Improves accuracy, and
costs one load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import fresh, indent_of, names, operator, plain, substitute
from kernelmate.suggest.syntax_loops import CountingLoop, loops

_FIRST = re.compile(r"0u?|threadIdx\.x|lane|lane_?id|threadIdx\.x%32|threadIdx\.x&31|t|tid|tx")


@dataclass(frozen=True, slots=True)
class Sums:
    """A loop that adds elements and their squares.

    Attributes:
        loop: the loop.
        terms: nodes of the added elements.
        squares: nodes of the added squares, with the text of the squared value.
        value: the element in terms of names from outside the loop.
        names: the names of the sum of elements and of the sum of squares.
    """

    loop: CountingLoop
    terms: tuple[Node, ...]
    squares: tuple[tuple[Node, str], ...]
    value: str
    names: tuple[str, str]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that changes the first loop of a sum and a sum of squares."""
    tree = read_tree(request.kernel)
    sums = None if tree is None else next((found for loop in loops(tree) if (found := _sums(tree, loop))), None)
    if tree is None or sums is None:
        return
    shift = fresh(tree, "shift")
    after = _about_mean(tree, shift) or _of_sums(tree, sums, shift)
    if after is None:
        return
    why = f"The mean of the squares less the square of the mean cancels where the mean is large; about the first element, {sums.value}, nothing large is subtracted."  # fmt: skip
    yield Rewrite(apply_edits(request.kernel, [*_edits(tree, sums, shift), *after]), request.contract, why)


RECIPE = Recipe("shifted-variance", ("accuracy",), ("registers",), rewrites)


def _about_mean(tree: Tree, shift: str) -> list[Edit] | None:
    """Returns edits of `... - mean * mean` if the mean is a declared variable; else None."""
    for node in tree.walk("binary_expression"):
        right = node.child_by_field_name("right")
        if operator(tree, node) != "-" or right is None:
            continue
        inner = strip_parentheses(right)
        left, other = inner.child_by_field_name("left"), inner.child_by_field_name("right")
        if inner.type != "binary_expression" or operator(tree, inner) != "*" or left is None or other is None:
            continue
        mean = plain(tree, left)
        variable = tree.variable(mean)
        if mean == plain(tree, other) and variable is not None and variable.value is not None and variable.type in {"float", "double"}:  # fmt: skip
            product = tree.replace(inner, f"({mean} - {shift}) * ({mean} - {shift})")
            return [product, tree.replace(variable.value, f"{shift} + ({tree.text(variable.value)})")]
    return None


def _of_sums(tree: Tree, sums: Sums, shift: str) -> list[Edit] | None:
    """Returns edits for a variance computed from the sums, as in `(q - s * s / n) / n`; None if there is none.

    Such a variance does not depend on the shift. Any other use of the sum of elements must be the declaration of its
    mean.
    """
    total, squares = sums.names
    within: Node | None = None
    for node in tree.walk("binary_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator(tree, node) != "-" or left is None or right is None or squares not in names(tree, left):
            continue
        if [tree.text(one) for one in tree.walk("identifier", under=right)].count(total) == 2:
            within = node
    if within is None:
        return None
    edits: list[Edit] = []
    for use in tree.uses(total):
        inside = within.start_byte <= use.start_byte < within.end_byte
        if inside or use.start_byte < sums.loop.node.end_byte:
            continue
        above = use.parent
        declared = above is not None and above.parent is not None and above.parent.type == "init_declarator"
        if (
            above is None
            or not declared
            or above.type != "binary_expression"
            or operator(tree, above) not in {"*", "/"}
        ):
            return None
        edits.append(tree.replace(above, f"{shift} + {tree.text(above)}"))
    return edits


def _sums(tree: Tree, loop: CountingLoop) -> Sums | None:
    """Reads `s += v; q += v * v;`; None if the loop adds anything else."""
    terms: list[Node] = []
    squares: list[tuple[Node, str]] = []
    for node in tree.walk("assignment_expression", under=loop.block):
        right = node.child_by_field_name("right")
        if operator(tree, node) != "+=" or right is None:
            continue
        inner = strip_parentheses(right)
        square = _squared(tree, inner)
        if square is None:
            terms.append(right)
        else:
            squares.append((right, square))
    texts = {plain(tree, term) for term in terms} | {square for _, square in squares}
    if len(terms) != 1 or len(squares) != 1 or len(texts) != 1:
        return None
    first = _first_element(tree, loop, terms[0])
    totals = [_total(tree, node) for node in (terms[0], squares[0][0])]
    if first is None or None in totals:
        return None
    return Sums(loop, tuple(terms), tuple(squares), first, (totals[0] or "", totals[1] or ""))


def _total(tree: Tree, added: Node) -> str | None:
    """Returns the name of the variable that `added` is added to; None if it is not a variable."""
    left = None if added.parent is None else added.parent.child_by_field_name("left")
    return tree.text(left) if left is not None and left.type == "identifier" else None


def _squared(tree: Tree, node: Node) -> str | None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type != "binary_expression" or operator(tree, node) != "*" or left is None or right is None:
        return None
    return plain(tree, left) if plain(tree, left) == plain(tree, right) else None


def _first_element(tree: Tree, loop: CountingLoop, term: Node) -> str | None:
    """Returns the text of the first element of the whole block, with the loop's locals substituted; None if unknown."""
    start = plain(tree, loop.start).replace(" ", "")
    variable = tree.variable(start)
    if variable is not None and variable.value is not None:
        start = plain(tree, variable.value)
    if _FIRST.fullmatch(start) is None or loop.inclusive:
        return None
    given = {loop.name: "0"}
    for declaration in loop.body:
        for declarator in declaration.children_by_field_name("declarator") if declaration.type == "declaration" else ():
            name, value = tree.name_node(declarator), declarator.child_by_field_name("value")
            if name is None or value is None:
                return None
            given[tree.text(name)] = f"({substitute(tree, value, given)})"
    text = substitute(tree, term, given)
    left = names(tree, loop.block) & set(re.findall(r"[A-Za-z_]\w*", text)) & _declared(tree, loop)
    return None if left or "[" not in text else text


def _declared(tree: Tree, loop: CountingLoop) -> set[str]:
    found = {loop.name}
    for declaration in tree.walk("declaration", under=loop.block):
        for declarator in declaration.children_by_field_name("declarator"):
            name = tree.name_node(declarator)
            if name is not None:
                found.add(tree.text(name))
    return found


def _edits(tree: Tree, sums: Sums, shift: str) -> Iterator[Edit]:
    start, indent = tree.span(sums.loop.node)[0], indent_of(tree, sums.loop.node)
    bound = tree.text(sums.loop.bound)
    yield start, start, f"const float {shift} = {bound} > 0 ? {sums.value} : 0.0f;\n{indent}"
    for term in sums.terms:
        yield tree.replace(term, f"{tree.text(term)} - {shift}")
    for square, value in sums.squares:
        yield tree.replace(square, f"({value} - {shift}) * ({value} - {shift})")
