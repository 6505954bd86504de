"""Carried tolerances against fully derived ones, honest variants and mutants: `python -m benchmarks.tolerance_study`.

Needs no GPU. For each kernel of `benchmarks/large` with floating outputs, a tolerance is carried from a small base to a size
of at least 64 times as many elements, at which the full derivation is available as well. The first table gives the 1st, 50th and
99th percentile over elements of the carried tolerance over the full one, each the mean over three seeds of the moves. Then
variants of six computations are held against the carried tolerance at a large size: mutants must exceed it, honest ones not.

`--full` takes the full derivation with three other seeds in place of the carried one: the noise that the ratio itself has.
Goals: 1st and 99th percentile between 0.5 and 3 for every kernel; every mutant beyond 1 tolerance, every honest variant
within.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_set import LARGE, listed
from benchmarks.machine import describe, save
from benchmarks.tolerance_variants import COUNTING, WORKLOADS, Array, Total, Workload
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.extrapolation import ToleranceLaw, extrapolated_tolerances, law_of
from kernelmate.checks.inputs import draw
from kernelmate.checks.precision import Arrays
from kernelmate.checks.reference import python_reference
from kernelmate.checks.reference_facts import BASE_ELEMENTS, elements_at
from kernelmate.checks.sizes import small_sizes
from kernelmate.checks.styles import NORMAL, InputStyle
from kernelmate.checks.tolerances import derive
from kernelmate.records import Contract, Size
from kernelmate.source import contract_for, find_kernels, text_unit

SEED = 5
"""Of the small sizes' moves."""

SEEDS = (11, 12, 13)
OTHER_SEEDS = 100
"""Added to the seeds of the full derivation that stands in for the carried one."""
LOWEST, HIGHEST, FACTOR = 0.5, 3.0, 64

SIZES: dict[str, dict[str, int]] = {
    "attention": {"queries": 512, "keys": 2048, "dim": 128},
    "batchnorm_stats": {"batch": 16, "channels": 64, "pixels": 1040},
    "column_sum": {"rows": 4160, "cols": 256},
    "conv2d": {"cin": 16, "cout": 16, "height": 192, "width": 192},
    "cross_entropy": {"rows": 256, "classes": 4224},
    "dot": {"n": 1048576},
    "embedding": {"tokens": 2048, "vocabulary": 4096, "dim": 256},
    "fir_filter": {"signals": 64, "length": 16384, "taps": 16},
    "gelu": {"n": 1048576},
    "layernorm": {"rows": 512, "cols": 2176},
    "matmul": {"m": 640, "n": 640, "k": 640},
    "maxpool": {"channels": 16, "height": 256, "width": 256},
    "nbody": {"n": 2048},
    "row_scan": {"rows": 512, "cols": 2048},
    "row_sum": {"rows": 256, "cols": 4224},
    "saxpy": {"n": 1048576},
    "scatter_add": {"n": 524288, "bins": 16384},
    "softmax": {"rows": 512, "cols": 2048},
    "spmv": {"rows": 65536, "cols": 65536, "nnz": 655360},
    "stencil": {"ny": 1024, "nx": 1024},
    "transpose": {"rows": 1024, "cols": 1024},
    "upsample": {"channels": 4, "height": 256, "width": 256},
}
"""By kernel: a size with at least `FACTOR` times the elements of the one that is learnt from."""

Tolerance = Callable[["Problem", int], Expected]


class Problem:
    """A contract at a large size: its inputs, the reference, the answer, and what small sizes say of the tolerance."""

    def __init__(self, contract: Contract, size: Size) -> None:
        self.contract, self.size = contract, size
        reference = python_reference(contract, LARGE)
        assert reference is not None
        self.reference: Reference = reference
        self.arrays: Arrays = self._inputs(size, 7, NORMAL)
        self.want: Expected = reference(self.arrays, size)

    def _inputs(self, size: Size, number: int, style: InputStyle) -> Arrays:
        return draw(self.contract, size, (number, *size.values()), style, LARGE)

    @cached_property
    def law(self) -> ToleranceLaw:
        """Returns the error law measured at a verdict's small sizes, or at smaller ones.

        Sizes are smaller where the verdict's are not `FACTOR` times smaller than the size studied.
        """
        small = small_sizes(self.contract, self.size, min(BASE_ELEMENTS[0], self._elements // FACTOR))
        assert small is not None
        return law_of(self.contract, self.reference, small, lambda *of: self._inputs(*of, NORMAL), (SEED,))

    @property
    def factor(self) -> float:
        """Elements of all arrays at the size over those at the one that is learnt from."""
        return self._elements / elements_at(self.contract, self.law.size)

    @property
    def _elements(self) -> int:
        return elements_at(self.contract, self.size)


def carried_tolerance(problem: Problem, seed: int) -> Expected:
    """The tolerance at the problem's size, carried from small ones."""
    p = problem
    return extrapolated_tolerances(p.contract, p.law, p.reference, p.arrays, p.size, p.want, (seed,)).error


def full_tolerance(problem: Problem, seed: int) -> Expected:
    """The tolerance derived in full at the problem's large size."""
    p = problem
    return derive(p.contract, p.reference, p.arrays, p.size, p.want, (seed,), exact=True).error


def other_full_tolerance(problem: Problem, seed: int) -> Expected:
    """The same with other moves."""
    return full_tolerance(problem, seed + OTHER_SEEDS)


def main() -> int:
    """Print both tables; 1 where a goal is missed, 3 where there are no carried tolerances yet."""
    options = _options()
    print(describe(), flush=True)
    tolerance = other_full_tolerance if options.full else carried_tolerance
    try:
        ratios = [] if options.only == "variants" else _compare(tolerance, options.kernels)
        variants = [] if options.only == "ratios" else _variants(tolerance, options.kernels)
    except NotImplementedError as error:
        print(error)
        return 3
    if options.out is not None:
        save(options.out, {"ratios": ratios, "variants": variants}, full=options.full)
    good, right = sum(row["good"] for row in ratios), sum(row["as_meant"] for row in variants)
    print(f"{good} of {len(ratios)} kernels have their 1st and 99th percentile between {LOWEST:g} and {HIGHEST:g}")
    print(f"{right} of {len(variants)} variants are judged as they are meant")
    return int(good < len(ratios) or right < len(variants))


def _compare(tolerance: Tolerance, names: list[str]) -> list[dict[str, Any]]:
    print(f"{'kernel':<18}{'output':<14}{'factor':>8}{'1st':>8}{'50th':>8}{'99th':>8}{'full s':>9}{'carried s':>11}")
    rows = []
    for one in listed(LARGE, names):
        if one.stem not in SIZES:
            continue
        problem = Problem(one.contract, SIZES[one.stem])
        assert problem.factor >= FACTOR, f"{one.stem}: only {problem.factor:.1f} times the base"
        full, full_s = _mean(full_tolerance, problem)
        carried, carried_s = _mean(tolerance, problem)
        for name, under in full.items():
            ratio = carried[name][under > 0] / under[under > 0]
            low, middle, high = np.percentile(ratio, (1, 50, 99)).tolist()
            row = {"kernel": one.kernel.name, "output": name, "factor": problem.factor, "p1": low, "p50": middle, "p99": high,
                   "full_s": full_s, "carried_s": carried_s, "good": low >= LOWEST and high <= HIGHEST}  # fmt: skip
            rows.append(row)
            print(
                f"{one.kernel.name:<18}{name:<14}{problem.factor:>8.0f}{low:>8.2f}{middle:>8.2f}{high:>8.2f}"
                f"{full_s:>9.2f}{carried_s:>11.2f}{'' if row['good'] else '  MISSED'}",
                flush=True,
            )
    return rows


def _mean(tolerance: Tolerance, problem: Problem) -> tuple[Expected, float]:
    """The mean over the seeds by output, and the seconds of one."""
    began = time.perf_counter()
    found = [tolerance(problem, seed) for seed in SEEDS]
    spent = (time.perf_counter() - began) / len(SEEDS)
    return {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}, spent


def _variants(tolerance: Tolerance, names: list[str]) -> list[dict[str, Any]]:
    print(f"\n{'computation':<22}{'variant':<22}{'meant':<8}{'largest error, in tolerances':>30}")
    rows = []
    for workload in WORKLOADS:
        if names and workload.kernel not in names:
            continue
        problem = Problem(contract_of(workload), workload.large)
        allowed, _ = _mean(tolerance, problem)
        for meant, variants in (("honest", workload.honest), ("mutant", workload.mutants)):
            for total in variants:
                error = _error(workload, problem, allowed, total)
                as_meant = (error <= 1) == (meant == "honest")
                rows.append({
                    "computation": workload.name, "variant": total.__name__, "meant": meant, "error": error,
                    "as_meant": as_meant,
                })  # fmt: skip
                said = "" if as_meant else "  MISSED"
                print(f"{workload.name:<22}{total.__name__:<22}{meant:<8}{error:>30.3g}{said}", flush=True)
    return rows


def contract_of(workload: Workload) -> Contract:
    """The contract that a workload computes for."""
    if workload.kernel is None:
        return contract_for(find_kernels(text_unit(COUNTING))[0])
    return next(listed(LARGE, [workload.kernel])).contract


def _error(workload: Workload, problem: Problem, allowed: Expected, total: Total) -> float:
    """The largest error of a variant over its tolerance; infinite where an output is not finite, or one without room is off."""
    with np.errstate(all="ignore"):
        got = workload.run(problem.arrays, total)
    return max(_largest(got[name], want, allowed[name]) for name, want in problem.want.items())


def _largest(got: Array, want: Array, allowed: Array) -> float:
    off = np.abs(np.asarray(got, np.float64) - want)
    with np.errstate(all="ignore"):
        errors = np.where(off == 0, 0.0, off / allowed)
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="names of files of benchmarks/large, in place of all"
    )
    parser.add_argument("--full", action="store_true", help="the full derivation in place of the carried one")
    parser.add_argument("--only", choices=("ratios", "variants"), help="one of the two tables")
    parser.add_argument("--out", type=Path, help="write both tables as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
