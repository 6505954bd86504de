"""A pipeline as one module: its kernels, run one after another on arrays that they share, with a library's steps between.

Every stage is a launch of its own, with guard bands around each array and checks of its own, so that findings name the
stage. Between launches everything is visible, as on a stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelmate.backends.base import (
    STOPPING,
    ArrayArgument,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    StageLaunch,
    StageResult,
    total_counters,
)
from kernelmate.records import Finding, FindingCode
from kernelmate.source import numpy_dtype

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Temporary:
    """A temporary of a pipeline: its shape, its type by name, and the value that the host fills it with (None: not filled)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: int | None

    @property
    def nbytes(self) -> int:
        """Returns its bytes."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class PipelineLaunch:
    """One run of a pipeline as data, for another process that has loaded its kernels.

    Attributes:
        modules: for each stage the number of its kernel there, or None for a step of a library.
        stages: the stages, without functions.
        temporaries: arrays that the stages share.
    """

    modules: tuple[int | None, ...]
    stages: tuple[StageLaunch, ...]
    temporaries: tuple[Temporary, ...]


def pipeline_launch(run: Run, modules: Sequence[int | None]) -> PipelineLaunch:
    """Returns a run of a pipeline as data; `modules` are the numbers of its kernels."""
    temporaries = []
    for one in run.arguments:
        if isinstance(one, ArrayArgument) and not one.passed:
            fill = None if one.output else int(bool(one.data.size and one.data.reshape(-1)[0]))
            temporaries.append(Temporary(one.name, one.data.shape, one.data.dtype.name, fill))
    stages = tuple(replace(one, library=None, observe=None) for one in run.stages)
    return PipelineLaunch(tuple(modules), stages, tuple(temporaries))


def outer_run(run: Run) -> Run:
    """Returns a run with only the arguments that its caller passes, which all versions of a pipeline share."""
    if not run.stages:
        return run
    passed = tuple(one for one in run.arguments if not isinstance(one, ArrayArgument) or one.passed)
    return replace(run, arguments=passed, stages=())


class PipelineModule:
    """The loaded kernels of a pipeline; implements `Module` for runs with stages.

    Args:
        modules: for each stage its kernel, or None for a step of a library.
        repeatable: equal launches give equal bits, so that a launch on changed contents shows what depends on them.
    """

    def __init__(self, modules: Sequence[Module | None], *, repeatable: bool) -> None:
        self.modules = tuple(modules)
        self._repeatable = repeatable

    def run(self, run: Run) -> RunResult:
        """Makes all launches of a pipeline; those after one that did not finish are not made.

        Raises:
            EmulationTooLarge: a launch exceeds the emulator's limits.
        """
        state = _PipelineState(run)
        for number, (stage, module) in enumerate(zip(run.stages, self.modules, strict=True)):
            if module is None:
                self._compute(state, stage)
            else:
                self._launch(state, stage, module, number)
            if any(one.severity == "error" and one.code in STOPPING for one in state.findings):
                break
        return state.result()

    def _launch(self, state: _PipelineState, stage: StageLaunch, module: Module, number: int) -> None:
        run = state.launch(stage, number)
        result = module.run(run)
        before = state.arrays_of(stage)
        for parameter, source in _arrays(stage):
            if parameter in result.reads and source not in state.written:
                state.reads.add(source)
        state.note(stage, result.findings)
        if not any(one.severity == "error" for one in result.findings):
            self._check_contents(state, stage, run, result, module)
        if state.run.count and stage.observe is not None:
            stage.observe(before, result.arrays)
        state.add(stage, result, result.arrays)

    def _compute(self, state: _PipelineState, stage: StageLaunch) -> None:
        assert stage.library is not None
        given = state.arrays_of(stage)
        arrays = dict(stage.library(given))
        state.reads |= {source for source in stage.reads if source not in state.written}
        state.add(stage, None, {**given, **arrays})

    def _check_contents(
        self, state: _PipelineState, stage: StageLaunch, run: Run, result: RunResult, module: Module
    ) -> None:
        """Reports a launch that uses elements which no stage has written in this run.

        Such elements hold the results of an earlier run, so that a pipeline may pass by its own stale results. A launch
        may read them and not use them, therefore it is repeated over other contents where launches repeat bit for bit.
        """
        for parameter, source in _arrays(stage):
            if parameter not in result.reads or source in state.filled:
                continue
            unset = state.unset(source)
            if unset is None or not unset.any():
                continue
            total = state.held[source].size
            count = int(unset.sum()) * total // unset.size
            if not (_uses(run, result.arrays, parameter, unset, module) if self._repeatable else count == total):
                continue
            which = "it" if count == total else f"{count} of its {total} elements"
            message = (
                f"reads {source}, and no stage before it writes {which}: a run would find what the last one left there"
            )
            finding = Finding(FindingCode.UNINITIALISED_GLOBAL, "error", message, buffer=parameter)
            state.note(stage, (finding,))
            return


def _uses(run: Run, arrays: Mapping[str, Any], parameter: str, unset: npt.NDArray[Any], module: Module) -> bool:
    """Returns True if a launch gives other results over other contents of unset elements."""
    given = next(one for one in run.arguments if isinstance(one, ArrayArgument) and one.name == parameter)
    other = given.data.copy()
    _bits(other)[unset] = ~_bits(given.data)[unset]
    changed = tuple(replace(one, data=other) if one is given else one for one in run.arguments)
    again = module.run(replace(run, arguments=changed, count=False, check=False, key=None))
    for one in run.arguments:
        if not isinstance(one, ArrayArgument) or not one.written:
            continue
        now, then = _bits(again.arrays[one.name]), _bits(arrays[one.name])
        differs = (now != then) & ~_both_nan(again.arrays[one.name], arrays[one.name], now.size)
        if one is given:  # elements that the launch does not write keep either content
            differs &= (now != _bits(other)) | (then != _bits(given.data))
        if bool(differs.any()):
            return True
    return False


def _both_nan(one: npt.NDArray[Any], two: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Returns where both arrays hold NaN, whose bits a launch need not repeat; for elements of two words, nowhere."""
    if one.size != size:
        return np.zeros(size, bool)
    return np.asarray((one != one) & (two != two)).reshape(-1)


def _arrays(stage: StageLaunch) -> list[tuple[str, str]]:
    """Returns the parameters of a stage that take arrays, each with the array's name in the run."""
    return [one for one in stage.arguments if not isinstance(one, ScalarArgument)]


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the elements as a flat array of unsigned integers, two for an element of sixteen bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{min(flat.itemsize, 8)}")


@dataclass(slots=True)
class _PipelineState:
    """Arrays and findings of one run of a pipeline.

    Attributes:
        held: present contents of every array of the run.
        written: arrays that a stage has written.
        reads: arrays that a stage has loaded from before any stage had written them.
    """

    run: Run
    held: Arrays = field(default_factory=dict)
    given: dict[str, ArrayArgument] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    results: list[RunResult] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given = {one.name: one for one in self.run.arguments if isinstance(one, ArrayArgument)}
        self.held = {name: one.data for name, one in self.given.items()}

    @property
    def filled(self) -> set[str]:
        """Arrays whose contents before the run are meant to be read."""
        return {name for name, one in self.given.items() if not one.output}

    def launch(self, stage: StageLaunch, number: int) -> Run:
        """Returns the launch of a stage on the present contents."""
        assert stage.shape is not None
        arguments: list[ArrayArgument | ScalarArgument] = []
        for one in stage.arguments:
            if isinstance(one, ScalarArgument):
                arguments.append(one)
                continue
            parameter, source = one
            fresh = self.given[source].output and source not in self.written
            arguments.append(
                replace(
                    self.given[source], name=parameter, data=self.held[source], written=source in stage.writes,
                    output=fresh, passed=True,
                )
            )  # fmt: skip
        key = None if self.run.key is None else (self.run.key, number)
        return replace(self.run, shape=stage.shape, arguments=tuple(arguments), key=key, stages=())

    def arrays_of(self, stage: StageLaunch) -> Arrays:
        """Returns the present contents of a stage's arrays, by parameter."""
        return {parameter: self.held[source] for parameter, source in _arrays(stage)}

    def unset(self, source: str) -> npt.NDArray[Any] | None:
        """Returns the elements of an array that the run left unchanged, by `_bits`; None for an array on a GPU."""
        now, then = self.held[source], self.given[source].data
        return np.asarray(_bits(now) == _bits(then)) if isinstance(now, np.ndarray) else None

    def note(self, stage: StageLaunch, findings: Sequence[Finding]) -> None:
        """Adds findings of a stage."""
        self.findings += [
            replace(one, stage=stage.name, message=f"stage {stage.name}: {one.message}") for one in findings
        ]

    def add(self, stage: StageLaunch, result: RunResult | None, arrays: Mapping[str, Any]) -> None:
        """Takes over the arrays after a stage, and counts the bytes that passed through temporaries."""
        if result is not None:
            self.results.append(result)
        written, read, moved = 0, 0, 0
        for parameter, source in _arrays(stage):
            before, after = self.held[source], arrays[parameter]
            if self.run.count:
                if not self.given[source].passed:
                    loaded = (
                        source in stage.reads if result is None or not result.checked else parameter in result.reads
                    )
                    read += self._held_bytes(source) if loaded else 0
                    written += _changed_bytes(before, after) if source in stage.writes else 0
                moved += after.nbytes * (1 + (source in stage.reads and source in stage.writes))
            self.held[source] = after
            if source in stage.writes:
                self.written.add(source)
        if self.run.count:
            counted = None if result is None else replace(result, arrays={})
            self.stages.append(
                StageResult(stage.name, stage.shape, counted, 0 if result is not None else moved, written, read)
            )

    def _held_bytes(self, source: str) -> int:
        """Returns the bytes of an array that earlier stages have written, or that were filled before the run."""
        if source in self.filled:
            return int(self.held[source].nbytes)
        return _changed_bytes(self.given[source].data, self.held[source])

    def result(self) -> RunResult:
        """Returns the result of the whole run for its caller."""
        done = self.results
        longest = [one.longest_thread for one in done if one.longest_thread is not None]
        return RunResult(
            {name: array for name, array in self.held.items() if self.given[name].passed},
            tuple(self.findings),
            checked=bool(done) and all(one.checked for one in done),
            unwatched=tuple(dict.fromkeys(part for one in done for part in one.unwatched)),
            counters=total_counters(self.stages),
            reads=frozenset(name for name in self.reads if self.given[name].passed),
            lasting=frozenset[str]().union(*(one.lasting for one in done)),
            printed=next((one.printed for one in done if one.printed), ""),
            longest_thread=max(longest, default=None),
            lines=tuple(line for one in done for line in one.lines),
            stages=tuple(self.stages),
        )


def _changed_bytes(before: Any, after: Any) -> int:
    """Returns the bytes of elements that differ; all of them for arrays on a GPU, which are not compared here."""
    if before is after:
        return 0
    if not isinstance(after, np.ndarray) or not isinstance(before, np.ndarray):
        return int(after.nbytes)
    return int(np.count_nonzero(_bits(before) != _bits(after))) * min(after.itemsize, 8)
