"""Times of kernels written from their references beside versions written by hand (`benchmarks/experts`).

    python -m benchmarks.gpu_experts                              # all of them
    python -m benchmarks.gpu_experts NAME ... --out run.json      # some kernels

Needs an NVIDIA GPU and CuPy; `--backend emulator --scale small` tries the script without, and its times are predicted. Every schedule
that applies and the expert version are judged by the naive kernel's contract in one session: at the headline and the judge's own
small sizes, or at the other listed sizes alone. A line per kernel has microseconds of the naive kernel, of the fastest right
schedule and of the expert version, and the second over the third. On a GPU at headline sizes a second table has torch's times,
eager and compiled, measured after all others so that no other process uses the GPU.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.gpu_synthesis import NAIVE, Task, add_options, row_of
from benchmarks.large_set import ROOT, listed
from benchmarks.machine import describe, save
from benchmarks.pool import spread
from kernelmate.checks.inputs import draw
from kernelmate.checks.styles import NORMAL
from kernelmate.errors import KernelmateError
from kernelmate.session import Session
from kernelmate.source import load_kernels

EXPERTS = ROOT / "benchmarks" / "experts"
CLOSE = 1.25
"""Times of ours over the expert's up to this count as close."""


def main() -> int:
    """Print the table and write it as JSON; the status is 1 where an expert version was not judged right."""
    options = _options()
    print(f"{describe()} · {options.backend}, {options.scale} sizes", flush=True)
    names = [path.stem for path in sorted(EXPERTS.glob("*.cu")) if not options.kernels or path.stem in options.kernels]
    small = options.scale == "small"
    tasks = [
        Task(NAIVE.name, one.kernel.unit.path, one.kernel.name, dict(one.contract.sizes[0]), small, options.most)
        for one in listed(NAIVE)
        if one.kernel.name in names
    ]
    print(f"{'kernel':24}{'naive us':>12}{'ours us':>12}{'expert us':>12}{'ours/expert':>12}", flush=True)
    rows: list[dict[str, Any]] = []
    settings = {"backend": options.backend, "seed": 7}
    for row in spread(beside_expert, tasks, settings, jobs=options.jobs, limit_s=options.limit):
        rows.append(row)
        print(_line(row), flush=True)
        if options.out is not None:
            save(options.out, {"rows": rows}, backend=options.backend, scale=options.scale)
    if options.backend == "cuda" and not small:
        add_torch(rows)
        if options.out is not None:
            save(options.out, {"rows": rows}, backend=options.backend, scale=options.scale)
    left = sorted(set(names) - {row["kernel"] for row in rows})
    print(summary(rows) + (f" Not reached: {', '.join(left)}." if left else ""))
    return int(bool(left) or any(not row["expert_correct"] for row in rows))


def beside_expert(session: Session, task: Task) -> dict[str, Any]:
    """The row of `gpu_synthesis` with `ours_us`, `expert_us` (None where not right or not timed), `expert_correct`, `expert_why`.

    An exception of either half is said in the row's `why` or `expert_why`, so that one kernel does not end the table.
    """
    try:
        row = row_of(session, task)
    except Exception as error:  # noqa: BLE001 - said in the row
        row = {"kernel": task.kernel, "tried": [], "why": _why(error)}
    right = [_beside_baseline(one, row) for one in row["tried"] if one["correct"] and one["us"]]
    row |= {"ours_us": min(right, default=None), "expert_us": None, "expert_correct": False, "expert_why": ""}
    try:
        return row | judge_expert(session, task)
    except Exception as error:  # noqa: BLE001 - said in the row
        return row | {"expert_why": _why(error)}


def _beside_baseline(tried: dict[str, Any], row: dict[str, Any]) -> float:
    """Microseconds of a schedule on the inputs that the row's naive time was measured on.

    The best is timed again on other inputs, and what a decode attention reads depends on them: its speed-up carries over.
    """
    speedup, baseline = tried["speedup"], row.get("baseline_us")
    return float(baseline / speedup if speedup and baseline else tried["us"])


def _why(error: Exception) -> str:
    return error.message if isinstance(error, KernelmateError) else f"{type(error).__name__}: {error}"


def judge_expert(session: Session, task: Task) -> dict[str, Any]:
    """Judge the expert version of a task's kernel by the naive kernel's contract.

    Raises:
        KernelmateError: there is no verdict, for instance since the naive kernel does not compile.
    """
    one = next(found for found in listed(NAIVE) if found.kernel.name == task.kernel)
    (expert,) = (k for k in load_kernels(EXPERTS / f"{task.kernel}.cu") if k.name == task.kernel)
    sizes = one.sizes("small") if task.small else [task.size]
    verdict = session.compare(one.kernel, expert, sizes=sizes).candidate[0]
    timed = verdict.timing is not None and verdict.correct
    wrong = [finding.message for finding in verdict.findings if finding.severity == "error"]
    return {
        "expert_us": verdict.timing.median_us if timed and verdict.timing is not None else None,
        "expert_correct": verdict.correct is True and not wrong,
        "expert_why": "; ".join(wrong),
    }


def add_torch(rows: Sequence[dict[str, Any]]) -> None:
    """Add `torch_us` and `compiled_us` at the headline, or `torch_why`, to the rows and print them; a note without torch."""
    try:
        from benchmarks.experts import torch_versions
    except ImportError as error:
        print(f"No times of torch: {error}.")
        return
    print(f"{'kernel':24}{'expert us':>12}{'torch us':>12}{'compiled us':>12}", flush=True)
    for row in rows:
        row["torch_why"] = ""
        try:
            row |= torch_versions.times(row["kernel"], torch_inputs(row["kernel"]))
        except Exception as error:  # noqa: BLE001 - said in the row
            row["torch_why"] = _why(error)
        figures = "".join(f"{row.get(key) or math.nan:>12.1f}" for key in ("expert_us", "torch_us", "compiled_us"))
        print(f"{row['kernel']:24}{figures}  {row['torch_why']}"[:230], flush=True)


def torch_inputs(name: str, size: Mapping[str, int] | None = None) -> dict[str, Any]:
    """NumPy arrays that a kernel reads, by argument, as its contract draws them at a size; at the headline without one.

    Raises:
        ReferenceFailed: the contract's `inputs` function failed.
    """
    (one,) = (found for found in listed(NAIVE) if found.kernel.name == name)
    drawn = draw(one.contract, size or one.contract.sizes[0], (7,), NORMAL, NAIVE)
    return {arg.name: drawn[arg.name] for arg in one.contract.args if arg.shape is not None and arg.direction != "out"}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Geometric means over the rows with both times; a kernel without a faster schedule counts with the naive time."""
    timed = [row for row in rows if row.get("baseline_us") and row["expert_us"]]
    ours = [min(row["baseline_us"], row["ours_us"] or math.inf) for row in timed]
    gains = _mean(row["baseline_us"] / us for row, us in zip(timed, ours, strict=True))
    best = _mean(row["baseline_us"] / row["expert_us"] for row in timed)
    close = sum(us <= CLOSE * row["expert_us"] for row, us in zip(timed, ours, strict=True))
    right = sum(row["expert_correct"] for row in rows)
    return (
        f"{right} of {len(rows)} expert versions right. Of {len(timed)} timed: ours {gains:.2f}x, experts {best:.2f}x "
        f"(geometric means), {close} within {CLOSE} of the expert."
    )


def _mean(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN of none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _line(row: dict[str, Any]) -> str:
    naive, ours, expert = (row.get(key) or math.nan for key in ("baseline_us", "ours_us", "expert_us"))
    why = "" if row["expert_correct"] else f"  EXPERT NOT RIGHT {row['expert_why']}"
    return f"{row['kernel']:24}{naive:>12.1f}{ours:>12.1f}{expert:>12.1f}{ours / expert:>12.2f}{why}  {row['why']}"[
        :230
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, limit_s=240.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
