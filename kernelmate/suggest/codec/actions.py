"""A codec whose answers name recipes: what a model chooses is which built-in rewrite, and which of its variants, in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import Answer, Question, Unreadable, Untellable, Version
from kernelmate.suggest.codec.chat import request_of
from kernelmate.suggest.codec.edits import line_token
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.suggest.codec.starter import END, AskedByLines, LineCodec
from kernelmate.suggest.codec.tags import read_tags, tags_of
from kernelmate.suggest.recipes import ALL

MOST_STEPS = 4
MOST_VARIANTS = 32
"""Of one recipe: what it can be told apart by."""

_RECIPES = {recipe.name: recipe for recipe in ALL}
_STEP = re.compile(r"@use-([a-z-]+):(?:@(\d{1,3}):)?")
_AUTHOR = re.compile(r"recipe:([a-z+-]+)")


@dataclass(frozen=True)
class ActionCodec:
    """A codec whose prompts are those of the line codec, and whose answers are recipes with the number of a variant."""

    name: str = "actions-1"
    end: str = END

    def ask(self, question: Question) -> AskedForActions:
        """As `Codec.ask`."""
        return AskedForActions(question, LineCodec(self.name).ask(question))

    def answer(self, question: Question, after: Version | None, analysis: Sequence[str] = ()) -> str:
        """As `Codec.answer`; steps are known by an author such as `recipe:coalesce+unroll` among the analysis."""
        tags = "".join(tag.token for tag in tags_of(analysis))
        if after is None:
            if not tags:
                raise Untellable("The analysis says nothing that there is a tag for.")
            return tags
        named = _AUTHOR.search(" ".join(analysis))
        steps = _path(_assumed(question), after, named[1].split("+") if named is not None else None)
        if steps is None:
            raise Untellable("No recipe leads to this version.")
        return tags + "".join(f"@use-{name}:{line_token(number)}" for name, number in steps)

    def vocabulary(self) -> tuple[str, ...]:
        """As `Codec.vocabulary`."""
        return (*LineCodec().vocabulary(), *(f"@use-{name}:" for name in _RECIPES))


@dataclass(frozen=True)
class AskedForActions:
    """One question, as `Asked`."""

    question: Question
    lines: AskedByLines
    messages: tuple[tuple[str, str], ...] = ()

    @property
    def prompt(self) -> str:
        """As `Asked.prompt`."""
        return self.lines.prompt

    def read(self, answer: str) -> Answer:
        """As `Asked.read`."""
        text = answer.strip().removesuffix(END).strip()
        tags, position = read_tags(text)
        said = Answer(None, tuple(tag.sentence for tag in tags), tuple(tag.token for tag in tags))
        if self.question.task == "analyse":
            return said
        try:
            request = _assumed(self.question)
        except Untellable as error:
            raise Unreadable(str(error)) from None
        whys: list[str] = []
        for name, number in _steps(text[position:]):
            candidate = _variant(request, name, number)
            request = replace(request, kernel=candidate.kernel, contract=candidate.contract)
            whys.append(candidate.why)
        version = Version(request.kernel.unit.text, launch_of(request.contract))
        return replace(said, version=version, analysis=(*said.analysis, *whys))


def _assumed(question: Question) -> SuggestRequest:
    """A request for recipes; where only code for the GPU would show that there is double arithmetic, it is taken for granted."""
    request = request_of(question)
    return replace(request, compiled=replace(request.compiled, ptx=".f64"))


def _steps(text: str) -> Iterator[tuple[str, int]]:
    position, count = 0, 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or found[1] not in _RECIPES:
            raise Unreadable(f"The answer holds {text[position : position + 40]!r} where a recipe should be named.")
        count += 1
        if count > MOST_STEPS:
            raise Unreadable(f"The answer takes more than {MOST_STEPS} steps.")
        yield found[1], int(found[2] or 0)
        position = found.end()
    if not count:
        raise Unreadable("The answer names no recipe.")


def _variant(request: SuggestRequest, name: str, number: int) -> Candidate:
    for place, candidate in enumerate(_RECIPES[name].candidates(request)):
        if place == number:
            return candidate
    raise Unreadable(f"The recipe {name} has no variant {number} here.")


def _path(request: SuggestRequest, after: Version, names: Sequence[str] | None) -> list[tuple[str, int]] | None:
    """The steps that lead to a version: the named recipes in turn, or else any one."""
    if names is not None and any(name not in _RECIPES for name in names):
        return None
    for name in [names[0]] if names else _RECIPES:
        for number, candidate in enumerate(_RECIPES[name].candidates(request)):
            if number >= MOST_VARIANTS:
                break
            if names is None or len(names) == 1:
                if (candidate.kernel.unit.text, launch_of(candidate.contract)) == (after.text, after.launch):
                    return [(name, number)]
                continue
            rest = _path(replace(request, kernel=candidate.kernel, contract=candidate.contract), after, names[1:])
            if rest is not None:
                return [(name, number), *rest]
    return None
