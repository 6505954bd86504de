"""Counting loops, guards and thread indices of a kernel, in the forms that rewrites recognise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.suggest.syntax import Node, Tree, integer_constants, statement_expression, strip_parentheses
from kernelmate.suggest.syntax_effects import (
    constant_after_start,
    declared_names,
    names,
    operator,
    plain,
    statements,
    written_names,
)


@dataclass(frozen=True, slots=True)
class CountingLoop:
    """`for (type name = start; name < bound; name += step) body`, or an equivalent while loop.

    Attributes:
        node: the whole statement.
        name: the loop variable, which the body does not change.
        declared: the variable's type if the loop declares it, else an empty text.
        start, bound: expressions; the variable stays below the bound.
        inclusive: True if the comparison is `<=`.
        step: text of the number that is added in each iteration; `1` for `++`.
        body: the repeated statements; for a while loop without the last one, which changes the variable.
        block: the statement that contains the body.
        opening: the variable's declaration before a while loop; the loop itself for a for loop.
    """

    node: Node
    name: str
    declared: str
    start: Node
    bound: Node
    inclusive: bool
    step: str
    body: tuple[Node, ...]
    block: Node
    opening: Node


def read_loop(tree: Tree, node: Node) -> CountingLoop | None:
    """Returns a statement as a counting loop; None if it is none."""
    if node.type == "for_statement":
        return _read_for(tree, node)
    return _read_while(tree, node) if node.type == "while_statement" else None


def _read_for(tree: Tree, node: Node) -> CountingLoop | None:
    opening, condition, update, body = (
        node.child_by_field_name(field) for field in ("initializer", "condition", "update", "body")
    )
    if opening is None or condition is None or update is None or body is None:
        return None
    started = _started(tree, opening)
    step = _step(tree, update)
    if started is None or step is None or step[0] != started[0]:
        return None
    name, start, declared = started
    bound = _bound(tree, condition, name)
    if bound is None or not _stays(tree, body, name, bound[0], step[1]):
        return None
    return CountingLoop(node, name, declared, start, bound[0], bound[1], step[1], tuple(statements(body)), body, node)


def _read_while(tree: Tree, node: Node) -> CountingLoop | None:
    clause, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    condition = None if clause is None else clause.child_by_field_name("value")
    opening = previous(node)
    if condition is None or body is None or opening is None or opening.type != "declaration":
        return None
    started = _started(tree, opening)
    inside = statements(body)
    update = statement_expression(inside[-1]) if len(inside) > 1 else None
    step = None if update is None else _step(tree, update)
    if started is None or step is None or step[0] != started[0]:
        return None
    name, start, declared = started
    bound = _bound(tree, condition, name)
    if bound is None or next(tree.walk("continue_statement", under=body), None) is not None:
        return None
    if any(name in written_names(tree, part) for part in inside[:-1]) or not _fixed(tree, body, bound[0], step[1]):
        return None
    after = node.next_named_sibling
    while after is not None:
        if name in names(tree, after):
            return None
        after = after.next_named_sibling
    return CountingLoop(node, name, declared, start, bound[0], bound[1], step[1], tuple(inside[:-1]), body, opening)


def _started(tree: Tree, opening: Node) -> tuple[str, Node, str] | None:
    """Returns the variable that a declaration or assignment initialises, its value, and its type if declared there."""
    if opening.type == "declaration":
        declarators = opening.children_by_field_name("declarator")
        kind = opening.child_by_field_name("type")
        if len(declarators) != 1 or declarators[0].type != "init_declarator" or kind is None:
            return None
        name, value = declarators[0].child_by_field_name("declarator"), declarators[0].child_by_field_name("value")
        if name is None or name.type != "identifier" or value is None:
            return None
        return tree.text(name), value, tree.text(kind)
    expression = opening if opening.type == "assignment_expression" else statement_expression(opening)
    if expression is None or expression.type != "assignment_expression" or operator(tree, expression) != "=":
        return None
    left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
    return (
        (tree.text(left), right, "") if left is not None and right is not None and left.type == "identifier" else None
    )


def _step(tree: Tree, update: Node) -> tuple[str, str] | None:
    """Returns the variable that is incremented, and the text of its increment; None for other updates."""
    text = plain(tree, update)
    if update.type == "update_expression":
        match = re.fullmatch(r"(?:\+\+(\w+)|(\w+)\+\+)", text)
        return (match[1] or match[2], "1") if match else None
    if update.type != "assignment_expression":
        return None
    left, right = update.child_by_field_name("left"), update.child_by_field_name("right")
    if left is None or right is None or left.type != "identifier":
        return None
    name = tree.text(left)
    if operator(tree, update) == "+=":
        return name, tree.text(right)
    right = strip_parentheses(right)
    if operator(tree, update) != "=" or right.type != "binary_expression" or operator(tree, right) != "+":
        return None
    one, other = right.child_by_field_name("left"), right.child_by_field_name("right")
    if one is None or other is None:
        return None
    if tree.text(one) == name:
        return name, tree.text(other)
    return (name, tree.text(one)) if tree.text(other) == name else None


def _bound(tree: Tree, condition: Node, name: str) -> tuple[Node, bool] | None:
    condition = strip_parentheses(condition)
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if condition.type != "binary_expression" or left is None or right is None:
        return None
    compared = operator(tree, condition)
    if tree.text(left) == name and compared in {"<", "<="}:
        return right, compared == "<="
    if tree.text(right) == name and compared in {">", ">="}:
        return left, compared == ">="
    return None


def _stays(tree: Tree, body: Node, name: str, bound: Node, step: str) -> bool:
    return name not in written_names(tree, body) and _fixed(tree, body, bound, step)


def _fixed(tree: Tree, body: Node, bound: Node, step: str) -> bool:
    """Returns True if the loop changes neither its bound nor its step."""
    changed = written_names(tree, body)
    words = names(tree, bound) | set(re.findall(r"[A-Za-z_]\w*", step))
    if words & changed or next(tree.walk("call_expression", under=bound), None) is not None:
        return False
    elements = list(tree.walk("subscript_expression", under=bound))
    return not elements or not words & written_names(tree, tree.body)


def loops(tree: Tree, under: Node | None = None) -> list[CountingLoop]:
    """Returns all counting loops, outer ones before inner ones."""
    found = (read_loop(tree, node) for node in tree.walk("for_statement", "while_statement", under=under))
    return [loop for loop in found if loop is not None]


def previous(node: Node) -> Node | None:
    """Returns the statement before this one, skipping comments and pragmas."""
    before = node.prev_named_sibling
    while before is not None and before.type in {"comment", "preproc_call"}:
        before = before.prev_named_sibling
    return before


def enclosing_loops(node: Node) -> list[Node]:
    """Returns the loop statements around a node, the innermost first."""
    found = []
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        if parent.type in {"for_statement", "while_statement", "do_statement"}:
            found.append(parent)
        parent = parent.parent
    return found


def invariant(tree: Tree, expression: Node, loop: Node) -> bool:
    """Returns True if an expression is loop-invariant: the loop declares or writes none of its names."""
    inside = written_names(tree, loop) | _declared_inside(tree, loop)
    return "?" not in inside and not names(tree, expression) & inside


def _declared_inside(tree: Tree, loop: Node) -> set[str]:
    """Returns names declared in a loop, including those that the kernel declares more than once."""
    found = declared_names(tree, loop)
    for declaration in tree.walk("declaration", under=loop):
        for declarator in declaration.children_by_field_name("declarator"):
            name = tree.name_node(declarator)
            if name is not None:
                found.add(tree.text(name))
    return found


# ------------------------------------------------------------------------------------------- one thread's number


@dataclass(frozen=True, slots=True)
class GuardedWork:
    """Work under a guard: `if (i >= n) return; rest` or `if (i < n) { rest }`.

    Attributes:
        node: the if statement.
        inside: the text of the condition under which the thread works.
        conjuncts: texts of the conditions that `inside` combines by `&&`.
        rest: the guarded statements.
        returns: number of consecutive early returns from `node` on; 0 for the second form.
    """

    node: Node
    inside: str
    conjuncts: tuple[str, ...]
    rest: tuple[Node, ...]
    returns: int


_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def guarded(tree: Tree, within: Sequence[Node]) -> GuardedWork | None:
    """Returns the guard over the end of a list of statements: over all after it, or all inside it; None if there is none."""
    for place, node in enumerate(within):
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
            continue
        clause, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        condition = None if clause is None else clause.child_by_field_name("value")
        if condition is None or then is None:
            return None
        if _returns(then):
            return _early(tree, within, place)
        if place == len(within) - 1:
            parts = _parts(tree, condition, "&&")
            return GuardedWork(node, " && ".join(parts), tuple(parts), tuple(statements(then)), 0)
        return None
    return None


def _early(tree: Tree, within: Sequence[Node], place: int) -> GuardedWork:
    """Returns the combined guard of consecutive early returns."""
    conjuncts: list[str] = []
    count = 0
    for node in within[place:]:
        then = node.child_by_field_name("consequence") if node.type == "if_statement" else None
        clause = node.child_by_field_name("condition")
        condition = None if clause is None else clause.child_by_field_name("value")
        if then is None or condition is None or not _returns(then) or node.child_by_field_name("alternative"):
            break
        conjuncts += [negated(tree, part) for part in _part_nodes(tree, condition, "||")]
        count += 1
    return GuardedWork(within[place], " && ".join(conjuncts), tuple(conjuncts), tuple(within[place + count :]), count)


def _returns(then: Node) -> bool:
    inside = statements(then)
    return len(inside) == 1 and inside[0].type == "return_statement" and not inside[0].named_children


def _part_nodes(tree: Tree, condition: Node, joined: str) -> list[Node]:
    condition = strip_parentheses(condition)
    if condition.type == "binary_expression" and operator(tree, condition) == joined:
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        if left is not None and right is not None:
            return _part_nodes(tree, left, joined) + _part_nodes(tree, right, joined)
    return [condition]


def _parts(tree: Tree, condition: Node, joined: str) -> list[str]:
    return [_operand(tree, part) for part in _part_nodes(tree, condition, joined)]


def _operand(tree: Tree, part: Node) -> str:
    """Returns the text of a condition as an operand of `&&`, in parentheses if needed."""
    lone = part.type != "binary_expression" or operator(tree, part) in _NEGATED
    return tree.text(part) if lone and part.type != "conditional_expression" else f"({tree.text(part)})"


def negated(tree: Tree, condition: Node) -> str:
    """Returns the negation of a condition; comparison operators are reversed."""
    condition = strip_parentheses(condition)
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    sign = operator(tree, condition) if condition.type == "binary_expression" else ""
    if left is not None and right is not None and sign in _NEGATED:
        return f"{tree.text(left)} {_NEGATED[sign]} {tree.text(right)}"
    return f"!({tree.text(condition)})"


_GLOBAL_INDEX = (
    r"(?:\((?:int|unsigned|unsignedint|size_t|longlong|int64_t|long)\))?blockIdx\.{a}\*(?:blockDim\.{a}|{w})\+threadIdx\.{a}"
    r"|blockDim\.{a}\*blockIdx\.{a}\+threadIdx\.{a}|threadIdx\.{a}\+blockIdx\.{a}\*(?:blockDim\.{a}|{w})|threadIdx\.{a}\+blockDim\.{a}\*blockIdx\.{a}"
)


def is_global_index(tree: Tree, node: Node, axis: str = "x", width: int | None = None) -> bool:
    """Returns True if the expression is the thread's index along an axis of the grid.

    `width` is the block's length along the axis, which may be a literal in the expression.
    """
    text = plain(tree, node).replace(" ", "")
    words = [str(width)] if width is not None else []
    if width is not None:
        words += [name for name, c in integer_constants(tree.kernel.unit.text).items() if c.value == width]
    pattern = _GLOBAL_INDEX.format(a=axis, w="(?:" + "|".join(words or ["(?!)"]) + ")")
    return re.fullmatch(pattern, text) is not None


def global_index(tree: Tree, axis: str = "x", width: int | None = None) -> str | None:
    """Returns the constant variable with the thread's index along an axis of the grid; None if there is none."""
    for name, variable in tree.variables.items():
        if variable is None or variable.value is None or not is_global_index(tree, variable.value, axis, width):
            continue
        if constant_after_start(tree, name):
            return name
    return None


def is_grid_stride(tree: Tree, step: str, axis: str = "x") -> bool:
    """Returns True if the text is the number of threads of the whole grid, or a variable with that value."""
    wanted = {f"gridDim.{axis}*blockDim.{axis}", f"blockDim.{axis}*gridDim.{axis}"}
    text = re.sub(r"\s+", "", step).strip("()")
    if text in wanted:
        return True
    variable = tree.variable(text)
    if variable is None or variable.value is None or not constant_after_start(tree, text):
        return False
    return plain(tree, variable.value) in wanted
