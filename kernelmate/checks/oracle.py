"""Expected outputs and tolerances for one set of inputs, and the baseline's errors on it."""

from __future__ import annotations

import math
import time
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
    thorough_answers,
    with_ties,
)
from kernelmate.checks.case_launches import Bench, LaunchOutcome, PlannedLaunch, inputs_for
from kernelmate.checks.compare import Difference, absolute_error
from kernelmate.checks.evaluations import Expected, ObservedReference, Reference
from kernelmate.checks.extrapolation import extrapolated_tolerances
from kernelmate.checks.guard_findings import binding
from kernelmate.checks.guards import lost_nan
from kernelmate.checks.guards.lost_bits import has_arithmetic
from kernelmate.checks.inputs import DeviceRandom
from kernelmate.checks.large_references import (
    ReferenceUnavailable,
    kernel_reference,
    on_device_or_host,
    on_host_again,
    refuse_long,
)
from kernelmate.checks.precision import Array, Arrays, is_inexact, on_device, wide
from kernelmate.checks.reference import python_reference
from kernelmate.checks.reference_facts import (
    DEVICE_ELEMENTS,
    LARGE_ELEMENTS,
    LONG_S,
    MEDIUM_ELEMENTS,
    ReferenceFacts,
    elements_at,
    learn,
    seconds_of,
    stored_facts,
)
from kernelmate.checks.styles import InputStyle
from kernelmate.checks.tolerances import (
    BASELINE_FACTOR,
    contract_tolerance,
    derive,
    rounded_outputs,
    with_baseline_error,
    with_vanished,
)
from kernelmate.checks.userfiles import content, stamp
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, JudgeTask, Size, Version
from kernelmate.source import numpy_dtype

Progress = Callable[[str, int, int], None]

REFERENCE_STAGE = "reference"
"""Progress stage in which the user's Python runs; the worker's client applies a separate time limit to it."""

CASES_STAGE = "cases"
"""Stage in which kernels run."""

GUARDS_STAGE = "guards"
"""Stage in which guards examine the outputs; some guards launch kernels."""

SEED_OF_LAWS = 0x1A37
"""Seed of inputs and perturbations for facts that do not depend on a verdict's own seed."""

LOOSENING_FROM = 1 / BASELINE_FACTOR
"""Fraction of the tolerance below which a baseline's largest error widens no tolerance."""


_LEARNT: dict[Hashable, ReferenceFacts] = {}
"""Facts measured at small sizes, by contract, reference and size."""
_SECONDS: dict[Hashable, float] = {}
"""Estimated duration of a reference's evaluation on the host, by size."""
_TAKEN: dict[Hashable, float] = {}
"""Measured duration of the last evaluation for expected outputs, by size."""


class Oracle:
    """Source of the expected outputs of one task.

    They come from the contract's Python reference, else from its reference kernel, else from the baseline.

    Attributes:
        independent: True with a reference other than the baseline.
        known: True if there is any source of expected outputs.
        directory: folder that the contract's files are relative to.
        lacking: reason for a missing reference result, by size.

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
        # Computed before the reference is loaded, so that results of an older file are never stored as a newer one's.
        self._context = self._context_of_answers()
        tell(REFERENCE_STAGE, 0, 1)
        self._python = None if kernel is not None else python_reference(self.contract, self.directory)
        self.independent = self._python is not None or kernel is not None
        self.known = self.independent or baseline is not None
        self._device = device
        self.lacking: dict[tuple[tuple[str, int], ...], str] = {}

    @property
    def context(self) -> Hashable:
        """Returns everything that expected outputs depend on besides inputs and the seed, as a key."""
        return self._context[:-1]

    @property
    def judge_of_inputs(self) -> Version | None:
        """Returns the baseline's version; inputs on which it fails give no evidence about a candidate."""
        return None if self._baseline is None else self._baseline.version

    def enter(self, stage: str) -> None:
        """Reports a stage."""
        self._tell(stage, 0, 1)

    def theirs(self, size: Size, shot: PlannedLaunch, given: Arrays) -> BaselineOutputs | None:
        """Returns the baseline's outputs for a launch; None without a baseline."""
        baseline = self._baseline
        if baseline is None:
            return None

        def make() -> BaselineOutputs:
            return self._made_of(baseline.run(size, shot, given), size, shot, given, baseline.version.compiled.ptx)

        return BASELINES.get(self._of_version(baseline, size, shot), make)

    def known_longest(self, size: Size, shot: PlannedLaunch) -> int | None:
        """Returns the number of instructions of the longest thread in the baseline's launch.

        The result is None if that launch was not made yet, or was made without counting.
        """
        if self._baseline is None:
            return None
        known = BASELINES.known(self._of_version(self._baseline, size, shot))
        return None if known is None else known.longest_thread

    def learn(self, bench: Bench, size: Size, shot: PlannedLaunch, outcome: LaunchOutcome) -> BaselineOutputs:
        """Stores a launch of a version judged without a baseline, for later candidates whose baseline it is."""
        key = self._of_version(bench, size, shot)
        ptx = bench.version.compiled.ptx
        return BASELINES.get(key, lambda: self._made_of(outcome, size, shot, outcome.given, ptx))

    def _of_version(self, bench: Bench, size: Size, shot: PlannedLaunch) -> Hashable:
        compiled = bench.version.compiled
        return (self._key(size, shot), shot, compiled.binary, compiled.lowered_name)

    def answer(
        self, size: Size, shot: PlannedLaunch, given: Arrays, theirs: BaselineOutputs | None
    ) -> ExpectedOutputs | None:
        """Returns the expected outputs, with tolerances that the baseline's own error has widened within bounds.

        The result is None if there is neither a reference nor a baseline that succeeded with these inputs.

        Raises:
            ReferenceFailed: the reference raised an exception or its result does not match the contract.
        """
        if self.independent:
            answer = self._known_answer(size, shot, given)
            if answer is not None and theirs is not None and theirs.off:
                allowed = replace(answer.allowed, error=with_baseline_error(answer.allowed.error, theirs.off))
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
        """Measures tolerances and ties again if outputs exceed them slightly.

        The result is True if some of the outputs now have a tolerance or ties that were measured again.
        """
        answer = ANSWERS.known(self._key(size, shot)) if self._python is not None and self._kernel is None else None
        if answer is None or answer.against == "baseline":
            return False
        close = nearly_met(answer, found, outputs)
        whole = near_ties(answer, found, outputs) and not self._chooses()
        more = answer
        if close or whole:
            seconds = 0.0 if self._on_device(size) else self._seconds_taken(size)
            with self._evaluating(size, given) as reference:
                task = self.contract, reference, given, size
                more = thorough_answers(answer, task, self._seed(shot), seconds) if close else more
                more = with_ties(more, task, self._seed(shot), seconds) if whole else more
        if more is not answer:
            ANSWERS.replace(self._key(size, shot), more)
        wrong = [name for name, one in found.items() if not one.right]
        return any(more.again if is_inexact(outputs[name].dtype) else name in more.ties for name in wrong)

    def _chooses(self) -> bool:
        """Returns True if the baseline computes no floating-point numbers: its choices among given ones are not near ties."""
        theirs = self._task.baseline
        return theirs is not None and bool(theirs.compiled.ptx) and not has_arithmetic(theirs.compiled.ptx)

    def _seed(self, shot: PlannedLaunch) -> tuple[int, int]:
        return self._task.seed % 2**64, shot.inputs

    @contextmanager
    def _evaluating(self, size: Size, given: Arrays) -> Iterator[Reference]:
        """Yields the Python reference; at a large size it is placed on the GPU or the host."""
        assert self._python is not None
        reference = ObservedReference(self._python, lambda: self._tell(REFERENCE_STAGE, 0, 1))
        if self._device is None or not self.large(size):
            yield reference
            return
        with self._device.computing():
            yield self._placed(reference, size, given, exact=True)

    def evaluated(self, size: Size, given: Arrays) -> Expected:
        """Returns a Python reference's outputs for inputs, which are not stored.

        Raises:
            ReferenceFailed: the reference failed.
        """
        with self._evaluating(size, given) as reference:
            return reference(given, size)

    def inputs(self, size: Size, shot: PlannedLaunch) -> Arrays:
        """Returns the inputs that a launch specifies; they must not be written to.

        Raises:
            ReferenceFailed: the contract's own inputs cannot be made.
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
        """Draws inputs in GPU memory; returns None if there is no room."""
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
        """Returns everything that inputs and expected outputs depend on besides size and launch, as a key."""
        kernel = None if self._kernel is None else self._kernel.version.compiled.binary
        files = stamp(self.contract.reference, self.directory), stamp(self.contract.inputs, self.directory)
        # The launch configuration and the contract block's position do not affect the expected outputs.
        contract = replace(self.contract, grid=(), block=(), shared="", require=(), options=(), line=None)
        return (repr(contract), self._task.backend, self._task.target.arch, str(self.directory), files, kernel,
                self._task.seed)  # fmt: skip

    def _key(self, size: Size, shot: PlannedLaunch) -> Hashable:
        return self._context, tuple(sorted(size.items())), shot.inputs, shot.style

    def large(self, size: Size) -> bool:
        """Returns True for a size with many elements or a slow reference, which is evaluated only twice."""
        return elements_at(self.contract, size) > LARGE_ELEMENTS or self._long(size)

    def _long(self, size: Size) -> bool:
        """Returns True if an evaluation of the reference is slow.

        The time is measured only if the number of elements does not decide.
        """
        elements = elements_at(self.contract, size)
        if self._python is None or not MEDIUM_ELEMENTS < elements <= DEVICE_ELEMENTS:
            return False
        return self.seconds_of(size) > LONG_S

    def seconds_of(self, size: Size) -> float:
        """Returns the estimated seconds of a Python reference's evaluation on the host; 0 if unknown."""
        if self._python is None:
            return 0.0
        key = (self._context[:-1], tuple(sorted(size.items())))
        if key not in _SECONDS:
            try:
                _SECONDS[key] = seconds_of(self.contract, self._python, size, self._draw_small)
            except ReferenceFailed:
                return 0.0
        return _SECONDS[key]

    def _seconds_taken(self, size: Size) -> float:
        """Returns the seconds of an evaluation at a size: measured in this process, else estimated.

        The estimate is far too long if a busy machine delayed the evaluations at small sizes.
        """
        return min(self.seconds_of(size), _TAKEN.get((self._context[:-1], tuple(sorted(size.items()))), math.inf))

    def _timed(self, reference: Reference, given: Arrays, size: Size) -> Expected:
        """Returns the reference's outputs, and stores the duration of the evaluation."""
        began = time.perf_counter()
        want = reference(given, size)
        _TAKEN[self._context[:-1], tuple(sorted(size.items()))] = time.perf_counter() - began
        return want

    def _draw_small(self, size: Size, number: int, style: InputStyle) -> Arrays:
        """Draws inputs on the host that do not depend on a verdict's seed."""
        return inputs_for(self.contract, size, PlannedLaunch(number, style, 0, 0), SEED_OF_LAWS, self.directory)

    def _on_device(self, size: Size) -> bool:
        """Returns True if inputs and expected outputs of a size are computed on the GPU.

        This is so for many elements or a slow reference, if CuPy has all dtypes.
        """
        kinds = (numpy_dtype(a.dtype).kind for a in self.contract.args)
        if self._device is None or any(kind not in "biufc" for kind in kinds):
            return False
        return elements_at(self.contract, size) > DEVICE_ELEMENTS or self._long(size)

    def _known_answer(self, size: Size, shot: PlannedLaunch, given: Arrays) -> ExpectedOutputs | None:
        """Returns the reference's expected outputs; None if unavailable at this size."""
        key = tuple(sorted(size.items()))
        if key in self.lacking:
            return None
        try:
            return self._referenced(size, shot, given)
        except ReferenceUnavailable as error:
            self.lacking[key] = str(error)
        except MemoryError:
            if not self.large(size):
                raise
            self.lacking[key] = "the reference needs more memory than a worker may take there"
        return None

    def _referenced(self, size: Size, shot: PlannedLaunch, given: Arrays) -> ExpectedOutputs:
        """Returns the reference's expected outputs.

        Raises:
            ReferenceUnavailable: it would take too long or too much memory at this size.
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
        """Returns the baseline's own outputs as the expected ones."""
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
            answer = self._held(reference, "", size, shot, given, self._timed(reference, given, size), exact=exact)
        else:
            with self._device.computing():
                placed = self._placed(reference, size, given, exact=exact)
                answer = self._held(placed, "", size, shot, given, self._timed(placed, given, size), exact=exact)
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
        """Returns the expected outputs with their tolerance.

        The tolerance is the contract's, else a derived one, or at large sizes an extrapolated one.
        """
        contract, seed = self.contract, (self._task.seed % 2**64, shot.inputs)
        if contract.tolerance is not None or not rounded_outputs(contract, want):
            return ExpectedOutputs(
                want, contract_tolerance(contract, want), "derived" if contract.tolerance is None else "contract"
            )
        if not self.large(size):
            allowed = derive(contract, reference, given, size, want, seed, exact=exact)
            return ExpectedOutputs(want, with_vanished(contract, allowed, want, given) if exact else allowed)
        law = self._learnt(reference, whose, size, exact=exact).law
        allowed = extrapolated_tolerances(contract, law, reference, given, size, want, seed, exact=exact)
        return ExpectedOutputs(want, with_vanished(contract, allowed, want, given) if exact else allowed, "carried")

    def _learnt(self, reference: Reference, whose: str, size: Size, *, exact: bool) -> ReferenceFacts:
        """Returns facts about a reference from small sizes, measured once.

        `whose` is the binary of the kernel if the reference is a kernel.
        """
        key = (self._context[:-1], tuple(sorted(size.items())), whose, exact)
        if key not in _LEARNT:
            if exact:
                self._tell(REFERENCE_STAGE, 0, 1)

            files = [content(where, self.directory) for where in (self.contract.reference, self.contract.inputs)]
            by = None if self._kernel is None else self._kernel.version.compiled.binary
            lasting = (self._context[0], by, files, key[1:], self._on_device(size))
            _LEARNT[key] = stored_facts(lasting, lambda: self._learn(reference, size, exact=exact))
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
        """Returns the reference for a large size: on the GPU, else on the host if its duration is acceptable.

        Raises:
            ReferenceUnavailable: it would take too long on the host.
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
        if not right:
            return seen
        return binding(self.contract, seen, shot.style, outputs, answer, ptx)
