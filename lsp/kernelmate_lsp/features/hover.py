"""Hover texts: resources and counters of a kernel, size of a shared array, effect of launch bounds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace

from lsprotocol import types

from kernelmate.records import Kernel, Verdict
from kernelmate.report.stages import stage_rows
from kernelmate.report.words import (
    BYTE_COUNTERS,
    COUNTER_WORDS,
    byte_words,
    correctness_words,
    number,
    occupancy_words,
    shared_words,
    timing_words,
    uncompiled_words,
)
from kernelmate.source import c_type_dtype, numpy_dtype
from kernelmate_lsp.document_state import BenchmarkedText, CompileResult, DocumentState, TargetFit, is_current
from kernelmate_lsp.features.line_hover import line_text, register_text
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.phrases import ago
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels
from kernelmate_lsp.server import KernelmateServer

OTHERS_WAIT_S = 2.0
"""Seconds that a hover waits for results on the other GPUs; later results appear in the next hover."""

_SHARED = re.compile(
    r"(?P<extern>extern\s+)?__shared__\s+(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*|volatile\s+|const\s+)*"
    r"(?P<type>(?:unsigned\s+|signed\s+)?(?:long\s+long|long\s+double|\w+(?:::\w+)*))\s+"
    r"(?P<name>\w+)\s*(?P<sides>(?:\[[^\]]*\]\s*)*)"
)
_ROWS = 8
"""Rows of a shared array whose banks are listed."""
_BOUNDS = re.compile(r"__launch_bounds__\s*\(")
_COUNTERS = (
    "global_load_requests",
    "global_load_sectors",
    "global_store_requests",
    "global_store_sectors",
    "global_atomic_requests",
    "shared_load_wavefronts",
    "shared_store_wavefronts",
    "bank_conflicts",
    "divergent_branches",
)


async def hover(server: KernelmateServer, params: types.HoverParams) -> types.Hover | None:
    """Returns the hover text for the symbol under the pointer; None without any."""
    uri = params.text_document.uri
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None:
        return None
    line, column = reading.positions.place(params.position)
    spot = reading.spot_at(line, column)
    if spot is None:
        return None
    text = reading.positions.lines[line - 1].rstrip("\r\n")
    word = _word_at(text, column)
    checked = known.checked.get(spot.id) if known.checked_version == reading.version else None
    shown: str | None = None
    if word == spot.kernel.name.rpartition("::")[2] and _names(spot, line):
        if checked is not None:
            checked = await _with_others(server, known, reading, spot, checked)
        shown = kernel_text(spot, checked, known.benchmark_of(spot))
    elif word == "__launch_bounds__":
        shown = bounds_text(spot, checked)
    elif word is not None:
        declared = shared_text(spot.kernel, word, checked)
        counted = line_text(spot, known.benchmark_of(spot), word, line, shared=declared is not None)
        lived = None if declared else await register_text(server, known, reading, spot, word, line)
        shown = "\n\n".join(part for part in (declared, counted, lived) if part) or None
    if shown is None:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, shown), reading.positions.word(line, column))


def kernel_text(spot: DocumentKernel, checked: CompileResult | None, benched: BenchmarkedText | None) -> str:
    """Returns a kernel's resources on each GPU, remedies, and the counters of the last benchmark."""
    parts = [f"**{_md(spot.kernel.name)}**"]
    if checked is None:
        parts.append("Not compiled yet.")
    elif checked.error is not None:
        parts.append(_md(str(checked.error)))
    elif checked.verdicts and not checked.verdicts[0].compiled:
        parts.append(f"{uncompiled_words(checked.verdicts[0])[0].capitalize()}.")
    else:
        parts += _resources(checked)
    if benched is not None and benched.verdicts:
        parts += _benchmark(benched, stale=not is_current(benched.kernel, spot))
    return "\n\n".join(parts)


def _stages(verdict: Verdict) -> Iterator[str]:
    """Yields the stages of a pipeline as a table; nothing for a kernel."""
    heads, rows = stage_rows(verdict)
    if rows:
        cells = [[_md(word) for word, _ in row] for row in rows]
        lines = [heads, ["---"] * len(heads), *cells]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _resources(checked: CompileResult) -> Iterator[str]:
    rows = ["| GPU | registers | spills | shared | occupancy |", "| --- | ---: | ---: | ---: | --- |"]
    for verdict in checked.verdicts:
        if verdict.resources is not None:
            name = f"{verdict.target} ({verdict.arch})" + (f" {verdict.instance}" if verdict.instance else "")
            occupancy = "" if verdict.occupancy is None else occupancy_words(verdict.occupancy)
            rows.append(
                _row(
                    name,
                    verdict.resources.registers,
                    verdict.resources.spill_bytes,
                    shared_words(verdict.resources),
                    occupancy,
                )
            )
    for fit in checked.others:
        occupancy = "" if fit.occupancy is None else occupancy_words(fit.occupancy)
        rows.append(
            _row(
                f"{fit.target} ({fit.arch})",
                fit.resources.registers,
                fit.resources.spill_bytes,
                shared_words(fit.resources),
                occupancy,
            )
        )
    yield "\n".join(rows)
    for verdict in checked.verdicts[:1]:
        yield from _stages(verdict)
    if checked.contract is not None and checked.contract.inferred:
        yield "The launch is a guess, as there is no contract."
    if checked.lifts:
        yield "Occupancy would rise by " + "; or by ".join(_md(lift) for lift in checked.lifts) + "."


def _row(name: str, registers: int, spills: int | None, shared: str, occupancy: str) -> str:
    return f"| {_md(name)} | {registers} | {byte_words(spills)} | {shared} | {occupancy} |"


def _benchmark(benched: BenchmarkedText, *, stale: bool) -> Iterator[str]:
    verdict = benched.verdicts[0]
    when = f"benchmark {ago(benched.at)}" + (", **before the last change**" if stale else "")
    yield f"{_md(correctness_words(verdict)[0])}; {_md(timing_words(verdict.timing))} ({when})"
    counted = _counters(verdict)
    if counted:
        assert verdict.counters is not None
        yield "\n".join([f"| {verdict.counters.source} per launch | |", "| --- | ---: |", *counted])


def _counters(verdict: Verdict) -> list[str]:
    rows = []
    for name in _COUNTERS:
        value = getattr(verdict.counters, name, None)
        if value is not None:
            shown = byte_words(value) if name in BYTE_COUNTERS else number(value)
            rows.append(f"| {COUNTER_WORDS.get(name, name)} | {shown} |")
    return rows


def shared_text(kernel: Kernel, word: str, checked: CompileResult | None) -> str | None:
    """Returns the size of a shared array; None if the word is not the name of a shared array."""
    for match in _SHARED.finditer(kernel.source):
        if match["name"] == word:
            break
    else:
        return None
    if match["extern"]:
        shape = None if checked is None else checked.shape
        size = (
            "as many bytes as the launch gives"
            if shape is None
            else f"{byte_words(shape.shared_bytes)} at the headline size"
        )
        return f"**{word}**: dynamic shared memory, {size}"
    sides = [side.strip() for side in re.findall(r"\[([^\]]*)\]", match["sides"])]
    dtype, elements = c_type_dtype(match["type"])
    if dtype is None or not all(side.isdigit() for side in sides):
        total = _total(checked)
        return f"**{word}**: static shared memory{total}"
    item = int(numpy_dtype(dtype).itemsize) * elements
    bytes_ = item
    for side in sides:
        bytes_ *= int(side)
    banks = _banks(item, sides)
    return f"**{word}**: {byte_words(bytes_)} of static shared memory ({' x '.join([*sides, f'{item} B'])}){_total(checked)}{banks}"


def _total(checked: CompileResult | None) -> str:
    verdict = checked.verdicts[0] if checked is not None and checked.verdicts else None
    if verdict is None or verdict.resources is None:
        return ""
    return f"; the block takes {shared_words(verdict.resources)}"


def _banks(item: int, sides: list[str]) -> str:
    """Describes bank conflicts of column accesses to a two-dimensional array, from its row pitch in 4-byte banks."""
    if len(sides) != 2:
        return ""
    words = int(sides[1]) * item // 4
    if words and int(sides[1]) * item % 4 == 0 and words % 32:
        first = ", ".join(str(row * words % 32) for row in range(min(int(sides[0]), _ROWS)))
        return f"\n\nIts rows begin in banks {first}{', ...' if int(sides[0]) > _ROWS else ''}."
    if words % 32 == 0 and words:
        return "\n\nThe elements of a column lie in the same bank: 32 lanes that walk down one take 32 wavefronts. One column of padding takes that away."
    return ""


def bounds_text(spot: DocumentKernel, checked: CompileResult | None) -> str | None:
    """Describes a launch bound and its effect."""
    bounds = spot.kernel.signature.launch_bounds
    if _BOUNDS.search(spot.kernel.source) is None:
        return None
    said = "**__launch_bounds__**"
    if bounds:
        said += f": at most {bounds[0]} threads per block"
        said += f", at least {bounds[1]} blocks per SM wanted" if len(bounds) > 1 else ""
    verdict = checked.verdicts[0] if checked is not None and checked.verdicts else None
    if verdict is None or verdict.resources is None:
        return said
    said += f"\n\nIt compiles to {verdict.resources.registers} registers per thread"
    if verdict.resources.spill_bytes:
        said += f", and spills {byte_words(verdict.resources.spill_bytes)} per thread to stay within them"
    if verdict.occupancy is not None:
        said += f"; occupancy {occupancy_words(verdict.occupancy)}"
    return said + "."


async def _with_others(
    server: KernelmateServer,
    known: DocumentState,
    reading: DocumentKernels,
    spot: DocumentKernel,
    checked: CompileResult,
) -> CompileResult:
    """Returns the compiled kernel, with the other GPUs of the settings if they are ready in time."""
    names = server.configuration_of(known.uri).own.other_targets
    if checked.others or not names or not checked.verdicts or not checked.verdicts[0].compiled:
        return checked

    def work(job: QueuedJob) -> tuple[TargetFit, ...]:
        return server.checker.others(job, checked, reading, server.configuration_of(known.uri))

    waited = asyncio.ensure_future(server.checks.submit((known.uri, spot.id, "others"), work))
    try:
        others = await asyncio.wait_for(asyncio.shield(waited), OTHERS_WAIT_S)
    except (TimeoutError, JobUnwanted):
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        return checked
    complete = replace(checked, others=others)
    if known.checked.get(spot.id) is checked:
        known.checked[spot.id] = complete
    return complete


def _names(spot: DocumentKernel, line: int) -> bool:
    """Returns True if the kernel is defined on this line."""
    return spot.kernel.unit.locate(spot.kernel.line, spot.kernel.column)[0] == line


def _word_at(text: str, column: int) -> str | None:
    for match in re.finditer(r"\w+", text):
        if match.start() + 1 <= column <= match.end() + 1:
            return match.group()
    return None


def _md(text: str) -> str:
    """Escapes text for Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|~#])", r"\\\1", text)


def register(server: KernelmateServer) -> None:
    """Registers hovers."""

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def on_hover(params: types.HoverParams) -> types.Hover | None:
        return await hover(server, params)
