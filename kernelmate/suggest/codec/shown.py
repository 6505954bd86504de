"""A kernel as numbered lines with placeholders, as a small model sees it, and parsing of answers that refer to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from kernelmate.errors import KernelmateError
from kernelmate.records import Argument, Contract
from kernelmate.source import change_launch, find_kernels, parse_contract, text_unit, write_contract
from kernelmate.suggest.codec import header
from kernelmate.suggest.codec.base import CodecLaunch, CodecVersion, NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.edits import MOST_LINES
from kernelmate.suggest.codec.lines import CanonicalLine, CanonicalUnit, mark_object_macros, read_tokens
from kernelmate.suggest.codec.names import Placeholders
from kernelmate.suggest.codec.spelling import dense
from kernelmate.suggest.codec.splitting import canonical

END = "@end"
MOST_ANSWER = 64 * 1024
"""Largest number of characters of an answer."""

_LAUNCH = re.compile(r"@(grid|block|shared|require)")
_SPECIAL = re.compile(r"@(?:\d+:|\||[a-jl-uw-z!<,#]|v(?!\d)|k(?!\d))")
_ENTRY = re.compile(r"[ \t]*(?://|#)[ \t]*(\w+)[ \t]*=[ \t]*\"([^\"]*)\"")
_ARRAY = re.compile(r"(in|out|inout)[ \t]+\w+\[(.*?)\][ \t]*(?:~.*)?\Z")
_SCALAR = re.compile(r"(\w+)(?:[ \t]*=[ \t]*(.+))?\Z")


@dataclass(frozen=True, slots=True)
class ShownLines:
    """A kernel's unit as numbered canonical lines.

    Attributes:
        question: the question.
        unit: the whole unit in canonical form.
        names: placeholders of its names and literals.
        lines: the shown lines, with placeholders.
    """

    question: Question
    unit: CanonicalUnit
    names: Placeholders
    lines: tuple[str, ...]

    @classmethod
    def of(cls, question: Question, *, hides: bool) -> ShownLines:
        """Returns the lines of a question's kernel; with `hides`, names and long literals become placeholders.

        Raises:
            NotEncodable: there are too many lines, or the kernel is not among them.
        """
        unit = _canonical(question.text, question.kernel)
        shown = unit.shown
        if len(shown) > MOST_LINES:
            raise NotEncodable(f"The kernel has {len(shown)} lines; the model knows {MOST_LINES}.")
        if not any("__global__" in line.texts for line in shown):
            raise NotEncodable(f"The kernel {question.kernel} is not in the text.")
        names = Placeholders.of([line.texts for line in shown], question.seed, replace=hides)
        return cls(question, unit, names, tuple(dense(names.hide(line.texts)) for line in shown))

    def compared(self, after: CodecVersion) -> tuple[CanonicalUnit, list[str]]:
        """Returns a version in canonical form, and its shown lines with the question's placeholders.

        Raises:
            NotEncodable: the version changes hidden lines.
        """
        unit = _canonical(after.text, self.question.kernel)
        relaunched = after.launch != self.question.launch
        if _hidden(unit, relaunched) != _hidden(self.unit, relaunched):
            raise NotEncodable("The version changes code that the model is not shown.")
        return unit, [dense(self.names.hide(line.texts)) for line in unit.shown]

    def format_launch(self, launch: CodecLaunch) -> str:
        """Returns the tokens of a launch's differences from the question's launch; empty if they are equal."""
        old = self.question.launch
        parts = []
        for key, token in (("grid", header.GRID), ("block", header.BLOCK)):
            if getattr(launch, key) != getattr(old, key):
                sides = (header.without_blanks(self.names.hide_expression(side)) for side in getattr(launch, key))
                parts.append(token + header.SIDE.join(sides))
        if launch.shared != old.shared:
            parts.append(header.SHARED_BYTES + header.without_blanks(self.names.hide_expression(launch.shared)))
        if launch.require != old.require:
            sides = (header.without_blanks(self.names.hide_expression(one)) for one in launch.require)
            parts.append(header.REQUIRE + header.SIDE.join(sides))
        return "".join(parts)

    def launch_read(self, text: str, position: int, launch: CodecLaunch) -> tuple[CodecLaunch, int]:
        """Parses changes of a launch in a text from `position` on; returns the launch and the end position.

        Raises:
            UndecodableAnswer: a dimension is empty.
            KeyError: a placeholder is undefined.
        """
        while (found := _LAUNCH.match(text, position)) is not None:
            following = after_sides(text, found.end())
            sides = tuple(
                header.with_blanks(self.names.show_expression(side.strip()))
                for side in text[found.end() : following].split(header.SIDE)
            )
            key = found[1]
            if not all(sides) and not (key == "require" and sides == ("",)):
                raise UndecodableAnswer(f"The answer leaves {key} empty.")
            if key == "shared":
                launch = replace(launch, shared=sides[0])
            else:
                launch = replace(launch, **{key: tuple(filter(None, sides))})  # type: ignore[arg-type]
            position = following
        return launch, position


def format_tried(question: Question, told: Callable[[CodecVersion], str]) -> str:
    """Returns earlier versions as text, each with its result; versions that cannot be expressed are left out.

    Args:
        question: the question with its earlier versions.
        told: returns the answer that leads to a version; raises `NotEncodable`.
    """
    found = []
    for one in question.tried[: header.MOST_TRIED]:
        with suppress(NotEncodable):
            found.append(header.TRIED + header.outcome(one) + told(one.version))
    return "".join(found)


def cleaned(answer: str, end: str) -> str:
    """Returns an answer without surrounding blanks and without its end token.

    Raises:
        UndecodableAnswer: the answer is too long.
    """
    if len(answer) > MOST_ANSWER:
        raise UndecodableAnswer(f"The answer has {len(answer):,} characters; at most {MOST_ANSWER:,} are read.")
    return answer.strip().removesuffix(end).strip()


@contextmanager
def readable() -> Iterator[None]:
    """Context manager that converts errors of decoding to `UndecodableAnswer`."""
    try:
        yield
    except KeyError as error:
        raise UndecodableAnswer(f"The answer uses {error.args[0]}, which is not defined.") from None
    except KernelmateError as error:
        raise UndecodableAnswer(f"The answer cannot be put into the text: {error.message}") from None
    except NotEncodable as error:
        raise UndecodableAnswer(str(error)) from None
    except RecursionError:
        raise UndecodableAnswer("The answer is nested too deep.") from None


def tokens_of(lines: Sequence[str]) -> list[list[str]]:
    """Returns the tokens of an answer's lines, with placeholders; empty lines are dropped.

    Raises:
        UndecodableAnswer: a line contains a special token.
    """
    found = []
    for line in lines:
        special = _SPECIAL.search(line)
        if special is not None and not _in_literal(line, special.start()):
            raise UndecodableAnswer(f"The answer has {special.group()!r} in the middle of a line.")
        tokens = read_tokens(line)
        mark_object_macros(tokens)
        if tokens.texts:
            found.append(tokens.texts)
    return found


def after_sides(text: str, position: int) -> int:
    """Returns the end of a launch's dimensions: before the next special token that is not a placeholder or comma."""
    for found in _SPECIAL.finditer(text, position):
        if not text.startswith(header.SIDE, found.start()):
            return found.start()
    return len(text)


def _in_literal(line: str, place: int) -> bool:
    return line.count('"', 0, place) % 2 == 1 or line.count("'", 0, place) % 2 == 1


@lru_cache(maxsize=64)
def _canonical(text: str, kernel: str) -> CanonicalUnit:
    return canonical(text, kernel)


def _hidden(unit: CanonicalUnit, relaunched: bool) -> list[list[str]]:
    """Returns the tokens of hidden lines.

    With `relaunched`, launch parameters are left out, since they follow the contract.
    """
    return [_without_launches(line) if relaunched else line.texts for line in unit.lines if line.hidden]


def _without_launches(line: CanonicalLine) -> list[str]:
    """Returns a line's tokens without launch parameters, and without the number that a name used there is set to."""
    kept: list[str] = []
    inside: list[str] = []
    depth = 0
    for text in _split_angles(line.texts):
        depth += text == "<<<"
        (inside if depth else kept).append(text)
        depth -= text == ">>>"
    named = {name for before, name, after in zip(inside, inside[1:], inside[2:], strict=False) if before == "," and after in {",", ">>>"}}  # fmt: skip
    pairs = zip(["", "", *kept], ["", *kept], kept, strict=False)
    return [text for name, sign, text in pairs if not (text.isdigit() and sign == "=" and name in named)]


def _split_angles(texts: Sequence[str]) -> list[str]:
    """Returns tokens with each bracket of a launch as one token."""
    joined: list[str] = []
    for text in texts:
        if text == "<" and joined[-1:] == ["<<"]:
            joined[-1] = "<<<"
        elif text == ">" and joined[-1:] == [">>"]:
            joined[-1] = ">>>"
        else:
            joined.append(text)
    return joined


def places_of(unit: CanonicalUnit) -> dict[int, int]:
    """Returns the number of the shown line for each line of the text; blank and hidden lines have none."""
    starts: list[int] = []
    line = 1
    for gap, token in zip(unit.tokens.gaps, unit.tokens.texts, strict=True):
        line += gap.count("\n")
        starts.append(line)
        line += token.count("\n")
    found: dict[int, int] = {}
    for number, shown in enumerate(unit.shown, 1):
        for item in shown.items:
            if item.place >= 0:
                found.setdefault(starts[item.place], number)
    return found


def arguments_of(question: Question) -> tuple[Argument, ...]:
    """Returns the arguments of the question's contract, or of the contract block in the text."""
    if question.contract is not None:
        return question.contract.args
    return _arguments_in(question.text)


@lru_cache(maxsize=256)
def _arguments_in(text: str) -> tuple[Argument, ...]:
    start = text.find("[args]")
    end = text.find("///", start)
    if start < 0 or end < 0:
        return ()
    found = []
    for line in text[start:end].split("\n"):
        entry = _ENTRY.match(line)
        array = _ARRAY.match(entry[2]) if entry is not None else None
        if entry is not None and array is not None:
            shape = tuple(side.strip() for side in array[2].split(","))
            found.append(Argument(entry[1], array[1], "", shape))  # type: ignore[arg-type]
        elif entry is not None and (scalar := _SCALAR.match(entry[2])) is not None:
            found.append(Argument(entry[1], None, "", None, None, scalar[2]))
    return tuple(found)


def version_of(question: Question, text: str, launch: CodecLaunch) -> CodecVersion:
    """Returns the text with a launch in its contract block and in every launch of the kernel."""
    if launch == question.launch:
        return CodecVersion(text, launch)
    short = question.kernel
    kernel = next((one for one in find_kernels(text_unit(text)) if one.name == short), None)
    if kernel is None:
        raise UndecodableAnswer(f"The answer leaves no kernel {short}.")
    contract: Contract | None = question.contract or parse_contract(kernel)
    if contract is None:
        return CodecVersion(text, launch)
    changed = change_launch(kernel, grid=launch.grid, block=launch.block, shared=launch.shared, contract=contract)
    if launch.require != contract.require:
        written = replace(contract, grid=launch.grid, block=launch.block, shared=launch.shared, require=launch.require)
        changed = write_contract(changed, written)
    return CodecVersion(changed.unit.text, launch)
