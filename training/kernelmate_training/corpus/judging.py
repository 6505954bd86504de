"""Fast judging of a group's texts, with the product's compiler, emulator, inputs, references and tolerances.

There are fewer launches than for a user's verdict: each listed size once, races and uninitialised reads searched at the
small sizes, counters taken at the headline. With a GPU, correct versions also run on it and are timed in alternating
rounds; the emulator then runs each of them once, at the odd size, for races and counters.
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
from kernelmate.checks.alignment import shifted_together
from kernelmate.checks.case_launches import FIRST, OTHER, Bench, LaunchOutcome, PlannedLaunch
from kernelmate.checks.compare import Difference, compare
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.styles import NORMAL
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
    """NVRTC within this process; the process is a worker that may be killed, so no child process is needed.

    Versions that differ only in their contract, for example in the block, are compiled once.
    """

    def __init__(self) -> None:
        super().__init__(children=1)
        self._known: dict[CompileJob, CompileOutput] = {}

    def forget(self) -> None:
        """Forgets the compiled texts of the previous group."""
        self._known.clear()

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compiles a job; the owner of this process enforces `timeout_s`."""
        from kernelmate.compiler.child import load_library

        # Comment lines, including the contract, are emptied; line numbers in messages stay valid.
        bare = CompileJob(_COMMENT.sub("", job.text), job.name, job.headers, job.options, job.expressions)
        known = self._known.get(bare)
        if known is None:
            known = self._known[bare] = load_library().compile(bare)
        return known


def code_of(ptx: str) -> str:
    """Returns PTX without comments and line numbers; equal for versions with equal code."""
    return _NO_CODE.sub("", ptx)


STEP_LIMIT = 300_000
"""Number of instructions of one thread above which it counts as hung; generated kernels take less than a tenth."""

INSTRUCTION_LIMIT = 150_000_000
"""Largest number of emulated instructions of one launch."""

TURNS = 7
"""Number of timing rounds; the range of seven ratios contains the median in 98 % of cases (sign test)."""

NOT_TIMED = "not timed"
"""Reason for a version that takes too long at the size."""

WRONG = "wrong values"
"""Beginning of the reason for wrong outputs; other sizes show whether all are wrong."""

FILE = "kernel.cu"
"""File name of generated units in messages."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One text with its verdict.

    Attributes:
        text: the whole unit.
        kernel: the kernel; None if it was not found.
        verdict: the verdict.
        metrics: counters of the counted sizes, the headline first.
        words: the error of the compiler or the judge, in one line; empty if there is none.
        version: the compiled version; None if it does not compile.
    """

    text: str
    kernel: Kernel | None
    verdict: Verdict
    metrics: tuple[SizeMetrics, ...] = ()
    words: str = ""
    version: Version | None = None

    @property
    def right(self) -> bool:
        """Returns True if the version is correct at every size that ran."""
        return self.verdict.correct is True


@dataclass(frozen=True, slots=True)
class Rounds:
    """Microseconds of one launch in each timing round, and number of launches in each round."""

    times_us: tuple[float, ...]
    repeats: int

    @property
    def median_us(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.times_us)


class Judge:
    """Compiles, runs and measures the versions of one group after another.

    Args:
        target: the GPU to compile and predict for.
        gpu: the GPU to run and time correct versions on; None to predict.

    Attributes:
        headline: True to take counters at the headline size; else, with a GPU, at the odd size.
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
        """Begins another group, with inputs drawn by `seed`; `headline` takes counters at its headline size."""
        self._oracle, self._seed, self.headline = None, seed, headline
        self._compiled, self._judged, self._same = {}, {}, {}
        self._compiler.forget()

    def judge(self, text: str, *, hunt: bool = False) -> Judged:
        """Judge one text; results of this group are cached.

        Args:
            text: the whole unit.
            hunt: True for a text with a mistake: no counters and no GPU run, and judging ends at the first error.
        """
        known = self._judged.get(text)
        if known is None:
            known = self._launched(self.look(text), hunt=hunt)
            if not hunt:
                self._judged[text] = known
        return known

    def _launched(self, looked: Judged, *, hunt: bool) -> Judged:
        """Runs a version that compiles, unless equal code was launched with equal launches before."""
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
        """Compile one text, and compute its resources and occupancy without running it."""
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
        """Returns a version as a task of the checks."""
        return JudgeTask(
            "emulator", self.target, version, None, None, (), self._seed, ".", step_limit=STEP_LIMIT,
            instruction_limit=INSTRUCTION_LIMIT, executed=False,
        )  # fmt: skip

    def bench(self, version: Version) -> Bench:
        """Returns a version ready to run in the emulator.

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
        """The version in the emulator, which also prepares the arguments of launches."""
        return self.judge.bench(self.version)

    def _shots(self) -> Iterator[tuple[int, PlannedLaunch, bool]]:
        """Yields the launches: index of the size, launch, and True to count.

        Odd sizes first with all checks, then the headline.
        """
        sizes, beside = self.version.contract.sizes, self.judge.gpu is not None and not self.hunt
        here = beside and not self.judge.headline
        for place in range(1, min(2, len(sizes)) if beside else len(sizes)):
            yield place, _small(place), here and place == 1
        if "reinterpret_cast" in self.version.unit.text:
            # Wide accesses must work for arrays with any alignment.
            yield 1, PlannedLaunch(FIRST, NORMAL, 0, 9, misalign=shifted_together(self.version.contract)), False
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
            # As in a verdict: the code depends on whether another size was correct.
            some = any(case.correct for case in self.cases)
            self.words = f"{FindingCode.WRONG_AT_SIZE if some else FindingCode.WRONG_VALUES}: {self.words}"

    def _hold(self, place: int, outcome: LaunchOutcome, oracle: Oracle) -> None:
        """Compares the outputs of one launch with the expected ones."""
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
        """Runs the version on the GPU at the small sizes, with the emulator's inputs."""
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
    """Returns the verdict with resources, including the headline's dynamic shared memory, and occupancy.

    Raises:
        ContractError: the version cannot be launched.
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
    """Returns the launch of a size that is not the headline."""
    return PlannedLaunch(FIRST if place % 2 else OTHER, NORMAL, place % 2, 5 * place)


def _place(finding: Finding) -> str:
    return f"line {finding.line}: " if finding.line else ""


def _said_by_compiler(compiled: Compiled) -> str:
    for diagnostic in compiled.diagnostics:
        if diagnostic.severity == "error":
            return f"compile-error: line {diagnostic.line}: {diagnostic.message}"
    return FindingCode.COMPILE_ERROR


def _verdict(target: Target, seed: int, name: str, compiled: Compiled | None) -> Verdict:
    """Returns a verdict before any run."""
    return Verdict(
        kernel=name, instance=None, backend="emulator", target=target.name, arch=target.arch,
        compiler="" if compiled is None else compiled.compiler, binary=None if compiled is None else compiled.binary,
        seed=seed, compiled=compiled is not None and compiled.ok,
        diagnostics=() if compiled is None else tuple(d for d in compiled.diagnostics if d.severity == "error"),
        resources=None if compiled is None else compiled.resources, occupancy=None, correct=None, cases=(), findings=(),
        timing=None, speedup=None, counters=None, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def seed_of(*parts: object) -> int:
    """Returns a seed that depends only on the parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")
