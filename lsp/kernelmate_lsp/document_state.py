"""State of each open document: its kernels, the compiler's results, and the last benchmark."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from kernelmate.errors import KernelmateError
from kernelmate.records import (
    Candidate,
    Contract,
    Kernel,
    LaunchShape,
    Listing,
    Occupancy,
    Optimization,
    Resources,
    Verdict,
)
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels


@dataclass(frozen=True, slots=True)
class TargetFit:
    """Resources of a kernel on a GPU other than the target."""

    target: str
    arch: str
    resources: Resources
    occupancy: Occupancy | None


@dataclass(frozen=True, slots=True)
class CompileResult:
    """Result of compiling one kernel.

    Attributes:
        verdicts: one per instance; empty if `error` prevented compilation.
        contract: the written or inferred contract; None if none can be inferred.
        shape: the launch at the headline size.
        lifts: changes that would raise occupancy.
        error: an error in the contract, the settings or the machine.
    """

    kernel: Kernel
    verdicts: tuple[Verdict, ...] = ()
    contract: Contract | None = None
    shape: LaunchShape | None = None
    lifts: tuple[str, ...] = ()
    error: KernelmateError | None = None
    others: tuple[TargetFit, ...] = ()


DRAWN_TIMES = 10
"""Number of benchmark times of a kernel that the lens draws."""
KEPT_TEXTS = 64
"""Number of judged texts of a kernel that are kept: a search's candidates and some earlier texts."""


@dataclass(frozen=True, slots=True)
class BenchmarkedText:
    """One text of a kernel and its verdicts.

    Attributes:
        at: time of the judgement, in seconds since 1970.
        of: the text's origin ("saved", "HEAD", "pinned"); None for the document's own text.
    """

    kernel: Kernel
    verdicts: tuple[Verdict, ...]
    at: float
    of: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """A search's prompt and result, with the kernel's text at that time."""

    kernel: Kernel
    optimization: Optimization
    at: float

    def taken(self, spot: DocumentKernel) -> int | None:
        """Returns the number of the candidate that equals the present text; None if none does."""
        texts = enumerate(judged.candidate.kernel for judged in self.optimization.candidates)
        return next((index for index, kernel in texts if is_current(kernel, spot)), None)

    def holds(self, spot: DocumentKernel) -> bool:
        """Returns True if the search is about the present text: its baseline or one of its candidates."""
        return is_current(self.kernel, spot) or self.taken(spot) is not None


@dataclass(slots=True)
class DocumentState:
    """State of one open document.

    Attributes:
        uri: its URI.
        language: the client's language id.
        reading: the newest version that was read.
        checked: compile results by kernel, of `checked_version`.
        benched: by kernel, the last verdicts on a text that the document had.
        judged: by kernel, verdicts on that text and on others, the newest last.
        times: by kernel, microseconds of the last texts that the document had and that were benchmarked.
        found: by kernel, the last search.
        pinned: by kernel, the text that the user pinned for comparisons.
        compared: by kernel, the baseline of the last comparison and its verdicts.
        offers: applicable rewrites by kernel, of `checked_version`.
        listed: by kernel, a text and the pending or finished disassembly of its code.
    """

    uri: str
    language: str | None = None
    reading: DocumentKernels | None = None
    checked: dict[str, CompileResult] = field(default_factory=dict)
    checked_version: int = -1
    benched: dict[str, BenchmarkedText] = field(default_factory=dict)
    judged: dict[str, deque[BenchmarkedText]] = field(default_factory=dict)
    times: dict[str, deque[float]] = field(default_factory=dict)
    found: dict[str, SearchOutcome] = field(default_factory=dict)
    pinned: dict[str, Kernel] = field(default_factory=dict)
    compared: dict[str, BenchmarkedText] = field(default_factory=dict)
    offers: dict[str, Mapping[str, Candidate]] = field(default_factory=dict)
    listed: dict[str, tuple[Kernel, asyncio.Future[tuple[Listing, ...]]]] = field(default_factory=dict)

    def without_versions(self) -> DocumentState:
        """Returns the state for a document that is opened again; its version numbers start over."""
        return replace(self, reading=None, checked={}, checked_version=-1, offers={}, listed={})

    def learn(self, spot_id: str, own: BenchmarkedText | None, others: Iterable[BenchmarkedText] = ()) -> None:
        """Stores verdicts on a kernel.

        Args:
            spot_id: the kernel's identifier.
            own: verdicts on a text that the document had; None without any.
            others: verdicts on texts that it may get: a search's candidates.
        """
        kept = self.judged.setdefault(spot_id, deque(maxlen=KEPT_TEXTS))
        kept.extend(others)
        if own is not None:
            kept.append(own)
            self.benched[spot_id] = own
            timing = own.verdicts[0].timing if own.verdicts else None
            if timing is not None and timing.median_us is not None:
                self.times.setdefault(spot_id, deque(maxlen=DRAWN_TIMES)).append(timing.median_us)

    def verdicts_of(self, spot_id: str, kernel: Kernel) -> tuple[Verdict, ...]:
        """Returns the newest verdicts of one text of a kernel; none if it was not judged."""
        kept = reversed(self.judged.get(spot_id, ()))
        return next((one.verdicts for one in kept if _same(one.kernel, kernel)), ())

    def benchmark_of(self, spot: DocumentKernel) -> BenchmarkedText | None:
        """Returns the newest verdicts on a kernel's present text, which may be an accepted or restored one.

        If that text was not judged, the result has the last verdicts on another text that the document had.
        """
        kept = reversed(self.judged.get(spot.id, ()))
        return next((one for one in kept if is_current(one.kernel, spot)), self.benched.get(spot.id))


def is_current(then: Kernel, spot: DocumentKernel) -> bool:
    """Returns True if results for a kernel are still valid: its unit and its contract are unchanged."""
    return _same(then, spot.kernel)


def _same(first: Kernel, second: Kernel) -> bool:
    return first.unit.text == second.unit.text and first.unit.contract_text == second.unit.contract_text


class LineMap:
    """Maps lines of a kernel's file at the time of judging to their present positions.

    Args:
        then: the judged text of the unit.
        now: the present text of the unit.
    """

    def __init__(self, then: Kernel, now: Kernel) -> None:
        self._then, self._now = then.unit, now.unit
        self._moved: dict[int, int] | None = None

    def line(self, line: int) -> int | None:
        """Returns the document's present line for a line of a finding; None if that line was changed or removed."""
        if self._then.text == self._now.text and self._then.anchors == self._now.anchors:
            return line
        if self._moved is None:
            self._moved = self._follow()
        return self._moved.get(line)

    def _follow(self) -> dict[int, int]:
        old, new = self._then.text.split("\n"), self._now.text.split("\n")
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        matcher = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
        same = [(0, 0, head)]
        same += [(block.a + head, block.b + head, block.size) for block in matcher.get_matching_blocks()]
        same.append((len(old) - tail, len(new) - tail, tail))
        return {
            self._then.locate(before + index + 1, 1)[0]: self._now.locate(after + index + 1, 1)[0]
            for before, after, size in same
            for index in range(size)
        }
