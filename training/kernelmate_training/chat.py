"""How instruct models are taught: asked as `suggest/local` asks them, answering in the JSON that it reads.

The same rules, the same account of the kernel and the same questions stand in training and afterwards; what is learned is
the form of the answer and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Judged, Verdict
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec.base import (
    CodecLaunch,
    CodecVersion,
    DecodedAnswer,
    NotEncodable,
    Question,
    UndecodableAnswer,
)
from kernelmate.suggest.prompts import RULES, kernel_part, questions, versions_part
from kernelmate.suggest.proposals import proposed
from kernelmate.suggest.replies import Malformed, Proposal, Review, Step, read_reply

NAME, END = "chat-1", "<|im_end|>"
ANALYSE = "What limits this kernel, and what would make it better for the objective? Name problems and optimizations; write no kernel.\n"
FILE = "kernel.cu"


@dataclass(frozen=True)
class ChatCodec:
    """The codec of models that come with a chat template."""

    name: str = NAME
    end: str = END

    def ask(self, question: Question) -> AskedInChat:
        """As `Codec.ask`."""
        try:
            return AskedInChat(question, request_of(question))
        except KernelmateError as error:
            raise NotEncodable(error.message) from None

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """As `Codec.answer`."""
        said = " ".join(analysis) or "It can do the same work with less."
        if after is None:
            review = Review(said, (), tuple(Step(one, one) for one in analysis[-2:]))
            return _written(review)
        changed = {}
        for part in ("grid", "block", "shared"):
            value = getattr(after.launch, part)
            if value != getattr(question.launch, part):
                changed[part] = value
        proposal = Proposal(said, tuple(Step(one, said) for one in analysis[-1:]), device_text(after.text), **changed)
        return _written(proposal)

    def vocabulary(self) -> tuple[str, ...]:
        """As `Codec.vocabulary`: an instruct model's tokenizer has what it needs."""
        return (self.end,)


@dataclass(frozen=True)
class AskedInChat:
    """One question as a conversation, as `EncodedQuestion`."""

    question: Question
    request: SuggestRequest

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """As `Asked.messages`."""
        task = ANALYSE if self.question.task == "analyse" else questions(self.request)
        broken = f"What is said of it: {self.question.broken}" if self.question.broken else ""
        parts = [kernel_part(self.request), broken, versions_part((), self.request), task]
        return (("system", RULES), ("user", "\n\n".join(filter(None, parts))))

    @property
    def prompt(self) -> str:
        """As `Asked.prompt`, for those who only count its length: the template of a model puts the messages into words."""
        return "\n\n".join(text for _, text in self.messages)

    def read(self, answer: str) -> DecodedAnswer:
        """As `Asked.read`."""
        text = answer.removesuffix(END)
        try:
            if self.question.task == "analyse":
                review = read_reply(text, Review)
                return DecodedAnswer(None, (review.analysis, *(step.what for step in review.optimizations)))
            proposal = read_reply(text, Proposal)
            candidate = proposed(self.request, proposal, "local:chat")
        except (Malformed, AuthorFailed) as error:
            raise UndecodableAnswer(str(error)) from None
        contract = candidate.contract
        launch = CodecLaunch(contract.grid, contract.block, contract.shared, contract.require)
        return DecodedAnswer(CodecVersion(candidate.kernel.unit.text, launch), (proposal.analysis,))


def request_of(question: Question) -> SuggestRequest:
    """What a suggester would be told of a question's kernel.

    Raises:
        KernelmateError: the kernel or its contract cannot be read, or there is no such GPU.
    """
    from kernelmate.compiler.targets import find_target
    from kernelmate.decide.objective import read_objective

    kernels = find_kernels(text_unit(question.text, FILE))
    kernel = next((one for one in kernels if one.name == question.kernel), None)
    if kernel is None:
        raise NotEncodable(f"The kernel {question.kernel} is not in the text.")
    contract = question.contract or contract_for(kernel)
    verdict = question.verdict or _nothing_known(question)
    unasked: Callable[[Candidate], Judged] = _unasked
    return SuggestRequest(
        kernel=kernel,
        contract=contract,
        compiled=None,  # type: ignore[arg-type]  # what is written of a kernel comes from its verdict
        verdict=verdict,
        objective=read_objective(question.prompt, name=question.metric),
        target=find_target(question.target),
        judge=unasked,
        versions=tuple,
        stop=bool,
    )


def device_text(text: str) -> str:
    """A unit without its contract block, which is not an author's to write."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare == "// /// kernelmate":
            inside = True
        if not inside:
            kept.append(line)
        if inside and bare == "// ///":
            inside = False
    return "".join(kept)


def _written(form: Proposal | Review) -> str:
    return json.dumps(msgspec.to_builtins(form))


def _nothing_known(question: Question) -> Verdict:
    return Verdict(
        kernel=question.kernel, instance=None, backend="emulator", target=question.target, arch=question.arch, compiler="",
        binary=None, seed=0, compiled=not question.broken, diagnostics=(), resources=None, occupancy=None, correct=None,
        cases=(), findings=(), timing=None, speedup=None, counters=None, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def _unasked(_: Candidate) -> Judged:
    raise AuthorFailed("request", "Nothing is judged while examples are told.")
