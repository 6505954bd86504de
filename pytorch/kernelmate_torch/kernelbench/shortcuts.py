"""Finds operations that a task's results hardly need: each is omitted or replaced in turn, and the results compared.

An operation's result is replaced by zeros, by the mean that it had for other inputs, or by one of its arguments. A candidate
that does the same is faster for a reason that has nothing to do with its kernels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from kernelmate_torch.kernelbench.audited_task import CALIBRATION, CHECKS, Outputs, Subject, copies
from kernelmate_torch.kernelbench.records import TaskFinding
from kernelmate_torch.kernelbench.tape import Change, Tape, TapeOperation, ValueRef

WORTH = 0.1
"""Share of the least time of an eager call that a shortcut must save to exclude the task."""
WORTH_A_NOTE = 0.02
"""Share from which a smaller saving is noted."""
MOST_SHOWN = 3
"""Largest number of shortcuts that are reported; the largest savings come first."""
GUARD = 1e-3
"""Largest scalar of an operation that only guards against a division by zero, which may be left out."""
_MEANINGLESS = ("empty", "zeros", "ones", "full", "arange", "scalar_tensor", "lift_fresh", "clone", "to_copy", "copy", "detach", "rand", "local_scalar", "bernoulli", "fill")  # fmt: skip
"""Operations that compute nothing from values, by the start of their names."""


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A change of one operation that keeps the results within the tolerance.

    Attributes:
        place: the operation's position on the tape.
        kind: `zeros`, `mean` or `skip`.
        argument: for `skip`, the argument that is returned in place of the result.
        saved: share of the least time of an eager call that is no longer needed.
        miss: largest deviation of the results, in tolerances.
    """

    place: int
    kind: str
    argument: int
    saved: float
    miss: float = 0.0


def computes(one: TapeOperation) -> bool:
    """Returns True if an operation computes from values, and is not a view, copy, constant or draw of random numbers."""
    return not one.view and bool(one.outs) and one.outs[0] is not None and not one.name.startswith(_MEANINGLESS)


def is_guard(one: TapeOperation) -> bool:
    """Returns True for the addition of, or the bound by, a number that only keeps a divisor from being zero."""
    scalars = [value for value in tree_flatten((one.args[1:], one.kwargs))[0] if isinstance(value, float)]
    return one.name.startswith(("add", "clamp", "maximum")) and any(0 < abs(value) <= GUARD for value in scalars)


def shortcut_findings(
    subject: Subject, until: float, full: Subject | None, where: str
) -> tuple[list[TaskFinding], int]:
    """Returns findings about parts that suffice, and the number of operations that were replaced.

    Args:
        subject: the task at sizes at which it is called often.
        until: time on `time.monotonic` after which no further operation is replaced.
        full: the task at larger sizes, its own if possible, at which shortcuts are tried again; None without such.
        where: the sizes, for the messages; empty for the task's own.
    """
    tape = subject.tape
    wanted = [subject.replay(subject.own(seed)) for seed in CHECKS]
    means = _means(subject)
    planned = sorted(_planned(tape, subject.weights), key=lambda one: -one.saved)
    found: list[Shortcut] = []
    tried: set[int] = set()
    for one in planned:
        if one.saved < WORTH_A_NOTE or time.monotonic() > until:
            break
        if any(_covers(tape, other, one) for other in found):
            continue
        tried.add(one.place)
        miss = _miss(subject, one, wanted, means)
        if miss <= 1.0:
            found.append(Shortcut(one.place, one.kind, one.argument, one.saved, miss))
    if full is not None:
        found = _confirmed(full, found)
    found += _intermediates(full or subject) if not any(one.saved >= WORTH for one in found) else []
    findings = [_finding(tape, one, where) for one in sorted(found, key=lambda one: -one.saved)[:MOST_SHOWN]]
    if any(one.severity == "error" for one in findings):
        findings = [one for one in findings if one.severity == "error"]
    return findings, len(tried)


def _planned(tape: Tape, weights: Tape) -> Iterator[Shortcut]:
    """Yields every possible change, with the share of work that it saves by the weights of another tape of the same operations."""
    live, inner = tape.live(), tape.inner()
    reached = tape.reach(number for number in tape.inputs if number is not None)
    used = {number for one in tape.operations if one.place in live for number in one.reads} | set(tape.outputs)
    for one in tape.operations:
        if one.place not in live or one.place not in reached or not computes(one) or is_guard(one):
            continue
        if any(number in used for number in one.outs[1:] if number is not None):
            continue
        saved = 1.0 - weights.needed_share({one.place: ()})
        for kind in ("zeros", "mean"):
            yield Shortcut(one.place, kind, 0, saved)
        assert one.outs[0] is not None
        shape, dtype = tape.facts[one.outs[0]]
        for argument, value in enumerate(one.args if one.place not in inner else ()):
            if isinstance(value, ValueRef) and tape.facts[value.number] == (shape, dtype):
                kept = tape.producer(one, value)
                yield Shortcut(one.place, "skip", argument, 1.0 - weights.needed_share({one.place: kept}))


def _covers(tape: Tape, found: Shortcut, one: Shortcut) -> bool:
    """Returns True if a change concerns the operation of a found one, or one that the found change makes needless."""
    kept = tape.operations[found.place].args[found.argument] if found.kind == "skip" else None
    needed = tape.live({found.place: tape.producer(tape.operations[found.place], kept)})
    return one.place == found.place or one.place not in needed


def change_of(one: Shortcut, mean: float) -> Change:
    """Returns the change that a shortcut makes."""

    def changed(operation: TapeOperation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if one.kind == "skip":
            return args[one.argument].clone()
        inplace = args[0] if operation.writes else None
        made = torch.empty_like(inplace) if inplace is not None else operation.target(*args, **kwargs)
        first = made[0] if isinstance(made, tuple | list) else made
        flat = torch.zeros_like(first) if one.kind == "zeros" else torch.full_like(first, mean)
        return type(made)([flat, *made[1:]]) if isinstance(made, tuple | list) else flat

    return changed


def _means(subject: Subject) -> dict[int, float]:
    """Returns the mean of each operation's result for the inputs of the calibration's seed."""
    found: dict[int, float] = {}

    def watch(one: TapeOperation, _before: Sequence[Any], _args: Sequence[Any], made: Any) -> None:
        first = made[0] if isinstance(made, tuple | list) and made else made
        if torch.is_tensor(first) and first.numel() and not first.is_complex():
            found[one.place] = first.double().mean().item()

    subject.replay(subject.own(CALIBRATION), watch=watch)
    return found


def _miss(subject: Subject, one: Shortcut, wanted: Sequence[Outputs], means: Mapping[int, float]) -> float:
    """Returns the largest deviation of the results with a change at the checks' seeds; infinite if it cannot be made."""
    worst = 0.0
    mean = means.get(one.place, 0.0)
    for seed, want in zip(CHECKS, wanted, strict=True):
        try:
            made = subject.replay(subject.own(seed), {one.place: change_of(one, mean)})
        except Exception:  # noqa: BLE001 -- a later operation does not take the changed result, so nothing is saved by it
            return float("inf")
        worst = max(worst, subject.misses(made, want))
        if worst > 1.0:
            break
    return worst


def _confirmed(full: Subject, found: Sequence[Shortcut]) -> list[Shortcut]:
    """Returns the shortcuts that also hold at the task's own sizes."""
    if not found:
        return []
    wanted = [full.replay(full.own(seed)) for seed in CHECKS]
    means = _means(full)
    kept = []
    for one in sorted(found, key=lambda one: -one.saved)[: 2 * MOST_SHOWN]:
        miss = _miss(full, one, wanted, means)
        if miss <= 1.0:
            kept.append(Shortcut(one.place, one.kind, one.argument, one.saved, miss))
    return kept


def _intermediates(subject: Subject) -> list[Shortcut]:
    """Returns the earliest result of an operation that passes as the module's own result, if there is one."""
    wanted = [subject.replay(subject.own(seed)) for seed in CHECKS]
    if len(wanted[0]) != 1:
        return []
    passing: list[set[int]] = []
    for seed, want in zip(CHECKS, wanted, strict=True):
        places: set[int] = set()

        def watch(
            one: TapeOperation, _before: Sequence[Any], _args: Sequence[Any], made: Any,
            places: set[int] = places, want: Outputs = want,
        ) -> None:  # fmt: skip
            if (
                torch.is_tensor(made)
                and (made.shape, made.dtype) == (want[0].shape, want[0].dtype)
                and subject.misses((made,), want) <= 1.0
            ):
                places.add(one.place)

        inputs = subject.own(seed)
        subject.replay(inputs, watch=watch)
        passing.append(places)
    tape = subject.weights
    ends = {place for end in tape.ends for place in _same_value(tape, end)}
    for place in sorted(set.intersection(*passing) - ends):
        whole = sum(tape.operations[one].seconds for one in tape.live())
        needed = sum(tape.operations[one].seconds for one in tape.needed([place]))
        if whole and 1.0 - needed / whole >= WORTH_A_NOTE:
            return [Shortcut(place, "returned", 0, 1.0 - needed / whole)]
    return []


def _same_value(tape: Tape, place: int) -> Iterator[int]:
    """Yields an operation and those whose values it only views."""
    yield place
    if tape.operations[place].view:
        for before in tape.operations[place].after:
            yield from _same_value(tape, before)


def _finding(tape: Tape, one: Shortcut, where: str) -> TaskFinding:
    operation = tape.operations[one.place]
    how = {
        "zeros": f"zeros in place of {operation.name}",
        "mean": f"one number, the mean for other inputs, in place of {operation.name}",
        "skip": f"{operation.name} left out",
        "returned": f"the result of {operation.name} returned as it is",
    }[one.kind]
    kind: Any = "error" if one.saved >= WORTH else "note"
    return TaskFinding(
        "part-suffices", kind,
        f"With {how} the output stays within {one.miss:.2g} tolerances{where}, and {one.saved:.0%} of an eager call's least time is saved.",
        operation.line,
    )  # fmt: skip


def input_returned(subject: Subject, wanted: Sequence[Outputs]) -> TaskFinding | None:
    """Returns a finding if one of the inputs passes as the output."""
    for place, name in enumerate(subject.loaded.names):
        given = [copies(subject.own(seed))[place] for seed in CHECKS]
        if all(
            torch.is_tensor(one)
            and len(want) == 1
            and one.shape == want[0].shape
            and subject.misses((one,), want) <= 1.0
            for one, want in zip(given, wanted, strict=True)
        ):
            line = subject.tape.last_line
            return TaskFinding("part-suffices", "error", f"The input {name} passes as the output: returning it computes nothing.", line)  # fmt: skip
    return None
