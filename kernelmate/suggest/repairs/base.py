"""Interface of repairs, and the positions in a kernel's text that the compiler and the judge report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import FindingCode, Unit
from kernelmate.source import apply_edits
from kernelmate.source.tokens import line_starts
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree

COMPILE = frozenset({FindingCode.COMPILE_ERROR})
BOUNDS = frozenset({FindingCode.OUT_OF_BOUNDS_WRITE, FindingCode.OUT_OF_BOUNDS_READ, FindingCode.ILLEGAL_ADDRESS})
UNINITIALISED = frozenset(
    {FindingCode.UNINITIALISED_SHARED, FindingCode.UNINITIALISED_LOCAL, FindingCode.UNINITIALISED_GLOBAL}
)
RACES = frozenset({FindingCode.SHARED_RACE, FindingCode.GLOBAL_RACE})


@dataclass(frozen=True, slots=True)
class Repair(Recipe):
    """A recipe that fixes one kind of fault.

    Attributes:
        codes: codes of the findings that it fixes; it is tried if the kernel has one of them.
    """

    codes: frozenset[FindingCode] = frozenset()


@dataclass(frozen=True, slots=True)
class FaultLocation:
    """Location of a fault: `offset` into the unit's text, its `line` from 1, and the message."""

    code: FindingCode
    message: str
    offset: int
    line: int
    buffer: str | None = None


def compile_errors(request: SuggestRequest) -> list[FaultLocation]:
    """Returns compiler errors in the kernel's own file, in order of position."""
    found = []
    for diagnostic in request.verdict.diagnostics:
        if diagnostic.severity == "error" and diagnostic.file in (None, request.kernel.unit.path):
            place = unit_position(request.kernel.unit, diagnostic.line, diagnostic.column)
            if place is not None:
                found.append(FaultLocation(FindingCode.COMPILE_ERROR, diagnostic.message, *place))
    return sorted(found, key=lambda spot: spot.offset)


def findings(request: SuggestRequest, codes: frozenset[str], *, warnings: bool = False) -> list[FaultLocation]:
    """Returns findings in the kernel's own file, in the verdict's order; those without a line are left out."""
    found = []
    for finding in request.verdict.findings:
        meant = finding.severity == "error" or (warnings and finding.severity == "warning")
        if not meant or finding.code not in codes or finding.file not in (None, request.kernel.unit.path):
            continue
        place = unit_position(request.kernel.unit, finding.line, finding.column)
        if place is not None:
            found.append(FaultLocation(finding.code, finding.message, *place, buffer=finding.buffer))
    return found


def unit_position(unit: Unit, line: int | None, column: int | None) -> tuple[int, int] | None:
    """Returns offset and line in the unit's text of a position in the user's file; None for one outside of the unit."""
    if line is None:
        return None
    starts = line_starts(unit.text)
    best: tuple[int, int] | None = None
    for number, start in enumerate(starts, 1):
        file_line, file_column = unit.locate(number, 1)
        if file_line != line or (file_column is not None and file_column > (column or 1) and best is not None):
            continue
        end = starts[number] - 1 if number < len(starts) else len(unit.text)
        best = min(start + max((column or 1) - (file_column or 1), 0), end), number
    return best


def line_of(tree: Tree, node: Node) -> int:
    """Returns the unit's line, from 1, in which a node begins."""
    return tree.kernel.unit.text.count("\n", 0, tree.span(node)[0]) + 1


def statement_at(tree: Tree, spot: FaultLocation) -> Node | None:
    """Returns the innermost statement that covers a position, else the first that begins on its line.

    The result is None if there is none.
    """
    inside, begins = None, None
    for node in tree.walk():
        if node.type != "declaration" and not node.type.endswith("_statement"):
            continue
        if node.type == "compound_statement" or (node.parent is not None and node.parent.type == "for_statement" and node.type == "declaration"):  # fmt: skip
            continue
        start, end = tree.span(node)
        if start <= spot.offset < end:
            inside = node
        if begins is None and line_of(tree, node) == spot.line:
            begins = node
    return begins if inside is None else inside


def simple_statements_at(tree: Tree, spot: FaultLocation) -> list[Node]:
    """Returns the expression or declaration at a position; for a branch or loop, those in it on the same line."""
    found = statement_at(tree, spot)
    if found is None or found.type in {"expression_statement", "declaration"}:
        return [] if found is None else [found]
    inside = tree.walk("expression_statement", "declaration", under=found)
    return [node for node in inside if line_of(tree, node) == spot.line]


def each_then_all(request: SuggestRequest, edits: list[tuple[Edit, str]], every: str) -> Iterator[Rewrite]:
    """Yields one rewrite for each edit with its reason, then one with all edits if there are several."""
    for edit, why in edits:
        yield Rewrite(apply_edits(request.kernel, [edit]), request.contract, why)
    if len(edits) > 1:
        yield Rewrite(apply_edits(request.kernel, [edit for edit, _ in edits]), request.contract, every)
