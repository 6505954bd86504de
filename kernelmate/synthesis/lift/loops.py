"""Loops of a thread: converts counting loops to reductions, scans and maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelmate.synthesis.lift.arithmetic import binary
from kernelmate.synthesis.lift.flattening import fresh
from kernelmate.synthesis.lift.memory import with_fixed_threads
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.sharing import SharedArray
from kernelmate.synthesis.lift.values import (
    MAP_OF,
    NEUTRAL,
    REDUCTION_OF,
    TRUE,
    ArrayLoad,
    Held,
    Index,
    Number,
    Op,
    ScanValue,
    Spread,
    Substitution,
    fold,
    free,
    held,
    is_neutral,
    operation,
)

if TYPE_CHECKING:
    from kernelmate.synthesis.lift.file import Node
    from kernelmate.synthesis.lift.machine import ThreadMachine
    from kernelmate.synthesis.lift.statements import Statements

_GREATER = {"greater": 1, "greater_equal": 1, "less": -1, "less_equal": -1}


def decomposed(value: Any, name: str, space: Space) -> tuple[str, Any]:
    """Splits an updated value into a reduction of its previous value and an operand; returns both."""
    match value:
        case Held(name=found) if found == name:
            return "", None
        case Index(poly=poly) if poly.coefficient(f"?{name}") == Poly.number(1):
            rest = poly - Poly.name(f"?{name}")
            return ("", None) if not rest.terms else ("sum", Index(rest))
        case Op(name="cast", args=(inner,)):
            return decomposed(inner, name, space)
        case Op(name="select", args=(condition, first, second)):
            return _selected(condition, first, second, name, space)
        case Op(name="subtract", args=(first, second)) if name in held(first) and name not in held(second):
            op, more = decomposed(first, name, space)
            less = binary("-", Number(0.0), second, space) if more is None else binary("-", more, second, space)
            less = Op("negative", (second,), second.kind) if more is None else less
            return _same(op, "sum", name), less
        case Op(name=how, args=(first, second)) if how in REDUCTION_OF:
            if name in held(second):
                first, second = second, first
            if name in held(second):
                raise NotLifted(f"`{name}` is combined with itself")
            op, more = decomposed(first, name, space)
            return _same(op, REDUCTION_OF[how], name), second if more is None else Op(how, (more, second), value.kind)
    raise NotLifted(f"`{name}` carries more from one iteration to the next than a sum, product, minimum or maximum")


def _same(first: str, second: str, name: str) -> str:
    if first and second and first != second:
        raise NotLifted(f"`{name}` carries more from one iteration to the next than a sum, product, minimum or maximum")
    return first or second


def _selected(condition: Any, first: Any, second: Any, name: str, space: Space) -> tuple[str, Any]:
    if name in held(condition):
        match condition:
            case Op(name=sign, args=(left, right)) if sign in _GREATER:
                greater = _GREATER[sign]
                if _is(left, name):
                    left, right, greater = right, left, -greater
                if _is(right, name) and {first, second} == {left, right}:
                    return ("max" if (first == left) == (greater > 0) else "min"), left
        raise NotLifted(f"a condition depends on `{name}`, which earlier iterations made")
    sides = [decomposed(one, name, space) for one in (first, second)]
    op = _same(sides[0][0], sides[1][0], name)
    values = [Number(NEUTRAL[op]) if one is None else one for _, one in sides]
    kind = next(one.kind for _, one in sides if one is not None)
    return op, operation("select", (condition, *values), kind, space)


def _is(value: Any, name: str) -> bool:
    return value == Index(Poly.name(f"?{name}")) or (isinstance(value, Held) and value.name == name)


@dataclass(frozen=True)
class LoopStep:
    """Update of the loop variable: `by` is added, or the variable is shifted or multiplied by it."""

    by: Poly
    geometric: str = ""


@dataclass(frozen=True)
class LiftedLoop:
    """A counting loop; `counts_last` is True if the last statement of the body updates the variable."""

    node: Node
    name: str
    sign: str
    bound: Node
    step: LoopStep
    body: Node
    counts_last: bool


def read_loop(machine: ThreadMachine, node: Node) -> LiftedLoop:
    """Reads a loop as a counting loop.

    Raises:
        NotLifted: the loop is not a counting loop.
    """
    condition, update, body = (node.child_by_field_name(one) for one in ("condition", "update", "body"))
    counts_last = node.type == "while_statement"
    if condition is not None and condition.type == "condition_clause":
        condition = condition.child_by_field_name("value")
    if (
        counts_last
        and body is not None
        and body.named_children
        and body.named_children[-1].type == "expression_statement"
    ):
        update = body.named_children[-1].named_children[0]
    if condition is None or update is None or body is None or condition.type != "binary_expression":
        raise NotLifted("a loop that does not count", machine.line(node))
    name, step = _step(machine, update)
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    sign = machine.text(condition.child_by_field_name("operator"))
    if machine.text(right) == name:
        left, right, sign = right, left, {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(sign, sign)
    if (
        machine.text(left) != name
        or right is None
        or sign not in ("<", "<=", ">", ">=")
        or name not in machine.state.names
    ):
        raise NotLifted("a loop that does not count, but ends on a value", machine.line(node))
    return LiftedLoop(node, name, sign, right, step, body, counts_last)


def _step(machine: ThreadMachine, update: Node) -> tuple[str, LoopStep]:
    if update.type == "update_expression":
        name = machine.text(update.child_by_field_name("argument"))
        return name, LoopStep(Poly.number(1 if "++" in machine.text(update) else -1))
    left, right = update.child_by_field_name("left"), update.child_by_field_name("right")
    sign = machine.text(update.child_by_field_name("operator"))
    if update.type != "assignment_expression" or left is None or right is None:
        raise NotLifted("a loop that does not count", machine.line(update))
    name = machine.text(left)
    if sign == "=" and right.type == "binary_expression" and machine.text(right.child_by_field_name("left")) == name:
        sign = machine.text(right.child_by_field_name("operator")) + "="
        right = right.child_by_field_name("right")
    if right is None or sign not in ("+=", "-=", ">>=", "<<=", "/=", "*="):
        raise NotLifted("a loop that does not count", machine.line(update))
    by = machine.plain(machine.number(right))
    if not isinstance(by, Index):
        raise NotLifted("a loop whose step is a value", machine.line(update))
    if sign in ("+=", "-="):
        return name, LoopStep(by.poly if sign == "+=" else -by.poly)
    return name, LoopStep(by.poly, sign[:-1])


def unrolled_values(machine: ThreadMachine, loop: LiftedLoop, most: int) -> list[int] | None:
    """Returns the values of the loop variable if they are constant and at most `most`; else None."""
    start, bound = machine.state.names[loop.name], machine.plain(machine.number(loop.bound))
    by = loop.step.by.constant
    if not isinstance(start, Index) or not isinstance(bound, Index) or by is None:
        return None
    value, end = start.poly.constant, bound.poly.constant
    if value is None or end is None:
        return None
    found: list[int] = []
    while {"<": value < end, "<=": value <= end, ">": value > end, ">=": value >= end}[loop.sign]:
        found.append(value)
        if len(found) > most:
            return None
        value = _next(value, by, loop.step.geometric)
        if found[-1] == value:
            return None
    return found


def _next(value: int, by: int, sign: str) -> int:
    """Returns the loop variable's value in the next iteration; the same value if the update is invalid."""
    if sign == "":
        return value + by
    if by < 0 or by > 64:
        return value
    return {">>": value >> by, "<<": value << by, "*": value * by, "/": value // (by or 1)}[sign]


def _counted(machine: ThreadMachine, loop: LiftedLoop) -> tuple[Poly, Poly | None, Any]:
    """Returns the variable's first value, the iteration count if it is uniform over threads, and the length."""
    start, bound = machine.plain(machine.state.names[loop.name]), machine.plain(machine.number(loop.bound))
    if not isinstance(start, Index) or not isinstance(bound, Index):
        raise NotLifted("a loop between bounds that are read from an array", machine.line(loop.node))
    step, first, end = loop.step.by, start.poly, bound.poly
    down = loop.sign in (">", ">=")
    if loop.sign in ("<=", ">="):
        end = end - 1 if down else end + 1
    length, stride = (first - end, -step) if down else (end - first, step)
    if (stride.constant or 1) < 0:
        raise NotLifted("a loop that never ends", machine.line(loop.node))
    if not free(Index(length)) | free(Index(stride)):
        return first, machine.space.quotient(length + stride - 1, stride), TRUE
    return first, None, length


def summarised(run: Statements, loop: LiftedLoop, body: Sequence[Node]) -> None:
    """Execute the body once, for an arbitrary iteration, and set each name to its value after all iterations.

    Raises:
        NotLifted: a name carries a value between iterations that is not the result of a reduction.
    """
    machine = run.machine
    first, extent, length = _counted(machine, loop)
    variable = fresh(machine.space, extent, "k")
    number = Poly.name(variable)
    guard: Any = TRUE
    if extent is None:
        stride = -loop.step.by if loop.sign in (">", ">=") else loop.step.by
        guard = operation("negative?", (Index(stride * number - length),), "bool", machine.space)
    before = dict(machine.state.names)
    before[loop.name] = Index(first + loop.step.by * number)
    changed = _changed(machine, loop, before)
    inductions: dict[str, Poly] = {}
    marks = _Marks(machine)
    for _ in range(2):
        _begin(machine, before, changed, inductions, number)
        _iterate(run, body, variable, guard)
        found = {} if inductions else _inductions(machine, before, changed, variable)
        if not found:
            break
        inductions = found
        marks.restore()
    marks.refuse_races()
    _finish(machine, before, changed, inductions, (variable, extent, guard), marks.stores)
    ended = first + loop.step.by * extent if extent is not None else None
    machine.state.names[loop.name] = None if ended is None else Index(ended)


class _Marks:
    """Numbers of stores, loads and shared accesses before a loop."""

    def __init__(self, machine: ThreadMachine) -> None:
        self.machine, state = machine, machine.state
        self.stores, self.loads, self.epoch = len(state.stores), len(state.loads), state.epoch
        self.shared = [
            (one, len(one.writes), len(one.reads)) for one in state.names.values() if isinstance(one, SharedArray)
        ]

    def restore(self) -> None:
        """Discards the effects of the loop."""
        state = self.machine.state
        del state.stores[self.stores :], state.loads[self.loads :]
        state.epoch = self.epoch
        for array, writes, reads in self.shared:
            del array.writes[writes:], array.reads[reads:]

    def refuse_races(self) -> None:
        """Checks for races between iterations on shared memory.

        Raises:
            NotLifted: an iteration reads an element while the next one writes it.
        """
        epoch = self.machine.state.epoch
        for array, writes, reads in self.shared:
            early = [one for one in array.writes[writes:] if one.epoch == self.epoch and not one.op]
            late = [one for one in array.reads[reads:] if one[1] == epoch]
            if any(read[0] != write.at for write in early for read in late):
                raise NotLifted(
                    f"a race: {array.name} is written for the next iteration with no barrier after it is read"
                )


def _changed(machine: ThreadMachine, loop: LiftedLoop, before: dict[str, Any]) -> list[str]:
    found = []
    for node in machine.walk(loop.body, "assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        kept = machine.state.kept.get(machine.text(target))
        if kept is not None and kept not in found:
            found.append(kept)
        while target is not None and target.type == "subscript_expression":
            target = target.child_by_field_name("argument")
        name = machine.text(target)
        if name == loop.name and not loop.counts_last:
            raise NotLifted("a loop whose body changes its count", machine.line(node))
        own = target is not None and target.parent is not None and target.parent.type != "subscript_expression"
        known = name in before and name != loop.name and name not in found and not isinstance(before[name], SharedArray)
        if known and (own or hasattr(before[name], "values")):
            found.append(name)
    return found


def _begin(
    machine: ThreadMachine, before: dict[str, Any], changed: Sequence[str], inductions: dict[str, Poly], number: Poly
) -> None:
    names = dict(before)
    for name in changed:
        value = before[name]
        if value is None:
            continue
        by = inductions[name] * number if name in inductions else Poly.name(f"?{name}")
        if isinstance(value, Index):
            names[name] = Index(value.poly + by if name in inductions else by)
        elif hasattr(value, "values"):
            raise NotLifted("a thread's own array is changed in a loop")
        else:
            address = hasattr(value, "array") and not isinstance(value, ArrayLoad)
            names[name] = replace(value, at=value.at + by) if address else Held(name, value.kind)
    machine.state.names = names


def _iterate(run: Statements, body: Sequence[Node], variable: str, guard: Any) -> None:
    state = run.machine.state
    path, loops = state.path, state.loops
    state.path, state.loops = (path if guard == TRUE else (*path, guard)), (*loops, variable)
    run.depth += 1
    run.sequence(body)
    run.depth -= 1
    state.path, state.loops = path, loops


def _inductions(
    machine: ThreadMachine, before: dict[str, Any], changed: Sequence[str], variable: str
) -> dict[str, Poly]:
    """Returns the constant increment per iteration of integers and addresses, by name."""
    found = {}
    for name in changed:
        value, old = machine.state.names.get(name), before[name]
        poly = value.poly if isinstance(value, Index) else getattr(value, "at", None)
        if not isinstance(poly, Poly) or poly.coefficient(f"?{name}") != Poly.number(1):
            continue
        by = poly - Poly.name(f"?{name}")
        if not isinstance(value, Index):
            by = by - old.at
        moving = {one for one in free(Index(by)) if one.startswith("?") or one == variable}
        if by.terms and not moving:
            found[name] = by
    return found


def _finish(
    machine: ThreadMachine, before: dict[str, Any], changed: Sequence[str], inductions: dict[str, Poly],
    count: tuple[str, Poly | None, Any], first_store: int,
) -> None:  # fmt: skip
    """Sets each name's value after the loop, and converts the loop's stores to values over all iterations."""
    variable, extent, guard = count
    state, space = machine.state, machine.space
    after = state.names
    running: dict[str, Any] = {}
    state.names = dict(before.items())
    for name in changed:
        new, old = after.get(name), before[name]
        if name in inductions:
            by = None if extent is None else inductions[name] * extent
            moved = Index(old.poly + by) if by is not None and isinstance(old, Index) else None
            state.names[name] = replace(old, at=old.at + by) if by is not None and not isinstance(old, Index) else moved
            continue
        new = machine.block.resolved(new, state.path) if isinstance(new, Spread) else new
        symbol = Index(Poly.name(f"?{name}")) if isinstance(old, Index) else Held(name, getattr(old, "kind", ""))
        if new == symbol or new is old:
            continue
        if new is None or old is None or not hasattr(new, "kind") or not held(new):
            state.names[name] = None
            continue
        op, body = decomposed(new, name, space)
        if body is None or held(body):
            raise NotLifted(
                f"`{name}` carries more from one iteration to the next than a sum, product, minimum or maximum"
            )
        old = machine.plain(old)
        state.names[name] = _reduced(machine, op, body, old, (variable, extent, guard), name)
        scan = ScanValue(op, variable, body, exclusive=True, kind=body.kind)
        running[name] = scan if is_neutral(old, op) else Op(MAP_OF[op], (old, scan), body.kind)
    _running(state.stores, first_store, running, space)


def _running(stores: list[Any], first: int, running: dict[str, Any], space: Space) -> None:
    """Converts stores of values accumulated so far to stores of a scan."""
    put = Substitution(space, {}, running)
    for place in range(first, len(stores)):
        store = stores[place]
        if held(Index(store.at)) or any(held(one) for one in store.path):
            raise NotLifted("an index or a guard depends on what earlier iterations did", store.line)
        missing = held(store.value) - running.keys()
        if missing:
            raise NotLifted(
                f"`{sorted(missing)[0]}` is stored while it is carried from one iteration to the next", store.line
            )
        if held(store.value):
            stores[place] = replace(store, value=_inclusive(put.value(store.value)))


def _inclusive(value: Any) -> Any:
    """Replaces `exclusive scan + element` by an inclusive scan throughout a value."""
    if not isinstance(value, Op):
        return value
    args = tuple(map(_inclusive, value.args))
    for one, other in (args, args[::-1]) if len(args) == 2 else ():
        if isinstance(one, ScanValue) and one.exclusive and one.body == other and value.name == MAP_OF[one.op]:
            return replace(one, exclusive=False)
        if (
            isinstance(one, ScanValue)
            and one.exclusive
            and one.body == other
            and REDUCTION_OF.get(value.name) == one.op
        ):
            return replace(one, exclusive=False)
    return Op(value.name, args, value.kind)


def _reduced(
    machine: ThreadMachine, op: str, body: Any, old: Any, count: tuple[str, Poly | None, Any], name: str
) -> Any:
    variable, extent, guard = count
    space = machine.space
    before = Substitution(space, {variable: Poly.number(-1)})
    kind = body.kind if body.kind != "index" else "int64"
    if guard == TRUE and extent is not None and _alike(machine, old, before.value(body)):
        longer = fresh(space, extent + 1, "k")
        return fold(op, (longer,), Substitution(space, {variable: Poly.name(longer) - 1}).value(body), kind, name)
    body = operation("select", (guard, body, Number(NEUTRAL[op])), kind, space)
    found = fold(op, (variable,), body, kind, name)
    if is_neutral(old, op):
        return found
    return Op(MAP_OF[op], (old, found), kind)


def _alike(machine: ThreadMachine, first: Any, second: Any) -> bool:
    path, names = machine.state.path, machine.block.names
    return bool(
        with_fixed_threads(first, path, names, machine.space) == with_fixed_threads(second, path, names, machine.space)
    )
