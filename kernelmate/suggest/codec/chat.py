"""Codec of ordinary instruct models: a search's prompts as a conversation, and a proposal in JSON as the answer.

The prompts come from `kernelmate.suggest.prompts` and the answer forms from `kernelmate.suggest.replies`, so that a
model is trained on exactly the texts that a search sends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property

import msgspec

from kernelmate.compiler.targets import find_target
from kernelmate.decide.objective import read_objective
from kernelmate.errors import KernelmateError, UsageError
from kernelmate.records import Candidate, Compiled, Contract, Judged, Kernel, Objective, Verdict
from kernelmate.source import find_kernels, infer_contract, parse_contract, text_unit
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec.base import (
    CodecLaunch,
    CodecVersion,
    DecodedAnswer,
    NotEncodable,
    Question,
    UndecodableAnswer,
)
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.suggest.prompts import RULES, kernel_part, questions, versions_part
from kernelmate.suggest.replies import Malformed, Proposal, Review, Step, proposed, read_reply

BEGIN, END = "<|im_start|>", "<|im_end|>"
ANALYSE = """\
1. What limits the kernel, in terms of the hardware?
2. What would help, the most useful first, and why?
"""

_LAUNCH = re.compile(r"<<<.*?>>>", re.DOTALL)


@dataclass(frozen=True)
class ChatCodec:
    """A codec with a system message and a user message as prompt, and JSON answers."""

    name: str = "chat-1"
    end: str = END

    def ask(self, question: Question) -> ChatQuestion:
        """Implements `Codec.ask`."""
        return ChatQuestion(question, request_of(question))

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """Implements `Codec.answer`."""
        first, rest = (analysis[0], analysis[1:]) if analysis else ("", ())
        steps = tuple(Step(what, "") for what in rest)
        if after is None:
            if not analysis:
                raise NotEncodable("There is no analysis.")
            return msgspec.json.encode(Review(first, (), steps)).decode()
        request = request_of(question)
        launch, old = after.launch, question.launch
        if launch.require != old.require:
            raise NotEncodable("The version changes what sizes it is meant for, which a proposal does not hold.")
        return msgspec.json.encode(
            Proposal(
                first,
                steps,
                _kernel_text(request.kernel, after),
                None,
                launch.grid if launch.grid != old.grid else None,
                launch.block if launch.block != old.block else None,
                launch.shared if launch.shared != old.shared else None,
            )
        ).decode()

    def vocabulary(self) -> tuple[str, ...]:
        """Implements `Codec.vocabulary`: the special tokens of ChatML, as in Qwen's models."""
        return (END, BEGIN)


@dataclass(frozen=True)
class ChatQuestion:
    """One question as a conversation, as `EncodedQuestion`."""

    question: Question
    request: SuggestRequest

    @cached_property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Implements `EncodedQuestion.messages`."""
        request = self.request
        parts = [kernel_part(request), versions_part(request.versions(), request)]
        task = ANALYSE if self.question.task == "analyse" else questions(request)
        if self.question.broken:
            task = f"It was said of it: {self.question.broken}\n{task}"
        return (("system", RULES), ("user", "\n\n".join([*parts, task])))

    @property
    def prompt(self) -> str:
        """Implements `EncodedQuestion.prompt`, in ChatML format."""
        said = "".join(f"{BEGIN}{role}\n{text}{END}\n" for role, text in self.messages)
        return f"{said}{BEGIN}assistant\n"

    def read(self, answer: str) -> DecodedAnswer:
        """Implements `EncodedQuestion.read`."""
        text = answer.strip().removesuffix(END)
        try:
            if self.question.task == "analyse":
                review = read_reply(text, Review)
                return DecodedAnswer(None, _said(review.analysis, review.optimizations))
            proposal = read_reply(text, Proposal)
            candidate = proposed(self.request, proposal, "the model")
        except (Malformed, AuthorFailed) as error:
            raise UndecodableAnswer(str(error)) from None
        version = CodecVersion(candidate.kernel.unit.text, launch_of(candidate.contract))
        return DecodedAnswer(version, _said(proposal.analysis, proposal.changes))


def _said(analysis: str, steps: Sequence[Step]) -> tuple[str, ...]:
    texts = (analysis, *(f"{step.what} {step.why}".strip() for step in steps))
    return tuple(filter(None, texts))


def _kernel_text(before: Kernel, after: CodecVersion) -> str:
    """Returns the changed kernel with its new helpers above it, in the form of a proposal."""
    changed = _kernel_in(after.text, before.name)
    old, new = _beside(before), _beside(changed)
    helpers: list[str] = []
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind in ("delete", "replace"):
            raise NotEncodable(f"The version changes text outside the kernel: {old[i1:i2][0].strip()[:60]}")
        if kind == "insert":
            helpers += new[j1:j2]
    return "\n".join([*helpers, changed.source])


def _beside(kernel: Kernel) -> list[str]:
    """Returns the lines of a unit outside the kernel, normalised for comparison.

    Contracts, blank lines, launch parameters, and numbers assigned to names of launch parameters are left out.
    """
    text = kernel.unit.text
    for start, end in sorted(filter(None, [(kernel.start, kernel.end), kernel.contract_span]), reverse=True):
        text = text[:start] + text[end:]
    for name in {word for launch in _LAUNCH.findall(text) for word in re.findall(r"[A-Za-z_]\w*", launch)}:
        text = re.sub(rf"\b{name} = \d+;", f"{name} = ;", text)
    return [line for line in _LAUNCH.sub("<<<>>>", text).split("\n") if line.strip()]


def _kernel_in(text: str, name: str) -> Kernel:
    found = next((kernel for kernel in find_kernels(text_unit(text)) if kernel.name == name), None)
    if found is None:
        raise NotEncodable(f"The kernel {name} is not in the text.")
    return found


def request_of(question: Question) -> SuggestRequest:
    """Returns a search request from a question, with the parts that prompts need.

    Raises:
        NotEncodable: the text does not contain the kernel, or no contract is available for it.
    """
    kernel = _kernel_in(question.text, question.kernel)
    try:
        contract = question.contract or parse_contract(kernel) or infer_contract(kernel)
        target = find_target(question.target)
    except KernelmateError as error:
        raise NotEncodable(f"The kernel cannot be asked about: {error.message}") from None
    verdict = question.verdict or _nothing_known(question)
    versions = tuple(_judged(question, kernel, contract, verdict))
    return SuggestRequest(
        kernel=kernel,
        contract=_with(contract, question.launch),
        compiled=Compiled(kernel.name, None, "", question.arch, "", True, ()),
        verdict=verdict,
        objective=_objective(question, verdict),
        target=target,
        judge=_never,
        versions=lambda: versions,
        stop=lambda: False,
    )


def _never(candidate: Candidate) -> Judged:
    raise AssertionError(f"a question judges nothing: {candidate.author}")


def _with(contract: Contract, launch: CodecLaunch) -> Contract:
    return replace(contract, grid=launch.grid, block=launch.block, shared=launch.shared, require=launch.require)


def _objective(question: Question, verdict: Verdict) -> Objective:
    """Returns the objective of the prompt if it has the question's metric; else the objective of that metric."""
    with suppress(UsageError):
        read = read_objective(question.prompt, verdict)
        if read.metric == question.metric:
            return read
    return read_objective(question.prompt, name=question.metric)


def _nothing_known(question: Question) -> Verdict:
    return Verdict(
        kernel=question.kernel, instance=None, backend="emulator", target=question.target, arch=question.arch, compiler="",
        binary=None, seed=0, compiled=True, diagnostics=(), resources=None, occupancy=None, correct=None, cases=(), findings=(),
        timing=None, speedup=None, counters=None, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def _judged(question: Question, kernel: Kernel, contract: Contract, verdict: Verdict) -> list[Judged]:
    """Returns a question's earlier versions as judged candidates, with the facts that are known."""
    found = []
    for tried in question.tried:
        try:
            changed = _kernel_in(tried.version.text, kernel.name)
        except NotEncodable:
            continue
        reasons = tuple(tried.codes)
        speedup = None if tried.speedup is None else f"{tried.speedup:.2f}x the speed"
        candidate = Candidate("an earlier search", speedup or "", changed, _with(contract, tried.version.launch))
        found.append(
            Judged(candidate, replace(verdict, accepted=tried.accepted, reasons=reasons, findings=(), timing=None))
        )
    return found
