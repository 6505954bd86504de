"""Hover texts of variables in registers: their live range in the text, and the register pressure of a line."""

from __future__ import annotations

import asyncio

from kernelmate.errors import KernelmateError
from kernelmate.records import Listing
from kernelmate.suggest.syntax import DeclaredVariable, Node, Tree, read_tree
from kernelmate.suggest.syntax_loops import enclosing_loops
from kernelmate_lsp.document_state import DocumentState
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import DocumentKernel, Reading
from kernelmate_lsp.server import KernelmateServer

WAIT_S = 3.0
"""Seconds that a hover waits for the disassembler; the next hover shows a later result."""


async def register_text(
    server: KernelmateServer, known: DocumentState, reading: Reading, spot: DocumentKernel, word: str, line: int
) -> str | None:
    """Return a variable's live range and the live registers at a line; None for any other word.

    Args:
        server: the server.
        known: the document's state.
        reading: its present text.
        spot: the kernel.
        word: the word under the pointer.
        line: the line in the document, from 1.
    """
    tree = read_tree(spot.kernel)
    variable = None if tree is None else tree.variable(word)
    if tree is None or variable is None or variable.pointers or variable.dims or variable.shared:
        return None  # of pointers and arrays their accesses are told
    parts = [f"**{word}**: `{variable.type}`, {range_words(spot, tree, variable)}."]
    listing = await _listing(server, known, reading, spot)
    if listing is not None:
        parts += [said for said in (pressure_words(listing, line),) if said]
    return "\n\n".join(parts)


def range_words(spot: DocumentKernel, tree: Tree, variable: DeclaredVariable) -> str:
    """Formats the lines of the text between which a variable holds a value: `live from line 15 to line 27`."""
    declared = tree.span(variable.node)[0]
    uses = tree.uses(variable.name)
    if not uses:
        return "never used"
    last = max(_end_of_use(tree, variable, use) for use in uses)
    first, final = (_line_of(spot, offset) for offset in (declared, last))
    return f"live on line {first} alone" if first == final else f"live from line {first} to line {final}"


def _end_of_use(tree: Tree, variable: DeclaredVariable, use: Node) -> int:
    """Returns the offset up to which a use keeps a value live."""
    loops = [one for one in enclosing_loops(use) if one.start_byte > variable.node.start_byte]
    kept = [one for one in loops if not one.start_byte <= variable.declaration.start_byte < one.end_byte]
    return max((tree.span(one)[1] - 1 for one in kept), default=tree.span(use)[0])


def _line_of(spot: DocumentKernel, offset: int) -> int:
    """Returns the document's line for an offset in the kernel's unit."""
    text = spot.kernel.unit.text
    return spot.kernel.unit.locate(text.count("\n", 0, offset) + 1, 1)[0]


def pressure_words(listing: Listing, line: int) -> str:
    """Formats the number of live registers at a line, and the kernel's peak; empty without such counts."""
    from kernelmate.report.code import home_place  # loads rich

    counted: dict[int, int] = {}
    for one in listing.sass:
        place = home_place(one, listing)
        if one.live is not None and place is not None and place.file in listing.files[:1]:
            counted[place.line] = max(counted.get(place.line, 0), one.live.general)
    if not counted:
        return ""
    most = max(counted.values())
    where = min(at for at, live in counted.items() if live == most)
    peak = f"The peak is {most}, on line {where}; {listing.registers} are allocated per thread."
    if line not in counted:
        return peak
    return f"Up to {counted[line]} registers are live at the instructions of this line. {peak}"


async def _listing(
    server: KernelmateServer, known: DocumentState, reading: Reading, spot: DocumentKernel
) -> Listing | None:
    """Returns the disassembly of a kernel's present text; None if it does not compile or is not ready in time."""
    kept = known.listed.get(spot.id)
    if kept is None or kept[0] is not spot.kernel:
        checked = known.checked.get(spot.id) if known.checked_version == reading.version else None
        if checked is None or not checked.verdicts or not checked.verdicts[0].compiled:
            return None

        def work(job: QueuedJob) -> tuple[Listing, ...]:
            return server.checker.listings(job, spot.kernel, reading, server.configuration_of(known.uri))

        made = asyncio.ensure_future(server.checks.submit((known.uri, spot.id, "registers"), work))
        made.add_done_callback(lambda done: done.cancelled() or done.exception())
        kept = known.listed[spot.id] = (spot.kernel, made)
    try:
        found = await asyncio.wait_for(asyncio.shield(kept[1]), WAIT_S)
    except (TimeoutError, JobUnwanted, KernelmateError):
        return None
    return found[0] if found else None
