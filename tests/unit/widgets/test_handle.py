"""Calling a kernel that a cell has bound, in the emulator: what it takes, what it refuses, and what it does in place."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.errors import UsageError
from kernelmate_widgets.launching import LaunchFailed


@pytest.fixture
def scale(notebook):
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    return notebook.names["scale"]


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def test_a_call_takes_its_launch_from_the_contract_and_writes_in_place(scale) -> None:
    x, y = floats(1000), np.zeros(1000, np.float32)
    address = y.ctypes.data
    assert scale(x, y, 3.0, 1000) is None
    np.testing.assert_array_equal(y, 3 * x)
    assert y.ctypes.data == address


def test_a_given_launch_wins(scale) -> None:
    x, y = floats(1000), np.zeros(1000, np.float32)
    scale[1, 256](x, y, 3.0, 1000)
    np.testing.assert_array_equal(y[:256], 3 * x[:256])
    assert (y[256:] == 0).all()
    scale[(4, 1, 1), (256,), 0](x, y, 3.0, 1000)
    np.testing.assert_array_equal(y, 3 * x)


def test_scalars_of_numpy_and_zero_dimensional_arrays_are_taken(scale) -> None:
    x, y = floats(8), np.zeros(8, np.float32)
    scale(x, y, np.float64(0.5), np.int64(8))
    np.testing.assert_array_equal(y, 0.5 * x)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda x, y: (x, y, 3.0), "takes 4 arguments (x, y, a, n); 3 were given"),
        (
            lambda x, y: (x.astype(np.float64), y, 3.0, 8),
            "x takes float32, not a NumPy array in host memory of float64",
        ),
        (lambda x, y: (floats(16)[::2], y, 3.0, 8), "not contiguous"),
        (lambda x, y: (x, y, 3.0, 9), "holds 8 elements; at n = 9 the kernel takes 9"),
        (lambda x, y: (x, y, 3.0, 8.5), "whole number"),
        (lambda x, y: (x, y, 3.0, 2**31), "does not fit int32"),
        (lambda x, y: (x, y, "3", 8), "takes a number"),
        (lambda x, y: (list(x), y, 3.0, 8), "takes an array of float32"),
        (lambda x, y: (x, None, 3.0, 8), "not None"),
        (lambda x, y: (x, y, x, 8), "takes a number"),
        (lambda x, y: (y, y, 3.0, 8), "share memory"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_launched(scale, arguments, said) -> None:
    x, y = floats(8), np.zeros(8, np.float32)
    with pytest.raises(UsageError) as caught:
        scale(*arguments(x, y))
    assert said in str(caught.value)
    assert (y == 0).all()


def test_an_array_that_may_not_be_written_is_refused_where_the_kernel_writes(scale) -> None:
    x, y = floats(8), np.zeros(8, np.float32)
    y.setflags(write=False)
    with pytest.raises(UsageError, match="read-only"):
        scale(x, y, 3.0, 8)
    x.setflags(write=False)
    scale(x, np.zeros(8, np.float32), 3.0, 8)


@pytest.mark.parametrize("launch", [3, (1,), (1, 2, 3, 4), (0, 1), (1, 2048), ("a", 1), (1, 1, -4), ((1, 1, 1, 1), 1)])
def test_what_is_no_launch_is_refused(scale, launch) -> None:
    with pytest.raises(UsageError):
        scale[launch]


def test_a_launch_that_goes_wrong_raises_and_leaves_the_arrays(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + notebook.SCALE)
    scale = notebook.names["scale"]
    x, y = floats(8), np.zeros(8, np.float32)
    with pytest.raises(LaunchFailed) as caught:
        scale[1, 256](x, y, 3.0, 200)  # with a launch of the user's own nobody knows how much the kernel takes
    assert caught.value.findings[0].code in {"out-of-bounds-read", "illegal-address"}
    assert caught.value.line == 15
    assert (y == 0).all()


def test_a_call_on_sizes_that_the_contract_excludes_is_refused(notebook) -> None:
    notebook.run(
        "%%kernelmate -q\n"
        + notebook.SCALE.replace("// block = 256", '// block = 256\n// require = ["n % 7 == 0 or n == 1024"]')
    )
    x = floats(10)
    with pytest.raises(UsageError, match="requires"):
        notebook.names["scale"](x, np.zeros_like(x), 1.0, 10)


def test_torch_tensors_of_the_cpu_are_written_in_place(scale) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, y = torch.arange(8, dtype=torch.float32), torch.zeros(8)
    pointer = y.data_ptr()
    scale(x, y, 2.0, 8)
    assert torch.equal(y, 2 * x)
    assert y.data_ptr() == pointer


def test_what_is_not_accepted_cannot_be_put_in_force(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    total = notebook.names["row_sum"]
    with pytest.raises(UsageError, match="no candidates"):
        total.accept(1)
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 2 -q')
    with pytest.raises(UsageError, match="no candidate 9"):
        total.accept(9)
    from dataclasses import replace

    found = total.optimization
    wrong = replace(found.candidates[0], verdict=replace(found.candidates[0].verdict, correct=False))
    total.found(replace(found, candidates=(wrong,)))
    before = total.version
    with pytest.raises(UsageError, match="rejected"):
        total.accept(1)
    assert total.version is before


def test_its_repr_says_arguments_launch_and_standing(scale) -> None:
    text = repr(scale)
    assert "x: float32[n]" in text
    assert "grid cdiv(n, block)" in text
    assert "clean" in text
    assert "text/html" in scale._repr_mimebundle_()
    assert scale.raw is None


def test_a_search_result_is_one_line_as_text_and_the_result_view_in_a_cell(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 1 -q')
    found = notebook.names["row_sum"].optimization
    assert repr(found).startswith("<optimization of row_sum, 'reduce memory usage': 1 candidates, best recipe:")
    assert len(repr(found)) < 200
    shown, _ = notebook.shell.display_formatter.format(found)
    assert "Ready to accept" in shown["text/html"]
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    assert notebook.shell.display_formatter.format(found)[0] == {"text/plain": repr(found)}, "of no kernel any more"


def test_a_mistake_in_a_call_shows_no_frames_of_the_package(notebook, arrays) -> None:
    arrays(notebook)
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    calls = ("row_sum(x, y, 'many', cols)", "row_sum[1, 128](x, y)", "row_sum[1, 'many'](x, y)", "row_sum.accept(3)")
    for call in calls:
        notebook.run(f"def mine():\n    {call}")
        error = notebook.run("mine()", fails=True).error
        shown = "\n".join(error._render_traceback_())
        assert "kernelmate_widgets" not in shown
        assert call in shown.replace("\x1b[0m", "") or "mine" in shown
        assert str(error) in shown
