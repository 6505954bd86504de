"""Inlay hints: cost of each line's memory accesses in the last benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types

from kernelmate.records import LineCounters
from kernelmate.report.words import number
from kernelmate_lsp.document_state import BenchmarkedText, LineMap, is_current
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels
from kernelmate_lsp.server import KernelmateServer


async def hints(server: KernelmateServer, params: types.InlayHintParams) -> list[types.InlayHint]:
    """Returns the hints for a range of the document."""
    uri = params.text_document.uri
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None or not server.configuration_of(uri).own.inlay_hints:
        return []
    first, last = params.range.start.line, params.range.end.line
    found = []
    for spot in reading.spots:
        benched = known.benchmark_of(spot)
        if benched is not None:
            found += [hint for hint in of_kernel(reading, spot, benched) if first <= hint.position.line <= last]
    return found


def of_kernel(reading: DocumentKernels, spot: DocumentKernel, benched: BenchmarkedText) -> Iterator[types.InlayHint]:
    """Yields the hints of one kernel."""
    stale = not is_current(benched.kernel, spot)
    moved = LineMap(benched.kernel, spot.kernel)
    lines = next((verdict.lines for verdict in benched.verdicts if verdict.lines), None) or ()
    for line in lines:
        now = None if line.line is None else moved.line(line.line)
        said = line_phrase(line)
        if now is None or not said:
            continue
        text = reading.positions.lines[now - 1].rstrip("\r\n") if now <= len(reading.positions.lines) else ""
        tooltip = _tooltip(line) + ("\n\nCounted before the last change of the text." if stale else "")
        yield types.InlayHint(
            reading.positions.position(now, len(text) + 1),
            ("(stale) " if stale else "") + said,
            tooltip=types.MarkupContent(types.MarkupKind.Markdown, tooltip),
            padding_left=True,
        )


def line_phrase(line: LineCounters) -> str:
    """Formats a line's counters: `load 4 sectors/request · store 1 sector/request · 3,072 bank conflicts`."""
    parts = []
    for kind, sectors, requests in (
        ("load", line.global_load_sectors, line.global_load_requests),
        ("store", line.global_store_sectors, line.global_store_requests),
        ("atomic", line.global_atomic_sectors, line.global_atomic_requests),
    ):
        if requests:
            amount = number(sectors / requests)
            parts.append(f"{kind} {amount} {'sector' if amount == '1' else 'sectors'}/request")
    if line.bank_conflicts:
        parts.append(f"{line.bank_conflicts:,} bank conflicts")
    if line.local_sectors:
        parts.append(f"{line.local_sectors:,} local sectors")
    return " · ".join(parts)


def _tooltip(line: LineCounters) -> str:
    rows = [
        ("global load requests", line.global_load_requests),
        ("global load sectors", line.global_load_sectors),
        ("global store requests", line.global_store_requests),
        ("global store sectors", line.global_store_sectors),
        ("global atomic requests", line.global_atomic_requests),
        ("bytes asked for", line.global_bytes_asked),
        ("bytes moved", line.global_bytes_moved),
        ("shared load wavefronts", line.shared_load_wavefronts),
        ("shared store wavefronts", line.shared_store_wavefronts),
        ("bank conflicts", line.bank_conflicts),
        ("divergent branches", line.divergent_branches),
    ]
    shown = [f"| {name} | {value:,} |" for name, value in rows if value]
    return "\n".join(["| of this line, per launch | |", "| --- | ---: |", *shown])


def register(server: KernelmateServer) -> None:
    """Registers inlay hints."""

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def on_hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        return await hints(server, params)
