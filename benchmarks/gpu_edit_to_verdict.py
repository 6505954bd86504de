"""From an edit to its verdict in a warm worker, and the usual way beside it: `python -m benchmarks.gpu_edit_to_verdict`.

Needs an NVIDIA GPU with CuPy, and torch and nvcc for the usual way. Arguments: edits of each example (5), kernels that
are also done the usual way (3), seconds after which no further one of those is begun (400), and names of kernels, in place
of all examples.

An edit changes the kernel's code, so that everything is compiled and judged again: all listed sizes and sizes of its own,
the guards, a timing with its interval, occupancy. The inputs of each verdict have a seed of their own. While nobody asks,
the worker works ahead for the next seed; an edit by hand leaves it a while, taken to be 1.5 s. `in a hurry` is the same
without a pause, as when candidates are tried one after another with new seeds.

The usual way is `torch.utils.cpp_extension.load_inline` of the same kernel, then five correctness trials against the same
computation in torch, and 100 timed trials by events: what KernelBench and its kin do for one version.

Goals: the median over the examples is at most 0.6 s, and at least 50 times faster than the usual way on the same kernels.
Prints the table, with where the time goes, and writes `benchmarks/results/gpu_edit_to_verdict.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.usual_way import USUAL, usual_seconds
from kernelmate.config import load_settings
from kernelmate.records import Kernel, Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract, same_kernel, with_text

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RESULT = Path(__file__).resolve().parent / "results" / "gpu_edit_to_verdict.json"
THINKING_S = 1.5
GOAL_S, GOAL_TIMES = 0.6, 50.0
STAGES = {
    "compile": "compile",
    "reference": "correctness",
    "cases": "correctness",
    "guards": "guards",
    "timing": "timing",
}
"""The group in the table of each stage that a session reports; time before the worker's first stage counts as transport."""


@dataclass(slots=True)
class Watch:
    """Adds up the seconds between the stages that a session tells of."""

    spent: Counter[str] = field(default_factory=Counter)
    _since: float = 0.0
    _in: str = "transport"

    def begin(self) -> None:
        """Start from nothing."""
        self.spent, self._since, self._in = Counter(), time.perf_counter(), "transport"

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Another stage, or a step in it; a compilation that is done leaves the time to the next one's beginning out."""
        now = time.perf_counter()
        self.spent[self._in] += now - self._since
        self._since, self._in = now, STAGES.get(stage, stage)

    def end(self) -> dict[str, float]:
        """Seconds by part."""
        self("transport", 0, 0)
        return dict(self.spent)


def edited(kernel: Kernel, number: int) -> Kernel:
    """The kernel with a mark in its body that stays in its PTX: other code, so nothing of it has been compiled before."""
    text = kernel.unit.text
    edit = f'asm volatile("// edit {number} {time.time_ns()}");'
    body = text.index("{", text.index(kernel.name, kernel.start)) + 1
    return same_kernel(kernel, with_text(kernel.unit, f"{text[:body]} {edit}{text[body:]}"))


def measure(session: Session, watch: Watch, kernel: Kernel, edits: int) -> dict[str, object]:
    """One example's row: the median edit, and where its time went."""
    session.bench(kernel)
    walls, parts, hurried, verdict = [], [], 0.0, None
    for number in range(edits + 1):
        if number < edits:
            time.sleep(THINKING_S)
        one = edited(kernel, number)
        watch.begin()
        began = time.perf_counter()
        (verdict, *_) = session.bench(one)
        spent = time.perf_counter() - began
        if number < edits:
            walls.append(spent)
            parts.append(watch.end())
        else:
            hurried = spent
    assert verdict is not None
    _check(verdict)
    median = {name: statistics.median(part.get(name, 0.0) for part in parts) for name in set().union(*parts)}
    return {"kernel": kernel.name, "s": statistics.median(walls), "hurried_s": hurried, "parts": {k: round(v, 4) for k, v in median.items()},
            "median_us": verdict.timing.median_us if verdict.timing else None}  # fmt: skip


def _check(verdict: Verdict) -> None:
    assert verdict.correct is True, verdict.findings
    assert verdict.occupancy is not None
    assert verdict.timing is not None
    assert verdict.timing.kind == "measured"


def main(arguments: list[str]) -> int:
    """Print the table; 1 where a goal is missed."""
    edits = int(arguments[0]) if arguments else 5
    usual = int(arguments[1]) if len(arguments) > 1 else 3
    seconds = float(arguments[2]) if len(arguments) > 2 else 400.0
    wanted = frozenset(arguments[3:])
    print(describe(), flush=True)
    rows = []
    watch = Watch()
    with tempfile.TemporaryDirectory() as cache:
        settings = load_settings(backend="cuda", cache_dir=cache)
        with Session(settings, watch) as session:
            for path in sorted(EXAMPLES.glob("*.cu")):
                for kernel in load_kernels(path):
                    contract = parse_contract(kernel)
                    if wanted and kernel.name not in wanted:
                        continue
                    if contract is not None and len(contract.instances) < 2:
                        rows.append(measure(session, watch, kernel, edits))
                        row = rows[-1]
                        print(
                            f"{row['kernel']:<22} {row['s'] * 1e3:6.0f} ms   in a hurry {row['hurried_s'] * 1e3:6.0f} ms   {words(row['parts'])}",
                            flush=True,
                        )
    ours = statistics.median(row["s"] for row in rows)
    hurried = statistics.median(row["hurried_s"] for row in rows)
    print(f"in a hurry: median {hurried * 1e3:.0f} ms")
    print(f"median {ours * 1e3:.0f} ms over {len(rows)} examples (goal: at most {GOAL_S * 1e3:.0f} ms)", flush=True)
    beside: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    keep(rows, ours, hurried, beside, ratios)
    until = time.monotonic() + seconds
    has_nvcc = shutil.which("nvcc", path=f"{os.environ.get('PATH')}:/usr/local/cuda/bin") is not None
    there = {row["kernel"] for row in rows}
    for name in [name for name in USUAL if USUAL[name].kernel in there][:usual]:
        if time.monotonic() > until or not has_nvcc:
            break
        beside[name] = usual_seconds(name, EXAMPLES)
        mine = next(row["s"] for row in rows if row["kernel"] == USUAL[name].kernel)
        ratios[name] = beside[name]["total"] / mine
        print(f"{name:<22} the usual way {beside[name]['total']:.1f} s ({words(beside[name])}): {ratios[name]:.1f} times as long", flush=True)  # fmt: skip
        keep(rows, ours, hurried, beside, ratios)
    missed = ours > GOAL_S or not ratios or min(ratios.values()) < GOAL_TIMES
    if not ratios:
        print("nothing was done the usual way: " + ("no time was left for it" if has_nvcc else "there is no nvcc"))
    print("goals missed" if missed else "goals met")
    return int(missed)


def keep(
    rows: list[dict[str, object]],
    ours: float,
    hurried: float,
    beside: dict[str, dict[str, float]],
    ratios: dict[str, float],
) -> None:
    """Write what there is so far."""
    found = {"machine": describe(), "median_s": ours, "median_in_a_hurry_s": hurried, "rows": rows}
    RESULT.write_text(json.dumps({**found, "usual_s": beside, "ratios": ratios}, indent=1) + "\n")


def words(parts: object) -> str:
    """`compile 81 ms, timing 203 ms`, the largest first."""
    assert isinstance(parts, dict)
    return ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in sorted(parts.items(), key=lambda p: -p[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
