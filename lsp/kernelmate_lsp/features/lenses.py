"""Code lenses above each kernel: resources, results of the last benchmark, and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from kernelmate.report.words import times_words, uncompiled_words
from kernelmate_lsp.document_state import BenchmarkedText, DocumentState, is_current
from kernelmate_lsp.phrases import resource_phrase, time_phrase
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels, has_contract, name_position
from kernelmate_lsp.server import KernelmateServer

BARS = "▁▂▃▄▅▆▇█"
BENCHMARK, OPTIMIZE, RESULTS = "kernelmate.benchmark", "kernelmate.optimize", "kernelmate.results"


async def lenses(server: KernelmateServer, uri: str) -> list[types.CodeLens]:
    """Returns the lenses of a document."""
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None or not server.configuration_of(uri).own.code_lens:
        return []
    return [lens for spot in reading.spots for lens in _of_kernel(server, known, reading, spot)]


def _of_kernel(
    server: KernelmateServer, known: DocumentState, reading: DocumentKernels, spot: DocumentKernel
) -> Iterator[types.CodeLens]:
    span = reading.positions.word(*name_position(spot.kernel))
    arguments = [{"uri": known.uri, "kernel": spot.id}]
    said = figures_phrase(known, reading, spot)
    if server.trusted:  # first: they keep their places when the figures' text becomes longer
        yield types.CodeLens(span, types.Command("Benchmark", BENCHMARK, arguments=arguments))
        yield types.CodeLens(span, types.Command("Optimize...", OPTIMIZE, arguments=arguments))
    yield types.CodeLens(span, types.Command(said, RESULTS, arguments=arguments))


def figures_phrase(known: DocumentState, reading: DocumentKernels, spot: DocumentKernel) -> str:
    """Returns the text of the lens above a kernel: the verdict first, as narrow editors cut off the end."""
    first, resources, result, spark = "", "", [], ""
    checked = known.checked.get(spot.id) if known.checked_version == reading.version else None
    if checked is None:
        first = "compiling..."
    elif checked.error is not None:
        first = checked.error.message
    elif checked.verdicts and not checked.verdicts[0].compiled:
        first = uncompiled_words(checked.verdicts[0])[0]
    elif checked.verdicts:
        resources = resource_phrase(checked.verdicts[0])
    benched = known.benchmark_of(spot)
    if benched is not None and benched.verdicts:
        if not benched.verdicts[0].compiled and is_current(benched.kernel, spot):
            first = ""  # the result says the same
        result = [benchmark_phrase(benched, spot), pinned_phrase(known, spot, benched)]
        spark = spark_line(known.times.get(spot.id, ()))
    return " · ".join(part for part in (first, *result, resources, spark) if part)


def benchmark_phrase(benched: BenchmarkedText, spot: DocumentKernel) -> str:
    """Returns the result of the last benchmark, with the reasons why it may not hold."""
    stale = not is_current(benched.kernel, spot)
    return time_phrase(benched.verdicts[0], benched.at, stale=stale, guessed=not has_contract(benched.kernel))


def pinned_phrase(known: DocumentState, spot: DocumentKernel, benched: BenchmarkedText) -> str:
    """Returns the ratio of the pinned text's time to the present one's; empty if one of them was not judged."""
    pinned = known.pinned.get(spot.id)
    before = () if pinned is None else known.verdicts_of(spot.id, pinned)
    if pinned is None or not before or is_current(pinned, spot) or not is_current(benched.kernel, spot):
        return ""
    old, new = before[0].timing, benched.verdicts[0].timing
    if old is None or new is None or old.kind != new.kind or not old.median_us or not new.median_us:
        return ""
    about = "" if new.kind == "measured" else "~"
    return f"{about}{times_words(old.median_us / new.median_us)}x the pinned version's speed"


def spark_line(times: Sequence[float]) -> str:
    """Draws times as bars whose height is proportional to the time: `█▆▃`; empty if all bars would be equally high."""
    most = max(times, default=0.0)
    if most <= 0 or min(times) > most * (1 - 0.5 / (len(BARS) - 1)):
        return ""
    return "".join(BARS[round(one / most * (len(BARS) - 1))] for one in times)


def register(server: KernelmateServer) -> None:
    """Registers code lenses."""

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    async def on_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        return await lenses(server, params.text_document.uri)
