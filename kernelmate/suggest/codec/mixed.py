"""Codec whose prompts offer applicable rewrites, and whose answers choose among them or are short programs.

A program consists of changes of the kernel's head by special tokens, a new launch, line edits of the body, and rewrites
(recipes or repairs), which are applied last. Each frequent and reliable change is a single token: `__restrict__` of a
pointer, launch bounds, a recipe. Code that the contract determines, and code outside the kernel, has no line number, so
no answer can corrupt it. Edits precede rewrites, since they refer to the lines that the model saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import prod

from kernelmate.compiler.targets import sm_limits
from kernelmate.errors import KernelmateError
from kernelmate.source import launch_shape
from kernelmate.suggest.codec import corrections, header
from kernelmate.suggest.codec import edits as line_edits
from kernelmate.suggest.codec.applicable import (
    Named,
    Offer,
    Step,
    assumed,
    format_offers,
    named_steps,
    offer_tokens,
    offered,
    path,
    with_steps,
)
from kernelmate.suggest.codec.base import (
    STARTER,
    CodecLaunch,
    CodecVersion,
    DecodedAnswer,
    NotEncodable,
    Question,
    UndecodableAnswer,
)
from kernelmate.suggest.codec.chat import request_of
from kernelmate.suggest.codec.edits import LINE, MOST_LINES, Edit, line_token
from kernelmate.suggest.codec.heads import HEAD_WORDS, format_head, head_changed, parameter_names
from kernelmate.suggest.codec.layout import put_back, replaced
from kernelmate.suggest.codec.lines import CanonicalLine, CanonicalUnit, Regions, regions
from kernelmate.suggest.codec.names import in_parameters, placeholders, values_of
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.suggest.codec.shown import (
    END,
    ShownLines,
    after_sides,
    arguments_of,
    cleaned,
    format_tried,
    places_of,
    readable,
    tokens_of,
    version_of,
)  # fmt: skip
from kernelmate.suggest.codec.tags import format_tags, read_analysis, tag_tokens, tags_of

FILLS = (0.0625, 0.25, 1, 4)
"""Upper bounds for the ratio of a launch's threads to the threads that the GPU can hold at once."""


def fill_tokens() -> tuple[str, ...]:
    """Returns the special tokens for the ratio of a launch's threads to the GPU's resident threads."""
    return *(f"@fill<={bound:g}" for bound in FILLS), "@fill-more"


def filled(question: Question) -> list[str]:
    """Returns the token for the share of the GPU that the launch fills at the timed size; empty if the launch or the GPU is unknown."""
    try:
        request = request_of(question)
        size = request.contract.sizes[0] if question.size is None else question.size
        shape = launch_shape(request.contract, size)
        target = request.target
        held = target.sms * sm_limits(target.capability).threads_per_sm
    except (KernelmateError, NotEncodable):
        return []
    share = prod(shape.grid) * shape.threads / held
    bound = next((bound for bound in FILLS if share <= bound), None)
    return ["@fill-more" if bound is None else f"@fill<={bound:g}"]


TOP, WANTS = "@top", "@wants"

_SECTION = re.compile(
    rf"(?P<head>{'|'.join(sorted(HEAD_WORDS, key=len, reverse=True))})|(?P<launch>@(?:grid|block|shared|require))"
    rf"|(?P<top>{TOP}(?=@\|))|(?P<edit>@(?:rep|ins|del)(?=@\d))|@use-(?P<recipe>[a-z0-9-]+):(?:@#(?P<variant>\d{{1,3}}))?"
)
_HELPER = re.compile(r"#define|(?:static|inline|constexpr|template|__device__|__forceinline__|__host__)\b|__constant__")
_CONTRACTS = ("block", "block_x", "block_y", "block_z", "cdiv", "min", "max", "sizeof")
"""Names that a contract's expressions may contain besides parameters."""
_PLACEHOLDER = re.compile(r"@v\d+\Z")


@dataclass(frozen=True)
class MixedCodec:
    """A codec whose answers are programs of rewrites, head changes and line edits.

    Attributes:
        name: as in `Codec`.
        hides: True to replace names and long literals by placeholders.
    """

    name: str = STARTER
    hides: bool = True
    end: str = END

    def ask(self, question: Question) -> MixedQuestion:
        """Implements `Codec.ask`.

        The last question is cached, since corpus generation needs it for the prompt and for the answer.
        """
        last = _LAST.get(self.name)
        if last is None or last.question is not question:
            lines = ShownLines.of(question, hides=self.hides)
            last = _LAST[self.name] = MixedQuestion(self, question, lines, regions(lines.unit.shown, question.kernel))
        return last

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """Implements `Codec.answer`.

        The answer consists of rewrites if the analysis names an author such as `recipe:coalesce+unroll`.

        An answer of rewrites alone has no analysis, so that its first token is the choice.
        """
        said = [one for one in analysis if not one.startswith("recipe:")]
        if after is None:
            return format_tags(said, alone=True)
        asked = self.ask(question)
        steps = asked.steps(after, named_steps(analysis))
        if steps is not None:
            return "".join(_format_step(step) for step in steps)
        return format_tags(said) + asked.told(after)

    def vocabulary(self) -> tuple[str, ...]:
        """Implements `Codec.vocabulary`."""
        return (
            self.end,
            *header.header_tokens(),
            WANTS,
            *HEAD_WORDS,
            TOP,
            *line_edits.edit_tokens(),
            *tag_tokens(),
            *offer_tokens(),
            *fill_tokens(),
            *(line_token(number) for number in range(MOST_LINES + 1)),
            *(mark for mark in placeholders() if self.hides or mark.startswith("@k")),
        )


@dataclass(slots=True)
class _Program:
    """A parsed answer."""

    launch: CodecLaunch
    head: list[tuple[str, str]] = field(default_factory=list)
    top: list[str] = field(default_factory=list)
    edits: str = ""
    steps: list[Step] = field(default_factory=list)


@dataclass
class MixedQuestion:
    """One question, as `EncodedQuestion`. The body's lines are numbered from 1."""

    codec: MixedCodec
    question: Question
    lines: ShownLines
    where: Regions
    messages: tuple[tuple[str, str], ...] = ()

    @property
    def prompt(self) -> str:
        """Implements `EncodedQuestion.prompt`."""
        question, where, names = self.question, self.where, self.lines.names
        places = places_of(self.lines.unit) if question.broken else {}
        numbers = {at: n - where.start for at, n in places.items() if where.start < n <= where.stop}
        asked_for = [tag.token for tag in tags_of([question.prompt]) if tag.kind == "do"] if question.prompt else []
        wants = [*([WANTS, *asked_for] if asked_for else []), *filled(question)]
        said = header.header(question, names, arguments_of(question), numbers, wants)
        code = "".join(
            (line_token(number - where.start + 1) if where.start <= number < where.stop else LINE) + line
            for number, line in enumerate(self.lines.lines)
        )
        tried = format_tried(question, self.told)
        return said + header.CODE + code + tried + format_offers(self.offers) + header.ANSWER

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Returns the applicable rewrites; empty if only an analysis is requested, or if they are unknown."""
        question = self.question
        if question.task == "analyse":
            return ()
        if question.offers is not None:
            return question.offers
        try:
            return offered(question)
        except (KernelmateError, NotEncodable):
            return ()

    # ------------------------------------------------------------------------------------------------- telling

    def steps(self, after: CodecVersion, names: Sequence[Named] | None) -> list[Step] | None:
        """Returns the rewrites that lead to a version; None if none do.

        For a broken kernel, rewrites that are not named are tried too.

        Raises:
            NotEncodable: the first rewrite is not among the offers.
        """
        steps = path(self.question, after, names, lambda: self.offers)
        if steps is not None and steps[0][1] >= dict(self.offers).get(steps[0][0], 0):
            raise NotEncodable("The version takes a rewrite that is not offered.")
        return steps

    def told(self, after: CodecVersion) -> str:
        """Returns the answer that leads to a version, without rewrites.

        Raises:
            NotEncodable: the version equals the kernel, or changes text that answers cannot change.
        """
        lines, where = self.lines, self.where
        unit, changed = lines.compared(after)
        new = regions(unit.shown, self.question.kernel)
        stop = len(changed) - (len(lines.lines) - where.stop)
        # Texts are compared, not lines: with unbalanced braces, the same text gives other lines.
        beside = "".join(lines.lines[: where.head])
        top = [] if "".join(changed[: new.head]) == beside else changed[where.head : new.head]
        if "".join(changed[: new.head - len(top)]) != beside or not _is_helper(top):
            raise NotEncodable("The version changes text outside the kernel.")
        if stop < new.start or changed[stop:] != list(lines.lines[where.stop :]):
            raise NotEncodable("The version changes the text after the kernel.")
        head = format_head(lines.unit.shown[where.head].texts, unit.shown[new.head].texts, lines.names)
        edits = line_edits.difference(lines.lines[where.start : where.stop], changed[new.start : stop])
        self._must_keep_order(unit, len(top), edits)
        answer = head + lines.format_launch(after.launch)
        answer += (TOP + "".join(LINE + line for line in top) if top else "") + line_edits.written(edits)
        if not answer:
            raise NotEncodable("The version is the one that was asked about.")
        return answer

    def _must_keep_order(self, unit: CanonicalUnit, count: int, edits: Sequence[Edit]) -> None:
        """Checks that new lines above the head and edits of the body keep the order of hidden lines.

        `count` is the number of new lines.
        """
        old, start = self.lines.unit, self.where.start
        moved = [(edit.start + start, edit.stop + start, [[line] for line in edit.lines]) for edit in edits]
        changed = list(replaced(old, moved))
        head = next(at for at, line in enumerate(changed) if line is old.shown[self.where.head])
        other = unit.lines.index(unit.shown[regions(unit.shown, self.question.kernel).head])
        flags = [isinstance(line, CanonicalLine) and line.hidden for line in changed[head:]]
        above = [line.hidden for line in unit.lines[other - count : other]]
        if any(above) or flags != [line.hidden for line in unit.lines[other:]]:
            raise NotEncodable("The version has new code among code that the model is not shown.")

    # ------------------------------------------------------------------------------------------------- reading

    def read(self, answer: str) -> DecodedAnswer:
        """Implements `EncodedQuestion.read`."""
        said, text = read_analysis(cleaned(answer, self.codec.end))
        if self.question.task == "analyse":
            return said
        with readable():
            program = self._program(text)
            program.launch = self._of_parameters(program.launch, program.top)
            version = version_of(self.question, self._changed(program), program.launch)
            if not program.steps:
                return replace(said, version=version)
            request, whys = with_steps(assumed(_asked_anew(self.question, version)), program.steps)
        own = version != CodecVersion(self.question.text, self.question.launch)
        version = CodecVersion(request.kernel.unit.text, launch_of(request.contract))
        taken_steps = "recipe:" + "+".join(f"{name}#{number}" for name, number in program.steps)
        rewrites = () if own else tuple(name for name, _ in program.steps)
        analysis = (*said.analysis, *whys)
        return replace(said, version=version, analysis=analysis, tags=(*said.tags, taken_steps), rewrites=rewrites)

    def _program(self, text: str) -> _Program:
        program, position = _Program(self.question.launch), 0
        while position < len(text):
            found = _SECTION.match(text, position)
            if found is None:
                raise UndecodableAnswer(
                    f"The answer holds {text[position : position + 40]!r} where a change should begin."
                )
            if program.steps and not found["recipe"]:
                raise UndecodableAnswer(
                    "The answer changes the kernel after a recipe, where its lines have other numbers."
                )
            if found["launch"]:
                program.launch, position = self.lines.launch_read(text, position, program.launch)
                continue
            if found["head"]:
                end = after_sides(text, found.end())
                program.head.append((found["head"], text[found.end() : end].strip()))
            elif found["recipe"]:
                program.steps.append((found["recipe"], int(found["variant"] or 0)))
                end = found.end()
            else:
                following = _SECTION.search(text, found.end())
                end = following.start() if following is not None else len(text)
                if found["top"]:
                    program.top += [line.strip() for line in text[found.end() : end].split(LINE)[1:]]
                else:
                    program.edits += text[position:end]
            position = end
        return program

    def _of_parameters(self, launch: CodecLaunch, top: Sequence[str]) -> CodecLaunch:
        """Returns the launch with the kernel's own names replaced by the parameters that they derive from."""
        if launch == self.question.launch:
            return launch
        shown = self.lines.unit.shown
        known = {*parameter_names(shown[self.where.head].texts), *_CONTRACTS}
        values = values_of([*(line.texts for line in shown), *tokens_of(top)])
        sides = {
            key: tuple(in_parameters(side, values, known) for side in getattr(launch, key)) for key in ("grid", "block")
        }
        return replace(launch, shared=in_parameters(launch.shared, values, known), **sides)

    def _changed(self, program: _Program) -> str:
        """Returns the unit's text after all changes except rewrites."""
        unit, where = self.lines.unit, self.where
        edits = line_edits.read(program.edits, where.stop - where.start)
        if not _is_helper(program.top):
            raise UndecodableAnswer("The answer has something above the kernel that is not a helper of it.")
        if not (edits or program.head or program.top):
            return self.question.text
        written = [tokens_of(lines) for lines in (program.top, *(edit.lines for edit in edits))]
        fresh = self._fresh(chain.from_iterable(written))
        top, *new = ([[fresh.get(text, text) for text in line] for line in lines] for lines in written)
        top, *new = ([self.lines.names.show(line) for line in lines] for lines in (top, *new))
        new, missing = self._paired(edits, new)
        changes = [
            (edit.start + where.start, edit.stop + where.start, lines) for edit, lines in zip(edits, new, strict=True)
        ]
        head = unit.shown[where.head].texts
        renewed = head_changed(head, program.head, self.lines.names)
        first = [(where.head, where.head, top), (where.head, where.head + 1, [renewed])]
        if renewed == head:
            del first[1]
        closing = [(where.stop, where.stop, [["}"]] * missing)]
        changed = list(replaced(unit, [*first, *changes, *closing]))
        changed = corrections.renamed(changed, corrections.named(unit, changed))
        unknown = corrections.undeclared(unit, changed, set(fresh.values()))
        if unknown is not None:
            mark = next(mark for mark, name in fresh.items() if name == unknown)
            raise UndecodableAnswer(f"The answer uses {mark}, which is not defined.")
        return put_back(unit, changed)

    def _fresh(self, lines: Iterable[Sequence[str]]) -> dict[str, str]:
        """Returns names for undefined placeholders that the model's lines declare, as new names."""
        names = self.lines.names
        taken_marks = set(names.names.values())
        marks = dict.fromkeys(text for line in lines for text in line if _PLACEHOLDER.match(text))
        found: dict[str, str] = {}
        for mark in marks:
            if mark not in taken_marks:
                name = f"v{mark[2:]}"
                while name in names.names:
                    name += "_"
                found[mark] = name
        return found

    def _paired(self, edits: Sequence[Edit], new: Sequence[list[list[str]]]) -> tuple[list[list[list[str]]], int]:
        """Returns the new lines of each edit with balanced braces, and the number of braces to add after the body."""
        body = [line.texts for line in self.lines.unit.shown[self.where.start : self.where.stop]]
        gone = [line for edit in edits for line in body[edit.start : edit.stop]]
        short = _open(chain.from_iterable(new)) - _open(gone)
        if _open(body) or not short or abs(short) > corrections.MOST_BRACES:
            return list(new), 0
        return (list(new), short) if short > 0 else (corrections.paired(new, short), 0)


def _open(lines: Iterable[Sequence[str]]) -> int:
    """Returns the number of braces that are opened and not closed."""
    return sum(list(line).count("{") - list(line).count("}") for line in lines)


def _is_helper(lines: Sequence[str]) -> bool:
    """Returns True if the lines are definitions allowed above a kernel (constants, macros, device functions), or empty."""
    return not lines or (
        _HELPER.match(lines[0]) is not None
        and sum(line.count("{") - line.count("}") for line in lines) == 0
        and not any("__global__" in line for line in lines)
    )


def _format_step(step: Step) -> str:
    name, number = step
    return f"@use-{name}:" + (f"@#{number}" if number else "")


def _asked_anew(question: Question, version: CodecVersion) -> Question:
    """Returns the question with a version in place of its kernel."""
    launch, contract = version.launch, question.contract
    if contract is not None:
        contract = replace(contract, grid=launch.grid, block=launch.block, shared=launch.shared, require=launch.require)
    return replace(question, text=version.text, launch=launch, contract=contract, tried=(), offers=None)


_LAST: dict[str, MixedQuestion] = {}
"""The last question of each codec."""
