"""Sequences of repairs until the kernel is correct: a repair may expose the fault that the next one fixes.

A beam search extends the versions that are nearest to being correct: those with the fewest compiler errors, then the
fewest findings, then the fewest wrong sizes. Every version is judged and shown, so that the user sees why it did not
suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kernelmate.records import Candidate, Contract, Judged, Kernel, Verdict
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.repairs import ALL, Repair

BEAM = 2
"""Number of versions extended at each depth."""
DEPTH = 6
"""Largest number of repairs in a sequence."""
VARIANTS = 6
"""Largest number of candidates of one repair for one version."""

Distance = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A version within a sequence: its text, its verdict, and the repairs that led to it."""

    kernel: Kernel
    contract: Contract
    verdict: Verdict
    repairs: tuple[str, ...] = ()
    whys: tuple[str, ...] = ()


@dataclass(slots=True)
class RepairSequences:
    """The built-in repairs and sequences of them, as one suggester.

    Attributes:
        repairs: the repairs, in the order in which they are tried.
        most: largest number of candidates; None for no limit.
        notes: messages that name the repairs that were tried but do not apply.
    """

    repairs: tuple[Repair, ...] = ALL
    most: int | None = None
    notes: list[str] = field(default_factory=list)
    name: str = "recipes"

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, each already judged; ends with the first correct one, or when the request is stopped."""
        for number, candidate in enumerate(self._search(request), 1):
            yield candidate
            if number == self.most:
                return

    def _search(self, request: SuggestRequest) -> Iterator[Candidate]:
        frontier = [RepairStep(request.kernel, request.contract, request.verdict)]
        known = {_content(frontier[0])}
        for depth in range(DEPTH):
            reached: list[RepairStep] = []
            for step in frontier:
                tried = 0
                for candidate in self._candidates(request, step, known):
                    tried += 1
                    judged = request.judge(candidate)
                    yield candidate
                    if judged.verdict.accepted or request.stop():
                        return
                    if is_nearer(judged.verdict, step.verdict):
                        reached.append(_step(step, candidate, judged))
                if not tried:
                    self._tell(step, depth)
            right = [step for step in reached if distance(step.verdict) == (0, 0, 0)]
            frontier = sorted(reached, key=lambda step: distance(step.verdict))[:BEAM]
            if right or not frontier:
                return

    def _candidates(
        self, request: SuggestRequest, step: RepairStep, known: set[tuple[str, str]]
    ) -> Iterator[Candidate]:
        here = replace(request, kernel=step.kernel, contract=step.contract, verdict=step.verdict)
        codes = {finding.code for finding in step.verdict.findings if finding.severity == "error"}
        for repair in self.repairs:
            if not codes & repair.codes:
                continue
            taken = 0
            for alone in repair.candidates(here):
                candidate = _joined(step, repair, alone)
                content = _content(candidate)
                if content in known:
                    continue
                known.add(content)
                yield candidate
                taken += 1
                if taken == VARIANTS:
                    break

    def _tell(self, step: RepairStep, depth: int) -> None:
        """Adds a note that names the repairs that were tried without success."""
        codes = list(dict.fromkeys(finding.code for finding in step.verdict.findings if finding.severity == "error"))
        fitting = [repair.name for repair in self.repairs if repair.codes & set(codes)]
        after = f" after {', '.join(step.repairs)}" if depth else ""
        if fitting:
            self.notes.append(f"No repair applies to {', '.join(codes)}{after}. Looked for: {', '.join(fitting)}.")
        else:
            self.notes.append(f"There is no repair for {', '.join(codes) or 'what is wrong'}{after}.")


def distance(verdict: Verdict) -> Distance:
    """Returns the numbers of compiler errors, of findings of severity `error`, and of wrong sizes."""
    if not verdict.compiled:
        messages = sum(diagnostic.severity == "error" for diagnostic in verdict.diagnostics)
        return max(messages, 1), 0, 0
    faults = sum(finding.severity == "error" for finding in verdict.findings)
    wrong = sum(case.correct is False for case in verdict.cases)
    return 0, faults, wrong + (verdict.correct is False and not faults and not wrong)


def is_nearer(after: Verdict, before: Verdict) -> bool:
    """Returns True if a version has a smaller distance, or an equal one and another first fault that is not worse."""
    if distance(after) != distance(before):
        return distance(after) < distance(before)
    if not after.compiled:
        return _first_message(after) != _first_message(before)
    old, new = (next((f for f in one.findings if f.severity == "error"), None) for one in (before, after))
    if old is None or new is None or (old.code, old.buffer) == (new.code, new.buffer):
        return False
    return new.code.precedence >= old.code.precedence


def _first_message(verdict: Verdict) -> str | None:
    return next((one.message for one in verdict.diagnostics if one.severity == "error"), None)


def _step(step: RepairStep, candidate: Candidate, judged: Judged) -> RepairStep:
    names = tuple(candidate.author.removeprefix("recipe:").split("+"))
    why = candidate.why.removeprefix(" Then: ".join(step.whys)).removeprefix(" Then: ")
    return RepairStep(candidate.kernel, candidate.contract, judged.verdict, names, (*step.whys, why))


def _joined(step: RepairStep, repair: Repair, alone: Candidate) -> Candidate:
    """Returns a repair's candidate whose author and reason include all previous steps."""
    names = (*step.repairs, repair.name)
    return replace(alone, author=f"recipe:{'+'.join(names)}", why=" Then: ".join((*step.whys, alone.why)))


def _content(version: RepairStep | Candidate) -> tuple[str, str]:
    contract = version.contract
    return version.kernel.unit.text, repr((contract.grid, contract.block, contract.shared, contract.require))
