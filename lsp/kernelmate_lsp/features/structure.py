"""Outline and folding ranges of a document."""

from __future__ import annotations

from lsprotocol import types

from kernelmate.source.blocks import find_blocks
from kernelmate_lsp.reading import DocumentKernels, name_position, span_lines
from kernelmate_lsp.server import KernelmateServer


def symbols(reading: DocumentKernels) -> list[types.DocumentSymbol]:
    """Returns the kernels of a document, each with its parameter types."""
    found = []
    for spot in reading.spots:
        kernel = spot.kernel
        first, last = span_lines(kernel)
        lines = reading.positions
        whole = types.Range(
            lines.position(first, 1), lines.position(last, len(lines.lines[last - 1].rstrip("\r\n")) + 1)
        )
        name = lines.word(*name_position(kernel))
        detail = ", ".join(parameter.type for parameter in kernel.signature.parameters)
        said = "pipeline" if kernel.parts else f"__global__ ({detail})"
        found.append(types.DocumentSymbol(kernel.name, types.SymbolKind.Function, whole, name, said))
    return found


def folds(reading: DocumentKernels) -> list[types.FoldingRange]:
    """Returns folding ranges: contract blocks and kernel bodies."""
    found: dict[tuple[int, int], types.FoldingRange] = {}
    for spot in reading.spots:
        unit = spot.kernel.unit
        first = unit.locate(unit.text.count("\n", 0, spot.kernel.start) + 1, 1)[0]
        last = span_lines(spot.kernel)[1]
        found[first, last] = types.FoldingRange(first - 1, last - 1, kind=types.FoldingRangeKind.Region)
        for block in find_blocks(unit):
            opening = block.file_position(block.opening.line, 1)[0]
            closing = block.file_position((block.lines[-1] if block.lines else block.opening).line, 1)[0] + block.closed
            found[opening, closing] = types.FoldingRange(
                opening - 1, closing - 1, kind=types.FoldingRangeKind.Comment, collapsed_text="// /// kernelmate"
            )
    return [one for (first, last), one in sorted(found.items()) if last > first]


def register(server: KernelmateServer) -> None:
    """Registers the outline and folding."""

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def on_symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        reading = await server.reading(params.text_document.uri)
        return [] if reading is None else symbols(reading)

    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    async def on_folds(params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        reading = await server.reading(params.text_document.uri)
        return [] if reading is None else folds(reading)
