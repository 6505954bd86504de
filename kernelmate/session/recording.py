"""What a session judges goes into the history; a history that cannot be written costs a notice and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.config import Settings
from kernelmate.errors import HistoryUnavailable
from kernelmate.history import History
from kernelmate.records import Candidate, CommandName, Contract, Cost, JudgementEntry, Kernel, Objective, Verdict
from kernelmate.report.json import plain, verdict_json

USER = "user"
"""Author of what stands in the user's own file."""


class Recorder:
    """Writes judgements into the history of the settings.

    Attributes:
        notices: what the user should hear of: that nothing is kept, or that a damaged file was replaced.
    """

    def __init__(self, settings: Settings) -> None:
        self._history = History(settings.history_file) if settings.history else None
        self.notices: list[str] = []

    def close(self) -> None:
        """Close the file."""
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
        """Keep the verdicts on a version of the user's own, one per instance; its number, None where nothing is kept."""
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
        """Keep the verdict on a candidate that was proposed for a version."""
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
        )
        self._write(candidate.kernel, entry)

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


def _kept(verdict: Verdict) -> dict[str, object]:
    """A verdict without its counters by line, which can be had again and take more room than all the rest."""
    return verdict_json(replace(verdict, lines=None))


def _launch(contract: Contract) -> dict[str, object]:
    keys = ("grid", "block", "shared", "require")
    return {key: plain(getattr(contract, key)) for key in keys}
