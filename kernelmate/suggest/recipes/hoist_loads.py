"""Moves loads from a loop-invariant address before the loop.

Applies to elements of arrays that the kernel never writes, read in a loop with stores: the compiler loads them again in
every iteration, because the stores might change them. Improves time, and costs a register per value.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.restrict import only_read
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import (
    element_accesses,
    fresh,
    indent_of,
    index_of,
    is_written,
    only_pure_calls,
    plain,
    root_name,
)
from kernelmate.suggest.syntax_loops import enclosing_loops, invariant


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that moves every loop-invariant load before its outermost loop."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    named: dict[tuple[int, str], str] = {}
    lines: dict[int, list[str]] = {}
    for element, loop, kind in _loads(tree):
        key = (loop.id, plain(tree, element))
        if key not in named:
            named[key] = _name(tree, root_name(tree, element) or "value", set(named.values()))
            lines.setdefault(tree.span(loop)[0], []).append(f"const {kind} {named[key]} = {tree.text(element)};")
        edits.append(tree.replace(element, named[key]))
    for loop_start, declarations in lines.items():
        indent = _indent_at(tree, loop_start)
        edits.append((loop_start, loop_start, "".join(f"{line}\n{indent}" for line in declarations)))
    if edits:
        texts = ", ".join(dict.fromkeys(text for _, text in named))
        why = f"The address of {texts} is the same in every iteration of the loop, which stores to memory and so loads it again each time: it is loaded once before the loop."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (
    Claim(
        r", which stores to memory and so loads it again each time: it is loaded once before the loop",
        "load_requests",
        instead=": it is loaded once before the loop",
    ),
)
RECIPE = Recipe("hoist-loads", ("time", "global_bytes"), ("registers",), rewrites, claims=CLAIMS)


def _loads(tree: Tree) -> Iterator[tuple[Node, Node, str]]:
    """Yields each element to load earlier, the loop before which it is loaded, and its type."""
    parameters = {parameter.name: parameter for parameter in tree.kernel.signature.parameters if parameter.pointer}
    for element in element_accesses(tree):
        array = root_name(tree, element)
        index = index_of(element)
        if array not in parameters or index is None or is_written(tree, element):
            continue
        if not only_read(tree, array) or next(tree.walk("subscript_expression", "call_expression", under=index), None):
            continue
        best = None
        for loop in enclosing_loops(element):
            if not invariant(tree, index, loop) or _conditional(element, loop) or not only_pure_calls(tree, loop):
                break
            parent = loop.parent
            if parent is not None and parent.type == "compound_statement" and _stores(tree, loop):
                best = loop
        if best is not None:
            yield element, best, parameters[array].base


def _conditional(element: Node, loop: Node) -> bool:
    """Returns True if the element is read only under a condition: an unconditional read could be out of bounds."""
    node = element.parent
    while node is not None and node.id != loop.id:
        if node.type in {"if_statement", "conditional_expression", "switch_statement"}:
            return True
        if node.type == "binary_expression" and any(child.type in {"&&", "||"} for child in node.children):
            return True
        node = node.parent
    return False


def _stores(tree: Tree, loop: Node) -> bool:
    return any(is_written(tree, element) for element in element_accesses(tree, loop))


def _name(tree: Tree, array: str, taken: set[str]) -> str:
    name = fresh(tree, f"{array}_once")
    number = 2
    while name in taken:
        name = fresh(tree, f"{array}_once{number}")
        number += 1
    return name


def _indent_at(tree: Tree, position: int) -> str:
    node = next(n for n in tree.walk("for_statement", "while_statement", "do_statement") if tree.span(n)[0] == position)
    return indent_of(tree, node)
