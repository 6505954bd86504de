"""Generated kernels on a GPU: run once between guard bands, then timed in alternating replays of CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.cuda.backend import CudaBackend, CudaModule
from kernelmate.backends.cuda.loading import load_failure, load_function
from kernelmate.backends.cuda.timing_arena import ON_DEVICE, POISON, TO_DEVICE, TO_HOST
from kernelmate.checks.precision import is_float, is_inexact
from kernelmate.errors import KernelmateError
from kernelmate.records import Argument, LaunchShape, Size, Target, Version
from kernelmate.source import argument_shapes, evaluate, launch_shape, numpy_dtype, parse_distribution, scalar_values
from kernelmate_training.corpus.judging import NOT_TIMED, TURNS, Judged, Rounds

ROUND_US = 150.0
"""Approximate microseconds of one version's launches in one round."""

MOST_REPEATS = 64
"""Largest number of launches of one graph; a graph's start-up of some microseconds is at most a twentieth of it."""

SHORT_US = 12.0
"""Microseconds of a single launch, mostly overhead, below which the graph gets `MOST_REPEATS` launches."""

SLACK = 1.05
"""Factor on the first version's estimated time up to which a version may turn out faster."""

LOOKS = 3
"""Number of replays whose shortest decides whether a version is timed; other workers may delay the rest."""

LONGEST_US = 4_000.0
"""Microseconds of a launch above which a version is not timed, because all other workers wait for the GPU meanwhile."""

AGREE = 0.02
"""Tolerated difference of outputs at the large size, as a fraction of the largest value.

Rounding errors are far below, errors of skipped work far above.
"""

STRETCH = 65537
"""Number of random elements of an input; they repeat with a prime period that no row length has."""

REFUSED = frozenset({1, 701})
"""Errors of a launch that did not start, after which the context is intact: invalid value, too few resources.

Source: `CUresult` in the CUDA driver API.
"""

SAMPLE = 1 << 16
"""Number of elements compared at each of three places of an output."""

MEMORY_LIMIT = 3 << 30
"""Bytes of GPU memory that one worker may use."""


class Gpu:
    """One GPU, for one worker.

    Args:
        device: the CUDA device number.
    """

    def __init__(self, device: int) -> None:
        self.backend = CudaBackend(device, MEMORY_LIMIT)
        self.name = self.backend.gpu.name

    @property
    def lost(self) -> bool:
        """True if an error has destroyed the context, so that the process must be replaced."""
        return self.backend.poisoned

    def load(self, version: Version, target: Target) -> CudaModule:
        """Loads a version on the GPU, without its emulated counterpart."""
        import cupy

        try:
            with self.backend.device:
                return CudaModule(self.backend, version.compiled, target, load_function(version.compiled), None)
        except cupy.cuda.driver.CUDADriverError as error:
            raise UnsupportedInstruction(load_failure(version.compiled, int(error.status), str(error))) from None

    def time(
        self, judged: Sequence[Judged], size: Size, target: Target, *, most: int | None = None, turns: int = TURNS
    ) -> dict[int, Rounds | str]:
        """Times versions of one problem in alternating rounds; returns times or a failure by position in `judged`.

        Args:
            judged: the versions; those known to be wrong are left out.
            size: the size to time.
            target: the target of the GPU.
            most: largest number of versions to time, of those that look faster than the first; others are left out.
            turns: number of rounds; fewer than usual if another metric than time is requested.
        """
        import cupy

        versions = {k: one.version for k, one in enumerate(judged) if not one.words and one.version is not None}
        if not versions:
            return {}
        results: dict[int, Rounds | str] = {}
        runners: dict[int, _Runner] = {}
        with self.backend.device, self.backend.stream:
            try:
                with self.backend.turns.shared():
                    stage = Stage(next(iter(versions.values())), size, self.backend.stream)
                    for place, version in versions.items():
                        try:
                            runner = _Runner(self, version, size, target, stage)
                            wrong = runner.prepare(stage)
                        except KernelmateError as error:  # it cannot be launched at this size
                            wrong = str(error)
                        if wrong:
                            results[place] = wrong
                        else:
                            runners[place] = runner
                runners = _fastest(runners, most)
                with self.backend.turns.alone():
                    results.update(_in_turns(runners, turns))
            except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
                self.backend.poisoned = True
                return {place: f"launch-failure at {dict(size)}: {error}" for place in versions}
        return results


class Stage:
    """Arrays of a large size in GPU memory, with samples of the first version's outputs for comparison.

    A stretch of each input is drawn on the host by the contract's distribution and repeated on the GPU by copies.

    Args:
        version: the version whose contract lists the arrays.
        size: their size.
        stream: the current cupy stream.
    """

    def __init__(self, version: Version, size: Size, stream: Any) -> None:
        import cupy

        contract = version.contract
        self.size, self._stream = size, stream
        shapes = argument_shapes(contract, size)
        arrays = [a for a in contract.args if a.shape is not None]
        self.memory: dict[str, Any] = {}
        for argument in arrays:
            dtype = numpy_dtype(argument.dtype)
            count = math.prod(shapes[argument.name])
            self.memory[argument.name] = cupy.cuda.alloc(max(count * dtype.itemsize, 1))
            if argument.direction != "out":
                self._fill(argument, count, dtype)
        self._outputs = {
            a.name: (math.prod(shapes[a.name]), numpy_dtype(a.dtype)) for a in arrays if a.direction in ("out", "inout")
        }
        self._saved: dict[str, Any] = {}
        for argument in arrays:
            if argument.direction == "inout":
                self._saved[argument.name] = cupy.cuda.alloc(max(self._bytes(argument.name), 1))
                self._copy(self._saved[argument.name].ptr, self.memory[argument.name].ptr, self._bytes(argument.name))
        self._want: dict[str, Any] | None = None
        stream.synchronize()

    def _bytes(self, name: str) -> int:
        count, dtype = self._outputs[name]
        return count * int(dtype.itemsize)

    def _copy(self, to: int, start: int, count: int) -> None:
        from cupy.cuda import runtime

        runtime.memcpyAsync(to, start, count, ON_DEVICE, self._stream.ptr)

    def _fill(self, argument: Argument, count: int, dtype: np.dtype[Any]) -> None:
        """Draws a stretch, copies it to the GPU, and doubles the filled part until the array is full."""
        from cupy.cuda import runtime

        stretch = drawn_stretch(argument, min(count, STRETCH), self.size)
        place, there, total = self.memory[argument.name].ptr, stretch.nbytes, count * dtype.itemsize
        runtime.memcpy(place, stretch.ctypes.data, there, TO_DEVICE)
        while there < total:
            step = min(there, total - there)
            self._copy(place + there, place, step)
            there += step

    def restore(self) -> None:
        """Restores arrays that are updated in place; fills others with a pattern."""
        from cupy.cuda import runtime

        for name in self._outputs:
            if name in self._saved:
                self._copy(self.memory[name].ptr, self._saved[name].ptr, self._bytes(name))
            else:
                runtime.memsetAsync(self.memory[name].ptr, POISON, self._bytes(name), self._stream.ptr)

    def compared(self) -> str:
        """Returns the difference from the first version's outputs, in words; empty if there is none.

        It compares samples from the start, the middle and the end.
        """
        got = {name: self._sample(name) for name in self._outputs}
        if self._want is None:
            self._want = got
            return ""
        for name, sample in got.items():
            wrong = output_difference(sample, self._want[name])
            if wrong:
                at = ", ".join(f"{dimension} = {value}" for dimension, value in self.size.items())
                return f"wrong values of {name} at {at}: {wrong}"
        return ""

    def _sample(self, name: str) -> np.ndarray[Any, Any]:
        from cupy.cuda import runtime

        count, dtype = self._outputs[name]
        starts = sorted({0, max(count // 2 - SAMPLE // 2, 0), max(count - SAMPLE, 0)})
        pieces = []
        for start in starts:
            piece = np.empty(min(SAMPLE, count - start), dtype)
            runtime.memcpy(piece.ctypes.data, self.memory[name].ptr + start * dtype.itemsize, piece.nbytes, TO_HOST)
            pieces.append(piece)
        return np.concatenate(pieces)


def drawn_stretch(argument: Argument, count: int, size: Size) -> np.ndarray[Any, Any]:
    """Returns elements of an array, by the contract's distribution; else normal values or small integers."""
    rng = np.random.default_rng(7)
    dtype = numpy_dtype(argument.dtype)
    drawn = parse_distribution(argument.distribution) if argument.distribution else None
    name = "normal" if drawn is None else drawn.name
    numbers = [] if drawn is None else [float(evaluate(text, size)) for text in drawn.arguments]
    values: np.ndarray[Any, Any]
    if name in ("zeros", "ones"):
        values = np.full(count, float(name == "ones"))
    elif name == "integers" or (drawn is None and not is_float(dtype)):
        low, high = numbers or (0.0, 8.0)
        values = rng.integers(int(low), int(high), count)
    elif name == "uniform":
        low, high = numbers
        values = rng.uniform(low, high, count)
    else:
        mean, deviation = numbers or (0.0, 1.0)
        values = rng.normal(mean, deviation, count)
    return np.ascontiguousarray(values.astype(dtype))


def output_difference(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> str:
    """Returns the difference between two versions' outputs, in words; empty if rounding explains it."""
    if not is_inexact(got.dtype):
        return "other ones than the first version's" if bool((got != want).any()) else ""
    one, other = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(other)
    if bool((np.isfinite(one) != finite).any()):
        return "NaN or infinite where the first version's are not, or the other way round"
    if not finite.any():
        return ""
    most = float(np.abs(other[finite]).max()) + 1e-6
    off = float(np.abs(one[finite] - other[finite]).max())
    return "" if off <= AGREE * most else f"off by {off:.3g} of {most:.3g}"


class _Runner:
    """One version on the arrays of a `Stage`."""

    def __init__(self, gpu: Gpu, version: Version, size: Size, target: Target, stage: Stage) -> None:
        self.shape: LaunchShape = launch_shape(version.contract, size)
        self.function = gpu.load(version, target).ready(self.shape)
        self.stream = gpu.backend.stream
        scalars = scalar_values(version.contract, size)
        self.arguments = tuple(
            np.uint64(stage.memory[a.name].ptr) if a.shape is not None else numpy_dtype(a.dtype).type(scalars[a.name])
            for a in version.contract.args
        )
        self.graph: Any = None
        self.repeats = 1
        self.look_us = 0.0
        self.rounds: list[float] = []

    def launch(self) -> None:
        self.function(self.shape.grid, self.shape.block, self.arguments, shared_mem=self.shape.shared_bytes)

    def prepare(self, stage: Stage) -> str:
        """Launches once on restored arrays, compares with the first version's outputs, and records a graph for timing.

        It returns the reason of a failure; empty without one.
        """
        import cupy

        stage.restore()
        try:
            self.launch()
        except cupy.cuda.driver.CUDADriverError as error:
            if int(error.status) not in REFUSED:
                raise
            return f"launch-failure: {error}"
        self.stream.synchronize()
        wrong = stage.compared()
        if wrong:
            return wrong
        # A single launch has some microseconds of overhead, which the rounds' graphs do not have.
        once = self._elapsed(self.launch)
        if once > LONGEST_US:
            return f"{NOT_TIMED}: one launch takes {once / 1e3:.0f} ms"
        self.repeats = MOST_REPEATS if once < SHORT_US else max(1, min(MOST_REPEATS, int(ROUND_US / once)))
        self.stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        for _ in range(self.repeats):
            self.launch()
        self.graph = self.stream.end_capture()
        self.look_us = min(self.once() for _ in range(LOOKS if once < ROUND_US else 1))
        return ""

    def once(self) -> float:
        """Returns the microseconds of one launch, from one replay of the graph."""
        return self._elapsed(lambda: self.graph.launch(self.stream)) / self.repeats

    def _elapsed(self, work: Callable[[], object]) -> float:
        import cupy

        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e3


def _fastest(runners: dict[int, _Runner], most: int | None) -> dict[int, _Runner]:
    """Returns the first version and at most `most` others that look fastest and not slower than it."""
    if most is None or not runners:
        return runners
    first, *others = runners
    faster = [place for place in others if runners[place].look_us < runners[first].look_us * SLACK]
    kept = sorted(faster, key=lambda place: runners[place].look_us)[:most]
    return {place: runners[place] for place in (first, *sorted(kept))}


def _in_turns(runners: Mapping[int, _Runner], turns: int) -> dict[int, Rounds]:
    order = list(runners.values())
    for runner in order:
        runner.once()
    for turn in range(turns):
        for runner in order if turn % 2 == 0 else reversed(order):
            runner.rounds.append(runner.once())
    return {place: Rounds(tuple(runner.rounds), runner.repeats) for place, runner in runners.items()}
