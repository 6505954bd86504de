"""Launches of a case: their selection, and making one of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.backends.base import (
    ArrayArgument,
    Backend,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    SupportsArrayComputing,
    SupportsPrefetch,
    UnsupportedInstruction,
    small,
)
from kernelmate.backends.cuda.exchange import filled as filled_with
from kernelmate.checks.alignment import Shift, shift_text, together
from kernelmate.checks.guards import own_launches
from kernelmate.checks.inputs import DeviceMaker, draw
from kernelmate.checks.precision import Array, Arrays, is_inexact, on_device, words
from kernelmate.checks.styles import NORMAL, InputStyle, narrow_inputs, styles_of
from kernelmate.records import Contract, Finding, FindingCode, JudgeTask, LaunchShape, Size, Version
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype, scalar_values

FLOAT_POISONS = (0xFF, 0x5A)
"""Bytes that floating outputs are filled with: NaN in every type, so that reading it shows; and large numbers."""
INTEGER_POISONS = (0xA5, 0x5A)
"""Bytes that integer outputs are filled with: each has the bits that the other lacks."""

HUNG_FROM = 500_000
HUNG_FACTOR = 1000
"""Instructions of one thread beyond which a candidate hangs: so many times the baseline's, and at least so many."""

REPEATED_ELEMENTS = 1 << 20
REPEATED_SCHEDULES = range(1001, 1005)
"""On a GPU, listed cases with at most so many array elements are launched again under each of these schedules."""

KEPT_POISON_BYTES = 4 << 20
"""Outputs of at most so many bytes share the bytes that they are filled with."""

CHEAP_ELEMENTS = 1 << 15
"""Listed cases with at most this many array elements are tried with every style, and off alignment."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One launch: `inputs` numbers a set of inputs, drawn in `style`; `poison` numbers a pattern of the outputs.

    `misalign` moves base pointers.
    """

    inputs: int
    style: InputStyle
    poison: int
    schedule: int
    misalign: Shift = ()

    @property
    def plain(self) -> bool:
        """Aligned, with inputs as ordinary as the contract allows: what every version must bear."""
        return not self.misalign and not self.style.stress

    def __str__(self) -> str:
        return f"{self.style}, {shift_text(self.misalign)}" if self.misalign else str(self.style)


FIRST, OTHER = 0, 1
"""The two sets of ordinary inputs that every case has."""


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """Outputs of a launch, with its inputs."""

    shot: PlannedLaunch
    given: Arrays
    result: RunResult

    @property
    def stopped(self) -> bool:
        """The launch did not run to its end, so its outputs say nothing."""
        return any(f.severity == "error" and f.code in STOPPING for f in self.result.findings)

    @property
    def errors(self) -> frozenset[str]:
        """Codes of the errors that the backend saw."""
        return frozenset(f.code for f in self.result.findings if f.severity == "error")


STOPPING = frozenset(
    {
        FindingCode.HANG,
        FindingCode.TRAP,
        FindingCode.ILLEGAL_ADDRESS,
        FindingCode.LAUNCH_FAILURE,
        FindingCode.OUT_OF_MEMORY,
        FindingCode.DIVERGENT_BARRIER,
        FindingCode.UNSUPPORTED_INSTRUCTION,
    }
)


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
    """The launches of one case: the same inputs twice with others between, and more where they cost little.

    Sizes of our own, of which there are several, take turns with the styles. A large case has one set of inputs: variety
    is for small ones.

    Args:
        contract: says which inputs may be varied.
        elements: over all arrays of the case.
        number: of the case, which varies the schedule.
        listed: the contract names this size.
        large: its arrays or its reference are too large for many launches.
        repeated: launch a large case a second time, over another poison and in another order.
        alone: there is no small case, so that a large one has other inputs as well.
        other: how the second set of ordinary inputs of a case that is not large is drawn.
        once: the size needs one set of ordinary inputs only.
        styled: it has one of the other styles as well.
        shifts: base pointers are moved so, in a launch each.
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
        # Such a size is there to hold every value of a narrow type; the small ones ask the rest.
        return tuple(PlannedLaunch(i, one, 0, schedule) for i, one in styles if one.name in ("patterns", "integers"))
    if listed and elements <= CHEAP_ELEMENTS:
        shots += [PlannedLaunch(index, style, index % 2, schedule + index) for index, style in styles]
    elif styled and elements <= CHEAP_ELEMENTS and styles:
        index, style = styles[number % len(styles)]
        shots.append(PlannedLaunch(index, style, index % 2, schedule + index))
    if listed:
        shots.append(PlannedLaunch(FIRST, NORMAL, 1, schedule + 15))
    if elements <= CHEAP_ELEMENTS and listed:
        shots.append(PlannedLaunch(FIRST, NORMAL, 0, schedule, misalign=together(contract)))
    return (*shots, *moved)


class Bench:
    """One version loaded on a backend, and its launches at one size.

    Attributes:
        hung: one of its launches did not end.

    Raises:
        UnsupportedInstruction: the backend cannot run it, or it would launch work that nothing here could follow.
    """

    def __init__(self, backend: Backend, task: JudgeTask, version: Version) -> None:
        launching = own_launches.find(version.compiled.ptx)
        if launching is not None:
            raise UnsupportedInstruction(Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "error", launching))
        self.version = version
        self._backend, self._task = backend, task
        self._module: Module = backend.load(version.compiled, task.target)
        self.hung = False

    @property
    def poisoned(self) -> bool:
        """The backend has lost its device, so that further launches say nothing of any kernel."""
        return self._backend.poisoned

    @property
    def over(self) -> bool:
        """No further launch is to be made: the device is lost, or one hung, and each hang takes a whole time limit."""
        return self.poisoned or self.hung

    @property
    def on_hardware(self) -> bool:
        """Launches run on a GPU, where the order of threads is nobody's choice."""
        return self._backend.name == "cuda"

    @property
    def module(self) -> Module:
        """The version, loaded."""
        return self._module

    def reload(self) -> None:
        """Forget whatever the module remembers."""
        self.foresee(lambda: ())
        self._module = self._backend.load(self.version.compiled, self._task.target)

    def shape(self, size: Size) -> LaunchShape:
        """The version's own launch at a size.

        Raises:
            ContractError: it cannot be launched there.
        """
        return launch_shape(self.version.contract, size)

    def once_more(self, outcome: LaunchOutcome, size: Size, schedule: int) -> LaunchOutcome:
        """A launch that was made, made again under another schedule; nothing is looked for but its outputs."""
        run = self.launch(size, outcome.shot, outcome.given)
        again = self._module.run(replace(run, schedule_seed=schedule, check=False, key=None))
        return self._seen(LaunchOutcome(replace(outcome.shot, schedule=schedule), outcome.given, again))

    def run(
        self, size: Size, shot: PlannedLaunch, given: Arrays, *, count: bool = False, others_longest: int | None = None
    ) -> LaunchOutcome:
        """Launch once on `given`; outputs are poisoned first.

        `others_longest` are the instructions of the longest thread of the version it is compared with: a thread that
        takes `HUNG_FACTOR` times as many counts as hung.
        """
        run = self.launch(size, shot, given, count=count, others_longest=others_longest)
        return self._seen(LaunchOutcome(shot, given, self._module.run(run)))

    def _seen(self, outcome: LaunchOutcome) -> LaunchOutcome:
        self.hung |= FindingCode.HANG in outcome.errors
        return outcome

    def launch(
        self, size: Size, shot: PlannedLaunch, given: Arrays, *, count: bool = False, others_longest: int | None = None
    ) -> Run:
        """The launch that `run` makes."""
        contract = self.version.contract
        scalars = scalar_values(contract, size)
        arguments: list[ArrayArgument | ScalarArgument] = []
        for a in contract.args:
            if a.shape is None:
                value: Any = np.asarray(given.get(a.name, scalars[a.name])).astype(numpy_dtype(a.dtype))[()]
                arguments.append(ScalarArgument(a.name, value))
            else:
                out, here = a.direction == "out", given[a.name]
                data = poisoned(here, shot.poison) if out else here
                moved = dict(shot.misalign).get(a.name, 0) // data.dtype.itemsize
                written = a.direction != "in"
                arguments.append(ArrayArgument(a.name, data, moved, written, output=out, device=on_device(here)))
        run = Run(
            self.shape(size),
            tuple(arguments),
            shot.schedule,
            self._task.step_limit,
            count and self._task.count,
            total_limit=self._task.instruction_limit,
            key=(tuple(sorted(size.items())), shot),
            executed=self._task.executed,
            wary=shot.style.name == "integers",
        )
        limit = run.step_limit if others_longest is None else max(HUNG_FROM, HUNG_FACTOR * others_longest)
        if limit >= run.step_limit:
            return run
        return replace(run, step_limit=limit, limited_by=f"the baseline's longest takes {others_longest}")

    def seen_first(self, size: Size) -> bool:
        """The emulator makes launches of wary inputs at this size, before a GPU does."""
        contract = self.version.contract
        shapes = argument_shapes(contract, size)
        held = sum(
            math.prod(shapes[a.name]) * numpy_dtype(a.dtype).itemsize for a in contract.args if a.shape is not None
        )
        return small(self.shape(size), held)

    def foresee(self, launches: Callable[[], Iterable[Run]]) -> None:
        """Tell a module that gains by it which launches will come; none of them is made."""
        if isinstance(self._module, SupportsPrefetch):
            self._module.foresee(launches())


def trusted(backend: Backend) -> Backend:
    """The backend for references and baselines, apart from kernels under judgement where there is such a place."""
    return backend.trusted if isinstance(backend, SupportsArrayComputing) else backend


def bench_of(backend: Backend, task: JudgeTask, version: Version | None) -> Bench | None:
    """A baseline's bench, out of the reach of candidates; None where there is no version, or the backend cannot run it."""
    if version is None:
        return None
    try:
        return Bench(trusted(backend), task, version)
    except UnsupportedInstruction:
        return None


def poison_byte(dtype: np.dtype[Any], poison: int) -> int:
    """The byte that outputs of a dtype are filled with."""
    if dtype.kind == "b":
        return poison  # any other byte is no value of the type
    return (FLOAT_POISONS if is_inexact(dtype) else INTEGER_POISONS)[poison]


def poisoned(array: Array, poison: int) -> Array:
    """An array of the same kind, every byte of it a poison's; not to be written to."""
    byte = poison_byte(array.dtype, poison)
    if on_device(array):
        return filled_with(byte, array.dtype, array.shape)
    filled = _filled(array.nbytes, byte) if array.nbytes <= KEPT_POISON_BYTES else _fill(array.nbytes, byte)
    return filled.view(array.dtype).reshape(array.shape)


def _fill(size: int, byte: int) -> Array:
    return np.full(size, byte, np.uint8)


@functools.lru_cache(16)
def _filled(size: int, byte: int) -> Array:
    """So many bytes of a poison: most launches of a verdict are of a few sizes, and fresh memory is slow to fill."""
    filled = _fill(size, byte)
    filled.setflags(write=False)
    return filled


def still_poisoned(array: Array, poison: int) -> Array:
    """Mask of the elements that still hold all of the poison's bytes."""
    if array.size == 0:
        return np.zeros(array.shape, bool)
    held = words(array)
    whole = held == int.from_bytes(bytes([poison_byte(array.dtype, poison)]) * held.dtype.itemsize, "little")
    # Along so short an axis a reduction takes many times what looking at its only word does.
    unchanged: Array = whole[..., 0] if whole.shape[-1] == 1 else whole.all(axis=-1)
    return unchanged


def elements_of(shapes: Iterable[tuple[int, ...]]) -> int:
    """Elements over all arrays."""
    return sum(math.prod(shape) for shape in shapes)


def inputs_for(
    contract: Contract, size: Size, shot: PlannedLaunch, seed: int, directory: Path, device: DeviceMaker | None = None
) -> Arrays:
    """The inputs that a shot names: equal for equal seed, size, number and style, and equal `device`.

    Raises:
        ReferenceFailed: the contract's own inputs cannot be had.
    """
    numbers = (seed % 2**64, shot.inputs, *(size[name] for name in sorted(size)))
    return draw(contract, size, numbers, shot.style, directory, first=shot.inputs == FIRST, device=device)


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those of severity error."""
    return [f for f in findings if f.severity == "error"]
