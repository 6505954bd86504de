"""Records judgements in the history, and restores a version of it in the user's file.

If the history cannot be written, the user gets a notice and the command continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kernelmate.config import Settings
from kernelmate.decide.ranking import rank
from kernelmate.errors import HistoryUnavailable, SourceError
from kernelmate.history import History
from kernelmate.records import (
    Candidate,
    CommandName,
    Contract,
    Cost,
    Judged,
    JudgementEntry,
    Kernel,
    Objective,
    RecordedJudgement,
    Verdict,
)
from kernelmate.report.json import plain, verdict_json
from kernelmate.source import apply_edits, find_kernels, load_kernels, same_kernel, text_unit, with_text
from kernelmate.suggest.base import candidate_key

USER = "user"
"""Author of the text in the user's own file."""
MOST_READ, MOST_EARLIER = 200, 8
"""Limits of a search's use of the history: latest judgements read, and earlier versions passed on."""


class _Launch(msgspec.Struct, frozen=True):
    """Part of a contract that the history keeps with a version."""

    grid: tuple[str, ...] | None = None
    block: tuple[str, ...] | None = None
    shared: str | None = None
    require: tuple[str, ...] | None = None


class Recorder:
    """Writes judgements into the history.

    Attributes:
        notices: notices for the user: the history cannot be written, or a damaged file was replaced.
    """

    def __init__(self, settings: Settings) -> None:
        self._history = History(settings.history_file) if settings.history else None
        self.notices: list[str] = []

    def close(self) -> None:
        """Closes the file."""
        if self._history is not None:
            self._history.close()

    def own(
        self,
        command: CommandName,
        kernel: Kernel,
        contract: Contract,
        verdicts: Sequence[Verdict],
        *,
        prompt: str | None = None,
        parent: int | None = None,
    ) -> int | None:
        """Stores the verdicts on a version of the user's own, one per instance.

        Returns its number, None if nothing is stored.
        """
        number = None
        for verdict in verdicts:
            entry = JudgementEntry(
                command, USER, _kept(verdict), prompt=prompt, launch=_launch(contract), parent=parent
            )
            number = self._write(kernel, entry)
        return number

    def candidate(
        self,
        candidate: Candidate,
        verdict: Verdict,
        objective: Objective | None,
        parent: int | None,
        command: CommandName = "optimize",
    ) -> None:
        """Stores the verdict on a candidate that was proposed for a version."""
        entry = JudgementEntry(
            command,
            candidate.author,
            _kept(verdict),
            prompt=None if objective is None else objective.prompt,
            metric=None if objective is None else objective.metric,
            why=candidate.why,
            launch=_launch(candidate.contract),
            parent=parent,
            cost=candidate.cost or Cost(),
            steps=candidate.steps,
        )
        self._write(candidate.kernel, entry)

    def earlier(
        self, kernel: Kernel, contract: Contract, baseline: Verdict, objective: Objective
    ) -> tuple[Judged, ...]:
        """Returns versions from earlier searches with comparable figures, best first, at most `MOST_EARLIER`.

        An unreadable history yields none; the error is reported when something is written.
        """
        if self._history is None:
            return ()
        try:
            number = self._history.find(kernel)
            known = () if number is None else tuple(self._history.latest_of(number, MOST_READ))
        except HistoryUnavailable:
            return ()
        own = candidate_key(kernel, contract)
        found: dict[tuple[str, ...], Judged] = {}
        for recorded in known:
            judged = _as_judged(recorded, contract)
            if judged is None or not _compares(judged, baseline):
                continue
            key = candidate_key(judged.candidate.kernel, judged.candidate.contract)
            if key != own:
                found.setdefault(key, judged)
        return tuple(sorted(found.values(), key=lambda judged: rank(judged.verdict, objective))[:MOST_EARLIER])

    def _write(self, kernel: Kernel, entry: JudgementEntry) -> int | None:
        if self._history is None:
            return None
        try:
            number = self._history.record(kernel, entry)
        except HistoryUnavailable as error:
            self.notices.append(f"Nothing more is kept in the history. {error}")
            self._history = None
            return None
        self.notices += self._history.notices
        self._history.notices.clear()
        return number


def _as_judged(recorded: RecordedJudgement, contract: Contract) -> Judged | None:
    """Returns a version of the history as a judged candidate; None for the user's own versions and unreadable ones."""
    entry = recorded.judged
    if entry.parent is None or entry.author == USER:
        return None
    kernel = next((one for one in find_kernels(text_unit(recorded.text)) if one.name == recorded.name), None)
    if kernel is None:
        return None
    try:
        verdict, launch = msgspec.convert(entry.verdict, Verdict), msgspec.convert(entry.launch or {}, _Launch)
    except msgspec.ValidationError:
        return None
    changed = {key: value for key in _Launch.__struct_fields__ if (value := getattr(launch, key)) is not None}
    return Judged(Candidate(entry.author, entry.why or "", kernel, replace(contract, **changed)), verdict)


def _compares(judged: Judged, baseline: Verdict) -> bool:
    """Returns True if both were judged for the same target in the same way."""
    verdict = judged.verdict
    return (verdict.backend, verdict.target) == (baseline.backend, baseline.target)


def _kept(verdict: Verdict) -> dict[str, object]:
    """Returns a verdict without its counters by line, which can be recomputed and are larger than the rest."""
    return verdict_json(replace(verdict, lines=None))


def _launch(contract: Contract) -> dict[str, object]:
    keys = ("grid", "block", "shared", "require")
    return {key: plain(getattr(contract, key)) for key in keys}


@dataclass(frozen=True, slots=True)
class RestoredVersion:
    """A version back in its file's text; nothing is written yet.

    Attributes:
        before: the kernel in the present file.
        after: the restored kernel.
        whole: True if the rest of the file equals that version's; else only the kernel and its contract are restored.
    """

    before: Kernel
    after: Kernel
    whole: bool


def restored(recorded: RecordedJudgement, file: Path | None = None) -> RestoredVersion:
    """Returns a version of the history within the present file.

    Args:
        recorded: the version.
        file: another file to restore into.

    Raises:
        SourceError: the file is gone, or no longer holds the kernel.
    """
    if file is None and recorded.language == "text":
        raise SourceError(
            f"Version {recorded.version} of {recorded.name} is text without a file.",
            hint=f"Print it with `kernelmate history show {recorded.version} --source`, or name a file with --to.",
        )
    path = file or Path(recorded.path)
    hint = f"Print it with `kernelmate history show {recorded.version} --source` and copy it."
    try:
        before = next((kernel for kernel in load_kernels(path) if kernel.name == recorded.name), None)
    except SourceError as error:
        raise SourceError(error.message, file=str(path), hint=hint) from error
    if before is None:
        what = f"There is no kernel {recorded.name} any more to put version {recorded.version} in the place of."
        raise SourceError(what, file=str(path), hint=hint)
    return restored_in(before, recorded)


def restored_in(before: Kernel, recorded: RecordedJudgement) -> RestoredVersion:
    """Returns a kernel before and after a version of the history replaces it, and whether that restores the whole text.

    Raises:
        SourceError: the version's text does not hold a kernel of this name.
    """
    old = same_kernel(before, text_unit(recorded.text))
    if _rest(old) == _rest(before):
        return RestoredVersion(before, same_kernel(before, with_text(before.unit, recorded.text)), whole=True)
    return RestoredVersion(before, _spliced(before, old), whole=False)


def _rest(kernel: Kernel) -> str:
    """Returns the unit's text without the kernel and its contract."""
    text = kernel.unit.text
    spans = sorted(filter(None, [kernel.contract_span, (kernel.start, kernel.end)]), reverse=True)
    for start, end in spans:
        text = text[:start] + "\0" + text[end:]
    return text


def _spliced(before: Kernel, old: Kernel) -> Kernel:
    edits = [(before.start, before.end, old.source)]
    if before.contract_span is not None and old.contract_span is not None:
        start, end = old.contract_span
        edits.append((*before.contract_span, old.unit.text[start:end]))
    return apply_edits(before, edits)
