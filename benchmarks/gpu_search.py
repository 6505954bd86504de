"""Searches at large sizes: the first accepted candidate, how many were judged, and the budget.

`python -m benchmarks.gpu_search [KERNEL ...]` needs an NVIDIA GPU and CuPy; `--backend emulator --scale small` tries the
script without. For each kernel of `benchmarks/large`, a warm session that has judged an edited text of it before, as an
editor does, is asked "make it faster" with a budget of 30 s. The table says after how many seconds the first candidate was
accepted (on the emulator: was promising), how many candidates with distinct binaries were judged, at least at the headline's
time and one small size, how many of them were judged in full, how long the search took in all with the baseline's verdict, and
the best one's speed-up. With `--before PATH` an older checkout makes the same search after each, ended at `--cap` seconds.
`--examples` takes the kernels of `examples/` instead.

Goals: the first accepted within 6 s (on the emulator, of the examples at their own sizes: the first promising within 5 s for
80 %); at least 20 distinct binaries, or all that were proposed, which is so where a search ends before its budget; no search
over its budget by more than 10 %.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.acceptance_table import deciding
from benchmarks.large_set import EXAMPLES, LARGE, Listed, copy_of, listed, write_edited
from benchmarks.machine import describe, save
from benchmarks.tree_session import ROOT, TreeSession

GOAL_BINARIES, GOAL_BUDGET = 20, 1.1
GOAL_FIRST_S, SHARE_OF_FIRSTS = {"cuda": 6.0, "emulator": 5.0}, {"cuda": 1.0, "emulator": 0.8}
PROMPT = "make it faster"


def main() -> int:
    """Print the table and write it as JSON; 1 where a goal is missed."""
    options = _options()
    print(f"{describe()} · {options.backend}, {options.scale} sizes, budget {options.budget:g} s", flush=True)
    print(
        f"{'kernel':<20}{'first s':>9}{'binaries':>10}{'in full':>8}{'total s':>9}{'speed-up':>10}  best, and errors",
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        settings = {"backend": options.backend}
        trees = {"after": ROOT} | ({} if options.before is None else {"before": options.before})
        sessions = {name: TreeSession(tree, settings, folder / name) for name, tree in trees.items()}
        kept = EXAMPLES if options.examples else LARGE
        copied = copy_of(kept, folder)
        try:
            for one in listed(kept, options.kernels):
                for name, session in sessions.items():
                    rows.append({"kernel": one.kernel.name, "tree": name} | _searched(session, one, copied, options))
                    print(_line(rows[-1]), flush=True)
                if options.out is not None:
                    save(
                        options.out,
                        {"rows": rows},
                        backend=options.backend,
                        scale=options.scale,
                        budget_s=options.budget,
                    )
        finally:
            for session in sessions.values():
                session.close()
    return _summary(rows, options.budget, options.backend)


def _searched(session: TreeSession, one: Listed, copied: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The search's own answer, and the seconds to the first candidate that was accepted or promising."""
    edited = write_edited(one, copied)
    session.ask(options.cap, do="bench", spec=edited, sizes=one.sizes(options.scale), seed=secrets.randbits(31))
    path = copied / Path(one.kernel.unit.path).name
    path.write_text(one.kernel.unit.text)
    spec = f"{path}::{one.kernel.name}"
    answer = session.ask(
        options.cap, do="optimize", spec=spec, sizes=one.sizes(options.scale), seed=secrets.randbits(31), prompt=PROMPT,
        budget_s=options.budget,
    )  # fmt: skip
    good = "accepted" if options.backend == "cuda" else "worth_taking"
    first = next((judged["at_s"] for judged in answer.get("judged", ()) if judged[good] is True), None)
    return {**answer, "first_s": first}


def _line(row: dict[str, Any]) -> str:
    name = row["kernel"] if row["tree"] == "after" else f"  {row['tree']}"
    if "error" in row:
        return f"{name:<20}{'-':>9}{'-':>10}{'-':>8}{'-':>9}{'-':>10}  {row['error']}"
    first, speedup = ("-" if row[key] is None else f"{row[key]:.2f}" for key in ("first_s", "best_speedup"))
    why = next((f"{one['author']}: {'; '.join(deciding(one['reasons']))}" for one in row["judged"]), "-")
    return f"{name:<20}{first:>9}{row['binaries']:>10}{row['candidates']:>8}{row['s']:>9.1f}{speedup:>10}  {row['best'] or why}"


def _summary(rows: list[dict[str, Any]], budget_s: float, backend: str) -> int:
    """Print what the goals ask for, by checkout; 1 where this one misses a goal."""
    missed = 0
    for tree in dict.fromkeys(row["tree"] for row in rows):
        mine = [row for row in rows if row["tree"] == tree]
        done = [row for row in mine if "error" not in row]
        firsts = [row["first_s"] for row in done if row["first_s"] is not None]
        soon = sum(first <= GOAL_FIRST_S[backend] for first in firsts)
        many = sum(row["binaries"] >= GOAL_BINARIES or row["s"] < budget_s for row in done)
        kept = sum(row["s"] <= GOAL_BUDGET * budget_s for row in done)
        taken = [row["best_speedup"] for row in done if row["best_speedup"] is not None]
        mean = f"{statistics.geometric_mean(taken):.2f}" if taken else "-"
        print(
            f"{tree}: of {len(mine)} searches {len(firsts)} found a good candidate, {soon} within {GOAL_FIRST_S[backend]:g} s; {many} judged "
            f"{GOAL_BINARIES} distinct binaries or all that were proposed, {kept} kept the budget within 10 %; "
            f"{len(taken)} found a faster one, geometric mean {mean}"
        )
        if tree == "after":
            missed = int(soon < SHARE_OF_FIRSTS[backend] * len(firsts) or min(many, kept) < len(mine))
    return missed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="names of kernels or files, in place of all")
    parser.add_argument("--backend", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--scale", choices=("full", "small"), default="full", help="small: the small listed sizes")
    parser.add_argument("--examples", action="store_true", help="the kernels of examples/ in place of benchmarks/large")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each search")
    parser.add_argument("--before", type=Path, metavar="PATH", help="an older checkout, which searches after each")
    parser.add_argument("--cap", type=float, default=120.0, help="seconds after which a search is ended")
    parser.add_argument("--out", type=Path, help="write the rows as JSON, after each kernel")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
