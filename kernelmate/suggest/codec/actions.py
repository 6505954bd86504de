"""A codec whose answers name recipes: what a model chooses is which built-in rewrite, and which of its variants, in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.suggest.codec.applicable import REWRITES, assumed, offered
from kernelmate.suggest.codec.base import CodecVersion, DecodedAnswer, NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.edits import line_token
from kernelmate.suggest.codec.line_codec import END, LineCodec, LineQuestion, cleaned, readable
from kernelmate.suggest.codec.programs import Step, named_steps, path, taken
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.suggest.codec.tags import read_analysis, tags_told

_STEP = re.compile(r"@use-([a-z0-9-]+):(?:@(\d{1,3}):)?")


@dataclass(frozen=True)
class ActionCodec:
    """A codec whose prompts are those of the line codec, and whose answers are recipes with the number of a variant."""

    name: str = "actions-1"
    end: str = END

    def ask(self, question: Question) -> ActionQuestion:
        """As `Codec.ask`."""
        return ActionQuestion(question, LineCodec(self.name).ask(question))

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """As `Codec.answer`; steps are known by an author such as `recipe:coalesce+unroll` among the analysis."""
        if after is None:
            return tags_told(analysis, alone=True)
        steps = path(question, after, named_steps(analysis), lambda: offered(question))
        if steps is None:
            raise NotEncodable("No recipe leads to this version.")
        return tags_told(analysis) + "".join(f"@use-{name}:{line_token(number)}" for name, number in steps)

    def vocabulary(self) -> tuple[str, ...]:
        """As `Codec.vocabulary`."""
        return (*LineCodec().vocabulary(), *(f"@use-{name}:" for name in REWRITES))


@dataclass(frozen=True)
class ActionQuestion:
    """One question, as `EncodedQuestion`."""

    question: Question
    lines: LineQuestion
    messages: tuple[tuple[str, str], ...] = ()

    @property
    def prompt(self) -> str:
        """As `Asked.prompt`."""
        return self.lines.prompt

    def read(self, answer: str) -> DecodedAnswer:
        """As `Asked.read`."""
        said, text = read_analysis(cleaned(answer, END))
        if self.question.task == "analyse":
            return said
        steps = list(_steps(text))
        with readable():
            request, whys = taken(assumed(self.question), steps)
        version = CodecVersion(request.kernel.unit.text, launch_of(request.contract))
        return replace(
            said, version=version, analysis=(*said.analysis, *whys), rewrites=tuple(name for name, _ in steps)
        )


def _steps(text: str) -> Iterator[Step]:
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or found[1] not in REWRITES:
            raise UndecodableAnswer(
                f"The answer holds {text[position : position + 40]!r} where a recipe should be named."
            )
        yield found[1], int(found[2] or 0)
        position = found.end()
    if not position:
        raise UndecodableAnswer("The answer names no recipe.")
