"""Pairs of consecutive loops over the same elements, which rewrites merge into one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kernelmate.suggest.recipes.carried import CarriedValue, carried_values
from kernelmate.suggest.syntax import Node, Tree, statement_expression, strip_parentheses
from kernelmate.suggest.syntax_effects import names, only_pure_calls, plain, root_name, statements, substitute, writes
from kernelmate.suggest.syntax_loops import CountingLoop, loops


@dataclass(frozen=True, slots=True)
class Pass:
    """A loop that only combines one value; `value` is the combined expression, with locals of the loop substituted."""

    loop: CountingLoop
    carried: CarriedValue
    value: str


def pairs(tree: Tree) -> Iterator[tuple[Pass, Pass]]:
    """Yields pairs of consecutive passes over the same range, between which nothing changes their elements."""
    found = [one for loop in loops(tree) if (one := _read(tree, loop)) is not None]
    for early, late in pairwise(found):
        parents = early.loop.node.parent, late.loop.node.parent
        siblings = parents[0] is not None and parents[1] is not None and parents[0].id == parents[1].id
        block = parents[0] is not None and parents[0].type == "compound_statement"
        same = early.loop.step == late.loop.step and plain(tree, early.loop.bound) == plain(tree, late.loop.bound)
        if siblings and block and same and _unchanged(tree, early, late):
            yield early, late


def _read(tree: Tree, loop: CountingLoop) -> Pass | None:
    joined = carried_values(tree, loop)
    if joined is None or len(joined) != 1 or joined[0].places or not only_pure_calls(tree, loop.block):
        return None
    if loop.node.type != "for_statement" or not loop.declared:
        return None
    if any(place.type != "identifier" for place in writes(tree, loop.block)) or not _straight(loop):
        return None
    value = _value(tree, loop, joined[0])
    return None if value is None else Pass(loop, joined[0], value)


def _straight(loop: CountingLoop) -> bool:
    """Returns True if the body consists of declarations and one combining statement."""
    return all(node.type == "declaration" for node in loop.body[:-1]) and bool(loop.body)


def _value(tree: Tree, loop: CountingLoop, carried: CarriedValue) -> str | None:
    """Returns the value that the last statement combines, in terms of the loop variable and names outside the loop."""
    last = loop.body[-1]
    node: Node | None
    if last.type == "if_statement":
        then = last.child_by_field_name("consequence")
        inside = [] if then is None else statements(then)
        expression = statement_expression(inside[0]) if len(inside) == 1 else None
        node = None if expression is None else expression.child_by_field_name("right")
    else:
        expression = statement_expression(last)
        node = None if expression is None else expression.child_by_field_name("right")
        if node is not None and carried.function is not None:
            arguments = strip_parentheses(node).child_by_field_name("arguments")
            others = (
                [] if arguments is None else [a for a in arguments.named_children if plain(tree, a) != carried.name]
            )
            node = others[0] if len(others) == 1 else None
        elif node is not None and carried.name in names(tree, node):
            return None
    return None if node is None else written_out(tree, node, loop)


def written_out(tree: Tree, node: Node, loop: CountingLoop) -> str:
    """Returns an expression's text with the variables declared in the loop's body substituted by their values."""
    given: dict[str, str] = {}
    for declaration in loop.body[:-1]:
        for declarator in declaration.children_by_field_name("declarator"):
            name, value = tree.name_node(declarator), declarator.child_by_field_name("value")
            if name is not None and value is not None:
                text = substitute(tree, value, given)
                given[tree.text(name)] = text if re.fullmatch(r"[\w.]+(?:\[[^\[\]]*\])?", text) else f"({text})"
    return substitute(tree, node, given)


def squeezed(text: str) -> str:
    """Returns a text without white space."""
    return "".join(text.split())


def with_variable(text: str, name: str, other: str) -> str:
    """Returns a text with one name replaced by another."""
    return re.sub(rf"(?<![\w.]){name}\b", other, text)


def _unchanged(tree: Tree, early: Pass, late: Pass) -> bool:
    """Returns True if no array that is read is written before the end of the second loop."""
    arrays = {root_name(tree, element) for element in tree.walk("subscript_expression", under=early.loop.block)}
    for place in writes(tree, tree.body):
        if place.start_byte < late.loop.node.end_byte and root_name(tree, place) in arrays:
            return False
    return True
