"""Runs a candidate's `ModelNew` on inputs that another process drew, and keeps what it returns. Never compares.

The process holds the task's file, for the arguments of the constructor and the parameters, but no answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelmate_torch.kernelbench.audited_task import Subject, tensors_of
from kernelmate_torch.kernelbench.exchange import digest, read_tensor, tensors_in, write_tensor
from kernelmate_torch.kernelbench.records import CandidateRun, CaseFiles, CaseResult, TaskFinding
from kernelmate_torch.kernelbench.tampering import PytorchSnapshot
from kernelmate_torch.loading import MODULE_NAME, module_of, refusal_of

GPU_WORDS = ("cuda", "nvidia", "gpu", "triton", "nvcc")
"""Words of an error that say, on a machine without a GPU, that the candidate needs one."""
LEFT_S = 1e-4
"""Seconds of work on other streams, after the current one is done, from which it counts as left behind."""


class LoadFailed(Exception):
    """The candidate cannot be loaded; the message says why."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def make_candidate(path: Path, subject: Subject, device: torch.device) -> tuple[torch.nn.Module, list[TaskFinding]]:
    """Returns a candidate's module with the task's parameters, and a note where it does not take them.

    Raises:
        LoadFailed: the file cannot be imported, has no `ModelNew`, or its constructor raises.
    """
    sys.path.insert(0, str(path.parent))
    try:
        made = getattr(module_of(path, "kernelmate_candidate"), "ModelNew", None)
        if made is None:
            raise LoadFailed("The file defines no ModelNew.")
        torch.manual_seed(subject.seed)
        make = getattr(sys.modules[MODULE_NAME], "get_init_inputs", None)
        new = made(*(tuple(make()) if callable(make) else ()))
    except LoadFailed:
        raise
    except BaseException as error:  # noqa: BLE001 -- also sys.exit of the candidate
        failure = refusal_of(error, path, "ModelNew cannot be made").failure
        raise LoadFailed(failure.message, failure.line or 0) from None
    finally:
        sys.path.remove(str(path.parent))
    if not isinstance(new, torch.nn.Module):
        raise LoadFailed("ModelNew is not a torch.nn.Module.")
    notes: list[TaskFinding] = []
    try:
        new.load_state_dict(subject.loaded.model.state_dict())
    except Exception as error:  # noqa: BLE001 -- keys or shapes that differ, or a load_state_dict of its own
        text = next((line.strip().rstrip(".:") for line in str(error).splitlines()[1:] if line.strip()), str(error))
        notes.append(TaskFinding("not-loaded", "note", f"ModelNew does not take the task's state dict ({text}); its parameters are those of the same seed."))  # fmt: skip
    return new.to(device).train(), notes


def run_candidate(
    path: Path, subject: Subject, cases: Sequence[CaseFiles], scratch: Path, device: torch.device
) -> CandidateRun:
    """Returns the results of `ModelNew` for each case, and for the first one again at the end.

    Args:
        path: the candidate's file.
        subject: the task, for the constructor's arguments and the parameters.
        cases: the calls to make.
        scratch: the folder that results are written to.
        device: where it runs.
    """
    watched = PytorchSnapshot()
    try:
        new, findings = make_candidate(path, subject, device)
    except LoadFailed as error:
        return _stopped(str(error), error.line, device)
    held: list[Any] = []
    kept: list[CaseResult] = []
    before: tuple[torch.Tensor, ...] = ()
    left_behind = 0
    for number, case in enumerate([*cases, cases[0]]):
        inputs = held = _inputs(held, case, subject, device)
        torch.manual_seed(subject.seed)
        try:
            with torch.no_grad():
                outputs = tensors_of(new(*inputs))
        except BaseException as error:  # noqa: BLE001 -- whatever the candidate raises is reported
            failure = refusal_of(error, path, "ModelNew raised").failure
            if _needs_gpu(failure.message, device):
                return _stopped(failure.message, failure.line or 0, device)
            kept.append(CaseResult(error=failure.message, line=failure.line or 0))
            break
        left_behind += device.type == "cuda" and _work_left()
        if before:
            kept[-1] = _with_late(kept[-1], before)
        files = tuple(write_tensor(one, scratch / f"result_{number}_{place}") for place, one in enumerate(outputs))
        kept.append(CaseResult(files, tuple(digest(one) for one in tensors_in(inputs))))
        findings += _aliases(outputs, inputs, new) if number == 0 else []
        before = outputs
    if left_behind >= len(cases) / 2:
        findings.append(TaskFinding("side-stream", "error", f"In {left_behind} of {len(cases) + 1} calls work was left on another stream when the current one was done."))  # fmt: skip
    return CandidateRun(tuple(kept), (*findings, *watched.findings()))


def _needs_gpu(message: str, device: torch.device) -> bool:
    return device.type == "cpu" and any(word in message.lower() for word in GPU_WORDS)


def _stopped(message: str, line: int, device: torch.device) -> CandidateRun:
    """Returns the answer where a candidate cannot be run: it needs a GPU that is not there, or it cannot be loaded."""
    if _needs_gpu(message, device):
        return CandidateRun(findings=(TaskFinding("needs-gpu", "note", message, line),), needs_gpu=True)
    return CandidateRun(findings=(TaskFinding("not-loaded", "error", message, line),))


def _inputs(held: Sequence[Any], case: CaseFiles, subject: Subject, device: torch.device) -> list[Any]:
    """Returns the inputs of a case, in the memory of the last case's where they fit: an answer kept by address is wrong."""
    given = list(subject.loaded.inputs)
    for place, dtype, shape, file in case.tensors:
        value = read_tensor(dtype, shape, file).to(device)
        old = held[place] if held else None
        if isinstance(old, torch.Tensor) and old.shape == value.shape and old.dtype == value.dtype:
            old.copy_(value)
            value = old
        given[place] = value
    return given


def _with_late(result: CaseResult, outputs: Sequence[torch.Tensor]) -> CaseResult:
    return CaseResult(result.outputs, result.inputs, tuple(digest(one) for one in outputs))


def _work_left() -> bool:
    """Returns True if the device is still busy for some time after the current stream is done."""
    event = torch.cuda.Event()
    event.record()
    event.synchronize()
    began = time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter() - began > LEFT_S


def _aliases(outputs: Sequence[torch.Tensor], inputs: Sequence[Any], new: torch.nn.Module) -> list[TaskFinding]:
    places = {one.untyped_storage().data_ptr(): "an input" for one in tensors_in(inputs)}
    places |= {one.untyped_storage().data_ptr(): f"the parameter {name}" for name, one in new.named_parameters()}
    places |= {one.untyped_storage().data_ptr(): f"the buffer {name}" for name, one in new.named_buffers()}
    shared = [places[one.untyped_storage().data_ptr()] for one in outputs if one.untyped_storage().data_ptr() in places and one.numel()]  # fmt: skip
    return [TaskFinding("aliased-output", "error", f"A result shares memory with {one}.") for one in shared[:1]]


def answer_run(request: Mapping[str, Any]) -> CandidateRun:
    """Returns the answer to the request to run a candidate; its keys are those of `run_candidate` and of `Subject`."""
    import msgspec

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    subject = Subject(Path(request["task"]), request["seed"], request["limit"], (0.0, 0.0))
    cases = [msgspec.convert(one, CaseFiles) for one in request["cases"]]
    return run_candidate(Path(request["candidate"]), subject, cases, Path(request["scratch"]), device)
