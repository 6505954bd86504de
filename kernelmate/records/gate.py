"""Records of a change's effect on kernels: each one compared with its version before, and the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelmate.records.findings import Finding
from kernelmate.records.verdict import Verdict

GateMetric = Literal["registers", "spill_bytes", "shared_bytes", "sectors", "findings", "time"]
Change = Literal["added", "removed", "changed", "moved"]
Outcome = Literal["passed", "failed", "removed", "moved"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limit of a metric's increase: by `amount` of its own unit, or as a fraction if `relative`; None: unlimited."""

    metric: GateMetric
    amount: float | None
    relative: bool = False


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of two versions.

    Attributes:
        before: None where there was no version, or it is not known. after: likewise.
        most: that `after` may be; None where nothing limits it.
        worse: it is beyond that.
        note: how it is known, where that is not plain: `predicted, not gated`.
    """

    metric: GateMetric
    before: float | None
    after: float | None
    most: float | None
    worse: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class GatedKernel:
    """One kernel (one instance of it) that a change touches.

    Attributes:
        kernel: its name. path: its file, from the repository's root; where it was for a removed one.
        line: of its name; None for a removed one.
        was: `path::name` that it had before, where that is another one.
        change: `moved` is renamed or moved and otherwise the same.
        failures: why it does not pass, one sentence each. notes: what a reader must know.
        fresh: findings that the version before did not have.
        baseline: the version before, judged. verdict: the version now.
    """

    kernel: str
    instance: str | None
    path: str
    line: int | None
    was: str | None
    change: Change
    outcome: Outcome
    figures: tuple[MetricChange, ...] = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fresh: tuple[Finding, ...] = ()
    baseline: Verdict | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """Effect of a change on all kernels, relative to a revision.

    Attributes:
        base: the revision as it was named. commit: its hash.
        root: the repository's folder.
        target: the GPU that figures are for. backend: where kernels ran.
        unchanged: kernels of touched files that are as they were.
        notes: what concerns no kernel: files that cannot be read.
    """

    base: str
    commit: str
    root: str
    target: str
    backend: str
    kernels: tuple[GatedKernel, ...]
    unchanged: int
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """No kernel fails."""
        return all(one.outcome != "failed" for one in self.kernels)
