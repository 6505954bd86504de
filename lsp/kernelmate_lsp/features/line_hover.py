"""Hover texts of one line: accesses and costs in the last benchmark, and variables in registers.

Costs are global accesses, shared memory, barriers, and the share of the whole. Of variables it shows their live range in
the text, and the register pressure of the line.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise

from kernelmate.errors import KernelmateError
from kernelmate.measure.weights import line_cost
from kernelmate.records import LineCounters, Listing
from kernelmate.report.words import number, percent
from kernelmate.suggest.diagnosis import USED_WELL
from kernelmate.suggest.syntax import DeclaredVariable, Node, Tree, read_tree
from kernelmate.suggest.syntax_loops import enclosing_loops
from kernelmate_lsp.document_state import BenchmarkedText, DocumentState, LineMap, is_current
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels
from kernelmate_lsp.server import KernelmateServer

LANES, SECTOR = 32, 32
"""Number of threads in a warp, and bytes in a sector."""

_EACH = f"{SECTOR} B"
_SHOWN = 8
"""Maximum number of sectors that a picture shows one by one."""
_BARRIER = re.compile(r"__syncthreads(?:_\w+)?|__syncwarp|sync|arrive_and_wait|wait")


def line_text(
    spot: DocumentKernel, benched: BenchmarkedText | None, word: str, line: int, *, shared: bool
) -> str | None:
    """Returns the last benchmark's counters of a line that concern a word in it; None without any.

    Args:
        spot: the kernel.
        benched: the kernel's last benchmark.
        word: a pointer, an array in shared memory, or a barrier.
        line: the line in the document, from 1.
        shared: True if the word is an array in shared memory.
    """
    if benched is None:
        return None
    counted = [one for verdict in benched.verdicts[:1] for one in verdict.lines or ()]
    moved = LineMap(benched.kernel, spot.kernel)
    found = next((one for one in counted if one.line is not None and moved.line(one.line) == line), None)
    if found is None:
        return None
    if _BARRIER.fullmatch(word):
        parts = list(_barrier(found))
    elif any(parameter.name == word and parameter.pointer for parameter in spot.kernel.signature.parameters):
        parts = list(_global(found))
    else:
        parts = list(_shared(found)) if shared else []
    if not parts:
        return None
    total = sum(map(line_cost, counted)) or 1.0
    parts.append(f"This line is {percent(line_cost(found) / total)} of the launch's cost.")
    if not is_current(benched.kernel, spot):
        parts.append("**Counted before the last change.**")
    return "\n\n".join(parts)


def _global(line: LineCounters) -> Iterator[str]:
    kinds = (
        ("Loads", line.global_load_requests, line.global_load_sectors),
        ("Stores", line.global_store_requests, line.global_store_sectors),
    )
    for name, requests, sectors in kinds:
        if requests:
            each = sectors / requests
            yield f"{name} of this line: {number(each)} sectors per request of a warp's {LANES} lanes, {_pattern(line, each)}."
            yield lane_picture(each)
    if line.global_atomic_requests:
        each = line.global_atomic_sectors / line.global_atomic_requests
        yield f"Atomic operations of this line: {line.global_atomic_requests:,} requests, {number(each)} sectors each."


def _pattern(line: LineCounters, sectors: float) -> str:
    """Describes the access pattern of a line in a few words; several accesses are described together."""
    used = line.global_bytes_asked / line.global_bytes_moved if line.global_bytes_moved else 1.0
    if sectors <= 1:
        return "all lanes in one sector"
    if used >= USED_WELL:
        return "coalesced: neighbouring lanes touch neighbouring addresses"
    if sectors >= LANES / 2:
        return (
            f"scattered: nearly every lane touches a sector of its own, and {percent(used)} of the bytes moved are used"
        )
    return f"strided: lanes are apart, and {percent(used)} of the bytes moved are used"


def lane_picture(sectors: float) -> str:
    """Draws the average mapping of a warp's lanes to sectors, as a code block: `0-7 | 8-15 | 16-23 | 24-31`."""
    count = min(max(round(sectors), 1), LANES)
    edges = [LANES * index // count for index in range(count + 1)]
    spans = [f"{low}-{high - 1}" if high - low > 1 else f"{low}" for low, high in pairwise(edges)]
    shown = spans if count <= _SHOWN else [*spans[: _SHOWN - 2], "...", spans[-1]]
    lanes = " | ".join(one.ljust(len(_EACH)) for one in shown)
    sectors_ = " | ".join(_EACH.ljust(len(one)) for one in shown)
    return f"```text\nlanes    {lanes}\nsectors  {sectors_}\n```"


def _shared(line: LineCounters) -> Iterator[str]:
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts
    if not passes:
        return
    if not line.bank_conflicts:
        yield f"Accesses of this line: {passes:,} passes over shared memory, no bank conflicts."
        return
    ways = passes / max(passes - line.bank_conflicts, 1)
    yield (
        f"Accesses of this line: {passes:,} passes over shared memory, {line.bank_conflicts:,} of them repeats: "
        f"{number(ways)}-way bank conflicts, as lanes touch different words of one bank."
    )


def _barrier(line: LineCounters) -> Iterator[str]:
    if line.barriers:
        yield f"Blocks reach this barrier {line.barriers:,} times per launch; every warp waits for the slowest one."


WAIT_S = 3.0
"""Seconds that a hover waits for the disassembler; the next hover shows a later result."""


async def register_text(
    server: KernelmateServer, known: DocumentState, reading: DocumentKernels, spot: DocumentKernel, word: str, line: int
) -> str | None:
    """Returns a variable's live range and the live registers at a line; None for any other word.

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
    from kernelmate.report.code import user_line  # loads rich

    counted: dict[int, int] = {}
    for one in listing.sass:
        place = user_line(one, listing)
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
    server: KernelmateServer, known: DocumentState, reading: DocumentKernels, spot: DocumentKernel
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
