"""Runs tasks and candidates in confined processes, one request at a time, and makes verdicts of the answers.

The process that audits and judges never loads a candidate; each candidate gets a process of its own, and another one for its
timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from kernelmate.errors import InputError, UsageError
from kernelmate.measure.blocks import ratio_of, time_of
from kernelmate_torch.kernelbench.records import (
    BenchmarkedTask,
    CandidateRun,
    CandidateVerdict,
    PreparedTask,
    Speed,
    TaskAudit,
    TaskFinding,
    TimedCandidate,
    ordered,
)
from kernelmate_torch.kernelbench.tasks import BenchmarkTask, key_of, own_files
from kernelmate_torch.module_process import ModuleProcess

RUN_S = 0.1
"""Estimated seconds of a call on the CPU at which candidates are compared there."""
EMULATED_BYTES = 1 << 13
"""Bytes of inputs where a candidate's kernels run in the emulator."""
TOO_FAST = 0.8
"""Share of the time that the unique bytes need at the memory's peak bandwidth, below which a time is not credible."""


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """Settings that results depend on beside the files.

    Attributes:
        tolerance: absolute and relative, of the benchmark.
        seed: of parameters.
        full_s: estimated seconds of a call up to which answers are compared at larger sizes, too.
        timeout_s: for one request.
        timing: False keeps candidates from being timed on a GPU.
    """

    tolerance: tuple[float, float] = (1e-2, 1e-2)
    seed: int = 42
    full_s: float = 2.0
    timeout_s: float = 600.0
    timing: bool = True

    def audit_key(self, task: BenchmarkTask) -> str:
        """Returns the hash under which an audit is stored."""
        return key_of([task.path], {"tolerance": self.tolerance, "seed": self.seed, "full_s": self.full_s})

    def candidate_key(self, task: BenchmarkTask, candidate: Path, device: str) -> str:
        """Returns the hash under which a candidate's verdict is stored."""
        settings = {"task": self.audit_key(task), "device": device, "timing": self.timing}
        return key_of(list(own_files(candidate)), settings)


class BenchmarkRunner:
    """Audits tasks and judges candidates; a context manager that ends its processes."""

    def __init__(self, settings: BenchmarkSettings) -> None:
        self._settings = settings
        self._process: ModuleProcess | None = None
        self._folder: Path | None = None
        self._gpu: str | None = None

    def __enter__(self) -> BenchmarkRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process."""
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.__exit__(None, None, None)
        self._process = None

    def _judging(self, folder: Path) -> ModuleProcess:
        """Returns the process for tasks of a folder, in which no candidate runs."""
        if self._process is None or self._folder != folder:
            self._end()
            self._process, self._folder = (
                ModuleProcess(folder, self._settings.timeout_s, "kernelbench", gpu=True),
                folder,
            )
        return self._process

    def gpu(self, folder: Path) -> str:
        """Returns the name of the GPU that PyTorch can use; empty without one.

        Raises:
            EnvironmentFailed: PyTorch is missing.
        """
        if self._gpu is None:
            self._gpu = self._judging(folder).ask({"do": "gpu"}, str)
        return self._gpu

    def audit(self, task: BenchmarkTask) -> TaskAudit:
        """Returns the audit of a task.

        Raises:
            EnvironmentFailed: PyTorch is missing.
        """
        asked = {
            "do": "audit", "task": str(task.path), "seed": self._settings.seed, "tolerance": self._settings.tolerance,
            "full_s": self._settings.full_s,
        }  # fmt: skip
        try:
            return self._judging(task.path.parent).ask(asked, TaskAudit)
        except InputError as error:
            self._end()  # it may be hung, or gone
            return TaskAudit(failed=_text(error))

    def judge(self, task: BenchmarkTask, candidate: Path, audit: TaskAudit) -> CandidateVerdict:
        """Returns the verdict on a candidate, with times on a GPU.

        Raises:
            EnvironmentFailed: PyTorch is missing.
        """
        gpu = self.gpu(task.path.parent)
        emulated = _prepared_kernels(candidate, gpu) and not gpu
        judging = self._judging(task.path.parent)
        name = candidate.name if candidate.name != "model_new.py" else f"{candidate.parent.name}/model_new.py"
        asked = {
            "do": "prepare", "task": str(task.path), "seed": self._settings.seed, "tolerance": self._settings.tolerance,
            "run_s": None if gpu else RUN_S, "most_bytes": EMULATED_BYTES if emulated else None, "folder": str(judging.scratch),
        }  # fmt: skip
        try:
            prepared = judging.ask(asked, PreparedTask)
            with ModuleProcess(task.path.parent, self._settings.timeout_s, "kernelbench", gpu=True) as running:
                run = self._run(running, task, candidate, prepared)
                if isinstance(run, TaskFinding):
                    return CandidateVerdict(name, False, False, findings=(run,))
                judged = {"do": "judge", "candidate": str(candidate), "task": str(task.path), "file": name, "run": run}
                verdict = judging.ask(judged, CandidateVerdict)
        except InputError as error:
            self._end()
            return CandidateVerdict(name, findings=(TaskFinding("partly-audited", "note", f"It was not judged: {_text(error)}"),))  # fmt: skip
        if gpu and verdict.passes and self._settings.timing:
            return self._timed(task, candidate, verdict, audit, gpu)
        return verdict

    def _run(
        self, process: ModuleProcess, task: BenchmarkTask, candidate: Path, prepared: PreparedTask
    ) -> CandidateRun | TaskFinding:
        """Returns the run of a candidate; its results stay in files in its process's scratch folder."""
        asked = {
            "do": "run", "task": str(task.path), "candidate": str(candidate), "seed": self._settings.seed,
            "limit": prepared.limit, "cases": prepared.cases, "scratch": str(process.scratch),
        }  # fmt: skip
        return _answer_of(process, asked, CandidateRun)

    def _timed(
        self, task: BenchmarkTask, candidate: Path, verdict: CandidateVerdict, audit: TaskAudit, gpu: str
    ) -> CandidateVerdict:
        """Returns a verdict with the times that a process of its own measured."""
        self._end()  # its memory on the GPU
        asked = {
            "do": "time", "task": str(task.path), "candidate": str(candidate), "seed": self._settings.seed,
            "tolerance": self._settings.tolerance,
        }  # fmt: skip
        with ModuleProcess(task.path.parent, self._settings.timeout_s, "kernelbench", gpu=True) as process:
            timed = _answer_of(process, asked, TimedCandidate)
        if isinstance(timed, TaskFinding):
            return msgspec.structs.replace(
                verdict, right=False, findings=ordered([*verdict.findings, timed]), device=gpu
            )
        return with_times(verdict, timed, audit)


def with_times(verdict: CandidateVerdict, timed: TimedCandidate, audit: TaskAudit) -> CandidateVerdict:
    """Returns a verdict with times, speed-ups, share of the roof, and what the timing found."""
    findings = [*verdict.findings, *(one for one in timed.findings if one not in verdict.findings)]
    blocks = {one.version: one.blocks for one in timed.versions}
    time_us: float | None = None
    share: float | None = None
    speeds: dict[str, Speed] = {}
    if "new" in blocks:
        time_us = time_of(blocks["new"])[0]
        for name, own in blocks.items():
            if name != "new":
                ratio = ratio_of(own, blocks["new"])
                speeds[name] = Speed(ratio.median, *ratio.ci95, time_of(own)[0])
        floor_us, bytes_us = _floors_us(timed.device, audit)
        share = None if floor_us is None else floor_us / time_us
        if bytes_us is not None and time_us < TOO_FAST * bytes_us:
            findings.append(TaskFinding("sub-physical-time", "error", f"{time_us:.3g} us is less than the {bytes_us:.3g} us that inputs, parameters and results take at the memory's peak bandwidth."))  # fmt: skip
    findings += [TaskFinding("partly-audited", "note", f"{name} has no time: {why}.") for name, why in timed.skipped.items() if name != "new"]  # fmt: skip
    right = bool(verdict.right) and not any(one.severity == "error" for one in findings)
    return msgspec.structs.replace(
        verdict, right=right, findings=ordered(findings), time_us=time_us, speeds=speeds, roof_share=share, device=timed.device
    )  # fmt: skip


def _floors_us(device: str, audit: TaskAudit) -> tuple[float | None, float | None]:
    """Returns the least time of a task on a GPU by bytes and float32 arithmetic, and by bytes alone; None if unknown."""
    from kernelmate.compiler import find_target
    from kernelmate.measure.calibration import roofs_of

    if audit.unique_bytes is None or audit.flops is None:
        return None, None
    try:
        roofs = roofs_of(find_target(device))
    except UsageError:
        return None, None
    bytes_us = audit.unique_bytes / (roofs.dram_gbps * 1e3)
    return max(bytes_us, audit.flops / (roofs.tflops["fp32"] * 1e6)), bytes_us


_Answer = TypeVar("_Answer")


def _answer_of(process: ModuleProcess, asked: dict[str, Any], kind: type[_Answer]) -> _Answer | TaskFinding:
    """Returns the answer of a candidate's process, or the finding that it gave none."""
    try:
        return process.ask(asked, kind)
    except InputError as error:
        text = _text(error)
        return TaskFinding("hang" if "did not finish" in text else "crash", "error", text)
    except msgspec.MsgspecError:
        return TaskFinding("crash", "error", "The candidate's process gave an answer that cannot be read.")


def _text(error: InputError) -> str:
    return f"{error.message}{f' (line {error.line})' if error.line else ''}"


def _prepared_kernels(candidate: Path, gpu: str) -> bool:
    """Compiles the kernels that `kernelmate port` wrote beside a candidate, which its process cannot; returns True if it has any."""
    kernels = sorted((candidate.parent / "kernels").glob("*.cu")) if candidate.name == "model_new.py" else []
    if not kernels:
        return False
    from kernelmate.compiler import find_target
    from kernelmate.source import contract_for, load_kernel
    from kernelmate_torch.compiling import compiled_operator

    architecture = find_target(gpu).arch if gpu else None
    for path in kernels:
        with contextlib.suppress(InputError):  # its own process says what is wrong with it
            kernel = load_kernel(str(path))
            compiled_operator(kernel, contract_for(kernel), architecture)
    return True


def result_of(
    runner: BenchmarkRunner, settings: BenchmarkSettings, task: BenchmarkTask, candidate: Path | None, kept: BenchmarkedTask | None,
    on_step: Callable[[str], None],
) -> BenchmarkedTask:  # fmt: skip
    """Returns the result of a task; a stored result of the same contents and settings is used again."""
    key = settings.audit_key(task)
    if kept is not None and kept.key == key:
        audit = kept.audit
    else:
        kept = None
        on_step("audit")
        audit = runner.audit(task)
    if candidate is None:
        return BenchmarkedTask(task.name, key, audit, None, "", settings.tolerance)
    candidate_key = settings.candidate_key(task, candidate, runner.gpu(task.path.parent))
    if kept is not None and kept.candidate_key == candidate_key:
        return kept
    on_step("candidate")
    verdict = runner.judge(task, candidate, audit)
    return BenchmarkedTask(task.name, key, audit, verdict, candidate_key, settings.tolerance)
