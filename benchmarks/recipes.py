"""Improvements that recipes alone find on the examples and on naive kernels, for three prompts.

    python -m benchmarks.recipes                      # on the emulator: predicted times, counted registers and bytes
    python -m benchmarks.recipes --backend cuda       # on a GPU: measured times
    python -m benchmarks.recipes --documents FOLDER   # also keeps what `benchmarks.recipes_gpu` confirms on a GPU

For each kernel and prompt: the best candidate that is accepted (or promising, where time is only predicted), what it is, how
much the asked metric changed, and the seconds from the prompt to the first such candidate, the baseline's own judging
included, in a warm session, and the CPU seconds of all its processes meanwhile, which is what it comes to on a machine that
nobody else uses; `roof` is how much of the least time that any kernel with its bytes and operations could take, a
launch and one wait for memory included, the kernel's own time is. The naive kernels (`tests/data/naive`) were written before the
recipes and are no part of the recipes' own tests. Goals: "make it faster" gives such a candidate for at least 60 per cent of all
kernels, with a geometric-mean speed-up of at least 2 among them, the first after 3 seconds (median).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe, family_cpu_s
from benchmarks.pool import spread
from kernelmate.compiler import find_target
from kernelmate.decide.metrics import metric_value
from kernelmate.errors import KernelmateError
from kernelmate.measure.predict import ALONE_US, stored_fit
from kernelmate.records import Judged, Kernel, Verdict
from kernelmate.report.json import dumps, optimization_json
from kernelmate.session import Session
from kernelmate.source import load_kernels
from kernelmate.suggest.composition import Composition

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"examples": ROOT / "examples", "naive": ROOT / "tests" / "data" / "naive"}
PROMPTS = ("make it faster", "reduce memory usage", "use fewer registers")
CANDIDATES = 40
AT_ITS_ROOF = 0.85
"""A kernel at this share of its roof is called there: no version of it can be 1.18 times as fast, the least that is called."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel and prompt. `before` and `after` are of the asked metric (microseconds, bytes, registers)."""

    folder: str
    kernel: str
    prompt: str
    metric: str
    accepted: bool | None
    author: str
    before: float | None
    after: float | None
    first_s: float | None
    total_s: float
    judged: int
    wrong: int
    undecided: int = 0
    roof: float | None = None
    first_cpu_s: float | None = None

    @property
    def factor(self) -> float | None:
        """Returns the metric before over the metric after; None if no candidate is worth taking."""
        if not self.author or self.before is None or self.after is None or self.after <= 0:
            return None
        return self.before / self.after


def main() -> None:
    """Print a table for each prompt, then what the goals ask for."""
    options = _options()
    print(f"{describe()} · load {os.getloadavg()[0]:.1f} · {options.backend}", flush=True)
    ends = time.monotonic() + options.limit
    settings = {"seed": options.seed, "backend": options.backend, "timeout_s": 600}
    rows: list[Row] = []
    for prompt in options.prompt or PROMPTS:
        print(f"\n# {prompt}\n{_head()}", flush=True)
        tasks = [(folder, kernel, prompt, options) for folder, kernel in _kernels(options.folder, options.only)]
        found = []
        for row in spread(_row, tasks, settings, jobs=options.jobs, limit_s=ends - time.monotonic()):
            found.append(row)
            print(_line(row), flush=True)
        if len(found) < len(tasks):
            print(f"{len(tasks) - len(found)} kernels were not reached within {options.limit:g} s")
        _summary(found)
        rows += found
        if options.json:
            Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("emulator", "cuda"), default="emulator")
    parser.add_argument("--prompt", action="append", help=f"in place of {', '.join(PROMPTS)}; may be repeated")
    parser.add_argument("--folder", choices=tuple(FOLDERS), action="append", help="in place of both")
    parser.add_argument("--only", action="append", help="names of kernels, in place of all")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each kernel and prompt")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="candidates for each kernel and prompt")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--jobs", type=int, default=1, help="sessions at a time, each in a process of its own")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds for everything")
    parser.add_argument(
        "--documents", type=Path, help="folder for what each search found, for `benchmarks.recipes_gpu`"
    )
    parser.add_argument("--json", help="write the rows here as well")
    return parser.parse_args()


def _kernels(folders: Sequence[str] | None, only: Sequence[str] | None) -> Iterable[tuple[str, Kernel]]:
    for folder in folders or FOLDERS:
        for path in sorted(FOLDERS[folder].glob("*.cu")):
            for kernel in load_kernels(path):
                if not only or kernel.name in only:
                    yield folder, kernel


def _row(session: Session, task: tuple[str, Kernel, str, argparse.Namespace]) -> Row:
    folder, kernel, prompt, options = task
    began = time.monotonic()
    began_cpu = family_cpu_s()
    first: list[tuple[float, float]] = []

    def on_judged(one: Judged) -> None:
        if one.verdict.worth_taking and not first:
            first.append((time.monotonic() - began, family_cpu_s() - began_cpu))

    name = kernel.name.rpartition("::")[2]
    try:
        result = session.optimize(
            kernel, prompt, max_candidates=options.candidates, budget_s=options.budget, on_judged=on_judged,
            suggesters=(Composition(),),
        )  # fmt: skip
    except KernelmateError as error:
        return Row(folder, name, prompt, f"error: {error}", None, "", None, None, None, time.monotonic() - began, 0, 0)
    best = None if result.best is None else result.candidates[result.best]
    metric = result.objective.metric
    if options.documents is not None:
        options.documents.mkdir(parents=True, exist_ok=True)
        text = dumps(optimization_json(result, session.given(kernel)))
        (options.documents / f"{folder}-{name}.json").write_text(text)
    return Row(
        folder=folder,
        kernel=name,
        prompt=prompt,
        metric=metric,
        accepted=None if best is None else best.verdict.accepted,
        author="" if best is None else best.candidate.author.removeprefix("recipe:"),
        before=metric_value(metric, result.baseline),
        after=None if best is None else metric_value(metric, best.verdict),
        first_s=first[0][0] if first else None,
        first_cpu_s=first[0][1] if first else None,
        total_s=time.monotonic() - began,
        judged=len(result.candidates),
        wrong=sum(one.verdict.correct is False or not one.verdict.compiled for one in result.candidates),
        undecided=sum(one.verdict.undecided for one in result.candidates),
        roof=roof_share(result.baseline),
    )


def roof_share(verdict: Verdict) -> float | None:
    """The least time that a kernel with these bytes and operations could take, as a share of its time; None if not known.

    The least is what the roofs of DRAM or L2 and of arithmetic ask for, or a launch, the start of a block, and one wait for
    L2, whichever is longer: nothing that reads anything is done sooner.
    """
    roofline, timing = verdict.roofline, verdict.timing
    if roofline is None or timing is None:
        return None
    fit = stored_fit()
    clock_mhz = find_target(verdict.target).clock_mhz
    alone = ALONE_US + fit.launch_floor
    waiting = (fit.block_start + fit.l2_latency) / clock_mhz
    bytes_us = max(roofline.work.dram_bytes / (roofline.roofs.l2_gbps * 1e3), roofline.compute_us)
    return min((alone + max(waiting, bytes_us)) / timing.median_us, 1.0)


def _head() -> str:
    return f"{'kernel':<18} {'metric':<13} {'before':>9} {'after':>9} {'factor':>7} {'standing':<10} {'first s':>7} {'CPU s':>6} {'tried':>5} {'wrong':>5} {'roof':>5}  best"  # fmt: skip


def _line(row: Row) -> str:
    standing = "undecided" if row.undecided else "-"
    if row.author:
        standing = "accepted" if row.accepted else "promising"
    elif row.roof is not None and row.roof >= AT_ITS_ROOF and row.metric == "time":
        standing = "at roof"
    roof = "-" if row.roof is None else f"{row.roof:.0%}"
    before, after = ("-" if value is None else f"{value:.4g}" for value in (row.before, row.after))
    factor = "-" if row.factor is None else f"{row.factor:.2f}"
    first, cpu = ("-" if value is None else f"{value:.1f}" for value in (row.first_s, row.first_cpu_s))
    return f"{row.kernel:<18} {row.metric:<13} {before:>9} {after:>9} {factor:>7} {standing:<10} {first:>7} {cpu:>6} {row.judged:>5} {row.wrong:>5} {roof:>5}  {row.author}"  # fmt: skip


def _summary(rows: Sequence[Row]) -> None:
    """Prints the number of kernels with a candidate worth taking, the gains, and the times until the first one."""
    taken = [row for row in rows if row.author]
    factors = [row.factor for row in taken if row.factor is not None]
    firsts = [row.first_s for row in taken if row.first_s is not None]
    accepted = sum(row.accepted is True for row in taken)
    share = len(taken) / len(rows) if rows else 0.0
    print(
        f"{len(taken)} of {len(rows)} kernels ({share:.0%}) have a candidate worth taking, {accepted} of them accepted"
    )
    at_roof = [row for row in rows if not row.author and row.metric == "time" and (row.roof or 0) >= AT_ITS_ROOF]
    if at_roof:
        names = ", ".join(f"{row.kernel} {row.roof:.0%}" for row in at_roof)
        print(f"{len(at_roof)} of the others are at their roof, {AT_ITS_ROOF:.0%} of it or more: {names}")
    if factors:
        print(f"geometric mean of the factors of those: {statistics.geometric_mean(factors):.2f}")
    if firsts:
        cpu = statistics.median([row.first_cpu_s for row in taken if row.first_cpu_s is not None])
        print(
            f"median seconds from the prompt to the first of them: {statistics.median(firsts):.1f}, of CPU: {cpu:.1f}"
        )
    print(f"{sum(row.judged for row in rows)} candidates judged, {sum(row.wrong for row in rows)} of them wrong")


if __name__ == "__main__":
    main()
