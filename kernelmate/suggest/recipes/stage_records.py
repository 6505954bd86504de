"""Moves records of neighbouring threads through shared memory, so that a warp accesses adjacent elements.

Applies to one-dimensional launches in which each thread processes its own record, `x[i * K + e]` with the thread index
i and a constant K: lanes access elements that are K apart, so that each sector is transferred several times. A block
copies its records to shared memory, or from there, in memory order, and threads access them there. A record with an
even number of 32-bit words is padded by one word, so that the same element of all records is in different banks.
Improves global traffic and time, and costs shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.block_trees import block_threads
from kernelmate.suggest.recipes.restructure import without_early_returns
from kernelmate.suggest.syntax import ELEMENT_BYTES, Edit, Node, Tree, integer_constants, integer_value, read_tree
from kernelmate.suggest.syntax_effects import (
    element_accesses,
    fresh,
    indent_of,
    index_of,
    is_written,
    operator,
    plain,
    root_name,
    statements,
)
from kernelmate.suggest.syntax_loops import global_index, guarded

LARGEST = 48 * 1024
"""Bytes of static shared memory that every GPU allows a block: CUDA C++ Programming Guide, Technical Specifications."""
LEAST = 2
"""Smallest length of a record, in elements, to which the recipe applies."""


@dataclass(frozen=True, slots=True)
class Records:
    """An array of records of `length` elements; `elements` are its accesses, with the index within a record."""

    array: str
    type: str
    length: int
    elements: tuple[tuple[Node, str], ...]
    read: bool
    written: bool

    @property
    def pitch(self) -> int:
        """Distance between records in shared memory, in elements."""
        return self.length + 1 if ELEMENT_BYTES[self.type] == 4 and self.length % 2 == 0 else self.length


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for every array of records of which a block's part fits into shared memory."""
    kernel = without_early_returns(request.kernel)
    tree = None if kernel is None else read_tree(kernel)
    threads = block_threads(request.contract, least=32)
    if kernel is None or tree is None or threads is None or any(word in kernel.source for word in ("__shared__", "__shfl", "__sync")):  # fmt: skip
        return
    number = global_index(tree, "x", threads)
    guard = guarded(tree, statements(tree.body))
    bound = None if guard is None or number is None else _bound(guard.conjuncts, number)
    if number is None or guard is None or bound is None:
        return
    found: list[Records] = []
    for parameter in kernel.signature.parameters:
        records = _records(tree, parameter.name, number) if parameter.pointer else None
        taken = sum(one.pitch * ELEMENT_BYTES[one.type] for one in found)
        if records is not None and (taken + records.pitch * ELEMENT_BYTES[records.type]) * threads <= LARGEST:
            found.append(records)
    if found:
        names = " and ".join(f"`{one.array}` ({one.length} elements each)" for one in found)
        why = f"Each thread has a record of its own in {names}, so neighbouring lanes access elements a record apart; a block moves its records in the order of memory, through shared memory."  # fmt: skip
        yield Rewrite(apply_edits(kernel, _edits(tree, found, bound, threads, guard.node)), request.contract, why)


CLAIMS = (Claim(r", so neighbouring lanes access elements a record apart", "global_bytes"),)
RECIPE = Recipe("stage-records", ("global_bytes", "time"), ("shared_bytes",), rewrites, claims=CLAIMS)


def _bound(conjuncts: Sequence[str], number: str) -> str | None:
    """Returns the exclusive upper bound of the thread's index if its comparison is the whole guard; else None."""
    if len(conjuncts) != 1:
        return None
    match = re.fullmatch(rf"\s*{number}\s*<\s*(\w+)\s*|\s*(\w+)\s*>\s*{number}\s*", conjuncts[0])
    return None if match is None else match[1] or match[2]


def _records(tree: Tree, array: str, number: str) -> Records | None:
    variable = tree.variable(array)
    elements = [one for one in element_accesses(tree) if root_name(tree, one) == array]
    if variable is None or variable.pointers != 1 or variable.type not in ELEMENT_BYTES or not elements:
        return None
    if len(elements) != len(tree.uses(array)):
        return None
    found: list[tuple[Node, str]] = []
    lengths: set[int] = set()
    for element in elements:
        index = index_of(element)
        parts = None if index is None else _within(tree, index, number)
        length = None if parts is None else integer_value(parts[0], integer_constants(tree.kernel.unit.text))
        if parts is None or length is None or element.parent is None or element.parent.type == "pointer_expression":
            return None
        lengths.add(length)
        found.append((element, parts[1]))
    read = any(_is_read(tree, one) for one in elements)
    written = any(is_written(tree, one) for one in elements)
    if len(lengths) != 1 or min(lengths) < LEAST:
        return None
    return Records(array, variable.type, lengths.pop(), tuple(found), read, written)


def _is_read(tree: Tree, element: Node) -> bool:
    parent = element.parent
    plainly = parent is not None and parent.type == "assignment_expression" and operator(tree, parent) == "="
    return not (plainly and is_written(tree, element))


def _within(tree: Tree, index: Node, number: str) -> tuple[str, str] | None:
    """Returns length and offset within the record of `number * K + e`, with its terms in any order."""
    text = plain(tree, index)
    for pattern in (
        rf"\(?(?:{number}\*(?P<k>\w+)|(?P<l>\w+)\*{number})\)?(?:\+(?P<e>.+))?",
        rf"(?P<e>[\w*()+]+)\+\(?(?:{number}\*(?P<k>\w+)|(?P<l>\w+)\*{number})\)?",
    ):
        match = re.fullmatch(pattern, text)
        if match is not None and not re.search(rf"\b{number}\b", match["e"] or ""):
            return match["k"] or match["l"], match["e"] or "0"
    return None


def _edits(tree: Tree, found: Sequence[Records], bound: str, threads: int, guard: Node) -> list[Edit]:
    indent = indent_of(tree, guard)
    first, count, at = (fresh(tree, name) for name in ("first", "records", "at"))
    lines = [
        f"const int {first} = blockIdx.x * {threads};",
        f"const int {count} = {bound} - {first} < {threads} ? {bound} - {first} : {threads};",
    ]
    edits: list[Edit] = []
    after: list[str] = []
    for one in found:
        name = fresh(tree, f"own_{one.array}")
        lines.append(f"__shared__ {one.type} {name}[{threads * one.pitch}];")
        place = f"{at}" if one.pitch == one.length else f"{at} / {one.length} * {one.pitch} + {at} % {one.length}"
        head = f"for (int {at} = threadIdx.x; {at} < {count} * {one.length}; {at} += {threads})"
        if one.read:
            lines.append(f"{head} {name}[{place}] = {one.array}[{first} * {one.length} + {at}];")
        if one.written:
            after.append(f"{head} {one.array}[{first} * {one.length} + {at}] = {name}[{place}];")
        for element, within in one.elements:
            edits.append(tree.replace(element, f"{name}[threadIdx.x * {one.pitch} + {within}]"))
    if any(one.read for one in found):
        lines.append("__syncthreads();")
    start, end = tree.span(guard)
    edits.append((start, start, "".join(f"{line}\n{indent}" for line in lines)))
    if after:
        edits.append((end, end, "".join(f"\n{indent}{line}" for line in ("__syncthreads();", *after))))
    return edits
