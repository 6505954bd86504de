"""Records that are written to and read from the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

CommandName = Literal["bench", "compare", "optimize", "confirm", "fix", "other"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Price of one version by a model; tokens as its server counts them, in US dollars if a price is known."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None

    def __add__(self, other: Cost) -> Cost:
        """Of both; what is unknown of one is left out."""
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
    """One judgement of one version, to be kept.

    Attributes:
        command: what led to it.
        author: `user`, `recipe:pad-shared-tile`, `local:NAME`, `claude:MODEL`.
        verdict: as `--json` prints it.
        prompt: the user's words; None where nothing was asked for.
        metric: what the prompt was read as.
        why: the author's reason, or None.
        launch: grid, block, shared and require in force, as a contract writes them.
        parent: the version that this one was made from.
        cost: of the author's model.
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
        number: its number. name: with namespaces, as last seen. path: its file, as last seen.
        versions: different texts of it. judgements: verdicts on them.
        seen_us: last judged, microseconds since 1970 (UTC).
    """

    number: int
    name: str
    path: str
    versions: int
    judgements: int
    seen_us: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """One judgement as kept, with its version.

    Attributes:
        version: number of the version; equal texts and launches of one kernel share it.
        kernel: number of the kernel. name: the kernel's name in this version. path: the file it was in.
        at_us: when it was judged, microseconds since 1970 (UTC).
        text: the whole unit's CUDA text, `start` and `end` the definition's offsets in it.
        language: what the file is, as in `records.Unit`.
        tool: the version of KernelMate that judged.
        judged: what was kept.
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
        """The text of the definition alone."""
        return self.text[self.start : self.end]
