"""`kernelmate capture` on real programs without a GPU, whose contracts bench then judges."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kernelmate
from kernelmate.capture.records import read_capture
from kernelmate.cli.capture import partial_folder

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "tests" / "data" / "capture"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def command(kernel: str, program: str, *options: str) -> list[str]:
    ran = [sys.executable, str(PROGRAMS / program)]
    return [sys.executable, "-m", "kernelmate", "capture", kernel, "--backend", "emulator", *options, "--", *ran]


def captured(folder: Path, kernel: str, program: str, *options: str, status: int = 0) -> dict[str, Any]:
    """Runs the command in a folder, and returns its document."""
    done = subprocess.run(
        command(kernel, program, "--json", *options), cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document["captured"] if "captured" in document else document["error"]


def assert_judged_right(kernel: str | Path) -> bool:
    (verdict,) = kernelmate.bench(kernel, backend="emulator", seed=5)
    return verdict.correct is True and all(one.correct and one.max_error == 0 for one in verdict.cases)


@pytest.mark.parametrize(
    ("kernel", "program", "lines"),
    [
        ("saxpy", "saxpy.py", ['grid = "cdiv(n, block)"', 'x = "in float32[n] align 16"', 'y = "inout float32[n] align 16"', 'a = "float32 = 2.0 fixed"', "weights = [3, 3, 3]"]),
        ("softmax", "softmax.py", ['grid = "rows"', "shared = 512", 'instances = ["softmax<float>"]', 'y = "out float32[rows, cols] align 16"', 'scale = "float32 = cols ** -0.5"']),
        ("matmul", "matmul.py", ['grid = ["cdiv(n, block_x)", "cdiv(m, block_y)"]', "block = [16, 8]", 'a = "in float32[m, k] align 16"', 'b = "in float32[k, n] align 16"', 'c = "out float32[m, n] align 16"']),
        ("histogram", "histogram.py", ['grid = "min(cdiv(n, block), 16)"', 'data = "in uint8[n] align 16"', 'bins = "inout uint32[256] align 16"']),
    ],
)  # fmt: skip
def test_a_cupy_program_gives_a_contract_that_replays(tmp_path: Path, kernel: str, program: str, lines: list[str]) -> None:  # fmt: skip
    document = captured(tmp_path, kernel, program)
    assert [line for line in lines if f"// {line}\n" not in document["contract"]] == []
    assert document["notes"] == []
    assert assert_judged_right(tmp_path / f"{kernel}.captured" / f"{kernel}.cu")


def test_a_triton_program_gives_a_contract_above_its_function(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: make train-tools")
    pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")
    program = tmp_path / "triton_add.py"
    shutil.copy(PROGRAMS / program.name, program)
    ran = [*command("add", program.name, "--write", "--json")[:-1], str(program)]
    done = subprocess.run(ran, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = program.read_text()
    for line in ('grid = "cdiv(n, BLOCK)"', 'out_ptr = "out float32[n] align 16"', 'alpha = "float32 = 2.0 fixed"'):
        assert f"# {line}\n" in text
    assert "# block" not in text
    assert assert_judged_right(program)


def test_a_numba_program_gives_a_contract_for_the_same_kernel_in_cuda(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="Numba is not installed: pip install numba")
    source = tmp_path / "scale.cu"
    shutil.copy(PROGRAMS / "numba_scale.cu", source)
    document = captured(tmp_path, "scale", "numba_scale.py", "--source", str(source), "--write")
    assert '// y = "inout float32[n] align 16"' in document["contract"] or '// y = "out float32[n]' in document["contract"]  # fmt: skip
    assert assert_judged_right(source)


def test_a_contract_is_written_into_the_string_of_a_python_file(tmp_path: Path) -> None:
    program = tmp_path / "saxpy.py"
    shutil.copy(PROGRAMS / "saxpy.py", program)
    document = captured(tmp_path, "saxpy", "saxpy.py", "--source", str(program), "--write")
    assert str(program) in document["written"]
    assert '// reference = "saxpy.captured/reference.py:expected"' in program.read_text()
    assert assert_judged_right(program)


def test_relations_that_are_not_there_are_said_not_to_be(tmp_path: Path) -> None:
    document = captured(tmp_path, "decay", "unrelated.py")
    assert '// grid = "grid_x"\n' in document["contract"]
    assert '// rate = "float32 = 0.9 if launch == 0 else 0.5"\n' in document["contract"]
    assert "// weights = [1, 1, 1, 1, 1, 1, 1, 1]\n" in document["contract"]
    assert document["notes"][:2] == [
        "no relation of grid.x to other sizes was found: it is the size grid_x",
        "no relation of rate to sizes was found: the size launch indexes their values",
    ]


def test_a_program_that_fails_keeps_its_status_and_what_was_recorded(tmp_path: Path) -> None:
    document = captured(tmp_path, "fill", "fails.py", status=1)
    assert document["outcomes"] == {"recorded": 2, "failed": 1}
    assert "the program ended with status 1; what was recorded until then is kept" in document["notes"]
    assert document["program"]["status"] == 1
    assert (tmp_path / "fill.captured" / "fill.cu").exists()


@pytest.mark.parametrize(
    "launch",
    [
        "cp.RawKernel('extern \"C\" __global__ void f(int* x) { x = 1.5; }', 'f')((1,), (4,), (x,))",
        "cp.RawKernel('extern \"C\" __global__ void f(int* x) { x[threadIdx.x] = 1; }', 'f')((1,), (2,), (x[::2],))",
    ],
    ids=["does not compile", "a view with gaps"],
)
def test_launches_that_are_refused_count_as_failed(tmp_path: Path, launch: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import cupy as cp\nx = cp.zeros(4, cp.int32)\n{launch}\n")
    error = captured(tmp_path, "f", str(program), status=2)
    assert error["message"] == "No launch of f was recorded: 1 failed (it ended with status 1)."
    assert error["hint"] == "Run it with code that compiles, and with inputs that the kernel accepts."


def test_a_kernel_that_is_never_launched_is_told_with_those_that_were(tmp_path: Path) -> None:
    error = captured(tmp_path, "saxpi", "saxpy.py", status=2)
    assert error["message"] == "saxpy.py never launched saxpi."
    assert error["hint"] == "It launched saxpy."
    assert list(tmp_path.iterdir()) == []


def test_buffers_over_the_limit_are_not_recorded_and_counted(tmp_path: Path) -> None:
    error = captured(tmp_path, "saxpy", "saxpy.py", "--limit", "1K", status=2)
    assert error["message"] == "No launch of saxpy was recorded: 9 with buffers over --limit."
    document = captured(tmp_path, "saxpy", "saxpy.py", "--limit", "16K")
    assert document["outcomes"] == {"recorded": 6, "large": 3}
    assert "not all launches could be recorded: 3 with buffers over --limit" in document["notes"]
    assert [one["size"] for one in document["sizes"]] == [{"n": 1000}, {"n": 333}]


def test_launches_are_sampled_and_limited_by_shape(tmp_path: Path) -> None:
    document = captured(tmp_path, "saxpy", "saxpy.py", "--every", "2", "--shapes", "1")
    assert document["outcomes"] == {"recorded": 3, "sampled": 4, "enough": 2}
    assert {one["launches"] for one in document["sizes"]} == {3}


def test_an_earlier_capture_is_replaced_only_when_asked(tmp_path: Path) -> None:
    captured(tmp_path, "saxpy", "saxpy.py")
    assert "holds a capture" in captured(tmp_path, "saxpy", "saxpy.py", status=2)["message"]
    captured(tmp_path, "saxpy", "saxpy.py", "--force", "--shapes", "1")
    assert len(list((tmp_path / "saxpy.captured" / "launches").glob("*/launch.json"))) == 3
    (tmp_path / "other").mkdir()
    error = captured(tmp_path, "saxpy", "saxpy.py", "--to", "other", "--force", status=2)
    assert error["message"] == "other exists and is not a capture."


def begun(folder: Path, *options: str) -> tuple[subprocess.Popen[str], int, Path]:
    """Starts a capture of an endless program; returns it, the program's process, and its records once there are some."""
    process = subprocess.Popen(
        command("ramp", "endless.py", "--json", *options), cwd=folder, env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    while True:
        found = [one for one in folder.glob(".*/launches/*.log") if "recorded" in one.read_text()]
        if found:
            return process, int(found[0].stem), found[0].parent
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_recorded_before_the_program_is_ended_is_kept(tmp_path: Path, number: signal.Signals) -> None:
    process, program, _ = begun(tmp_path)
    os.kill(program if number == signal.SIGKILL else process.pid, number)
    document = json.loads(process.communicate()[0])["captured"]
    assert process.returncode == 128 + number
    assert document["program"]["signal"] == number.name or document["program"]["interrupted"]
    assert document["outcomes"]["recorded"] >= 1
    folder = tmp_path / "ramp.captured"
    assert not list((folder / "launches").glob("*/*.part"))
    complete = read_capture(folder / "launches", 4)
    assert complete.damaged == ()
    assert (folder / "reference.py").exists()


def test_a_command_that_is_killed_leaves_no_partial_record(tmp_path: Path) -> None:
    process, program, records = begun(tmp_path)
    process.kill()
    process.communicate()
    os.kill(program, signal.SIGKILL)
    assert not (tmp_path / "ramp.captured").exists()
    assert read_capture(records, 4).damaged == ()


def test_two_captures_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    options = ("--json", "--to")
    both = [
        subprocess.Popen(command("saxpy", "saxpy.py", *options, to), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
        for to in ("same", "same", "other")
    ]  # fmt: skip
    documents = [json.loads(one.communicate()[0]) for one in both]
    codes = [one.returncode for one in both]
    assert sorted(codes) == [0, 0, 2], "the second to end of two with one folder is told so"
    failed = documents[codes.index(2)]["error"]["message"]
    assert failed == "same holds a capture." or failed.startswith("same cannot be written")
    for to in ("same", "other"):
        assert json.loads((tmp_path / to / "capture.json").read_text())["captured"]["outcomes"] == {"recorded": 9}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "same"]


def test_records_without_a_contract_are_kept_and_used_later(tmp_path: Path) -> None:
    other = tmp_path / "other.cu"
    other.write_text("__global__ void saxpy(float* x, int n) {}")
    error = captured(tmp_path, "saxpy", "saxpy.py", "--source", str(other), status=2)
    assert "has 2 parameters (x, n), and its launches passed 4" in error["message"]
    assert error["hint"].endswith("The records are kept: continue with --from saxpy.captured.")
    again = [sys.executable, "-m", "kernelmate", "capture", "saxpy", "--from", "saxpy.captured", "--json"]
    done = subprocess.run(again, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '// y = "inout float32[n] align 16"' in json.loads(done.stdout)["captured"]["contract"]
    assert (tmp_path / "saxpy.captured" / "saxpy.cu").exists()


def test_records_are_kept_if_ctrl_c_ends_the_command_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saxpy.captured"

    def interrupted() -> None:
        with partial_folder(folder, force=False) as part:
            (part / "launches" / "1-0").mkdir(parents=True)
            (part / "launches" / "1-0" / "launch.json").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (folder / "launches" / "1-0" / "launch.json").exists()
    assert list(tmp_path.iterdir()) == [folder]
    assert f"The records are kept: continue with --from {folder}." in capsys.readouterr().err


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    again = [sys.executable, "-m", "kernelmate", "capture", "saxpy", "--from", "nowhere"]
    done = subprocess.run(again, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "nowhere is not a capture." in done.stderr


def test_a_source_that_cannot_be_used_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    error = captured(tmp_path, "saxpy", "saxpy.py", "--source", "missing.cu", status=2)
    assert error["message"] == "There is no such file."
    error = captured(tmp_path, "saxpy", "saxpy.py", "--limit", "much", status=2)
    assert "is not a number of bytes" in error["message"]
