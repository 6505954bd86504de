"""`kernelmate write`: kernels from functions alone, judged right, and ready for the other commands."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kernelmate.source import load_kernel, parse_contract

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

REFERENCE = '''\
import time

import numpy as np


def scale_bias(x, w, b, alpha=0.5):
    """Scales columns and adds a bias to each row."""
    return alpha * x * w + b


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def rmsnorm(x, w, eps=1e-5):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def column_sum(x):
    return x.sum(axis=0)


def transpose(x):
    return x.T


def matmul(a, b):
    return a @ b


def dot(x, y):
    return np.dot(x, y)


def dequantise(q, scale):
    return q.astype(np.float32) * scale[:, None]


def embed(table, ids):
    rows = table[ids]
    return rows


def mean_var(x, n):
    """Mean and variance of rows.

    x: float32[rows=60, n=57]
    """
    mean = x.sum(axis=1) / n
    var = ((x - mean[:, None]) ** 2).mean(axis=1)
    return mean, var


def gate(x: "float16[n=3000]", g: "float16[n]"):
    return x / (1 + np.exp(-g))


def positive(x):
    return x > 0


def exp(x):
    return np.exp(x)


def ordered(x):
    y = np.sort(x)
    return y


def doubled(x):
    return x * 2 if x.shape[0] > 64 else x


def thirds(x):
    return 2 * x.reshape(3, -1)


def weighted(x):
    return x * np.linspace(0, 1, 300, dtype=np.float32)


def slow(x):
    time.sleep(600)
    return x


def broken(x):
    raise ValueError("no such thing")
'''

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "scale_bias": ("x=float32[rows=60, cols=40], w=float32[cols], b=float32[rows, 1]", ("out = out float32[rows, cols]", "alpha = float32 = 0.5")),
    "softmax": ("x=float32[rows=40, cols=300]", ("out = out float32[rows, cols]",)),
    "rmsnorm": ("x=float16[40, 256], w=float16[256]", ("out = out float16[rows, cols]", "eps = float32 = 1e-05")),
    "column_sum": ("x=float32[rows=90, cols=70]", ("out = out float32[cols]",)),
    "transpose": ("x=float32[rows=90, cols=70]", ("out = out float32[cols, rows]",)),
    "matmul": ("a=float32[m=40, k=33], b=float32[k, n=50]", ("out = out float32[m, n]",)),
    "dot": ("x=float32[n=5000], y=float32[n]", ("out = out float32[1]",)),
    "dequantise": ("q=int8[rows=40, cols=64], scale=float32[rows]", ("q = in int8[rows, cols]", "out = out float32[rows, cols]")),
    "embed": ("table=float32[vocab=100, dim=64], ids=int32[n=30] ~ integers(0, vocab)", ("rows = out float32[n, dim]",)),
    "mean_var": ("", ("mean = out float32[rows]", "var = out float32[rows]")),
    "gate": ("", ("out = out float16[n]",)),
    "positive": ("x=float32[n=3000]", ("out = out bool[n]",)),
}  # fmt: skip
"""Example arrays of each function, and lines that its contract then has."""

Run = Callable[..., Result]


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with the reference, a cache and a history of its own."""
    (folder / "reference.py").write_text(REFERENCE)
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(folder / ".cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / ".data"))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_function_becomes_a_kernel_that_check_and_bench_pass(there: Path, run: Run, name: str) -> None:
    arrays, wanted = CASES[name]
    made = run("write", f"reference.py:{name}", "--arrays", arrays, "--example", "--backend", "emulator", "-q")
    assert made.exit_code == 0, made.output
    text = (there / f"{name}.cu").read_text()
    lines = text.replace('"', "").split("\n")
    assert [line for line in wanted if f"// {line}" not in lines] == []
    assert re.search(rf'extern "C" __global__ void (__launch_bounds__\([^)]*\)\s)?{name}\(', text)
    assert run("check", f"{name}.cu").exit_code == 0
    assert run("bench", f"{name}.cu", "--backend", "emulator", "-q").exit_code == 0
    ast.parse((there / f"{name}_example.py").read_text())


def test_sizes_are_the_examples_own_primes_and_a_small_one(there: Path, run: Run) -> None:
    assert run("write", "reference.py:softmax", "--arrays", "x=float32[rows=48, cols=96]").exit_code == 0
    contract = parse_contract(load_kernel(str(there / "softmax.cu")))
    assert contract is not None
    assert contract.sizes == ({"rows": 48, "cols": 96}, {"rows": 37, "cols": 89}, {"rows": 1, "cols": 1})
    assert contract.reference == "reference.py:softmax"


def test_sizes_fulfil_what_is_required_and_the_reference_is_found_from_another_folder(there: Path, run: Run) -> None:
    (there / "kernels").mkdir()
    more = ("--require", "n % 3 == 0", "--to", "kernels/sums.cu")
    assert run("write", "reference.py:thirds", "--arrays", "x=float32[n=300]", *more).exit_code == 0
    contract = parse_contract(load_kernel(str(there / "kernels" / "sums.cu")))
    assert contract is not None
    assert [size["n"] % 3 for size in contract.sizes] == [0, 0, 0]
    assert contract.reference == "../reference.py:thirds"
    assert run("bench", "kernels/sums.cu", "-q").exit_code == 0


def test_a_size_that_does_not_fit_the_function_is_told_with_the_option_that_excludes_it(there: Path, run: Run) -> None:
    told = run("write", "reference.py:weighted", "--arrays", "x=float32[n=300]")
    assert told.exit_code == 2
    assert "at n=293; at the example's size it does not" in told.stderr
    assert "--require" in told.stderr


def test_a_name_that_cuda_has_already_is_not_taken(there: Path, run: Run) -> None:
    assert run("write", "reference.py:exp", "--arrays", "x=float32[n=500]").exit_code == 0
    assert load_kernel(str(there / "exp.cu")).name == "exp_kernel"


def test_results_have_the_dtype_that_is_asked_for(there: Path, run: Run) -> None:
    more = ("--arrays", "x=float16[rows=9, cols=64]", "--results", "out=float32")
    assert run("write", "reference.py:column_sum", *more).exit_code == 0
    assert 'out = "out float32[cols]"' in (there / "column_sum.cu").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("reference.py",), "path.py:function"),
        (("other.py:f",), "no such file"),
        (("reference.py:softmx",), "Did you mean reference.py:softmax?"),
        (("reference.py:matmul", "--arrays", "a=float32[m=4, k=4]"), '--arrays "a=float32[m=4, k=4], b=float32['),
        (("reference.py:softmax", "--arrays", "x=float32[rows, cols=4]"), "rows=1024"),
        (("reference.py:softmax", "--arrays", "z=float32[4, 5]"), "takes no z"),
        (("reference.py:softmax", "--arrays", "x=float[4, 5]"), "Write float32"),
        (("reference.py:softmax", "--arrays", "x=half a dozen"), "neither an array nor a number"),
        (("reference.py:softmax", "--arrays", "x=float8_e5m2[40, 50]"), "No kernels are written for float8_e5m2"),
        (("reference.py:softmax", "--arrays", "x=float32[40, 50]", "--to", "a.txt"), "ends in .cu"),
        (("reference.py:softmax", "--arrays", "x=float32[40, 50]", "--to", "no/a.cu"), "no folder"),
        (("reference.py:softmax", "--arrays", "x=float32[n=40, n=50]"), "different names"),
        (("reference.py:softmax", "--arrays", "x=float32[x=40, n=50]"), "x is an array and a size"),
        (("reference.py:softmax", "--arrays", "x=float32[40, 50]", "--size", "q=4"), "no shape has this size"),
        (("reference.py:softmax", "--arrays", "x=float32[40, 50]", "--results", "y=float32"), "There is no result y"),
        (("reference.py:broken", "--arrays", "x=float32[40]"), "no such thing"),
    ],
)
def test_a_mistake_exits_with_2_says_what_to_write_and_leaves_no_file(
    there: Path, run: Run, arguments: tuple[str, ...], says: str
) -> None:
    before = sorted(there.glob("*"))
    told = run("write", *arguments)
    assert told.exit_code == 2, told.output
    assert says in told.stderr
    assert sorted(there.glob("*.cu")) == [one for one in before if one.suffix == ".cu"]


def test_a_function_that_cannot_be_traced_exits_with_1_and_names_line_and_operation(
    there: Path, run: Run, documents: Callable[[str], Any]
) -> None:
    told = run("write", "reference.py:ordered", "--arrays", "x=float32[n=500]")
    line = REFERENCE.split("\n").index("    y = np.sort(x)") + 1
    assert told.exit_code == 1
    assert (
        f"reference.py:{line}: The reference cannot be traced: np.sort of more than 25 values, of which not only the first or last 16 are taken in `y = np.sort(x)`."
        in told.stdout
    )
    as_json = run("write", "reference.py:ordered", "--arrays", "x=float32[n=500]", "--json")
    assert as_json.exit_code == 1
    written = documents(as_json.stdout)["written"]
    assert (written["kernels"], written["files"]) == ([], [])
    assert "np.sort" in written["notes"][0]
    assert not (there / "ordered.cu").exists()


def test_a_function_that_branches_on_a_size_exits_with_1_and_names_the_sizes(there: Path, run: Run) -> None:
    told = run("write", "reference.py:doubled", "--arrays", "x=float32[n=500]")
    assert told.exit_code == 1
    assert "they differ between n=500 and n=3" in told.stdout
    assert not (there / "doubled.cu").exists()


def test_a_file_that_is_there_is_overwritten_only_with_force(
    there: Path, run: Run, documents: Callable[[str], Any]
) -> None:
    line = ("write", "reference.py:positive", "--arrays", "x=float32[n=500]", "--json")
    (there / "positive.cu").write_text("// mine\n")
    told = run(*line)
    assert told.exit_code == 2
    assert "--force" in documents(told.stdout)["error"]["hint"]
    assert (there / "positive.cu").read_text() == "// mine\n"
    written = documents(run(*line, "--force").stdout)["written"]
    assert written["files"] == ["positive.cu"]
    assert (there / "positive.cu").read_text() == written["kernels"][0]["source"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
# Python itself ends by the signal where it comes before the command is loaded, as on a machine under load.
@pytest.mark.parametrize(
    ("number", "codes"), [(signal.SIGINT, {130, -signal.SIGINT}), (signal.SIGKILL, {-signal.SIGKILL})]
)
def test_an_interrupted_command_ends_and_leaves_no_file(there: Path, number: int, codes: set[int]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelmate", "write", "reference.py:slow", "--arrays", "x=float32[n=500]"],
        env=os.environ, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(2)
    process.send_signal(number)
    assert process.wait() in codes
    assert [one.name for one in there.iterdir() if "slow" in one.name] == []
