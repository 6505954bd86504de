"""The library for a GPU, with a stand-in for the driver and CUPTI that calls it back as they do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelmate
from kernelmate.capture.contract import captured_contract
from kernelmate.capture.files import finished_contract, with_contract, write_files
from kernelmate.capture.injection import CUPTI_VARIABLE, built_library, header_folders
from kernelmate.capture.records import Capture, CaptureSettings, read_capture
from kernelmate.errors import EnvironmentFailed
from kernelmate.source import file_text, load_kernel
from kernelmate.source.render import argument_text

DATA = Path(__file__).resolve().parents[2] / "data" / "capture"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, in a folder where it is libcuda.so.1."""
    try:
        folders = header_folders()
    except EnvironmentFailed as error:
        pytest.skip(f"{error.message} {error.hint}")
    if shutil.which("cc") is None:
        pytest.skip("There is no C compiler.")
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    include = [f"-I{folder}" for folder in folders]
    subprocess.run(["cc", "-shared", "-fPIC", *include, str(DATA / "driver.c"), "-o", str(library)], check=True)
    return library


def run(folder: Path, driver: Path, *arguments: str, status: int = 0, **settings: int) -> Capture:
    folder.mkdir(exist_ok=True)
    given = CaptureSettings(folder, "scale", **settings)
    environment = {
        **os.environ,
        **given.environment(),
        CUPTI_VARIABLE: str(driver),
        "LD_LIBRARY_PATH": str(driver.parent),
    }
    command = [sys.executable, str(DATA / "driver_program.py"), str(built_library()), str(driver), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, "")
    return read_capture(folder, given.shapes)


def test_launches_are_recorded_by_each_call_of_the_driver(tmp_path: Path, driver: Path) -> None:
    capture = run(tmp_path, driver, "ways")
    assert capture.damaged == ()
    assert [launch.grid[0] for launch in capture.launches] == [2, 2, 2, 2]
    assert [launch.cooperative for launch in capture.launches] == [False, False, True, False]
    assert [launch.cluster for launch in capture.launches] == [None, (2, 1, 1), None, None]
    for n, launch in zip(range(100, 104), capture.launches, strict=True):
        x, y, a, size = launch.parameters
        assert x.buffer is not None
        assert y.buffer is not None
        before = np.fromfile(x.buffer.before, np.float32)
        assert np.array_equal(before, np.random.default_rng(n).random(n, np.float32))
        assert not x.buffer.changed
        assert np.array_equal(np.fromfile(y.buffer.after, np.float32), 2 * before)
        assert (np.frombuffer(a.passed, np.float32)[0], np.frombuffer(size.passed, np.int32)[0]) == (2, n)
        assert (launch.kernel, launch.block, launch.emulated) == ("_Z5scalePKfPffi", (64, 1, 1), False)
    assert capture.outcomes == {"recorded": 4, "graph": 1}
    assert capture.names == ("_Z5scalePKfPffi", "other", "(a CUDA graph)")
    (code,) = tmp_path.glob("*.cubin")
    assert code.read_bytes() == b"..text.scale.."


def test_a_contract_of_a_gpus_records_replays(tmp_path: Path, driver: Path) -> None:
    capture = run(tmp_path / "launches", driver, "sizes", "28")
    source = tmp_path / "scale.cu"
    shutil.copy(DATA / "numba_scale.cu", source)
    kernel = load_kernel(str(source))
    made = captured_contract(kernel, capture)
    assert [argument_text(one) for one in made.contract.args] == [
        "in float32[n] align 16", "out float32[n] align 16", "float32 = 2.0 fixed", "int32",
    ]  # fmt: skip
    assert any(one.startswith("x: its buffers go up to 28 elements beyond [n]") for one in made.notes)
    write_files(tmp_path, made, kernel, "program", {})
    source.write_text(file_text(with_contract(kernel, finished_contract(made, tmp_path, tmp_path))))
    (verdict,) = kernelmate.bench(source, backend="emulator", seed=3)
    assert all(case.correct for case in verdict.cases)


def test_sampling_and_the_bound_by_shape(tmp_path: Path, driver: Path) -> None:
    assert run(tmp_path / "a", driver, "sizes", "0", every=3).outcomes == {"recorded": 2, "sampled": 2}
    assert run(tmp_path / "b", driver, "sizes", "0", shapes=1).outcomes == {"recorded": 2, "enough": 2}


def test_buffers_over_the_limit_are_recorded_in_part_and_said_to_be(tmp_path: Path, driver: Path) -> None:
    """Allocations of PyTorch hold many tensors: only the part that fits the limit is copied."""
    capture = run(tmp_path, driver, "sizes", "5000", limit=8000)
    buffers = [one.buffer for launch in capture.launches for one in launch.parameters if one.buffer is not None]
    assert {(one.extent - one.bytes > 0, one.bytes) for one in buffers} == {(True, 4000)}
    made = captured_contract(load_kernel(str(DATA / "numba_scale.cu")), capture)
    assert argument_text(made.contract.args[0]) == "in float32[n] align 16"


def test_a_killed_program_leaves_whole_records(tmp_path: Path, driver: Path) -> None:
    capture = run(tmp_path, driver, "killed", status=-9)
    assert capture.damaged == ()
    assert capture.outcomes == {"recorded": 2}
    assert [json.loads((one.folder / "launch.json").read_text())["number"] for one in capture.launches] == [0, 1]


def test_a_missing_compiler_or_header_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(EnvironmentFailed, match="needs a C compiler, and there is none here") as raised:
        built_library()
    assert raised.value.exit_code == 3
    assert "Install gcc or clang" in (raised.value.hint or "")
    monkeypatch.setattr("kernelmate.capture.injection._places", lambda: iter([tmp_path]))
    with pytest.raises(EnvironmentFailed, match=r"needs cuda\.h, cupti\.h, generated_cuda_meta\.h") as raised:
        header_folders()
    assert "nvidia-cuda-cupti" in (raised.value.hint or "")


def test_a_compiler_that_fails_is_told_with_what_it_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: Path) -> None:  # fmt: skip
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'injection.c:1: error: broken' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentFailed, match=r"does not compile: injection\.c:1: error: broken"):
        built_library()
    assert list((tmp_path / "cache").iterdir()) == []
