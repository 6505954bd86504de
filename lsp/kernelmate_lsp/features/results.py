"""Results for a kernel, as documents and as charts, and comparisons with an earlier text of the kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelmate.errors import SourceError, UsageError
from kernelmate.records import Kernel, Optimization, Verdict
from kernelmate.report.chart import BASELINE, ChartVersion, templates
from kernelmate.report.drawing import Scene, svg
from kernelmate.report.excerpt import sources_of
from kernelmate.report.figures import figures, versions_of
from kernelmate.report.json import optimization_json, verdicts_json
from kernelmate.report.result import optimization_parts, style, verdict_parts
from kernelmate.session.revisions import Repository
from kernelmate.source import same_kernel
from kernelmate_lsp.document_state import BenchmarkedText, LineMap, SearchOutcome, is_current
from kernelmate_lsp.features.commands import (
    CommandTarget,
    benchmark,
    command_result,
    demand_trust,
    place_of,
    register_command,
    run_with_progress,
    show_again,
)
from kernelmate_lsp.job_queue import QueuedJob
from kernelmate_lsp.judging import OnStage
from kernelmate_lsp.phrases import ago
from kernelmate_lsp.reading import has_contract, read
from kernelmate_lsp.server import KernelmateServer

KEPT = ("pinned", "saved", "HEAD")
"""Baselines that a kernel can be compared with; `HEAD` is the last commit."""


async def results(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns all results of a kernel: the last benchmark's verdicts, and the last search's candidates."""
    place = await place_of(server, given)
    benched, found = place.known.benchmark_of(place.spot), place.known.found.get(place.spot.id)
    benchmark, search = None, None
    if benched is not None:
        stale = not is_current(benched.kernel, place.spot)
        benchmark = {**verdicts_json(benched.verdicts), "at": benched.at, "stale": stale}
    if found is not None:
        taken = found.taken(place.spot)
        search = {
            **optimization_json(found.optimization),
            "at": found.at,
            "stale": not found.holds(place.spot),
            "taken": taken,
        }
    return {"kernel": place.spot.kernel.name, "benchmark": benchmark, "search": search}


async def view(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns the page about a kernel's newest result, of a search or of a benchmark.

    `html` and `style` are the result view, in which all text is escaped. `judged` is null without a result; otherwise
    its `ago` is the result's age in words, `of` is "search" or "benchmark", `good` is false for a rejected kernel,
    `stale` is true if the text has changed since, `taken` is the number, from 0, of the candidate that equals the
    text, and `repairable` is false for a pipeline, as repairs change one kernel. `figures` has Plotly charts by title, and `templates` Plotly layouts by theme.
    """
    place = await place_of(server, given)
    found = _newest_search(place)
    result = found if found is not None else place.known.benchmark_of(place.spot)
    page: dict[str, Any] = {
        "kernel": place.spot.kernel.name,
        "judged": None,
        "html": "",
        "style": style(),
        "figures": {},
    }
    if result is None:
        return {**page, "templates": templates()}
    if isinstance(result, SearchOutcome):
        taken, stale = result.taken(place.spot), not result.holds(place.spot)
        parts, versions = _search_parts(result.optimization, result.kernel, taken), versions_of(result.optimization)
        of, good = "search", taken is not None or result.optimization.baseline.accepted is not False
    else:
        taken, stale = None, not is_current(result.kernel, place.spot)
        parts, versions = _benchmark_parts(place, result), _versions(place, result)
        of, good = "benchmark", all(verdict.accepted is not False for verdict in result.verdicts)
    return {
        **page,
        "judged": {
            "ago": ago(result.at),
            "of": of,
            "good": good,
            "stale": stale,
            "taken": taken,
            "repairable": not place.spot.kernel.parts,
        },
        "html": "\n".join(parts),
        "figures": {title: figure.plain for title, figure in figures(versions).items()},
        "templates": templates(),
    }


def _search_parts(optimization: Optimization, baseline: Kernel, taken: int | None) -> list[str]:
    """Returns the HTML view of a search's result, with the candidate that equals the text, else the best one."""
    accepted = None if taken is None else taken + 1
    return optimization_parts(optimization, baseline, shown=accepted, accepted=accepted, draw=_drawn)


def _benchmark_parts(place: CommandTarget, benched: BenchmarkedText) -> list[str]:
    """Returns the HTML view of a benchmark, with the compared text's result; line numbers are the present ones."""
    moved = LineMap(benched.kernel, place.spot.kernel)
    sources, earlier = sources_of(benched.kernel, moved.line), _earlier(place, benched)
    return [
        line
        for verdict in benched.verdicts
        for line in verdict_parts(verdict, sources, draw=_drawn, before=earlier.get(verdict.instance))
    ]


def _earlier(place: CommandTarget, benched: BenchmarkedText) -> dict[str | None, ChartVersion]:
    """Returns the verdicts on the text that a benchmark was compared with, by template instance; empty without one."""
    before = place.known.compared.get(place.spot.id)
    if before is None or before.at != benched.at:
        return {}
    return {verdict.instance: ChartVersion(f"{BASELINE} ({before.of})", verdict) for verdict in before.verdicts}


def _drawn(scene: Scene) -> str:
    return svg(scene, styled=False)


def _newest_search(place: CommandTarget) -> SearchOutcome | None:
    """Returns the last search; None if there is none, or if a benchmark is newer."""
    found, benched = place.known.found.get(place.spot.id), place.known.benchmark_of(place.spot)
    return found if found is not None and (benched is None or found.at >= benched.at) else None


def _versions(place: CommandTarget, benched: BenchmarkedText) -> list[ChartVersion]:
    """Returns the versions in a benchmark's charts: the text that it was compared with, and the present one."""
    shown = list(_earlier(place, benched).values())[:1]
    return shown + [ChartVersion(verdict.instance or place.spot.kernel.name, verdict) for verdict in benched.verdicts]


async def pin(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Stores a kernel's present text for later comparisons."""
    place = await place_of(server, given)
    place.known.pinned[place.spot.id] = place.spot.kernel
    return {"pinned": place.spot.kernel.name}


async def compare(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Judges a kernel's present text against an earlier one: pinned, on disk, or committed."""
    place = await place_of(server, given)
    demand_trust(server)
    of = str(given.get("baseline") or ("pinned" if place.spot.id in place.known.pinned else "saved"))
    before = await asyncio.to_thread(_baseline, place, of)

    def work(job: QueuedJob, tell: OnStage) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...]]:
        return server.judge.compare(job, before, place.spot.kernel, server.configuration_of(place.known.uri), tell)

    judged = await run_with_progress(server, place.key, f"{place.spot.kernel.name} against {of}", given, work)
    if judged is None:
        return None
    at = time.time()
    place.known.compared[place.spot.id] = BenchmarkedText(before, judged[0], at, of)
    place.known.learn(place.spot.id, BenchmarkedText(place.spot.kernel, judged[1], at))
    await show_again(server, place)
    return {**verdicts_json(judged[1]), "baseline": verdicts_json(judged[0])["verdicts"], "of": of}


def _baseline(place: CommandTarget, of: str) -> Kernel:
    """Returns the earlier text of a kernel.

    Raises:
        UsageError: there is no such text.
        SourceError: the text does not contain the kernel.
        EnvironmentFailed: git is not
        installed.
    """
    if of == "pinned":
        kernel = place.known.pinned.get(place.spot.id)
        if kernel is None:
            raise UsageError(
                "No version of this kernel is pinned.", hint="Pin it first, or compare with the saved one."
            )
        return kernel
    if of == "saved":
        return _on_disk(place)
    if of == "HEAD":
        return _committed(place)
    raise UsageError(f"There is no baseline {of!r}.", hint=f"Baselines are {', '.join(KEPT)}.")


def _on_disk(place: CommandTarget) -> Kernel:
    path = Path(place.reading.path)
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise SourceError(f"The saved file cannot be read: {error.strerror}.", file=str(path)) from None
    return _namesake(text, place)


def _committed(place: CommandTarget) -> Kernel:
    """Returns the kernel in the last commit; git runs no code of the repository."""
    path = Path(place.reading.path).resolve()
    repository = Repository(path.parent)
    blob = None
    if path.is_relative_to(repository.root.resolve()):
        name = path.relative_to(repository.root.resolve()).as_posix()
        blob = repository.files(repository.resolve("HEAD")).get(name)
    if blob is None:
        raise UsageError(f"{path.name} is not in the last commit.", hint="Commit it, or compare with another text.")
    ((_, data),) = repository.contents([blob])
    return _namesake(data.decode("utf-8", "replace"), place)


def _namesake(text: str, place: CommandTarget) -> Kernel:
    """Returns the kernel of the same name in another text of its document.

    Raises:
        SourceError: the text has no kernel of this name.
    """
    before = read(place.reading.uri, 0, place.known.language, text, place.reading.codec)
    spot = before.spot(place.spot.id)
    if spot is not None and spot.kernel.name == place.spot.kernel.name:
        return spot.kernel
    for other in before.spots:
        if other.kernel.name == place.spot.kernel.name:
            return same_kernel(place.spot.kernel, other.kernel.unit)
    raise SourceError(
        f"{place.spot.kernel.name} is not in the earlier text.", file=before.path, hint="Benchmark it by itself."
    )


async def benchmark_saved(server: KernelmateServer, uri: str) -> None:
    """Judges every kernel with a contract in a saved document whose text has not been judged yet."""
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None:
        return
    for spot in reading.spots:
        benched = known.benchmark_of(spot)
        if not has_contract(spot.kernel):
            continue  # a verdict by an inferred contract proves little, and none was requested
        if benched is None or not is_current(benched.kernel, spot):
            await command_result(server, benchmark, {"uri": uri, "kernel": spot.id})


def register(server: KernelmateServer) -> None:
    """Registers the commands, and benchmarks on saving."""
    register_command(server, "kernelmate.results", results)
    register_command(server, "kernelmate.view", view)
    register_command(server, "kernelmate.pin", pin)
    register_command(server, "kernelmate.compare", compare)
