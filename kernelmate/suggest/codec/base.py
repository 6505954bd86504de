"""Interface of codecs: a question as the exact text that a model reads, and the meaning of its answer.

Inference and training use the same codec. At inference `ask` returns the prompt and the decoder of the answer. In
training `answer` returns the text that would have produced a good version: for every version that it can express,
`ask(question).read(answer(question, after)).version` equals `after`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kernelmate.records import Contract, MetricName, Verdict

STARTER, PLAIN = "mixed-2", "mixed-2-plain"
"""The codec of the shipped model, and the same without placeholders for names and literals, to measure their effect."""
CHAT = "chat-1"
"""The codec of ordinary instruct models, and of every model whose file names none."""
NAMES = (STARTER, PLAIN, CHAT)
OFFERING = (STARTER, PLAIN)
"""Codecs whose prompts list applicable rewrites by number (see `fingerprint`), and whose answers refer to them."""

Task = Literal["generate", "analyse", "debug"]
"""Generate a better version; analyse the limits without one; or repair a broken or wrong version."""


@dataclass(frozen=True, slots=True)
class CodecLaunch:
    """The part of a contract that a version may change, as text."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"
    require: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodecVersion:
    """One version of a kernel: the whole unit's text with its contract block, and its launch."""

    text: str
    launch: CodecLaunch


@dataclass(frozen=True, slots=True)
class TriedVersion:
    """An earlier version and its result.

    Attributes:
        version: what was tried.
        accepted: as its verdict says: True, False, or None for what could not be decided.
        speedup: the baseline's time over its time, where that is known.
        codes: the codes of the findings that speak against it.
    """

    version: CodecVersion
    accepted: bool | None
    speedup: float | None = None
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a model may be told.

    Attributes:
        text: the whole unit. kernel: the name of the kernel that is asked about, with its namespaces.
        launch: in force for it.
        metric: what is requested. prompt: the user's words.
        task: what kind of answer is wanted.
        target: the GPU's name, `H100 SXM`. arch: its architecture, `sm_90`.
        contract: in force; None reads it from the text where it is needed.
        verdict: what is known of the version that is asked about: resources, occupancy, counters, findings.
        broken: the compiler's or the judge's words on it, where it is broken or wrong.
        tried: earlier versions and what became of them, the best first.
        size: at which time counts; None for the contract's headline.
        offers: rewrites that apply, and how many variants of each; None for what is found when it is requested.
        seed: draws how placeholders are numbered, so that a model learns none by heart; None numbers them in order.
    """

    text: str
    kernel: str
    launch: CodecLaunch
    metric: MetricName = "time"
    prompt: str = ""
    task: Task = "generate"
    target: str = "H100 SXM"
    arch: str = "sm_90"
    contract: Contract | None = None
    verdict: Verdict | None = None
    broken: str | None = None
    tried: tuple[TriedVersion, ...] = ()
    size: Mapping[str, int] | None = None
    offers: tuple[tuple[str, int], ...] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """Meaning of an answer.

    Attributes:
        version: the changed version; None if the task asks for none.
        analysis: limits of the kernel and the changes made, one sentence each.
        tags: the same as the codec's own tags, and the recipes taken; empty for codecs without tags. `Codec.answer` needs
            them to write the version in the same way.
        rewrites: names of the built-in rewrites that alone made the version; empty if the model wrote any text itself.
    """

    version: CodecVersion | None
    analysis: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()


class UndecodableAnswer(Exception):
    """A model's answer cannot be decoded to a version; the message is one sentence."""


class NotEncodable(Exception):
    """A codec cannot express a version in its answers, or a kernel in its prompts; the message gives the reason."""


class EncodedQuestion(Protocol):
    """A question as a model reads it, and the decoder of its answer."""

    @property
    def prompt(self) -> str:
        """The exact input text, with special tokens spelled out; nothing is put before or after it."""
        ...

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Role and text of each message, for models with a chat template; empty if `prompt` is complete."""
        ...

    def read(self, answer: str) -> DecodedAnswer:
        """Decode an answer, which may end with the codec's `end`.

        Raises:
            UndecodableAnswer: nothing that could be judged. No other exception, whatever the text.
        """
        ...


class Codec(Protocol):
    """Encodes questions for one kind of model, and decodes its answers."""

    @property
    def name(self) -> str:
        """Name of the codec, as in a GGUF's metadata under `kernelmate.codec`."""
        ...

    @property
    def end(self) -> str:
        """The special token that ends an answer; the trainer appends it, and makes it the tokenizer's end of text."""
        ...

    def ask(self, question: Question) -> EncodedQuestion:
        """Returns the question as the model reads it.

        Raises:
            NotEncodable: the kernel cannot be shown.
        """
        ...

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """Return a model's best answer to a question, without `end`.

        Args:
            question: what was asked.
            after: the good version; None for the task `analyse`.
            analysis: reasons and steps, as sentences or as tags; a codec keeps what it has words for.

        Raises:
            NotEncodable: the version differs where the codec's answers cannot reach.
        """
        ...

    def vocabulary(self) -> tuple[str, ...]:
        """Special tokens that a tokenizer must keep whole, `end` among them, always in the same order."""
        ...
