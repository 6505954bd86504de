"""Seconds from a new kernel text to its verdict at large sizes: `python -m benchmarks.gpu_verdicts [KERNEL ...]`.

Needs an NVIDIA GPU and CuPy; `--backend emulator --scale small` tries the script without. For each kernel of
`benchmarks/large` the table says

* `warm`: the median over some verdicts in a warm session, each on a new text and a new seed that was not worked ahead for;
* `emptied`, `kept`: wall seconds of one command `kernelmate bench FILE --json` in a new process on a new text, first with
  the compiler's, the emulator's, CuPy's and CUDA's caches empty, then with what the first command left in them. Python's
  bytecode and the operating system's file cache are kept in both;
* seconds of the warm verdict of median length by the stages that the session tells of: `session` is everything outside of
  the worker's stages;
* the findings of the headline: right or not, against what, and its time.

Then come the small examples, once each in the same warm session. With `--before PATH`, an older checkout judges the same
texts in between: large ones once each and within `--cap` seconds, examples twice each, in the order after, before,
before, after. Goals: 3 s warm, 6 s for one cold command.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.large_set import EXAMPLES, LARGE, Listed, copy_of, listed, write_edited
from benchmarks.machine import describe, save
from benchmarks.tree_session import ROOT, TreeSession, command

GOAL_WARM_S, GOAL_COLD_S = 3.0, 6.0
STAGES = ("session", "compile", "reference", "cases", "guards", "timing")


def main() -> int:
    """Print the table and write it as JSON; 1 where a goal is missed."""
    options = _options()
    print(f"{describe()} · {options.backend}, {options.scale} sizes", flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        settings = {"backend": options.backend, "timeout_s": options.limit}
        after = TreeSession(ROOT, settings, folder / "after")
        before = None if options.before is None else TreeSession(options.before, settings, folder / "before")
        with after:
            try:
                _measure(options, folder, after, before, rows)
            finally:
                if before is not None:
                    before.close()
    return _summary(rows)


def _measure(
    options: argparse.Namespace,
    folder: Path,
    after: TreeSession,
    before: TreeSession | None,
    rows: list[dict[str, Any]],
) -> None:
    print(_head(), flush=True)
    for kind, source in (("large", LARGE), ("example", EXAMPLES)):
        if options.only not in (None, kind):
            continue
        copied = copy_of(source, folder)
        for one in listed(source, options.kernels):
            measure = _large if kind == "large" else _example
            rows.append({"set": kind, "kernel": one.kernel.name} | measure(one, copied, options, after, before))
            print(_line(rows[-1]), flush=True)
            if options.out is not None:
                save(options.out, {"rows": rows}, backend=options.backend, scale=options.scale)


def _large(
    one: Listed, copied: Path, options: argparse.Namespace, after: TreeSession, before: TreeSession | None
) -> dict[str, Any]:
    sizes, row = one.sizes(options.scale), {"bytes": one.array_bytes(next(iter(one.sizes(options.scale)), None))}
    answers: list[dict[str, Any]] = []
    old: dict[str, Any] = {}
    for number in range(options.edits):
        spec = write_edited(one, copied)
        answers.append(_asked(after, spec, sizes, options.limit))
        if before is not None and number == 0:
            old = _asked(before, spec, sizes, options.cap)
    row |= _median(answers) | {"before": old}
    row["before_ratio"] = row["warm_s"] / old["s"] if "s" in old and row["warm_s"] is not None else None
    if not options.no_cold:
        with tempfile.TemporaryDirectory(dir=copied.parent) as caches:
            for name in ("emptied", "kept"):
                row[f"cold_{name}"] = _cold(one, copied, options, Path(caches) / "caches")
    return row


def _example(
    one: Listed, copied: Path, options: argparse.Namespace, after: TreeSession, before: TreeSession | None
) -> dict[str, Any]:
    spec, old = write_edited(one, copied), {}
    answers = [_asked(after, spec, [], options.limit)]
    if before is not None:
        olds = [_asked(before, spec, [], options.limit)]
        spec = write_edited(one, copied)
        olds.append(_asked(before, spec, [], options.limit))
        answers.append(_asked(after, spec, [], options.limit))
        old = _median(olds)
        old = {"error": old["errors"][0]} if old["warm_s"] is None else {**old, "s": old["warm_s"]}
    row = {"bytes": one.array_bytes()} | _median(answers) | {"before": old}
    row["before_ratio"] = row["warm_s"] / old["s"] if "s" in old and row["warm_s"] is not None else None
    return row


def _asked(session: TreeSession, spec: str, sizes: list[dict[str, int]], limit_s: float) -> dict[str, Any]:
    return session.ask(limit_s, do="bench", spec=spec, sizes=sizes, seed=secrets.randbits(31))


def _median(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of median length, all lengths, and the errors; `warm_s` is None if one has no verdict."""
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors:
        return {"warm_s": None, "errors": errors, "stages": {}, "correct": None, "median_us": None}
    middle = sorted(answers, key=lambda answer: answer["s"])[len(answers) // 2]
    binaries = {answer["binary"] for answer in answers}
    lengths = [answer["s"] for answer in answers]
    return {**middle, "warm_s": statistics.median(lengths), "all_s": lengths, "binaries": len(binaries)}


def _cold(one: Listed, copied: Path, options: argparse.Namespace, caches: Path) -> dict[str, Any]:
    sizes = [",".join(f"{name}={value}" for name, value in size.items()) for size in one.sizes(options.scale)]
    arguments = ["bench", write_edited(one, copied), "--json", "--backend", options.backend]
    arguments += [part for size in sizes for part in ("--size", size)]
    done = command(ROOT, caches, arguments, options.limit)
    if "out" in done:
        done["correct"] = json.loads(done.pop("out"))["verdicts"][0]["correct"]
    return done


def _head() -> str:
    stages = "".join(f"{name:>10}" for name in STAGES)
    return f"{'kernel':<20}{'MB':>6}{'warm s':>8}{'emptied':>9}{'kept':>8}{stages}{'median us':>11}{'before s':>10}{'ratio':>7}  right"  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    stages = "".join(_number(row["stages"].get(name), 10, 3) for name in STAGES)
    cold = "".join(_seconds(row.get(f"cold_{name}", {}), width) for name, width in (("emptied", 9), ("kept", 8)))
    right = {True: "right", False: "WRONG", None: "no verdict"}[row["correct"]]
    against = "" if row.get("held_against") in (None, "reference") else f" against the {row['held_against']}"
    same = ["edits of one binary"] if row.get("binaries", 0) < len(row.get("all_s", ())) else []
    more = "; ".join(
        [*row.get("errors", ()), *same, *(row.get(f"cold_{n}", {}).get("error", "") for n in ("emptied", "kept"))]
    )
    return (
        f"{row['kernel']:<20}{row['bytes'] / 1e6:>6.0f}{_number(row['warm_s'], 8)}{cold}{stages}"
        f"{_number(row['median_us'], 11, 1)}{_seconds(row['before'], 10)}{_number(row['before_ratio'], 7)}  {right}{against} {more}"
    ).rstrip("; ")


def _number(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def _seconds(answer: dict[str, Any], width: int) -> str:
    if "error" in answer:
        over = answer["error"]
        return f"{'>' + over.removeprefix('over ').removesuffix(' s') if over.startswith('over') else 'error':>{width}}"
    return _number(answer.get("s"), width)


def _summary(rows: list[dict[str, Any]]) -> int:
    large = [row for row in rows if row["set"] == "large"]
    missed = 0
    for name, goal in (("warm", GOAL_WARM_S), ("cold_emptied", GOAL_COLD_S), ("cold_kept", GOAL_COLD_S)):
        times = [
            row["warm_s"] if name == "warm" else row[name].get("s") for row in large if name == "warm" or name in row
        ]
        if times:
            within = sum(time is not None and time <= goal for time in times)
            missed += within < len(times)
            print(f"{name}: {within} of {len(times)} large kernels within {goal:g} s")
    wrong = [row["kernel"] for row in rows if row["correct"] is not True]
    if wrong:
        print(f"not right: {', '.join(wrong)}")
    for kind in ("large", "example"):
        ratios = [row["before_ratio"] for row in rows if row["set"] == kind and row["before_ratio"] is not None]
        if ratios:
            print(f"{kind}: seconds over those before, median {statistics.median(ratios):.2f} of {len(ratios)}, largest {max(ratios):.2f}")  # fmt: skip
    return int(missed > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="names of kernels or files, in place of all")
    parser.add_argument("--backend", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--scale", choices=("full", "small"), default="full", help="small: the small listed sizes")
    parser.add_argument("--edits", type=int, default=3, help="warm verdicts for each large kernel")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one verdict or one command")
    parser.add_argument("--only", choices=("large", "example"), help="one of the two sets")
    parser.add_argument("--no-cold", action="store_true", help="no commands in new processes")
    parser.add_argument("--before", type=Path, metavar="PATH", help="an older checkout, measured in between")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds that it has for each large kernel")
    parser.add_argument("--out", type=Path, help="write the rows as JSON, after each kernel")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
