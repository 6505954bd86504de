"""Corrects an index for another memory layout: interleaved channels instead of planar ones, or the reverse.

An index of two terms, `v * K + c` or `c * N + v`, is written in the other order if both lengths are known: from the
loop or guard that bounds a variable, or from the array's shape in the contract. All accesses of one array are changed
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import BOUNDS, Repair
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import element_accesses, index_of, operator, plain, root_name
from kernelmate.suggest.syntax_loops import loops

_TERM = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class StridedIndex:
    """An index `slow * stride + fast`; `fast` is a name or a number."""

    node: Node
    slow: str
    stride: str
    fast: str


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for each array, written ones first."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    lengths = _lengths(tree)
    pointers = [argument for argument in request.contract.args if argument.shape is not None]
    for argument in sorted(pointers, key=lambda one: one.direction == "in"):
        elements = [element for element in element_accesses(tree) if root_name(tree, element) == argument.name]
        places = [_place(tree, element) for element in elements]
        known = [place for place in places if place is not None]
        dims = [part for extent in argument.shape or () for part in re.findall(r"\w+", extent)]
        edits = _exchanged(tree, known, lengths, dims)
        if not known or len(known) != len(places) or edits is None:
            continue
        why = (
            f"`{argument.name}` is indexed as if its two indices were in the other order in memory; they are exchanged."
        )
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


REPAIR = Repair("index-order", ("correct",), (), rewrites, WRONG_OUTPUTS | BOUNDS)


def _lengths(tree: Tree) -> dict[str, set[str]]:
    """Returns the bounds of each variable, from loop heads and guards."""
    found: dict[str, set[str]] = {}
    for loop in loops(tree):
        found.setdefault(loop.name, set()).add(plain(tree, loop.bound))
    for node in tree.walk("binary_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and left.type == "identifier" and operator(tree, node) in {"<", ">="}:
            found.setdefault(tree.text(left), set()).add(plain(tree, right))
    return found


def _place(tree: Tree, element: Node) -> StridedIndex | None:
    """Reads `slow * stride + fast` with its terms in any order; a missing `fast` or `slow` is 0.

    The result is None for other indices.
    """
    index = index_of(element)
    if index is None:
        return None
    text = plain(tree, index).replace("(", "").replace(")", "")
    if re.fullmatch(r"\w+", text):
        return StridedIndex(index, "0", "", text)
    match = re.fullmatch(r"(\w+)\*(\w+)(?:\+(\w+))?", text)
    if match is not None:
        return StridedIndex(index, match[1], match[2], match[3] or "0")
    match = re.fullmatch(r"(\w+)\+(\w+)\*(\w+)", text)
    if match is not None:
        return StridedIndex(index, match[2], match[3], match[1])
    match = re.fullmatch(r"(\w+)\+(\w+)", text)
    return None if match is None else StridedIndex(index, "1", match[1], match[2])


def _exchanged(
    tree: Tree, places: list[StridedIndex], lengths: dict[str, set[str]], dims: list[str]
) -> list[Edit] | None:
    """Returns edits that write every index in the other order; None if a length is unknown."""
    several = [place for place in places if place.slow != "0"]
    if not several:
        return None
    edits = []
    for place in places:
        slow, fast, stride = place.slow, place.fast, place.stride
        if stride in lengths and slow not in lengths:
            slow, stride = stride, slow  # `3 * i` as well as `i * 3`
        if slow == "1" and fast not in lengths:
            stride, fast = fast, stride  # `i + n` as well as `n + i`
        if slow == "0":  # a lone name: the first of the others' numbers
            slow, stride = "0", several[0].stride
        length = _length(slow, fast, stride, places, lengths, dims)
        if length is None:
            return None
        text = " + ".join(
            part for part in (f"{fast} * {length}" if fast != "0" else "", slow if slow != "0" else "") if part
        )
        edits.append(tree.replace(place.node, text or "0"))
    return edits


def _length(
    slow: str, fast: str, stride: str, places: list[StridedIndex], lengths: dict[str, set[str]], dims: list[str]
) -> str | None:
    """Returns the number of elements along the slow index, which becomes the new stride; None if unknown."""
    if slow.isdigit():
        numbers = [int(one.slow) for one in places if one.slow.isdigit()]
        fitting = [dim for dim in dims if dim.isdigit() and int(dim) == max(numbers) + 1]
        return fitting[0] if fitting else str(max(numbers) + 1)
    known = sorted(lengths.get(slow, set()) - {stride}, key=lambda text: text not in dims)
    simple = [text for text in known if _TERM.fullmatch(text)]
    if simple:
        return simple[0]
    others = [dim for dim in dims if dim != stride]
    return others[0] if len(others) == 1 and fast != stride else None
