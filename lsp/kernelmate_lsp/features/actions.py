"""Code actions: fixes of contract errors, applicable rewrites, objectives, and candidates of the last search.

A rewrite is judged when the user selects it; its edit then has the verdict in its annotation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lsprotocol import types

from kernelmate.compiler.nvrtc import MISSING_HEADER
from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Kernel, Verdict
from kernelmate.report.chart import candidate_names
from kernelmate.source import inference, parse_contract, write_contract
from kernelmate_lsp.document_state import BenchmarkedText, DocumentState, is_current
from kernelmate_lsp.edits import document_text, other_edits, workspace_edit
from kernelmate_lsp.features import headers, writing
from kernelmate_lsp.features.commands import CommandTarget, candidate_of, edit_of, place_of, run_with_progress
from kernelmate_lsp.features.diagnostics import COMPILER, JUDGE
from kernelmate_lsp.features.prompts import CHIPS
from kernelmate_lsp.job_queue import QueuedJob
from kernelmate_lsp.judging import OnStage
from kernelmate_lsp.phrases import candidate_phrase, others_phrase
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels, has_contract, name_position
from kernelmate_lsp.server import KernelmateServer

REWRITE = "refactor.rewrite.kernelmate"
_MEANT = re.compile(r"Did you mean ([\w:.-]+)\?")


async def actions(server: KernelmateServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Returns the code actions at a position."""
    uri = params.text_document.uri
    reading = await server.reading(uri)
    known = server.known.get(uri)
    if reading is None or known is None:
        return []
    found = list(_fixes(reading, params.context.diagnostics))
    line, column = reading.positions.place(params.range.start)
    spot = reading.spot_at(line, column)
    if server.trusted:
        found += writing.actions_at(reading, line)
    diagnostics = params.context.diagnostics
    at_include = any(one.code == MISSING_HEADER for one in diagnostics)
    lacking = reading.spots if at_include else [] if spot is None else [spot]
    added = await headers.actions(server, known, lacking, diagnostics) if server.trusted else []
    found += added
    if spot is not None:
        # Where a folder has a header that is missing, no repair of the kernel helps.
        found += [] if added else _repairs(server, known, spot, diagnostics)
        found += _of_kernel(server, known, reading, spot)
    wanted = params.context.only
    if wanted:
        found = [one for one in found if any(_within(str(one.kind), str(kind)) for kind in wanted)]
    return found


def _within(kind: str, wanted: str) -> bool:
    return kind == wanted or kind.startswith(f"{wanted}.")


def _fixes(reading: DocumentKernels, diagnostics: Sequence[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """Yields the replacements that diagnostics propose in their messages."""
    for one in diagnostics:
        meant = _MEANT.search(one.message)
        if one.source is None or not one.source.startswith(("kernelmate", "nvrtc")) or meant is None:
            continue
        document = types.OptionalVersionedTextDocumentIdentifier(reading.uri, reading.version)
        edit = types.TextDocumentEdit(document, [types.TextEdit(one.range, meant[1])])
        yield types.CodeAction(
            f"Change to {meant[1]}",
            types.CodeActionKind.QuickFix,
            diagnostics=[one],
            is_preferred=True,
            edit=types.WorkspaceEdit(document_changes=[edit]),
        )


def _repairs(
    server: KernelmateServer, known: DocumentState, spot: DocumentKernel, diagnostics: Sequence[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    """Yields an action that searches for a correct version, if compiler or judge found an error in the kernel."""
    wrong = [
        one for one in diagnostics if one.severity == types.DiagnosticSeverity.Error and one.source in {COMPILER, JUDGE}
    ]
    if wrong and server.trusted and not spot.kernel.parts:  # repairs change one kernel
        command = types.Command("Fix", "kernelmate.fix", arguments=[{"uri": known.uri, "kernel": spot.id}])
        title = f"KernelMate: Fix {spot.kernel.name} (repairs are judged before they are shown)"
        yield types.CodeAction(title, types.CodeActionKind.QuickFix, diagnostics=wrong, command=command)


def _of_kernel(
    server: KernelmateServer, known: DocumentState, reading: DocumentKernels, spot: DocumentKernel
) -> Iterator[types.CodeAction]:
    data = {"uri": known.uri, "kernel": spot.id, "version": reading.version}
    yield from _contract(reading, spot)
    yield from _require(reading, spot, known)
    if not server.trusted:
        return
    found = known.found.get(spot.id)
    if found is not None and found.holds(spot):
        taken, candidates = found.taken(spot), found.optimization.candidates
        for index, (name, judged) in enumerate(zip(candidate_names(candidates), candidates, strict=True)):
            if judged.verdict.worth_taking and index != taken:
                title = f"Take candidate {index + 1}, {name}: {candidate_phrase(judged.verdict)}"
                yield types.CodeAction(title, f"{REWRITE}.candidate", data={**data, "candidate": index})
    for chip in CHIPS:
        arguments = [{"uri": known.uri, "kernel": spot.id, "prompt": chip}]
        command = types.Command(chip, "kernelmate.optimize", arguments=arguments)
        yield types.CodeAction(f"KernelMate: {chip}", f"{REWRITE}.objective", command=command)
    ask = types.Command("Custom prompt...", "kernelmate.optimize", arguments=[{"uri": known.uri, "kernel": spot.id}])
    yield types.CodeAction("KernelMate: Custom prompt...", f"{REWRITE}.objective", command=ask)
    for name, candidate in known.offers.get(spot.id, {}).items():
        if is_current(candidate.kernel, spot) or known.checked_version == reading.version:
            title = f"Rewrite: {name.replace('-', ' ')} (judged when chosen)"
            yield types.CodeAction(title, f"{REWRITE}.{name}", data={**data, "recipe": name})


def _contract(reading: DocumentKernels, spot: DocumentKernel) -> Iterator[types.CodeAction]:
    if has_contract(spot.kernel):
        return
    if spot.kernel.unit.language == "python":
        return
    try:
        inferred = inference(spot.kernel)
        changed = write_contract(spot.kernel, inferred.contract, inferred.origins)
        text = document_text(reading, changed)
    except KernelmateError:
        return
    line = name_position(spot.kernel)[0]
    label = f"Write a contract above {spot.kernel.name}"
    edit = workspace_edit(
        reading,
        text,
        label,
        f"Inferred from host code, signature and subscripts at line {line}; correct it.",
        annotated=False,
    )
    yield types.CodeAction(label, f"{REWRITE}.addContract", edit=edit)


def _require(reading: DocumentKernels, spot: DocumentKernel, known: DocumentState) -> Iterator[types.CodeAction]:
    """Yields an action that writes the size conditions a judged kernel relies on into its contract."""
    benched = known.benched.get(spot.id)
    if benched is None or benched.of is not None or not is_current(benched.kernel, spot):
        return
    assumes = next((one.assumes for one in benched.verdicts if one.assumes), ())
    if not assumes:
        return
    try:
        contract = parse_contract(spot.kernel)
        if contract is not None and set(assumes) <= set(contract.require):
            return
        if contract is None and spot.kernel.unit.language == "python":
            return
        changed = _requiring(spot.kernel, contract, assumes)
        text = document_text(reading, changed)
    except KernelmateError:
        return
    conditions = " and ".join(assumes)
    label = f"Require {conditions} in the contract of {spot.kernel.name}"
    if contract is None:
        label = f"Write a contract above {spot.kernel.name} that requires {conditions}"
    edit = workspace_edit(
        reading, text, label, "It fails at every tried size where that does not hold.", annotated=False
    )
    yield types.CodeAction(label, f"{REWRITE}.require", edit=edit)


def _requiring(kernel: Kernel, contract: Contract | None, conditions: tuple[str, ...]) -> Kernel:
    """Returns the kernel with conditions added to its contract, or to the inferred contract if it has none."""
    if contract is not None:
        return write_contract(kernel, replace(contract, require=(*contract.require, *conditions)))
    inferred = inference(kernel)
    origins = {**inferred.origins, "require": "its verdict"}
    return write_contract(kernel, replace(inferred.contract, require=conditions), origins)


async def resolve(server: KernelmateServer, action: types.CodeAction) -> types.CodeAction:
    """Returns the selected action with its edit: a judged candidate's, or that of a rewrite judged now."""
    data = action.data
    if action.edit is not None or not isinstance(data, Mapping):
        return action
    try:
        place = await place_of(server, data)
        if place.reading.version != data.get("version"):
            server.say("The text changed since these actions were listed; open the list again.")
        elif "candidate" in data:
            action.edit = edit_of(server, place, *candidate_of(place, data["candidate"]))
        else:
            action.edit = await _judged_edit(server, place, str(data.get("recipe")))
    except KernelmateError as error:
        server.say(f"{error.message} {error.hint or ''}".strip(), types.MessageType.Warning)
    return action


async def _judged_edit(server: KernelmateServer, place: CommandTarget, recipe: str) -> types.WorkspaceEdit | None:
    candidate: Candidate | None = place.known.offers.get(place.spot.id, {}).get(recipe)
    if candidate is None:
        return None

    def work(job: QueuedJob, tell: OnStage) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...]]:
        return server.judge.compare(
            job, place.spot.kernel, candidate.kernel, server.configuration_of(place.known.uri), tell
        )

    title = f"{place.spot.kernel.name}: judging {recipe}"
    judged = await run_with_progress(server, place.key, title, {}, work)
    if judged is None:
        return None
    after, at = judged[1][0], time.time()
    of_text = BenchmarkedText(place.spot.kernel, judged[0], at)
    place.known.learn(place.spot.id, of_text, [BenchmarkedText(candidate.kernel, judged[1], at)])
    if after.accepted is False:
        why = "; ".join(after.reasons[:2]) or "it was rejected"
        server.say(f"{recipe} was judged and is not offered: {why}", types.MessageType.Warning)
        return None
    now = await place_of(server, {"uri": place.known.uri, "kernel": place.spot.id})
    if not is_current(place.spot.kernel, now.spot):
        server.say("The text changed while the rewrite was judged; choose it again.")
        return None
    changed = document_text(now.reading, candidate.kernel)
    others = other_edits(server.workspace, now.spot.kernel, candidate.contract)
    described = f"{candidate.why} {candidate_phrase(after)}{others_phrase(others)}"
    label = f"KernelMate: {recipe}"
    return workspace_edit(now.reading, changed, label, described, annotated=server.annotates, others=others)


def register(server: KernelmateServer) -> None:
    """Registers code actions, which are resolved when they are selected."""
    kinds: list[types.CodeActionKind | str] = [types.CodeActionKind.QuickFix, REWRITE]
    options = types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def on_actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await actions(server, params)

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def on_resolve(action: types.CodeAction) -> types.CodeAction:
        return await resolve(server, action)
