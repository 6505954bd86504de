"""Records that the history stores and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

CommandName = Literal["bench", "compare", "optimize", "confirm", "fix", "other"]


LEAST_USD = 0.0001
"""Smallest price that is shown as a number, in US dollars."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Price of one version: a model's tokens as its server counts them, and US dollars if a price is known."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None

    @property
    def words(self) -> str:
        """Formats the cost: `1,204 tokens read, 310 written, 0.0123 USD`; empty if nothing was read, written or paid."""
        if not (self.input_tokens or self.output_tokens or self.usd):
            return ""
        tokens = f"{self.input_tokens or 0:,} tokens read, {self.output_tokens or 0:,} written"
        if not self.usd:
            return tokens
        return f"{tokens}, {self.usd:.4f} USD" if self.usd >= LEAST_USD else f"{tokens}, under {LEAST_USD} USD"

    def __add__(self, other: Cost) -> Cost:
        """Returns the sum of both costs; a figure that one of them lacks is taken from the other."""
        return Cost(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.usd, other.usd),
        )


Amount = TypeVar("Amount", int, float)


def _sum(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


@dataclass(frozen=True, slots=True)
class JudgementEntry:
    """One judgement of one version, as it is stored.

    Attributes:
        command: the command that judged it, such as `bench`.
        author: `user`, `recipe:pad-shared-tile`, `local:NAME`, `claude:MODEL`.
        verdict: as `--json` prints it.
        prompt: the user's words; None without a prompt.
        metric: the metric that the prompt was understood to mean.
        why: the author's reason, or None.
        launch: grid, block, shared and require in force, as a contract writes them.
        parent: number of the version that this one was derived from.
        cost: cost of the author's model.
        steps: how the author came to it, one sentence each.
    """

    command: CommandName
    author: str
    verdict: Mapping[str, Any]
    prompt: str | None = None
    metric: str | None = None
    why: str | None = None
    launch: Mapping[str, Any] | None = None
    parent: int | None = None
    cost: Cost = Cost()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """One kernel of the history.

    Attributes:
        number: its number.
        name: with namespaces, as last seen.
        path: its file, as last seen.
        versions: number of distinct texts.
        judgements: number of verdicts on them.
        seen_us: time of the last judgement, microseconds since 1970 (UTC).
    """

    number: int
    name: str
    path: str
    versions: int
    judgements: int
    seen_us: int


@dataclass(frozen=True, slots=True)
class RecordedJudgement:
    """One stored judgement together with its version.

    Attributes:
        version: number of the version; equal texts and launches of one kernel share it.
        kernel: number of the kernel.
        name: the kernel's name in this version.
        path: the file it was in.
        at_us: when it was judged, microseconds since 1970 (UTC).
        text: the whole unit's CUDA text, `start` and `end` the definition's offsets in it.
        language: the file's language, as in `records.Unit`.
        tool: the version of KernelMate that judged.
        judged: the stored judgement.
    """

    version: int
    kernel: int
    name: str
    path: str
    at_us: int
    text: str
    start: int
    end: int
    language: str
    tool: str
    judged: JudgementEntry

    @property
    def source(self) -> str:
        """Returns the text of the kernel's definition alone."""
        return self.text[self.start : self.end]
