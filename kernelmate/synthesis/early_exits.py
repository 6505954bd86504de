"""Loops that may end early: once a condition on the carried values is false, no iteration changes them any more."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.synthesis.names import words_of

_CONDITION = re.compile(r"const bool (\w+) = (.+);")
_DECLARED = re.compile(r"const [\w ]+ (\w+) = (.+);")


def with_exit(body: Sequence[str], carried: Sequence[str], turn: str, flags: Sequence[str] = ()) -> list[str]:
    """Returns a loop's statements with a `break` where all carried values keep what they are from then on.

    Each of them has to change under the same condition only (`x = inside ? next : x`, `n = n + inside`), and the condition
    has to follow from the carried values alone. Other statements are returned as they are.

    Args:
        body: the statements of an iteration, which update the carried values.
        carried: the locals of these values.
        turn: the number of the iteration.
        flags: those of the locals that begin as true and are used in the loop only. One that only holds the condition is left out.
    """
    for place, line in enumerate(body):
        found = _CONDITION.fullmatch(line)
        if found is None or turn in words_of(found[2]) or "[" in found[2] or not words_of(found[2]) & {*carried}:
            continue
        flag = next((one for one in flags if f"{one} = {found[1]};" in body), "")
        own = _after_flag(body, flag, found[1]) if flag else body
        changed = _unconditional(own, [one for one in carried if one != flag], found[1])
        if changed is None:
            continue
        condition = found[2]
        if flag and f"{flag} = {found[1]};" in changed:
            changed[changed.index(f"{flag} = {found[1]};")] = ""
            condition = re.sub(rf"^{flag} && (?:\((.*)\)$)?", r"\1", condition)
        if not any(words_of(one) & {found[1], flag} for one in [*changed, condition] if one != line):
            changed[place] = f"if ({_negated(condition)}) break;"
            return without_copies(list(filter(None, changed)))
    return list(body)


def _after_flag(body: Sequence[str], flag: str, condition: str) -> list[str]:
    """Returns the statements with the condition itself in place of the flag to which it was assigned."""
    at = list(body).index(f"{flag} = {condition};")
    return [*body[: at + 1], *(re.sub(rf"\b{flag}\b", condition, one) for one in body[at + 1 :])]


def _unconditional(body: Sequence[str], carried: Sequence[str], condition: str) -> list[str] | None:
    """Returns the statements for iterations in which the condition is true; None if a value changes in others, too."""
    lines, left = list(body), {*carried}
    held: dict[str, str] = {}
    for place, line in enumerate(lines):
        target, _, value = line.removesuffix(";").partition(" = ")
        name = target.split()[-1] if target else ""
        chosen = re.fullmatch(rf"{condition} \? ([^?:]+) : (\w+)", value)
        if "[" in target:
            return None
        if chosen is not None and chosen[2] in carried:
            lines[place] = f"{target} = {chosen[1]};"
            held[name] = chosen[2]
        elif name in carried and value in (f"{name} + {condition}", f"{condition} + {name}"):
            lines[place] = f"++{name};"
            held[name] = name
        if name in carried and (held.get(name) == name or held.get(value) == name):
            left.discard(name)
        elif name in carried:
            return None
    return None if left else lines


def _negated(condition: str) -> str:
    return f"!{condition}" if condition.isidentifier() else f"!({condition})"


def without_copies(lines: Sequence[str]) -> list[str]:
    """Returns a loop's statements without locals that one other statement only copies to another local."""
    lines = list(lines)
    while (found := next(filter(None, (_copied(lines, at) for at in range(len(lines)))), None)) is not None:
        at, use, name, value = found
        lines[use] = lines[use].removesuffix(f"{name};") + f"{value};"
        del lines[at]
    return lines


def _copied(lines: Sequence[str], at: int) -> tuple[int, int, str, str] | None:
    """Returns a declaration's place, that of its only use, the local and its value; None if it has to stay."""
    declared = _DECLARED.fullmatch(lines[at])
    if declared is None:
        return None
    uses = [place for place, one in enumerate(lines) if place != at and declared[1] in words_of(one)]
    if len(uses) != 1 or not re.fullmatch(rf"(?:const [\w ]+ )?\w+ = {declared[1]};", lines[uses[0]]) or uses[0] < at:
        return None
    if "[" in declared[2] and any("] = " in one for one in lines[at + 1 : uses[0]]):
        return None  # a load stays before stores
    assigned = {
        one.partition(" = ")[0].lstrip("+").rstrip(";").split()[-1] for one in lines[at + 1 : uses[0]] if one.strip()
    }
    return None if assigned & words_of(declared[2]) else (at, uses[0], declared[1], declared[2])
