"""Verdicts of a GPU on candidates that were predicted without one: `python -m benchmarks.recipes_gpu FOLDER OUT.json`.

FOLDER holds what `python -m benchmarks.recipes --prompt "make it faster" --documents FOLDER` wrote on a machine without a GPU.
Every sound candidate of those documents is judged and timed here against its baseline, and each predicted ratio stands beside the
measured one. Goals: of the candidates that were promising at least 60 per cent are accepted, their geometric-mean speed-up is at
least 2, and none is slower than what was claimed of it, which is the lower end of its interval.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, save
from benchmarks.pool import spread
from kernelmate.errors import KernelmateError
from kernelmate.records import Confirmation, ConfirmationReport, Promise
from kernelmate.session import Session, read_carried


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate: what was predicted of it, and what was measured. Times in microseconds, ratios baseline over candidate.

    `launch_only`: its machine code is the baseline's, bit for bit. `best`: the best that its document promised.
    """

    document: str
    kernel: str
    author: str
    best: bool
    promised: bool
    launch_only: bool
    predicted: float | None
    predicted_ci95: tuple[float, float] | None
    measured: float | None
    measured_ci95: tuple[float, float] | None
    before_us: float | None
    after_us: float | None
    correct: bool | None
    accepted: bool | None
    reasons: tuple[str, ...]


def main() -> None:
    """Judge every document's candidates, print the table, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=12, help="candidates for each document, the best predicted first")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds for all; what is not done by then is left out"
    )
    parser.add_argument(
        "--backend", choices=("cuda", "emulator"), default="cuda", help="emulator only tries this script"
    )
    options = parser.parse_args()
    print(f"{describe()} · {options.backend}", flush=True)
    tasks = [(str(path), options.most) for path in sorted(options.folder.glob("*.json"))]
    rows: list[Row] = []
    errors: list[str] = []
    settings = {"backend": options.backend, "timeout_s": 120}
    for done in spread(judged, tasks, settings, jobs=options.jobs, limit_s=options.limit):
        if isinstance(done, str):
            errors.append(done)
        else:
            rows += done
        save(options.out, {"rows": [asdict(row) for row in rows]}, documents=len(tasks), errors=errors)
    rows.sort(key=lambda row: row.document)
    print_rows(rows)
    print(*errors, sep="\n")


def judged(session: Session, task: tuple[str, int]) -> list[Row] | str:
    """The rows of one document, or why there are none."""
    path, most = Path(task[0]), task[1]
    document = json.loads(path.read_text())
    carried = read_carried(path.read_text(), path.name)
    promises = [promise for promise in carried.promises if promise.sound][:most]
    if not promises:
        return f"{path.stem}: nothing to judge"
    try:
        found = session.confirm(replace(carried, promises=tuple(promises)), everything=True)
    except KernelmateError as error:
        return f"{path.stem}: {error}"
    best = None if document["best"] is None else document["candidates"][document["best"]]
    return [_row(path.stem, one, found, best) for one in found.confirmations]


def _row(document: str, one: Confirmation, found: ConfirmationReport, best: Mapping[str, Any] | None) -> Row:
    promise, verdict = one.promise, one.verdict
    timing, before = verdict.timing, found.baseline.timing
    return Row(
        document=document,
        kernel=document.partition("-")[2],
        author=promise.author.removeprefix("recipe:"),
        best=best is not None and (best["author"], best["source"]) == (promise.author, promise.source),
        promised=promised(promise),
        launch_only=verdict.binary == found.baseline.binary,
        predicted=None if promise.speedup is None else promise.speedup.median,
        predicted_ci95=None if promise.speedup is None else promise.speedup.ci95,
        measured=None if verdict.speedup is None else verdict.speedup.median,
        measured_ci95=None if verdict.speedup is None else verdict.speedup.ci95,
        before_us=None if before is None else before.median_us,
        after_us=None if timing is None else timing.median_us,
        correct=verdict.correct,
        accepted=verdict.accepted,
        reasons=verdict.reasons,
    )


def promised(promise: Promise) -> bool:
    """True if it was promising: right, and predicted to be faster by more than the prediction's error."""
    return promise.accepted is None and promise.objective is not None and promise.objective.met is True


def print_rows(rows: Sequence[Row]) -> None:
    """Each kernel's best promised candidate, then what the goals ask for, then all candidates together."""
    print(f"{'kernel':<18} {'before us':>9} {'after us':>8} {'predicted':>22} {'measured':>20} standing  best promised")
    for row in rows:
        if row.best:
            print(_line(row))
    promises = [row for row in rows if row.promised]
    best = [row for row in promises if row.best]
    print()
    for name, some in (("best of each kernel", best), ("all that were promising", promises)):
        if some:
            _print_goals(name, some)
    ratios = [row for row in rows if row.measured and row.predicted_ci95 is not None]
    if ratios:
        inside = sum(row.predicted_ci95[0] <= row.measured <= row.predicted_ci95[1] for row in ratios)
        print(
            f"{inside} of {len(ratios)} measured ratios ({inside / len(ratios):.1%}) lie within the interval that was predicted"
        )


def _line(row: Row) -> str:
    predicted, measured = (
        "-" if ratio is None or ci is None else f"{ratio:.2f} [{ci[0]:.2f}, {ci[1]:.2f}]"
        for ratio, ci in ((row.predicted, row.predicted_ci95), (row.measured, row.measured_ci95))
    )
    before, after = ("-" if value is None else f"{value:.2f}" for value in (row.before_us, row.after_us))
    standing = {True: "accepted", None: "undecided", False: "rejected"}[row.accepted]
    return f"{row.kernel:<18} {before:>9} {after:>8} {predicted:>22} {measured:>20} {standing:<9} {row.author}"


def _print_goals(name: str, rows: Sequence[Row]) -> None:
    accepted = [row for row in rows if row.accepted and row.measured]
    slower = [row for row in accepted if row.predicted_ci95 is not None and row.measured < row.predicted_ci95[0]]
    mean = statistics.geometric_mean([row.measured for row in accepted]) if accepted else 0.0
    print(f"{name}: {len(accepted)} of {len(rows)} accepted ({len(accepted) / len(rows):.0%}), geometric-mean speed-up {mean:.2f}, "
          f"{len(slower)} slower than claimed{''.join(f' ({row.kernel} {row.author})' for row in slower)}")  # fmt: skip


if __name__ == "__main__":
    main()
