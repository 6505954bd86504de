"""Records of objectives, and of the candidates proposed for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kernelmate.records.contract import Contract
from kernelmate.records.history import Cost
from kernelmate.records.kernels import Kernel
from kernelmate.records.verdict import MetricName, Verdict


@dataclass(frozen=True, slots=True)
class Constraint:
    """A requirement of every accepted version.

    Attributes:
        kind: a figure of the verdict, or what the kernel's PTX tells (`atomics`, `deterministic`).
        most: the most that the figure may be; None where there is none.
        words: it in words.
    """

    kind: Literal["registers", "shared_bytes", "atomics", "deterministic"]
    most: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Preference:
    """Structure that a prompt names.

    Attributes:
        words: it in words. authors: a regular expression of the authors whose versions have it.
        avoid: it is not wanted.
    """

    words: str
    authors: str
    avoid: bool = False


@dataclass(frozen=True, slots=True)
class Objective:
    """A prompt's objective: a metric, and the direction in which it improves.

    Attributes:
        metric: what is measured. direction: `decrease`, or `increase` for occupancy and accuracy.
        prompt: the user's words. reading: one sentence that says how they were understood, shown to the user.
        limits: the most that another metric may get worse, as a fraction (0.02: two per cent); metrics not named keep
            the default.
        tolerance: how far results may be off, as a fraction of their value, where the user allows more than the contract.
        keep: the metric need not improve, only not get worse: what was asked for cannot be measured, or is only a constraint.
        constraints: what must hold. preferences: structure to try first, or not at all.
        sizes: those that decide, in place of the headline. unknown: words of the prompt that were not understood.
    """

    metric: MetricName
    direction: Literal["decrease", "increase"]
    prompt: str
    reading: str
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerance: float | None = None
    keep: bool = False
    constraints: tuple[Constraint, ...] = ()
    preferences: tuple[Preference, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()
    unknown: tuple[str, ...] = ()


Figure = Literal[
    "shared_bytes",
    "registers",
    "local_bytes",
    "global_bytes",
    "occupancy",
    "load_requests",
    "atomic_requests",
    "bank_conflicts",
]
"""Figures that a reason is checked against: metrics, and counts of the headline's launch."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Words of a reason that say something about a figure.

    Attributes:
        words: a regular expression of them. figure: what they are about.
        change: what they say: it falls, it rises, or there was some of it before.
        instead: what stands in their place where the figures do not bear them.
    """

    words: str
    figure: Figure
    change: Literal["falls", "rises", "present"] = "falls"
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A changed kernel and who proposes it.

    Attributes:
        author: `recipe:pad-shared-tile`, `local:NAME`, `claude:MODEL`.
        why: one sentence. kernel: the changed kernel within its whole changed unit.
        contract: the contract in force for it (the baseline's with grid, block, shared, require perhaps changed).
        cost: what was paid for it: its author's model and, with the first version made from it, a review; None for
            authors without a model.
        caution: why it is never accepted by itself, however it is judged; None where nothing speaks against it.
        steps: how its author came to it, one sentence each; empty where `why` is all.
        claims: what `why` says about figures, to be checked once they are known.
    """

    author: str
    why: str
    kernel: Kernel
    contract: Contract
    cost: Cost | None = None
    caution: str | None = None
    steps: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with its verdict."""

    candidate: Candidate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SearchState:
    """Progress of a search at the start of a candidate.

    Attributes:
        author: of the candidate. quick: it gets a quick evaluation; else a full verdict.
        tried: versions with code of their own that were tried before, by a quick evaluation or in full.
        elapsed_s: seconds since the search was asked for. budget_s: those it may take, None for no limit.
        best: the best version that is worth taking so far.
    """

    author: str
    quick: bool
    tried: int
    elapsed_s: float
    budget_s: float | None
    best: Judged | None


@dataclass(frozen=True, slots=True)
class Optimization:
    """All that one prompt led to. `best` indexes `candidates`; None when none is worth taking."""

    objective: Objective
    baseline: Verdict
    candidates: tuple[Judged, ...]
    best: int | None
    notes: tuple[str, ...] = ()
