"""Generated kernels on a GPU: run once between guard bands, and timed in turns as replays of graphs of launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.cuda.backend import CudaBackend, CudaModule
from kernelmate.backends.cuda.loading import load_failure, load_function
from kernelmate.checks.kinds import is_float
from kernelmate.records import LaunchShape, Size, Target, Version
from kernelmate.source import argument_shapes, evaluate, launch_shape, numpy_dtype, parse_distribution, scalar_values
from kernelmate.upskill.corpus.judging import Judged, Rounds

ROUNDS = 7
"""Turns in which all versions are timed; the lowest and the highest of their ratios hold the median at 98 % (sign test)."""

ROUND_US = 150.0
"""Microseconds that the launches of one version take in one turn, about."""

MOST_REPEATS = 40
LONGEST_US = 60_000.0
"""A version that takes longer for one launch is not timed."""

AGREE = 0.02
"""How far outputs at the large size may be apart, of the largest value: rounding is far below, work left out far above."""

MEMORY_LIMIT = 3 << 30
"""Bytes of the GPU's memory that one worker may take."""


class Gpu:
    """One GPU, for one worker.

    Args:
        device: its number.
    """

    def __init__(self, device: int) -> None:
        self.backend = CudaBackend(device, MEMORY_LIMIT)
        self.name = self.backend.gpu.name

    @property
    def lost(self) -> bool:
        """An error has cost the context: the process has to go."""
        return self.backend.poisoned

    def load(self, version: Version, target: Target) -> CudaModule:
        """A version on the GPU, without the emulator beside it."""
        import cupy

        try:
            with self.backend.device:
                return CudaModule(self.backend, version.compiled, target, load_function(version.compiled), None)
        except cupy.cuda.driver.CUDADriverError as error:
            raise UnsupportedInstruction(load_failure(version.compiled, int(error.status), str(error))) from None

    def time(self, judged: Sequence[Judged], large: Size, target: Target) -> dict[int, Rounds | str]:
        """Right versions of one problem in turns, by place in `judged`; for those that went wrong, what did.

        Args:
            judged: the versions; those that are not right are left out.
            large: the size at which they are timed.
            target: of the GPU.
        """
        import cupy

        versions = {k: one.version for k, one in enumerate(judged) if one.right and one.version is not None}
        if not versions:
            return {}
        results: dict[int, Rounds | str] = {}
        runners: dict[int, _Runner] = {}
        with self.backend.device, self.backend.stream:
            try:
                with self.backend.turns.shared():
                    stage = Stage(next(iter(versions.values())), large)
                    for place, version in versions.items():
                        runner = _Runner(self, version, large, target, stage)
                        wrong = runner.prepare(stage)
                        if wrong:
                            results[place] = wrong
                        else:
                            runners[place] = runner
                with self.backend.turns.alone():
                    results.update(_in_turns(runners))
            except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
                self.backend.poisoned = True
                return {place: f"launch-failure at {dict(large)}: {error}" for place in versions}
        return results


class Stage:
    """Arrays of a large size in the GPU's memory, drawn there, with the first version's outputs to hold others to."""

    def __init__(self, version: Version, size: Size) -> None:
        import cupy

        contract = version.contract
        self.size = size
        self.shapes = argument_shapes(contract, size)
        generator = cupy.random.default_rng(7)
        self.arrays: dict[str, Any] = {}
        for argument in contract.args:
            if argument.shape is None:
                continue
            self.arrays[argument.name] = _drawn(generator, argument, self.shapes[argument.name], size)
        self.written = [a.name for a in contract.args if a.direction in ("out", "inout")]
        self.saved = {a.name: self.arrays[a.name].copy() for a in contract.args if a.direction == "inout"}
        self.dtypes = {a.name: a.dtype for a in contract.args}
        self.want: dict[str, Any] | None = None

    def restore(self) -> None:
        """Arrays that are updated in place get their contents back."""
        for name, array in self.saved.items():
            self.arrays[name][...] = array

    def compared(self) -> str:
        """What differs from the first version's outputs, in words."""
        import cupy

        got = {name: _readable(self.arrays[name], self.dtypes[name]).copy() for name in self.written}
        if self.want is None:
            self.want = got
            return ""
        for name, array in got.items():
            want = self.want[name]
            if array.dtype.kind in "iub":
                if bool((array != want).any()):
                    return f"wrong values of {name} at {dict(self.size)}: other ones than the first version's"
                continue
            finite = cupy.isfinite(want)
            most = float(cupy.abs(cupy.where(finite, want, 0)).max()) + 1e-6
            off = float(cupy.abs(cupy.where(finite, array - want, 0)).max())
            if not off <= AGREE * most or bool((cupy.isfinite(array) != finite).any()):
                return f"wrong values of {name} at {dict(self.size)}: off by {off:.3g} of {most:.3g}"
        return ""


def _drawn(generator: Any, argument: Any, shape: tuple[int, ...], size: Size) -> Any:
    """An array's contents, drawn on the GPU by the contract's distribution, else normal."""
    import cupy

    dtype = numpy_dtype(argument.dtype)
    if argument.direction == "out":
        return cupy.zeros(shape, cupy.uint16 if argument.dtype == "bfloat16" else dtype)
    drawn = parse_distribution(argument.distribution) if argument.distribution else None
    name = "normal" if drawn is None else drawn.name
    numbers = [] if drawn is None else [float(evaluate(text, size)) for text in drawn.arguments]
    if name in ("zeros", "ones"):
        values = cupy.full(shape, float(name == "ones"), cupy.float32)
    elif name == "integers" or (drawn is None and not is_float(dtype)):
        low, high = numbers or (0.0, 8.0)
        values = generator.integers(int(low), int(high), shape)
    elif name == "uniform":
        low, high = numbers
        values = generator.random(shape, dtype=cupy.float32) * (high - low) + low
    else:
        mean, deviation = numbers or (0.0, 1.0)
        values = generator.standard_normal(shape, dtype=cupy.float32) * deviation + mean
    if argument.dtype == "bfloat16":
        return (values.astype(cupy.float32).view(cupy.uint32) >> 16).astype(cupy.uint16)
    return values.astype(dtype)


def _readable(array: Any, dtype: str) -> Any:
    import cupy

    if dtype == "bfloat16":
        return (array.astype(cupy.uint32) << 16).view(cupy.float32)
    return array.astype(cupy.float32) if dtype == "float16" else array


class _Runner:
    """One version on the stage's arrays."""

    def __init__(self, gpu: Gpu, version: Version, size: Size, target: Target, stage: Stage) -> None:
        self.shape: LaunchShape = launch_shape(version.contract, size)
        self.function = gpu.load(version, target).ready(self.shape)
        self.stream = gpu.backend.stream
        scalars = scalar_values(version.contract, size)
        self.arguments = tuple(
            stage.arrays[a.name] if a.shape is not None else numpy_dtype(a.dtype).type(scalars[a.name])
            for a in version.contract.args
        )
        self.graph: Any = None
        self.repeats = 1
        self.rounds: list[float] = []

    def launch(self) -> None:
        self.function(self.shape.grid, self.shape.block, self.arguments, shared_mem=self.shape.shared_bytes)

    def prepare(self, stage: Stage) -> str:
        """One launch from fresh contents, held against the first version's; then a graph of launches for timing."""
        stage.restore()
        self.launch()
        self.stream.synchronize()
        wrong = stage.compared()
        if wrong:
            return wrong
        once = self._elapsed(self.launch)
        if once > LONGEST_US:
            return f"not timed: one launch takes {once / 1e3:.0f} ms"
        self.repeats = max(2, min(MOST_REPEATS, int(ROUND_US / max(once, 1.0))))
        self.stream.begin_capture()
        for _ in range(self.repeats):
            self.launch()
        self.graph = self.stream.end_capture()
        return ""

    def once(self) -> float:
        """Microseconds of one launch among the graph's."""
        return self._elapsed(lambda: self.graph.launch(self.stream)) / self.repeats

    def _elapsed(self, work: Callable[[], object]) -> float:
        import cupy

        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e3


def _in_turns(runners: Mapping[int, _Runner]) -> dict[int, Rounds]:
    order = list(runners.values())
    for runner in order:
        runner.once()
    for turn in range(ROUNDS):
        for runner in order if turn % 2 == 0 else reversed(order):
            runner.rounds.append(runner.once())
    return {place: Rounds(tuple(runner.rounds), runner.repeats) for place, runner in runners.items()}
