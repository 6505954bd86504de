"""Diagnostics: compiler messages while typing, and findings of the last benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from lsprotocol import types

from kernelmate.errors import CompileTimeout, EnvironmentFailed, KernelmateError
from kernelmate.records import Candidate, Diagnostic, Finding, FindingCode
from kernelmate.source.cuda import UNCLOSED
from kernelmate_lsp.document_state import BenchmarkedText, CompileResult, DocumentState, LineMap, is_current
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels, name_position
from kernelmate_lsp.server import KernelmateServer

COMPILER, CONTRACT, JUDGE = "nvrtc", "kernelmate", "kernelmate benchmark"
"""Sources of diagnostics, as the client displays them."""

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
OFFERS_AFTER_S = 0.3
"""Seconds without a change after which rewrites are sought: somebody who types needs none, and each search costs CPU time."""

STALE = "Found by the benchmark before the last change: "


def schedule(server: KernelmateServer, uri: str, *, delay_s: float, near: int = 1) -> None:
    """Compiles a document's newest version after a delay without changes, in seconds."""
    server.start(uri, check(server, uri, delay_s, near))


async def check(server: KernelmateServer, uri: str, delay_s: float, near: int) -> None:
    """Compiles a document's newest version, and publishes its diagnostics."""
    if delay_s:
        await asyncio.sleep(delay_s)
    await server.configured()
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None:
        return
    if not reading.spots:
        known.checked, known.checked_version = {}, reading.version
        publish(server, known, reading)
        return
    loop = asyncio.get_running_loop()

    def told(spot_id: str, checked: CompileResult) -> None:
        loop.call_soon_threadsafe(_learn, server, known, reading, spot_id, checked)

    def work(job: QueuedJob) -> dict[str, CompileResult]:
        return server.checker.check(job, reading, server.configuration_of(uri), near, told)

    try:
        found = await server.checks.submit(uri, work)
    except JobUnwanted:
        return
    if server.known.get(uri) is not known:
        return
    known.checked, known.checked_version = found, reading.version
    publish(server, known, reading)
    server.refresh()
    await _collect_offers(server, known, reading)


async def _collect_offers(server: KernelmateServer, known: DocumentState, reading: DocumentKernels) -> None:
    """Finds applicable rewrites kernel by kernel, once nothing is typed and while no compilation is waiting."""
    known.offers = {}
    await asyncio.sleep(OFFERS_AFTER_S)
    if known.reading is not reading or server.known.get(known.uri) is not known:
        return
    for spot in reading.spots:
        checked = known.checked.get(spot.id)
        if checked is None:
            continue

        def work(job: QueuedJob, checked: CompileResult = checked) -> dict[str, Candidate]:
            return server.checker.offers(job, checked, reading, server.configuration_of(known.uri))

        try:
            offers = await server.checks.submit((known.uri, "offers"), work)
        except JobUnwanted:
            return
        if known.reading is not reading or server.known.get(known.uri) is not known:
            return
        known.offers[spot.id] = offers


def _learn(
    server: KernelmateServer, known: DocumentState, reading: DocumentKernels, spot_id: str, checked: CompileResult
) -> None:
    """Stores and publishes the results so far while other kernels of the document are compiled."""
    if server.known.get(known.uri) is not known or known.reading is not reading:
        return
    first = known.checked_version != reading.version
    if first:
        known.checked = {}
        known.checked_version = reading.version
    known.checked[spot_id] = checked
    if first and len(reading.spots) > 1:
        publish(server, known, reading)


def publish(server: KernelmateServer, known: DocumentState, reading: DocumentKernels) -> None:
    """Sends the current diagnostics of a document; the setting `compilerProblems` leaves out those of NVRTC."""
    whole = server.configuration_of(known.uri).own.compiler_problems
    seen: dict[tuple[object, ...], types.Diagnostic] = {}
    for one in diagnostics_of(known, reading):
        if one.source == COMPILER and not whole:
            continue
        where = one.range.start
        seen.setdefault((where.line, where.character, one.severity, one.message), one)
    server.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(known.uri, list(seen.values()), reading.version)
    )


def diagnostics_of(known: DocumentState, reading: DocumentKernels) -> Iterator[types.Diagnostic]:
    """Yields all current diagnostics of a document in LSP form."""
    for refused in reading.refused:
        yield types.Diagnostic(
            reading.positions.word(refused.line, refused.column),
            f"The code of {refused.kernel or 'this kernel'} is not a plain string: {refused.what}. Give RawKernel a "
            "string literal, and pass what varies by options=('-DNAME=value',).",
            severity=types.DiagnosticSeverity.Information,
            source=CONTRACT,
            code="computed-string",
        )
    for line, column in reading.unclosed:
        yield types.Diagnostic(
            reading.positions.word(line, column),
            UNCLOSED,
            severity=types.DiagnosticSeverity.Error,
            source=CONTRACT,
            code="unclosed-parameters",
        )
    for spot in reading.spots:
        checked = known.checked.get(spot.id)
        if checked is not None and known.checked_version == reading.version:
            yield from _of_check(reading, spot, checked)
        benched = known.benchmark_of(spot)
        if benched is not None:
            yield from _of_benchmark(reading, spot, benched)


def _of_check(reading: DocumentKernels, spot: DocumentKernel, checked: CompileResult) -> Iterator[types.Diagnostic]:
    if checked.error is not None:
        yield _of_error(reading, spot, checked.error)
    for verdict in checked.verdicts:
        said = [one.message for one in verdict.diagnostics if one.severity == "error"]
        for diagnostic in verdict.diagnostics:
            yield _of_compiler(reading, spot, diagnostic)
        for finding in verdict.findings:
            if finding.code != FindingCode.COMPILE_ERROR or finding.message not in said:
                yield _of_finding(reading, spot, finding, finding.line, CONTRACT, stale=False)


def _of_error(reading: DocumentKernels, spot: DocumentKernel, error: KernelmateError) -> types.Diagnostic:
    here = error.line is not None and (error.file is None or _same_file(error.file, reading))
    line, column = (error.line or 1, error.column) if here else name_position(spot.kernel)
    missing = isinstance(error, EnvironmentFailed | CompileTimeout)
    place = f" ({error.file}:{error.line})" if error.line is not None and not here else ""
    return types.Diagnostic(
        reading.positions.word(line, column),
        f"{error.message}{place}" + (f" {error.hint}" if error.hint else ""),
        severity=types.DiagnosticSeverity.Warning if missing else types.DiagnosticSeverity.Error,
        source=CONTRACT,
        code=error.code,
        data={"kernel": spot.id},
    )


def _of_compiler(reading: DocumentKernels, spot: DocumentKernel, diagnostic: Diagnostic) -> types.Diagnostic:
    severity = SEVERITIES[diagnostic.severity]
    compiler = "triton" if spot.kernel.unit.language == "triton" else COMPILER
    here = diagnostic.file is None or _same_file(diagnostic.file, reading)
    if here and diagnostic.line is not None:
        span = reading.positions.word(diagnostic.line, diagnostic.column)
        return types.Diagnostic(
            span, diagnostic.message, severity, diagnostic.code, source=compiler, data={"kernel": spot.id}
        )
    # An error in a header is reported at the kernel that includes it, with the include path.
    span = reading.positions.word(*name_position(spot.kernel))
    related = None
    if diagnostic.file is not None and diagnostic.line is not None:
        line, character = diagnostic.line - 1, max((diagnostic.column or 1) - 1, 0)
        place = types.Range(types.Position(line, character), types.Position(line, character + 1))
        location = types.Location(_uri_of(diagnostic.file), place)
        related = [types.DiagnosticRelatedInformation(location, diagnostic.message)]
    where = "" if diagnostic.file is None else f" ({diagnostic.file}:{diagnostic.line})"
    return types.Diagnostic(
        span, f"{diagnostic.message}{where}", severity, diagnostic.code, source=COMPILER,
        related_information=related, data={"kernel": spot.id},
    )  # fmt: skip


def _of_benchmark(
    reading: DocumentKernels, spot: DocumentKernel, benched: BenchmarkedText
) -> Iterator[types.Diagnostic]:
    stale = not is_current(benched.kernel, spot)
    lines = LineMap(benched.kernel, spot.kernel)
    for verdict in benched.verdicts:
        for finding in verdict.findings:
            if finding.code in {FindingCode.COMPILE_ERROR, FindingCode.LAUNCH_FAILURE}:
                continue  # compiling says it, for the text as it is now
            line = None if finding.line is None else lines.line(finding.line)
            if stale and finding.line is not None and line is None:
                continue  # the line it spoke of is no longer there
            yield _of_finding(reading, spot, finding, line, JUDGE, stale=stale)


def _of_finding(
    reading: DocumentKernels, spot: DocumentKernel, finding: Finding, line: int | None, source: str, *, stale: bool
) -> types.Diagnostic:
    if line is None or (finding.file is not None and not _same_file(finding.file, reading)):
        place = name_position(spot.kernel)
    else:
        place = line, finding.column
    return types.Diagnostic(
        reading.positions.word(*place),
        (STALE if stale else "") + finding.message,
        severity=types.DiagnosticSeverity.Hint if stale else SEVERITIES[finding.severity],
        code=finding.code,
        source=source,
        tags=[types.DiagnosticTag.Unnecessary] if stale else None,
        data={"kernel": spot.id, "finding": finding.code, "stale": stale},
    )


def _same_file(file: str, reading: DocumentKernels) -> bool:
    return file == reading.path


def _uri_of(file: str) -> str:
    from pygls.uris import from_fs_path

    return from_fs_path(file) or file
