"""Runs one of NVIDIA's tools around `launch`, and reports in one line why there is no result."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.records import JudgeTask
from kernelmate.worker.nvidia.launch import LaunchJob

TIMEOUT_S = 60.0
"""Seconds after which a tool is killed. Sanitizers make kernels ten to a hundred times slower."""

WHERE = {
    "compute-sanitizer": "it comes with the CUDA toolkit, and as the wheel nvidia-cuda-sanitizer-api",
    "ncu": "it comes with the CUDA toolkit as Nsight Compute",
}

_ELSEWHERE = ("/opt/nvidia/nsight-compute", "/usr/local/NVIDIA-Nsight-Compute")
"""Folders into which Nsight Compute's own installer installs, one per version."""


class ToolFailed(Exception):
    """A tool gave no result; the message is one line with the reason and the advice."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool. `errors` also holds the standard error of the launching process."""

    text: str
    errors: str
    code: int


def run(tool: str, options: Sequence[str], task: JudgeTask, device: int, *, headline_only: bool = False) -> ToolOutput:
    """Runs a tool around the launches of a task's candidate.

    Args:
        tool: `compute-sanitizer` or `ncu`.
        options: the options of the tool.
        task: the judged version and its launches.
        device: the GPU's number.
        headline_only: launch only at the first size.

    Raises:
        ToolFailed: the tool is absent, does not start, or did not end in time.
    """
    program = locate(tool)
    if program is None:
        raise ToolFailed(f"{tool} is not installed here ({WHERE[tool]}); put its folder on PATH or set CUDA_HOME")
    with tempfile.TemporaryDirectory(prefix="kernelmate-") as folder:
        path = Path(folder) / "task"
        path.write_bytes(msgspec.msgpack.encode(LaunchJob(task, device, headline_only)))
        command = [str(program), *options, sys.executable, "-P", "-m", "kernelmate.worker.nvidia.launch", str(path)]
        return _answer(tool, command, TIMEOUT_S)


def _answer(tool: str, command: Sequence[str], timeout_s: float) -> ToolOutput:
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )  # fmt: skip
    except OSError as error:
        raise ToolFailed(f"{tool} does not start: {error}") from None
    try:
        text, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ToolFailed(
            f"{tool} {_words(command)}did not end within {timeout_s:g} s; judge a smaller size with --size"
        ) from None
    finally:
        _kill(process)
    return ToolOutput(text, errors, process.returncode)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills the tool; its launching process ends with it (`launch.main`). Does nothing if it has ended."""
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)


def _words(command: Sequence[str]) -> str:
    """Returns the name of the requested sanitizer tool."""
    return f"({command[command.index('--tool') + 1]}) " if "--tool" in command else ""


def locate(tool: str) -> Path | None:
    """Returns the path of a tool; None if it is not installed."""
    found = find_tool(tool)
    if found is None and tool == "ncu":
        versions = [path for root in _ELSEWHERE for path in Path(root).glob("*/ncu")]
        found = max(versions, default=None)
    return found
