"""Mistakes of programmers, put into correct kernels one at a time; `mistakes.toml` lists them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

Change = tuple[int, int, str, str]
"""Start, end, replacement text, and explanation."""

_PARAMETER = re.compile(r"(\w+)(?=[,)])")
_DECLARED = re.compile(r"\b(?:int|float|double|size_t|unsigned int|__half2?)\s+(\w+)\s*=")
_COUNT = re.compile(r"\b(?:int|unsigned int|size_t) (\w+)[,)]")
_BOUND = re.compile(r"(\w+) (?:<|>=) ([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Broken:
    """A text with one mistake.

    Attributes:
        kind: the mistake's name.
        text: the whole unit.
        explanation: the fault and its correction.
    """

    kind: str
    text: str
    explanation: str


@cache
def mistakes() -> Mapping[str, dict[str, Any]]:
    """Returns the table of mistakes, by name."""
    return tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def break_text(text: str, rng: Random) -> Broken | None:
    """Returns the text with one random mistake; None if no mistake can be put into it."""
    if "__global__" not in text:
        return None
    kinds = list(mistakes())
    rng.shuffle(kinds)
    # Frequent mistakes come first more often than the others.
    kinds.sort(key=lambda kind: rng.random() / mistakes()[kind].get("weight", 1.0))
    for kind in kinds:
        found = changes(text, kind)
        if not found:
            continue
        at, end, put, words = rng.choice(found)
        broken = text[:at] + put + text[end:]
        if broken != text:
            return Broken(kind, broken, words)
    return None


def changes(text: str, kind: str) -> list[Change]:
    """Returns every change that puts one kind of mistake into a kernel."""
    start = text.index("{", text.index("__global__")) + 1
    mistake = mistakes()[kind]
    if "function" in mistake:
        function: Callable[[str, int], Iterator[Change]] = globals()[mistake["function"]]
        return list(function(text, start))
    return [change for rule in mistake["changes"] for change in _changes(text, start, **rule)]


def _changes(text: str, start: int, pattern: str, put: str, why: str, *, head: bool = False, **only: Any) -> Iterator[Change]:  # fmt: skip
    """Yields the changes of one row of the table for a text whose kernel's body begins at `start`."""
    if only.get("needs", "") not in text or ("lacks" in only and only["lacks"] in text[start:]):
        return
    counts = set(_COUNT.findall(text[:start])) if "count" in only else set()
    for match in re.finditer(pattern, text[:start] if head else text[start:]):
        first, last = (match[group] for group in only.get("differ", (0, 0)))
        number = match[2] if match.re.groups > 1 and match[2].isdigit() else "0"
        count = match[only["count"]] if "count" in only else "0"
        if ("differ" in only and first == last) or int(number) < only.get("least", 0) or not (count.isdigit() or count in counts):  # fmt: skip
            continue
        at, words = 0 if head else start, {"half": int(number) // 2}
        told = why.format(match[0].strip(), *match.groups(), **words)
        yield at + match.start(), at + match.end(), put.format(match[0], *match.groups(), **words), told


def _misspelt(text: str, start: int) -> Iterator[Change]:
    """Yields misspelt names: two letters exchanged, or one left out."""
    names = set(_DECLARED.findall(text[start:])) | set(_PARAMETER.findall(text[:start]))
    for match in re.finditer(r"[A-Za-z_]\w*", text[start:]):
        name = match[0]
        if len(name) < 3 or name not in names:
            continue
        wrong = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name[:-1]
        if wrong not in names:
            yield start + match.start(), start + match.end(), wrong, f"`{wrong}` is misspelt: it is called `{name}`."


def _wrong_width(text: str, start: int) -> Iterator[Change]:
    """Yields indices with the row's length replaced by the number of rows."""
    bounds = dict(_BOUND.findall(text[start:]))
    for match in re.finditer(r"\[(\w+) \* ([A-Za-z_]\w*) \+ ", text[start:]):
        row, width = match.groups()
        other = bounds.get(row)
        if other is not None and other != width and bounds.get(width) is None:
            why = f"A row has {width} elements, not {other}: the index is `{row} * {width} + ...`."
            yield start + match.start(), start + match.end(), f"[{row} * {other} + ", why


def _other_layout(text: str, start: int) -> Iterator[Change]:
    """Yields changes of all accesses of one array from row-major to column-major order."""
    bounds = dict(_BOUND.findall(text[start:]))
    for name in dict.fromkeys(re.findall(r"\b(\w+)\[\w+ \* \w+ \+ \w+\]", text[start:])):
        pattern = re.compile(rf"\b{name}\[(\w+) \* (\w+) \+ (\w+)\]")
        places = set(pattern.findall(text[start:]))
        row, width, col = places.pop()
        rows = bounds.get(row)
        if places or rows is None or rows == width or not width.isidentifier() or bounds.get(col) != width:
            continue
        put = pattern.sub(f"{name}[{col} * {rows} + {row}]", text[start:])
        yield start, len(text), put, f"`{name}` has rows of {width} elements: its index is `{row} * {width} + {col}`."
