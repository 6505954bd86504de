"""CPU seconds of one `kernelmate bench` at 16M elements without a GPU: `python -m benchmarks.cpu_large [KERNEL ...]`.

Each command judges a new text in a new process, on the emulator, at the size of the table below alone and sizes of its own
around it. CPU seconds are user and system time of all processes that the command started, orphans among them.
Caches of compiled code are empty before a checkout's first command and kept from then on. With `--before PATH` the same
texts are judged by an older checkout in between. Goal: 10 s of CPU each.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.large_set import LARGE, Listed, copy_of, listed, write_edited
from benchmarks.machine import describe, save
from benchmarks.tree_session import ROOT, command

GOAL_S = 10.0
SIZES = {
    "saxpy": "n=16777216",
    "gelu": "n=16777216",
    "transpose": "rows=4096,cols=4096",
    "row_sum": "rows=16384,cols=1024",
    "column_sum": "rows=4096,cols=4096",
    "softmax": "rows=16384,cols=1024",
}
"""Sizes of 16,777,216 elements, by kernel: pointwise, transposition, reductions."""

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphaned descendants become children of this process, so that their CPU time is counted."""

ORPHANS_S = 10.0
"""Seconds that orphans of a command have to end."""


def main() -> int:
    """Print the table and write it as JSON; 1 where a command of this checkout takes longer than the goal."""
    options = _options()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    print(f"{describe()} · load {os.getloadavg()[0]:.1f}", flush=True)
    trees = {"after": ROOT} | ({} if options.before is None else {"before": options.before})
    print(f"{'kernel':<14}{'size':<24}{'tree':<8}{'CPU s':>8}{'wall s':>8}{'median us':>11}  right", flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copied = copy_of(LARGE, folder)
        for one in listed(LARGE, options.kernels or tuple(SIZES)):
            for name, tree in trees.items():
                rows.append({"kernel": one.kernel.name, "size": SIZES[one.stem], "tree": name})
                rows[-1] |= _judged(one, copied, tree, folder / name, options.limit)
                print(_line(rows[-1]), flush=True)
            if options.out is not None:
                save(options.out, {"rows": rows})
    return _summary(rows)


def _judged(one: Listed, copied: Path, tree: Path, caches: Path, limit_s: float) -> dict[str, Any]:
    """CPU and wall seconds of one command, and what it found."""
    arguments = ["bench", write_edited(one, copied), "--json", "--backend", "emulator", "--size", SIZES[one.stem]]
    began = _children_s()
    done = command(tree, caches, arguments, limit_s)
    _reap()
    done["cpu_s"] = _children_s() - began
    if "out" in done:
        verdict = json.loads(done.pop("out"))["verdicts"][0]
        timing = verdict["timing"]
        done |= {"correct": verdict["correct"], "median_us": None if timing is None else timing["median_us"]}
        done["errors"] = [finding["code"] for finding in verdict["findings"] if finding["severity"] == "error"]
    return done


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap() -> None:
    """Wait for orphans of a command that is over."""
    ends = time.monotonic() + ORPHANS_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < ends:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)


def _line(row: dict[str, Any]) -> str:
    found = f"{row['kernel']:<14}{row['size']:<24}{row['tree']:<8}{row['cpu_s']:>8.1f}"
    if "error" in row:
        return f"{found}{'-':>8}{'-':>11}  {row['error']}"
    median = "-" if row["median_us"] is None else f"{row['median_us']:.1f}"
    right = {True: "right", False: "WRONG", None: "no verdict"}[row["correct"]]
    return f"{found}{row['s']:>8.1f}{median:>11}  {right} {' '.join(row['errors'])}".rstrip()


def _summary(rows: list[dict[str, Any]]) -> int:
    mine = [row for row in rows if row["tree"] == "after"]
    within = sum("error" not in row and row["cpu_s"] <= GOAL_S for row in mine)
    print(f"{within} of {len(mine)} commands within {GOAL_S:g} s of CPU")
    old = {row["kernel"]: row["cpu_s"] for row in rows if row["tree"] == "before" and "error" not in row}
    ratios = [row["cpu_s"] / old[row["kernel"]] for row in mine if row["kernel"] in old and "error" not in row]
    if ratios:
        print(f"CPU seconds over those before: median {statistics.median(ratios):.2f} of {len(ratios)}")
    return int(within < len(mine))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", choices=[[], *SIZES], help=f"of {', '.join(SIZES)}")
    parser.add_argument("--before", type=Path, metavar="PATH", help="an older checkout, measured in between")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one command")
    parser.add_argument("--out", type=Path, help="write the rows as JSON, after each kernel")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
