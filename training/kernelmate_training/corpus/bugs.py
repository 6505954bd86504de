"""Mistakes that people make, put into right kernels one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.misplacing import other_layout, wrong_index, wrong_width
from kernelmate_training.corpus.slips import (
    Change,
    each,
    misspelt,
    no_brace,
    no_bracket,
    no_declaration,
    no_include,
    no_semicolon,
)


@dataclass(frozen=True, slots=True)
class Broken:
    """A text with one mistake in it.

    Attributes:
        kind: the mistake's name. text: the whole unit. explanation: what is wrong and how it is put right.
    """

    kind: str
    text: str
    explanation: str


def break_text(text: str, rng: Random) -> Broken | None:
    """The text with one mistake, drawn among those that it can have; None where it can have none."""
    start = _body_start(text)
    if start is None:
        return None
    kinds = list(_MISTAKES)
    rng.shuffle(kinds)
    # The commonest mistakes come first more often than the others.
    kinds.sort(key=lambda kind: rng.random() / _WEIGHT.get(kind, 1.0))
    for kind in kinds:
        changes = _MISTAKES[kind](text, start)
        if not changes:
            continue
        at, end, put, words = rng.choice(changes)
        broken = text[:at] + put + text[end:]
        if broken != text:
            return Broken(kind, broken, words)
    return None


def _body_start(text: str) -> int | None:
    found = text.find("__global__")
    return None if found < 0 else text.index("{", found) + 1


def _no_guard(text: str, start: int) -> list[Change]:
    early = each(
        r"[ \t]*if \([^\n]*>=[^\n]*\) (?:\{ )?return;(?: \})?\n", text, start,
        lambda m: ("", f"Nothing keeps threads beyond the end away: put `{m[0].strip()}` back."),
    )  # fmt: skip
    late = each(
        r"if \(((?:\w+ < \w+)(?: && \w+ < \w+)*)\) \{", text, start,
        lambda m: ("{", f"Nothing keeps threads beyond the end away: the block needs the condition `{m[1]}`."),
    )  # fmt: skip
    return early + late


def _off_by_one(text: str, start: int) -> list[Change]:
    guards = each(
        r"(?<=[ (])(\w+) >= (\w+)(?=[ )])",
        text,
        start,
        lambda m: (f"{m[1]} > {m[2]}", f"The guard lets {m[1]} == {m[2]} through: it must be `{m[1]} >= {m[2]}`."),
    )
    loops = each(
        r"(\w+) < ([A-Za-z_]\w*)(?=[;)& ])",
        text,
        start,
        lambda m: (f"{m[1]} <= {m[2]}", f"The bound is one too far: it must be `{m[1]} < {m[2]}`."),
    )
    return guards + loops


def _late_start(text: str, start: int) -> list[Change]:
    return each(
        r"(int \w+) = 0;(?= \w+ <)",
        text,
        start,
        lambda m: (f"{m[1]} = 1;", "The loop must start at 0, else the first element is left out."),
    )


def _no_barrier(text: str, start: int) -> list[Change]:
    return each(
        r"[ \t]*__syncthreads\(\);\n",
        text,
        start,
        lambda m: ("", "Threads read what others have written with no barrier between: a __syncthreads() is missing."),
    )


def _small_shared(text: str, start: int) -> list[Change]:
    def halve(match: re.Match[str]) -> tuple[str, str] | None:
        size = int(match[2])
        return (
            (f"{match[1]}[{size // 2}]", f"The shared array is too small: it needs {size} elements.")
            if size >= 4
            else None
        )

    static = each(r"(__shared__ [\w ]+ \w+)\[(\d+)\]", text, start, halve)
    dynamic = []
    for match in re.finditer(r'// shared = "([^"]+) \* (\d+)"', text[:start]):
        dynamic.append(
            (
                match.start(),
                match.end(),
                f'// shared = "{match[1]} * {int(match[2]) // 2}"',
                f"The launch asks for too little shared memory: {match[1]} * {match[2]} bytes are needed.",
            )
        )
    return static + dynamic


def _wrong_operator(text: str, start: int) -> list[Change]:
    plus = each(
        r"(\w+(?:\[[^\]\n]*\])?) \+= ",
        text,
        start,
        lambda m: (
            (f"{m[1]} = ", f"{m[1]} must be added to, not overwritten: `+=`.")
            if not re.match(r"\w+\Z", m[1]) or m[1] in ACCUMULATORS
            else None
        ),
    )
    minus = each(r" - (?=\w)", text, start, lambda m: (" + ", "The sign is wrong: it must be a difference."))
    extremes = each(r"\bfmax(f?)\(", text, start, lambda m: (f"fmin{m[1]}(", f"The larger one is meant: fmax{m[1]}."))
    return plus + minus + extremes


ACCUMULATORS = frozenset(
    ["acc", "sum", "total", "result", "value", "tmp", "s0", "other", "second", "extra", "rest", "more"]
)


def _bad_initial(text: str, start: int) -> list[Change]:
    return each(
        r"((?:float|double|int) \w+) = 0(?:\.0f?)?;(?! \w+ <)",
        text,
        start,
        lambda m: (f"{m[1]};", "The sum starts with whatever the register holds: it must start at 0."),
    )


def _wrong_start(text: str, start: int) -> list[Change]:
    """An extreme or a product that starts with a value which takes part in it."""
    factor = each(
        r"((?:float|double) \w+) = 1(?:\.0f?)?;",
        text,
        start,
        lambda m: (f"{m[1]} = 0.0f;", "A product that starts at 0 stays there: it must start at 1."),
    )
    highest = each(
        r"= (?:INFINITY|FLT_MAX|1e30f?);",
        text,
        start,
        lambda m: ("= 0.0f;", "The minimum must start above every value, else nothing positive is ever found."),
    )
    lowest = each(
        r"= -(?:INFINITY|FLT_MAX|1e30f?);",
        text,
        start,
        lambda m: ("= 0.0f;", "The maximum must start below every value, else rows of negative values come out wrong."),
    )
    return factor + highest + lowest


def _half_the_tree(text: str, start: int) -> list[Change]:
    cut = each(
        r"(\w+) > 0; \1 (/= 2|>>= 1)",
        text,
        start,
        lambda m: (
            f"{m[1]} > 1; {m[1]} {m[2]}",
            f"The last step of the tree is left out: it must run while {m[1]} > 0.",
        ),
    )
    shuffles = each(
        r"= 16; ",
        text,
        start,
        lambda m: ("= 8; ", "Half of the warp's lanes are left out: the shuffle must start at 16."),
    )
    return cut + shuffles


def _short_grid(text: str, start: int) -> list[Change]:
    changes = []
    for match in re.finditer(r"cdiv\(([^(),]+), ([^()]+?)\)", text[:start]):
        changes.append(
            (
                match.start(),
                match.end(),
                f"{match[1]} // {match[2]}",
                f"The grid leaves out the last, partly filled block: cdiv({match[1]}, {match[2]}) is needed.",
            )
        )
    return changes


def _short_launch(text: str, start: int) -> list[Change]:
    """The contract's grid rounds down, though never to nothing: wrong wherever the size is no multiple of the block."""
    changes = []
    for match in re.finditer(r"(// grid = [^\n]*?)cdiv\(([^(),]+), ([^()]+?)\)", text[:start]):
        put = f"{match[1]}max({match[2]} // {match[3]}, 1)"
        words = f"The grid is rounded down, so that the last elements have no thread: cdiv({match[2]}, {match[3]}) is needed."
        changes.append((match.start(), match.end(), put, words))
    return changes


def _whole_ratio(text: str, start: int) -> list[Change]:
    """A ratio of whole numbers that is cut off before it becomes a float."""
    return each(
        r"\(float\)(\w+(?:\[[^\]\n]*\])?) / (\w+)(?![\w.\[(])",
        text,
        start,
        lambda m: (
            f"(float)({m[1]} / {m[2]})",
            f"Whole numbers are divided, which cuts off the fraction: `(float){m[1]} / {m[2]}`.",
        ),
    )


def _whole_inverse(text: str, start: int) -> list[Change]:
    """A quotient by a count as a product with 1 / count, which whole numbers make 0."""
    counts = set(re.findall(r"\b(?:int|unsigned int|size_t) (\w+)[,)]", text[:start]))

    def product(match: re.Match[str]) -> tuple[str, str] | None:
        name = match["name"]
        if name not in counts:
            return None
        what, sign = match.groupdict().get("what"), match["sign"]
        put = f"{what} * (1 / {name})" if sign == "/" else f" *= 1 / {name};"
        return put, f"1 / {name} divides whole numbers, which gives 0: it must be `1.0f / {name}`."

    quotients = each(
        r"(?P<what>(?:\w+|\w+\[[^\]\n]*\])) (?P<sign>/) (?P<name>[A-Za-z_]\w*)(?![\w.\[(])", text, start, product
    )
    kept = each(r" (?P<sign>/=) (?P<name>[A-Za-z_]\w*);", text, start, product)
    inverse = each(
        r"\b1\.0f? / (?:\((?:float|double)\))?(\w+)(?![\w.\[(])",
        text,
        start,
        lambda m: (
            (f"1 / {m[1]}", f"1 / {m[1]} divides whole numbers, which gives 0: it must be `1.0f / {m[1]}`.")
            if m[1] in counts or m[1].isdigit()
            else None
        ),
    )
    return quotients + kept + inverse


def _wrong_sign(text: str, start: int) -> list[Change]:
    return each(
        r"(?<=[\w\])]) \+ (?=[\w(]+[\w\].]* \*|\w+\[)",
        text,
        start,
        lambda m: (" - ", "The sign is wrong: it must be a sum."),
    )


def _plain_add(text: str, start: int) -> list[Change]:
    return each(
        r"atomicAdd\(&([^;\n]+), ([^;\n]+)\);",
        text,
        start,
        lambda m: (f"{m[1]} += {m[2]};", "Several threads add to one address at a time: that takes an atomicAdd."),
    )


def _early_leave(text: str, start: int) -> list[Change]:
    """A return above a barrier, where the text has a barrier and no such return."""
    if "__syncthreads" not in text[start:] or "return;" in text[start:]:
        return []
    return each(
        r"(?<=\n)( +)__syncthreads\(\);\n",
        text,
        start,
        lambda m: (
            f"{m[1]}if (threadIdx.x >= 16) return;\n{m[0]}",
            "Threads that have returned never reach the barrier: nothing may return before it.",
        ),
    )


def _branch_barrier(text: str, start: int) -> list[Change]:
    """A barrier drawn into the branch above it."""
    return each(
        r"(?<=\n)( +)if \(([^\n{}]*)\) ([^\n{}]*;)\n +__syncthreads\(\);\n", text, start,
        lambda m: (f"{m[1]}if ({m[2]}) {{\n{m[1]}  {m[3]}\n{m[1]}  __syncthreads();\n{m[1]}}}\n", "Not every thread takes the branch, so not every thread reaches its barrier: the barrier belongs behind the branch."),
    )  # fmt: skip


_MISTAKES: dict[str, Callable[[str, int], list[Change]]] = {
    "no-guard": _no_guard,
    "off-by-one": _off_by_one,
    "late-start": _late_start,
    "no-barrier": _no_barrier,
    "wrong-index": wrong_index,
    "misspelt": misspelt,
    "no-semicolon": no_semicolon,
    "no-bracket": no_bracket,
    "no-declaration": no_declaration,
    "small-shared": _small_shared,
    "wrong-operator": _wrong_operator,
    "bad-initial": _bad_initial,
    "wrong-start": _wrong_start,
    "half-the-tree": _half_the_tree,
    "short-grid": _short_grid,
    "short-launch": _short_launch,
    "whole-ratio": _whole_ratio,
    "whole-inverse": _whole_inverse,
    "other-layout": other_layout,
    "no-include": no_include,
    "no-brace": no_brace,
    "wrong-sign": _wrong_sign,
    "wrong-width": wrong_width,
    "plain-add": _plain_add,
    "early-leave": _early_leave,
    "branch-barrier": _branch_barrier,
}
_WEIGHT = {
    "no-barrier": 5.0,
    "no-include": 4.0,
    "wrong-start": 6.0,
    "other-layout": 3.0,
    "whole-inverse": 3.0,
    "no-guard": 2.0,
    "off-by-one": 2.0,
    "wrong-index": 2.0,
    "small-shared": 2.0,
    "plain-add": 6.0,
    "branch-barrier": 8.0,
    "bad-initial": 3.0,
    "short-grid": 0.3,
    "short-launch": 2.0,
    "whole-ratio": 2.0,
    "wrong-width": 1.5,
    "half-the-tree": 2.0,
    "no-semicolon": 0.8,
    "no-bracket": 0.6,
    "no-brace": 0.8,
    "late-start": 0.5,
    "no-declaration": 0.5,
    "wrong-operator": 0.7,
}
"""How much likelier than others a mistake is drawn."""
