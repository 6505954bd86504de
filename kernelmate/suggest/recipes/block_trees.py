"""Tree reductions in shared memory: loops that halve the number of active threads, and the arrays that they reduce."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.records import Contract
from kernelmate.source import launch_shape
from kernelmate.suggest.recipes.restructure import WARPS, ZERO
from kernelmate.suggest.syntax import (
    DeclaredVariable,
    Node,
    Tree,
    integer_constants,
    integer_value,
    is_barrier,
    statement_expression,
)
from kernelmate.suggest.syntax_loops import previous

EXTREMES = frozenset({"fmaxf", "fminf", "fmax", "fmin", "max", "min"})


@dataclass(frozen=True, slots=True)
class TreeStep:
    """An array that a tree loop reduces: by addition (`function` is None), or by a function such as `fmaxf`."""

    array: str
    function: str | None


@dataclass(frozen=True, slots=True)
class Reduction:
    """A tree reduction: the statements from the first store to the loop, and the values stored into each array."""

    first: Node
    last: Node
    thread: str
    steps: tuple[TreeStep, ...]
    values: tuple[Node, ...]


def block_threads(contract: Contract, least: int = 64) -> int | None:
    """Returns the number of threads of a block if it is one-dimensional, of whole warps, and equal at every size.

    The result is None otherwise.
    """
    shapes = [launch_shape(contract, size) for size in contract.sizes]
    lengths = {shape.block[0] for shape in shapes}
    if len(lengths) != 1 or any(shape.block[1:] != (1, 1) for shape in shapes):
        return None
    threads = lengths.pop()
    return threads if threads % 32 == 0 and threads >= least else None


def tree_reduction(tree: Tree, loop: Node, threads: int) -> Reduction | None:
    """Returns the reduction that ends with this `for` statement, with the stores before it.

    The result is None if it is not a reduction.
    """
    offset = _offset(tree, loop, threads)
    body = loop.child_by_field_name("body")
    if offset is None or body is None or body.type != "compound_statement":
        return None
    parts = [child for child in body.named_children if child.type != "comment"]
    if len(parts) != 2 or is_barrier(tree, parts[0]) == is_barrier(tree, parts[1]):
        return None
    guarded = parts[1] if is_barrier(tree, parts[0]) else parts[0]
    thread = _guard(tree, guarded, offset)
    if thread is None:
        return None
    steps = [_step(tree, statement, thread, offset) for statement in _guarded_statements(guarded)]
    if not steps or None in steps:
        return None
    known = tuple(step for step in steps if step is not None)
    stores = _stores(tree, loop, thread, [step.array for step in known], barrier_inside=is_barrier(tree, parts[0]))
    if stores is None or len({step.array for step in known}) != len(known):
        return None
    first, values = stores
    return Reduction(first, loop, thread, known, values)


def _offset(tree: Tree, loop: Node, threads: int) -> str | None:
    """Returns the name of a loop variable that starts at half the block and is halved down to 1.

    The result is None for other loops.
    """
    start, condition, update = (loop.child_by_field_name(name) for name in ("initializer", "condition", "update"))
    if start is None or condition is None or update is None or start.type != "declaration":
        return None
    declarators = start.children_by_field_name("declarator")
    if len(declarators) != 1 or declarators[0].type != "init_declarator":
        return None
    name_node = declarators[0].child_by_field_name("declarator")
    value = declarators[0].child_by_field_name("value")
    if name_node is None or value is None:
        return None
    name = tree.text(name_node)
    ends = {f"{name}>0", f"{name}>=1", f"0<{name}", f"{name}!=0", name, f"{name}>0u"}
    halves = {f"{name}>>=1", f"{name}/=2", f"{name}={name}/2", f"{name}={name}>>1"}
    good = _plain(tree, condition) in ends and _plain(tree, update) in halves and _is_half(tree, value, threads)
    return name if good else None


def _is_half(tree: Tree, node: Node, threads: int) -> bool:
    text = (
        _plain(tree, node).replace("u", "") if not re.search(r"[A-Za-z]{2}", _plain(tree, node)) else _plain(tree, node)
    )
    if text in {"blockDim.x/2", "blockDim.x>>1"}:
        return True
    halved = re.fullmatch(r"(\w+)(?:/2|>>1)", text)
    constants = integer_constants(tree.kernel.unit.text)
    if halved is not None:
        return _block_length(tree, halved[1]) or integer_value(halved[1], constants) == threads
    return integer_value(text, constants) == threads // 2


def _block_length(tree: Tree, name: str) -> bool:
    variable = tree.variable(name)
    return variable is not None and variable.value is not None and _plain(tree, variable.value) == "blockDim.x"


def _plain(tree: Tree, node: Node) -> str:
    text = re.sub(r"\s+", "", tree.text(node))
    while text.startswith("(") and text.endswith(")") and "(" not in text[1:-1]:
        text = text[1:-1]
    return text


def _guard(tree: Tree, statement: Node, offset: str) -> str | None:
    """Returns the text of the thread's index in the guard `if (t < offset)`; None for any other statement."""
    if statement.type != "if_statement" or statement.child_by_field_name("alternative") is not None:
        return None
    condition = statement.child_by_field_name("condition")
    match = (
        None if condition is None else re.fullmatch(rf"([\w.]+)<{offset}|{offset}>([\w.]+)", _plain(tree, condition))
    )
    thread = (match[1] or match[2]) if match else None
    return thread if thread is not None and _is_thread(tree, thread) else None


def _is_thread(tree: Tree, text: str) -> bool:
    """Returns True if the expression is threadIdx.x, or a variable that always equals it."""
    if text == "threadIdx.x":
        return True
    variable = tree.variable(text)
    if variable is None or variable.value is None or _plain(tree, variable.value) != "threadIdx.x":
        return False
    return not any(
        use.parent is not None
        and (
            use.parent.type == "update_expression"
            or (use.parent.type == "assignment_expression" and use.parent.child_by_field_name("left") == use)
        )
        for use in tree.uses(text)
    )


def _guarded_statements(guarded: Node) -> list[Node]:
    consequence = guarded.child_by_field_name("consequence")
    if consequence is None:
        return []
    if consequence.type == "compound_statement":
        return [child for child in consequence.named_children if child.type != "comment"]
    return [consequence]


def _step(tree: Tree, statement: Node, thread: str, offset: str) -> TreeStep | None:
    """Reads a step of a tree: `a[t] += a[t + o]`, `a[t] = a[t] + a[t + o]`, or `a[t] = fmaxf(a[t], a[t + o])`."""
    expression = statement_expression(statement)
    text = "" if expression is None else _plain(tree, expression)
    t, o = re.escape(thread), re.escape(offset)
    far = rf"\1\[(?:{t}\+{o}|{o}\+{t})\]"
    near = rf"\1\[{t}\]"
    for pattern in (rf"(\w+)\[{t}\]\+={far}", rf"(\w+)\[{t}\]={near}\+{far}", rf"(\w+)\[{t}\]={far}\+{near}"):
        if match := re.fullmatch(pattern, text):
            return TreeStep(match[1], None)
    match = re.fullmatch(rf"(\w+)\[{t}\]=(\w+)\((?:{near},{far}|{far},{near})\)", text)
    return TreeStep(match[1], match[2]) if match and match[2] in EXTREMES else None


def _stores(
    tree: Tree, loop: Node, thread: str, arrays: Sequence[str], *, barrier_inside: bool
) -> tuple[Node, tuple[Node, ...]] | None:
    """Returns the first of the stores `a[t] = value;` just before the loop, and their values in the order of `arrays`."""
    before = previous(loop)
    if is_barrier(tree, before):
        before = None if before is None else previous(before)
    elif not barrier_inside:
        return None
    values: dict[str, Node] = {}
    first = None
    while before is not None and len(values) < len(arrays):
        expression = statement_expression(before) if before.type == "expression_statement" else None
        if expression is None or expression.type != "assignment_expression":
            return None
        left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
        operator = expression.child_by_field_name("operator")
        match = None if left is None else re.fullmatch(rf"(\w+)\[{re.escape(thread)}\]", _plain(tree, left))
        if match is None or match[1] not in arrays or right is None or operator is None or tree.text(operator) != "=":
            return None
        if match[1] in values or any(tree.text(node) in arrays for node in tree.walk("identifier", under=right)):
            return None
        values[match[1]] = right
        first = before
        before = previous(before)
    if first is None or set(values) != set(arrays):
        return None
    return first, tuple(values[array] for array in arrays)


def reduced_arrays(tree: Tree, found: Sequence[Reduction], threads: int) -> dict[str, DeclaredVariable]:
    """Returns the arrays that can shrink: they are used only by reductions and by reads of element 0."""
    inside = [(reduction.first.start_byte, reduction.last.end_byte) for reduction in found]
    constants = integer_constants(tree.kernel.unit.text)
    dynamic = [variable for variable in tree.shared_arrays() if "extern" in variable.qualifiers]
    good: dict[str, DeclaredVariable] = {}
    for name in {step.array for reduction in found for step in reduction.steps}:
        variable = tree.variable(name)
        if variable is None or not variable.shared or len(variable.dims) != 1 or variable.type not in ZERO:
            continue
        if "volatile" in variable.qualifiers or ("extern" in variable.qualifiers and len(dynamic) > 1):
            continue
        size = integer_value(variable.dims[0], constants) if variable.dims[0] else threads
        others = [use for use in tree.uses(name) if not any(low <= use.start_byte < high for low, high in inside)]
        if size is not None and size > WARPS and all(_is_result(tree, use) for use in others):
            good[name] = variable
    return good


def _is_result(tree: Tree, use: Node) -> bool:
    """Returns True if a use reads `a[0]`."""
    element = use.parent
    if element is None or element.type != "subscript_expression" or not _plain(tree, element).endswith("[0]"):
        return False
    parent = element.parent
    if parent is None or parent.type in {
        "update_expression",
        "pointer_expression",
        "subscript_expression",
        "field_expression",
    }:
        return False
    left = parent.child_by_field_name("left") if parent.type == "assignment_expression" else None
    return left is None or left.id != element.id
