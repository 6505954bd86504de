"""Eight notebooks at once on one GPU: `python -m benchmarks.gpu_eight OUT.json`.

Needs an NVIDIA GPU and CuPy. Each process has a session of its own, as a notebook has, and judges four kernels again and
again, each time with launches and copies of all the others about. Goal: every time is within 3% of the median of those
that one process takes alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, save
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernel

FILE = Path(__file__).resolve().parent / "timing_kernels.cu"
CHOSEN: tuple[tuple[str, dict[str, int]], ...] = (
    ("copy", {"n": 4194304}),
    ("matmul", {"n": 512}),
    ("normalize", {"rows": 2048, "cols": 2048}),
    ("chase", {"n": 4096, "hops": 64}),
)
NOTEBOOKS, ROUNDS, GOAL = 8, 4, 0.03
SEED = 20261121
"""The same inputs for all: what `chase` takes hangs on where its numbers lead."""


def notebook(out: Path, rounds: int) -> None:
    """Judge the kernels again and again; write what each time said."""
    rows = []
    with Session(load_settings(backend="cuda", timeout_s=300, seed=SEED)) as session:
        for _ in range(rounds):
            for name, size in CHOSEN:
                began = time.perf_counter()
                (verdict,) = session.bench(load_kernel(f"{FILE}::{name}"), sizes=[size])
                timing = verdict.timing
                rows.append({
                    "kernel": name, "us": None if timing is None else timing.median_us,
                    "cold_us": None if timing is None else timing.cold_l2_us, "took_s": time.perf_counter() - began,
                    "notes": () if timing is None else timing.notes,
                })  # fmt: skip
    out.write_text(json.dumps(rows))


def together(out: Path, count: int, rounds: int) -> list[list[dict[str, Any]]]:
    """Runs `count` notebook processes at once and returns the rows of each."""
    parts = [out.with_suffix(f".{number}") for number in range(count)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_eight", str(part), "--notebook", "--rounds", str(rounds)]
        )
        for part in parts
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"notebooks failed: {codes}")
    found = [json.loads(part.read_text()) for part in parts]
    for part in parts:
        part.unlink()
    return found


def main(arguments: list[str]) -> int:
    """Print the table; 1 where a time is further off than the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("gpu_eight.json"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--notebook", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.notebook:
        notebook(chosen.out, chosen.rounds)
        return 0
    print(describe(), flush=True)
    (alone,) = together(chosen.out, 1, chosen.rounds)
    eight = together(chosen.out, NOTEBOOKS, chosen.rounds)
    missed = 0
    print(f"{'kernel':<12}{'alone':>12}{'at once':>12}{'furthest off':>14}{'verdict':>10}")
    for name, _ in CHOSEN:
        base = statistics.median(row["us"] for row in alone if row["kernel"] == name)
        mine = [row for rows in eight for row in rows if row["kernel"] == name]
        off = max(abs(row["us"] / base - 1) for row in mine)
        took = statistics.median(row["took_s"] for row in mine)
        print(
            f"{name:<12}{base:>10.3f}us{statistics.median(row['us'] for row in mine):>10.3f}us{off:>14.2%}{took:>9.2f}s"
        )
        missed += off > GOAL
    save(chosen.out, {"alone": alone, "at_once": [row for rows in eight for row in rows]}, goal=GOAL)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
