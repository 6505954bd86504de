"""Times of kernels written from their references at large sizes, beside their baselines and versions that people wrote.

    python -m benchmarks.gpu_synthesis                           # benchmarks/large and benchmarks/naive
    python -m benchmarks.gpu_synthesis NAME ... --out run.json   # some kernels
    python -m benchmarks.gpu_synthesis --ladders FOLDER          # also FOLDER/*/kernel.cu, with times in FOLDER/h200.json

Needs an NVIDIA GPU and CuPy; `--backend emulator --scale small` tries the script without. Every schedule that applies is judged
at the headline and the judge's own small sizes; a line per kernel has the baseline's time, the fastest right one's with its speed-up, the share of the
least time in which a copy moves the arrays once (`--roof` bytes a second), and, of a ladder, the best human version's time over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.acceptance_table import ladder
from benchmarks.large_set import LARGE, ROOT, Listed, listed
from benchmarks.machine import describe, save
from benchmarks.pool import spread
from kernelmate.errors import KernelmateError
from kernelmate.records import Judged
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernels
from kernelmate.suggest.synthesis import Synthesis

NAIVE = ROOT / "benchmarks" / "naive"
ROOF = 4.2e12
"""Bytes a second of a large copy on an H200."""


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel at its headline size. `human_us` is the best human version's time, where there is one."""

    folder: str
    path: str
    kernel: str
    size: dict[str, int]
    small: bool
    most: int
    human_us: float | None = None


def main() -> int:
    """Print the table and write it as JSON."""
    options = _options()
    print(f"{describe()} · {options.backend}, {options.scale} sizes", flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        tasks = list(_tasks(options, Path(scratch)))
        settings = {"backend": options.backend, "seed": 7}
        for row in spread(row_of, tasks, settings, jobs=options.jobs, limit_s=options.limit):
            rows.append(row)
            print(_line(row), flush=True)
            if options.out is not None:
                save(options.out, {"rows": rows}, backend=options.backend, scale=options.scale)
    left = {task.kernel for task in tasks} - {row["kernel"] for row in rows}
    print(_summary(rows) + (f" Not reached: {', '.join(sorted(left))}." if left else ""))
    return 0


def _tasks(options: argparse.Namespace, scratch: Path) -> Iterator[Task]:
    if options.ladders is not None:
        yield from _ladders(options, scratch)
    for folder in (LARGE, NAIVE):
        for one in listed(folder):
            python = one.contract.reference_kind in ("function", "expression")
            if python and (not options.kernels or one.kernel.name in options.kernels):
                yield _task(folder.name, one, dict(one.contract.sizes[0]), options)


def _ladders(options: argparse.Namespace, scratch: Path) -> Iterator[Task]:
    times = json.loads((options.ladders / "h200.json").read_text())["kernels"]
    for path in sorted(options.ladders.glob("*/kernel.cu")):
        name, _, size, _ = ladder(path.parent, scratch / path.parent.name)
        if not options.kernels or name in options.kernels:
            one = next(listed(scratch / name, ("kernel",)))
            sizes = {key: int(value) for key, value in (pair.split("=") for pair in size.split(","))}
            human = (times.get(name, {}).get("best") or {}).get("us")
            yield _task("ladder", one, sizes, options, human)


def _task(
    folder: str, one: Listed, size: dict[str, int], options: argparse.Namespace, human: float | None = None
) -> Task:
    return Task(folder, one.kernel.unit.path, one.kernel.name, size, options.scale == "small", options.most, human)


def row_of(session: Session, task: Task) -> dict[str, Any]:
    """The baseline's time and every candidate of a search by schedules alone."""
    kernels = [kernel for kernel in load_kernels(Path(task.path)) if kernel.name == task.kernel]
    one = Listed(kernels[0], contract_for(kernels[0]))
    others = [dict(size) for size in one.contract.sizes if dict(size) != task.size]
    sizes = others if task.small and others else [task.size]
    row: dict[str, Any] = {
        "folder": task.folder,
        "kernel": task.kernel,
        "human_us": task.human_us,
        "tried": [],
        "why": "",
    }
    row["bytes"] = one.array_bytes(sizes[0])
    synthesis = Synthesis(most=task.most)
    try:
        found = session.optimize(one.kernel, "make it faster", sizes=sizes, suggesters=(synthesis,))
    except KernelmateError as error:
        return {**row, "why": error.message}
    timing = found.baseline.timing
    row["baseline_us"] = None if timing is None else timing.median_us
    row["tried"] = [_tried(judged) for judged in found.candidates]
    row["why"] = " ".join(found.notes)
    return row


def _tried(judged: Judged) -> dict[str, Any]:
    verdict = judged.verdict
    return {
        "schedule": judged.candidate.author.partition(":")[2], "correct": verdict.correct, "accepted": verdict.accepted,
        "us": None if verdict.timing is None else verdict.timing.median_us,
        "speedup": None if verdict.speedup is None else verdict.speedup.median,
        "reasons": [finding.message for finding in verdict.findings if finding.severity == "error"] + list(verdict.reasons),
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    """One line of the table."""
    right = [one for one in row["tried"] if one["correct"] and one["us"]]
    head = f"{row['folder'] + '/' + row['kernel']:44}{row.get('baseline_us') or math.nan:>10.1f}"
    if not right:
        wrong = "; ".join(f"{one['schedule']}: {one['reasons'][:1]}" for one in row["tried"])
        return f"{head}  {wrong or row['why']}"[:230]
    best = min(right, key=lambda one: one["us"])
    share = f"{row['bytes'] / ROOF * 1e6 / best['us']:6.0%}"
    human = f"{row['human_us'] / best['us']:7.2f}" if row["human_us"] else "       "
    rest = "  ".join(
        f"{one['schedule']} {one['us']:.1f}" if one["correct"] and one["us"] else f"{one['schedule']} WRONG"
        for one in row["tried"]
    )
    return f"{head}{best['us']:>10.1f}{best['speedup'] or math.nan:>8.2f}{share}{human}  {rest}"


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    ratios, wrong, tried = [], 0, 0
    for row in rows:
        right = [one["speedup"] for one in row["tried"] if one["correct"] and one["speedup"]]
        ratios.append(max([1.0, *right]))
        tried += len(row["tried"])
        wrong += sum(one["correct"] is False for one in row["tried"])
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    better = sum(ratio > 1.05 for ratio in ratios)
    return f"{len(rows)} kernels, {better} improved by over 5 %, geometric mean {mean:.2f}x; {wrong} of {tried} judged wrong."


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", type=Path, help="a folder of ladders")
    add_options(parser, limit_s=600.0)
    return parser.parse_args()


def add_options(parser: argparse.ArgumentParser, limit_s: float) -> None:
    """Add what this script and `gpu_experts` are asked alike."""
    parser.add_argument("kernels", nargs="*", help="names of kernels; all without")
    parser.add_argument("--backend", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument(
        "--scale", choices=("full", "small"), default="full", help="the headline too, or the other sizes alone"
    )
    parser.add_argument("--jobs", type=int, default=4, help="processes; timings take turns on the GPU")
    parser.add_argument("--most", type=int, default=12, help="schedules of a kernel that are judged at most")
    parser.add_argument("--limit", type=float, default=limit_s, help="seconds for all of it")
    parser.add_argument("--out", type=Path, help="where to write the table as JSON")


if __name__ == "__main__":
    sys.exit(main())
