"""Prompts in the editor: searches, answers to questions, candidates that are taken, and repairs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernelmate.decide.intent import SUGGESTED, read_intent
from kernelmate.errors import UsageError
from kernelmate.records import Judged, Optimization
from kernelmate.report.json import optimization_json
from kernelmate.session.authors import OutgoingText
from kernelmate.session.candidates import BegunSearch
from kernelmate_lsp.document_state import BenchmarkedText, SearchOutcome, is_current
from kernelmate_lsp.features.commands import (
    CommandTarget,
    apply,
    demand_trust,
    place_of,
    propose,
    register_command,
    run_with_progress,
    show_again,
)
from kernelmate_lsp.features.pages import explain
from kernelmate_lsp.job_queue import QueuedJob
from kernelmate_lsp.judging import EditorSearch, OnStage
from kernelmate_lsp.phrases import candidate_phrase, nothing_phrase
from kernelmate_lsp.server import KernelmateServer

CHIPS = ("Make it faster", "Reduce memory usage", "Use fewer registers")
"""Prompts offered to clients that cannot ask for text."""

LINE = 100
"""Maximum number of characters of a model's text in progress messages."""

TELL_EVERY_S = 0.1


class StreamedText:
    """Shows the last line of a model's text as it arrives, since a progress report has one line."""

    def __init__(self, tell: OnStage) -> None:
        self._tell = tell
        self._line = ""
        self._told_at = 0.0

    def more(self, piece: str) -> None:
        """Adds the next piece of text; called in the judging queue's thread."""
        self._line = (self._line + piece).rpartition("\n")[2][-LINE:]
        now = time.monotonic()
        if self._line.strip() and now - self._told_at > TELL_EVERY_S:
            self._told_at = now
            self._tell(f"the model writes: {self._line.strip()}", 0, 0)


async def optimize(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Executes a prompt: searches, explains, or offers a candidate of the last search.

    A search offers the best candidate as an edit and returns all of them; the answer to a question is the document of
    `kernelmate.explain`.

    Raises:
        UsageError: the prompt is none of these.
    """
    place = await place_of(server, given)
    demand_trust(server)
    prompt = given.get("prompt") or await _ask_for_prompt(server, place)
    if not isinstance(prompt, str):
        return None
    last, benched = place.known.found.get(place.spot.id), place.known.benchmark_of(place.spot)
    earlier = None if last is None else last.optimization.objective
    verdict = benched.verdicts[0] if benched is not None and is_current(benched.kernel, place.spot) else None
    intent = read_intent(prompt, verdict, earlier=earlier, name=given.get("objective"))
    if intent.kind == "search":
        return await _search(server, place, intent.prompt, given)
    if intent.kind == "explain":
        return await _explained(server, {**given, "prompt": prompt})
    if intent.kind == "accept":
        best = 0 if last is None or last.optimization.best is None else last.optimization.best
        return await apply(server, {**given, "candidate": best if intent.number is None else intent.number - 1})
    if intent.kind == "undo":
        raise UsageError("The editor's own undo takes an accepted candidate back.", hint="Press Ctrl+Z in the file.")
    offered = ", ".join(f'"{one}"' for one in SUGGESTED)
    raise UsageError(intent.reading, hint=f"Ask for example {offered}.")


async def _explained(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Returns the answer to a question about a kernel; a client that shows no pages gets it, or the first cause, as a message."""
    document = await explain(server, given)
    if document is not None and given.get("propose", True):
        answers = [sentence for one in document["explained"] for sentence in one["answers"]]
        if answers:
            server.say(" ".join(answers))
            return document
        causes = [cause for one in document["explained"] for cause in one["causes"]]
        said = "{what}. Why: {why}. What to do: {remedy}." if causes else "Nothing was found that limits it."
        server.say(said.format(**causes[0]) if causes else said)
    return document


async def _search(server: KernelmateServer, place: CommandTarget, prompt: str, given: Mapping[str, Any]) -> Any:
    """Searches; a search that is cancelled keeps what it has judged.

    Its document has the message for the user under `stopped`.
    """
    kept, starts = list[Judged](), list[BegunSearch]()
    author, most, ask = given.get("author") or "auto", given.get("maxCandidates", 32), _consent(server)

    def work(job: QueuedJob, tell: OnStage) -> Optimization:
        wanted = EditorSearch(
            prompt, given.get("objective"), author, most, ask, StreamedText(tell).more, given.get("budgetS")
        )

        def judged(one: Judged) -> None:
            if not job.unwanted.is_set():  # a judgement interrupted by stopping does not count
                kept.append(one)
            tell(f"candidate {len(kept)}, {one.candidate.author}: {candidate_phrase(one.verdict)}", 0, 0)

        def begun(start: BegunSearch) -> None:
            starts.append(start)
            tell(start.objective.reading, 0, 0)

        return server.judge.optimize(
            job, place.spot.kernel, server.configuration_of(place.known.uri), wanted, tell, judged, begun
        )

    found = await run_with_progress(server, place.key, f"{place.spot.kernel.name}: {prompt}", given, work)
    stopped = found is None
    if found is None:
        if not kept or server.known.get(place.known.uri) is not place.known:
            return None
        found = starts[-1].stopped(kept)
    # A search and its benchmark get the same time stamp: the newer result is shown, and neither is newer than the
    # other.
    now = time.time()
    place.known.found[place.spot.id] = SearchOutcome(place.spot.kernel, found, now)
    was_judged = found.baseline.correct is not None or bool(found.baseline.findings)
    place.known.learn(
        place.spot.id,
        BenchmarkedText(place.spot.kernel, (found.baseline,), now) if was_judged else None,
        [BenchmarkedText(one.candidate.kernel, (one.verdict,), now) for one in found.candidates],
    )
    await show_again(server, place)
    document = optimization_json(found)
    if stopped:
        return {**document, "stopped": f"{place.spot.kernel.name}: {found.notes[0]}."}
    if given.get("propose", True):
        await _propose_best(server, place, found)
    return document if found.best is not None else {**document, "nothing": nothing_phrase(found)}


async def fix(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Searches for a correct version of a kernel that does not compile or is wrong; returns the same as `optimize`."""
    return await optimize(server, {"prompt": "fix the kernel", **given, "objective": "correct"})


async def _propose_best(server: KernelmateServer, place: CommandTarget, found: Optimization) -> None:
    if found.best is None:
        server.say(nothing_phrase(found))
        return
    now = await place_of(server, {"uri": place.known.uri, "kernel": place.spot.id})
    kept = place.known.found[place.spot.id]
    judged = found.candidates[found.best]
    if not server.annotates:
        # A client without a preview asks its user by a message.
        question = f"{judged.candidate.author}: {judged.candidate.why} {candidate_phrase(judged.verdict)}"
        choices = [types.MessageActionItem("Apply"), types.MessageActionItem("Leave it")]
        asked = types.ShowMessageRequestParams(types.MessageType.Info, question, choices)
        try:
            answer = await server.window_show_message_request_async(asked)
        except JsonRpcException:  # a client that asks its user nothing
            server.say(f"{question} Its code action, Take candidate {found.best + 1}, applies it.")
            return
        if answer is None or answer.title != "Apply":
            return
    await propose(server, now, kept, judged)


async def _ask_for_prompt(server: KernelmateServer, place: CommandTarget) -> str | None:
    question = f"What do you want of {place.spot.kernel.name}?"
    choices = [types.MessageActionItem(one) for one in CHIPS]
    asked = types.ShowMessageRequestParams(types.MessageType.Info, question, choices)
    try:
        answer = await server.window_show_message_request_async(asked)
    except JsonRpcException:  # a client that asks its user nothing
        return None
    return None if answer is None else answer.title


def _consent(server: KernelmateServer) -> Callable[[OutgoingText], bool]:
    """Returns a function that asks in the editor for consent to send text to another machine.

    The judging thread calls it; it blocks until the user answers.
    """
    loop = asyncio.get_running_loop()

    async def ask(outgoing: OutgoingText) -> bool:
        price = "an unknown price" if outgoing.most_usd is None else f"at most {outgoing.most_usd:.2f} USD"
        shown = {
            "text": outgoing.text,
            "host": outgoing.host,
            "model": outgoing.model,
            "workspace": str(outgoing.workspace),
            "price": price,
        }
        answer = await server.protocol.send_request_async("kernelmate/consent", shown)
        return bool(answer is not None and getattr(answer, "agreed", None) is True)

    def from_thread(outgoing: OutgoingText) -> bool:
        if not server.can_consent:
            return False
        return asyncio.run_coroutine_threadsafe(ask(outgoing), loop).result()

    return from_thread


def register(server: KernelmateServer) -> None:
    """Registers the commands."""
    register_command(server, "kernelmate.optimize", optimize)
    register_command(server, "kernelmate.fix", fix)
