"""Diagnosis of wrong results: one finding code over all sizes, with the clearest example in a sentence.

Divisibility conditions that a kernel relies on are derived from failing sizes and confirmed at others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.checks.case_launches import elements_of
from kernelmate.checks.case_records import CaseRecord, ObservedLaunch
from kernelmate.checks.scalars import varied_scalar_values
from kernelmate.records import Contract, FindingCode, Severity, Size
from kernelmate.source import argument_shapes
from kernelmate.source.render import string_list


@dataclass(frozen=True, slots=True)
class DiagnosedCause:
    """A diagnosis: a code, a sentence, and the output concerned."""

    code: FindingCode
    message: str
    buffer: str | None


@dataclass(frozen=True, slots=True)
class _Wrong:
    record: CaseRecord
    seen: ObservedLaunch


def causes_of(contract: Contract, records: Sequence[CaseRecord]) -> Iterator[tuple[Severity, DiagnosedCause]]:
    """Returns the cause of the wrong answers of each severity that has any.

    An output that does not depend on the inputs takes precedence over any other cause.

    Args:
        contract: the judged version's contract.
        records: records of all sizes.
    """
    weights: tuple[Severity, ...] = ("error", "warning", "note")
    for weight in weights:
        cause = _constant(records, weight) or _cause_of(contract, records, weight)
        if cause is None:
            continue
        if weight == "warning" and cause.code == FindingCode.WRONG_AT_SIZE:
            more = '; these are sizes of our own: if they are not meant, say so with `require` in the contract, as in require = ["n % 256 == 0"]'  # fmt: skip
            cause = replace(cause, message=cause.message + more)
        yield weight, cause


def _constant(records: Sequence[CaseRecord], weight: Severity) -> DiagnosedCause | None:
    """Returns the cause if an output is equal for different inputs and wrong at every size that distinguishes them."""
    wrong = [
        r
        for r in records
        if not (r.degenerate or r.once) and any(s.plain and s.weight == weight and s.right is False for s in r.seen)
    ]
    if not wrong or any(r.constant is None for r in wrong) or any(r.correct and not r.once for r in records):
        return None
    assert wrong[0].constant is not None
    buffer, message = wrong[0].constant
    return DiagnosedCause(FindingCode.CONSTANT_OUTPUT, message, buffer)


def _cause_of(contract: Contract, records: Sequence[CaseRecord], weight: Severity) -> DiagnosedCause | None:
    """Returns the cause of the wrong answers of one severity; None without wrong answers.

    Errors on ordinary inputs decide; other inputs decide only at sizes where all ordinary ones are right. A size at
    which equal launches differ beyond the tolerance is skipped, as it has its own finding.
    """
    every = [_Wrong(record, seen) for record in records if not record.unsteady for seen in _telling(record)]
    wrong = _numeric([one for one in every if one.seen.weight == weight])
    if not wrong:
        return None
    plain = [one for one in wrong if one.seen.plain]
    # A case whose wrong launches all had varied scalars, or values equal to scalars, is wrong because of those and not
    # because of its size.
    usual = [one for one in plain if not one.seen.outcome.shot.style.vary and not one.seen.outcome.shot.style.planted]
    # Precision lost at other sizes too does not depend on the size.
    coarse = all(d.coarse for one in wrong for d in one.seen.differences if not d.right)
    elsewhere = {id(one.record) for one in wrong} - {id(one.record) for one in plain}
    by_size = usual and not (coarse and elsewhere)
    code = _code_plain(contract, records, plain) if by_size else _code_stress(plain or wrong)
    example = max(plain or wrong, key=lambda one: (_finite_error(one.seen), -sum(one.record.size.values())))
    return DiagnosedCause(code, _sentence(contract, code, example, _counted(records, wrong)), _argument(example))


def _counted(records: Sequence[CaseRecord], wrong: Sequence[_Wrong]) -> tuple[int, int]:
    """Returns the number of wrong sizes and of compared ones, as the cases of the verdict have them.

    Sizes at which answers are wrong that decide nothing, so that their cases are right, are counted with their own
    severity only.
    """
    sizes = {id(r) for r in records if r.correct is False} | {id(one.record) for one in wrong}
    return len(sizes), sum(r.correct is not None or id(r) in sizes for r in records)


def _numeric(wrong: list[_Wrong]) -> list[_Wrong]:
    """Returns the numeric errors, which identify causes better than errors in NaN and infinity; without any, all."""
    return [one for one in wrong if not one.seen.outcome.shot.style.specials] or wrong


def _telling(record: CaseRecord) -> list[ObservedLaunch]:
    """Returns the wrong finished launches: the ordinary ones if there are any, else the others."""
    wrong = [seen for seen in record.seen if seen.right is False and not seen.outcome.stopped]
    return [seen for seen in wrong if seen.plain] or wrong


def _code_plain(contract: Contract, records: Sequence[CaseRecord], wrong: Sequence[_Wrong]) -> FindingCode:
    differences = [d for one in wrong for d in one.seen.differences if not d.right]
    sizes = {id(one.record) for one in wrong}
    # A single launch cannot tell a right answer from one that does not depend on the inputs.
    telling = [r for r in records if r.launched and not r.degenerate and not r.once]
    right = [r for r in telling if id(r) not in sizes and _ran_right(r)]
    if right and not all(d.not_finite for d in differences):
        smallest = min(_elements(contract, one.record.size) for one in wrong)
        larger_right = any(_elements(contract, record.size) > smallest for record in right)
        if larger_right or not all(d.coarse for d in differences):
            return FindingCode.WRONG_AT_SIZE
    if all(d.not_finite for d in differences):
        return FindingCode.NAN_HANDLING
    return FindingCode.PRECISION_LOSS if all(d.coarse for d in differences) else FindingCode.WRONG_VALUES


def _code_stress(wrong: Sequence[_Wrong]) -> FindingCode:
    differences = [d for one in wrong for d in one.seen.differences if not d.right]
    numbers = [d for d in differences if not d.not_finite]
    planted = all(one.seen.outcome.shot.style.specials for one in wrong)
    if not numbers or (planted and len(numbers) < len(differences)):
        return FindingCode.NAN_HANDLING
    return FindingCode.PRECISION_LOSS if all(d.coarse for d in numbers) else FindingCode.WRONG_VALUES


def _ran_right(record: CaseRecord) -> bool:
    plain = [s.right for s in record.seen if s.plain]
    return bool(plain) and all(right is True for right in plain)


def _elements(contract: Contract, size: Size) -> int:
    return elements_of(argument_shapes(contract, size).values())


def _finite_error(seen: ObservedLaunch) -> float:
    errors = [d.error for d in seen.differences if not d.right and math.isfinite(d.error)]
    return max(errors, default=0.0)


def _argument(one: _Wrong) -> str | None:
    return next((d.argument for d in one.seen.differences if not d.right), None)


def _sentence(contract: Contract, code: FindingCode, example: _Wrong, counted: tuple[int, int]) -> str:
    difference = next(d for d in example.seen.differences if not d.right)
    text = f"at {size_text(example.record.size)}"
    scalars = varied_scalar_values(contract, example.record.size, example.seen.outcome.given)
    if scalars:
        text += "".join(f", with {name} = {value!r}" for name, (value, _) in scalars.items())
        text += " (the contract says " + ", ".join(f"{usual:g}" for _, usual in scalars.values()) + "),"
    if not example.seen.plain:
        text += f"{'' if scalars else ','} on {example.seen.outcome.shot},"
    if difference.first is not None:
        first = difference.first
        text += f" {first.argument}{list(first.index)} is {_value(first.got)} and should be {_value(first.want)}"
        if any(one.name == first.argument and one.unordered for one in contract.args):
            text += ", in ascending order"
    if math.isfinite(difference.error):
        text += f", {difference.error:.3g} times the tolerance"
    text += f"; {counted[0]} of {counted[1]} sizes are wrong"
    if scalars and example.seen.outcome.shot.style.stress:
        text += "; if that scalar never has another value, say so with `fixed` in the contract"
    if example.seen.outcome.shot.style.name == "integers":
        text += "; if such numbers never occur, declare those that do, as in `~ integers(0, 100)`"
    if code == FindingCode.PRECISION_LOSS:
        text += "; if narrower arithmetic is meant, say so with `accumulate` or `tolerance` in the contract"
    return text


def _value(value: float | None) -> str:
    return "another complex number" if value is None else f"{value:.7g}"


def size_text(size: Size) -> str:
    """Formats a size: `rows = 4, cols = 3`."""
    return ", ".join(f"{name} = {value}" for name, value in size.items()) or "its only size"


DIVISORS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Divisors tried: those of vector widths, warps, tiles and blocks."""

LEAST_WRONG = 3
"""Minimum number of wrong sizes for which a condition is sought."""

MULTIPLE = 3
"""Odd factor; the divisor times this factor is not a multiple of the next larger divisor."""

Condition = tuple[tuple[str, int], ...]
"""Size names, each with its divisor; the condition holds if every size is divisible."""


def assumed_divisibility(
    records: Sequence[CaseRecord], attempt: Callable[[Size], CaseRecord | None]
) -> tuple[str, ...]:
    """Returns the conditions on sizes, as written in `require`, under which the kernel is right.

    The result is empty if no condition explains the failures.

    Args:
        records: the records of the sizes that were tried.
        attempt: judges one more size; None if it cannot be tried.
    """
    good = [one.size for one in records if one.launched and not is_wrong_size(one)]
    bad = [one.size for one in records if one.launched and is_wrong_size(one)]
    if not good or len(bad) < LEAST_WRONG:
        return ()
    for condition in _conditions(good, bad):
        # A smaller divisor explains the results as well until one of its multiples has been tried.
        if _holds(condition, bad) or not _holds(condition, good, every=True):
            continue
        size = {**good[-1], **{name: MULTIPLE * divisor for name, divisor in condition}}
        seen = next((one for one in records if one.size == size), None) or attempt(size)
        if seen is not None and not is_wrong_size(seen):
            return tuple(f"{name} % {divisor} == 0" for name, divisor in condition)
        bad.append(size)
    return ()


def divisibility_sentence(conditions: Sequence[str], records: Sequence[CaseRecord]) -> str:
    """Returns a sentence that states the conditions a kernel relies on, and the `require` line to add."""
    wrong = sum(is_wrong_size(record) for record in records)
    return (
        f"assumes {' and '.join(conditions)}: it fails at {wrong} of {len(records)} sizes, at none where that holds; write "
        f"require = {string_list(tuple(conditions))} into the contract"
    )


def is_wrong_size(record: CaseRecord) -> bool:
    """Returns True if a size is wrong, or has a finding that would reject a version there."""
    return record.correct is False or any(noted.severity in ("error", "warning") for noted in record.noted)


def _conditions(good: Sequence[Size], bad: Sequence[Size]) -> Iterator[Condition]:
    """Yields conditions from weak to strong: on one size name, then on pairs of names."""
    names = [name for name in good[0] if any(size[name] for size in bad)]
    for divisor in DIVISORS:
        yield from (((name, divisor),) for name in names)
    for first, second in itertools.combinations(names, 2):
        yield from (((first, one), (second, two)) for one, two in itertools.product(DIVISORS, repeat=2) if one == two)
        yield from (((first, one), (second, two)) for one, two in itertools.product(DIVISORS, repeat=2) if one != two)


def _holds(condition: Condition, sizes: Sequence[Size], *, every: bool = False) -> bool:
    """Returns True if a condition holds at one of the sizes, or at every one."""
    met = (all(size[name] % divisor == 0 for name, divisor in condition) for size in sizes)
    return all(met) if every else any(met)
