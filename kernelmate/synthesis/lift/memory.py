"""Elements of arguments that a kernel both reads and writes: forwarding of stored values, and races between threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelmate.synthesis.lift.flattening import fresh
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.values import Op, Substitution, parts

if TYPE_CHECKING:
    from kernelmate.synthesis.lift.file import Node, Pointer, ThreadState
    from kernelmate.synthesis.lift.loops import LiftedLoop
    from kernelmate.synthesis.lift.machine import ThreadMachine


def matching(place: Poly, wanted: Poly, unknown: Sequence[str], space: Space) -> dict[str, Poly] | None:
    """Solves for the variables that make one index equal another; None if they are not determined."""
    names = [name for name in unknown if place.coefficient(name).terms]
    known: dict[str, Poly] = {}
    rest = wanted
    for name in names:
        like = [
            str(one) for one in wanted.factors()
            if isinstance(one, str) and one.startswith("%") and wanted.coefficient(one) == place.coefficient(name)
        ]  # fmt: skip
        if len(like) != 1:
            break
        known[name] = Poly.name(like[0])
    else:
        put = Substitution(space, known)
        return known if put.poly(place) == rest else None
    if len(names) == 1 and place.coefficient(names[0]).constant in (1, -1):
        scale = place.coefficient(names[0])
        return {names[0]: (wanted - place + scale * Poly.name(names[0])) * scale}
    return None


def stored(state: ThreadState, pointer: Pointer, space: Space, line: int) -> Any:
    """Returns the value that this thread stored at an address; None if it stored nothing in the array.

    Raises:
        NotLifted: another thread may have stored it, or another guard applies.
    """
    mine = [one for one in state.stores if one.array == pointer.array]
    if not mine:
        return None
    last = mine[-1]
    closed = [name for name in last.loops if name not in state.loops]
    renamed = {name: fresh(space, space.extents.get(name), "m") for name in closed}
    away = Substitution(space, {old: Poly.name(new) for old, new in renamed.items()})
    known = matching(away.poly(last.at), pointer.at, list(renamed.values()), space)
    if known is None or last.op or len({one.at for one in mine}) > 1:
        raise NotLifted(f"{pointer.array} is read after it is written, maybe by another thread", line)
    put = Substitution(space, known)
    open_parts = {part for one in state.path for part in parts(one)}
    for condition in last.path:
        inside = put.value(away.value(condition))
        if not set(parts(inside)) <= open_parts:
            raise NotLifted(f"{pointer.array} is read where it may not have been written", line)
    return put.value(away.value(last.value))


def refuse_races(state: ThreadState, threads: Sequence[str], space: Space) -> None:
    """Checks that no thread reads an element of an argument that another thread writes.

    Raises:
        NotLifted: a thread does; the error has the line of the assignment.
    """
    for array, at, epoch, loops in state.loads:
        for store in state.stores:
            if store.array != array:
                continue
            if _same_thread(at, loops, store.at, store.loops, (), space):
                continue
            if epoch < store.epoch and _same_thread(at, loops, store.at, store.loops, threads, space):
                continue
            raise NotLifted(f"a race: threads read elements of {array} that others write", store.line)


def _same_thread(
    read: Poly, read_loops: Sequence[str], written: Poly, loops: Sequence[str], threads: Sequence[str], space: Space
) -> bool:
    """Returns True if an element's reader is its writer; if `threads` may differ, a thread of the same block."""
    inner = [name for name in (*read_loops, *threads) if name not in loops or name in threads]
    renamed = {name: fresh(space, space.extents.get(name), "r") for name in inner}
    away = Substitution(space, {old: Poly.name(new) for old, new in renamed.items()})
    known = matching(away.poly(read), written, list(renamed.values()), space)
    return known is not None and Substitution(space, known).poly(away.poly(read)) == written


def with_fixed_threads(value: Any, path: Sequence[Any], threads: Sequence[str], space: Space) -> Any:
    """Substitutes thread indices that guards such as `threadIdx.x == 0` fix."""
    known: dict[str, Poly] = {}
    for part in (one for condition in path for one in parts(condition)):
        if not isinstance(part, Op) or part.name != "zero?":
            continue
        poly = part.args[0].poly
        names = [str(one) for one in poly.factors() if one in threads]
        if names and all(scale > 0 for _, scale in poly.terms) and len(names) == len(poly.terms):
            known.update({name: Poly.number(0) for name in names})
    return Substitution(space, known).value(value) if known else value


def kept_elements(machine: ThreadMachine, loop: LiftedLoop) -> list[Node]:
    """Returns the elements of arguments that a loop changes and that are the same in all its iterations."""
    found = {}
    inside = machine.walk(loop.body, "assignment_expression", "update_expression")
    targets = [one.child_by_field_name("left") or one.child_by_field_name("argument") for one in inside]
    changed = {machine.text(one) for one in targets} | {loop.name}
    changed |= {
        machine.text(one) for node in machine.walk(loop.body, "declaration") for one in machine.walk(node, "identifier")
    }
    for node in targets:
        if node is None or node.type != "subscript_expression" or machine.text(node) in machine.state.kept:
            continue
        names = {machine.text(one) for one in machine.walk(node, "identifier")}
        base = machine.state.names.get(machine.text(node.child_by_field_name("argument")))
        if hasattr(base, "array") and not names & changed:
            found[machine.text(node)] = node
    return list(found.values())
