"""Hover texts of one line from the last benchmark: global accesses, shared memory, barriers, and share of the cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from kernelmate.measure.weights import line_cost
from kernelmate.records import LineCounters
from kernelmate.report.words import number, percent
from kernelmate.suggest.diagnosis import USED_WELL
from kernelmate_lsp.document_state import Benched, LineMap, is_current
from kernelmate_lsp.reading import DocumentKernel

LANES, SECTOR = 32, 32
"""Number of threads in a warp, and bytes in a sector."""

_EACH = f"{SECTOR} B"
_SHOWN = 8
"""Maximum number of sectors that a picture shows one by one."""
_BARRIER = re.compile(r"__syncthreads(?:_\w+)?|__syncwarp|sync|arrive_and_wait|wait")


def line_text(spot: DocumentKernel, benched: Benched | None, word: str, line: int, *, shared: bool) -> str | None:
    """Return the last benchmark's counters of a line that concern a word in it; None without any.

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
    return f"strided: lanes lie apart, and {percent(used)} of the bytes moved are used"


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
        yield f"Blocks come to this barrier {line.barriers:,} times per launch; every warp waits for the slowest one."
