"""Expected outputs and their tolerances for one set of inputs, and the baseline's errors on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from kernelmate.backends.base import SupportsArrayComputing
from kernelmate.checks.answers import (
    ANSWERS,
    BASELINES,
    INPUTS,
    BaselineOutputs,
    ExpectedOutputs,
    forget_device,
    near_ties,
    nearly_met,
    thorough,
    with_ties,
)
from kernelmate.checks.binding import binding
from kernelmate.checks.compare import Difference, absolute_error
from kernelmate.checks.evaluations import Expected, ObservedReference, Reference
from kernelmate.checks.extrapolation import carried
from kernelmate.checks.guards import lost_nan
from kernelmate.checks.inputs import DeviceRandom
from kernelmate.checks.laws import (
    DEVICE_ELEMENTS,
    LARGE_ELEMENTS,
    LONG_S,
    MEDIUM_ELEMENTS,
    ReferenceFacts,
    elements_at,
    kept,
    learn,
    seconds_of,
)
from kernelmate.checks.placing import ReferenceUnavailable, on_device_or_host, on_host_again, refuse_long
from kernelmate.checks.precision import Array, Arrays, is_inexact, on_device, wide
from kernelmate.checks.reference import kernel_reference, python_reference
from kernelmate.checks.styles import InputStyle
from kernelmate.checks.tolerances import BASELINE_FACTOR, derive, loosened, rounded_outputs, stated
from kernelmate.checks.trials import Bench, LaunchOutcome, PlannedLaunch, inputs_for
from kernelmate.checks.userfiles import content, stamp
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, JudgeTask, Size, Version
from kernelmate.source import numpy_dtype

Progress = Callable[[str, int, int], None]

REFERENCE_STAGE = "reference"
"""The progress stage in which the user's Python runs; the worker's client holds it to a time limit of its own."""

CASES_STAGE = "cases"
"""The stage in which kernels run."""

GUARDS_STAGE = "guards"
"""The stage in which what they gave is looked at for false rightness; some guards make launches of their own."""

SEED_OF_LAWS = 0x1A37
"""Of the inputs and moves from which is learnt what does not depend on a verdict's own seed."""

LOOSENING_FROM = 1 / BASELINE_FACTOR
"""A baseline whose largest error is below this part of the tolerance widens it nowhere."""


_LEARNT: dict[Hashable, ReferenceFacts] = {}
"""Facts measured at small sizes, by contract, reference and size."""
_SECONDS: dict[Hashable, float] = {}
"""About how long an evaluation of a reference takes on the host, by size."""


class Oracle:
    """Knows the right answers of one task.

    Answers come from the contract's Python reference, else from its reference kernel, else from the baseline.

    Attributes:
        independent: there is a reference apart from the baseline.
        known: there is anything to compare with at all.
        directory: that the contract's files are relative to.
        lacking: why the reference's answer is not to be had, by size.

    Raises:
        ReferenceFailed: the reference cannot be loaded.
    """

    def __init__(
        self, task: JudgeTask, baseline: Bench | None, kernel: Bench | None, tell: Progress,
        device: SupportsArrayComputing | None = None,
    ) -> None:  # fmt: skip
        self.contract: Contract = (task.baseline or task.candidate).contract
        self._task, self._baseline, self._kernel = task, baseline, kernel
        self.directory = Path(task.directory)
        self._tell = tell
        # Taken before the reference is loaded: what is computed by an older file is never kept as a newer one's.
        self._context = self._context_of_answers()
        tell(REFERENCE_STAGE, 0, 1)
        self._python = None if kernel is not None else python_reference(self.contract, self.directory)
        self.independent = self._python is not None or kernel is not None
        self.known = self.independent or baseline is not None
        self._device = device
        self.lacking: dict[tuple[tuple[str, int], ...], str] = {}

    @property
    def context(self) -> Hashable:
        """All that answers hang on besides inputs and the seed."""
        return self._context[:-1]

    @property
    def judge_of_inputs(self) -> Version | None:
        """The baseline: inputs that it does not bear say nothing of a candidate."""
        return None if self._baseline is None else self._baseline.version

    def enter(self, stage: str) -> None:
        """Tell of a stage."""
        self._tell(stage, 0, 1)

    def theirs(self, size: Size, shot: PlannedLaunch, given: Arrays) -> BaselineOutputs | None:
        """The baseline's outputs for a launch; None without a baseline."""
        baseline = self._baseline
        if baseline is None:
            return None

        def make() -> BaselineOutputs:
            return self._made_of(baseline.run(size, shot, given), size, shot, given, baseline.version.compiled.ptx)

        return BASELINES.get(self._of_version(baseline, size, shot), make)

    def known_longest(self, size: Size, shot: PlannedLaunch) -> int | None:
        """Instructions of the longest thread of the baseline's launch; None where that was not made yet, or not counted."""
        if self._baseline is None:
            return None
        known = BASELINES.known(self._of_version(self._baseline, size, shot))
        return None if known is None else known.longest_thread

    def learn(self, bench: Bench, size: Size, shot: PlannedLaunch, outcome: LaunchOutcome) -> BaselineOutputs:
        """Remember a launch of a version judged by itself: candidates of it will ask what it made of that launch."""
        key = self._of_version(bench, size, shot)
        ptx = bench.version.compiled.ptx
        return BASELINES.get(key, lambda: self._made_of(outcome, size, shot, outcome.given, ptx))

    def _of_version(self, bench: Bench, size: Size, shot: PlannedLaunch) -> Hashable:
        compiled = bench.version.compiled
        return (self._key(size, shot), shot, compiled.binary, compiled.lowered_name)

    def answer(
        self, size: Size, shot: PlannedLaunch, given: Arrays, theirs: BaselineOutputs | None
    ) -> ExpectedOutputs | None:
        """The wanted outputs, with tolerances that the baseline's own error has widened within bounds.

        None where nothing says what is right: without a reference, a baseline that failed here says nothing.

        Raises:
            ReferenceFailed: the reference raised or gave something else than the contract says.
        """
        if self.independent:
            answer = self._known_answer(size, shot, given)
            if answer is not None and theirs is not None and theirs.off:
                allowed = replace(answer.allowed, error=loosened(answer.allowed.error, theirs.off))
                return replace(answer, allowed=allowed)
            if answer is not None:
                return answer
        if theirs is None or theirs.errors or self._baseline is None:
            return None
        return self._from_baseline(self._baseline, size, shot, given, theirs)

    def measured_again(
        self,
        size: Size,
        shot: PlannedLaunch,
        given: Arrays,
        found: Mapping[str, Difference],
        outputs: Mapping[str, Array],
    ) -> bool:
        """Measure tolerances and ties more closely where outputs are a little beyond them; True once that is done."""
        answer = ANSWERS.known(self._key(size, shot)) if self._python is not None and self._kernel is None else None
        if answer is None or answer.against == "baseline":
            return False
        close, whole = nearly_met(answer, found, outputs), near_ties(answer, found, outputs)
        more = answer
        if close or whole:
            seconds = 0.0 if self._on_device(size) else self.seconds_of(size)
            with self._evaluating(size, given) as reference:
                task = self.contract, reference, given, size
                more = thorough(answer, task, self._seed(shot), seconds) if close else more
                more = with_ties(more, task, self._seed(shot), seconds) if whole else more
        if more is not answer:
            ANSWERS.replace(self._key(size, shot), more)
        wrong = [name for name, one in found.items() if not one.right]
        return any(more.again if is_inexact(outputs[name].dtype) else name in more.ties for name in wrong)

    def _seed(self, shot: PlannedLaunch) -> tuple[int, int]:
        return self._task.seed % 2**64, shot.inputs

    @contextmanager
    def _evaluating(self, size: Size, given: Arrays) -> Iterator[Reference]:
        """The Python reference, at a large size where it is evaluated best."""
        assert self._python is not None
        reference = ObservedReference(self._python, lambda: self._tell(REFERENCE_STAGE, 0, 1))
        if self._device is None or not self.large(size):
            yield reference
            return
        with self._device.computing():
            yield self._placed(reference, size, given, exact=True)

    def inputs(self, size: Size, shot: PlannedLaunch) -> Arrays:
        """The inputs that a shot names; not to be written to.

        Raises:
            ReferenceFailed: the contract's own inputs cannot be had.
        """
        return INPUTS.get(self._key(size, shot), lambda: self._draw(size, shot))

    def _draw(self, size: Size, shot: PlannedLaunch) -> Arrays:
        if self.contract.inputs is not None:
            self._tell(REFERENCE_STAGE, 0, 1)
        given = self._drawn_on_device(size, shot) if self._on_device(size) else None
        if given is None:
            given = inputs_for(self.contract, size, shot, self._task.seed, self.directory)
            for array in given.values():
                array.setflags(write=False)
        if self.contract.inputs is not None:
            self._tell(CASES_STAGE, 0, 1)
        return given

    def _drawn_on_device(self, size: Size, shot: PlannedLaunch) -> Arrays | None:
        """Inputs in the GPU's memory; None where there is no room for them."""
        assert self._device is not None
        with self._device.computing() as cupy:
            maker = partial(DeviceRandom, cupy)
            for _ in range(2):
                try:
                    drawn = inputs_for(self.contract, size, shot, self._task.seed, self.directory, maker)
                    return {name: cupy.asarray(array) for name, array in drawn.items()}
                except MemoryError:
                    forget_device(cupy)
        return None

    def _context_of_answers(self) -> tuple[Hashable, ...]:
        """All that inputs and answers hang on besides the size and the shot."""
        kernel = None if self._kernel is None else self._kernel.version.compiled.binary
        files = stamp(self.contract.reference, self.directory), stamp(self.contract.inputs, self.directory)
        # How it is launched, and where its block stands, makes no difference to what is right.
        contract = replace(self.contract, grid=(), block=(), shared="", require=(), options=(), line=None)
        return (repr(contract), self._task.backend, self._task.target.arch, str(self.directory), files, kernel,
                self._task.seed)  # fmt: skip

    def _key(self, size: Size, shot: PlannedLaunch) -> Hashable:
        return self._context, tuple(sorted(size.items())), shot.inputs, shot.style

    def large(self, size: Size) -> bool:
        """True for a size of so many elements, or so long a reference, that it is evaluated twice and not twenty times."""
        return elements_at(self.contract, size) > LARGE_ELEMENTS or self._long(size)

    def _long(self, size: Size) -> bool:
        """True where an evaluation of the reference takes long; not asked where the number of elements decides anyway."""
        elements = elements_at(self.contract, size)
        if self._python is None or not MEDIUM_ELEMENTS < elements <= DEVICE_ELEMENTS:
            return False
        return self.seconds_of(size) > LONG_S

    def seconds_of(self, size: Size) -> float:
        """About how long an evaluation of a Python reference takes on the host; 0 where that cannot be told."""
        if self._python is None:
            return 0.0
        key = (self._context[:-1], tuple(sorted(size.items())))
        if key not in _SECONDS:
            try:
                _SECONDS[key] = seconds_of(self.contract, self._python, size, self._draw_small)
            except ReferenceFailed:
                return 0.0
        return _SECONDS[key]

    def _draw_small(self, size: Size, number: int, style: InputStyle) -> Arrays:
        """Inputs on the host that depend on no verdict's seed."""
        return inputs_for(self.contract, size, PlannedLaunch(number, style, 0, 0), SEED_OF_LAWS, self.directory)

    def _on_device(self, size: Size) -> bool:
        """True where inputs and answers of a size are computed on the GPU: many elements, of types that CuPy has."""
        kinds = (numpy_dtype(a.dtype).kind for a in self.contract.args)
        if self._device is None or any(kind not in "biufc" for kind in kinds):
            return False
        return elements_at(self.contract, size) > DEVICE_ELEMENTS or self._long(size)

    def _known_answer(self, size: Size, shot: PlannedLaunch, given: Arrays) -> ExpectedOutputs | None:
        """The reference's answer; None where it is not to be had at this size."""
        key = tuple(sorted(size.items()))
        if key in self.lacking:
            return None
        try:
            return self._referenced(size, shot, given)
        except ReferenceUnavailable as error:
            self.lacking[key] = str(error)
            return None

    def _referenced(self, size: Size, shot: PlannedLaunch, given: Arrays) -> ExpectedOutputs:
        """The reference's answer.

        Raises:
            NotHad: it would take too long or too much memory at this size.
        """
        kernel = self._kernel
        reference = self._python if kernel is None else kernel_reference(self.contract, kernel, shot)
        assert reference is not None
        told = (
            reference if kernel is not None else ObservedReference(reference, lambda: self._tell(REFERENCE_STAGE, 0, 1))
        )
        return ANSWERS.get(self._key(size, shot), lambda: self._ask(told, size, shot, given, exact=kernel is None))

    def _from_baseline(
        self, baseline: Bench, size: Size, shot: PlannedLaunch, given: Arrays, theirs: BaselineOutputs
    ) -> ExpectedOutputs:
        """The baseline's own outputs as the wanted ones."""
        want = {name: wide(array) for name, array in theirs.outputs.items()}
        reference = kernel_reference(self.contract, baseline, shot)
        key = (self._key(size, shot), "baseline", shot, baseline.version.compiled.binary)
        whose = baseline.version.compiled.binary or ""
        return ANSWERS.get(
            key, lambda: replace(self._held(reference, whose, size, shot, given, want, exact=False), against="baseline")
        )

    def _ask(
        self, reference: Reference, size: Size, shot: PlannedLaunch, given: Arrays, *, exact: bool
    ) -> ExpectedOutputs:
        if not self.large(size) or self._device is None:
            answer = self._held(reference, "", size, shot, given, reference(given, size), exact=exact)
        else:
            with self._device.computing():
                placed = self._placed(reference, size, given, exact=exact)
                answer = self._held(placed, "", size, shot, given, placed(given, size), exact=exact)
        self._tell(CASES_STAGE, 0, 1)
        return answer

    def _held(
        self,
        reference: Reference,
        whose: str,
        size: Size,
        shot: PlannedLaunch,
        given: Arrays,
        want: Expected,
        *,
        exact: bool,
    ) -> ExpectedOutputs:
        """The wanted outputs with their tolerance: the contract's, derived, or at large sizes carried from small ones."""
        contract, seed = self.contract, (self._task.seed % 2**64, shot.inputs)
        if contract.tolerance is not None or not rounded_outputs(contract, want):
            return ExpectedOutputs(
                want, stated(contract, want), "derived" if contract.tolerance is None else "contract"
            )
        if not self.large(size):
            return ExpectedOutputs(want, derive(contract, reference, given, size, want, seed, exact=exact))
        law = self._learnt(reference, whose, size, exact=exact).law
        return ExpectedOutputs(want, carried(contract, law, reference, given, size, want, seed, exact=exact), "carried")

    def _learnt(self, reference: Reference, whose: str, size: Size, *, exact: bool) -> ReferenceFacts:
        """Facts about a reference from small sizes, measured once; `whose` is the kernel where the reference is one."""
        key = (self._context[:-1], tuple(sorted(size.items())), whose, exact)
        if key not in _LEARNT:
            if exact:
                self._tell(REFERENCE_STAGE, 0, 1)

            files = [content(where, self.directory) for where in (self.contract.reference, self.contract.inputs)]
            by = None if self._kernel is None else self._kernel.version.compiled.binary
            lasting = (self._context[0], by, files, key[1:], self._on_device(size))
            _LEARNT[key] = kept(lasting, lambda: self._learn(reference, size, exact=exact))
        return _LEARNT[key]

    def _learn(self, reference: Reference, size: Size, *, exact: bool) -> ReferenceFacts:
        if not (self._on_device(size) and exact):
            return learn(self.contract, reference, size, self._draw_small, SEED_OF_LAWS, exact=exact)
        assert self._device is not None
        with self._device.computing() as cupy:
            return learn(
                self.contract, reference, size, self._draw_small, SEED_OF_LAWS, exact=exact, to_device=cupy.asarray
            )

    def _placed(self, reference: Reference, size: Size, given: Arrays, *, exact: bool) -> Reference:
        """The reference where it is evaluated at a large size: on the GPU, else on the host where there is time for it.

        Raises:
            NotHad: there is not.
        """
        learnt = self._learnt(reference, "", size, exact=exact)
        if not exact or (learnt.device and any(on_device(array) for array in given.values())):
            return partial(on_device_or_host, reference, learnt, elements_at(self.contract, size))
        refuse_long(learnt.seconds_at(elements_at(self.contract, size)))
        return partial(on_host_again, reference)

    def _made_of(
        self, outcome: LaunchOutcome, size: Size, shot: PlannedLaunch, given: Arrays, ptx: str
    ) -> BaselineOutputs:
        outputs = {
            a.name: outcome.result.arrays[a.name]
            for a in self.contract.args
            if a.direction in ("out", "inout") and a.name in outcome.result.arrays
        }
        if outcome.stopped:
            return BaselineOutputs(outcome.errors, right=False, off={}, outputs={})
        if not self.independent:
            right = None if not outcome.errors else False
            return BaselineOutputs(outcome.errors, right, {}, outputs, outcome.result.longest_thread)
        answer = self._known_answer(size, shot, given)
        if answer is None:
            right = None if not outcome.errors else False
            return BaselineOutputs(outcome.errors, right, {}, outputs, outcome.result.longest_thread)
        found = {name: answer.difference(name, outputs[name]) for name in answer.want}
        if self.measured_again(size, shot, outcome.given, found, outputs):
            answer = self._known_answer(size, shot, outcome.given) or answer
            found = {name: answer.difference(name, outputs[name]) for name in answer.want}
        right = not outcome.errors and all(difference.right for difference in found.values())
        off = {
            name: absolute_error(outputs[name], answer.want[name]).astype(np.float32)
            for name, difference in found.items()
            if is_inexact(outputs[name].dtype) and difference.error > LOOSENING_FROM
        }
        nans = {}
        if shot.style.plants_nan and not outcome.errors:
            nans = {n: lost_nan.agreed(outcome.given, outputs[n], w) for n, w in answer.want.items()}
        seen = BaselineOutputs(outcome.errors, right, off, {}, outcome.result.longest_thread, nans)
        if not (shot.style.stress and right):
            return seen
        return binding(self.contract, seen, shot.style, outputs, answer, ptx)
