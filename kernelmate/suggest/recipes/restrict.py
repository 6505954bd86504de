"""Adds `const` and `__restrict__` to pointers.

The compiler then keeps loaded values in registers and may load through the read-only data cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Kernel, Parameter
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, strip_parentheses

READING_CALLS = frozenset({"__ldg", "__ldcs", "__ldca", "__ldcg", "__ldlu", "__ldcv", "sizeof"})
"""Functions that only read through their pointer arguments."""


_BY_VALUE = re.compile(
    r"(?:__)?(?:f(?:max|min|abs|ma|mod)|exp(?:2|10|m1)?|log(?:2|10|1p)?|pow|r?sqrt|sin|cos|tan|tanh|erfc?|ceil|floor|round|rint|trunc|max|min"
    r"|abs)f?|__(?:f(?:div|add|mul|sub|ma|rcp|sqrt)\w*|int2\w+|float2\w+|half2\w+|half22\w+|bfloat16\w+|h\w+2?|shfl\w*|ldg)"
    r"|float|double|int|unsigned|size_t|__half|half|make_\w+|static_cast<[^&*]*>"
)


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate with every pointer restricted, and const if it is never written."""
    tree = read_tree(request.kernel)
    pointers = [parameter for parameter in request.kernel.signature.parameters if parameter.pointer]
    if tree is None or not pointers or _launched_with_one_array_twice(request.kernel):
        return
    directions = {argument.name: argument.direction for argument in request.contract.args}
    if any(directions.get(parameter.name) is None for parameter in pointers):
        return
    fixed_signature = _declared_elsewhere(request.kernel)
    constant = [
        parameter
        for parameter in pointers
        if not parameter.const
        and not fixed_signature
        and directions[parameter.name] == "in"
        and only_read(tree, parameter.name)
    ]
    restricted = [parameter for parameter in pointers if not parameter.restrict] if len(pointers) > 1 else []
    edits = [
        edit
        for parameter in pointers
        for edit in _edits(tree, parameter, parameter in constant, parameter in restricted)
    ]
    if edits:
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, _why(constant, restricted))


RECIPE = Recipe("restrict-pointers", ("time", "global_bytes"), ("registers",), rewrites)


def only_read(tree: Tree, name: str) -> bool:
    """Returns True if no code stores through this pointer or passes it on to code that could."""
    return all(_reads(tree, use) for use in tree.uses(name))


def _reads(tree: Tree, use: Node) -> bool:
    """Returns True if a use of a pointer reads an element, or is pointer arithmetic whose result is only read."""
    node = use
    while node.parent is not None:
        parent = node.parent
        if parent.type == "subscript_expression" and _is_field(parent, "argument", node):
            return _value_is_read(tree, parent)
        if parent.type == "pointer_expression" and tree.text(parent).startswith("*"):
            return _value_is_read(tree, parent)
        if parent.type == "parenthesized_expression" or parent.type == "binary_expression":
            node = parent
            continue
        if parent.type == "argument_list":
            call = parent.parent
            function = None if call is None else call.child_by_field_name("function")
            return function is not None and tree.text(function) in READING_CALLS
        if parent.type == "init_declarator" and _is_field(parent, "value", node):
            return _const_pointer(tree, parent)
        return False
    return False


def _const_pointer(tree: Tree, declarator: Node) -> bool:
    """Returns True if a local pointer initialised with it points to const, so that nothing is stored through it."""
    declared = next((v for v in tree.variables.values() if v is not None and v.node.id == declarator.id), None)
    return declared is not None and declared.pointers == 1 and "const" in declared.qualifiers


def _value_is_read(tree: Tree, element: Node) -> bool:
    """Returns True if an element is used as a value: not assigned, not incremented, its address not taken."""
    node = element
    while node.parent is not None and node.parent.type in {
        "parenthesized_expression",
        "field_expression",
        "subscript_expression",
    }:
        if node.parent.type == "subscript_expression" and not _is_field(node.parent, "argument", node):
            return True
        node = node.parent
    parent = node.parent
    if parent is None or parent.type == "update_expression":
        return False
    if parent.type == "assignment_expression" and _is_field(parent, "left", node):
        return False
    if parent.type == "init_declarator" and next(tree.walk("reference_declarator", under=parent), None) is not None:
        return False
    if parent.type == "argument_list":
        call = parent.parent
        function = None if call is None else call.child_by_field_name("function")
        return function is not None and _takes_values(tree.text(function))
    return not (parent.type == "pointer_expression" and tree.text(parent).startswith("&"))


def _takes_values(function: str) -> bool:
    """Returns True for a function of the CUDA headers that takes numbers by value.

    A user's function may take a reference.
    """
    return _BY_VALUE.fullmatch(function) is not None


def _is_field(parent: Node, field: str, child: Node) -> bool:
    held = parent.child_by_field_name(field)
    return held is not None and strip_parentheses(held).id in {child.id, strip_parentheses(child).id}


def _edits(tree: Tree, parameter: Parameter, const: bool, restrict: bool) -> Iterator[Edit]:
    variable = tree.variable(parameter.name)
    if variable is None or variable.pointers != 1 or variable.dims:
        return
    kind = variable.declaration.child_by_field_name("type")
    name = next((node for node in tree.walk("identifier", under=variable.node)), None)
    if kind is None or name is None:
        return
    if const:
        start = tree.span(kind)[0]
        yield start, start, "const "
    if restrict:
        start = tree.span(name)[0]
        yield start, start, "__restrict__ "


def _declared_elsewhere(kernel: Kernel) -> bool:
    """Returns True if the unit declares the kernel a second time, so that its parameter types must not change."""
    outside = kernel.unit.text[: kernel.start] + kernel.unit.text[kernel.end :]
    short = re.escape(kernel.name.rsplit("::", 1)[-1])
    return re.search(rf"__global__[^;{{}}]*\b{short}\s*\(", outside) is not None


def _launched_with_one_array_twice(kernel: Kernel) -> bool:
    """Returns True if a launch of the unit passes the same pointer for two parameters, which then alias."""
    pointers = [index for index, parameter in enumerate(kernel.signature.parameters) if parameter.pointer]
    for site in kernel.launches:
        arguments = _arguments(kernel.unit.text[site.start : site.end])
        passed = [arguments[index] for index in pointers if index < len(arguments)]
        roots = [match[0] for argument in passed if (match := re.search(r"[A-Za-z_][\w.>-]*", argument))]
        if len(set(roots)) < len(roots):
            return True
    return False


def _arguments(launch: str) -> list[str]:
    """Returns the texts of a launch's arguments."""
    parts = [""]
    depth = 0
    for character in launch[launch.rfind(">>>") + 3 :].strip().removeprefix("("):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _why(constant: list[Parameter], restricted: list[Parameter]) -> str:
    parts = []
    if restricted:
        names = ", ".join(parameter.name for parameter in restricted)
        parts.append(
            f"__restrict__ on {names}: no store can change what another pointer reads, so values stay in registers"
        )
    if constant:
        names = ", ".join(parameter.name for parameter in constant)
        parts.append(f"const on {names}, never written, so that they can be read through the read-only path")
    return "; ".join(parts) + "."
