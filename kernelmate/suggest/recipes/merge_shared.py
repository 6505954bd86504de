"""Merges two shared buffers whose lifetimes do not overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import (
    ELEMENT_BYTES,
    DeclaredVariable,
    Edit,
    Node,
    Tree,
    integer_constants,
    integer_value,
    is_barrier,
    read_tree,
)


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A static shared array; `first` and `last` are the indices of the outermost statements that use it."""

    variable: DeclaredVariable
    elements: int
    bytes: int
    first: int
    last: int


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for each pair of buffers with disjoint lifetimes, the largest saving first."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    statements = [child for child in tree.body.named_children if child.type != "comment"]
    buffers = list(_buffers(tree, statements))
    pairs = [
        (early, late)
        for early in buffers
        for late in buffers
        if early.last < late.first and _alike(early, late) and _can_part(tree, statements, early, late)
    ]
    for early, late in sorted(pairs, key=lambda pair: -min(pair[0].bytes, pair[1].bytes)):
        edits = list(_merge(tree, statements, early, late))
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, _why(tree, statements, early, late))


CLAIMS = (Claim(r", \d+ bytes of shared memory per block less", "shared_bytes"),)
RECIPE = Recipe("merge-shared-buffers", ("shared_bytes", "occupancy"), ("time",), rewrites, claims=CLAIMS)


def _buffers(tree: Tree, statements: list[Node]) -> Iterator[SharedBuffer]:
    constants = integer_constants(tree.kernel.unit.text)
    for variable in tree.shared_arrays():
        element = ELEMENT_BYTES.get(variable.type)
        elements = 1
        for dim in variable.dims:
            elements *= integer_value(dim, constants) or 0
        if element is None or not elements or variable.pointers or "volatile" in variable.qualifiers:
            continue
        uses = tree.uses(variable.name)
        if not uses or not all(_is_element(use) for use in uses) or _in_macro(tree, variable.name):
            continue
        places = [_statement_of(statements, use) for use in uses]
        if None not in places:
            known = [place for place in places if place is not None]
            yield SharedBuffer(variable, elements, elements * element, min(known), max(known))


def _is_element(use: Node) -> bool:
    """Returns True if the use is an indexed element, so that no pointer to the buffer remains."""
    parent = use.parent
    if parent is None or parent.type != "subscript_expression":
        return False
    argument = parent.child_by_field_name("argument")
    if argument is None or argument.id != use.id:
        return False
    outer = parent.parent
    while outer is not None and outer.type in {"subscript_expression", "parenthesized_expression"}:
        outer = outer.parent
    if outer is None or outer.type != "pointer_expression" or outer.child_by_field_name("operator") is None:
        return True
    return outer.parent is not None and outer.parent.type == "argument_list"


def _in_macro(tree: Tree, name: str) -> bool:
    return re.search(rf"^[ \t]*#[ \t]*define\b(?:.*\\\n)*.*\b{name}\b", tree.kernel.unit.text, re.MULTILINE) is not None


def _statement_of(statements: list[Node], use: Node) -> int | None:
    for index, statement in enumerate(statements):
        if statement.start_byte <= use.start_byte < statement.end_byte:
            return index
    return None


def _alike(early: SharedBuffer, late: SharedBuffer) -> bool:
    """Returns True if one can replace the other: same type, and both one-dimensional or of equal dimensions."""
    one, other = early.variable, late.variable
    return one.type == other.type and (one.dims == other.dims or len(one.dims) == len(other.dims) == 1)


def _barrier_between(tree: Tree, statements: list[Node], early: SharedBuffer, late: SharedBuffer) -> bool:
    return any(is_barrier(tree, statement) for statement in statements[early.last + 1 : late.first])


def _can_part(tree: Tree, statements: list[Node], early: SharedBuffer, late: SharedBuffer) -> bool:
    """Returns True if a barrier lies between the two lifetimes, or can be added there: no thread returns or jumps."""
    if _barrier_between(tree, statements, early, late):
        return True
    return next(tree.walk("return_statement", "goto_statement", "labeled_statement"), None) is None


def _merge(tree: Tree, statements: list[Node], early: SharedBuffer, late: SharedBuffer) -> Iterator[Edit]:
    for use in tree.uses(late.variable.name):
        yield tree.replace(use, early.variable.name)
    if late.elements > early.elements:
        array = next(tree.walk("array_declarator", under=early.variable.node))
        size = array.child_by_field_name("size")
        if size is not None:
            yield tree.replace(size, late.variable.dims[0])
    yield _undeclare(tree, late.variable)
    if not _barrier_between(tree, statements, early, late):
        start = tree.span(statements[late.first])[0]
        text = tree.kernel.unit.text
        line = text.rfind("\n", 0, start) + 1
        indent = text[line:start] if not text[line:start].strip() else "  "
        yield start, start, f"__syncthreads();\n{indent}"


def _undeclare(tree: Tree, variable: DeclaredVariable) -> Edit:
    """Returns an edit that removes one declarator from its declaration, or the whole line if it is the only one."""
    text = tree.kernel.unit.text
    declarators = variable.declaration.children_by_field_name("declarator")
    start, end = tree.span(variable.node)
    if len(declarators) == 1:
        start, end = tree.span(variable.declaration)
        line = text.rfind("\n", 0, start) + 1
        if not text[line:start].strip() and text[end : end + 1] == "\n":
            return line, end + 1, ""
        return start, end, ""
    index = [declarator.id for declarator in declarators].index(variable.node.id)
    if index == 0:
        return start, tree.span(declarators[1])[0], ""
    return tree.span(declarators[index - 1])[1], end, ""


def _why(tree: Tree, statements: list[Node], early: SharedBuffer, late: SharedBuffer) -> str:
    barrier = "" if _barrier_between(tree, statements, early, late) else ", with one more barrier between them"
    return (
        f"{early.variable.name} is last used before {late.variable.name} is first written{barrier}: one buffer does for both, "
        f"{min(early.bytes, late.bytes)} bytes of shared memory per block less."
    )
