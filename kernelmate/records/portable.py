"""A judgement that can be made again elsewhere: what it rests on, and what was promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelmate.records.compiled import CompileOptions
from kernelmate.records.contract import Contract
from kernelmate.records.suggestions import Objective
from kernelmate.records.verdict import ObjectiveResult, Speedup, Timing, Verdict

Outcome = Literal["confirmed", "refuted", "undecided"]


@dataclass(frozen=True, slots=True)
class PortableFile:
    """A text that judging needs: a reference, or a header. `path` is relative to the kernel's folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgingInputs:
    """All that a judgement rests on.

    Attributes:
        file: the user's, as it was named. directory: the folder that it was in.
        kernel: its name. language: of the file. source: the whole CUDA text with the kernel as it was.
        contract: in force, with sizes and reference as asked for.
        options: how device code was compiled, include paths whole.
        target: the GPU that figures were for.
        files: texts of the same folder that are needed beside it.
    """

    file: str
    directory: str
    kernel: str
    language: Literal["cuda", "python", "text"]
    source: str
    contract: Contract
    options: CompileOptions
    target: str
    files: tuple[PortableFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """A version and what was said of it without a GPU.

    Attributes:
        accepted: None for what is only promising, or undecided.
        sound: it was not found wrong, and no finding rejects it.
    """

    author: str
    why: str
    source: str
    contract: Contract
    timing: Timing | None
    speedup: Speedup | None
    objective: ObjectiveResult | None
    accepted: bool | None
    sound: bool = True

    @property
    def open(self) -> bool:
        """A GPU could settle it: it is promising, or sound and its predicted time undecided."""
        if self.accepted is None:
            return self.sound
        unsettled = self.speedup is not None and self.speedup.ci95[0] <= 1 <= self.speedup.ci95[1]
        timed = self.objective is None or self.objective.basis == "predicted"
        return not self.accepted and self.sound and timed and unsettled


@dataclass(frozen=True, slots=True)
class PortableJudgement:
    """Contents of a document of `optimize`, `compare` or `bench` that `confirm` judges again on a GPU.

    Attributes:
        objective: what was asked for, as it was read. prompt: it in the user's words, where only those were carried.
        timing: what was said of the kernel's own time.
        promises: versions of the kernel; empty where it was judged by itself.
    """

    given: JudgingInputs
    objective: Objective | None
    prompt: str | None
    seed: int
    timing: Timing | None
    promises: tuple[Promise, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A promise beside its verdict on the GPU."""

    promise: Promise
    verdict: Verdict
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ConfirmationReport:
    """Outcomes of all promises, the best version first.

    Attributes:
        baseline: the kernel's own verdict on the GPU. timing: what had been said of its time.
        notes: what a reader of the figures must know.
    """

    given: JudgingInputs
    objective: Objective | None
    baseline: Verdict
    timing: Timing | None
    confirmations: tuple[Confirmation, ...]
    notes: tuple[str, ...] = ()
