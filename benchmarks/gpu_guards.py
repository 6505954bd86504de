"""Verdicts on kernels that cheat in ways that only a GPU shows: `python -m benchmarks.gpu_guards`.

Needs an NVIDIA GPU and CuPy. First what a launch takes over its own results and after everything that it could have left
there was reset, for honest kernels; then every exploit of tests/exploits/gpu with what rejects it. The exit code is 1 where an
honest launch differs by more than the guard allows for, or an exploit passes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.launches import listed_launches
from benchmarks.machine import describe
from kernelmate.backends.cuda.backend import CudaBackend
from kernelmate.backends.cuda.repeating import repeat
from kernelmate.checks.guards import clocks, repeated_launches
from kernelmate.compiler import find_target
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.cu"))
EXPLOITS = sorted((ROOT / "tests" / "exploits" / "gpu" / "wrong").glob("*.cu"))
SEED = 20261121


def honest() -> int:
    """Print each example's headline launch; how many of them a guard takes for a cheat."""
    backend, target, bad = CudaBackend(), find_target("sm_90"), 0
    print(f"{'example':<40} {'over its own':>12} {'afresh':>9} {'scrubbed':>9}   microseconds")
    for listed in listed_launches(EXAMPLES, target, headline_only=True):
        restored = frozenset(a.name for a in listed.contract.args if a.direction == "inout")
        seen = repeat(backend.load(listed.compiled, target), listed.run, restored)
        said = repeated_launches.find(seen) or clocks.find(seen) or ""
        bad += bool(said)
        times = (seen.over_own_us, seen.afresh_us, seen.scrubbed_us)
        print(f"{listed.name:<40} {_us(times[0]):>12} {_us(times[1]):>9} {_us(times[2]):>9}   {said}", flush=True)
    return bad


def exploits() -> int:
    """Print what rejects each exploit; how many pass."""
    passed = 0
    with Session(load_settings(seed=SEED, backend="cuda", history=False)) as session:
        for path in EXPLOITS:
            found = re.search(r"^// baseline: (\S+)$", path.read_text(), flags=re.MULTILINE)
            assert found is not None
            baseline = load_kernels((path.parent / found[1]).resolve())[0]
            (verdict,) = session.compare(baseline, load_kernels(path)[0]).candidate
            passed += verdict.accepted is not False
            errors = [finding for finding in verdict.findings if finding.severity == "error"]
            words = f"{errors[0].code}: {errors[0].message}" if errors else "accepted"
            print(f"{path.stem}: {words}", flush=True)
    return passed


def _us(time: float | None) -> str:
    return "-" if time is None else f"{time:.2f}"


def main() -> int:
    """Print both tables."""
    print(describe())
    bad = honest()
    print()
    passed = exploits()
    print(f"\n{bad} honest launches taken for cheats; {passed} of {len(EXPLOITS)} exploits accepted")
    return 1 if bad or passed else 0


if __name__ == "__main__":
    sys.exit(main())
