"""Kernels that the notebook made with CuPy itself: judged with live arrays, offered once, and refused in words."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from kernelmate_widgets.error_display import KernelFailed
from kernelmate_widgets.handle import KernelHandle

pytest.importorskip("cupy", reason="CuPy is not installed: pip install cupy-cuda13x (it needs no GPU here)")

BODY = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
RAW = f"import cupy as cp\nscale = cp.RawKernel(r'''{BODY}''', 'scale')"
MODULE = """\
mod = cp.RawModule(code=r'''
extern "C" __global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = FACTOR * x[i];
}
template <class T> __global__ void any(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
''', options=("-DFACTOR=2",), name_expressions=["any<float>"])"""
JUDGE = "%kernelmate judge scale x y n --grid 4 --block 256 --reference f"
OFFER = "Check and time this kernel: "


@pytest.fixture
def book(notebook):
    notebook.run("import numpy as np\nimport cupy as cp\ndef f(x): return 2 * x")
    notebook.run("n = 1000\nx = np.arange(n, dtype=np.float32) - 7\ny = np.zeros_like(x)")
    return notebook


def test_a_raw_kernel_is_judged_with_live_arrays_and_stays_what_it_is(book) -> None:
    book.run(RAW)
    raw = book.names["scale"]
    ran = book.run(JUDGE + " -v found")
    assert book.names["found"].verdict.correct is True
    assert dict(book.names["found"].verdict.cases[0].size) == {"n": 1000}
    assert book.names["scale"] is raw
    assert "line numbers are those of cell [4]" in ran.text
    assert not book.names["y"].any(), "the user's arrays are not written"


def test_an_array_that_holds_the_answer_already_settles_nothing_less(book) -> None:
    book.run(RAW + "\ny = 2 * x")
    book.run(JUDGE + " -q -v found")
    assert book.names["found"].verdict.correct is True


def test_bound_to_a_new_name_it_is_called_and_asked_about(book) -> None:
    book.run(RAW)
    book.run(JUDGE + " -q --bind fast")
    assert isinstance(book.names["fast"], KernelHandle)
    book.run("fast(x, y, n)\nassert (y == 2 * x).all()")
    assert "what to do" in book.run("%kernelmate explain fast").text
    from kernelmate_widgets.cell_writing import cell_of

    magics = book.shell._kernelmate_magics
    handle = book.names["fast"]
    again = cell_of(magics.notebook.known["fast"], handle, handle.version)
    assert again.startswith("%%kernelmate fast --args x,y,n --grid 4 --block 256 --ref f\n")
    book.run(again)
    assert book.names["fast"] is handle


def test_the_launch_of_the_cells_is_used_where_the_line_names_none(book) -> None:
    book.run(RAW)
    book.run("def other():\n    scale((1,), (1,), (y, x, 3))")
    book.run("if False:\n    scale(((n + 127) // 128,), (128,), (x, y, np.int32(n)))")
    book.run("%kernelmate judge scale --ref f -q --bind fast")
    contract = book.names["fast"].contract
    assert contract.block == ("128",)
    assert contract.grid == ("(n + 127) // 128",)


def test_a_launch_that_would_do_something_again_is_not_read(book) -> None:
    book.run(RAW + "\ncalls = []\ndef fresh():\n    calls.append(1)\n    return y")
    book.run("if False:\n    scale((4,), (256,), (x, fresh(), n))")
    assert "guessed contract" in book.run("%kernelmate judge scale").text
    assert book.names["calls"] == []


def test_functions_of_a_module_are_judged_with_its_options_and_at_the_cells_lines(book) -> None:
    book.run("# a line above\n" + MODULE)
    ran = book.run("%kernelmate judge mod.wrong x y n --grid 4 --block 256 --ref f -q", fails=True)
    assert isinstance(ran.error, KernelFailed)
    (finding,) = [one for one in ran.error.verdict.findings if one.severity == "error"]
    assert (finding.code, finding.line) == ("out-of-bounds-write", 5)
    assert "if (i <= n) y[i]" in str(ran.error)
    assert "%kernelmate fix tries" not in str(ran.error)
    book.run("%kernelmate judge mod.any<float> x y n --grid 4 --block 256 --ref f -q -v found")
    assert book.names["found"].verdict.instance == "any<float>"
    assert book.names["found"].verdict.correct is True


def test_a_wrong_kernel_with_a_name_can_be_repaired(book) -> None:
    book.run(MODULE)
    ran = book.run("%kernelmate judge mod.wrong x y n --grid 4 --block 256 --ref f -q --bind good", fails=True)
    assert isinstance(ran.error, KernelFailed)
    assert "good" not in book.names
    book.run("%kernelmate fix good -q")
    book.run("%kernelmate accept good -q")
    book.run("good(x, y, n)\nassert (y == 2 * x).all()")


def test_a_contract_in_comments_above_is_the_kernels(book) -> None:
    block = '# /// kernelmate\n# sizes = [{ n = 64 }]\n# grid = 1\n# block = 64\n# reference = "2 * x"\n# [args]\n'
    block += '# x = "in float32[n]"\n# y = "out float32[n]"\n# n = "int32"\n# ///\n'
    book.run(block + RAW.partition("\n")[2])
    book.run("%kernelmate judge scale -q -v found --bind fast")
    assert dict(book.names["found"].verdict.cases[0].size) == {"n": 64}
    assert "// sizes" in book.names["fast"].source


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mod.absent", "no kernel absent; its kernels: wrong, any"),
        ("n", "whose CUDA source cannot be read"),
        ("missing", "is not defined"),
        ("loaded", "loaded from some.cubin"),
        ("python", "for the host, not a kernel"),
    ],
)
def test_where_no_source_can_be_had_it_is_said(book, name, said) -> None:
    book.run(MODULE + "\nfrom cupyx import jit\nloaded = cp.RawModule(path='some.cubin')")
    book.run("class Dispatcher:\n    py_func = f\npython = Dispatcher()")
    asked = "loaded.scale" if name == "loaded" else name
    ran = book.run(f"%kernelmate judge {asked} x y n --grid 1 --block 64", fails=True)
    assert isinstance(ran.error, UsageError)
    assert said in str(ran.error)


def test_each_new_kernel_text_is_offered_once_in_one_line(book) -> None:
    first = book.run(RAW).text
    assert OFFER + "%kernelmate judge scale x y n --grid BLOCKS --block THREADS" in first
    assert len([line for line in first.split("\n") if line.strip()]) == 1
    assert OFFER not in book.run(RAW).text, "the same text again"
    assert OFFER not in book.run("1 + 1").text
    changed = book.run(RAW.replace("2.0f", "3.0f")).text
    assert OFFER in changed
    assert "config offer_judging" not in changed, "how to end the offers is said once"


def test_no_offer_is_made_where_none_is_wanted(book) -> None:
    assert OFFER not in book.run(RAW + "\n" + JUDGE + " -q").text, "judged in the same cell"
    book.run("%kernelmate config offer_judging=false -q")
    assert OFFER not in book.run(RAW.replace("2.0f", "4.0f")).text


@pytest.mark.parametrize("code", ["this is no C", "", "#error", "\\x00", "extern int x;"])
def test_a_text_that_cannot_be_read_disturbs_no_cell(book, code: str) -> None:
    ran = book.run(f"k = cp.RawKernel('''{code}''', 'k')\nprint('ran')")
    assert "ran" in ran.text
    assert OFFER not in ran.text
    book.run("%kernelmate config offer_judging=maybe -q", fails=True)
    assert "fine" in book.run("k2 = cp.RawKernel('int y;', 'y')\nprint('fine')").text


def test_names_of_kernels_and_live_arrays_are_completed(book) -> None:
    book.run(RAW + "\n" + MODULE)
    assert {"scale", "mod.wrong", "mod.any"} <= set(book.completions("%kernelmate judge "))
    assert {"x", "y", "n"} <= set(book.completions("%kernelmate judge scale "))
    assert "f" in book.completions("%kernelmate judge scale x y n --ref ")
    assert "--bind" in book.completions("%kernelmate judge scale x --bi")
