"""Conversion of a corpus' lines to training examples: prompts and answers, by a codec."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmate.errors import UsageError
from kernelmate_training.corpus_files import opened, rows_file

if TYPE_CHECKING:
    from kernelmate.suggest.codec.base import Codec, CodecLaunch, CodecVersion, Question

TASKS = ("generate", "analyse", "debug")
LINES_AT_ONCE = 64
"""Number of lines that a process of the pool receives at once."""


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        prompt: the exact input.
        answer: the expected output, including the codec's end token.
        task: one of `TASKS`.
        group: identifier that examples of one problem share.
        held_out: True if used for validation.
        messages: role and text of the prompt for models with a chat template; empty for others.
        family: the kind of problem, which many groups share.
        gain: speedup of the answer's version if time was requested; None if unknown.
    """

    prompt: str
    answer: str
    task: str
    group: str
    held_out: bool
    messages: tuple[tuple[str, str], ...] = ()
    family: str = ""
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class FormattedExamples:
    """A corpus as examples; `left_out` counts the lines that could not be converted, by reason."""

    examples: tuple[Example, ...]
    left_out: Mapping[str, int]


def lines_of(corpus: Path) -> list[str]:
    """Returns the lines of a corpus, from its folder or from the file itself, compressed by xz or not.

    Raises:
        UsageError: there is no corpus, or it is empty.
    """
    path = rows_file(corpus)
    try:
        with opened(path) as file:
            found = [line for line in file.read().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise UsageError(
            f"The corpus cannot be read: {error}.",
            file=str(path),
            hint="Make one with `kernelmate upskill generate CONFIG.toml`.",
        ) from None
    if not found:
        raise UsageError(
            "The corpus is empty.", file=str(path), hint="Generate it again, with more time or more pairs."
        )
    return found


def format_examples(lines: Sequence[str], codec: str, *, copies: int = 1, seed: int = 0, processes: int | None = None, pool: Executor | None = None, on_done: Callable[[int, int], None] | None = None) -> FormattedExamples:  # fmt: skip
    """Returns all lines as examples.

    Args:
        lines: lines of a corpus.
        codec: name of the codec.
        copies: copies of each line with different placeholder numbers; the first numbers them in order.
        seed: seed of the numbering.
        processes: number of processes; None for as many as there are cores.
        pool: existing pool of processes to use instead.
        on_done: called with the number of finished lines and the total.
    """
    processes = min(processes or os.cpu_count() or 1, max(1, len(lines) // LINES_AT_ONCE))
    told = partial(_formatted, codec=codec, copies=copies, seed=seed)
    numbered = list(enumerate(lines))
    chunks = [numbered[at : at + LINES_AT_ONCE] for at in range(0, len(lines), LINES_AT_ONCE)]
    examples: list[Example] = []
    left_out: Counter[str] = Counter()
    for number, (found, missed) in enumerate(_mapped(told, chunks, processes, pool)):
        examples += found
        left_out += missed
        if on_done is not None:
            on_done(min((number + 1) * LINES_AT_ONCE, len(lines)), len(lines))
    return FormattedExamples(tuple(examples), dict(left_out.most_common()))


def _mapped(told: Any, chunks: list[list[tuple[int, str]]], processes: int, pool: Executor | None) -> Iterator[tuple[list[Example], Counter[str]]]:  # fmt: skip
    if pool is not None:
        yield from pool.map(told, chunks)
        return
    if processes <= 1:
        yield from map(told, chunks)
        return
    with ProcessPoolExecutor(processes) as own:
        yield from own.map(told, chunks)


def _formatted(
    lines: Iterable[tuple[int, str]], codec: str, copies: int, seed: int
) -> tuple[list[Example], Counter[str]]:
    from kernelmate.suggest.codec import codec_named
    from kernelmate.suggest.codec.base import NotEncodable

    by = codec_named(codec)
    found: list[Example] = []
    left_out: Counter[str] = Counter()
    for number, line in lines:
        try:
            example = json.loads(line)
            for copy in range(copies):
                drawn = None if copy == 0 else hash_seed(seed, number, copy)
                found.append(_example(example, by, drawn))
        except NotEncodable as error:
            left_out[str(error)] += 1
        except (ValueError, KeyError, TypeError) as error:
            left_out[f"no line of a corpus: {type(error).__name__}: {error}"[:120]] += 1
    return found, left_out


def _example(line: Mapping[str, Any], codec: Codec, seed: int | None) -> Example:
    from kernelmate.suggest.codec import OFFERING

    question = question_of(line, seed)
    after = None if question.task == "analyse" else version_of(line["after"])
    asked = codec.ask(question)
    said = (*(line.get("reasoning") or ()), *(_recipes(line) if codec.name in OFFERING else ()))
    answer = codec.answer(question, after, said)
    held_out = line.get("split") == "held-out"
    group = str(line.get("group") or "")
    return Example(
        asked.prompt,
        answer + codec.end,
        question.task,
        group,
        held_out,
        tuple(asked.messages),
        str(line.get("family") or ""),
        _gain(line),
    )


def _gain(line: Mapping[str, Any]) -> float | None:
    """Returns the speed-up of a line's version; None if something else was requested, or a time is unknown."""
    objective = (line.get("verdict") or {}).get("objective") or {}
    before, after = objective.get("before"), objective.get("after")
    if line.get("task") != "generate" or objective.get("name") != "time" or not before or not after:
        return None
    return float(before) / float(after)


def _recipes(line: Mapping[str, Any]) -> Iterator[str]:
    """Yields the recipes that made a line's version, with their variants if known."""
    author = str(line.get("author") or "")
    if line.get("actions"):
        yield "recipe:" + "+".join(f"{step['recipe']}#{step['variant']}" for step in line["actions"])
    elif author.startswith("recipe:"):
        yield author


def question_of(line: Mapping[str, Any], seed: int | None = None) -> Question:
    """Returns the question in one object of a corpus.

    Raises:
        KeyError: a key is missing.
        TypeError: a value has another type.
    """
    from kernelmate.suggest.codec.base import Question

    before, problem = line["before"], line["problem"]
    constraints = line.get("constraints") or {}
    # A version that does not compile has no launch of its own; the problem's applies.
    launch = launch_of(before.get("launch") or constraints["launch"])
    defaults = Question("", "", launch)
    return Question(
        text=before["source"],
        kernel=problem["kernel"],
        launch=launch,
        metric=problem.get("metric") or "time",
        prompt=problem.get("prompt") or "",
        task=line.get("task") or "generate",
        target=constraints.get("target") or defaults.target,
        arch=constraints.get("arch") or defaults.arch,
        verdict=verdict_of(line, before.get("verdict")),
        broken=line.get("broken"),
        tried=tuple(tried_of(one) for one in line.get("tried") or ()),
        size=problem.get("size"),
        offers=offers_of(line),
        seed=seed,
    )


def offers_of(line: Mapping[str, Any]) -> tuple[tuple[str, int], ...] | None:
    """Returns the rewrites that apply to the line's kernel; None if the corpus has not determined them."""
    offers = line.get("offers")
    return None if offers is None else tuple((str(one["recipe"]), int(one["variants"])) for one in offers)


def version_of(side: Mapping[str, Any]) -> CodecVersion:
    """Returns one side of a pair as a version."""
    from kernelmate.suggest.codec.base import CodecVersion

    return CodecVersion(side["source"], launch_of(side["launch"]))


def tried_of(one: Mapping[str, Any]) -> Any:
    """Returns an earlier version with its result."""
    from kernelmate.suggest.codec.base import TriedVersion

    return TriedVersion(version_of(one), one.get("accepted"), one.get("speedup"), tuple(one.get("codes") or ()))


def launch_of(launch: Mapping[str, Any]) -> CodecLaunch:
    """Returns a launch in the history's form, texts or lists of texts, as a record."""
    from kernelmate.suggest.codec.base import CodecLaunch

    def several(value: object) -> tuple[str, ...]:
        return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)

    require = launch.get("require") or ()
    return CodecLaunch(several(launch["grid"]), several(launch["block"]), str(launch.get("shared") or "0"), several(require) if require else ())  # fmt: skip


def verdict_of(line: Mapping[str, Any], document: object) -> Any:
    """Returns a side's verdict, with values that all sides share from the line's constraints; None if there is none.

    Args:
        line: the object of the corpus.
        document: the side's `verdict`.
    """
    import msgspec

    from kernelmate.records import Verdict

    if not isinstance(document, Mapping):
        return None
    # A row contains one text, so findings of any file refer to it.
    said = {key: [{**one, "file": None} for one in document.get(key) or ()] for key in ("findings", "diagnostics")}
    constraints = line.get("constraints") or {}
    shared = {name: constraints.get(name) or "" for name in ("target", "arch", "compiler")}
    nothing: dict[str, Any] = {
        "kernel": line["problem"]["kernel"], "instance": None, "backend": "emulator", "binary": None, "seed": 0,
        "compiled": True, "diagnostics": (), "resources": None, "occupancy": None, "correct": None, "cases": (),
        "findings": (), "timing": None, "speedup": None, "counters": None, "objective": None, "accepted": None, "reasons": (),
    }  # fmt: skip
    try:
        return msgspec.convert({**nothing, **shared, **document, **said}, Verdict, strict=False)
    except msgspec.ValidationError:
        return None


def hash_seed(*parts: int) -> int:
    """Returns a seed from several numbers, equal in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big")
