"""Verdicts on candidates that look right and are wrong: `python -m benchmarks.wrong_candidates FOLDER [NAME ...]`.

FOLDER holds `base_BASE.cu`, `wrong_NAME.cu`, `honest_NAME.cu` and an `index.json` with the base of each name under `wrong`
and `honest`. Prints a line for each, which of them ran on the backend at all, and the counts. The exit code is 1 where more
than one in 25 wrong candidates is accepted, an honest one is refused, or there was no verdict of some.

`--backend cuda` judges on this machine's GPU; `--within S` begins no further candidate after S seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import BackendName, FindingCode, Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernels

SEED = 20261122
NEVER_RUN = frozenset(
    {
        FindingCode.FORBIDDEN_SOURCE,
        FindingCode.COMPILE_ERROR,
        FindingCode.UNSUPPORTED_INSTRUCTION,
        FindingCode.LAUNCH_FAILURE,
    }
)
"""Codes of candidates that are rejected before the backend runs them."""

Became = Literal["accepted", "rejected", "no verdict", "not tried"]


class Judged(NamedTuple):
    """One candidate. `ran`: the backend that was requested has run it."""

    kind: str
    name: str
    became: Became
    ran: bool
    said: str


def judge_all(folder: Path, names: list[str], session: Session, backend: BackendName, until: float) -> Iterator[Judged]:
    """Judge each candidate of a folder, wrong ones first, until a time of the monotonic clock."""
    index = json.loads((folder / "index.json").read_text())
    for kind in ("wrong", "honest"):
        for name, base in index[kind].items():
            if names and name not in names:
                continue
            if time.monotonic() > until:
                yield Judged(kind, name, "not tried", ran=False, said="no time was left")
                continue
            yield _judged(session, backend, kind, name, folder / f"base_{base}.cu", folder / f"{kind}_{name}.cu")


def _judged(session: Session, backend: BackendName, kind: str, name: str, base: Path, candidate: Path) -> Judged:
    try:
        (verdict,) = session.compare(load_kernels(base)[0], load_kernels(candidate)[0]).candidate
    except KernelmateError as failed:
        return Judged(kind, name, "no verdict", ran=False, said=f"{failed}")
    became: Became = "accepted" if verdict.correct else "no verdict"
    if verdict.correct is False or verdict.accepted is False:
        became = "rejected"
    errors = [finding.code for finding in verdict.findings if finding.severity == "error"]
    ran = verdict.backend == backend and bool(verdict.cases) and not NEVER_RUN.intersection(errors[:1])
    return Judged(kind, name, became, ran, _said(verdict))


def _said(verdict: Verdict) -> str:
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    if errors:
        return f"{errors[0].code}: {errors[0].message}"
    return f"correct {verdict.correct}, accepted {verdict.accepted}: {'; '.join(verdict.reasons)}"


def summary(judged: list[Judged], backend: BackendName) -> tuple[str, bool]:
    """The counts in words, and whether they are as they must be."""
    lines, good = [], True
    for kind in ("wrong", "honest"):
        of_kind = [one for one in judged if one.kind == kind]
        count = Counter(one.became for one in of_kind)
        there = sum(one.ran for one in of_kind)
        lines.append(
            f"{kind}: {len(of_kind)}, ran on {backend}: {there}, " + ", ".join(f"{n} {w}" for w, n in count.items())
        )
        wanted: Became = "rejected" if kind == "wrong" else "accepted"
        allowed = len(of_kind) // 25 if kind == "wrong" else 0
        good &= count["accepted" if kind == "wrong" else "rejected"] <= allowed
        good &= count["no verdict"] == 0
        lines += [f"  {one.name}: {one.became}" for one in of_kind if one.became not in (wanted, "not tried")]
        lines += [f"  {one.name}: did not run there" for one in of_kind if not one.ran and one.became == wanted]
    return "\n".join(lines), good


def main() -> int:
    """Print both kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone, such as 03_int_as_short")
    parser.add_argument("--backend", choices=("emulator", "cuda"), default="emulator")
    parser.add_argument("--within", type=float, metavar="S", default=float("inf"))
    args = parser.parse_args()
    print(describe())
    judged: list[Judged] = []
    began = last = time.monotonic()
    with Session(load_settings(seed=SEED, backend=args.backend, history=False)) as session:
        for one in judge_all(args.folder, args.names, session, args.backend, began + args.within):
            now = time.monotonic()
            ran = args.backend if one.ran else "not run"
            print(
                f"{one.kind:<7} {one.name:<32} {now - last:6.2f} s  {ran:<8}  {one.became:<10}  {one.said:.200}",
                flush=True,
            )
            judged, last = [*judged, one], now
    text, good = summary(judged, args.backend)
    print(f"\n{text}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
