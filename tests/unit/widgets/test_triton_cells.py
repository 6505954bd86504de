"""Triton functions in cells: judged by the contract above them, launched as Triton writes it, asked about, and found again."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.errors import UsageError
from kernelmate_widgets.handle import KernelHandle

pytest.importorskip("triton", reason="triton is not installed: make train-tools")

SOFTMAX = """\
import triton
import triton.language as tl

# /// kernelmate
# sizes = [{ rows = 8, columns = 100 }, { rows = 3, columns = 1 }]
# require = ["columns <= 128"]
# grid = ["rows"]
# options = ["BLOCK=128"]
# reference = "np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)"
# [args]
# y = "out float32[rows, columns]"
# x = "in float32[rows, columns]"
# stride = "int32 = columns"
# columns = "int32"
# ///
@triton.jit
def softmax(y, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride + offsets, values / tl.sum(values, axis=0), mask=offsets < columns)
"""


@pytest.fixture
def book(notebook):
    notebook.run(
        "import numpy as np\nx = np.random.default_rng(3).normal(size=(5, 70)).astype(np.float32)\ny = np.zeros_like(x)"
    )
    return notebook


def right(book) -> bool:
    x = book.names["x"].astype(np.float64)
    e = np.exp(x - x.max(1, keepdims=True))
    return bool(np.allclose(book.names["y"], e / e.sum(1, keepdims=True), atol=1e-6))


def test_a_cell_with_a_triton_function_is_judged_and_launched(book) -> None:
    ran = book.run(f"%%kernelmate\n{SOFTMAX}")
    assert ran.error is None
    handle = book.names["softmax"]
    assert isinstance(handle, KernelHandle)
    assert handle.verdict.correct is True
    book.run("softmax(y, x, 70, 70)")
    assert right(book)
    for call in ("softmax[(5,)](y, x, 70, 70, BLOCK=128)", "softmax[lambda meta: (5 * meta['BLOCK'] // 128,)](y, x, x.shape[1], columns=70, num_warps=4)"):  # fmt: skip
        book.names["y"][:] = 0
        assert book.run(call).error is None
        assert right(book)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("softmax[(5,)](y, x, 70, 70, BLOCK=256)", "BLOCK = 256 is not what was judged: BLOCK = 128"),
        ("softmax[(5,)](y, x, 70)", "without columns"),
        ("softmax[(5,)](y, x, 70, 70, y=y)", "given y twice"),
        ("softmax[(5,)](y, x, 70, 70, other=1)", "no parameter other"),
        ("softmax['five'](y, x, 70, 70)", "not a grid"),
        ("softmax[(5,)](y.astype(np.float64), x, 70, 70)", "takes float32"),
    ],
)
def test_a_launch_that_was_not_judged_is_refused(book, call: str, told: str) -> None:
    book.run(f"%%kernelmate -q\n{SOFTMAX}")
    error = book.run(call, fails=True).error
    assert isinstance(error, UsageError)
    assert told in str(error)


def test_a_wrong_one_is_shown_by_its_line(book) -> None:
    ran = book.run("%%kernelmate\n" + SOFTMAX.replace("offsets < columns)\n", "offsets < columns - 1)\n"), fails=True)
    assert "softmax" not in book.names
    assert "wrong" in str(ran.error) or "wrong" in ran.text


def test_it_is_asked_about_and_an_accepted_version_is_the_next_cell(book) -> None:
    book.run(f"%%kernelmate -q\n{SOFTMAX}")
    ran = book.run('%kernelmate optimize softmax "make it faster" --max-candidates 2')
    assert ran.error is None
    found = book.names["softmax"].optimization
    assert found is not None
    assert {one.candidate.author.partition(":")[0] for one in found.candidates} == {"triton"}


def test_live_arrays_do_not_replace_its_contract(book) -> None:
    error = book.run(f"%%kernelmate --args y,x,70,70 --grid 5\n{SOFTMAX}", fails=True).error
    assert "judged by the contract above" in str(error)


def test_a_function_of_an_ordinary_cell_is_judged(book) -> None:
    book.run(SOFTMAX)  # a string of the shell, as IPython's own cells are
    jitted = book.names["softmax"]
    ran = book.run("%kernelmate judge softmax -v found")
    assert ran.error is None
    assert book.names["found"].verdict.correct is True
    assert book.names["softmax"] is jitted
    book.run("%kernelmate judge softmax --bind judged -q")
    assert isinstance(book.names["judged"], KernelHandle)
