"""Loop-carried values that can be computed in parts: sums, products, bits, extremes and their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernelmate.suggest.syntax import Node, Tree, statement_expression, strip_parentheses
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    call_name,
    declared_names,
    names,
    operator,
    plain,
    root_name,
    statements,
    writes,
)
from kernelmate.suggest.syntax_loops import CountingLoop

SHUFFLED = frozenset({"float", "double", "int", "unsigned int", "unsigned", "long long", "unsigned long long", "size_t", "__half", "half", "T"})  # fmt: skip
"""Types that `__shfl_xor_sync` supports; `T` stands for a template's type."""

_EXTREMES = {"fmaxf": "max", "fmax": "max", "max": "max", "fminf": "min", "fmin": "min", "min": "min", "std::max": "max", "std::min": "min"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """One value that a loop carries.

    Attributes:
        kind: how two partial values are combined; `bits` by `operator`.
        function: the function that combines them, for an extreme written as a call.
        comparison: `>` or `<`, for an extreme written as an `if`, which keeps the first of equal values.
        places: names and types of the variables that are set together with the extreme, such as its position.
    """

    name: str
    type: str
    kind: Literal["sum", "extreme", "bits"]
    function: str | None = None
    comparison: str | None = None
    places: tuple[tuple[str, str], ...] = ()
    operator: str = "+="

    @property
    def neutral(self) -> str | None:
        """Initial value of all parts but one; None if all parts may start with the value before the loop."""
        return {"+=": "0", "^=": "0", "|=": "0", "*=": "1"}.get(self.operator) if self.kind != "extreme" else None

    def joined_with(self, offset: str, step: str) -> list[str]:
        """Returns statements that combine this lane's part with that of the lane `offset` away."""
        other = f"__shfl_xor_sync(0xffffffffu, {self.name}, {offset})"
        if self.kind != "extreme":
            return [f"{self.name} {self.operator} {other};"]
        if self.function is not None:
            return [f"{self.name} = {self.function}({self.name}, {other});"]
        theirs = f"their_{self.name}"
        lines = [f"const {self.type} {theirs} = {other};"]
        if not self.places:
            return [*lines, f"if ({theirs} {self.comparison} {self.name}) {self.name} = {theirs};"]
        sets = [f"{self.name} = {theirs};"]
        for name, kind in self.places:
            lines.append(f"const {kind} their_{name} = __shfl_xor_sync(0xffffffffu, {name}, {offset});")
            sets.append(f"{name} = their_{name};")
        first = self.places[0][0]
        tie = f"{theirs} == {self.name} && their_{first} < {first}"
        lines.append(f"if ({theirs} {self.comparison} {self.name} || ({tie})) {{")
        return [*lines, *(f"{step}{one}" for one in sets), "}"]


def carried_values(tree: Tree, loop: CountingLoop) -> tuple[CarriedValue, ...] | None:
    """Returns all values that the loop carries, in order of their first write; None if one of them has another form."""
    own = declared_names(tree, loop.block) | _declared_in(tree, loop)
    outer: dict[str, list[Node]] = {}
    for place in writes(tree, loop.block):
        if place.type == "identifier" and tree.text(place) not in own:
            outer.setdefault(tree.text(place), []).append(place)
        elif (place.type != "identifier" and place.type != "subscript_expression") or (
            place.type == "subscript_expression" and _is_local_array(tree, place)
        ):
            return None
    found: list[CarriedValue] = []
    remembered: set[str] = set()
    for name, places in outer.items():
        if name in remembered:
            continue
        one = _sum(tree, loop, name, places) or _bits(tree, loop, name, places) or _extreme(tree, loop, name, places)
        if one is None:
            continue
        remembered |= {name} | {place for place, _ in one.places}
        found.append(one)
    return tuple(found) if remembered == set(outer) else None


def _declared_in(tree: Tree, loop: CountingLoop) -> set[str]:
    """Returns all names that the loop declares; `declared_names` omits those that other loops declare too."""
    found = set()
    for declaration in tree.walk("declaration", under=loop.block):
        for declarator in declaration.children_by_field_name("declarator"):
            name = tree.name_node(declarator)
            if name is not None:
                found.add(tree.text(name))
    return found


def _is_local_array(tree: Tree, place: Node) -> bool:
    variable = tree.variable(root_name(tree, place) or "")
    return variable is None or (bool(variable.dims) and not variable.shared)


def _scalar_type(tree: Tree, name: str) -> str | None:
    variable = tree.variable(name)
    if variable is None or variable.dims or variable.pointers or variable.type not in SHUFFLED:
        return None
    return variable.type


def _uses_inside(tree: Tree, loop: CountingLoop, name: str) -> list[Node]:
    return [n for n in tree.walk("identifier", under=loop.node) if tree.text(n) == name]


def _sum(tree: Tree, loop: CountingLoop, name: str, places: list[Node]) -> CarriedValue | None:
    """Reads `name += e;` or `name = name + e;`; None if the loop uses the name anywhere else."""
    kind = _scalar_type(tree, name)
    if kind is None:
        return None
    met = 0
    for place in places:
        parent = place.parent
        if parent is None or parent.type != "assignment_expression":
            if parent is not None and parent.type == "update_expression" and operator(tree, parent) == "++":
                met += 1
                continue
            return None
        right = parent.child_by_field_name("right")
        if right is None or (parent.parent is not None and parent.parent.type != "expression_statement"):
            return None
        if operator(tree, parent) == "+=":
            met += 1
        elif operator(tree, parent) == "=" and _adds_to(tree, right, name):
            met += 2
        else:
            return None
    return CarriedValue(name, kind, "sum") if met == len(_uses_inside(tree, loop, name)) else None


def _bits(tree: Tree, loop: CountingLoop, name: str, places: list[Node]) -> CarriedValue | None:
    """Reads `name ^= e;`, or the same with `|`, `&` or `*`; None if the loop uses the name anywhere else."""
    kind = _scalar_type(tree, name)
    parents = [place.parent for place in places]
    if kind is None or any(one is None or one.type != "assignment_expression" for one in parents):
        return None
    signs = {operator(tree, one) for one in parents if one is not None}
    lone = all(
        one is not None and one.parent is not None and one.parent.type == "expression_statement" for one in parents
    )
    if len(signs) != 1 or not signs <= {"^=", "|=", "&=", "*="} or not lone:
        return None
    return (
        CarriedValue(name, kind, "bits", operator=signs.pop())
        if len(places) == len(_uses_inside(tree, loop, name))
        else None
    )


def _adds_to(tree: Tree, right: Node, name: str) -> bool:
    right = strip_parentheses(right)
    if right.type != "binary_expression" or operator(tree, right) != "+":
        return False
    left, other = right.child_by_field_name("left"), right.child_by_field_name("right")
    return left is not None and other is not None and name in {plain(tree, left), plain(tree, other)}


def _extreme(tree: Tree, loop: CountingLoop, name: str, places: list[Node]) -> CarriedValue | None:
    """Reads `name = fmaxf(name, e);` or `if (e > name) { name = e; place = i; }`."""
    kind = _scalar_type(tree, name)
    if kind is None or len(places) != 1 or places[0].parent is None or places[0].parent.type != "assignment_expression":
        return None
    assignment = places[0].parent
    right = assignment.child_by_field_name("right")
    if right is None or operator(tree, assignment) != "=":
        return None
    uses = len(_uses_inside(tree, loop, name))
    right = strip_parentheses(right)
    if right.type == "call_expression" and call_name(tree, right) in _EXTREMES:
        arguments = right.child_by_field_name("arguments")
        given = [] if arguments is None else [plain(tree, a) for a in arguments.named_children]
        if len(given) == 2 and given.count(name) == 1 and uses == 2:
            return CarriedValue(name, kind, "extreme", function=call_name(tree, right))
        return None
    return _compared(tree, name, kind, assignment, right, uses)


def _compared(tree: Tree, name: str, kind: str, assignment: Node, right: Node, uses: int) -> CarriedValue | None:
    node: Node | None = assignment
    while node is not None and node.type != "if_statement":
        if node.type in {"for_statement", "while_statement", "else_clause"}:
            return None
        node = node.parent
    if node is None or node.child_by_field_name("alternative") is not None:
        return None
    clause, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    condition = None if clause is None else clause.child_by_field_name("value")
    if condition is None or then is None or uses != 2:
        return None
    text, value = plain(tree, condition), plain(tree, right)
    comparison = {f"{value}>{name}": ">", f"{name}<{value}": ">", f"{value}<{name}": "<", f"{name}>{value}": "<"}.get(
        text
    )
    if comparison is None:
        return None
    places = []
    for statement in statements(then):
        expression = statement_expression(statement)
        if expression is None or expression.type != "assignment_expression" or operator(tree, expression) != "=":
            return None
        left, given = expression.child_by_field_name("left"), expression.child_by_field_name("right")
        if left is None or given is None or left.type != "identifier":
            return None
        if tree.text(left) == name:
            continue
        place_type = _scalar_type(tree, tree.text(left))
        if (
            place_type is None
            or not re.fullmatch(r"\w+", plain(tree, given))
            or tree.text(left) in names(tree, condition)
        ):
            return None
        places.append((tree.text(left), place_type))
    return CarriedValue(name, kind, "extreme", comparison=comparison, places=tuple(places))
