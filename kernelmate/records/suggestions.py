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
class TunedVersion:
    """One correct version with its time at each size in microseconds; None at sizes without a time.

    `author` is None for the kernel itself.
    """

    author: str | None
    why: str
    kernel: Kernel
    contract: Contract
    times_us: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class DispatchRule:
    """A rule that selects a version by one number computed from the problem size.

    Attributes:
        measure: a size's name, or a product of names such as `rows * cols`.
        versions: the version of each interval of the measure, from the smallest values on.
        bounds: the smallest measured value of each interval but the first, ascending.
    """

    measure: str
    versions: tuple[int, ...]
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """A table of versions by size.

    Attributes:
        kind: `measured` or `predicted`, for all times.
        target: the GPU that times refer to.
        sizes: from the smallest problem to the largest.
        versions: the kernel itself first.
        chosen: for each size the version to launch, with as few distinct versions as possible; None if no version has a
            time.
        rule: a dispatch rule that makes these choices; None if no single measure separates them.
        notes: remarks of the searches.
    """

    kind: Literal["measured", "predicted"]
    target: str
    sizes: tuple[Mapping[str, int], ...]
    versions: tuple[TunedVersion, ...]
    chosen: tuple[int | None, ...]
    rule: DispatchRule | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraint:
    """A requirement of every accepted version.

    Attributes:
        kind: a figure of the verdict, a property of the kernel's PTX (`atomics`, `deterministic`), the threads of a
            block, or the whole `launch`.
        bound: the figure's upper bound, and of occupancy its lower bound (0 to 1); the number of threads of `block`,
            None for the baseline's block; None for a property and for `launch`, which is the baseline's.
        words: the requirement as text.
    """

    kind: Literal["registers", "shared_bytes", "occupancy", "block", "launch", "atomics", "deterministic"]
    bound: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Preference:
    """Code structure that a prompt asks for or rules out.

    Attributes:
        words: the structure as text.
        authors: a regular expression of the authors whose versions have it.
        avoid: True if the prompt rules it out.
    """

    words: str
    authors: str
    avoid: bool = False


@dataclass(frozen=True, slots=True)
class Objective:
    """A prompt's objective: a metric, and the direction in which it improves.

    Attributes:
        metric: the metric that decides.
        direction: `decrease`, or `increase` for occupancy and accuracy.
        prompt: the user's words.
        reading: one sentence that says how they were understood, shown to the user.
        limits: the most that another metric may get worse, as a fraction (0.02: two per cent); metrics not named keep
            the default.
        tolerance: how far results may be off, as a fraction of their value, where the user allows more than the
            contract.
        keep: the metric must not get worse but need not improve, because the request has no metric or only constraints.
        constraints: requirements of every accepted version.
        preferences: code structure to try first, or to avoid.
        sizes: sizes that decide in place of the headline.
        unknown: words of the prompt that were not understood.
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
"""Figures that a candidate's stated reason is checked against: metrics, and counters of the headline's launch."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Part of a candidate's stated reason that makes a statement about a figure.

    Attributes:
        words: a regular expression of the statement.
        figure: the figure that it is about.
        change: what is stated: the figure falls, rises, or was above zero in the baseline.
        instead: replacement text if the figures contradict the statement.
    """

    words: str
    figure: Figure
    change: Literal["falls", "rises", "present"] = "falls"
    instead: str = ""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of another file than the kernel's: launches there that follow a candidate's contract.

    Attributes:
        path: the file.
        before: its whole text as read, with its own line ends.
        after: the changed text.
        lines: lines of the changed launches in the text before, from 1.
    """

    path: str
    before: str
    after: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A changed kernel and its author.

    Attributes:
        author: `recipe:pad-shared-tile`, `local:NAME`, `claude:MODEL`.
        why: the reason for the change, one sentence.
        kernel: the changed kernel within its changed unit.
        contract: the contract in force for it (the baseline's with grid, block, shared, require perhaps changed).
        cost: cost of the author's model and, for the first version derived from a review, of the review; None for
            authors without a model.
        caution: the reason for never accepting it automatically, whatever its verdict; None without such a reason.
        steps: the author's steps, one sentence each; empty if `why` says everything.
        claims: statements of `why` about figures, checked once the figures are known.
        other_files: changes of other files that belong to it; empty until it is judged.
    """

    author: str
    why: str
    kernel: Kernel
    contract: Contract
    cost: Cost | None = None
    caution: str | None = None
    steps: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    other_files: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with its verdict."""

    candidate: Candidate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SearchState:
    """Progress of a search when a candidate is about to be judged.

    Attributes:
        author: the candidate's author.
        quick: True for a quick evaluation, else a full verdict follows.
        tried: number of versions with distinct code evaluated so far, quickly or in full.
        elapsed_s: seconds since the search started.
        budget_s: the search's time limit, None if there is none.
        best: the best version that is worth taking so far.
    """

    author: str
    quick: bool
    tried: int
    elapsed_s: float
    budget_s: float | None
    best: Judged | None


@dataclass(frozen=True, slots=True, repr=False)
class Optimization:
    """All candidates that one prompt led to. `best` indexes `candidates`; None when none is worth taking."""

    objective: Objective
    baseline: Verdict
    candidates: tuple[Judged, ...]
    best: int | None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Returns one line, because every text, verdict and counter of all candidates would take a quarter of a million characters."""
        best = "none worth taking" if self.best is None else f"best {self.candidates[self.best].candidate.author}"
        name, prompt = self.baseline.instance or self.baseline.kernel, self.objective.prompt
        return f"<optimization of {name}, {prompt!r}: {len(self.candidates)} candidates, {best}>"
