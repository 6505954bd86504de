"""Records of `kernelmate ci`: each kernel that a change touches, compared with its earlier version, and the decision."""

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
    """Limit of a metric's increase: by `amount` in its own unit, or as a fraction if `relative`; None is unlimited."""

    metric: GateMetric
    amount: float | None
    relative: bool = False


@dataclass(frozen=True, slots=True)
class MetricChange:
    """Change of one metric between two versions.

    Attributes:
        before, after: values of the metric; None if that version does not exist or its value is unknown.
        most: the largest allowed `after`; None without a limit.
        worse: True if `after` exceeds `most`.
        note: a remark on how the value was obtained, such as `predicted, not gated`.
    """

    metric: GateMetric
    before: float | None
    after: float | None
    most: float | None
    worse: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class GatedKernel:
    """A kernel (one template instance of it) that a change touches.

    Attributes:
        kernel: its name.
        path: its file relative to the repository's root; the former file of a removed kernel.
        line: line of the kernel's name; None for a removed kernel.
        was: the former `path::name` if it differs.
        change: kind of change; `moved` means renamed or moved with an unchanged body.
        failures: reasons for not passing, one sentence each.
        notes: remarks.
        fresh: new findings, which the earlier version does not have.
        baseline: verdict on the earlier version.
        verdict: verdict on the present one.
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
    """Result of `kernelmate ci`: the effect of a change on all kernels, relative to a base revision.

    Attributes:
        base: the base revision as the user named it.
        commit: its hash.
        root: the repository's folder.
        target: the GPU that figures refer to.
        backend: the backend that ran the kernels.
        unchanged: kernels of touched files that did not change.
        notes: remarks about no particular kernel, such as files that cannot be read.
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
        """Returns True if no kernel fails."""
        return all(one.outcome != "failed" for one in self.kernels)
