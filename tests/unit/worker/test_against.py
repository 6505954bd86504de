"""The process that runs a computation of PyTorch: its results on the CPU, and a clear word for everything that gives none."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.pipeline_timing import ReplayedVersion
from kernelmate.backends.cuda.torch_timing import ReplayedKernel, TorchVersion
from kernelmate.records import Computation, LaunchShape, Speedup, Timing
from kernelmate.worker.against import run_job
from kernelmate.worker.against_child import AgainstAnswer, AgainstJob

pytest.importorskip("torch")

DOUBLE = "def computation(x, a, **_):\n    return (x * a,)\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def job(computation: Computation, directory: Path, *, dtype: str = "float32", x: np.ndarray = X) -> AgainstJob:
    run = Run(
        LaunchShape((1, 1, 1), (32, 1, 1)),
        (ArrayArgument("x", x), ArrayArgument("y", x), ScalarArgument("a", np.float32(2))),
    )
    return AgainstJob(computation, str(directory), run, {"rows": 2, "a": 2.0}, ("x",), (("y", x.shape, dtype),), None)


def test_the_results_of_a_text_are_returned_and_nothing_is_timed_without_a_gpu(tmp_path: Path) -> None:
    answer, results = run_job(job(Computation("torch", "mul", DOUBLE), tmp_path))
    assert answer.why == "needs a GPU"
    assert answer.timing is None
    assert answer.precision == "TF32 off, 16-bit products summed in float32"
    np.testing.assert_array_equal(results["y"], 2 * X)


def test_tf32_is_said_where_the_tolerance_allows_it(tmp_path: Path) -> None:
    answer, _ = run_job(job(Computation("torch", "mul", DOUBLE, tf32=True), tmp_path))
    assert answer.precision == "TF32 on, 16-bit products summed in float32"


def test_arrays_of_bfloat16_pass_both_ways(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = X.astype(ml_dtypes.bfloat16)
    answer, results = run_job(job(Computation("torch", "mul", DOUBLE), tmp_path, dtype="bfloat16", x=given))
    assert answer.why == "needs a GPU"
    np.testing.assert_array_equal(results["y"], (2 * X).astype(ml_dtypes.bfloat16))


USERS = {
    "def f(x, a):\n    return x * a\n": "needs a GPU",
    "def f(x):\n    raise ValueError('no such mode')\n": "ValueError: no such mode",
    "def f(x):\n    raise ValueError(chr(0xD800) + 'mode')\n": r"ValueError: \\ud800mode",
    "class Odd(Exception):\n    def __str__(self):\n        raise ValueError('none')\n\ndef f(x):\n    raise Odd\n": r"status 1 \(ValueError: none\)",
    "def f(x, weight):\n    return x\n": r"takes weight, and the kernel has no such argument",
    "def f(x):\n    return x, x\n": "returns 2 arrays, and the kernel has 1 outputs",
    "def f(x):\n    return x.double()\n": r"returns float64\[2, 3\] for y, and the kernel has float32\[2, 3\]",
    "def f(x):\n    return x[:, :1]\n": r"returns float32\[2, 1\] for y",
    "def f(x):\n    return 3\n": "returns no tensor for y, but int",
    "def g(x):\n    return x\n": "holds no function f",
    "import os\nos._exit(7)\n": "its process ended with status 7",
    "def f(x):\n    open(OUTSIDE, 'w').write('x')\n    return x\n": "PermissionError",
    "import socket\nsocket.socket()\n": "PermissionError",
}
"""Texts of a user's file, and what is said of the computation."""


@pytest.mark.exhaustive(share=0.4)
@pytest.mark.parametrize("text", USERS)
def test_a_function_of_the_user_runs_confined_and_its_fault_is_said(text: str, tmp_path: Path) -> None:
    outside = tmp_path / "written"
    (tmp_path / "reference.py").write_text(f"OUTSIDE = {str(outside)!r}\n{text}")
    answer, results = run_job(job(Computation("torch", "f", None, "reference.py:f"), tmp_path))
    assert answer.why is not None
    assert re.search(USERS[text], answer.why), answer.why
    assert bool(results) == (USERS[text] == "needs a GPU")
    assert not outside.exists()


LEFT = {
    "os.mkfifo(f'{folder}/answer')": "its process ended with status 0",
    "os.symlink('/dev/zero', f'{folder}/answer')": "its process ended with status 0",
    "pathlib.Path(folder, 'answer').write_bytes(b'{\"more\": ' + b'[' * 60000)": "its process ended with status 0",
    "pathlib.Path(folder, 'answer').write_bytes(b'{}'); open(f'{folder}/result0', 'w').truncate(1 << 42)": None,
}
"""Statements by which a file leaves something else than an answer and results, and the reason that is given."""


@pytest.mark.exhaustive(share=0.5)
@pytest.mark.parametrize("made", LEFT)
def test_files_that_are_no_answer_and_no_results_are_not_read(made: str, tmp_path: Path) -> None:
    text = f"import os, pathlib\n\nfolder = os.environ['TMPDIR']\n{made}\nos._exit(0)\n"
    (tmp_path / "reference.py").write_text(text)
    answer, results = run_job(job(Computation("torch", "f", None, "reference.py:f"), tmp_path))
    assert (answer.why, results) == (LEFT[made], {})


def test_a_function_that_does_not_end_is_killed(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("import time\n\ndef f(x):\n    time.sleep(1000)\n")
    answer, results = run_job(job(Computation("torch", "f", None, "reference.py:f"), tmp_path), limit_s=0.5)
    assert answer.why == "it did not end within 0.5 s"
    assert not results


def test_times_pass_through_the_answers_file_unchanged() -> None:
    timing = Timing("measured", 12.1, (12.0, 12.2), 14.0, None, 400, 1980, False, None, 41, ("a note",))
    answer = AgainstAnswer(None, timing, timing, Speedup("measured", 1.42, (1.40, 1.44)), "TF32 off")
    assert msgspec.json.decode(msgspec.json.encode(answer), type=AgainstAnswer) == answer


def test_versions_of_torch_and_replayed_kernels_stand_among_those_of_a_timer() -> None:
    plain = SimpleNamespace(traps=False)
    assert isinstance(TorchVersion(lambda given: (), {}), ReplayedVersion)
    assert isinstance(ReplayedKernel(plain, LaunchShape((1, 1, 1), (32, 1, 1))), ReplayedVersion)
    assert not isinstance(plain, ReplayedVersion)
