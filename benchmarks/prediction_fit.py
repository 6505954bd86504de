"""Fits the prediction's figures to measured times, and scores predictions on families that were held out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kernelmate.measure.predict import FittedConstants, LaunchFacts, estimate

DIFFERENT = 1.1
"""Times further apart than this are a pair whose order is requested."""
STEPS = 12
PRIOR = 0.1
"""Standard deviation, on the logarithm, that a figure is expected to lie within of where it starts: launches say little
about some of the figures."""
NOISE = 0.2
"""The same of a predicted time about the measured one."""
SHAKE = 0.3
"""Typical relative distance of a perturbed start's figures from those of `START`."""


START = FittedConstants(
    launch_floor=1.0, dram_efficiency=0.88, dram_latency=550, l2_latency=310, l1_latency=90, shared_latency=20,
    shuffle_latency=35, sfu_latency=10, issue_latency=3.4, barrier_latency=20, barrier_per_warp=4.4, block_start=700,
    block_rate=1.0, int_survivors=0.33, atomic_rate=1.2, atomic_place_rate=0.29, divergence_cost=2.5, l2_bytes=27,
    partial_store=3.0, overlap_norm=2.5, alone_norm=2.1,
)  # fmt: skip
"""Initial figures of a fit.

Most were fitted to 194 launches of the examples on an H100, the others to single variants (atomics on one address,
stores to parts of sectors). Since some of the measured kernels were known when it was made, a report also fits from
randomly perturbed figures.
"""


@dataclass(frozen=True, slots=True)
class Timed:
    """One variant: what was counted of its launch, and its measured time in microseconds."""

    family: str
    name: str
    launch: LaunchFacts
    measured_us: float


@dataclass(frozen=True, slots=True)
class Score:
    """Agreement of predictions with measurements.

    Attributes:
        pairs: of one family, whose measured times differ by over 10 %. right: those in the right order.
        undecided: pairs whose predicted times lie closer than `factor`. decided_right: right ones of the others.
        regrets: by family, the time of the variant predicted best over the time of the best.
        errors: factor between predicted and measured time, sorted.
        ratio_errors: factor between the predicted and the measured ratio of all pairs within families, sorted.
    """

    pairs: int
    right: int
    undecided: int
    decided_right: int
    regrets: Mapping[str, float]
    families: Mapping[str, tuple[int, int]]
    errors: Sequence[float]
    ratio_errors: Sequence[float]


def fitted(timed: Sequence[Timed], start: FittedConstants, prior: float = PRIOR) -> FittedConstants:
    """The fit with the least squared error of logarithms, drawn towards `start` where the launches say little.

    Gauss-Newton steps on the logarithms of the figures, outliers weighted down (Huber), each step halved until it helps.
    """
    names = list(asdict(start))
    origin = np.log([getattr(start, name) for name in names])
    wanted = np.log([one.measured_us for one in timed])

    def residuals(point: np.ndarray) -> np.ndarray:
        fit = FittedConstants(**dict(zip(names, np.exp(point).tolist(), strict=True)))
        return np.array([math.log(estimate(one.launch, fit).warm_us) for one in timed]) - wanted

    def cost(point: np.ndarray, errors: np.ndarray) -> float:
        scaled = np.abs(errors) / NOISE
        huber = np.where(scaled < 1.5, scaled**2 / 2, 1.5 * scaled - 1.125)
        return float(huber.sum() + ((point - origin) ** 2).sum() / (2 * prior**2))

    point, errors = origin.copy(), residuals(origin)
    for _ in range(STEPS):
        step = _step(residuals, point, errors, (point - origin) / prior**2, prior)
        before = cost(point, errors)
        for scale in (1.0, 0.5, 0.25, 0.1):
            tried = point + scale * step
            found = residuals(tried)
            if cost(tried, found) < before:
                break
        else:
            break
        point, errors = tried, found
        if before - cost(point, errors) < 1e-3 * before:
            break
    return FittedConstants(**{name: float(f"{value:.4g}") for name, value in zip(names, np.exp(point), strict=True)})


def _step(
    residuals: Callable[[np.ndarray], np.ndarray], point: np.ndarray, errors: np.ndarray, pull: np.ndarray, prior: float
) -> np.ndarray:
    width = 0.02
    slopes = np.stack([(residuals(point + width * unit) - errors) / width for unit in np.eye(len(point))], axis=1)
    weights = 1 / np.maximum(np.abs(errors) / (1.5 * NOISE), 1.0) / NOISE**2
    normal = slopes.T @ (weights[:, None] * slopes) + np.eye(len(point)) / prior**2
    gradient = slopes.T @ (weights * errors) + pull
    found: np.ndarray = -np.linalg.solve(normal, gradient)
    return np.clip(found, -1.0, 1.0)


def shaken(start: FittedConstants, seed: int) -> FittedConstants:
    """A start whose every figure is wrong by chance: how much of a score is owed to where the fit starts."""
    errors = np.random.default_rng(seed).normal(0, math.log(1 + SHAKE), len(asdict(start)))
    return FittedConstants(
        **{name: value * math.exp(error) for (name, value), error in zip(asdict(start).items(), errors, strict=True)}
    )


def held_out(timed: Sequence[Timed], start: FittedConstants) -> list[float]:
    """Each variant's time, predicted by a fit that saw none of its family."""
    fits = {
        family: fitted([one for one in timed if one.family != family], start)
        for family in sorted({one.family for one in timed})
    }
    return [estimate(one.launch, fits[one.family]).warm_us for one in timed]


def score(timed: Sequence[Timed], predicted: Iterable[float], factor: float) -> Score:
    """Compare predictions with measurements; predictions closer than `factor` are not called."""
    members: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    errors = []
    for one, guess in zip(timed, predicted, strict=True):
        members[one.family].append((one.measured_us, guess))
        errors.append(math.exp(abs(math.log(guess / one.measured_us))))
    pairs = undecided = decided_right = 0
    families: dict[str, tuple[int, int]] = {}
    ratio_errors = []
    for family, times in members.items():
        right = asked = 0
        for index, (measured, guess) in enumerate(times):
            for other_measured, other_guess in times[:index]:
                real, said = math.log(measured / other_measured), math.log(guess / other_guess)
                ratio_errors.append(math.exp(abs(real - said)))
                if abs(real) <= math.log(DIFFERENT):
                    continue
                asked += 1
                right += real * said > 0
                called = abs(said) >= math.log(factor)
                undecided += not called
                decided_right += called and real * said > 0
        families[family] = (right, asked)
        pairs += asked
    regrets = {
        family: min(times, key=lambda pair: pair[1])[0] / min(measured for measured, _ in times)
        for family, times in members.items()
    }
    right = sum(count for count, _ in families.values())
    return Score(pairs, right, undecided, decided_right, regrets, families, sorted(errors), sorted(ratio_errors))


def at(figures: Sequence[float], share: float) -> float:
    """The figure that a share of the sorted figures does not exceed."""
    return figures[min(int(share * len(figures)), len(figures) - 1)]
