"""Finds work that a task's reference wastes: results without use, repeated and idle operations, structured products.

A speed-up over such a reference says how much it wastes, not how good a kernel is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmate_torch.kernelbench.audited_task import CHECKS, OTHERS, Subject
from kernelmate_torch.kernelbench.records import TaskFinding
from kernelmate_torch.kernelbench.shortcuts import computes, is_guard
from kernelmate_torch.kernelbench.tape import Tape, TapeOperation, ValueRef

WORTH = 0.05
"""Share of the least time of an eager call from which waste excludes the task."""
IDLE_SHARE = 0.5
"""Share of the operations, however short, that return their argument from which they exclude the task."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
SMALLEST = 8
"""Smallest side of a matrix whose structure is examined."""
EQUAL = 1e-5
"""Deviation, relative to the largest magnitude, up to which two results of an operation are the same."""
READ_BY_PYTHON = "aten._local_scalar_dense.default"
"""Operation by which Python reads a value: `item`, `bool` and `int` of a tensor."""
DRAWS = ("dropout", "rand", "bernoulli", "normal", "uniform", "multinomial", "exponential")


def static_findings(tape: Tape) -> list[TaskFinding]:
    """Returns findings that follow from the tape: results without use, repetitions, wide dtypes, work without inputs."""
    return [*_unused(tape), *_repeated(tape), *_wide(tape), *_independent(tape)]


def _severity(share: float) -> Any:
    return "error" if share >= WORTH else "note"


def _share(tape: Tape, places: Sequence[int]) -> float:
    whole = tape.seconds
    return sum(tape.operations[one].seconds for one in places) / whole if whole else 0.0


def _by_line(tape: Tape, places: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place in places:
        found.setdefault(tape.operations[place].line, []).append(place)
    return found


def _names(tape: Tape, places: Sequence[int]) -> str:
    return ", ".join(dict.fromkeys(tape.operations[one].name for one in places))


def _unused(tape: Tape) -> list[TaskFinding]:
    live = tape.live()
    kept = _state_writers(tape) | _read_by_python(tape)
    used = {tape.operations[place].call for place in live}  # of several results of one call some may be needless
    dead = [
        one.place
        for one in tape.operations
        if one.place not in live and one.call not in used and computes(one) and one.place not in kept
    ]
    severity = _severity(_share(tape, dead))
    return [
        TaskFinding("unused-work", severity, f"The result of {_names(tape, places)} is not used: {_share(tape, places):.0%} of an eager call's least time.", line)
        for line, places in _by_line(tape, dead).items()
    ]  # fmt: skip


def _state_writers(tape: Tape) -> set[int]:
    """Returns the positions of operations that change buffers, and of those that they need: statistics, counters."""
    external = set(tape.externals)
    return tape.needed(one.place for one in tape.operations if one.writes and external.intersection(one.reads))


def _read_by_python(tape: Tape) -> set[int]:
    """Returns the positions of operations on whose values Python code depends: control flow, `item`, lists."""
    return tape.needed(one.place for one in tape.operations if str(one.target) == READ_BY_PYTHON)


def _repeated(tape: Tape) -> list[TaskFinding]:
    """Returns findings about operations that have the operator and arguments of an earlier one."""
    canonical: dict[int, Any] = {}
    seen: dict[Any, int] = {}
    repeated: list[int] = []
    firsts: dict[int, int] = {}
    inner = tape.inner()
    for one in tape.operations:
        key = (str(one.target), _key(one.args, canonical), _key(sorted(one.kwargs.items()), canonical))
        if one.writes or any(word in one.name for word in DRAWS) or _touches_written(tape, one):
            continue
        if key in seen:
            for number, first in zip(one.outs, tape.operations[seen[key]].outs, strict=True):
                if number is not None and first is not None:
                    canonical[number] = canonical.get(first, first)
            if computes(one) and one.place not in inner:
                repeated.append(one.place)
                firsts[one.place] = tape.operations[seen[key]].line
        else:
            seen[key] = one.place
    found = []
    severity = _severity(_share(tape, repeated))
    for line, places in _by_line(tape, repeated).items():
        share = _share(tape, places)
        also = "" if firsts[places[0]] == line else f", as in line {firsts[places[0]]}"
        found.append(TaskFinding("repeated-work", severity, f"{_names(tape, places)} is computed again with the same arguments{also}: {share:.0%} of an eager call's least time.", line))  # fmt: skip
    return found


def _touches_written(tape: Tape, one: TapeOperation) -> bool:
    """Returns True if any operation changes an argument's memory, so that a later read may give other values."""
    return any(tape.operations[place].writes for place in one.after)


def _key(tree: Any, canonical: Mapping[int, Any]) -> Any:
    if isinstance(tree, ValueRef):
        return ("value", canonical.get(tree.number, tree.number))
    if isinstance(tree, list | tuple):
        return tuple(_key(one, canonical) for one in tree)
    return repr(tree)


def _wide(tape: Tape) -> list[TaskFinding]:
    """Returns findings about operations in float64 where neither inputs nor outputs are."""
    ends = [*tape.inputs, *tape.outputs]
    if any(number is not None and tape.facts[number][1] == torch.float64 for number in ends):
        return []
    inner = tape.inner()
    wide = [
        one.place for one in tape.operations
        if computes(one) and one.place not in inner and any(number is not None and tape.facts[number][1] == torch.float64 for number in one.outs)
    ]  # fmt: skip
    return [
        TaskFinding("wide-type", _severity(_share(tape, places)), f"{_names(tape, places)} is computed in float64, while inputs and outputs are not: {_share(tape, places):.0%} of an eager call's least time.", line)
        for line, places in _by_line(tape, wide).items()
    ]  # fmt: skip


def _independent(tape: Tape) -> list[TaskFinding]:
    """Returns findings about work that depends on no input, such as masks and products of parameters."""
    reached = tape.reach(number for number in tape.inputs if number is not None)
    live = tape.live()
    inner = tape.inner()
    idle = [one.place for one in tape.operations if one.place in live and one.place not in reached and one.place not in inner and not one.view and not any(word in one.name for word in DRAWS)]  # fmt: skip
    found = []
    for line, places in _by_line(tape, idle).items():
        share = _share(tape, places)
        if share >= WORTH:
            found.append(TaskFinding("constant-work", "error", f"{_names(tape, places)} depends on no input and is computed at every call: {share:.0%} of an eager call's least time.", line))  # fmt: skip
    return found


@dataclass
class _Seen:
    """Observations of an operation at all inputs so far.

    Attributes:
        same_as: arguments that equalled the result each time.
        value: its first result; None once another differed.
        structure: of its matrices at the checks' inputs, in words; empty for none.
    """

    same_as: set[int] = field(default_factory=set)
    value: torch.Tensor | None = None
    calls: int = 0
    structure: str = ""
    symmetric: str = ""


def measured_findings(subject: Subject) -> list[TaskFinding]:
    """Returns findings from the values of all operations at several seeds and distributions.

    They are operations that return an argument unchanged, operations that give the same for all inputs, and products of
    diagonal, triangular and symmetric matrices.
    """
    tape = subject.tape
    seen = {one.place: _Seen() for one in tape.operations if computes(one)}
    draws = [subject.own(seed) for seed in CHECKS]
    for inputs in draws:
        subject.replay(inputs, watch=_watcher(seen, structure=True))
    for distribution, seed in OTHERS:
        try:
            subject.replay(subject.others(distribution, seed), watch=_watcher(seen, structure=False))
        except Exception:  # noqa: BLE001, S112 -- the module does not take such inputs
            continue
    weights = subject.weights
    return [*_identities(weights, seen), *_constants(weights, seen), *_structures(weights, seen)]


def _watcher(seen: Mapping[int, _Seen], *, structure: bool) -> Callable[..., None]:
    def watch(one: TapeOperation, before: Sequence[Any], args: Sequence[Any], made: Any) -> None:
        if one.place not in seen:
            return
        facts = seen[one.place]
        first = made[0] if isinstance(made, tuple | list) else made
        _note_value(facts, before, first)
        if structure and one.name in PRODUCTS:
            left, right = args[-2:] if one.name in ("mm", "bmm") else args[1:3]
            _note_structure(facts, left, right, first)

    return watch


def _note_value(facts: _Seen, before: Sequence[Any], made: torch.Tensor) -> None:
    same = {
        place for place, value in enumerate(before)
        if torch.is_tensor(value) and value.is_floating_point() and value.shape == made.shape and value.dtype == made.dtype and torch.equal(value, made)
    }  # fmt: skip
    facts.same_as = same if facts.calls == 0 else facts.same_as & same
    if facts.calls == 0:
        facts.value = made.clone() if made.is_floating_point() and made.numel() else None
    elif facts.value is not None:
        scale = facts.value.abs().max()
        if facts.value.shape != made.shape or not bool(((facts.value - made).abs() <= EQUAL * scale).all()):
            facts.value = None
    facts.calls += 1


def _note_structure(facts: _Seen, left: torch.Tensor, right: torch.Tensor, made: torch.Tensor) -> None:
    words, symmetric = [], []
    for side, matrix in (("left", left), ("right", right)):
        structure = _structure(matrix)
        if structure in ("diagonal", "triangular"):
            words.append(f"the {side} matrix is {structure}")
        elif structure:
            symmetric.append(f"the {side} matrix is symmetric")
    if not words and _structure(made) == "symmetric":
        words.append("the product is symmetric")
    facts.structure = facts.structure or " and ".join(words)
    facts.symmetric = facts.symmetric or " and ".join(symmetric)


def _structure(matrix: torch.Tensor) -> str:
    """Returns `diagonal`, `triangular` or `symmetric` for square matrices of this kind, else an empty text."""
    side = matrix.shape[-1]
    if matrix.dim() < 2 or matrix.shape[-2] != side or side < SMALLEST or not bool(torch.isfinite(matrix).all()):
        return ""
    lower, upper = bool(torch.tril(matrix, -1).any()), bool(torch.triu(matrix, 1).any())
    if not lower and not upper:
        return "diagonal" if bool(matrix.any()) else ""
    if not lower or not upper:
        return "triangular"
    largest = matrix.abs().max()
    return "symmetric" if bool(((matrix - matrix.mT).abs() <= EQUAL * largest).all()) else ""


def _identities(tape: Tape, seen: Mapping[int, _Seen]) -> list[TaskFinding]:
    live, inner = tape.live(), tape.inner()
    idle = [
        place for place, facts in seen.items()
        if facts.same_as and place in live and place not in inner and not is_guard(tape.operations[place]) and "dropout" not in tape.operations[place].name
    ]  # fmt: skip
    count = sum(computes(tape.operations[place]) for place in live)
    severity: Any = "error" if idle and len(idle) >= IDLE_SHARE * count else _severity(_share(tape, idle))
    return [
        TaskFinding("identity", severity, f"{_names(tape, places)} returns its argument unchanged for all {seen[places[0]].calls} inputs tried: {_share(tape, places):.1%} of an eager call's least time, {len(idle)} of {count} operations in all.", line)
        for line, places in _by_line(tape, idle).items()
    ]  # fmt: skip


def _constants(tape: Tape, seen: Mapping[int, _Seen]) -> list[TaskFinding]:
    """Returns findings about the first operations whose result is the same for all inputs, although they read them."""
    reached = tape.reach(number for number in tape.inputs if number is not None)
    live = tape.live()
    constant = {place for place, facts in seen.items() if facts.value is not None and facts.calls > 2 and place in reached and place in live}  # fmt: skip
    found = []
    for place in sorted(constant):
        one = tape.operations[place]
        if constant.intersection(_sources(tape, place)) or one.writes:
            continue
        saved = 1.0 - tape.needed_share({place: ()})
        value = seen[place].value
        assert value is not None
        shown = f"{value.reshape(-1)[0].item() + 0.0:.4g}" if bool((value - value.reshape(-1)[0]).abs().max() <= EQUAL * value.abs().max()) else "the same numbers"  # fmt: skip
        found.append(TaskFinding("constant-work", _severity(saved), f"{one.name} gives {shown} for all {seen[place].calls} inputs tried: {saved:.0%} of an eager call's least time is not needed.", one.line))  # fmt: skip
    return found


def _sources(tape: Tape, place: int) -> set[int]:
    found: set[int] = set()
    left = list(tape.operations[place].after)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += tape.operations[one].after
    return found


def _structures(tape: Tape, seen: Mapping[int, _Seen]) -> list[TaskFinding]:
    found = []
    for place, facts in seen.items():
        one = tape.operations[place]
        share = _share(tape, [place])
        if facts.structure:
            needed = "n^2 multiplications instead of n^3" if "diagonal" in facts.structure else "half of the multiplications or less"  # fmt: skip
            found.append(TaskFinding("structured-product", _severity(share), f"{one.name} computes a whole product although {facts.structure}: {needed} suffice, and it is {share:.0%} of an eager call's least time.", one.line))  # fmt: skip
        elif facts.symmetric:
            found.append(TaskFinding("symmetric-operand", "note", f"{one.name} reads a whole matrix although {facts.symmetric}: the multiplications are the same, half of the bytes suffice.", one.line))  # fmt: skip
    return found
