"""Progress of kernels written from their references: traced, written, judged right, and their predicted speed-up.

    python -m benchmarks.synthesis_table                  # the examples, benchmarks/large and benchmarks/naive, on the emulator
    python -m benchmarks.synthesis_table FILE.cu ...      # other kernels

Each kernel with a Python reference is judged at those of its contract's sizes that have at most `MOST` elements in the product of
all size names, since a large headline takes minutes to emulate; predicted times of such small launches say little about large ones.
A line per kernel: its first right candidate with the predicted speed-up, or why there is none. The end counts them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import Contract, Kernel, Size
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernels
from kernelmate.suggest.synthesis import Synthesis

ROOT = Path(__file__).resolve().parents[1]
MOST = 4_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel. `reason` says why there is no candidate; `right` are those of `judged` that the judge found right."""

    kernel: str
    author: str
    speedup: float | None
    judged: int
    right: int
    reason: str

    @property
    def traced(self) -> bool:
        """True if its reference could be traced to a graph."""
        return "cannot be traced" not in self.reason

    def text(self) -> str:
        """One line of the table."""
        ratio = "" if self.speedup is None else f"{self.speedup:.2f}x"
        return f"{self.kernel:28} {self.right}/{self.judged} right  {ratio:>8}  {self.author or self.reason}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args(arguments).files
    files = files or sorted(
        file for folder in ("examples", "benchmarks/large", "benchmarks/naive") for file in (ROOT / folder).glob("*.cu")
    )
    lines = []
    with Session(load_settings(seed=7)) as session:
        for file in files:
            for kernel in load_kernels(file):
                line = _line(session, file, kernel)
                if line is not None:
                    print(line.text(), flush=True)
                    lines.append(line)
    print(_summary(lines))


def _line(session: Session, file: Path, kernel: Kernel) -> Line | None:
    """One kernel's line; None if its reference is not Python."""
    name = f"{file.parent.name}/{kernel.name}"
    try:
        contract = contract_for(kernel)
        if contract.reference_kind not in ("function", "expression"):
            return None
        found = session.optimize(kernel, "make it faster", sizes=_sizes(contract), suggesters=(Synthesis(),))
    except KernelmateError as error:
        return Line(name, "", None, 0, 0, error.message)
    right = [one for one in found.candidates if one.verdict.correct]
    if not right:
        return Line(name, "", None, len(found.candidates), 0, " ".join(found.notes))
    best = max(right, key=lambda one: one.verdict.speedup.median if one.verdict.speedup else 0.0)
    ratio = None if best.verdict.speedup is None else best.verdict.speedup.median
    return Line(name, best.candidate.author, ratio, len(found.candidates), len(right), "")


def _sizes(contract: Contract) -> tuple[Size, ...]:
    small = [size for size in contract.sizes if math.prod(size.values()) <= MOST]
    return tuple(small or contract.sizes[-1:])


def _summary(lines: Sequence[Line]) -> str:
    ratios = [line.speedup for line in lines if line.speedup]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    return (
        f"{len(lines)} kernels, {sum(line.traced for line in lines)} traced, {sum(line.judged > 0 for line in lines)} with candidates, "
        f"{sum(line.right > 0 for line in lines)} with a right one; {sum(line.right for line in lines)} of "
        f"{sum(line.judged for line in lines)} candidates right; geometric mean of the best predicted {mean:.2f}x."
    )


if __name__ == "__main__":
    main()
