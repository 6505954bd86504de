"""Stores values in shared memory in their original type, and converts them when they are used.

Applies to shared arrays of float or int in which only elements of a narrower array, and zeros, are stored. The values
take a half or a quarter of the space. Improves shared memory and occupancy, and costs a conversion per read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import ELEMENT_BYTES, DeclaredVariable, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, element_accesses, is_written, operator, plain, root_name

_CONVERSIONS = {"__half2float": {"__half", "half"}, "__bfloat162float": {"__nv_bfloat16"}}
_ZERO = re.compile(r"0+(?:\.0*)?[fFuU]?")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that gives every shared array of wider elements the type of the values stored into it."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    told: list[str] = []
    for variable in tree.shared_arrays():
        kind = _came_as(tree, variable)
        if kind is not None:
            edits += _edits(tree, variable, *kind)
            told.append(f"{variable.name} holds what came as {kind[0]}")
    if edits:
        why = f"{' and '.join(told)}; stored so, it takes a fraction of the shared memory, and is converted where it is read."
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (
    Claim(
        r"; stored so, it takes a fraction of the shared memory, and is converted",
        "shared_bytes",
        instead="; stored so, it is converted",
    ),
)
RECIPE = Recipe("narrow-shared", ("shared_bytes", "occupancy"), ("time",), rewrites, claims=CLAIMS)


def _came_as(tree: Tree, variable: DeclaredVariable) -> tuple[str, str | None] | None:
    """Returns the type that all stored values are converted from, and the conversion; None if their types differ."""
    if variable.type not in {"float", "int", "unsigned", "unsigned int", "double"} or "extern" in variable.qualifiers:
        return None
    elements = [one for one in element_accesses(tree) if root_name(tree, one) == variable.name]
    if len(elements) != len(tree.uses(variable.name)):
        return None
    kinds: set[tuple[str, str | None]] = set()
    for element in elements:
        parent = element.parent
        if parent is None or parent.type == "pointer_expression":
            return None
        if not is_written(tree, element):
            continue
        right = parent.child_by_field_name("right")
        if parent.type != "assignment_expression" or operator(tree, parent) != "=" or right is None:
            return None
        found = _types(tree, right)
        if found is None:
            return None
        kinds |= found
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    return kind if ELEMENT_BYTES.get(kind[0], 16) < ELEMENT_BYTES[variable.type] else None


def _types(tree: Tree, value: Node) -> set[tuple[str, str | None]] | None:
    """Returns the element types of the loads in a value; empty for a zero, None for any other expression."""
    value = strip_parentheses(value)
    if value.type == "conditional_expression":
        parts = [value.child_by_field_name(side) for side in ("consequence", "alternative")]
        found = [None if part is None else _types(tree, part) for part in parts]
        return None if None in found else {kind for kinds in found if kinds is not None for kind in kinds}
    if _ZERO.fullmatch(plain(tree, value)):
        return set()
    if value.type == "cast_expression":
        inner = value.child_by_field_name("value")
        return None if inner is None else _types(tree, inner)
    if value.type == "call_expression":
        arguments = value.child_by_field_name("arguments")
        given = [] if arguments is None else arguments.named_children
        name = call_name(tree, value)
        if len(given) != 1 or not (name in _CONVERSIONS or name in {"float", "int"} or name.startswith("static_cast<")):
            return None
        inside = _types(tree, given[0])
        if name not in _CONVERSIONS or inside is None:
            return inside
        return {(kind, name) for kind, _ in inside} if {kind for kind, _ in inside} <= _CONVERSIONS[name] else None
    if value.type == "subscript_expression":
        variable = tree.variable(root_name(tree, value) or "")
        given_pointer = variable is not None and variable.pointers == 1 and variable.type in ELEMENT_BYTES
        return {(variable.type, None)} if variable is not None and given_pointer else None
    return None


def _edits(tree: Tree, variable: DeclaredVariable, kind: str, conversion: str | None) -> Iterator[Edit]:
    node = variable.declaration.child_by_field_name("type")
    if node is None or len(variable.declaration.children_by_field_name("declarator")) != 1:
        return
    yield tree.replace(node, kind)
    for element in element_accesses(tree):
        if root_name(tree, element) != variable.name:
            continue
        parent = element.parent
        if parent is not None and is_written(tree, element):
            right = parent.child_by_field_name("right")
            if right is not None:
                yield tree.replace(right, _unconverted(tree, right, kind))
        else:
            text = tree.text(element)
            yield tree.replace(element, f"{conversion}({text})" if conversion else f"({variable.type}){text}")


def _unconverted(tree: Tree, value: Node, kind: str) -> str:
    """Returns the text of a stored value without its conversion."""
    value = strip_parentheses(value)
    if value.type == "conditional_expression":
        condition, yes, no = (value.child_by_field_name(part) for part in ("condition", "consequence", "alternative"))
        if condition is not None and yes is not None and no is not None:
            return f"{tree.text(condition)} ? {_unconverted(tree, yes, kind)} : {_unconverted(tree, no, kind)}"
    if _ZERO.fullmatch(plain(tree, value)):
        return f"({kind})0" if "half" not in kind and "bfloat" not in kind else f"{kind}(0.0f)"
    if value.type == "cast_expression":
        inner = value.child_by_field_name("value")
        return tree.text(value) if inner is None else _unconverted(tree, inner, kind)
    if value.type == "call_expression":
        arguments = value.child_by_field_name("arguments")
        if arguments is not None and len(arguments.named_children) == 1:
            return _unconverted(tree, arguments.named_children[0], kind)
    return tree.text(value)
