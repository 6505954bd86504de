"""Launches of a case: their plan, and their execution."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.backends.base import (
    STOPPING,
    ArrayArgument,
    Backend,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    StageLaunch,
    SupportsArrayComputing,
    SupportsPrefetch,
    UnsupportedInstruction,
    is_small_launch,
)
from kernelmate.backends.cuda.exchange import filled_array as filled_with
from kernelmate.checks.alignment import Shift, shift_text, shifted_together
from kernelmate.checks.argument_values import check_passing, passed_arguments
from kernelmate.checks.canonical import canonical
from kernelmate.checks.inputs import DeviceMaker, draw, only_written
from kernelmate.checks.pipelines import Observe, StageLauncher, loaded
from kernelmate.checks.precision import Array, Arrays, is_inexact, module_of, on_device, words
from kernelmate.checks.styles import NORMAL, InputStyle, narrow_inputs, styles_of
from kernelmate.compiler.ptx_text import own_launches
from kernelmate.errors import ContractError
from kernelmate.records import Contract, Finding, FindingCode, JudgeTask, LaunchShape, Size, Version
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype, scalar_values

FLOAT_POISONS = (0xFF, 0x5A)
"""Fill bytes of floating outputs.

The first gives NaN in every type, so that reads of unwritten elements are noticed. The second gives large numbers.
"""
INTEGER_POISONS = (0xA5, 0x5A)
"""Fill bytes of integer outputs: complementary bit patterns."""

HUNG_FROM = 500_000
HUNG_FACTOR = 1000
"""Factor by which a candidate's instructions per thread may exceed the baseline's before it counts as hung.

The limit is at least `HUNG_FROM`.
"""

HUNG_IN_ALL_FROM = 200_000_000
"""Minimum of the limit on the instructions of all threads together, which is `HUNG_FACTOR` times the number of threads
and the instructions of the baseline's longest one. Many threads that wait in vain would take minutes to their own limit.
"""

HUNG_IN_A_BLOCK = 200_000
"""The same minimum for each block, since the emulator counts small batches of blocks for more than they execute."""

REPEATED_ELEMENTS = 1 << 20
REPEATED_SCHEDULES = range(1001, 1005)
"""Schedules under which listed cases of limited size are launched again on a GPU."""

KEPT_POISON_BYTES = 4 << 20
"""Maximum bytes of an output whose fill bytes are cached."""

CHEAP_ELEMENTS = 1 << 15
"""Maximum number of elements at which listed cases are tried with every style and with misaligned pointers."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One launch: `inputs` numbers a set of inputs drawn in `style`, and `poison` selects the fill byte of outputs.

    `misalign` holds the byte offsets of base pointers.
    """

    inputs: int
    style: InputStyle
    poison: int
    schedule: int
    misalign: Shift = ()

    @property
    def plain(self) -> bool:
        """Returns True for aligned pointers and ordinary inputs, which every version must support."""
        return not self.misalign and not self.style.stress

    def __str__(self) -> str:
        return f"{self.style}, {shift_text(self.misalign)}" if self.misalign else str(self.style)


FIRST, OTHER = 0, 1
"""Numbers of the two sets of ordinary inputs of every case."""

SELECTED = 63
"""Number of the set of unusual inputs at a size that a condition selects."""

SUGGESTED = 64
"""Number of the first set of inputs suggested by a version's code."""


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """Outputs of a launch, with its inputs."""

    shot: PlannedLaunch
    given: Arrays
    result: RunResult

    @property
    def stopped(self) -> bool:
        """Returns True if the launch did not finish, so that its outputs are meaningless."""
        return any(f.severity == "error" and f.code in STOPPING for f in self.result.findings)

    @property
    def errors(self) -> frozenset[str]:
        """Codes of the errors that the backend reported."""
        return frozenset(f.code for f in self.result.findings if f.severity == "error")


def plan(
    contract: Contract,
    elements: int,
    number: int,
    *,
    listed: bool,
    large: bool = False,
    repeated: bool = True,
    alone: bool = False,
    other: InputStyle = NORMAL,
    once: bool = False,
    styled: bool = True,
    shifts: Sequence[Shift] = (),
) -> tuple[PlannedLaunch, ...]:
    """Plan the launches of one case: the same inputs twice with others between, and more launches if they are cheap.

    Generated sizes use the styles in rotation. A large case has one set of inputs, since small cases provide variety.

    Args:
        contract: defines which inputs may be varied.
        elements: number of elements over all arrays of the case.
        number: the number of the case, which varies the schedule.
        listed: True if the contract lists this size.
        large: True if its arrays are too large, or its reference too slow, for many launches.
        repeated: True to launch a large case again, with another poison and schedule.
        alone: True without small cases, so that a large case has other inputs as well.
        other: style of the second set of ordinary inputs of a case that is not large.
        once: True if the size needs only one set of ordinary inputs.
        styled: True to add a launch with one of the other styles.
        shifts: byte offsets of base pointers, each for one launch.
    """
    schedule = 16 * number
    moved = tuple(
        PlannedLaunch(FIRST, NORMAL, 0, schedule + place % 3, misalign=shift) for place, shift in enumerate(shifts)
    )
    if large and listed:
        again = PlannedLaunch(FIRST, NORMAL, 1, schedule + 15)
        second = PlannedLaunch(OTHER, NORMAL, 1, schedule + 1)
        return (
            PlannedLaunch(FIRST, NORMAL, 0, schedule),
            *((second,) if alone else ()),
            *((again,) if repeated else ()),
        )
    shots = [
        PlannedLaunch(FIRST, NORMAL, 0, schedule),
        *(() if once else (PlannedLaunch(OTHER, other, 1, schedule + 1),)),
    ]
    styles = tuple(enumerate(styles_of(contract), start=2))
    if not (listed or once) and elements > CHEAP_ELEMENTS and narrow_inputs(contract):
        # Such a size exists to hold every value of a narrow type; small sizes cover the rest.
        return tuple(PlannedLaunch(i, one, 0, schedule) for i, one in styles if one.name in ("patterns", "integers"))
    if listed and elements <= CHEAP_ELEMENTS:
        shots += [PlannedLaunch(index, style, index % 2, schedule + index) for index, style in styles]
    elif styled and elements <= CHEAP_ELEMENTS and styles:
        index, style = styles[number % len(styles)]
        shots.append(PlannedLaunch(index, style, index % 2, schedule + index))
    if listed:
        shots.append(PlannedLaunch(FIRST, NORMAL, 1, schedule + 15))
    if elements <= CHEAP_ELEMENTS and listed:
        shots.append(PlannedLaunch(FIRST, NORMAL, 0, schedule, misalign=shifted_together(contract)))
    return (*shots, *moved)


class Bench:
    """One version loaded on a backend, and its launches at one size.

    Attributes:
        hung: True if one of its launches did not end.
        observe: of a pipeline, gives what observes a stage of a counted run, by the stage's number; None if nothing does.

    Raises:
        UnsupportedInstruction: the backend cannot run it, or it launches device-side work that cannot be tracked.
    """

    def __init__(self, backend: Backend, task: JudgeTask, version: Version) -> None:
        launching = own_launches(version.texts)
        if launching is not None:
            raise UnsupportedInstruction(Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "error", launching))
        self.version = version
        self._backend, self._task = backend, task
        self._module: Module = loaded(backend, version, task.target)
        self._stages = StageLauncher(version, Path(task.directory))
        self.observe: Callable[[int, Size, PlannedLaunch], Observe] | None = None
        self.hung = False

    @property
    def poisoned(self) -> bool:
        """Returns True if the backend has lost its device, so that further launches say nothing about any kernel."""
        return self._backend.poisoned

    @property
    def over(self) -> bool:
        """Returns True if no further launch will be made.

        This is so if the device is lost, or if a launch hung, since each hang takes a whole time limit.
        """
        return self.poisoned or self.hung

    @property
    def on_hardware(self) -> bool:
        """Returns True if launches run on a GPU, where thread order cannot be controlled."""
        return self._backend.name == "cuda"

    @property
    def module(self) -> Module:
        """Returns the loaded version."""
        return self._module

    def reload(self) -> None:
        """Discards all state that the module keeps."""
        self.foresee(lambda: ())
        self._module = loaded(self._backend, self.version, self._task.target)

    def shape(self, size: Size) -> LaunchShape:
        """Returns the version's own launch shape at a size.

        Raises:
            ContractError: it cannot be launched there.
        """
        check_passing(self.version.contract, size, self.version.compiled)
        return launch_shape(self.version.contract, size)

    def once_more(self, outcome: LaunchOutcome, size: Size, schedule: int) -> LaunchOutcome:
        """Repeats a launch under another schedule; only its outputs are examined."""
        run = self.launch(size, outcome.shot, outcome.given)
        again = self._module.run(replace(run, schedule_seed=schedule, check=False, key=None))
        return self._seen(size, LaunchOutcome(replace(outcome.shot, schedule=schedule), outcome.given, again))

    def run(
        self,
        size: Size,
        shot: PlannedLaunch,
        given: Arrays,
        *,
        count: bool = False,
        others_longest: int | None = None,
        most: int | None = None,
    ) -> LaunchOutcome:
        """Launches once on `given`, with poisoned outputs.

        `others_longest` is the number of instructions of the baseline's longest thread; a thread that executes
        `HUNG_FACTOR` times as many counts as hung. `most` is the number of thread-instructions that the launch may take
        in the emulator, if it is fewer than usual.
        """
        run = self.launch(size, shot, given, count=count, others_longest=others_longest, most=most)
        return self._seen(size, LaunchOutcome(shot, given, self._module.run(run)))

    def _seen(self, size: Size, outcome: LaunchOutcome) -> LaunchOutcome:
        self.hung |= FindingCode.HANG in outcome.errors
        if outcome.stopped:
            return outcome
        arrays = canonical(self.version.contract, size, outcome.result.arrays, outcome.given)
        return replace(outcome, result=replace(outcome.result, arrays=arrays))

    def launch(
        self,
        size: Size,
        shot: PlannedLaunch,
        given: Arrays,
        *,
        count: bool = False,
        others_longest: int | None = None,
        most: int | None = None,
    ) -> Run:
        """Returns the `Run` that `run` launches."""
        contract = self.version.contract
        scalars = scalar_values(contract, size)
        arguments: dict[str, ArrayArgument | ScalarArgument] = {}
        for a in contract.args:
            if a.shape is None:
                value: Any = np.asarray(given.get(a.name, scalars[a.name])).astype(numpy_dtype(a.dtype))[()]
                arguments[a.name] = ScalarArgument(a.name, value)
            else:
                out, here = only_written(a), given[a.name]
                data = poisoned_array(here, shot.poison) if out else here
                moved = dict(shot.misalign).get(a.name, 0) // data.dtype.itemsize
                written = a.direction != "in"
                on = on_device(here)
                arguments[a.name] = ArrayArgument(a.name, data, moved, written, output=out, device=on)
        stages = self._stage_launches(size, shot, arguments, count=count) if contract.stages else ()
        run = Run(
            self.shape(size),
            passed_arguments(contract, size, arguments, self.version.compiled),
            shot.schedule,
            self._task.step_limit,
            count and self._task.count,
            total_limit=min(self._task.instruction_limit, most or self._task.instruction_limit),
            key=(tuple(sorted(size.items())), shot),
            executed=self._task.executed,
            wary=shot.style.wary or bool(shot.style.given) or shot.style.name == "integers",
            # Lanes of a Triton program that hold the same element store it together, at places that Triton chooses.
            replicated=self.version.unit.language == "triton",
            stages=stages,
        )
        if others_longest is None:
            return run
        per_block = max(HUNG_IN_A_BLOCK, HUNG_FACTOR * others_longest * run.shape.threads)
        in_all = max(HUNG_IN_ALL_FROM, per_block * run.shape.blocks)
        run = replace(run, total_limit=min(run.total_limit, in_all))
        limit = max(HUNG_FROM, HUNG_FACTOR * others_longest)
        if limit >= run.step_limit:
            return run
        return replace(run, step_limit=limit, limited_by=f"the baseline's longest takes {others_longest}")

    def _stage_launches(
        self, size: Size, shot: PlannedLaunch, arguments: dict[str, ArrayArgument | ScalarArgument], *, count: bool
    ) -> tuple[StageLaunch, ...]:
        """Returns the launches of a pipeline's stages, and adds its temporaries to the arguments."""
        module = module_of(next((a.data for a in arguments.values() if isinstance(a, ArrayArgument)), None))
        arguments |= self._stages.temporaries(
            size, lambda shape, dtype: poisoned_array(module.empty(shape, dtype), shot.poison)
        )
        observe = self.observe
        observed = None if observe is None or not count else lambda number: observe(number, size, shot)
        return self._stages.launches(size, arguments, observed)

    def seen_first(self, size: Size) -> bool:
        """Returns True if the emulator runs risky inputs at this size before a GPU does.

        The result is False without a launch, for instance if the grid is empty at a size of 0.
        """
        contract = self.version.contract
        shapes = argument_shapes(contract, size)
        held = sum(
            math.prod(shapes[a.name]) * numpy_dtype(a.dtype).itemsize for a in contract.args if a.shape is not None
        )
        try:
            return is_small_launch(self.shape(size), held)
        except ContractError:
            return False

    def foresee(self, launches: Callable[[], Iterable[Run]]) -> None:
        """Announces coming launches to a module that can use that; none of them is made here."""
        if isinstance(self._module, SupportsPrefetch):
            self._module.foresee(launches())


def trusted_backend(backend: Backend) -> Backend:
    """Returns the backend for references and baselines, separate from kernels under judgement if possible."""
    return backend.trusted if isinstance(backend, SupportsArrayComputing) else backend


def bench_of(backend: Backend, task: JudgeTask, version: Version | None) -> Bench | None:
    """Returns a baseline's bench, isolated from candidates; None without a version, or if the backend cannot run it."""
    if version is None:
        return None
    try:
        return Bench(trusted_backend(backend), task, version)
    except UnsupportedInstruction:
        return None


def poison_byte(dtype: np.dtype[Any], poison: int) -> int:
    """Returns the fill byte for outputs of a dtype."""
    if dtype.kind == "b":
        return poison  # any other byte is an invalid value of the type
    return (FLOAT_POISONS if is_inexact(dtype) else INTEGER_POISONS)[poison]


def poisoned_array(array: Array, poison: int) -> Array:
    """Returns a read-only array of the same shape and type, filled with a poison byte."""
    byte = poison_byte(array.dtype, poison)
    if on_device(array):
        return filled_with(byte, array.dtype, array.shape)
    filled = _filled(array.nbytes, byte) if array.nbytes <= KEPT_POISON_BYTES else _fill(array.nbytes, byte)
    return filled.view(array.dtype).reshape(array.shape)


def _fill(size: int, byte: int) -> Array:
    return np.full(size, byte, np.uint8)


@functools.lru_cache(16)
def _filled(size: int, byte: int) -> Array:
    """Returns a cached block of fill bytes.

    Most launches of a verdict need few sizes, and fresh memory is slow to fill.
    """
    filled = _fill(size, byte)
    filled.setflags(write=False)
    return filled


def still_poisoned(array: Array, poison: int) -> Array:
    """Returns the mask of elements that still hold only fill bytes."""
    if array.size == 0:
        return np.zeros(array.shape, bool)
    held = words(array)
    whole = held == int.from_bytes(bytes([poison_byte(array.dtype, poison)]) * held.dtype.itemsize, "little")
    # Reducing along so short an axis is many times slower than testing its only word.
    unchanged: Array = whole[..., 0] if whole.shape[-1] == 1 else whole.all(axis=-1)
    return unchanged


def elements_at(contract: Contract, size: Size) -> int:
    """Returns the number of elements of all arrays at a size; 0 if its shapes cannot be evaluated."""
    try:
        return elements_of(argument_shapes(contract, size).values())
    except ContractError:
        return 0


def elements_of(shapes: Iterable[tuple[int, ...]]) -> int:
    """Returns the number of elements over all arrays."""
    return sum(math.prod(shape) for shape in shapes)


def inputs_for(
    contract: Contract, size: Size, shot: PlannedLaunch, seed: int, directory: Path, device: DeviceMaker | None = None
) -> Arrays:
    """Returns the inputs of a launch: equal for equal seed, size, number, style and `device`.

    Raises:
        ReferenceFailed: the contract's `inputs` function failed.
    """
    numbers = (seed % 2**64, shot.inputs, *(size[name] for name in sorted(size)))
    return draw(contract, size, numbers, shot.style, directory, first=shot.inputs == FIRST, device=device)


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings of severity error."""
    return [f for f in findings if f.severity == "error"]
