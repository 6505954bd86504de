"""Judgement of one size: all its launches, each compared with the expected outputs and examined by the guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from kernelmate.backends.base import Run
from kernelmate.checks.alignment import shift_text
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import (
    CHEAP_ELEMENTS,
    FIRST,
    OTHER,
    REPEATED_ELEMENTS,
    REPEATED_SCHEDULES,
    SELECTED,
    SUGGESTED,
    Bench,
    LaunchOutcome,
    PlannedLaunch,
    elements_of,
    plan,
)
from kernelmate.checks.case_records import CaseRecord, ObservedLaunch, Origin, RecordedFinding
from kernelmate.checks.compare import Difference, is_right, is_within_tolerance, nan_in
from kernelmate.checks.guards import (
    compensated,
    constant_output,
    directed_rounding,
    flushed,
    input_mutated,
    lost_bits,
    lost_nan,
    nondeterminism,
    single_units,
    stale_output,
    stateful,
    uninitialised_output,
)
from kernelmate.checks.input_selection import InputSelection, SelectedInputs
from kernelmate.checks.oracle import CASES_STAGE, GUARDS_STAGE, Oracle
from kernelmate.checks.precision import Arrays, is_inexact, module_of
from kernelmate.checks.size_plan import PlannedSize
from kernelmate.checks.sizes import MOST_ELEMENTS
from kernelmate.checks.styles import NORMAL, WIDE_INTEGERS, InputStyle, styles_of
from kernelmate.checks.timed import JudgedLaunch
from kernelmate.errors import ContractError, ReferenceFailed
from kernelmate.records import Contract, Finding, FindingCode, Severity, Size
from kernelmate.source import argument_shapes, size_allowed

_OF_A_GUESS = frozenset(
    {
        FindingCode.ILLEGAL_ADDRESS,
        FindingCode.OUT_OF_BOUNDS_WRITE,
        FindingCode.OUT_OF_BOUNDS_READ,
        FindingCode.MISALIGNED_ACCESS,
        FindingCode.GLOBAL_RACE,
    }
)
"""Findings that a wrong shape or size of a guessed contract causes; races, where indices that repeat are not meant."""
_OF_A_GUESS_TEXTS: dict[Severity, str] = {
    "error": "if that is meant, write it above the kernel, and this is an error",
    "warning": "correct it above the kernel, or exclude such sizes there with `require`",
}
"""The end of their messages, by the severity that they would have with a contract of the user's."""

REPEATED_LARGE_ELEMENTS = 1 << 22
"""Maximum number of elements over all arrays at which a large case is launched twice in the emulator, in seconds."""

MOST_SUGGESTED = 1 << 28
"""Thread-instructions of a launch in the emulator at a size that only the version's text or code suggests: a second or two."""


class CaseJudge:
    """Judges sizes one after another.

    Args:
        bench: runs the version under judgement.
        oracle: source of expected outputs.
        compared: True with a baseline, so that its mistakes can be distinguished from the candidate's.
        keep_bytes: bytes of arrays that listed sizes may keep for timing.
        glance: True to make only the first launch of each size.
        written: True for a version that was written from the reference, which binds its NaN too.

    Attributes:
        settling: selects the inputs of launches.
        baseline_ran: True if the baseline finished the last launch.
        baseline_longest: instructions of its longest thread in that launch, if counted.
    """

    def __init__(
        self,
        bench: Bench,
        oracle: Oracle,
        *,
        compared: bool,
        keep_bytes: int = 0,
        glance: bool = False,
        written: bool = False,
    ) -> None:
        self.bench, self.oracle, self.contract = bench, oracle, oracle.contract
        self._compared = compared
        self._keep_bytes = keep_bytes
        self._glance = glance
        self._written = written and not compared
        self._alone = False
        self.settling = InputSelection(bench, oracle, compared=compared, directory=oracle.directory)
        self.baseline_ran = False
        self.baseline_longest: int | None = None

    @property
    def varied_scalars(self) -> tuple[str, ...]:
        """Scalars that may have other values than the contract's.

        Raises:
            ReferenceFailed: the reference's file cannot be loaded.
        """
        return self.settling.varied_scalars

    @property
    def wide_scalars(self) -> tuple[str, ...]:
        """Integer scalars that may have values of any size.

        Raises:
            ReferenceFailed: the reference's file cannot be loaded.
        """
        return self.settling.wide_scalars

    def may_try(self, style: InputStyle, size: Size) -> bool:
        """Returns False for inputs at a size where they could destroy a GPU's context."""
        return self.settling.may_try(style, size)

    def foresee(self, sizes: Sequence[PlannedSize]) -> None:
        """Announces to the bench all launches needed to judge these sizes in order if nothing fails."""
        self._alone = bool(sizes) and all(self.oracle.large(one.size) for one in sizes)
        self.bench.foresee(lambda: self.launches(sizes))

    def launches(self, sizes: Sequence[PlannedSize]) -> Iterator[Run]:
        """Yields the launches that judging these sizes needs, for inputs that can be created; runs none of them."""
        for number, one in enumerate(sizes):
            size = one.size
            for shot, count in self._shots(one, number):
                # A launch whose inputs or grid cannot be made is reported when it is due.
                with suppress(ReferenceFailed, ContractError):
                    # Handing over large arrays would take longer than it saves.
                    if not self.oracle.large(size) and size_allowed(self.bench.version.contract, size):
                        given = self.oracle.inputs(size, shot)
                        longest = None if self._asked_for(one) else self.oracle.known_longest(size, shot)
                        most = MOST_SUGGESTED if one.selected else None
                        yield self.bench.launch(size, shot, given, count=count, others_longest=longest, most=most)

    def _asked_for(self, tried: PlannedSize) -> bool:
        """Returns True for a large generated size that only the version's text suggested."""
        return tried.once and elements_of(argument_shapes(self.contract, tried.size).values()) > MOST_ELEMENTS

    def _shots(self, tried: PlannedSize, number: int) -> Iterator[tuple[PlannedLaunch, bool]]:
        """Yields the launches of a size, each with True if counters are collected."""
        size, origin, once, styled, shifts, styles, selected = tried
        elements = elements_of(argument_shapes(self.contract, size).values())
        repeated = self.bench.on_hardware or elements <= REPEATED_LARGE_ELEMENTS
        listed = origin == "contract"
        large = self.oracle.large(size)
        shots = plan(
            self.contract, elements, number, listed=listed, large=large, repeated=repeated, alone=self._alone, once=once,
            styled=styled, shifts=shifts, other=NORMAL if self._glance or large else self.settling.other(size),
        )  # fmt: skip
        shots += tuple(
            PlannedLaunch(SUGGESTED + place, style, place % 2, 16 * number + place)
            for place, style in enumerate(styles)
        )
        if selected:
            shots += self._more_shots(size, number, elements)
        for index, shot in enumerate(shots[:1] if self._glance else shots):
            if self._compared or self.settling.allows(shot.style):
                level = self.settling.level(shot.style, size)
                yield replace(shot, style=level), index == 0 and origin == "contract"

    def _more_shots(self, size: Size, number: int, elements: int) -> tuple[PlannedLaunch, ...]:
        """Returns the launches that a size has only because a condition of the version's code selects it."""
        other, schedule = self.settling.other(size), 16 * number + 14
        shots = (PlannedLaunch(OTHER, other, 1, schedule),) if other.vary else ()
        mixed = any(one.name == "mixed" for one in styles_of(self.contract)) and elements <= CHEAP_ELEMENTS
        # Magnitudes at which squares overflow are tried at other sizes. Ordinary undeclared integers reach no limit.
        more = (InputStyle("mixed", stress=True, milder=1),) * mixed + (WIDE_INTEGERS,) * self.settling.indexed
        return (*shots, *(PlannedLaunch(SELECTED, style, 0, schedule + 1) for style in more))

    def judge(self, tried: PlannedSize, number: int) -> CaseRecord:
        """Makes the case's launches until one ends in an error.

        Raises:
            ReferenceFailed: the reference or the inputs function failed on ordinary inputs.
        """
        record = CaseRecord(tried.size, tried.origin, once=tried.once)
        for shot, count in self._shots(tried, number):
            seen = self._launch(record, shot, tried, count=count)
            if seen is not None:
                record.seen.append(seen)
            if self.bench.over or (seen is not None and seen.outcome.errors and seen.weight == "error"):
                break
        self.oracle.enter(GUARDS_STAGE)
        self._guard(record)
        self.oracle.enter(CASES_STAGE)
        self._keep(record)
        record.seen = [seen.without_arrays() for seen in record.seen]
        return record

    def _keep(self, record: CaseRecord) -> None:
        """Keeps the arrays of a listed size's first launch if the limit of kept bytes allows it."""
        first = record.shot(FIRST, 0) if record.origin == "contract" and self._keep_bytes else None
        if first is not None:
            kept = JudgedLaunch(first.outcome, first.answer)
            held = kept.nbytes if not self.oracle.large(record.size) else 0  # on the GPU, where memory suffices
            if held <= self._keep_bytes:
                self._keep_bytes -= held
                record.kept = kept

    def again(self, record: CaseRecord) -> JudgedLaunch:
        """Repeats the launch of a size whose arrays exceeded the limit and were not kept.

        Raises:
            ReferenceFailed: the reference or the inputs function failed.
        """
        shot = next(s for s in record.seen if s.plain and s.outcome.shot.inputs == FIRST).outcome.shot
        given = self.oracle.inputs(record.size, shot)
        theirs = self.oracle.theirs(record.size, shot, given)
        answer = self.oracle.answer(record.size, shot, given, theirs)
        return JudgedLaunch(self.bench.run(record.size, shot, given), answer)

    def _launch(
        self, record: CaseRecord, shot: PlannedLaunch, tried: PlannedSize, *, count: bool
    ) -> ObservedLaunch | None:
        """Makes one launch; returns None if the launch is not required to work, or if no launch is possible."""
        size = record.size
        self.baseline_ran = False
        plainly = _plainly_wrong(record)
        try:
            settled = self.settling.settle(size, shot, plainly=plainly)
        except ReferenceFailed:
            if shot.plain:
                raise
            return None
        shot, given, theirs, answer = settled.shot, settled.given, settled.theirs, settled.answer
        self.baseline_ran = theirs is not None
        if self.bench.over or (theirs is not None and shot.misalign and theirs.errors):
            return None
        self.baseline_longest = longest = None if theirs is None else theirs.longest_thread
        # A version that suits small sizes need not be fast at a large one that only its text suggested.
        bound = None if self._asked_for(tried) else longest
        most = MOST_SUGGESTED if tried.selected else None
        outcome = self.bench.run(size, shot, given, count=count, others_longest=bound, most=most)
        if not self._compared:
            mine = self.oracle.learn(self.bench, size, shot, outcome)
            instead = self.settling.instead(size, shot, mine, plainly=plainly)
            if instead is not None:
                self._note_findings(record, outcome, "warning", frozenset())
                record.seen.append(_as_stress(outcome, answer))
                return self._launch(record, replace(shot, style=instead), tried, count=count)
        if count:
            record.counted = outcome.result
        if shot.misalign and not self._compared and outcome.errors and not self.bench.hung:
            return None
        baseline_right = None if theirs is None else theirs.right if theirs.right is not None else not theirs.errors
        weight = self._weight(record.origin, shot, baseline_right)
        their_errors = frozenset() if theirs is None else theirs.errors
        self._note_findings(record, outcome, weight, their_errors)
        errors = [one for one in outcome.result.findings if one.severity == "error"]
        guessed = bool(errors) and all(self._is_of_a_guess(one, their_errors) for one in errors)
        weight = "warning" if guessed and weight == "error" else weight
        if weight is None and theirs is not None and not outcome.stopped:

            def closer(found: Mapping[str, Difference], there: Arrays) -> ExpectedOutputs | None:
                again = self.oracle.measured_again(size, shot, given, found, there)
                return self.oracle.answer(size, shot, given, theirs) if again else None

            record.note(FindingCode.NAN_HANDLING, "error", lost_nan.find(outcome, theirs.nans, answer, closer))
        if self._written and shot.style.plants_nan and answer is not None and not outcome.stopped:
            lost = lost_nan.find_of_reference(outcome, answer, partial(self.oracle.evaluated, size))
            record.note(FindingCode.NAN_HANDLING, "error", lost)
        return replace(self._seen(record, outcome, settled, baseline_right, weight), guessed=guessed)

    def _seen(
        self, record: CaseRecord, outcome: LaunchOutcome, settled: SelectedInputs, baseline_right: bool | None,
        weight: Severity | None,
    ) -> ObservedLaunch:  # fmt: skip
        """Compares a launch with the expected outputs."""
        answer, theirs = settled.answer, settled.theirs
        if answer is None or outcome.stopped:
            return ObservedLaunch(outcome, answer, (), baseline_right, weight)
        if weight == "error" and theirs is not None:
            lost = lost_bits.find(outcome, theirs.bits, answer.want)
            if lost is not None:
                record.note(lost[0], "error", lost[1])
            ptx = self.bench.version.compiled.ptx
            record.note(FindingCode.WRONG_VALUES, "error", flushed.find(outcome, theirs.small, answer.want, ptx))
            record.note(FindingCode.WRONG_VALUES, "error", single_units.find(outcome, theirs.exact, answer.want))
            directed = directed_rounding.find(outcome, theirs.nearest, answer.want)
            record.note(FindingCode.PRECISION_LOSS, "error", directed)
        differences = _differences(outcome, answer)
        size, shot, found = record.size, outcome.shot, {one.argument: one for one in differences}
        if self.oracle.measured_again(size, shot, outcome.given, found, outcome.result.arrays):
            answer = self.oracle.answer(size, shot, outcome.given, theirs) or answer
            differences = _differences(outcome, answer)
        unusual = (
            weight == "error" and not outcome.shot.plain and any(difference.not_finite for difference in differences)
        )
        plain = self.oracle.independent and not compensated.compensates(self.bench.version.compiled.ptx)
        if unusual and _nan_for_infinity(outcome, answer, known=plain):
            weight = "note"
        return ObservedLaunch(outcome, answer, differences, baseline_right, weight)

    def _weight(self, origin: Origin, shot: PlannedLaunch, baseline_right: bool | None) -> Severity | None:
        if origin == "contract" and shot.plain:
            return "error"
        if self._compared:
            return "error" if baseline_right else None
        # NaN and infinity handling often does not matter, and references differ from kernels there.
        return "note" if shot.style.specials else "warning"

    def _note_findings(
        self, record: CaseRecord, outcome: LaunchOutcome, weight: Severity | None, theirs: frozenset[str]
    ) -> None:
        """Records the backend's findings; an error that does not count against the version becomes a warning at most."""
        of_guesses = [one for one in outcome.result.findings if self._is_of_a_guess(one, theirs)]
        misfit = not self._compared and any(one.code != FindingCode.GLOBAL_RACE for one in of_guesses)
        for finding in outcome.result.findings:
            severity = finding.severity
            if severity == "error":
                # No launch follows a hang, so it is reported even if it does not reject the version.
                held = weight or ("warning" if finding.code == FindingCode.HANG else None)
                if held is None:
                    continue
                severity = held
            both = " (the baseline does it too)" if finding.code in theirs else ""
            # Beside accesses outside of what was guessed, a race in shared memory may come of it as well.
            guessed = severity != "note" and (finding in of_guesses or misfit)
            if guessed:
                guesses = ", ".join(self.contract.guesses_about(finding.buffer)) or "its sizes and shapes"
                both += f"; the contract is a guess ({guesses}): " + _OF_A_GUESS_TEXTS[severity]
                severity = "warning"
            moved = f", with {shift_text(outcome.shot.misalign)}" * bool(outcome.shot.misalign)
            text = finding.message + moved + both
            record.noted.append(RecordedFinding(finding.code, severity, text, finding, guessed=guessed))

    def _is_of_a_guess(self, finding: Finding, theirs: frozenset[str]) -> bool:
        """Returns True for an access that a guessed size or shape may have made wrong, unless only a candidate makes it so."""
        of_a_guess = finding.code in _OF_A_GUESS and (not self._compared or finding.code in theirs)
        return of_a_guess and self.contract.is_guessed(finding.buffer)

    def _guard(self, record: CaseRecord) -> None:
        """Runs every guard that applies, and records whether the case is degenerate."""
        contract = self.contract
        for seen in record.seen:
            if seen.weight is not None and not seen.outcome.stopped:
                record.note(FindingCode.INPUT_MUTATED, seen.weight, input_mutated.find(contract, seen.outcome))
                record.note(
                    FindingCode.UNINITIALISED_GLOBAL, seen.weight, uninitialised_output.find(contract, seen.outcome)
                )
        first, other, again = record.shot(FIRST, 0), record.shot(OTHER, 1), record.shot(FIRST, 1)
        if first is None or (other is None and not (record.once or self.oracle.large(record.size))):
            return
        record.degenerate = _is_degenerate(contract, first, other) and not any(
            seen.right and seen.weight in ("error", "warning") and not _is_degenerate(contract, seen, first)
            for seen in record.seen
            if not seen.plain and not seen.outcome.stopped
        )
        if first.weight is None:
            return
        wrong = [s for s in record.seen if s.plain and s.right is False and not s.outcome.stopped]
        if wrong:
            second = self._over_other_bytes(record, first) if again is None and other is None else again or other
            if second is not None:  # over one poison, a wrong value may be the poison's own
                record.note(
                    FindingCode.STALE_OUTPUT, first.weight, stale_output.find(contract, first.outcome, second.outcome)
                )
            if other is not None:
                record.constant = constant_output.find(first.outcome, other.outcome, _apart(first, other))
            if not self.bench.over and not any(n.severity == "error" for n in record.noted):
                found = stateful.find(contract, self.bench, record.size, wrong[-1].outcome)
                record.note(FindingCode.STATEFUL, first.weight, found)
                if self.bench.hung:
                    said = "a launch that has ended before does not end on a freshly loaded module"
                    record.noted.append(RecordedFinding(FindingCode.HANG, first.weight, said))
        if again is not None and not self.bench.hung:
            self._note_order(record, first, again)
            self._note_repeats(record, first)

    def _over_other_bytes(self, record: CaseRecord, first: ObservedLaunch) -> ObservedLaunch | None:
        """Repeats the only launch of a case over outputs that hold other bytes; None if it does not end."""
        if self.bench.over:
            return None
        shot = replace(first.outcome.shot, poison=1 - first.outcome.shot.poison)
        outcome = self.bench.run(record.size, shot, first.outcome.given)
        return None if outcome.stopped else replace(first, outcome=outcome)

    def _note_repeats(self, record: CaseRecord, first: ObservedLaunch) -> None:
        """Repeats the launch on a GPU under other schedules, at other addresses and over other leftover memory."""
        elements = sum(array.size for array in first.outcome.result.arrays.values())
        if not self.bench.on_hardware or elements > REPEATED_ELEMENTS or first.right is False:
            return
        for schedule in REPEATED_SCHEDULES:
            if self.bench.over or any(noted.code == FindingCode.NONDETERMINISTIC for noted in record.noted):
                return
            outcome = self.bench.once_more(first.outcome, record.size, schedule)
            if outcome.errors:
                self._note_findings(record, outcome, first.weight, frozenset())
            if outcome.stopped:
                return
            self._note_order(record, first, self._compared_with(first, outcome))

    def _compared_with(self, first: ObservedLaunch, outcome: LaunchOutcome) -> ObservedLaunch:
        """Compares another launch on the same inputs with the same expected outputs."""
        if first.answer is None:
            return replace(first, outcome=outcome)
        return replace(first, outcome=outcome, differences=_differences(outcome, first.answer))

    def _note_order(self, record: CaseRecord, first: ObservedLaunch, again: ObservedLaunch) -> None:
        allowed = None if first.answer is None else first.answer.allowed.error
        found = nondeterminism.find(self.contract, first.outcome, again.outcome, allowed)
        if found is None:
            return
        name, message, beyond = found
        record.unsteady = beyond and first.right is not again.right
        assert first.weight is not None
        severity = first.weight if record.unsteady or self.contract.deterministic else "warning"
        if self.contract.deterministic:
            message += "; the contract says `deterministic`"
        if record.unsteady or first.right is not False:
            record.note(FindingCode.NONDETERMINISTIC, severity, (name, message))


def _plainly_wrong(record: CaseRecord) -> bool:
    """Returns True if the case's first launch shows that the baseline, or a version without a baseline, is wrong."""
    if not record.seen:
        return False
    first = record.seen[0]
    return (first.right if first.baseline_right is None else first.baseline_right) is False


def _as_stress(outcome: LaunchOutcome, answer: ExpectedOutputs | None) -> ObservedLaunch:
    """Turns a failure of a version without baseline on varied scalars into a warning."""
    stress = replace(outcome.shot, style=replace(outcome.shot.style, stress=True))
    differences = () if answer is None or outcome.stopped else _differences(outcome, answer)
    return ObservedLaunch(replace(outcome, shot=stress), answer, differences, None, "warning")


def _differences(outcome: LaunchOutcome, answer: ExpectedOutputs) -> tuple[Difference, ...]:
    """Compares each output with its expected values."""
    return tuple(answer.difference(name, outcome.result.arrays[name]) for name in answer.want)


def _nan_for_infinity(outcome: LaunchOutcome, answer: ExpectedOutputs, *, known: bool) -> bool:
    """Returns True if all errors are NaN where the expected value, but not the reference's own, is infinite.

    `known` is True if the expected values come from a reference: then the value is finite and overflows in the output's
    type. Otherwise the infinity comes from the baseline alone.
    """
    for name, want in answer.want.items():
        got = outcome.result.arrays[name]
        if not is_inexact(got.dtype):
            continue
        with np.errstate(all="ignore"):
            infinite = np.isinf(want.astype(got.dtype)) & (np.isfinite(want) if known else True)
        places = nan_in(got) & infinite
        mended = np.where(places, want, got).astype(got.dtype)
        if not is_right(name, mended, want, answer.allowed.error[name]):
            return False
    return True


def _is_degenerate(contract: Contract, first: ObservedLaunch, other: ObservedLaunch | None) -> bool:
    """Returns True if zeros, an unchanged output, or the output for other inputs would pass as right."""
    answer = first.answer
    if answer is None or (other is not None and other.answer is None):
        return False
    arrays, want, allowed = first.outcome.result.arrays, answer.want, answer.allowed.error
    zeros = {n: module_of(arrays[n]).zeros(w.shape, arrays[n].dtype) for n, w in want.items()}
    zero = all(is_right(n, zeros[n], w, allowed[n]) for n, w in want.items())
    outputs = [a for a in contract.args if a.direction in ("out", "inout")]
    unchanged = all(
        a.direction == "inout" and is_right(a.name, first.outcome.given[a.name], want[a.name], allowed[a.name])
        for a in outputs
    )
    takes = any(a.direction in ("in", "inout") for a in contract.args)
    return zero or unchanged or (other is not None and takes and not any(True for _ in _apart(first, other)))


def _apart(first: ObservedLaunch, other: ObservedLaunch) -> Iterator[str]:
    """Yields outputs whose expected values in the two launches differ by more than the tolerance."""
    if first.answer is None or other.answer is None:
        return
    for name, want in first.answer.want.items():
        if not is_within_tolerance(want, other.answer.want[name], first.answer.allowed.error[name]):
            yield name
