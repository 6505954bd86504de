"""Removes a barrier that orders no accesses of different threads, as far as the text shows.

Applies to `__syncthreads()` if the code between the previous barrier and this one and the code between this one and the
next, across loop iterations too, access no common array that either writes. The verdict searches for races in several
schedules and sizes. Because the absence of findings proves nothing, such a candidate is offered for review and never
accepted automatically. Improves time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, is_barrier, read_tree
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    BARRIERS,
    calls,
    element_accesses,
    is_written,
    only_pure_calls,
    root_name,
    statements,
)

CAUTION = (
    "a barrier was removed: tests without a race do not prove that there is none, so review it before you accept it"
)
"""Reason that such a candidate is never accepted automatically."""


@dataclass(slots=True)
class Between:
    """Arrays that the code between two barriers reads and writes."""

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def conflicts(self, other: Between) -> bool:
        """Returns True if one side writes what the other reads or writes."""
        return bool(self.written & (other.read | other.written) or other.written & self.read)


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for each barrier that orders no accesses."""
    tree = read_tree(request.kernel)
    if tree is None or not only_pure_calls(tree, tree.body, frozenset(BARRIERS)) or _hidden(tree):
        return
    steps: list[Node | Between] = [Between()]
    if not _walk(tree, tree.body, steps):
        return
    steps.append(Between())
    for barrier in dict.fromkeys(step for step in steps if not isinstance(step, Between)):
        if not _separates(steps, barrier):
            kernel = apply_edits(request.kernel, [_without(tree, barrier)])
            line = tree.kernel.unit.text.count("\n", 0, tree.span(barrier)[0]) + 1
            why = f"The barrier in line {line} separates no store from a load or store of the same array, as far as can be read; {CAUTION}."  # fmt: skip
            yield Rewrite(kernel, request.contract, why, CAUTION)


RECIPE = Recipe("remove-barrier", ("time",), (), rewrites)


def _hidden(tree: Tree) -> bool:
    """Returns True if accesses to shared memory may be hidden: there are pointers to it, or jumps and early returns."""
    if next(tree.walk("return_statement", "goto_statement", "break_statement", "continue_statement"), None) is not None:
        return True
    return any(v is not None and v.pointers and v.node.parent is not None and v.declaration.type == "declaration" for v in tree.variables.values())  # fmt: skip


def _walk(tree: Tree, block: Node, steps: list[Node | Between]) -> bool:
    """Records barriers and the accesses between them in order of execution, each loop twice; False if it cannot."""
    for statement in statements(block):
        if is_barrier(tree, statement):
            steps += [statement, Between()]
            continue
        if not calls(tree, statement) & BARRIERS:
            _add(tree, statement, steps)
            continue
        body = statement.child_by_field_name("body")
        if statement.type not in {"for_statement", "while_statement", "compound_statement"}:
            return False
        if statement.type == "compound_statement":
            if not _walk(tree, statement, steps):
                return False
            continue
        if body is None or not (_walk(tree, body, steps) and _walk(tree, body, steps)):
            return False
    return True


def _add(tree: Tree, statement: Node, steps: list[Node | Between]) -> None:
    between = steps[-1]
    assert isinstance(between, Between)
    for element in element_accesses(tree, statement):
        name = root_name(tree, element) or "?"
        (between.written if is_written(tree, element) else between.read).add(name)
        parent = element.parent
        if is_written(tree, element) and parent is not None and parent.type != "assignment_expression":
            between.read.add(name)


def _separates(steps: list[Node | Between], barrier: Node) -> bool:
    """Returns True if at any occurrence of the barrier an access before it conflicts with one after it."""
    for place, step in enumerate(steps):
        if isinstance(step, Between) or step.id != barrier.id:
            continue
        before, after = steps[place - 1], steps[place + 1]
        if isinstance(before, Between) and isinstance(after, Between) and before.conflicts(after):
            return True
    return False


def _without(tree: Tree, barrier: Node) -> Edit:
    text = tree.kernel.unit.text
    start, end = tree.span(barrier)
    line = text.rfind("\n", 0, start) + 1
    rest = text[end : text.find("\n", end)]
    if not text[line:start].strip() and (not rest.strip() or rest.strip().startswith("//")):
        return line, text.find("\n", end) + 1, ""
    return start, end, ""
