"""Facts about a reference, measured once at small sizes and used by every verdict at a large size.

The facts are the law of its tolerance (`extrapolation`), whether a GPU evaluates it like NumPy, and its duration. They
depend only on the contract and the reference, not on the seed or the kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import platformdirs

from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.extrapolation import OutputLaw, ToleranceLaw, law_of
from kernelmate.checks.precision import Array, Arrays, is_inexact, on_host
from kernelmate.checks.sizes import SmallSizes, own_sizes, small_sizes
from kernelmate.checks.styles import NORMAL, UNIFORM, InputStyle
from kernelmate.checks.tolerances import MOST_TERMS, rounded_outputs
from kernelmate.errors import KernelmateError, ReferenceFailed
from kernelmate.files import write_atomically
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype

LARGE_ELEMENTS = 1 << 17
"""Number of elements over all arrays above which a case is large: its reference is evaluated twice, with few launches.
"""

DEVICE_ELEMENTS = 1 << 20
"""Number of elements over all arrays above which a GPU, if present, computes inputs and expected outputs."""

MEDIUM_ELEMENTS, LONG_S = 1 << 13, 0.05
"""Limits of elements, and of seconds of one reference evaluation.

A case above both limits counts as large, and a GPU, if present, evaluates its reference.
"""

FORM = 2
"""Version of the stored facts; a change discards older ones."""

BASE_ELEMENTS = (1 << 14, 1 << 12, 1 << 10)
"""Numbers of elements at the smallest measured sizes; the next is used if an evaluation takes longer than `CHEAP_S`."""

MOST_BASE_ELEMENTS = 1 << 17
"""Maximum number of elements if shapes cannot be reduced to `BASE_ELEMENTS`."""

CHEAP_S = 0.01

LEAST_ELEMENT_S = 20e-9
"""Minimum of the seconds that each further element is taken to cost: of a few passes over arrays in memory."""

SAME = 1e-9
"""Allowed relative difference between NumPy and a GPU in float64, which add in different orders."""

TRUSTED_STYLES = (NORMAL, UNIFORM, InputStyle("zeros"), InputStyle("integers", bits=10))

MOST_COMPARED = 4
"""Number of further sizes at which the reference's results on a GPU are compared with NumPy's."""

Draw = Callable[[Size, int, InputStyle], Arrays]
"""Function that draws inputs on the host for a size, a set number and a style."""


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """Facts about a reference that were measured at small sizes.

    Attributes:
        law: growth law of its tolerances.
        device: True if a GPU gave the same results as NumPy at all tested sizes.
        seconds: pairs of elements and duration of one evaluation on the host.
    """

    law: ToleranceLaw
    device: bool
    seconds: tuple[tuple[int, float], ...]

    def seconds_at(self, elements: int) -> float:
        """Returns the estimated duration of an evaluation on the host for a number of elements.

        A duration that grows more slowly than the elements is a constant one, of the call, and a part in proportion to them.
        """
        if not self.seconds:
            return 0.0
        (few, short), (more, long) = self.seconds[0], self.seconds[-1]
        if elements > more > few and short > 0 and long * few < short * more:
            return float(long + max((long - short) / (more - few), LEAST_ELEMENT_S) * (elements - more))
        growth = math.log(long / short) / math.log(more / few) if more > few and short > 0 else 1.0
        return float(long * (elements / max(more, 1)) ** min(max(growth, 1.0), 2.0))


def stored_facts(key: Hashable, make: Callable[[], ReferenceFacts]) -> ReferenceFacts:
    """Returns facts stored under a key by this or another process; else computes and stores them.

    The key covers everything that the facts depend on.
    """
    name = hashlib.sha256(f"{FORM} {np.__version__} {key!r}".encode("utf-8", "surrogatepass")).hexdigest()
    base = os.environ.get("KERNELMATE_CACHE_DIR") or platformdirs.user_cache_dir("kernelmate")
    path = Path(base) / "references" / f"{name}.bin"
    with contextlib.suppress(OSError, msgspec.DecodeError, ValueError):
        return msgspec.msgpack.decode(path.read_bytes(), type=ReferenceFacts)
    learnt = make()
    # If the disk is full or read-only, the next process only loses some tenths of a second.
    with contextlib.suppress(OSError):
        write_atomically(path, msgspec.msgpack.encode(learnt))
    return learnt


def seconds_of(contract: Contract, reference: Reference, size: Size, draw: Draw) -> float:
    """Returns the estimated duration of an evaluation of the reference at a size, extrapolated from small sizes."""
    _, seconds = _affordable(contract, reference, size, draw)
    return ReferenceFacts(usual_law(contract, size), False, seconds).seconds_at(elements_at(contract, size))


def learn(
    contract: Contract, reference: Reference, size: Size, draw: Draw, seed: int, *, exact: bool,
    to_device: Callable[[Array], Any] | None = None,
) -> ReferenceFacts:  # fmt: skip
    """Measures a reference at small sizes.

    Args:
        contract: the contract in force.
        reference: evaluated about a hundred times.
        size: the large size that needs the facts.
        draw: draws inputs.
        seed: seed of the perturbations.
        exact: True if the reference computes in float64; False for a reference kernel.
        to_device: copies an array to the GPU; None without a usable GPU.
    """
    small, seconds = _affordable(contract, reference, size, draw)
    rounds = contract.tolerance is None and any(
        is_inexact(numpy_dtype(a.dtype)) for a in contract.args if a.direction in ("out", "inout")
    )
    law = usual_law(contract, size)
    if small is not None and rounds:
        try:
            law = law_of(contract, reference, small, lambda at, number: draw(at, number, NORMAL), (seed,), exact=exact)
        except KernelmateError:
            law = usual_law(contract, size)
    device = to_device is not None and exact and _same_on_device(contract, reference, size, small, draw, to_device)
    return ReferenceFacts(law, device, seconds)


def usual_law(contract: Contract, size: Size) -> ToleranceLaw:
    """Returns a default law for sizes that cannot be reduced; it counts the longest input axis as terms."""
    shapes = argument_shapes(contract, size)
    longest = max(
        (max(shapes[a.name], default=1) for a in contract.args if a.name in shapes and a.direction in ("in", "inout")),
        default=1,
    )
    outputs = (a.name for a in contract.args if a.direction in ("out", "inout"))
    return ToleranceLaw(dict(size), min(float(MOST_TERMS), float(longest)), {}, {
        name: OutputLaw("size", 0.3, 2.0, 1.0, math.inf, {}, math.inf) for name in outputs
    })  # fmt: skip


def elements_at(contract: Contract, size: Size) -> int:
    """Returns the number of elements over all arrays at a size."""
    return sum(math.prod(extents) for extents in argument_shapes(contract, size).values())


def _affordable(
    contract: Contract, reference: Reference, size: Size, draw: Draw
) -> tuple[SmallSizes | None, tuple[tuple[int, float], ...]]:
    """Returns small sizes with cheap evaluations, and pairs of elements and measured seconds."""
    found = [small_sizes(contract, size, elements) for elements in BASE_ELEMENTS]
    fitting = [small for small in found if small is not None]
    if not fitting and (small := small_sizes(contract, size, MOST_BASE_ELEMENTS)) is not None:
        fitting = [small]
    for small in fitting:
        try:
            base = _seconds(contract, reference, small.base, draw)
        except KernelmateError:
            return None, ()
        if base[1] <= CHEAP_S or small is fitting[-1]:
            try:
                return small, (base, _seconds(contract, reference, small.larger, draw))
            except KernelmateError:
                return SmallSizes(small.base, small.base, {}), (base,)
    return None, ()


def _seconds(contract: Contract, reference: Reference, size: Size, draw: Draw) -> tuple[int, float]:
    arrays = draw(size, 0, NORMAL)
    took = math.inf
    for _ in range(2):  # the first one includes import time
        began = time.perf_counter()
        reference(arrays, size)
        took = min(took, time.perf_counter() - began)
    return elements_at(contract, size), took


def _same_on_device(
    contract: Contract, reference: Reference, size: Size, small: SmallSizes | None, draw: Draw,
    to_device: Callable[[Array], Any],
) -> bool:  # fmt: skip
    """Returns True if the GPU's results equal NumPy's at all small sizes and styles that NumPy can evaluate."""
    sizes: list[Size] = [] if small is None else [small.base, small.larger]
    sizes += own_sizes(contract, (size,))[:MOST_COMPARED]
    compared = 0
    for at in sizes:
        for number, style in enumerate(TRUSTED_STYLES):
            try:
                arrays = draw(at, number, style)
                want = reference(arrays, at)
            except KernelmateError:
                continue
            try:
                got = reference({name: to_device(array) for name, array in arrays.items()}, at)
            except (ReferenceFailed, MemoryError):
                return False
            if not _same(contract, want, got):
                return False
            compared += 1
    return compared > 0


def _same(contract: Contract, want: Expected, got: Expected) -> bool:
    rounded = rounded_outputs(contract, want)
    for name, w in want.items():
        g = on_host(got[name])
        if g.shape != w.shape:
            return False
        if name not in rounded:
            if not np.array_equal(g, w):
                return False
            continue
        with np.errstate(all="ignore"):
            finite = np.isfinite(w)
            scale = float(np.abs(w[finite]).max()) if finite.any() else 0.0
            near = np.abs(g - w) <= SAME * (np.abs(w) + scale)
            same = near | (g == w) | (np.isnan(g) & np.isnan(w))
        if not same.all():
            return False
    return True
