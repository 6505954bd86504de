"""Tolerances: the largest error, relative to the reference, that counts as right, element by element.

If the contract states no tolerance, the error of an output element may be up to

    STORE_UNITS * u_out * |want|  +  FUNCTION_UNITS * u_acc * |want|  +  INNER_FACTOR * inner
      +  growth * (u_acc * |want| + sensitivity)

where u_out and u_acc are the unit roundoffs of the output's and of the accumulating dtype. There is no fixed absolute
part: small results are held to as many digits as large ones.

* Storing the result costs half a unit in the last place, or one where the conversion truncates: STORE_UNITS.
* Functions such as `expf`, `rsqrtf` and `tanhf`, and divisions, have errors of up to a few units in the last place each
  (CUDA C++ Programming Guide, Mathematical Functions, tables of maximum ulp errors; one ulp is up to two unit
  roundoffs). Eight ulps leave room for a few of them in a row. Intrinsics such as `__expf` have an error that grows
  with the argument, and so does the sensitivity.
* The sensitivity is the change of the reference when each floating input is perturbed by about a unit roundoff of the
  accumulating dtype: the maximum of several draws. It is the error of an exact algorithm on inputs that were rounded
  once, and it is large where terms cancel. Perturbations are normally distributed, not just up or down by one unit,
  since perturbations of two equal terms would otherwise cancel in every other draw.
* `inner` is the error of the reference computed in the accumulating dtype, on a few sets of inputs near the given ones;
  in float32 also with fused multiply-adds. Cancellation inside the computation, as in the `1 + tanh(v)` of a GELU far
  from zero, loses digits that perturbed inputs do not reveal. INNER_FACTOR allows for other orders of the same few
  operations.
* `growth` is the error of accumulation. Let n inputs contribute to an output, with one rounding each, the rounding
  errors independent with standard deviation 0.4 u to 0.6 u (Higham and Mary, A new approach to probabilistic rounding
  error analysis, 2019, argue why that describes real sums). Added one after another, terms of one sign give partial
  sums that grow like i, so an error of about 0.3 sqrt(n) u |sum|. Terms of random sign give partial sums that grow like
  sqrt(i), so an error of about 0.35 n u per term's size, which is 0.35 sqrt(n) times the sensitivity. The largest of
  many outputs lies four to five deviations out. Long sums of terms far below the partial sum's spacing, such as
  squares, are biased besides: a million squares of normal numbers, one after another, lose 0.0075 u |sum| for each. So
  growth = ROOT_GROWTH * (1 + sqrt(n)) + n / BIAS_TERMS accepts every order of summation; trees and blocks have far
  smaller errors than sequential sums. A float16 accumulator has errors of 2^13 of these units, so it fails for n up to
  about 10^5.
* n is measured: single inputs are perturbed and the outputs that change are counted. An element-wise kernel therefore
  gets no larger tolerance than its few operations need.

Below the smallest normal number precision is reduced: an intermediate may underflow gradually or be flushed to zero
(`-ftz=true`), and a quotient by an intermediate that overflowed is zero (`x / (1 + expf(-x))` below -88). Up to
UNDERFLOW_UNITS smallest normal numbers of a wide accumulating dtype, and one spacing of the output's dtype, are
accepted: 3e-36 in float32.

If the reference is a kernel, its outputs have rounding errors as well: the tolerance is doubled, and the sensitivity is
measured with perturbations far above the kernel's rounding errors. A float64 reference of a kernel that accumulates in
float64 is no more exact than the kernel: the rounding terms are doubled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from kernelmate.checks.evaluations import Expected, Reference, evaluations
from kernelmate.checks.perturbation import PerturbedInputs, at_edges, movable, with_one_moved
from kernelmate.checks.precision import (
    FUSED,
    Array,
    Arrays,
    blocks_of,
    flat,
    generator,
    is_float,
    is_inexact,
    limits,
    module_of,
    on_device,
    unit_roundoff,
    wide,
)
from kernelmate.records import Contract, Size
from kernelmate.source import numpy_dtype

STORE_UNITS = 2.0
FUNCTION_UNITS = 16.0
ROOT_GROWTH = 4.0
BIAS_TERMS = 128.0
UNDERFLOW_UNITS = 256.0
MOST_TERMS = 1 << 20

INNER_FACTOR = 8.0

JUMP = 2.0**-14
"""Relative size of an output's change, against the output's median, above which a perturbation crossed a discontinuity.
"""

MOVE = 2.0**-22
"""Relative perturbation of inputs to an exact reference; the change of the output is scaled to the unit roundoff."""
EXACT_DRAWS = 8
INNER_MOVE = 2.0**-7
"""Relative perturbation of inputs for the inner loss: large enough that rounding errors differ between draws."""
INNER_DRAWS = 4
KERNEL_MOVE = 2.0**-12
"""Relative perturbation of inputs to a reference kernel: far above its rounding errors, and small enough for a linear
response.
"""
KERNEL_DRAWS = 3

COARSE_ROOT = 2.0
COARSE_RELATIVE = 1 / 16
"""Largest relative error that is attributed to lost precision rather than a wrong result: see `Allowed.coarse`."""

BASELINE_FACTOR = 4.0
BASELINE_BOUND = 8.0
"""Maximum factor by which the baseline's error widens a tolerance, to `BASELINE_FACTOR` times that error."""


@dataclass(frozen=True, slots=True)
class MaximumErrors:
    """Maximum errors of outputs, per element.

    Attributes:
        error: the largest |got - want| that passes; 0 for integers.
        coarse: the largest error that the next narrower arithmetic (float16 for float32, float32 for float64) or an
            approximation with a few per cent of error would cause.
        terms: largest number of floating inputs that contribute to one element; infinite if not measured.
    """

    error: Expected
    coarse: Expected
    terms: float = math.inf


def accumulating_dtype(contract: Contract, output: str) -> np.dtype[Any]:
    """Returns the contract's `accumulate`, else float64 for double precision outputs and float32 for all others."""
    if contract.accumulate is not None:
        return numpy_dtype(contract.accumulate)
    return np.dtype(np.float64 if output in ("float64", "complex128") else np.float32)


@dataclass(frozen=True, slots=True)
class ToleranceParts:
    """Parts of one output's tolerance.

    Attributes:
        moved: change of the output per relative change of the inputs, per element.
        inner: its inner loss per unit roundoff, per element.
        terms: floating inputs per element.
    """

    moved: Array
    inner: Array
    terms: float


def derive(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, seed: tuple[int, ...],
    *, exact: bool = True, draws: int | None = None,
) -> MaximumErrors:  # fmt: skip
    """Derives the tolerances at one size for one set of inputs.

    Args:
        contract: the contract in force; if it has a tolerance, that is used unchanged.
        reference: the source of `want`, evaluated again on perturbed inputs.
        arrays: the inputs as drawn.
        size: the size they were drawn for.
        want: the reference's outputs for them.
        seed: the seed of the perturbations.
        exact: True if the reference computes in float64; False for a reference kernel.
        draws: number of perturbations; None for the defaults.
    """
    if contract.tolerance is not None or not rounded_outputs(contract, want):
        return contract_tolerance(contract, want)
    found = measured(contract, reference, arrays, size, want, seed, exact=exact, draws=draws)
    return toleranced(contract, want, found, exact=exact)


def with_vanished(contract: Contract, allowed: MaximumErrors, want: Expected, given: Arrays) -> MaximumErrors:
    """Allows one float64 roundoff of the inputs where the reference is exactly 0, as 1 + tanh(x) is for x below -20.

    Perturbed inputs do not reveal the reference's rounding there, and a version without cancellation gives a smaller
    value. Inputs of the output's shape count element by element. Without such inputs, as for the GELU of a matrix
    product, the largest result of the same row is used instead.

    Args:
        contract: defines the dtypes.
        allowed: a derived tolerance.
        want: the outputs of a reference in float64.
        given: the inputs.
    """
    error = dict(allowed.error)
    for name in rounded_outputs(contract, want):
        zero = want[name] == 0
        if on_device(want[name]) or not zero.any():
            continue
        beside = [array for array in given.values() if array.shape == zero.shape and is_float(array.dtype)]
        floor = np.zeros(int(zero.sum()))
        for array in beside or [_largest_of_row(want[name])]:
            floor = np.maximum(
                floor, np.nan_to_num(np.abs(wide(array[zero])), posinf=0.0) * unit_roundoff(np.dtype(np.float64))
            )
        error[name] = error[name].copy()
        error[name][zero] = np.maximum(error[name][zero], floor)
    return replace(allowed, error=error)


def _largest_of_row(want: Array) -> Array:
    """Returns an array of the given shape with the largest finite magnitude of each row."""
    sizes = np.nan_to_num(np.abs(want), nan=0.0, posinf=0.0)
    return np.broadcast_to(sizes.max(axis=-1, keepdims=True), want.shape) if want.ndim else sizes


def rounded_outputs(contract: Contract, want: Expected) -> list[str]:
    """Returns the outputs whose results are rounded."""
    return [a.name for a in contract.args if a.name in want and is_inexact(numpy_dtype(a.dtype))]


def contract_tolerance(contract: Contract, want: Expected) -> MaximumErrors:
    """Returns the contract's own tolerance; 0 for outputs that are not rounded, or without a tolerance."""
    zeros = {name: module_of(w).zeros(w.shape) for name, w in want.items()}
    if contract.tolerance is None:
        return MaximumErrors(zeros, zeros)
    rtol, atol, rounded = contract.tolerance.rtol, contract.tolerance.atol, rounded_outputs(contract, want)
    fixed = {n: atol + rtol * np.abs(w) if n in rounded else zeros[n] for n, w in want.items()}
    return MaximumErrors(_finite(fixed), _finite({n: e + COARSE_RELATIVE * np.abs(want[n]) for n, e in fixed.items()}))


def toleranced(
    contract: Contract, want: Expected, found: Mapping[str, ToleranceParts], *, exact: bool = True
) -> MaximumErrors:
    """Applies the module's formula to all outputs; outputs missing in `found` are not rounded.

    Args:
        contract: defines the dtypes.
        want: the reference's outputs.
        found: the measured parts of each rounded output's tolerance.
        exact: True if the reference computes in float64; False for a reference kernel, whose errors double the
            tolerance.
    """
    error = {name: module_of(w).zeros(w.shape) for name, w in want.items()}
    coarse = dict(error)
    dtypes = {a.name: a.dtype for a in contract.args}
    for name, one in found.items():
        error[name], coarse[name] = _in_blocks(contract, dtypes[name], want[name], one, 1.0 if exact else 2.0)
    return MaximumErrors(error, coarse, max((one.terms for one in found.values()), default=math.inf))


def _in_blocks(
    contract: Contract, output: str, want: Array, found: ToleranceParts, times: float
) -> tuple[Array, Array]:
    """Applies `_derived` block by block; elements for which the reference is NaN or infinite get tolerance 0."""
    error, coarse = module_of(want).empty(want.shape), module_of(want).empty(want.shape)
    wanted, moved, inner = (flat(array) for array in (want, found.moved, found.inner))
    for part in blocks_of(want):
        one = ToleranceParts(moved[part], inner[part], found.terms)
        some, rough = _derived(contract, output, wanted[part], one)
        for whole, block, factor in ((error, some, times), (coarse, rough, 1.0)):
            kept = whole.reshape(-1)[part]
            np.multiply(block, factor, out=kept)
            finite = np.isfinite(kept)
            if not bool(finite.all()):
                kept[~finite] = 0.0
    return error, coarse


def measured(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, seed: tuple[int, ...],
    *, exact: bool = True, draws: int | None = None,
) -> dict[str, ToleranceParts]:  # fmt: skip
    """Measures sensitivity, inner loss and number of terms of each rounded output; arguments as for `derive`."""
    usual = (EXACT_DRAWS if exact else KERNEL_DRAWS, INNER_DRAWS)
    moved, inner = _sensitivity(
        contract, reference, arrays, size, want, seed, exact, (draws, draws) if draws else usual
    )
    terms = terms_of(contract, reference, arrays, size, want, seed, exact=exact)
    return {name: ToleranceParts(moved[name], inner[name], terms) for name in rounded_outputs(contract, want)}


def _derived(contract: Contract, output: str, want: Array, found: ToleranceParts) -> tuple[Array, Array]:
    """Applies the module's formula to one output; returns tolerances and the bounds for lost precision."""
    out, accumulate = numpy_dtype(output), accumulating_dtype(contract, output)
    unit, terms = unit_roundoff(accumulate), found.terms
    with np.errstate(all="ignore"):
        size = np.abs(want)
        stored = STORE_UNITS * unit_roundoff(out) * (size + limits(out).smallest_normal)
        carried = unit * (size + found.moved)
        growth = ROOT_GROWTH * (1 + math.sqrt(terms)) + terms / BIAS_TERMS
        once = unit * (FUNCTION_UNITS * size + INNER_FACTOR * found.inner)
        if accumulate == np.float64:  # the reference has as many roundings
            once, growth = 2 * once, 2 * growth
        error = stored + once + growth * carried + _underflow(accumulate, growth)
        narrower = max(unit_roundoff(_narrower(accumulate)) / unit, 1.0)
        coarse = error + COARSE_ROOT * (1 + math.sqrt(terms)) * narrower * carried + COARSE_RELATIVE * size
    return error, coarse


def _underflow(accumulate: np.dtype[Any], growth: float) -> float:
    smallest = limits(accumulate).smallest_normal
    if smallest < limits(np.dtype(np.float16)).smallest_normal:
        return UNDERFLOW_UNITS * smallest
    return growth * unit_roundoff(accumulate) * smallest


def _narrower(accumulate: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if accumulate == np.float64 else np.dtype(np.float16)


def _finite(errors: dict[str, Array]) -> Expected:
    """Sets the tolerance to 0 where it is not finite: NaN and infinity must be matched exactly."""
    return {name: np.nan_to_num(error, nan=0.0, posinf=0.0) for name, error in errors.items()}


def _sensitivity(
    contract: Contract,
    reference: Reference,
    arrays: Arrays,
    size: Size,
    want: Expected,
    seed: tuple[int, ...],
    exact: bool,
    draws: tuple[int, int],
) -> tuple[Expected, Expected]:
    """Returns the change of each output per relative change of the inputs, and its inner loss per unit roundoff.

    Each is the maximum over its draws. A kernel's inner loss cannot be measured and is 0.
    """
    names = movable(contract, arrays)
    moves, across, inner = ({name: module_of(w).zeros(w.shape) for name, w in want.items()} for _ in range(3))
    if not names:
        return moves, inner
    rng = generator((*seed, 0x5E), arrays[names[0]])
    move = MOVE if exact else max(KERNEL_MOVE, 4 * max(unit_roundoff(arrays[name].dtype) for name in names))
    inputs = PerturbedInputs.of(arrays, names)
    edges = {name: at_edges(contract, arrays, size, name) for name in names}
    held = inputs.holding(edges) if any(edge.any() for edge in edges.values()) else None
    movers = [held if held is not None and draw % 2 == 0 else inputs for draw in range(draws[0])]
    answers = evaluations(reference, ((mover.moved(move, rng), None) for mover in movers), size)
    for mover, answer in zip(movers, answers, strict=True):
        _keep_largest(moves if held is None or mover is held else across, answer, want, move)
    for name in moves if held is not None else ():
        _keep_smooth(moves[name], across[name], want[name], move)
    if exact:
        double = all(accumulating_dtype(contract, a.dtype) == np.float64 for a in contract.args if a.name in want)
        working = np.dtype(np.float64 if double else np.float32)
        # GPUs have no type wider than float64, so the reference's loss in float64 is not measured there.
        finer = np.dtype(np.longdouble if double and not on_device(arrays[names[0]]) else np.float64)
        nearby = _near(inputs, names, working, rng, draws[1])
        passes = (working,) if double or on_device(arrays[names[0]]) else (working, FUSED)
        answers = evaluations(reference, ((near, dtype) for near in nearby for dtype in (finer, *passes)), size)
        for answer in answers:
            for _ in passes:
                _keep_largest(inner, next(answers), answer, unit_roundoff(working))
    return moves, inner


def _near(inputs: PerturbedInputs, names: list[str], working: np.dtype[Any], rng: Any, draws: int) -> Iterator[Arrays]:
    """Yields the given inputs and inputs near them, all rounded to the working type.

    If few digits remain even in float64, as in `1 + tanh(v)` below -18, the results at nearby inputs may all be zero.
    """
    for draw in range(draws + 1):
        near = inputs.moved(INNER_MOVE if draw else 0.0, rng)
        near.update({name: wide(near[name], working) for name in names})
        yield near


def _keep_smooth(moves: Array, across: Array, want: Array, move: float) -> None:
    """Includes the effects of perturbing elements at a comparison's edge, except across a discontinuity.

    Across a discontinuity only the values on one side are right.
    """
    sizes = np.abs(want[np.isfinite(want) & (want != 0)])
    step = JUMP * float(np.median(sizes)) if sizes.size else 0.0
    np.fmax(moves, np.where(across * move > step, 0.0, across), out=moves)


def _keep_largest(worst: Expected, got: Expected, want: Expected, unit: float) -> None:
    for name, w in want.items():
        with np.errstate(all="ignore"):
            # NumPy subtracts no truth values.
            step = (got[name] != w if w.dtype.kind == "b" else np.abs(got[name] - w)) / unit
        np.fmax(worst[name], np.where(np.isfinite(step), step, 0.0), out=worst[name])


def terms_of(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, seed: tuple[int, ...],
    *, exact: bool = True, of_places: Callable[[list[int]], float] = max,
) -> float:  # fmt: skip
    """Returns the number of floating inputs that contribute to an output element.

    It is the number of outputs that change with a single input, times inputs per output. `of_places` combines the
    counts of several probed inputs into one.
    """
    rng = np.random.default_rng(np.random.SeedSequence((*seed, 0xFA)))
    outputs = max(1, sum(w.size for w in want.values()))
    inputs, names, places = {n: wide(a) for n, a in arrays.items()}, movable(contract, arrays), 4 if exact else 1
    calls = (
        ({**inputs, name: with_one_moved(inputs[name], place)}, None)
        for name in names
        for place in rng.integers(0, arrays[name].size, places)
    )
    answers, most = evaluations(reference, calls, size), 1.0
    for name in names:
        follow = [
            sum(int(((got[n] != w) & ~((got[n] != got[n]) & (w != w))).sum()) for n, w in want.items())
            for got in islice(answers, places)
        ]
        most = max(most, of_places(follow) * arrays[name].size / outputs)
    return min(float(MOST_TERMS), most)


def with_baseline_error(allowed: Expected, baseline_error: Expected) -> Expected:
    """Returns the tolerance, widened by at most `BASELINE_BOUND` where the baseline's own error nearly exhausts it.

    A candidate that reorders the baseline's operations must not fail where the baseline passes narrowly.
    """
    return {
        name: np.maximum(tolerance, np.minimum(BASELINE_FACTOR * baseline_error[name], BASELINE_BOUND * tolerance))
        if name in baseline_error
        else tolerance
        for name, tolerance in allowed.items()
    }
