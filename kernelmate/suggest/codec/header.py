"""Header of a prompt: task, objective and known facts, quantised to one token each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.records import Argument, Counters, FindingCode, Verdict
from kernelmate.suggest.codec.base import Question, TriedVersion
from kernelmate.suggest.codec.edits import line_token
from kernelmate.suggest.codec.names import Placeholders

METRICS = ("time", "shared_bytes", "registers", "local_bytes", "global_bytes", "occupancy", "accuracy", "correct")
TASKS = ("generate", "analyse", "debug")
FAMILIES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
LIMITERS = ("registers", "shared", "blocks", "threads", "launch")
REGISTERS, SHARED, OCCUPANCY = (24, 32, 40, 64, 96, 128, 255), (0, 1024, 4096, 16384, 49152, 262144), (25, 50, 75, 100)
SECTORS = (1, 2, 4, 8, 16, 32)
SPEEDS = (0.9, 1.05, 1.2, 1.5, 2.0, 4.0)
DIRECTIONS = ("in", "out", "inout")
GRID, BLOCK, SIDE, SHARED_BYTES, REQUIRE, ARGUMENT, SAYS, TRIED, CODE, ANSWER = (
    "@grid", "@block", "@,", "@shared", "@require", "@arg", "@says", "@tried", "@code", "@answer",
)  # fmt: skip
MOST_WORDS, MOST_TRIED, MOST_TOLD = 160, 3, 3

_PLACE = re.compile(r"\((\d+)\):?|:(\d+)(?=[:)\s])|\bline (\d+):?|<?[\w./<>-]*\.cuh?\b|<cell>|<text>")
_LINE, _WORD = re.compile(r"(?:\bline |:)(\d+)"), re.compile(r"[A-Za-z_]\w*")
_PLAIN = frozenset(
    [
        "all",
        "and",
        "are",
        "at",
        "be",
        "block",
        "by",
        "byte",
        "bytes",
        "element",
        "elements",
        "first",
        "has",
        "have",
        "in",
        "is",
        "it",
        "its",
        "lane",
        "line",
        "memory",
        "never",
        "nothing",
        "of",
        "on",
        "one",
        "or",
        "orders",
        "read",
        "reads",
        "say",
        "shared",
        "should",
        "size",
        "sizes",
        "still",
        "that",
        "the",
        "they",
        "this",
        "thread",
        "threads",
        "times",
        "to",
        "two",
        "want",
        "warp",
        "when",
        "where",
        "which",
        "write",
        "writes",
        "written",
        "wrong",
    ]
)
"""Frequent words of the judge's messages that are never replaced by placeholders."""
_CODES: frozenset[str] = frozenset(FindingCode)
_LABEL = re.compile(r"\b(?:compile-)?(?:error|warning)( #\d+(?:-D)?)?: ?")


def header_tokens() -> tuple[str, ...]:
    """Returns the special tokens of headers and launches."""
    return (
        *(f"@{task}" for task in TASKS),
        *(f"@for-{metric}" for metric in METRICS),
        *(f"@{family}" for family in FAMILIES),
        *(f"@regs<={bound}" for bound in REGISTERS),
        *(f"@smem<={bound}" for bound in SHARED),
        *(f"@occ<={bound}" for bound in OCCUPANCY),
        *(f"@by-{limiter}" for limiter in LIMITERS),
        *(f"@load<={bound}" for bound in SECTORS),
        *(f"@store<={bound}" for bound in SECTORS),
        "@local", "@conflicts", "@atomics", "@divergent", "@memory", "@compute", "@latency",
        *(f"@!{code}" for code in FindingCode),
        GRID, BLOCK, SIDE, SHARED_BYTES, REQUIRE, ARGUMENT, *(f"@{one}-" for one in DIRECTIONS), SAYS, TRIED,
        *(f"@x<={bound:g}" for bound in SPEEDS), "@x-more", "@x-wrong", "@x-right", CODE, ANSWER,
    )  # fmt: skip


def header(question: Question, names: Placeholders, arguments: Sequence[Argument], places: dict[int, int], wants: Sequence[str] = ()) -> str:  # fmt: skip
    """Returns the part of a prompt before the code.

    Args:
        question: the question.
        names: placeholders of the unit.
        arguments: the contract's arguments; empty without a contract.
        places: number of the shown line for each line of the text.
        wants: special tokens of optimizations that the user's words name.
    """
    parts = [f"@{question.task}", f"@for-{question.metric}", f"@{_family(question.arch)}", *wants]
    if question.verdict is not None:
        facts = _facts(question.verdict)
        parts += [fact for fact in facts if not (question.broken and fact.startswith("@!"))]
    parts += _launch(question, names)
    parts += [_argument(argument, names) for argument in arguments]
    if question.broken:
        parts.append(SAYS + _coarse_words(question.broken, names, places))
    return "".join(parts)


def _family(arch: str) -> str:
    """Returns the newest family that is not newer than an architecture."""
    found = re.search(r"\d+", arch)
    number = int(found[0]) if found is not None else 90
    fitting = [family for family in FAMILIES if int(family[3:]) <= number]
    return fitting[-1] if fitting else FAMILIES[0]


def _bucket(value: float, bounds: Sequence[float]) -> str:
    return f"{next((bound for bound in bounds if value <= bound), bounds[-1]):g}"


def _facts(verdict: Verdict) -> Iterator[str]:
    if verdict.resources is not None:
        resources = verdict.resources
        yield f"@regs<={_bucket(resources.registers, REGISTERS)}"
        yield f"@smem<={_bucket(resources.shared_bytes + resources.dynamic_shared_bytes, SHARED)}"
        if resources.local_bytes:
            yield "@local"
    if verdict.occupancy is not None:
        yield f"@occ<={_bucket(verdict.occupancy.theoretical * 100, OCCUPANCY)}"
        if verdict.occupancy.limiter in LIMITERS:
            yield f"@by-{verdict.occupancy.limiter}"
    if verdict.counters is not None:
        yield from _counted(verdict.counters)
    for code in dict.fromkeys(finding.code for finding in verdict.findings):
        yield f"@!{code}"


def _counted(counters: Counters) -> Iterator[str]:
    for name in ("load", "store"):
        requests, sectors = (getattr(counters, f"global_{name}_{what}") for what in ("requests", "sectors"))
        if requests and sectors:
            yield f"@{name}<={_bucket(sectors / requests, SECTORS)}"
    wavefronts = (counters.shared_load_wavefronts or 0) + (counters.shared_store_wavefronts or 0)
    if counters.bank_conflicts and counters.bank_conflicts * 8 > wavefronts:
        yield "@conflicts"
    if counters.global_atomic_requests:
        yield "@atomics"
    if counters.divergent_branches:
        yield "@divergent"


def _launch(question: Question, names: Placeholders) -> Iterator[str]:
    launch = question.launch
    yield GRID + SIDE.join(without_blanks(names.hide_expression(side)) for side in launch.grid)
    yield BLOCK + SIDE.join(without_blanks(names.hide_expression(side)) for side in launch.block)
    if launch.shared != "0":
        yield SHARED_BYTES + without_blanks(names.hide_expression(launch.shared))
    for one in launch.require:
        yield REQUIRE + without_blanks(names.hide_expression(one))


def _argument(argument: Argument, names: Placeholders) -> str:
    name = names.hide_expression(argument.name)
    if argument.shape is None:
        return f"{ARGUMENT}{name}" + (
            "" if argument.value is None else f"={without_blanks(names.hide_expression(argument.value))}"
        )
    shape = ",".join(without_blanks(names.hide_expression(side)) for side in argument.shape)
    return f"{ARGUMENT}@{argument.direction or 'in'}-{name}[{shape}]"


def outcome(tried: TriedVersion) -> str:
    """Returns the result of an earlier version as one token."""
    if tried.accepted is False and (tried.codes or tried.speedup is None):
        return "@x-wrong"
    if tried.speedup is None:
        return "@x-right"
    bound = next((bound for bound in SPEEDS if tried.speedup <= bound), None)
    return "@x-more" if bound is None else f"@x<={bound:g}"


def _words(text: str, names: Placeholders, places: dict[int, int]) -> str:
    """Returns an error text with shown line numbers, without paths, and with placeholders for names."""

    def place(found: re.Match[str]) -> str:
        number = next((group for group in found.groups() if group), None)
        shown = places.get(int(number)) if number is not None else None
        return "" if shown is None else line_token(shown)

    first = " ".join(_PLACE.sub(place, _LABEL.sub("", text.replace("@", ""))).split())[:MOST_WORDS]
    return names.hide_expression(first)


def _coarse_words(text: str, names: Placeholders, places: dict[int, int]) -> str:
    """Returns the code of a judge's finding with its lines and names; a compiler's message as by `_words`."""
    code, _, rest = text.partition(": ")
    if text.startswith("wrong values"):
        code, rest = FindingCode.WRONG_VALUES, text
    if code not in _CODES or code == FindingCode.COMPILE_ERROR:
        return _words(text, names, places)
    lines = (places.get(int(number)) for number in _LINE.findall(rest))
    words = (names.names.get(word) for word in _WORD.findall(rest) if word not in _PLAIN)
    told = dict.fromkeys(line_token(line) for line in lines if line is not None)
    named = dict.fromkeys(mark for mark in words if mark is not None)
    return f"@!{code}" + "".join([*list(told)[:MOST_TOLD], *list(named)[:MOST_TOLD]])


def without_blanks(expression: str) -> str:
    """Returns an expression without blanks if `with_blanks` restores it; else unchanged."""
    short = expression.replace(" ", "")
    return short if with_blanks(short) == expression else expression


_OPERATOR = re.compile(r"(?<=[\w)])(//|<<|>>|[<>=!]=|[-+*/%<>])(?=[\w(@-])")


def with_blanks(expression: str) -> str:
    """Returns an expression with blanks around operators and after commas; one with blanks is unchanged."""
    if " " in expression:
        return expression
    return re.sub(r",(?=\S)", ", ", _OPERATOR.sub(r" \1 ", expression))
