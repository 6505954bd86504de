"""What is said of candidates that look right and are not: `python -m benchmarks.wrong_candidates FOLDER [NAME ...]`.

FOLDER holds `base_BASE.cu`, `wrong_NAME.cu`, `honest_NAME.cu` and an `index.json` with the base of each name under `wrong`
and `honest`. Prints one line each and the counts; the exit code is 1 where more than one in 25 wrong candidates is accepted
or an honest one is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernels

SEED = 20261122


def judge_all(folder: Path, kind: str, names: list[str], session: Session) -> tuple[int, int]:
    """Print a line for each candidate of a kind; how many there are and how many were accepted."""
    accepted = judged = 0
    for name, base in json.loads((folder / "index.json").read_text())[kind].items():
        if names and name not in names:
            continue
        began = time.perf_counter()
        said, taken = _judged(session, folder / f"base_{base}.cu", folder / f"{kind}_{name}.cu")
        judged, accepted = judged + 1, accepted + taken
        print(f"{kind:<7} {name:<30} {time.perf_counter() - began:6.2f} s  {said}", flush=True)
    return judged, accepted


def _judged(session: Session, base: Path, candidate: Path) -> tuple[str, bool]:
    try:
        (verdict,) = session.compare(load_kernels(base)[0], load_kernels(candidate)[0]).candidate
    except KernelmateError as failed:
        return f"refused: {failed}", False
    return _said(verdict), verdict.correct is True and verdict.accepted is not False


def _said(verdict: Verdict) -> str:
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    if errors:
        return f"{errors[0].code}: {errors[0].message}"[:200]
    return f"correct {verdict.correct}, accepted {verdict.accepted}: {'; '.join(verdict.reasons)}"[:200]


def main() -> int:
    """Print both kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone, such as 03_int_as_short")
    parser.add_argument("--backend", choices=("emulator", "cuda"), default="emulator")
    args = parser.parse_args()
    print(describe())
    with Session(load_settings(seed=SEED, backend=args.backend, history=False)) as session:
        wrong, passed = judge_all(args.folder, "wrong", args.names, session)
        honest, kept = judge_all(args.folder, "honest", args.names, session)
    print(f"\n{passed} of {wrong} wrong candidates accepted, {kept} of {honest} honest ones")
    return 1 if passed * 25 > wrong or kept < honest else 0


if __name__ == "__main__":
    sys.exit(main())
