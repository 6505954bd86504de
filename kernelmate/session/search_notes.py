"""Notes of a search for the user: the reason for trying nothing, what was tried, and what was left."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmate.decide.acceptance import not_shown_right
from kernelmate.decide.metrics import rightness
from kernelmate.records import Objective, Verdict

AUTHOR_WORDS = {"synthesis": "kernels written from the reference", "recipes": "recipes", "router": "recipes and models"}
"""Words for the built-in suggesters, by name."""


def not_judged_notes(passed: int, twins: int, cut: Sequence[str]) -> list[str]:
    """Returns notes on versions without a verdict of their own.

    Args:
        passed: number of versions that were evaluated at the headline size only.
        twins: number of versions that compile to the code of another one.
        cut: authors of versions whose evaluation the end of the budget interrupted.
    """
    notes = []
    if passed:
        notes.append(
            f"{passed} more {_was(passed)} tried at the headline size only, and not judged further: they gained nothing, or less than others."
        )
    if twins:
        have = "has" if twins == 1 else "have"
        notes.append(
            f"{twins} of the proposals {have} the binary and launch of another version, or of the kernel itself: not run again, with its verdict."
        )
    if cut:
        notes.append(
            f"{', '.join(cut)} {_was(len(cut))} interrupted when the time was over, so there is no verdict on {'it' if len(cut) == 1 else 'them'}."
        )
    return notes


def budget_note(limit_s: float, elapsed_s: float, unfinished: Sequence[str]) -> str:
    """Returns the note on a search that its time budget ended.

    Args:
        limit_s: the budget in seconds.
        elapsed_s: the seconds used.
        unfinished: names of the suggesters that may have had more to propose.
    """
    left = " and ".join(AUTHOR_WORDS.get(name, name) for name in unfinished)
    rest = f" Not tried to the end: {left}. A larger --budget tries more." if left else ""
    return f"The search used {elapsed_s:.0f} s of its budget of {limit_s:g} s, and no other version fits into the time that was allowed.{rest}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def not_worth_changing(baseline: Verdict, objective: Objective) -> str | None:
    """Returns the reason for trying no candidates; None if candidates are tried.

    A wrong kernel has no behaviour to preserve, and a right one nothing to fix.
    """
    if objective.metric == "correct":
        return _not_worth_mending(baseline)
    by = "by hand" if baseline.stages is not None else "by hand or by `kernelmate fix`"
    if not baseline.compiled:
        return f"The kernel does not compile, so nothing was tried. Repair it first, {by}."
    errors = [finding for finding in baseline.findings if finding.severity == "error"]
    if errors and baseline.correct is None:
        return f"The kernel itself could not be judged ({errors[0].code}), so nothing was tried. {errors[0].message}"
    if errors:
        return (
            f"The kernel itself is not right ({errors[0].code}), so nothing was tried. Repair it first, {by}. "
            f"{errors[0].message}"
        )
    if baseline.correct is False:
        return "The kernel itself is not right, so nothing was tried. Repair it, or its reference, first."
    return None


def _not_worth_mending(baseline: Verdict) -> str | None:
    """Returns the reason for not repairing; None for a kernel that was found to be wrong."""
    right = rightness(baseline)
    if right is None and baseline.findings:
        return f"The kernel could not be judged ({baseline.findings[0].code}), so nothing was tried. {baseline.findings[0].message}"
    if right is None:
        return f"Nothing was found wrong, and {not_shown_right(baseline)}."
    if right and any(finding.severity == "warning" for finding in baseline.findings):
        return "The kernel is right at the sizes that are listed, so there is nothing to repair; what it is warned of is of other sizes."
    if right:
        return "The kernel is right as it is, so there is nothing to repair."
    if baseline.stages is not None:
        return "Only single kernels are repaired: give the wrong stage's kernel a contract and fix it by its name, or edit it by hand."
    return None
