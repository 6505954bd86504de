"""Answers the requests to the confined process: audit of a task, preparation, run, judgement and timing of a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from kernelmate_torch.kernelbench.audit import audit_task
from kernelmate_torch.kernelbench.audited_task import Subject, affordable, size_facts
from kernelmate_torch.kernelbench.candidate_run import answer_run
from kernelmate_torch.kernelbench.judging import CandidateJudge
from kernelmate_torch.kernelbench.records import (
    CandidateRun,
    CandidateVerdict,
    PreparedTask,
    TaskAudit,
    TimedCandidate,
)
from kernelmate_torch.kernelbench.tampering import text_findings
from kernelmate_torch.loading import Refusal
from kernelmate_torch.program import ModuleFailure

Answer = TaskAudit | PreparedTask | CandidateRun | CandidateVerdict | TimedCandidate | str | ModuleFailure


class BenchmarkServer:
    """Answers requests; it keeps the task whose candidate was prepared last."""

    def __init__(self) -> None:
        self._judge: CandidateJudge | None = None

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """Returns the answer to one request, or the reason why there is none."""
        try:
            match request["do"]:
                case "audit":
                    return audit_task(Path(request["task"]), request["seed"], _pair(request), request["full_s"])
                case "prepare":
                    return self._prepare(request)
                case "run":
                    return answer_run(request)
                case "judge":
                    assert self._judge is not None
                    found = text_findings(Path(request["candidate"]), Path(request["task"]))
                    run = msgspec.convert(request["run"], CandidateRun)
                    run = msgspec.structs.replace(run, findings=(*found, *run.findings))
                    return self._judge.judge(run, request["file"])
                case "gpu":
                    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""
                case _:
                    from kernelmate_torch.kernelbench.timing import answer_timing

                    return answer_timing(request)
        except Refusal as refusal:
            return refusal.failure

    def _prepare(self, request: Mapping[str, Any]) -> PreparedTask:
        """Loads a task at sizes at which it takes up to `run_s` seconds as estimated, and draws the inputs."""
        path, seed = Path(request["task"]), request["seed"]
        limit: int | None = None
        if request["run_s"] is not None or request["most_bytes"] is not None:
            full = size_facts(path, seed, request["most_bytes"])
            chosen = full if full.tape is None or request["run_s"] is None else affordable(path, seed, full, request["run_s"])  # fmt: skip
            limit = chosen.input_bytes if chosen.smaller else None
        self._judge = CandidateJudge(Subject(path, seed, limit, _pair(request)), limit, Path(request["folder"]))
        return self._judge.prepare()


def _pair(request: Mapping[str, Any]) -> tuple[float, float]:
    absolute, relative = request["tolerance"]
    return float(absolute), float(relative)
