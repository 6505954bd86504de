"""Tolerances at large sizes, carried there from small ones.

`tolerances.derive` evaluates the reference some twenty times, which a size of millions of elements has no time for. Here it
is evaluated twice: once for what is wanted, and once in the accumulating dtype on inputs that were moved by a few units in
the last place. The difference, the *step*, shows for each element how far rounding moves it: inputs that were rounded once,
and what the reference itself loses where terms cancel. It is one random draw, though, and may be near zero by chance, so it
is pooled over elements that have alike scales. What they have in common (nearly equal results, a neighbourhood, a row, a
column) is found at small sizes, where the full derivation is made as well, and so are the factors between pooled steps and
sensitivity and inner loss. Only these, and how the number of terms grows with each size, are carried.

    error = 2 u_out |want| + 16 u |want| + growth(n) (u |want| + a E) + 8 b E

with the names of `tolerances`, E the pooled step, and a and b the factors. An element whose own step stands far above E
keeps its own: cancellation at single elements is seen where it happens. What a large size measures may not exceed what the
small sizes' law of growth allows by more than `BEYOND_LAW`: a reference that counts in float32 stops at 2^24 there, and
its own failure must not excuse a kernel's.
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
    Allowed,
    ToleranceParts,
    accumulating_dtype,
    measured,
    rounded_outputs,
    terms_of,
    toleranced,
)
from kernelmate.records import Contract, Size

STEP_UNITS = 4.0
"""Unit roundoffs by which inputs are moved for the step: so many that moved inputs are not rounded back, and so few that the
reference's own rounding stands beside them."""

DRAWS = 3
"""Steps that are taken at a small size to choose the pooling."""

COUNTS = 8
"""Terms are counted so often at a small size where the first two counts differ: sparse references have no one number."""

BLENDS = (0.0, 0.3, 0.6)
"""Exponents of an element's own step in its pooled one."""

KNOWN = 8
"""An output of few elements is pooled with what the law of growth says of it, as if that were so many elements."""

SETS = 4
"""Sets of inputs that outputs of few elements are measured on at small sizes."""

OUTLYING = 6.0
"""An element's own step that stands so many times above its pool is kept."""

BEYOND_LAW = 4.0
"""The pooled step may be so many times what the law of growth says."""

LOWEST, HIGHEST = 0.6, 2.5
"""Carried over full tolerance: its geometric mean is 1, or more where the quantiles are below and there is room above."""

TAIL = 0.01
"""Quantiles of the ratio between carried and full tolerance that a pooling is chosen by: this and its complement."""


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """The part of a law for one output.

    Attributes:
        pooling: the name of what is pooled, as `poolings` has it. blend: exponent of an element's own step.
        moved: sensitivity, in unit roundoffs, over the pooled step. inner: the inner loss, likewise.
        step: root mean square of the step at `Law.size`. exponents: with which it grows with each size name.
        spread: of carried over full tolerance, where both were measured.
    """

    pooling: str
    blend: float
    moved: float
    inner: float
    step: float
    exponents: Mapping[str, float]
    spread: float


@dataclass(frozen=True, slots=True)
class Law:
    """Tolerances of a contract and a reference at any size, as measured at small ones.

    Attributes:
        size: where terms were counted. terms: inputs that go into an output there. exponents: with which they grow with each
            size name.
        outputs: by argument.
    """

    size: Mapping[str, int]
    terms: float
    exponents: Mapping[str, float] = field(default_factory=dict)
    outputs: Mapping[str, OutputLaw] = field(default_factory=dict)

    def terms_at(self, size: Size) -> float:
        """Inputs that go into an output at a size."""
        return min(float(MOST_TERMS), max(1.0, self.terms * self._grown(self.exponents, size)))

    def step_at(self, name: str, size: Size) -> float:
        """Root mean square of an output's step at a size, as it grows between small ones."""
        return self.outputs[name].step * self._grown(self.outputs[name].exponents, size)

    def _grown(self, exponents: Mapping[str, float], size: Size) -> float:
        pairs = ((size[name] / max(self.size[name], 1), exponent) for name, exponent in exponents.items())
        return float(math.prod(ratio**exponent for ratio, exponent in pairs if ratio > 0))


Draw = Callable[[Size, int], Arrays]
"""Inputs at a size, of the set with a number."""


def law_of(
    contract: Contract, reference: Reference, sizes: SmallSizes, draw: Draw, seed: tuple[int, ...], *,
    exact: bool = True,
) -> Law:  # fmt: skip
    """Measure at small sizes what is carried to large ones.

    Args:
        contract: the one in force.
        reference: evaluated some thirty times at each size.
        sizes: the pooling and the factors are measured at the larger one, and what grows with a name at its probe.
        draw: gives inputs.
        seed: of moves.
        exact: the reference computes in float64; else it is a kernel.

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
    law = Law(dict(sizes.base), max((one.terms for one in first.full.values()), default=1.0), terms, bare)
    outputs = {name: _output_law(contract, law, at_larger, name) for name in names}
    return replace(law, outputs=outputs)


def carried(
    contract: Contract, law: Law, reference: Reference, arrays: Arrays, size: Size, want: Expected,
    seed: tuple[int, ...], *, exact: bool = True,
) -> Allowed:  # fmt: skip
    """The errors that pass at a large size; the reference is evaluated once.

    Args:
        contract: the one in force; it has no tolerance of its own.
        law: as `law_of` measured it.
        reference: what `want` came from.
        arrays: the inputs.
        size: theirs.
        want: the reference's answer to them.
        seed: of the moves.
        exact: the reference computes in float64; else it is a kernel.
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
    """A small size with what the full derivation measures there, the mean number of terms, and some steps."""

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
    """Root mean square of an output's steps over all draws of some samples."""
    squares = [rms(step[name]) ** 2 for sample in samples for step in sample.steps]
    return math.sqrt(sum(squares) / len(squares))


def step_of(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, seed: tuple[int, ...], *,
    exact: bool = True,
) -> Expected:  # fmt: skip
    """Distance of each element of a rounded output from the wanted one, for inputs moved by about `STEP_UNITS` roundoffs.

    Divided by `STEP_UNITS`: what a move of one unit does. One evaluation, in the accumulating dtype.
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
    """|got - want| over a scale, 0 where that is no number."""
    step = module_of(want).empty(want.shape)
    one, two, out = flat(got), flat(want), step.reshape(-1)
    with np.errstate(all="ignore"):
        for part in blocks_of(want):
            apart = np.abs(one[part] - two[part])
            apart /= scale
            out[part] = np.where(np.isfinite(apart), apart, 0.0)
    return step  # type: ignore[no-any-return]


def _pooled(law: OutputLaw, step: Array, want: Array, given: Arrays, expected: float) -> Array:
    """The pooled step of each element, within what the law of growth allows."""
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


def _output_law(contract: Contract, law: Law, samples: Sequence[_Sample], name: str) -> OutputLaw:
    """The pooling by which carried and full tolerances are closest at a small size."""
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
    """A law with its factors, and how far carried and full tolerances are apart by it."""
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
    """An exponent that is nearly a half or a whole number as that number, within what shapes can make."""
    near = round(2 * exponent) / 2
    return max(-2.0, min(2.0, near if abs(exponent - near) < 0.2 else exponent))
