"""Necessary width of the interval of a predicted ratio: `python -m benchmarks.prediction_intervals [MEASURED.json ...]`.

Each row of a file is a version that a rewrite of ours made, with the ratio (baseline over version) that was predicted of it and
the one that an H100 measured: `benchmarks/data/recipe_ratios_h100.json`, on which `kernelmate.measure.statistics.EDITED` was
chosen, and `benchmarks/results/recipes_gpu.json`, which was measured afterwards, or what `benchmarks.recipes_gpu` wrote
elsewhere. Printed for each file:

- how many measured ratios lie within the interval that KernelMate states, how many below what is claimed, and of the versions
  that it calls faster how many are;
- `chosen`: the shortest interval of the same shape that would hold 95 of 100 of them (97.5 on each side), and what the one that
  is chosen without a kernel's own rows holds of that kernel's, which is what may be expected of a kernel that nobody measured.

Needs no GPU.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.measure.statistics import EDITED, RatioError

ROOT = Path(__file__).resolve().parent
FILES = (ROOT / "data" / "recipe_ratios_h100.json", ROOT / "results" / "recipes_gpu.json")
SIDE = 0.975
"""The share of measured ratios that each end of an interval should hold."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A version beside its baseline: how much was predicted and measured to change, on the natural logarithm.

    Both are counted in the direction of the prediction, so that `predicted` is never negative.
    """

    kernel: str
    predicted: float
    measured: float
    faster: bool

    @property
    def over(self) -> float:
        """Returns the predicted minus the measured change."""
        return self.predicted - self.measured


def main(paths: Sequence[str]) -> None:
    """Print what intervals hold, file by file."""
    print(f"stated: {_shape(EDITED)}")
    for path in [Path(path) for path in paths] or FILES:
        pairs = read_pairs(json.loads(path.read_text())["rows"])
        print(f"\n{path.name}: {len(pairs)} versions of {len({pair.kernel for pair in pairs})} kernels")
        _print_held("stated", pairs, [(EDITED, pairs)])
        left_out = [
            (
                chosen([pair for pair in pairs if pair.kernel != kernel]),
                [pair for pair in pairs if pair.kernel == kernel],
            )
            for kernel in sorted({pair.kernel for pair in pairs})
        ]
        error = chosen(pairs)
        _print_held(f"chosen, {_shape(error)}", pairs, [(error, pairs)])
        _print_held("chosen without a kernel's own", pairs, left_out)


def read_pairs(rows: Iterable[dict[str, Any]]) -> list[Pair]:
    """The rows that have both ratios."""
    pairs = []
    for row in rows:
        if row["predicted"] and row["measured"]:
            said, real = math.log(row["predicted"]), math.log(row["measured"])
            sign = 1.0 if said >= 0 else -1.0
            pairs.append(Pair(row["kernel"], sign * said, sign * real, said > 0))
    return pairs


def chosen(pairs: Sequence[Pair]) -> RatioError:
    """The least widening or narrowing of the stated interval, each side by itself, that holds `SIDE` of some pairs."""
    less = [pair.over / _width(EDITED.over, EDITED.over_slope, pair) for pair in pairs]
    more = [-pair.over / _width(EDITED.under, EDITED.under_slope, pair) for pair in pairs]
    down, up = _quantile(less), _quantile(more)
    return RatioError(down * EDITED.over, down * EDITED.over_slope, up * EDITED.under, up * EDITED.under_slope)


def _quantile(values: Sequence[float]) -> float:
    """The smallest value that `SIDE` of all do not exceed, never negative."""
    return max(sorted(values)[math.ceil(SIDE * len(values)) - 1], 0.0)


def _width(fixed: float, slope: float, pair: Pair) -> float:
    return fixed + slope * min(pair.predicted, 1.0)


def _print_held(name: str, pairs: Sequence[Pair], parts: Iterable[tuple[RatioError, Sequence[Pair]]]) -> None:
    held = below = called = right = 0
    for error, some in parts:
        for pair in some:
            low = pair.predicted - _width(error.over, error.over_slope, pair)
            high = pair.predicted + _width(error.under, error.under_slope, pair)
            held += low <= pair.measured <= high
            below += pair.measured < low
            if low > 0 and pair.faster:
                called += 1
                right += pair.measured > 0
    share = f"{held} of {len(pairs)} ({held / len(pairs):.1%}) within, {below} changed less than the interval says"
    print(f"  {name}: {share}; {called} called faster, {right} of them are")


def _shape(error: RatioError) -> str:
    numbers = (error.over, error.over_slope, error.under, error.under_slope)
    return "less by {:.3f} + {:.3f} c, more by {:.3f} + {:.3f} c, c the change up to e-fold".format(*numbers)


if __name__ == "__main__":
    main(sys.argv[1:])
