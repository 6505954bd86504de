"""Conversion of `array[row * cols + i]` in loops to `pointer[i]`, with a pointer to the row."""

from __future__ import annotations

import re

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    BUILTINS,
    constant_after_start,
    element_accesses,
    fresh,
    indent_of,
    index_of,
    names,
    operator,
    plain,
    root_name,
    statements,
    written_names,
)
from kernelmate.suggest.syntax_loops import CountingLoop, loops


def with_row_pointers(kernel: Kernel) -> Kernel:
    """Returns the kernel with a pointer for each array and offset that its outermost loops use.

    Pointers are declared before the first loop. The kernel is unchanged if no parameter is accessed at a constant
    offset from the loop variable.
    """
    tree = read_tree(kernel)
    if tree is None:
        return kernel
    outermost = [loop for loop in loops(tree) if loop.node.parent is not None and loop.node.parent.id == tree.body.id]
    found: dict[tuple[str, str], tuple[Node, list[Node]]] = {}
    for loop in outermost:
        for element in element_accesses(tree, loop.block):
            name, offset = root_name(tree, element), _offset(tree, loop, element)
            known = offset is not None and _known_before(tree, offset, outermost[0].node)
            if name is not None and offset is not None and known and _is_row_of(tree, name):
                found.setdefault((name, plain(tree, offset)), (offset, []))[1].append(element)
    if len({name for name, _ in found}) != len(found):
        return kernel
    edits = [edit for (name, _), (offset, uses) in found.items() for edit in _edits(tree, name, offset, uses)]
    declared = [_declaration(tree, name, offset) for (name, _), (offset, _) in found.items()]
    return apply_edits(kernel, [*edits, _inserted(tree, declared, outermost[0].node)]) if found else kernel


def _offset(tree: Tree, loop: CountingLoop, element: Node) -> Node | None:
    """Returns the part of an element's index that is added to the loop variable; None for other indices."""
    index = index_of(element)
    if index is None or index.type != "binary_expression" or operator(tree, index) != "+":
        return None
    left, right = index.child_by_field_name("left"), index.child_by_field_name("right")
    if left is None or right is None:
        return None
    for one, other in ((left, right), (right, left)):
        if plain(tree, one) == loop.name and loop.name not in names(tree, other):
            return other
    return None


def _known_before(tree: Tree, offset: Node, first: Node) -> bool:
    """Returns True if the offset is computable before the first loop and does not change.

    Its variables are constant, and it reads only memory that the kernel does not write. Differences are excluded: an
    unsigned one may wrap below zero, and only its sum with the loop variable is a valid index.
    """
    if "-" in tree.text(offset):
        return False
    if next(tree.walk("call_expression", "assignment_expression", "update_expression", under=offset), None) is not None:
        return False
    read = {root_name(tree, element) for element in element_accesses(tree, offset)}
    for name in names(tree, offset) - BUILTINS:
        variable = tree.variable(name)
        if variable is None:
            continue
        if variable.declaration.type == "parameter_declaration":
            constant = "const" in variable.qualifiers or name not in read
            if name in written_names(tree, tree.body) or not constant:
                return False
        elif not _declared_before(tree, variable, first) or name in read:
            return False
    return True


def _declared_before(tree: Tree, variable: DeclaredVariable, first: Node) -> bool:
    """True for a constant of the body's own scope that is declared before a statement."""
    parent = variable.declaration.parent
    before = variable.declaration.end_byte <= first.start_byte
    return before and parent is not None and parent.id == tree.body.id and constant_after_start(tree, variable.name)


def _is_row_of(tree: Tree, name: str) -> bool:
    """Returns True if the name is a pointer parameter that the kernel does not change."""
    variable = tree.variable(name)
    if variable is None or variable.pointers != 1 or variable.declaration.type != "parameter_declaration":
        return False
    assigned = rf"(?<![\w.]){re.escape(name)}\s*(?:[-+]?=(?!=)|\+\+|--)|(?:\+\+|--)\s*{re.escape(name)}\b"
    return re.search(assigned, tree.text(tree.body)) is None


def _edits(tree: Tree, name: str, offset: Node, uses: list[Node]) -> list[Edit]:
    """Returns edits that access the pointer in place of the array."""
    edits: list[Edit] = []
    for element in uses:
        argument, index = element.child_by_field_name("argument"), index_of(element)
        assert argument is not None
        assert index is not None
        left, right = index.child_by_field_name("left"), index.child_by_field_name("right")
        assert left is not None
        assert right is not None
        kept = right if plain(tree, left) == plain(tree, offset) else left
        edits += [tree.replace(argument, fresh(tree, f"{name}_row")), tree.replace(index, tree.text(kept))]
    return edits


def _declaration(tree: Tree, name: str, offset: Node) -> str:
    variable = tree.variable(name)
    assert variable is not None
    kind = re.sub(r"\b__restrict__\s*", "", tree.text(variable.declaration))
    return f"{re.sub(rf'{re.escape(name)}$', fresh(tree, f'{name}_row'), kind)} = {name} + {tree.text(offset)};"


def _inserted(tree: Tree, declared: list[str], first: Node) -> Edit:
    """Returns the edit that inserts the declarations below the last pointer or constant declared before the first loop."""
    place = None
    for node in statements(tree.body):
        if node.start_byte >= first.start_byte or node.type != "declaration":
            break
        text = tree.text(node)
        if text.startswith("const ") or "*" in text.split("=")[0]:
            place = node
    lines = f"\n{indent_of(tree, first)}".join(declared)
    if place is None:
        start = tree.span(statements(tree.body)[0])[0]
        return start, start, f"{lines}\n{indent_of(tree, first)}"
    end = tree.span(place)[1]
    return end, end, f"\n{indent_of(tree, first)}{lines}"


def above_pragmas(tree: Tree, node: Node) -> int:
    """Returns the offset for statements before `node`: above the pragmas that belong to it."""
    before = node.prev_named_sibling
    while before is not None and before.type == "preproc_call" and "pragma" in tree.text(before):
        node, before = before, before.prev_named_sibling
    return tree.span(node)[0]
