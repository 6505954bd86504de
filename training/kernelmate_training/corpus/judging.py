"""Judging the texts of a group quickly, with the product's own compiler, emulator, inputs, references and tolerances.

Against a verdict as users get it, launches are few: a listed size once each, races and uninitialised reads looked for at the
small ones, counters taken at the headline. Where there is a GPU, right versions run on it too and are timed in turns; then the
emulator sees each of them once, at the odd size, where it looks for races and counts at the same time.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kernelmate.backends.base import EmulationTooLarge, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.alignment import together
from kernelmate.checks.compare import Difference, compare
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.styles import NORMAL
from kernelmate.checks.trials import FIRST, OTHER, Bench, LaunchOutcome, PlannedLaunch
from kernelmate.compiler import compile_kernel, occupancy
from kernelmate.compiler.frames import CompileJob, CompileOutput
from kernelmate.compiler.process import CompilerProcess
from kernelmate.errors import ContractError, KernelmateError
from kernelmate.measure.predict import predict
from kernelmate.records import (
    Case,
    Compiled,
    CompileOptions,
    Finding,
    FindingCode,
    JudgeTask,
    Kernel,
    SizeMetrics,
    Target,
    Verdict,
    Version,
)
from kernelmate.source import contract_for, find_kernels, launch_shape, text_unit

if TYPE_CHECKING:
    from kernelmate_training.corpus.gpu import Gpu


_COMMENT = re.compile(r"^[ \t]*//[^\n\\]*$", re.MULTILINE)
_NO_CODE = re.compile(r"^[ \t]*(?://[^\n]*|\.(?:loc|file)\b[^\n]*)?\n", re.MULTILINE)


class InProcess(CompilerProcess):
    """NVRTC in this very process, which is a worker that may be killed: no other child is needed.

    Versions that differ in their contract alone, as with another block size, are compiled once.
    """

    def __init__(self) -> None:
        super().__init__(children=1)
        self._known: dict[CompileJob, CompileOutput] = {}

    def forget(self) -> None:
        """Another group's texts are other ones."""
        self._known.clear()

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compile; `timeout_s` is its owner's to keep."""
        from kernelmate.compiler.library import load_library

        # Whole lines of comment, the contract among them, are emptied: lines keep their numbers for what is said of them.
        bare = CompileJob(_COMMENT.sub("", job.text), job.name, job.headers, job.options, job.expressions)
        known = self._known.get(bare)
        if known is None:
            known = self._known[bare] = load_library().compile(bare)
        return known


def code_of(ptx: str) -> str:
    """PTX without its comments and line numbers: equal for versions that are the same to the GPU."""
    return _NO_CODE.sub("", ptx)


STEP_LIMIT = 300_000
"""Instructions of one thread after which it counts as hung: no generated kernel takes a tenth of them."""

INSTRUCTION_LIMIT = 150_000_000
"""Instructions of one launch that are emulated at most."""

TURNS = 7
"""Turns in which a GPU times versions; the lowest and the highest of their ratios hold the median at 98 % (sign test)."""

NOT_TIMED = "not timed"
"""Reason for a version that takes too long at the size."""

WRONG = "wrong values"
"""Beginning of the reason for outputs that are wrong; further sizes show whether all of them are."""

FILE = "kernel.cu"
"""File name of generated units in messages."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One text with its verdict.

    Attributes:
        metrics: counters of the sizes that were counted, the headline first.
        words: what compiler or judge say is wrong, in one line; empty if nothing is.
        version: compiled, where it compiled.
    """

    text: str
    kernel: Kernel | None
    verdict: Verdict
    metrics: tuple[SizeMetrics, ...] = ()
    words: str = ""
    version: Version | None = None

    @property
    def right(self) -> bool:
        """True if it was right wherever it ran."""
        return self.verdict.correct is True


@dataclass(frozen=True, slots=True)
class Rounds:
    """Microseconds of one launch in each of the turns in which versions were timed, and launches in each turn."""

    times_us: tuple[float, ...]
    repeats: int

    @property
    def median_us(self) -> float:
        """Of the turns."""
        return statistics.median(self.times_us)


class Judge:
    """Judges the texts of one group after another.

    Args:
        target: compiled for, and what predictions are for.
        gpu: where right versions are run and timed; None to predict.

    Attributes:
        headline: counters are taken at the headline size; else, beside a GPU, at the odd one.
    """

    def __init__(self, target: Target, gpu: Gpu | None = None) -> None:
        self.target, self.gpu, self.headline = target, gpu, True
        self._compiler = InProcess()
        self._emulator = EmulatorBackend()
        self._oracle: Oracle | None = None
        self._seed = 0
        self._compiled: dict[str, Judged] = {}
        self._judged: dict[str, Judged] = {}
        self._same: dict[tuple[str, ...], Judged] = {}

    def begin(self, seed: int, *, headline: bool = True) -> None:
        """Another group, whose inputs follow `seed`; `headline`: take counters at its headline size."""
        self._oracle, self._seed, self.headline = None, seed, headline
        self._compiled, self._judged, self._same = {}, {}, {}
        self._compiler.forget()

    def judge(self, text: str, *, hunt: bool = False) -> Judged:
        """Judge one text; what was judged in this group before is known.

        Args:
            text: the whole unit.
            hunt: a mistake is looked for, so neither counters nor a GPU are wanted, and the first thing wrong suffices.
        """
        known = self._judged.get(text)
        if known is None:
            known = self._launched(self.look(text), hunt=hunt)
            if not hunt:
                self._judged[text] = known
        return known

    def _launched(self, looked: Judged, *, hunt: bool) -> Judged:
        """Run what compiles, unless the very same code was launched alike before."""
        if looked.words or looked.kernel is None or looked.version is None:
            return looked
        content = content_of(looked)
        same = self._same.get(content)
        if same is not None:
            return replace(same, text=looked.text, kernel=looked.kernel, version=looked.version)
        judged = _Launches(self, looked.kernel, looked.version, looked.verdict, hunt=hunt).judged(looked.text)
        if not hunt:
            self._same[content] = judged
        return judged

    def look(self, text: str) -> Judged:
        """Compile one text and weigh its launch on paper: resources and occupancy, and nothing of whether it is right."""
        found = self._compiled.get(text)
        if found is None:
            found = self._compiled[text] = self._looked_at(text)
        return found

    def _looked_at(self, text: str) -> Judged:
        unit = text_unit(text, FILE)
        try:
            kernel = find_kernels(unit)[0]
            contract = contract_for(kernel)
        except (KernelmateError, IndexError) as error:
            return Judged(text, None, _verdict(self.target, self._seed, "", None), words=f"{error}")
        compiled = compile_kernel(
            kernel, contract.options, instance=None, target=self.target, options=CompileOptions(), use_cache=False,
            compiler=self._compiler,
        )  # fmt: skip
        verdict = _verdict(self.target, self._seed, kernel.name, compiled)
        if not compiled.ok or compiled.resources is None:
            return Judged(text, kernel, replace(verdict, correct=False), words=_said_by_compiler(compiled))
        version = Version(compiled, contract, unit)
        try:
            verdict = _on_paper(self.target, version, verdict)
        except ContractError as error:
            return Judged(text, kernel, replace(verdict, correct=False), words=str(error), version=version)
        return Judged(text, kernel, verdict, version=version)

    def oracle_for(self, version: Version) -> Oracle:
        """Returns the inputs and expected outputs of the group; all its versions share them."""
        if self._oracle is None:
            self._oracle = Oracle(self.task(version), None, None, lambda stage, done, total: None)
        return self._oracle

    def task(self, version: Version) -> JudgeTask:
        """A version as the checks want it."""
        return JudgeTask(
            "emulator", self.target, version, None, None, (), self._seed, ".", step_limit=STEP_LIMIT,
            instruction_limit=INSTRUCTION_LIMIT, executed=False,
        )  # fmt: skip

    def bench(self, version: Version) -> Bench:
        """A version in the emulator.

        Raises:
            UnsupportedInstruction: it cannot be emulated.
        """
        return Bench(self._emulator, self.task(version), version)


class _Launches:
    """The launches of one version."""

    def __init__(self, judge: Judge, kernel: Kernel, version: Version, verdict: Verdict, *, hunt: bool) -> None:
        self.judge, self.kernel, self.version, self.verdict, self.hunt = judge, kernel, version, verdict, hunt
        self.cases: list[Case] = []
        self.findings: list[Finding] = []
        self.metrics: list[SizeMetrics] = []
        self.words = ""

    def judged(self, text: str) -> Judged:
        try:
            self._emulate()
            if self.judge.gpu is not None and not self.hunt and not self.words:
                self._on_gpu(self.judge.gpu)
        except (ContractError, UnsupportedInstruction, EmulationTooLarge) as error:
            self.words = self.words or str(error)
            refused = replace(self.verdict, correct=False if isinstance(error, ContractError) else None)
            return Judged(text, self.kernel, refused, words=self.words, version=self.version)
        verdict = replace(
            self.verdict, correct=not self.words, cases=tuple(self.cases), findings=tuple(self.findings),
            timing=self.metrics[0].timing if self.metrics else None,
            counters=self.metrics[0].counters if self.metrics else None,
        )  # fmt: skip
        return Judged(text, self.kernel, verdict, tuple(self.metrics), self.words, self.version)

    @cached_property
    def _bench(self) -> Bench:
        """The version in the emulator, which also says what a launch is given."""
        return self.judge.bench(self.version)

    def _shots(self) -> Iterator[tuple[int, PlannedLaunch, bool]]:
        """Which sizes are launched, and counted: the odd ones first, with everything looked for; the headline for its counters."""
        sizes, beside = self.version.contract.sizes, self.judge.gpu is not None and not self.hunt
        here = beside and not self.judge.headline
        for place in range(1, min(2, len(sizes)) if beside else len(sizes)):
            yield place, _small(place), here and place == 1
        if "reinterpret_cast" in self.version.unit.text:
            # Wide accesses have to bear arrays that start anywhere.
            yield 1, PlannedLaunch(FIRST, NORMAL, 0, 9, misalign=together(self.version.contract)), False
        if self.judge.headline and not self.hunt:
            yield 0, PlannedLaunch(FIRST, NORMAL, 0, 0), True

    def _emulate(self) -> None:
        bench, oracle = self._bench, self.judge.oracle_for(self.version)
        contract = self.version.contract
        for place, shot, count in self._shots():
            size = contract.sizes[place]
            given = oracle.inputs(size, shot)
            run = replace(bench.launch(size, shot, given, count=count), check=place > 0)
            outcome = LaunchOutcome(shot, given, bench.module.run(run))
            self._hold(place, outcome, oracle)
            if self.words and not (self.hunt and self.words.startswith(WRONG)):
                return
            if count:
                result, shape = outcome.result, bench.shape(size)
                timing = (
                    None
                    if self.judge.gpu is not None
                    else predict(self.judge.target, self.version.compiled, shape, result)
                )
                self.metrics.append(SizeMetrics(dict(size), shape, result.counters, timing))
        if self.words:
            # As a verdict calls it: whether another size came out right.
            some = any(case.correct for case in self.cases)
            self.words = f"{FindingCode.WRONG_AT_SIZE if some else FindingCode.WRONG_VALUES}: {self.words}"

    def _hold(self, place: int, outcome: LaunchOutcome, oracle: Oracle) -> None:
        """One launch against what is right."""
        size = self.version.contract.sizes[place]
        errors = [f for f in outcome.result.findings if f.severity == "error"]
        differences: tuple[Difference, ...] = ()
        if not outcome.stopped:
            answer = oracle.answer(size, outcome.shot, outcome.given, None)
            if answer is not None:
                arrays, allowed = outcome.result.arrays, answer.allowed.error
                differences = tuple(compare(n, arrays[n], w, allowed[n]) for n, w in answer.want.items())
        worst = max(differences, key=lambda d: d.error, default=None)
        right = not errors and all(d.right for d in differences)
        error = None if worst is None or worst.error == float("inf") else worst.error
        first = worst.first if worst is not None and not worst.right else None
        self.cases.append(Case(dict(size), "contract", right, None, False, error, first, None))
        self.findings += errors
        if right or self.words:
            return
        at = ", ".join(f"{name}={value}" for name, value in size.items())
        if errors:
            self.words = f"{errors[0].code}: {_place(errors[0])}{errors[0].message} (at {at})"
        elif worst is not None and worst.first is not None:
            one = worst.first
            self.words = f"{WRONG} at {at}: {one.argument}{list(one.index)} is {one.got}, want {one.want}"

    def _on_gpu(self, gpu: Gpu) -> None:
        """At the small sizes, with the inputs that the emulator had where it ran there."""
        oracle, contract = self.judge.oracle_for(self.version), self.version.contract
        bench = self._bench
        module = gpu.load(self.version, self.judge.target)
        for place in range(1, len(contract.sizes)):
            size, shot = contract.sizes[place], _small(place)
            given = oracle.inputs(size, shot)
            self._hold(place, LaunchOutcome(shot, given, module.launch(bench.launch(size, shot, given))), oracle)
            if self.words:
                return


def _on_paper(target: Target, version: Version, verdict: Verdict) -> Verdict:
    """A verdict with resources, the headline's dynamic shared memory among them, and occupancy.

    Raises:
        ContractError: it cannot be launched.
    """
    assert version.compiled.resources is not None
    shape = launch_shape(version.contract, version.contract.sizes[0])
    resources = replace(version.compiled.resources, dynamic_shared_bytes=shape.shared_bytes)
    fits = occupancy(target, resources, shape)
    if fits.blocks_per_sm == 0 or shape.threads > resources.max_threads:
        raise ContractError(f"No block of {shape.threads} threads fits on an SM: limited by {fits.limiter}.")
    return replace(verdict, resources=resources, occupancy=fits)


def content_of(judged: Judged) -> tuple[str, ...]:
    """Returns a key that is equal for versions with the same code and the same launches."""
    assert judged.version is not None
    contract = judged.version.contract
    shapes = [str(launch_shape(contract, size)) for size in contract.sizes]
    return (code_of(judged.version.compiled.ptx), *contract.grid, "|", *contract.block, "|", *shapes)


def _small(place: int) -> PlannedLaunch:
    """The launch of a size that is not the headline."""
    return PlannedLaunch(FIRST if place % 2 else OTHER, NORMAL, place % 2, 5 * place)


def _place(finding: Finding) -> str:
    return f"line {finding.line}: " if finding.line else ""


def _said_by_compiler(compiled: Compiled) -> str:
    for diagnostic in compiled.diagnostics:
        if diagnostic.severity == "error":
            return f"compile-error: line {diagnostic.line}: {diagnostic.message}"
    return FindingCode.COMPILE_ERROR


def _verdict(target: Target, seed: int, name: str, compiled: Compiled | None) -> Verdict:
    """A verdict before anything has run."""
    return Verdict(
        kernel=name, instance=None, backend="emulator", target=target.name, arch=target.arch,
        compiler="" if compiled is None else compiled.compiler, binary=None if compiled is None else compiled.binary,
        seed=seed, compiled=compiled is not None and compiled.ok,
        diagnostics=() if compiled is None else tuple(d for d in compiled.diagnostics if d.severity == "error"),
        resources=None if compiled is None else compiled.resources, occupancy=None, correct=None, cases=(), findings=(),
        timing=None, speedup=None, counters=None, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def seed_of(*parts: object) -> int:
    """A number that parts always give."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")
