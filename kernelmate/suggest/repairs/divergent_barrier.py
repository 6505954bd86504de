"""Moves a barrier out of a branch, so that every thread of the block reaches it.

The branch is split at the barrier: the part before it, the barrier for all threads, and the part after it, under the
same condition. An `else` part is split as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.records import WRONG_OUTPUTS, FindingCode
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import RACES, UNINITIALISED, Repair, line_of
from kernelmate.suggest.syntax import Node, Tree, is_barrier, read_tree
from kernelmate.suggest.syntax_effects import (
    calls,
    indent_of,
    indent_step,
    names,
    only_pure_calls,
    statements,
    written_names,
)

BARRIER = "__syncthreads();"


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for each branch with a barrier, split at it, then one that moves a barrier out of a loop."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    for branch in tree.walk("if_statement"):
        text = _split(tree, branch)
        if text is not None:
            line = tree.kernel.unit.locate(line_of(tree, branch), None)[0]
            why = f"Not every thread takes the branch in line {line}, in which a barrier waits for all of them: the barrier is moved out of the branch."  # fmt: skip
            yield Rewrite(apply_edits(request.kernel, [tree.replace(branch, text)]), request.contract, why)
    for loop in tree.walk("for_statement", "while_statement"):
        body = loop.child_by_field_name("body")
        barriers = [] if body is None else [node for node in statements(body) if is_barrier(tree, node)]
        if barriers:
            end = tree.span(loop)[1]
            edits = [tree.replace(node, "") for node in barriers] + [(end, end, f"\n{indent_of(tree, loop)}{BARRIER}")]
            line = tree.kernel.unit.locate(line_of(tree, loop), None)[0]
            why = f"Threads run different numbers of iterations of the loop in line {line}: its barrier is moved behind it."
            yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


# Threads that do not take the branch may end while the others wait; the results then seem right except for values that
# were read too early.
_CODES = (
    frozenset({FindingCode.DIVERGENT_BARRIER, FindingCode.HANG, FindingCode.TIME_LIMIT})
    | RACES
    | UNINITIALISED
    | WRONG_OUTPUTS
)

REPAIR = Repair("divergent-barrier", ("correct",), (), rewrites, _CODES)


def _split(tree: Tree, branch: Node) -> str | None:
    """Returns the branch split at its barriers; None if the condition may change after the first part."""
    clause, then = branch.child_by_field_name("condition"), branch.child_by_field_name("consequence")
    other = branch.child_by_field_name("alternative")
    otherwise = (
        None if other is None else next((child for child in other.named_children if child.type != "comment"), None)
    )
    if clause is None or then is None or (otherwise is not None and otherwise.type == "if_statement"):
        return None
    yes, no = _parts(tree, then), [] if otherwise is None else _parts(tree, otherwise)
    most = max(len(yes), len(no))
    if most < 2 or names(tree, clause) & written_names(tree, branch) or not only_pure_calls(tree, clause):
        return None
    if any(calls(tree, node) & {"__syncthreads"} for part in (*yes, *no) for node in part):
        return None
    indent = indent_of(tree, branch)
    lines: list[str] = []
    for place in range(most):
        lines += [f"{indent}{BARRIER}"] if place else []
        lines += _branch(tree, tree.text(clause), _at(yes, place), _at(no, place), indent)
    return "\n".join(lines).removeprefix(indent)


def _parts(tree: Tree, block: Node) -> list[list[Node]]:
    """Returns the statements of a block, grouped between its barriers."""
    parts: list[list[Node]] = [[]]
    for node in statements(block):
        if is_barrier(tree, node):
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


def _at(parts: Sequence[list[Node]], place: int) -> list[Node]:
    return parts[place] if place < len(parts) else []


def _branch(tree: Tree, condition: str, yes: list[Node], no: list[Node], indent: str) -> list[str]:
    """Returns one part as an if statement; no lines if both sides are empty."""
    step = indent + indent_step(tree)
    if not yes and not no:
        return []
    if not yes:
        condition, yes, no = f"(!{condition})", no, []
    lines = [f"{indent}if {condition} {{", *(step + tree.text(node) for node in yes)]
    if no:
        lines += [f"{indent}}} else {{", *(step + tree.text(node) for node in no)]
    return [*lines, f"{indent}}}"]
