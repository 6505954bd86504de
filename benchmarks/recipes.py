"""What recipes alone make of the examples and of naive kernels, for three prompts.

    python -m benchmarks.recipes                      # on the emulator: predicted times, counted registers and bytes
    python -m benchmarks.recipes --backend cuda       # on a GPU: measured times, and how many promising ones are confirmed

For each kernel and prompt: the best candidate that is accepted (or promising, where time is only predicted), what it is, how
much the asked metric changed, and the seconds from the prompt to the first such candidate, the baseline's own judging
included, in a warm session. The naive kernels (`tests/data/naive`) were written before the recipes and are no part of the
recipes' own tests. Goals: "make it faster" gives such a candidate for at least 60 per cent of all kernels, with a geometric-mean
speed-up of at least 2 among them, the first after 3 seconds (median).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import Judged, Kernel
from kernelmate.session import Session
from kernelmate.source import load_kernels
from kernelmate.suggest.composition import Composition
from kernelmate.suggest.metrics import metric_value

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"examples": ROOT / "examples", "naive": ROOT / "tests" / "data" / "naive"}
PROMPTS = ("make it faster", "reduce memory usage", "use fewer registers")
CANDIDATES = 40


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

    @property
    def factor(self) -> float | None:
        """How many times better the metric became; None where no candidate is worth taking."""
        if not self.author or self.before is None or self.after is None or self.after <= 0:
            return None
        return self.before / self.after


def main() -> None:
    """Print a table for each prompt, then what the goals ask for."""
    options = _options()
    print(f"{describe()} · load {os.getloadavg()[0]:.1f} · {options.backend}", flush=True)
    rows: list[Row] = []
    with Session(load_settings(seed=options.seed, backend=options.backend, timeout_s=600)) as session:
        for prompt in options.prompt or PROMPTS:
            print(f"\n# {prompt}\n{_head()}", flush=True)
            for folder, kernel in _kernels(options.folder, options.only):
                row = _row(session, folder, kernel, prompt, options)
                rows.append(row)
                print(_line(row), flush=True)
            _summary([row for row in rows if row.prompt == prompt])
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
    parser.add_argument("--json", help="write the rows here as well")
    return parser.parse_args()


def _kernels(folders: Sequence[str] | None, only: Sequence[str] | None) -> Iterable[tuple[str, Kernel]]:
    for folder in folders or FOLDERS:
        for path in sorted(FOLDERS[folder].glob("*.cu")):
            for kernel in load_kernels(path):
                if not only or kernel.name in only:
                    yield folder, kernel


def _row(session: Session, folder: str, kernel: Kernel, prompt: str, options: argparse.Namespace) -> Row:
    began = time.monotonic()
    first: list[float] = []

    def on_judged(one: Judged) -> None:
        if one.verdict.accepted is not False and not first:
            first.append(time.monotonic() - began)

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
    return Row(
        folder=folder,
        kernel=name,
        prompt=prompt,
        metric=metric,
        accepted=None if best is None else best.verdict.accepted,
        author="" if best is None else best.candidate.author.removeprefix("recipe:"),
        before=metric_value(metric, result.baseline),
        after=None if best is None else metric_value(metric, best.verdict),
        first_s=first[0] if first else None,
        total_s=time.monotonic() - began,
        judged=len(result.candidates),
        wrong=sum(one.verdict.correct is False or not one.verdict.compiled for one in result.candidates),
    )


def _head() -> str:
    return f"{'kernel':<18} {'metric':<13} {'before':>9} {'after':>9} {'factor':>7} {'standing':<10} {'first s':>7} {'tried':>5} {'wrong':>5}  best"  # fmt: skip


def _line(row: Row) -> str:
    standing = "-" if not row.author else "accepted" if row.accepted else "promising"
    before, after = ("-" if value is None else f"{value:.4g}" for value in (row.before, row.after))
    factor = "-" if row.factor is None else f"{row.factor:.2f}"
    first = "-" if row.first_s is None else f"{row.first_s:.1f}"
    return f"{row.kernel:<18} {row.metric:<13} {before:>9} {after:>9} {factor:>7} {standing:<10} {first:>7} {row.judged:>5} {row.wrong:>5}  {row.author}"  # fmt: skip


def _summary(rows: Sequence[Row]) -> None:
    """How many kernels got a candidate worth taking, by how much, and how soon."""
    taken = [row for row in rows if row.author]
    factors = [row.factor for row in taken if row.factor is not None]
    firsts = [row.first_s for row in taken if row.first_s is not None]
    accepted = sum(row.accepted is True for row in taken)
    share = len(taken) / len(rows) if rows else 0.0
    print(
        f"{len(taken)} of {len(rows)} kernels ({share:.0%}) have a candidate worth taking, {accepted} of them accepted"
    )
    if factors:
        print(f"geometric mean of the factors of those: {statistics.geometric_mean(factors):.2f}")
    if firsts:
        print(f"median seconds from the prompt to the first of them: {statistics.median(firsts):.1f}")
    print(f"{sum(row.judged for row in rows)} candidates judged, {sum(row.wrong for row in rows)} of them wrong")


if __name__ == "__main__":
    main()
