"""`kernelmate trace`: streams, exit status and signals of the program, its processes, requirements, pytest and notebooks."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make train-tools"
)

OPERATOR = """\
import torch

@torch.library.custom_op("rows::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)

def attention(x):
    if x.shape[-1] % 4:
        return torch.softmax(x, -1)
    return softmax(x)
"""

LAYER = """
@torch.library.custom_op("layers::block", mutates_args=())
def block(x: torch.Tensor) -> torch.Tensor:
    for _ in range(20):
        torch.randn(300, 300) @ torch.randn(300, 300)
    return softmax(x)

def step():
    return block(torch.randn(4, 8))

for _ in range(20):
    step()
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
    return {**kept, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "pytorch"))), "OMP_NUM_THREADS": "1"}


def trace(folder: Path, *words: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelmate", "trace", *words]
    return subprocess.run(command, cwd=folder, env=environment() | more, input=given, capture_output=True, text=True, timeout=280)  # fmt: skip


def test_a_program_without_torch_keeps_its_streams_and_status_and_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "import sys\nprint(input().upper())\nprint('aside', file=sys.stderr)\nsys.exit(3)\n"
    )
    done = trace(tmp_path, "--", sys.executable, "plain.py", given="words\n")
    assert (done.returncode, done.stdout) == (3, "WORDS\n")
    assert done.stderr.startswith("aside\n")
    assert "traced: plain.py, exit status 3" in done.stderr
    assert "never imported PyTorch" in done.stderr


CUPY = """\
class RawKernel:
    def __new__(cls, code, name, options=()):
        return object.__new__(cls)

    def __call__(self, grid, block, args):
        pass


class RawModule:
    pass


class Array:
    def __init__(self, size):
        self.dtype, self.shape = "float32", (size,)

    def __mul__(self, number):
        return Array(*self.shape)
"""
"""The part of CuPy that a program uses, whose kernels need a GPU."""

OF_CUPY = """\
import cupy

scale = cupy.RawKernel('extern "C" __global__ void scale(float* x, int n) {}', "scale")


def doubled(x):
    if x.shape[0] % 4 == 0:
        scale((1,), (32,), (x, x.shape[0]))
        return x
    return x * 2


for size in (8, 7, 4):
    doubled(cupy.Array(size))
"""


def test_a_program_of_cupy_alone_is_followed_too(tmp_path: Path) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text(CUPY)
    (tmp_path / "program.py").write_text(OF_CUPY)
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    done = trace(tmp_path, "--require", "scale", "--", sys.executable, "program.py", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "scale (program.py:3): launched (forward 2)" in done.stderr
    assert (
        "program.py:7: scale did not run here: doubled went to line 10 by `x.shape[0] % 4 == 0`, 1 time" in done.stderr
    )
    assert "required: scale: met" in done.stderr


RANKS = (
    OPERATOR
    + """
import torch.distributed as dist

dist.init_process_group("gloo")
softmax(torch.randn(4, 8 + dist.get_rank()))
dist.destroy_process_group()
"""
)


@needs_torch
@pytest.mark.slow
def test_each_rank_of_torchrun_is_named(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(RANKS)
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "step.py")
    done = trace(tmp_path, "--require", "softmax", "--", sys.executable, *run)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f": rank {rank}, -u step.py" in done.stderr
    assert done.stderr.count("rows::softmax (step.py:3): launched (forward 1)") == 2


def test_a_program_that_python_starts_without_hooks_is_told_so(tmp_path: Path) -> None:
    done = trace(tmp_path, "--", sys.executable, "-I", "-c", "print('runs')")
    assert (done.returncode, done.stdout) == (0, "runs\n")
    assert "no Python process of the program was recorded" in done.stderr


@needs_torch
def test_the_processes_in_which_inductor_compiles_are_not_recorded(tmp_path: Path) -> None:
    program = "from torch._inductor.async_compile import AsyncCompile\nprint(AsyncCompile.process_pool().submit(pow, 2, 3).result())\n"
    (tmp_path / "step.py").write_text(program)
    out = tmp_path / "trace.json"
    done = trace(tmp_path, "--out", str(out), "--", sys.executable, "step.py", TORCHINDUCTOR_COMPILE_THREADS="2")
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    (process,) = json.loads(out.read_text())["traced"]["processes"]
    assert process["arguments"][-1] == "step.py"


def test_the_programs_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.of_the_program = 'kept'\n")
    done = trace(tmp_path, "--", sys.executable, "-c", "print(of_the_program)", PYTHONPATH=os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"])))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "kept\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--share", "0.1", "--", "true"), "--share needs --require"),
        (("--", "there-is-no-such-program"), "There is no program 'there-is-no-such-program'"),
        ((), "Missing argument"),
        (("--out", "no/such/folder\0x", "--", "true"), ""),
    ],
)
def test_what_cannot_be_run_is_told(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    if any("\0" in one for one in words):
        (tmp_path / "file").write_text("")
        words = ("--out", "file/trace.json", "--", "true")
        said = "cannot be written"
    done = trace(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr


@needs_torch
def test_requirements_decide_and_json_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(
        OPERATOR
        + "print('output of the program')\nfor columns in (8, 8, 7, 8):\n    attention(torch.randn(4, columns))\n"
    )
    program = (sys.executable, "-m", "package")
    done = trace(tmp_path, "--require", "softmax", "--require", "rms_norm", "--out", "trace.json", "--json", "--", *program)  # fmt: skip
    assert done.returncode == 1
    assert "output of the program" in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "trace.json").read_text())
    traced = document["traced"]
    assert [(one["name"], one["met"]) for one in traced["required"]] == [("softmax", True), ("rms_norm", False)]
    (process,) = traced["processes"]
    (kernel,) = process["kernels"]
    assert (kernel["name"], kernel["launches"], kernel["line"]) == ("rows::softmax", {"forward": 3}, 3)
    assert 0 < kernel["share"]["share"] <= 1
    assert (kernel["share"]["device"], kernel["share"]["worth"]) == ("cpu", None)
    (finding,) = process["findings"]
    assert (finding["line"], finding["count"], finding["guard"]) == (8, 1, "x.shape[-1] % 4")
    assert finding["facts"] == [["x: float32[4, 7]"]]


@needs_torch
def test_a_share_that_is_too_small_fails_and_the_programs_failure_comes_first(tmp_path: Path) -> None:
    """Each call of the operator is inside one of a longer operator, so that its share is small in any sample, even of first calls alone."""
    (tmp_path / "small.py").write_text(OPERATOR + LAYER + "import sys\nsys.exit(len(sys.argv) - 1 and 7)\n")
    done = trace(tmp_path, "--require", "rows::*", "--share", "0.9", "--", sys.executable, "small.py")
    assert done.returncode == 1
    assert "required: rows::*: NOT MET: it has" in done.stderr
    assert "% of the CPU time of the operators, and 90.0 % is required" in done.stderr
    assert "times as fast" not in done.stderr, "without a GPU nothing is called faster"
    assert trace(tmp_path, "--require", "rms", "--", sys.executable, "small.py", "fail").returncode == 7


@needs_torch
@pytest.mark.parametrize("ending", ["SIGINT", "SIGKILL"])
def test_what_ran_before_a_signal_is_reported(tmp_path: Path, ending: str) -> None:
    body = "attention(torch.randn(4, 8))\nimport time\nfor _ in range(3000):\n    attention(torch.randn(4, 8)); print('step', flush=True)\n    time.sleep(0.1)\n"  # fmt: skip
    (tmp_path / "long.py").write_text(OPERATOR + "import os\nopen('pid', 'w').write(str(os.getpid()))\n" + body)
    command = [sys.executable, "-m", "kernelmate", "trace", "--", sys.executable, "long.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "step\n"
        for _ in range(60):
            running.stdout.readline()
        sent = time.monotonic()
        pid = running.pid if ending == "SIGINT" else int((tmp_path / "pid").read_text())
        os.kill(pid, signal.Signals[ending])
        _, said = running.communicate(timeout=200)
    assert time.monotonic() - sent < 100
    assert running.returncode == 128 + signal.Signals[ending]
    assert f"long.py, ended by {ending}" in said
    assert "rows::softmax (long.py:3): launched (forward " in said
    wanted = "the program was interrupted" if ending == "SIGINT" else "was killed by SIGKILL"
    assert wanted in said
    assert not any(one.suffix in (".json", ".part") for one in tmp_path.iterdir())


@needs_torch
def test_pytest_fails_where_no_test_launches_a_required_kernel(tmp_path: Path) -> None:
    (tmp_path / "operators.py").write_text(OPERATOR)
    (tmp_path / "test_rows.py").write_text(
        "import torch\nfrom operators import attention\n\ndef test_rows():\n    assert attention(torch.ones(2, 3)).sum() == 2\n"
    )
    plugin = ["-p", "kernelmate_torch.tracing.pytest_plugin", "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *plugin, "--kernelmate-require", "softmax", "test_rows.py"]
    alone = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "required: softmax: NOT MET: it was never launched" in done.stdout
    assert "operators.py:8: rows::softmax did not run here: attention went to line 9 by `x.shape[-1] % 4`, 1 time" in done.stdout  # fmt: skip


def test_the_plugin_costs_nothing_without_its_options(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert 'torch' not in sys.modules\n"
        "    assert not any('tracing.recording' in one for one in sys.modules)\n    assert sys.gettrace() is None\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "kernelmate_torch.tracing.pytest_plugin", "-q", "test_nothing.py"]
    alone = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert "kernels" not in done.stdout


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_the_magic_reports_on_a_cell_alone(tmp_path: Path) -> None:
    cells = [
        "%load_ext kernelmate_torch",
        OPERATOR + "attention(torch.randn(4, 8))",
        "%%kernelmate_trace --require softmax\nfor columns in (8, 6, 5):\n    attention(torch.randn(4, columns))",
        "%%kernelmate_trace --require softmax\nattention(torch.randn(4, 8)), attention(torch.randn(4, 12))",
    ]
    program = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
    program += "".join(f"print('cell {number}')\nassert shell.run_cell({cell!r}).success\n" for number, cell in enumerate(cells))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment() | {"IPYTHONDIR": str(tmp_path)}, capture_output=True, text=True, timeout=280)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.partition("cell 2")[2].split("cell 3")
    assert "launched (forward 1)" in first
    assert "did not run here: attention went to line 9 by `x.shape[-1] % 4`, 2 times" in first
    assert "launched (forward 2)" in second
    assert "did not run" not in second
    assert "required: softmax: met" in second
