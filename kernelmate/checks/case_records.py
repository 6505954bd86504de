"""Records of one size: its launches, and the findings of the backend and the guards, and facts over all sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelmate.backends.base import RunResult
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.compare import Difference
from kernelmate.checks.scalars import varied_scalar_values
from kernelmate.checks.timed import JudgedLaunch
from kernelmate.checks.tolerances import MaximumErrors
from kernelmate.records import Case, Contract, Finding, FindingCode, FirstWrong, Severity, Size, SizeMetrics

Origin = Literal["contract", "own"]

MOST_PRINTED = 4096
"""Maximum number of characters of a kernel's printed output that are kept."""


@dataclass(frozen=True, slots=True)
class ObservedLaunch:
    """One launch of the version under judgement.

    Attributes:
        answer: the expected outputs; None without a source of them.
        differences: one per output; none without expected outputs or if the launch did not finish.
        baseline_right: True if the baseline runs the same launch without error and correctly; None without a baseline.
        weight: severity of a mistake here; None if it does not count, because the baseline makes mistakes here too and
            the contract does not require this launch.
        guessed: True if the backend's errors may all come from shapes or sizes of a guessed contract.
    """

    outcome: LaunchOutcome
    answer: ExpectedOutputs | None
    differences: tuple[Difference, ...]
    baseline_right: bool | None
    weight: Severity | None
    guessed: bool = False

    @property
    def right(self) -> bool | None:
        """Returns True if every output is within tolerance.

        The result is None without expected outputs. For a stopped launch it is False, or None if there are no expected
        outputs and all errors may come from a guessed contract.
        """
        if self.outcome.stopped:
            return None if self.answer is None and self.guessed else False
        return all(d.right for d in self.differences) if self.answer is not None else None

    @property
    def plain(self) -> bool:
        """Returns True for aligned pointers and ordinary inputs."""
        return self.outcome.shot.plain

    def without_arrays(self) -> ObservedLaunch:
        """Returns a copy without arrays, for use after the guards.

        Keeping the arrays of all sizes would take too much memory.
        """
        scalars = {name: array for name, array in self.outcome.given.items() if name not in self.outcome.result.arrays}
        outcome = replace(self.outcome, given=scalars, result=replace(self.outcome.result, arrays={}))
        answer = None if self.answer is None else replace(self.answer, want={}, allowed=MaximumErrors({}, {}))
        return replace(self, outcome=outcome, answer=answer)


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding of a guard or the backend at a launch of this size; `guessed` if a guess of an inferred contract may cause it."""

    code: FindingCode
    severity: Severity
    message: str
    finding: Finding | None = None
    buffer: str | None = None
    guessed: bool = False


@dataclass(slots=True)
class CaseRecord:
    """All observations at one size.

    Attributes:
        seen: the launches, in order.
        noted: findings of guards and the backend.
        degenerate: True if a trivial answer (zeros, the old contents, the answer for other inputs) would pass as right.
        constant: the output that is equal for different inputs, with a sentence about it; reported only if it holds at
            all sizes.
        counted: the launch with counters, at listed sizes.
        launched: False if the version cannot be launched or excludes the size itself.
        unsteady: True if equal launches differ beyond the tolerance, which explains wrong outputs.
        once: True if only one ordinary launch was made, so that the outputs for other inputs are unknown.
        kept: the first launch with its arrays, at listed sizes that are to be timed.
    """

    size: Size
    origin: Origin
    seen: list[ObservedLaunch] = field(default_factory=list)
    noted: list[RecordedFinding] = field(default_factory=list)
    degenerate: bool = False
    constant: tuple[str, str] | None = None
    counted: RunResult | None = None
    launched: bool = True
    unsteady: bool = False
    once: bool = False
    kept: JudgedLaunch | None = None

    def note(self, code: FindingCode, severity: Severity, found: tuple[str, str] | None) -> None:
        """Records the finding of a guard, once for each code."""
        if found is not None and not any(code == noted.code for noted in self.noted):
            self.noted.append(RecordedFinding(code, severity, found[1], buffer=found[0]))

    @property
    def judged(self) -> list[ObservedLaunch]:
        """Returns the launches that decide this size: those where a mistake is an error, else the ordinary ones."""
        return [s for s in self.seen if s.weight == "error"] or [s for s in self.seen if s.plain]

    @property
    def correct(self) -> bool | None:
        """Returns True if every deciding launch is right; None if nothing can be compared."""
        if not self.launched:
            return False
        rights = [one.right for one in self.judged]
        if False in rights or self.constant is not None or any(n.severity == "error" for n in self.noted):
            return False
        return True if True in rights and not self.degenerate else None

    @property
    def baseline_correct(self) -> bool | None:
        """Returns True if the baseline is right on every ordinary launch; None without a baseline or a reference."""
        known = [s.baseline_right for s in self.seen if s.plain and s.baseline_right is not None]
        return all(known) if known else None

    @property
    def worst(self) -> Difference | None:
        """Returns the difference with the largest error over all deciding launches."""
        return max((d for one in self.judged for d in one.differences), key=lambda d: d.error, default=None)

    @property
    def first_wrong(self) -> FirstWrong | None:
        """Returns the first wrong element of the worst launch."""
        worst = self.worst
        return worst.first if worst is not None and not worst.right else None

    def scalars(self, contract: Contract) -> dict[str, float] | None:
        """Returns the values of scalars that differ from the contract's in a deciding launch; None without any.

        Wrong launches come first.
        """
        seen = sorted(self.judged, key=lambda one: one.right is False, reverse=True)
        found = (varied_scalar_values(contract, self.size, one.outcome.given) for one in seen)
        return next(({name: value for name, (value, _) in some.items()} for some in found if some), None)

    def shot(self, inputs: int, poison: int) -> ObservedLaunch | None:
        """Returns the finished ordinary launch with the given inputs and poison."""
        return next(
            (
                s for s in self.seen
                if s.plain and s.outcome.shot.inputs == inputs and s.outcome.shot.poison == poison
                and not s.outcome.stopped
            ),
            None,
        )  # fmt: skip

    def case(self, contract: Contract, metrics: SizeMetrics | None) -> Case:
        """Returns the size's entry in a verdict; `metrics` has its time, None if it was not counted."""
        worst = self.worst
        answer = next((seen.answer for seen in self.judged if seen.answer is not None), None)
        return Case(
            size=dict(self.size),
            origin=self.origin,
            correct=self.correct,
            baseline_correct=self.baseline_correct,
            degenerate=self.degenerate,
            max_error=worst.error if worst is not None and math.isfinite(worst.error) else None,
            first_wrong=self.first_wrong,
            median_us=metrics.timing.median_us if metrics is not None and metrics.timing is not None else None,
            tolerance_origin=None if answer is None else answer.origin,
            held_against=None if answer is None else answer.against,
            scalars=self.scalars(contract),
        )


def never_read(contract: Contract, records: Sequence[CaseRecord]) -> tuple[str, ...]:
    """Returns the `inout` arguments that no finished launch has read; none if no launch finished."""
    results = [s.outcome.result for r in records for s in r.seen if not s.outcome.stopped]
    read = frozenset[str]().union(*(result.reads for result in results))
    return tuple(a.name for a in contract.args if a.direction == "inout" and results and a.name not in read)


def printed(records: Sequence[CaseRecord]) -> str:
    """Returns the start of the first launch's output that is not empty."""
    texts = (s.outcome.result.printed for r in records for s in r.seen)
    return next((text for text in texts if text), "")[:MOST_PRINTED]
