"""Division of one thread's work among the lanes of a warp: iterations of its loops, or of loops inside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelmate.suggest.recipes.carried import CarriedValue, carried_values
from kernelmate.suggest.syntax import Node, Tree
from kernelmate.suggest.syntax_effects import element_accesses, index_of, is_written, names, plain, root_name, writes
from kernelmate.suggest.syntax_loops import CountingLoop, read_loop


@dataclass(frozen=True, slots=True)
class Shared:
    """A loop whose iterations lanes share.

    The values `joined` are combined after `around`, which is the loop or one around it.
    """

    loop: CountingLoop
    joined: tuple[CarriedValue, ...]
    around: Node


@dataclass(slots=True)
class Sharing:
    """Work of a thread that the lanes of a warp share: loops divided among lanes, and stores that one lane executes."""

    loops: list[Shared] = field(default_factory=list)
    stores: list[Node] = field(default_factory=list)


def share(tree: Tree, work: Sequence[Node], *, inside: bool) -> Sharing | None:
    """Returns how the lanes of a warp can share a thread's statements; None if they cannot.

    Args:
        tree: the kernel.
        work: a thread's statements without its early returns.
        inside: True to share inner loops if possible, else the outermost ones.
    """
    found = Sharing()
    if not all(_place(tree, statement, found, inside=inside) for statement in work) or not found.loops:
        return None
    return found if _same_lane_reads(tree, [one.loop for one in found.loops]) else None


def _place(tree: Tree, statement: Node, found: Sharing, *, inside: bool) -> bool:
    """Assigns one statement to lanes; False if they cannot execute it."""
    if statement.type not in {"for_statement", "while_statement"}:
        return _sort(tree, statement, found.stores)
    loop = read_loop(tree, statement)
    if loop is not None and inside:
        deeper = _deeper(tree, loop)
        if deeper is not None:
            found.loops += deeper.loops
            found.stores += deeper.stores
            return True
    joined = None if loop is None else _shared_loop(tree, loop)
    if loop is not None and joined is not None:
        found.loops.append(Shared(loop, joined, loop.node))
        return True
    deeper = None if loop is None else _deeper(tree, loop)
    if deeper is None:
        return False
    found.loops += deeper.loops
    found.stores += deeper.stores
    return True


def _deeper(tree: Tree, loop: CountingLoop) -> Sharing | None:
    """Returns the shared inner loops of a loop that all lanes execute.

    The result is None if there are none or the body prevents it.
    """
    if loop.node.type != "for_statement":
        return None
    inner = [read_loop(tree, node) for node in loop.body if node.type in {"for_statement", "while_statement"}]
    if not inner:
        return None
    outer = carried_values(tree, loop)
    if outer is not None and len(inner) == 1 and inner[0] is not None:
        whole = _joined_outside(tree, loop, inner[0], outer)
        if whole is not None:
            return whole
    if loop.block.type != "compound_statement":
        return None
    found = Sharing()
    fine = all(_place(tree, statement, found, inside=True) for statement in loop.body)
    return found if fine and found.loops else None


def _joined_outside(
    tree: Tree, loop: CountingLoop, inner: CountingLoop, outer: tuple[CarriedValue, ...]
) -> Sharing | None:
    """Returns the inner loop as shared, with its values combined once after the outer loop, not in each iteration."""
    if _shared_loop(tree, inner) is None or not outer:
        return None
    names_ = {one.name for one in outer}
    for place in writes(tree, loop.block):
        inside = inner.node.start_byte <= place.start_byte < inner.node.end_byte
        if not inside and (place.type != "identifier" or tree.text(place) in names_):
            return None
    if any(place.type != "identifier" for place in writes(tree, inner.block)):
        return None
    rest = [node for node in loop.body if node.id != inner.node.id]
    if any(node.type != "declaration" for node in rest) or not all(one.kind == "sum" for one in outer):
        return None
    return Sharing([Shared(inner, outer, loop.node)])


def _shared_loop(tree: Tree, loop: CountingLoop) -> tuple[CarriedValue, ...] | None:
    """Returns the values that the loop carries between iterations, if lanes can share its iterations; else None."""
    if loop.node.type != "for_statement" or loop.step != "1" or not loop.declared:
        return None
    if next(tree.walk("break_statement", "return_statement", "goto_statement", under=loop.block), None) is not None:
        return None
    joined = carried_values(tree, loop)
    if joined is None:
        return None
    for place in writes(tree, loop.block):
        if place.type == "identifier":
            continue
        index = index_of(place) if place.type == "subscript_expression" else None
        if index is None or loop.name not in names(tree, index):
            return None
    return joined


def _sort(tree: Tree, statement: Node, stores: list[Node]) -> bool:
    """Classifies a statement outside the shared loops: a store by one lane, or work of all lanes; False if neither."""
    if statement.type in {"declaration", "preproc_call", "continue_statement"}:
        return True
    if statement.type == "expression_statement":
        stored = [place for place in writes(tree, statement) if place.type != "identifier"]
        if stored:
            stores.append(statement)
        return all(place.type in {"subscript_expression", "identifier"} for place in stored)
    if (
        statement.type == "if_statement"
        and next(tree.walk("for_statement", "while_statement", under=statement), None) is None
    ):
        if any(place.type != "identifier" for place in writes(tree, statement)):
            if any(place.type == "identifier" for place in writes(tree, statement)):
                return False
            stores.append(statement)
        return True
    return False


def _same_lane_reads(tree: Tree, loops: list[CountingLoop]) -> bool:
    """Returns True if values stored in a loop are read again only by the lane that stored them."""
    stored: dict[str | None, set[str]] = {}
    for element in element_accesses(tree):
        if is_written(tree, element):
            stored.setdefault(root_name(tree, element), set()).add(_turn_of(tree, element, loops))
    starts = {tree.text(loop.start) for loop in loops}
    for element in element_accesses(tree):
        name = root_name(tree, element)
        if name in stored and not is_written(tree, element):
            turn = _turn_of(tree, element, loops)
            if "@" not in turn or stored[name] != {turn} or len(starts) > 1:
                return False
    return True


def _turn_of(tree: Tree, element: Node, loops: list[CountingLoop]) -> str:
    """Returns the element's index with `@` for the variable of the shared loop around it."""
    index = index_of(element)
    around = [loop for loop in loops if loop.node.start_byte <= element.start_byte < loop.node.end_byte]
    if index is None:
        return "?"
    return plain(tree, index) if not around else re.sub(rf"(?<![\w.]){around[0].name}\b", "@", plain(tree, index))
