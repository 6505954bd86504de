"""Tolerances at large sizes, extrapolated from small ones.

`tolerances.derive` evaluates the reference about twenty times, which is too slow for millions of elements. Here it is
evaluated twice: once for the expected outputs, and once in the accumulating dtype on inputs perturbed by a few units in
the last place. The difference, the *step*, shows how far rounding moves each element: rounding of the inputs, and the
reference's own loss by cancellation. It is a single random draw and may be near zero by chance, so it is pooled over
elements of similar scale. The criterion of similarity (nearly equal results, neighbourhood, row, column) is determined
at small sizes, where the full derivation is made as well, and so are the factors from pooled steps to sensitivity and
inner loss. Only these, and the growth of the number of terms with each size, are applied at the large size.

    error = 2 u_out |want| + 16 u |want| + growth(n) (u |want| + a E) + 8 b E

with the names of `tolerances`, E the pooled step, and a and b the factors. An element whose own step is far above E
keeps it, so that cancellation at single elements is respected. The pooled step at a large size may not exceed the
growth law of small sizes by more than `BEYOND_LAW`: a reference that counts in float32 saturates at 2^24, and its own
failure must not excuse a kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.perturbation import PerturbedInputs, movable
from kernelmate.checks.pooling import FEW, of_vector, pool_of, poolings, rms
from kernelmate.checks.precision import (
    Array,
    Arrays,
    blocks_of,
    flat,
    generator,
    module_of,
    unit_roundoff,
    wide,
)
from kernelmate.checks.sizes import SmallSizes
from kernelmate.checks.tolerances import (
    KERNEL_MOVE,
    MOST_TERMS,
    MaximumErrors,
    ToleranceParts,
    accumulating_dtype,
    measured,
    rounded_outputs,
    terms_of,
    toleranced,
)
from kernelmate.records import Contract, Size

STEP_UNITS = 4.0
"""Perturbation of the inputs for the step, in unit roundoffs.

The perturbation must survive rounding, and must not hide the reference's own rounding errors.
"""

DRAWS = 3
"""Steps measured at a small size to choose the pooling."""

COUNTS = 8
"""Repetitions of counting terms at a small size if the first two counts differ, as for sparse references."""

BLENDS = (0.0, 0.3, 0.6)
"""Candidate exponents of an element's own step in its pooled step."""

KNOWN = 8
"""Weight, in elements, of the growth law when an output of few elements is pooled."""

SETS = 4
"""Sets of inputs on which outputs of few elements are measured at small sizes."""

OUTLYING = 6.0
"""Multiple of the pooled step above which an element keeps its own step."""

BEYOND_LAW = 4.0
"""Multiple of the growth law that the pooled step may reach."""

LOWEST, HIGHEST = 0.6, 2.5
"""Target for the lowest, and limit for the highest, ratio of extrapolated to fully derived tolerance.

The ratio's geometric mean is 1, or larger if low quantiles need it and high quantiles allow it.
"""

TAIL = 0.01
"""Quantile (with its complement) of the ratio of extrapolated to full tolerance that decides the choice of a pooling.
"""


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """Growth law of one output's tolerance.

    Attributes:
        pooling: the pooling's name, one of `poolings`.
        blend: exponent of an element's own step in its pooled step.
        moved: factor from the pooled step to the sensitivity, in unit roundoffs.
        inner: factor from the pooled step to the inner loss, in unit roundoffs.
        step: root mean square of the step at `ToleranceLaw.size`, per unit roundoff.
        exponents: exponents of its growth with each size name.
        spread: ratio of the high to the low quantile of extrapolated over full tolerance at the measured sizes.
    """

    pooling: str
    blend: float
    moved: float
    inner: float
    step: float
    exponents: Mapping[str, float]
    spread: float


@dataclass(frozen=True, slots=True)
class ToleranceLaw:
    """Growth law of the tolerances of a contract and a reference, measured at small sizes.

    Attributes:
        size: the size at which terms were counted.
        terms: inputs per output element at that size.
        exponents: exponents of their growth with each size name.
        outputs: laws by argument.
    """

    size: Mapping[str, int]
    terms: float
    exponents: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, OutputLaw] = field(default_factory=dict)

    def terms_at(self, size: Size) -> float:
        """Returns the number of inputs per output element at a size."""
        return min(float(MOST_TERMS), max(1.0, self.terms * self._grown(self.exponents, size)))

    def step_at(self, name: str, size: Size) -> float:
        """Returns the root mean square of an output's step at a size, by the growth between small sizes."""
        return self.outputs[name].step * self._grown(self.outputs[name].exponents, size)

    def _grown(self, exponents: Mapping[str, float], size: Size) -> float:
        pairs = ((size[name] / max(self.size[name], 1), exponent) for name, exponent in exponents.items())
        return float(math.prod(ratio**exponent for ratio, exponent in pairs if ratio > 0))


Draw = Callable[[Size, int], Arrays]
"""Function that draws the inputs of a size, for a set number."""


def law_of(
    contract: Contract, reference: Reference, sizes: SmallSizes, draw: Draw, seed: tuple[int, ...], *,
    exact: bool = True,
) -> ToleranceLaw:  # fmt: skip
    """Measures the law that large sizes use, at small sizes.

    Args:
        contract: the one in force.
        reference: evaluated about thirty times at each size.
        sizes: pooling and factors are measured at the largest one, growth with a name at the name's probe.
        draw: draws inputs.
        seed: seed of the perturbations.
        exact: True if the reference computes in float64; False for a reference kernel.

    Raises:
        ReferenceFailed: the reference failed at a small size.
    """

    def sample(size: Size, number: int = 0) -> _Sample:
        return _Sample.at(contract, reference, size, draw(size, number), (*seed, number), exact=exact)

    first = sample(sizes.base)
    names = rounded_outputs(contract, first.want)
    few = any(first.want[name].size < FEW for name in names)
    sets = range(1, SETS if few else 1)
    at_base = [first, *(sample(sizes.base, number) for number in sets)]
    at_larger = at_base if sizes.larger == sizes.base else [sample(sizes.larger, number) for number in (0, *sets)]
    terms: dict[str, float] = {}
    steps: dict[str, dict[str, float]] = {name: {} for name in names}
    for changed, probe in sizes.probes.items():
        ratio = math.log(probe[changed] / sizes.base[changed])
        at_probe = [sample(probe, number) for number in (0, *sets)]
        terms[changed] = _snapped(math.log(at_probe[0].terms / first.terms) / ratio)
        for name in names:
            before, after = _step(at_base, name), _step(at_probe, name)
            steps[name][changed] = _snapped(math.log(after / before) / ratio) if before and after else 0.0
    bare = {name: OutputLaw("size", 0.0, 1.0, 0.0, _step(at_base, name), steps[name], math.inf) for name in names}
    law = ToleranceLaw(dict(sizes.base), max((one.terms for one in first.full.values()), default=1.0), terms, bare)
    outputs = {name: _output_law(contract, law, at_larger, name) for name in names}
    return replace(law, outputs=outputs)


def extrapolated_tolerances(
    contract: Contract, law: ToleranceLaw, reference: Reference, arrays: Arrays, size: Size, want: Expected,
    seed: tuple[int, ...], *, exact: bool = True,
) -> MaximumErrors:  # fmt: skip
    """Returns the tolerances at a large size; evaluates the reference once.

    Args:
        contract: the contract in force, which states no tolerance.
        law: the law from `law_of`.
        reference: the reference that computed `want`.
        arrays: the inputs.
        size: their size.
        want: the expected outputs.
        seed: seed of the perturbations.
        exact: True if the reference computes in float64; False for a reference kernel.
    """
    step = step_of(contract, reference, arrays, size, want, seed, exact=exact)
    terms = law.terms_at(size)
    found: dict[str, ToleranceParts] = {}
    for name in rounded_outputs(contract, want):
        own = law.outputs[name]
        pooled = _pooled(own, step[name], want[name], arrays, law.step_at(name, size))
        inner = own.inner * pooled
        pooled *= own.moved
        found[name] = ToleranceParts(pooled, inner, terms)
    return toleranced(contract, want, found, exact=exact)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A small size with its fully derived tolerances, the mean number of terms, and several steps."""

    size: Size
    given: Arrays
    want: Expected
    terms: float
    full: Mapping[str, ToleranceParts]
    steps: tuple[Expected, ...]

    @staticmethod
    def at(
        contract: Contract, reference: Reference, size: Size, arrays: Arrays, seed: tuple[int, ...], *, exact: bool
    ) -> _Sample:
        want = reference(arrays, size)
        full = measured(contract, reference, arrays, size, want, seed, exact=exact)
        steps = tuple(
            step_of(contract, reference, arrays, size, want, (*seed, draw), exact=exact) for draw in range(DRAWS)
        )
        given = {name: array for name, array in arrays.items() if name not in want}
        counted: list[float] = []
        while full and len(counted) < COUNTS and (len(counted) < 2 or len(set(counted)) > 1):
            again = (*seed, len(counted))
            counted.append(terms_of(contract, reference, arrays, size, want, again, exact=exact, of_places=fmean))
        return _Sample(size, given, want, fmean(counted or [1.0]), full, steps)


def _step(samples: Sequence[_Sample], name: str) -> float:
    """Returns the root mean square of an output's steps over all draws of several samples."""
    squares = [rms(step[name]) ** 2 for sample in samples for step in sample.steps]
    return math.sqrt(sum(squares) / len(squares))


def step_of(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, seed: tuple[int, ...], *,
    exact: bool = True,
) -> Expected:  # fmt: skip
    """Returns the step of each element of the rounded outputs, for inputs perturbed by about `STEP_UNITS` roundoffs.

    The step is divided by `STEP_UNITS`, so it is the effect of one roundoff. It takes one evaluation in the
    accumulating dtype.
    """
    names, rounded = movable(contract, arrays), rounded_outputs(contract, want)
    if not names:
        return {name: module_of(want[name]).zeros(want[name].shape) for name in rounded}
    double = all(accumulating_dtype(contract, a.dtype) == np.float64 for a in contract.args if a.name in want)
    working = np.dtype(np.float64 if double else np.float32)
    unit = unit_roundoff(working)
    move = STEP_UNITS * unit if exact else max(KERNEL_MOVE, 4 * max(unit_roundoff(arrays[n].dtype) for n in names))
    moved = PerturbedInputs.of(arrays, names).moved(move, generator((*seed, 0x57), arrays[names[0]]))
    if exact and not double:
        moved.update({name: wide(moved[name], working) for name in names})
        got = reference(moved, size, working)
    else:
        got = reference(moved, size)
    return {name: _finite_step(got[name], want[name], move) for name in rounded}


def _finite_step(got: Array, want: Array, scale: float) -> Array:
    """Returns |got - want| divided by `scale`; 0 where it is not finite."""
    step = module_of(want).empty(want.shape)
    one, two, out = flat(got), flat(want), step.reshape(-1)
    with np.errstate(all="ignore"):
        for part in blocks_of(want):
            apart = np.abs(one[part] - two[part])
            apart /= scale
            out[part] = np.where(np.isfinite(apart), apart, 0.0)
    return step  # type: ignore[no-any-return]


def _pooled(law: OutputLaw, step: Array, want: Array, given: Arrays, expected: float) -> Array:
    """Returns the pooled step of each element, limited by the growth law."""
    pool, count = pool_of(law.pooling, step, want, given)
    if count < FEW and math.isfinite(expected):
        np.sqrt((count * pool**2 + KNOWN * expected**2) / (count + KNOWN), out=pool)
    out, single, own = pool.reshape(-1), flat(step), flat(of_vector(step))
    for part in blocks_of(step):
        some = out[part]
        if law.blend:
            mine = np.maximum(own[part], 0.05 * some)
            some = np.where(some > 0, some ** (1 - law.blend) * mine**law.blend, 0.0)
        out[part] = np.where(single[part] > OUTLYING * some, single[part], some)
    found = rms(pool)
    if found > BEYOND_LAW * expected:
        pool *= BEYOND_LAW * expected / found
    return pool


def _output_law(contract: Contract, law: ToleranceLaw, samples: Sequence[_Sample], name: str) -> OutputLaw:
    """Chooses the pooling with the best agreement of extrapolated and full tolerances at a small size."""
    bare, want = law.outputs[name], samples[0].want[name]
    if want.size == 0 or not bare.step:
        return bare
    expected = law.step_at(name, samples[0].size)
    tried = [
        replace(bare, pooling=pool, blend=blend) for pool in poolings(want.shape, samples[0].given) for blend in BLENDS
    ]
    fitted = [_fitted(contract, samples, name, one, expected) for one in tried]
    return min(fitted, key=lambda one: one.spread)


def _fitted(contract: Contract, samples: Sequence[_Sample], name: str, law: OutputLaw, expected: float) -> OutputLaw:
    """Returns a law with fitted factors, and the spread of the extrapolated over the full tolerances."""
    pools = [[_pooled(law, step[name], one.want[name], one.given, expected) for step in one.steps] for one in samples]
    pool = _mean_square(array for each in pools for array in each)
    if not pool:
        return replace(law, spread=1.0)
    moved = _mean_square(one.full[name].moved for one in samples) / pool
    inner = _mean_square(one.full[name].inner for one in samples) / pool
    ratios = []
    for one, each in zip(samples, pools, strict=True):
        want, full = {name: one.want[name]}, one.full[name]
        found = (ToleranceParts(moved * array, inner * array, full.terms) for array in each)
        mean = np.mean([toleranced(contract, want, {name: made}).error[name] for made in found], axis=0)
        ratios.append((mean / toleranced(contract, want, {name: full}).error[name]).reshape(-1))
    low, high = _quantiles(np.concatenate(ratios))
    centre = max(1 / math.sqrt(low * high), min(LOWEST / low, HIGHEST / high))
    centre = min(max(centre, 0.2), 5.0)
    return replace(law, moved=moved * centre, inner=inner * centre, spread=high / low)


def _mean_square(arrays: Iterable[Array]) -> float:
    squares = [rms(array) ** 2 for array in arrays]
    return math.sqrt(sum(squares) / len(squares))


def _quantiles(ratios: Array) -> tuple[float, float]:
    usual = ratios[np.isfinite(ratios) & (ratios > 0)]
    low, high = np.quantile(usual, (TAIL, 1 - TAIL)) if usual.size else (1.0, 1.0)
    return float(low), float(high)


def _snapped(exponent: float) -> float:
    """Rounds an exponent close to a multiple of one half, within the possible range."""
    near = round(2 * exponent) / 2
    return max(-2.0, min(2.0, near if abs(exponent - near) < 0.2 else exponent))
