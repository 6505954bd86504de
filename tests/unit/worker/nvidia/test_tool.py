"""Tools that are absent, slow or broken; programs of our own stand in for NVIDIA's."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.records import JudgeTask, Unit
from kernelmate.worker.nvidia import tool
from kernelmate.worker.nvidia.launch import LaunchJob
from kernelmate.worker.nvidia.sanitizer import conclude
from kernelmate.worker.nvidia.tool import ToolFailed, _answer, locate


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_absent_tool_is_one_line_that_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "locate", lambda name: None)
    with pytest.raises(ToolFailed, match=r"compute-sanitizer is not installed here \(it comes with the CUDA toolkit"):
        tool.run("compute-sanitizer", (), None, 0)  # type: ignore[arg-type]


def test_the_task_reaches_the_process_that_launches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Callable[..., JudgeTask]
) -> None:
    kept = tmp_path / "kept"
    stand_in = program(
        tmp_path, "ncu", f"import shutil, sys; shutil.copy(sys.argv[-1], {str(kept)!r}); print(*sys.argv[1:-1])\n"
    )
    monkeypatch.setattr(tool, "locate", lambda name: stand_in)
    given = replace(task(), sizes=({"n": 1024},), profile=True)
    answer = tool.run("ncu", ("--csv",), given, 3, headline_only=True)
    assert answer.text.split() == ["--csv", sys.executable, "-P", "-m", "kernelmate.worker.nvidia.launch"]
    job = msgspec.msgpack.decode(kept.read_bytes(), type=LaunchJob)
    assert (job.device, job.headline_only) == (3, True)
    assert job.task == given


def test_without_a_gpu_the_launching_process_says_why_and_ends(tmp_path: Path, task: Callable[..., JudgeTask]) -> None:
    if missing_for_gpu() is None:
        pytest.skip("there is a GPU here")
    path = tmp_path / "task"
    path.write_bytes(msgspec.msgpack.encode(LaunchJob(task(), 0, False)))
    answer = _answer("none", [sys.executable, "-P", "-m", "kernelmate.worker.nvidia.launch", str(path)], 120)
    assert answer.code == 2
    assert "The cuda backend cannot run here" in answer.errors
    ((), lines) = conclude({"memcheck": answer}, Unit("k.cu", ""), 1)
    assert lines == (f"compute-sanitizer (memcheck) did not finish (exit code {answer.code}): {answer.errors.splitlines()[-1].strip()[:200]}",)  # fmt: skip


def test_what_a_tool_prints_comes_back(tmp_path: Path) -> None:
    path = program(tmp_path, "good", "import sys; print('said'); print('heard', file=sys.stderr); sys.exit(3)\n")
    answer = _answer("good", [str(path)], 30)
    assert (answer.text, answer.errors, answer.code) == ("said\n", "heard\n", 3)


def test_a_tool_that_does_not_end_is_killed_and_told(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    path = program(
        tmp_path, "slow", f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)\n"
    )
    began = time.monotonic()
    with pytest.raises(
        ToolFailed, match=r"slow \(racecheck\) did not end within 3 s; judge a smaller size with --size"
    ):
        _answer("slow", [str(path), "--tool", "racecheck"], 3)
    assert time.monotonic() - began < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_a_tool_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("no program")
    with pytest.raises(ToolFailed, match="broken does not start"):
        _answer("broken", [str(path)], 3)


def test_a_tool_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "ncu", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = locate("ncu")
    assert found is not None
    assert found.name == "ncu"
