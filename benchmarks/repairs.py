"""Results of repairs alone on the examples with one injected fault each: `python -m benchmarks.repairs [KERNEL ...]`.

Each kernel of `examples/` gets one fault at a time: a `;` taken away, an identifier misspelt, a header of CUDA left out, the guard
of the last threads, a barrier, or a start of a sum taken away, `<` in a loop made `<=`. Faults that leave the kernel right on the
emulator (a barrier that separates nothing, memory that happens to be zero) are counted apart. `mended`: a version was accepted,
right at every size against the reference; `as it was`: and its text, layout aside, is the example's again. Needs no GPU.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.source import load_kernels, same_kernel, with_text
from kernelmate.suggest.repairing import RepairSequences

FOLDER = Path(__file__).resolve().parents[1] / "examples"
CANDIDATES = 48


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and what became of it; `seconds` from the start, the broken kernel's own judging included."""

    fault: str
    kernel: str
    broken: bool
    mended: bool
    as_it_was: bool
    author: str
    seconds: float


def faults(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Each kind of fault with the kernel's whole text after it; at most one place of each kind."""
    text, start, end = kernel.unit.text, kernel.start, kernel.end
    body = text[start:end]

    def changed(pattern: str, new: str, which: int = 0) -> str | None:
        places = list(re.finditer(pattern, body, re.MULTILINE))
        if not places:
            return None
        place = places[min(which, len(places) - 1)]
        return text[:start] + body[: place.start()] + place.expand(new) + body[place.end() :] + text[end:]

    made = {
        "a ; is missing": changed(r";[ \t]*$", "", which=1),
        "an identifier is misspelt": changed(r"\b([a-z])([a-z])(\w{3,})\b(?=[ \t]*[\])+*;])", r"\2\1\3", which=1),
        "the guard is missing": changed(r"^[ \t]*if \([^;{}]*\) return;[ \t]*\n", ""),
        "a barrier is missing": changed(r"^[ \t]*__syncthreads\(\);[ \t]*\n", ""),
        "a sum has no start": changed(r"(\bfloat \w+) = 0(?:\.0?f?)?;", r"\1;"),
        "a loop goes one too far": changed(r"(\bfor \([^;]*;[^;<]*)<(?!=)", r"\1<="),
    }
    if re.search(r"^#include <cuda_(?:fp16|bf16)\.h>\n", text, re.MULTILINE):
        made["a header is missing"] = re.sub(r"^#include <cuda_(?:fp16|bf16)\.h>\n", "", text, flags=re.MULTILINE)
    yield from ((fault, broken) for fault, broken in made.items() if broken is not None)


def mend(session: Session, kernel: Kernel, fault: str, text: str) -> Row:
    """Put one fault in, and see whether repairs take it out again."""
    began = time.perf_counter()
    try:
        found = session.optimize(
            same_kernel(kernel, with_text(kernel.unit, text)),
            "fix it",
            max_candidates=CANDIDATES,
            suggesters=[RepairSequences()],
            objective="correct",
        )
    except KernelmateError as error:
        return Row(
            fault, kernel.name, True, False, False, f"{error.code}: {error.message}", time.perf_counter() - began
        )
    seconds = time.perf_counter() - began
    broken = found.baseline.correct is not True or found.baseline.accepted is False
    best = None if found.best is None else found.candidates[found.best]
    mended = best is not None and best.verdict.accepted is True
    same = best is not None and best.candidate.kernel.unit.text.split() == kernel.unit.text.split()
    return Row(fault, kernel.name, broken, mended, mended and same, best.candidate.author if best else "", seconds)


def main(names: list[str]) -> None:
    """Print each fault as it is tried, then the table."""
    print(describe(), flush=True)
    rows: list[Row] = []
    with Session(load_settings(backend="emulator", seed=7, history=False, timeout_s=300)) as session:
        for path in sorted(FOLDER.glob("*.cu")):
            if names and path.stem not in names:
                continue
            for kernel in load_kernels(path):
                for fault, text in faults(kernel):
                    row = mend(session, kernel, fault, text)
                    rows.append(row)
                    state = ("mended" if row.mended else "NOT mended") if row.broken else "right all the same"
                    print(f"{path.stem}: {fault}: {state} {row.author} {row.seconds:.1f} s", flush=True)
    print(
        "\n| fault | broken | mended | as it was | still right | seconds, median |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for fault in [*dict.fromkeys(row.fault for row in rows), None]:
        own = [row for row in rows if fault in (None, row.fault)]
        broken = [row for row in own if row.broken]
        cells = (len(broken), sum(r.mended for r in broken), sum(r.as_it_was for r in broken), len(own) - len(broken))
        median = f"{statistics.median(row.seconds for row in broken):.1f}" if broken else "-"
        print(f"| {fault or 'all'} | {' | '.join(map(str, cells))} | {median} |")


if __name__ == "__main__":
    main(sys.argv[1:])
