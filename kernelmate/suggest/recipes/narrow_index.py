"""Indices of 64 bits become such of 32, where every array of the contract has fewer elements than those can count.

Applies to local variables, casts and arguments of `long long`, `size_t` and their like that only index, count or bound; an
address that is cast to such a type stays one, since 32 bits hold none. A 64-bit index takes two registers and several instructions for each product. It is for registers and time; larger problems than
the contract lists would overflow, which is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from kernelmate.errors import KernelmateError
from kernelmate.source import apply_edits, argument_shapes, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import fresh, indent_of, indent_step, statements

WIDE = frozenset({"long long", "unsigned long long", "size_t", "int64_t", "uint64_t", "long", "unsigned long", "ptrdiff_t", "long long int", "long int"})  # fmt: skip
MOST = 1 << 30
"""Elements and threads up to which sums of two indices stay within 32 bits."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: every such variable, argument and cast."""
    tree = read_tree(request.kernel)
    largest = _largest(request)
    if tree is None or largest is None or largest > MOST:
        return
    wide = {
        v.name for v in tree.variables.values() if v is not None and v.type in WIDE and not v.pointers and not v.dims
    }
    narrow = _only_counting(tree, wide)
    edits = [*_of_variables(tree, narrow), *_of_casts(tree)]
    if edits:
        named = f" ({', '.join(sorted(narrow))})" if narrow else ""
        why = f"No array of the contract has more than {largest:,} elements, so 32 bits hold every index{named}; 64 take two registers each. Larger problems than are listed would overflow."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("narrow-index", ("registers", "time", "occupancy"), (), rewrites)


def _largest(request: SuggestRequest) -> int | None:
    """The most elements of an array, and threads of a launch, over all listed sizes."""
    contract = request.contract
    try:
        counts = [math.prod(shape) for size in contract.sizes for shape in argument_shapes(contract, size).values()]
        for size in contract.sizes:
            shape = launch_shape(contract, size)
            counts += [shape.blocks * shape.threads, *size.values()]
    except KernelmateError:
        return None
    return max(counts, default=0)


def _only_counting(tree: Tree, names: set[str]) -> set[str]:
    """Those whose every use is in an index, a comparison, the head of a loop, or what another such one is given."""
    left = {name for name in names if tree.uses(name) and not _given_address(tree, name)}
    while True:
        bad = {name for name in left if not all(_counts(tree, use, left) for use in tree.uses(name))}
        if not bad:
            return left
        left -= bad


def _counts(tree: Tree, use: Node, among: set[str]) -> bool:
    node = use
    while node.parent is not None:
        parent = node.parent
        if parent.type in {"subscript_argument_list", "condition_clause"}:
            return True
        if parent.type == "subscript_expression":
            return parent.child_by_field_name("argument") != node
        if parent.type == "for_statement":
            return True
        if parent.type == "init_declarator":
            name = tree.name_node(parent)
            variable = None if name is None else tree.variable(tree.text(name))
            return variable is not None and (variable.name in among or bool(variable.pointers) or variable.type in {"int", "unsigned", "unsigned int"})  # fmt: skip
        if parent.type == "assignment_expression":
            target = parent.child_by_field_name("left")
            return target is not None and tree.text(target) in among
        if parent.type == "binary_expression":
            sign = parent.child_by_field_name("operator")
            if sign is not None and tree.text(sign) in {"<", ">", "<=", ">=", "==", "!="}:
                return True
        elif parent.type == "update_expression":
            return tree.text(node) in among
        elif parent.type not in {
            "parenthesized_expression",
            "conditional_expression",
            "cast_expression",
            "unary_expression",
        }:
            return statement_expression(parent) is not None and parent.type == "expression_statement"
        node = parent
    return False


def _given_address(tree: Tree, name: str) -> bool:
    """Whether a variable is ever given an address as a number."""
    given = [variable.value for variable in (tree.variable(name),) if variable is not None]
    for use in tree.uses(name):
        parent = use.parent
        if parent is not None and parent.type == "assignment_expression" and parent.child_by_field_name("left") == use:
            given.append(parent.child_by_field_name("right"))
    casts = (cast for value in given if value is not None for cast in tree.walk("cast_expression", under=value))
    return any(_is_address(tree, cast) for cast in casts)


def _is_address(tree: Tree, cast: Node) -> bool:
    """Whether what is cast is a pointer, an array, or reckoned from one: not an element of it."""
    operand = cast.child_by_field_name("value")
    if operand is None:
        return False
    taken = (tree.text(node).startswith("&") for node in tree.walk("pointer_expression", under=operand))
    return any(taken) or any(_names_address(tree, node) for node in tree.walk("identifier", under=operand))


def _names_address(tree: Tree, node: Node) -> bool:
    """Whether a name stands for a pointer or an array there, with none of its elements taken."""
    variable = tree.variable(tree.text(node))
    levels = 0 if variable is None else variable.pointers + len(variable.dims)
    at = node
    while levels and at.parent is not None:
        parent = at.parent
        element = parent.type == "subscript_expression" and parent.child_by_field_name("argument") == at
        if not element and parent.type not in {"pointer_expression", "parenthesized_expression"}:
            break
        levels -= parent.type != "parenthesized_expression"
        at = parent
    return levels > 0


def _of_variables(tree: Tree, names: set[str]) -> Iterator[Edit]:
    """Declarations with another type; arguments through a copy at the kernel's beginning."""
    copies: list[str] = []
    seen: set[int] = set()
    for name in sorted(names):
        variable = tree.variable(name)
        if variable is None:
            continue
        kind = variable.declaration.child_by_field_name("type")
        if variable.declaration.type == "parameter_declaration":
            copy = fresh(tree, f"{name}_32")
            copies.append(f"const int {copy} = (int){name};")
            for use in tree.uses(name):
                yield tree.replace(use, copy)
        elif kind is not None and kind.id not in seen:
            declared = {
                tree.text(n)
                for d in variable.declaration.children_by_field_name("declarator")
                if (n := tree.name_node(d))
            }
            if declared <= names:
                seen.add(kind.id)
                yield tree.replace(kind, "int")
    if copies:
        first = statements(tree.body)[0]
        indent = indent_of(tree, first) or indent_step(tree)
        start = tree.span(tree.body)[0] + 1
        yield start, start, "".join(f"\n{indent}{copy}" for copy in copies)


def _of_casts(tree: Tree) -> Iterator[Edit]:
    """Casts inside indices."""
    for cast in tree.walk("cast_expression"):
        kind = cast.child_by_field_name("type")
        if kind is None or re.sub(r"\s+", " ", tree.text(kind)) not in WIDE:
            continue
        if _counts(tree, cast, set(tree.variables)) and not _is_address(tree, cast):
            yield tree.replace(kind, "int")
