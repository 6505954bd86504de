"""Pages about a kernel, and about this machine.

A kernel's pages show its limiters, its PTX and SASS, and its judged versions, any of which can be restored. Each
command returns the document that the command line prints with `--json`, and the page as text under `text`.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from kernelmate.errors import UsageError
from kernelmate.history import History
from kernelmate.records import Listing, RecordedJudgement
from kernelmate.report.json import doctor_json, listings_json
from kernelmate.session.recording import restored_in
from kernelmate.suggest.diagnosis import diagnose
from kernelmate_lsp.document_state import is_current
from kernelmate_lsp.edits import document_text, workspace_edit
from kernelmate_lsp.features.commands import CommandTarget, benchmark, place_of, register_command
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import path_of
from kernelmate_lsp.server import KernelmateServer

if TYPE_CHECKING:
    from kernelmate.report.machine import Check

WIDTH = 54
"""Width in columns of a page with tables; it fits an editor that shares 1440 pixels with a file list and an editor.

The server does not know the editor's width. The editor wraps longer lines.
"""

UNBROKEN = 2000
"""Width in columns of a page of sentences: the editor breaks each at its own width, once."""

LISTING_WIDTH = 60
"""Width in columns of code, in an editor that shares 1280 pixels with another; SASS is below its PTX."""

TABLE_WIDTH = 72
"""Width in columns of tables."""

MOST_VERSIONS = 200


async def explain(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns the causes that limit a kernel, by line, below the answer if `prompt` is a question; null if cancelled.

    The present text is benchmarked first if it was not judged.
    """
    question = given.get("prompt")
    question = question if isinstance(question, str) else ""
    place = await place_of(server, given)
    benched = place.known.benchmark_of(place.spot)
    if benched is None or not is_current(benched.kernel, place.spot):
        if await benchmark(server, given) is None:
            return None
        place = await place_of(server, given)
        benched = place.known.benchmark_of(place.spot)
    assert benched is not None
    from kernelmate.report.answers import answers, causes_for
    from kernelmate.report.causes import causes_json, causes_view  # as all imports below, loads rich
    from kernelmate.report.tables import verdict_view

    last = place.known.found.get(place.spot.id)
    search = None if last is None else last.optimization
    explained = [(verdict, diagnose(verdict)) for verdict in benched.verdicts]
    sources = _sources(place)
    views = []
    for verdict, causes in explained:
        said = answers(question, verdict, search)
        shown = causes_for(question, said, causes)
        wrong = verdict.accepted is False
        views.append(
            verdict_view(verdict, sources) if wrong else causes_view(verdict, shown, place.reading.path, sources, said)
        )
    tables = any(verdict.accepted is False for verdict, _ in explained)
    text = _text(*views, width=WIDTH if tables else UNBROKEN)
    return {**causes_json(explained, question, search), "text": text}


async def sass(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns PTX and SASS below each source line of a kernel; nothing runs. Null if the text changed meanwhile."""
    place = await place_of(server, given)

    def work(job: QueuedJob) -> tuple[Listing, ...]:
        configuration = server.configuration_of(place.known.uri)
        return server.checker.listings(job, place.spot.kernel, place.reading, configuration)

    try:
        listings = await server.checks.submit((place.known.uri, place.spot.id, "sass"), work)
    except JobUnwanted:
        return None
    from kernelmate.report.code import ListingView, code_view, listing_head

    sources = _sources(place)
    parts = [
        part
        for listing in listings
        for part in (listing_head(listing), "", code_view(listing, sources, ListingView(width=LISTING_WIDTH)))
    ]
    return {**listings_json(listings), "text": _text(*parts, width=LISTING_WIDTH)}


async def history(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns the last judged versions of a kernel, the newest first."""
    place = await place_of(server, given)
    recorded = await asyncio.to_thread(_versions, server, place)
    from kernelmate.report.history import versions_json, versions_view

    here = place.spot.kernel.source
    lines = [
        {
            "version": one.version,
            "label": _label(one) + (" (the present text)" if one.text[one.start : one.end] == here else ""),
            "at": one.at_us / 1e6,
        }
        for one in recorded
    ]
    return {**versions_json(recorded), "lines": lines, "text": _text(versions_view(recorded), width=TABLE_WIDTH)}


async def restore(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Sends a version of the history as an edit of the document, which the client confirms with the user."""
    place = await place_of(server, given)
    number = given.get("version")
    if not isinstance(number, int):
        raise UsageError("No version is named.", hint="Give its number in the history as version.")
    recorded = next((one for one in await asyncio.to_thread(_versions, server, place) if one.version == number), None)
    if recorded is None:
        raise UsageError(f"The history has no version {number} of {place.spot.kernel.name}.")
    found = restored_in(place.spot.kernel, recorded)
    described = f"{_label(recorded)}." + ("" if found.whole else " The rest of the file has changed since; its launches may need another grid or block.")  # fmt: skip
    label = f"KernelMate: version {number}"
    changed = document_text(place.reading, found.after)
    edit = workspace_edit(place.reading, changed, label, described, annotated=server.annotates)
    answer = await server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))
    return {"applied": bool(answer.applied)}


async def doctor(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns the checks of this machine, with remedies for missing parts.

    The settings are those of a document if the argument names one.
    """
    uri = given.get("uri")
    configuration = server.configuration if uri is None else server.configuration_of(uri)
    settings = configuration.settings(None if uri is None else Path(path_of(uri)).parent)

    def examined() -> Sequence[Check]:
        from kernelmate.session.machine import run_checks

        return run_checks(settings)

    checks = await asyncio.to_thread(examined)
    from kernelmate.report.machine import doctor_view

    return {**doctor_json(checks), "text": _text(doctor_view(checks))}


def _versions(server: KernelmateServer, place: CommandTarget) -> list[RecordedJudgement]:
    """Returns the judged versions of a kernel, each once, the newest first."""
    settings = server.configuration_of(place.known.uri).settings(Path(place.reading.path).parent)
    if not settings.history:
        raise UsageError("No history is kept.", hint="Set kernelmate.history to true.")
    with History(settings.history_file) as kept:
        number = kept.find(place.spot.kernel)
        recorded = [] if number is None else kept.latest_of(number, MOST_VERSIONS)
    return list({one.version: one for one in reversed(recorded)}.values())[::-1]


def _label(one: RecordedJudgement) -> str:
    from kernelmate.report.chart import author_name
    from kernelmate.report.history import standing_of, verdict_of, when
    from kernelmate.report.words import case_time_words

    verdict = verdict_of(one.judged.verdict)
    timing = None if verdict is None else verdict.timing
    time = "" if timing is None else f"{case_time_words(timing.median_us, timing)}, "
    prompt = f' for "{one.judged.prompt}"' if one.judged.prompt else ""
    return f"{author_name(one.judged.author)}: {standing_of(one)[0]}, {time}{when(one.at_us)}{prompt}"


def _sources(place: CommandTarget) -> Any:
    from kernelmate.report.excerpt import SourceLines

    return SourceLines({place.reading.path: place.reading.text})


def _text(*parts: Any, width: int = WIDTH) -> str:
    from kernelmate.report.console import make_console, show

    stream = io.StringIO()
    show(make_console(stream, color=False, width=width), *parts)
    # An editor that wraps lines would make lines of the spaces at their ends.
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def register(server: KernelmateServer) -> None:
    """Registers the commands."""
    register_command(server, "kernelmate.doctor", doctor)
    register_command(server, "kernelmate.explain", explain)
    register_command(server, "kernelmate.sass", sass)
    register_command(server, "kernelmate.history", history)
    register_command(server, "kernelmate.restore", restore)
