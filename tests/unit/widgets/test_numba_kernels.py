"""Kernels that Numba compiles: judged with live arrays, found wrong by line, and refused in words."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from kernelmate_widgets.error_display import KernelFailed

needs_numba = pytest.mark.usefixtures("numba")

SCALE = """\
from numba import cuda

@cuda.jit
def scale(x, y, a):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i]
"""
ROWS = """\
from numba import cuda, float32

@cuda.jit(fastmath=True)
def row_sums(x, y):
    part = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for c in range(t, x.shape[1], 64):
        total += x[cuda.blockIdx.x, c]
    part[t] = total
    SYNC
    step = 32
    while step > 0:
        if t < step:
            part[t] += part[t + step]
        SYNC
        step //= 2
    if t == 0:
        y[cuda.blockIdx.x] = part[0]
"""


@pytest.fixture
def numba():
    """Numba with its compiler for GPUs, which needs no GPU."""
    return pytest.importorskip("numba.cuda", reason="Numba is not installed: pip install 'kernelmate[numba]'")


@pytest.fixture
def book(notebook):
    notebook.run("import numpy as np\ndef f(x, a): return a * x")
    notebook.run("x = np.arange(1000, dtype=np.float32) - 7\ny = np.zeros_like(x)")
    return notebook


def refused(book, line: str) -> UsageError:
    """Runs a line that is refused; returns the error."""
    ran = book.run(line, fails=True)
    assert isinstance(ran.error, UsageError)
    return ran.error


@needs_numba
def test_a_numba_kernel_is_judged_with_live_arrays(book) -> None:
    book.run(SCALE)
    ran = book.run("%kernelmate judge scale x y 2.5 --grid 4 --block 256 --reference f -v found")
    verdict = book.names["found"].verdict
    assert verdict.correct is True
    assert verdict.compiler.startswith("Numba")
    assert verdict.resources.registers > 0
    assert verdict.counters
    assert "line numbers are those of cell" in ran.text
    assert not book.names["y"].any(), "the user's arrays are not written"


@needs_numba
def test_the_launch_of_a_cell_gives_arguments_grid_and_block(book) -> None:
    book.run(SCALE)
    book.run("blocks = (4,)\nif False:\n    scale[blocks, 256](x, y, 2.5)")
    book.run("%kernelmate judge scale --reference f -q -v found")
    assert book.names["found"].verdict.correct is True, "three blocks are too few"


@needs_numba
def test_a_block_too_few_is_found(book) -> None:
    book.run(SCALE)
    ran = book.run("%kernelmate judge scale x y 2.5 --grid 3 --block 256 --reference f", fails=True)
    assert isinstance(ran.error, KernelFailed)
    assert ran.error.verdict.correct is False


@needs_numba
def test_an_access_beyond_an_array_is_named_by_its_line(book) -> None:
    book.run(SCALE.replace("i < x.size", "i <= x.size"))
    ran = book.run("%kernelmate judge scale x y 2.5 --grid 4 --block 256 --reference f", fails=True)
    assert isinstance(ran.error, KernelFailed)
    codes = {one.code: one.line for one in ran.error.verdict.findings if one.severity == "error"}
    assert codes["out-of-bounds-write"] == 7
    assert "fix" not in str(ran.error), "there is no CUDA C++ text to repair"


@needs_numba
def test_shared_memory_and_two_dimensions_work_and_a_race_is_found(book) -> None:
    book.run("m = np.random.default_rng(1).standard_normal((5, 300)).astype(np.float32)\nout = np.zeros(5, np.float32)")
    book.run("def sums(x): return x.sum(1)")
    book.run(ROWS.replace("SYNC", "cuda.syncthreads()"))
    line = "%kernelmate judge row_sums m out --grid 5 --block 64 --reference sums -q -v found"
    book.run(line)
    assert book.names["found"].verdict.correct is True
    book.run(ROWS.replace("SYNC", "pass"))
    ran = book.run(line, fails=True)
    assert isinstance(ran.error, KernelFailed)
    assert any("race" in one.code for one in ran.error.verdict.findings if one.severity == "error")


@needs_numba
def test_what_cannot_be_judged_is_refused_in_words(book) -> None:
    book.run(SCALE)
    assert "takes 3 arguments" in str(refused(book, "%kernelmate judge scale x y --grid 4 --block 256 --reference f"))
    assert "No launch of scale outside of a function" in str(refused(book, "%kernelmate judge scale --reference f"))
    assert "cannot be judged in a Numba kernel" in str(
        refused(book, "%kernelmate judge scale x y f --grid 4 --block 256 --reference f")
    )
    line = "%kernelmate judge scale x y 2.5 --grid 4 --block 256 --reference f"
    assert "has no CUDA C++ text" in str(refused(book, line + " --bind fast"))
    book.run("@cuda.jit\ndef broken(x, a):\n    x[0] = undefined_name")
    assert "Numba does not compile broken" in str(
        refused(book, "%kernelmate judge broken x 2.5 --grid 1 --block 1 --reference f")
    )
