"""Interface of codecs: the exact text that a model reads for a question, and the decoding of its answer.

Inference and training use the same codec. At inference `ask` returns the prompt and the decoder of the answer. In
training `answer` returns the text of an answer that gives a known good version: for every version that it can express,
`ask(question).read(answer(question, after)).version` equals `after`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kernelmate.records import Contract, MetricName, Verdict

STARTER, PLAIN = "mixed-2", "mixed-2-plain"
"""The codec of the shipped model; and a variant without placeholders, used to measure their effect."""
CHAT = "chat-1"
"""The codec of ordinary instruct models, and of model files that name no codec."""
NAMES = (STARTER, PLAIN, CHAT)
OFFERING = (STARTER, PLAIN)
"""Codecs whose prompts list applicable rewrites by number (see `fingerprint`), and whose answers refer to them."""

Task = Literal["generate", "analyse", "debug"]
"""`generate` a better version, `analyse` the limits without one, or `debug` (repair) a broken or wrong version."""


@dataclass(frozen=True, slots=True)
class CodecLaunch:
    """The part of a contract that a version may change, as text."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"
    require: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodecVersion:
    """One version of a kernel: the text of its unit with the contract block, and its launch."""

    text: str
    launch: CodecLaunch


@dataclass(frozen=True, slots=True)
class TriedVersion:
    """An earlier version and its result.

    Attributes:
        version: the version.
        accepted: `accepted` of its verdict: True, False, or None if undecided.
        speedup: the baseline's time over its time; None if unknown.
        codes: codes of its findings of severity `error`.
    """

    version: CodecVersion
    accepted: bool | None
    speedup: float | None = None
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a prompt may contain.

    Attributes:
        text: the whole unit.
        kernel: the name of the kernel in question, with its namespaces.
        launch: the kernel's launch.
        metric: the metric to improve.
        prompt: the user's words.
        task: the kind of answer.
        target: the GPU's name, such as `H100 SXM`.
        arch: its architecture, such as `sm_90`.
        contract: the contract in force; None to read it from the text when it is needed.
        verdict: known facts about the kernel: resources, occupancy, counters, findings.
        broken: the error text of the compiler or the judge, if the kernel is broken or wrong.
        tried: earlier versions and their results, the best first.
        size: the size whose time counts; None for the contract's headline.
        offers: names of applicable rewrites with their numbers of variants; None to compute them when needed.
        seed: seed of the random numbering of placeholders, which keeps a model from memorising numbers; None numbers
            them in order.
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
    """A decoded answer.

    Attributes:
        version: the changed version; None if the task asks for none.
        analysis: limits of the kernel and the changes made, one sentence each.
        tags: the analysis as the codec's tags, and the names of the applied recipes; empty for codecs without tags.
            `Codec.answer` needs them to reproduce the answer.
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
        """The exact input text, with special tokens spelled out; the caller adds nothing to it."""
        ...

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Role and text of each message, for models with a chat template; empty if `prompt` is complete."""
        ...

    def read(self, answer: str) -> DecodedAnswer:
        """Decodes an answer, which may end with the codec's `end`.

        Raises:
            UndecodableAnswer: the answer contains no version. No other exception is raised for any text.
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
        """The special token that ends an answer.

        The trainer appends it and makes it the tokenizer's end-of-text token.
        """
        ...

    def ask(self, question: Question) -> EncodedQuestion:
        """Encodes a question for the model.

        Raises:
            NotEncodable: the kernel cannot be expressed in a prompt.
        """
        ...

    def answer(self, question: Question, after: CodecVersion | None, analysis: Sequence[str] = ()) -> str:
        """Returns the answer that a model should give to a question, without `end`.

        Args:
            question: the question.
            after: the good version; None for the task `analyse`.
            analysis: reasons and steps, as sentences or as tags; a codec drops those that it cannot express.

        Raises:
            NotEncodable: the codec's answers cannot express the change.
        """
        ...

    def vocabulary(self) -> tuple[str, ...]:
        """Special tokens that a tokenizer must not split, `end` among them, in a fixed order."""
        ...
