"""Records of a judgement that `confirm` repeats on another machine: its inputs and the earlier result."""

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
    """A text file that judging needs: a reference or a header. `path` is relative to the kernel's folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgingInputs:
    """All inputs of a judgement.

    Attributes:
        file: the user's file as named on the command line.
        directory: its folder.
        kernel: the kernel's name.
        language: the file's language.
        source: the whole CUDA text with the original kernel.
        contract: the contract in force, with the requested sizes and reference.
        options: compilation options, with absolute include paths.
        target: the GPU that figures refer to.
        files: further files of the folder that judging needs.
    """

    file: str
    directory: str
    kernel: str
    language: Literal["cuda", "python", "triton", "text"]
    source: str
    contract: Contract
    options: CompileOptions
    target: str
    files: tuple[PortableFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """A version with its verdict from a machine without a GPU.

    Attributes:
        accepted: the earlier decision; None if promising or undecided.
        sound: True if it was not found wrong and no finding rejects it.
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
        """Returns True if a GPU could decide it: it is promising, or sound with an undecided predicted time."""
        if self.accepted is None:
            return self.sound
        unsettled = self.speedup is not None and self.speedup.ci95[0] <= 1 <= self.speedup.ci95[1]
        timed = self.objective is None or self.objective.basis == "predicted"
        return not self.accepted and self.sound and timed and unsettled


@dataclass(frozen=True, slots=True)
class PortableJudgement:
    """Contents of a JSON document of `optimize`, `compare` or `bench` that `confirm` judges again on a GPU.

    Attributes:
        objective: the interpreted objective.
        prompt: the user's words if the document holds only those.
        timing: the kernel's earlier time.
        promises: versions to confirm; empty if the kernel was judged by itself.
    """

    given: JudgingInputs
    objective: Objective | None
    prompt: str | None
    seed: int
    timing: Timing | None
    promises: tuple[Promise, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """An earlier result beside its verdict on the GPU."""

    promise: Promise
    verdict: Verdict
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ConfirmationReport:
    """Results of confirming all versions, the best one first.

    Attributes:
        baseline: the kernel's own verdict on the GPU.
        timing: its earlier time.
        notes: remarks on the figures.
    """

    given: JudgingInputs
    objective: Objective | None
    baseline: Verdict
    timing: Timing | None
    confirmations: tuple[Confirmation, ...]
    notes: tuple[str, ...] = ()
