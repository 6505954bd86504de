"""The notebook on a GPU: arrays used in place, copies judged, versions replaced in existing handles, verdicts equal to emulated ones."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.hostile_set import hostile_kernels
from kernelmate.backends.cuda.driver import missing_for_gpu

pytest.importorskip("IPython", reason="IPython is not installed: pip install 'kernelmate[notebook]'")
pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install 'kernelmate[notebook]'")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from kernelmate.errors import UsageError
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate_widgets.error_display import KernelFailed
from kernelmate_widgets.handle import KernelHandle, KernelVersion
from kernelmate_widgets.notebook_state import NotebookState

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

HOSTILE = 50
HANGS = 3

SCALE = """\
// /// kernelmate
// sizes = [{ n = 4096 }, { n = 7 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "a * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// a = "float32 = 2.0"
// n = "int32"
// ///
__global__ void scale(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""
ADDRESSES = """\
// /// kernelmate
// sizes = [{ n = 32 }]
// grid = 1
// block = 32
// [args]
// x = "in float32[n]"
// seen = "out uint64[2]"
// n = "int32"
// ///
__global__ void addresses(const float* x, unsigned long long* seen, int n) {
    if (threadIdx.x == 0) { seen[0] = (unsigned long long)x; seen[1] = (unsigned long long)seen; }
}
"""
ROW_SUM = """\
__global__ void row_sum(const float* x, float* y, int rows, int cols) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
SETUP = """\
import numpy as np, cupy
x = cupy.asarray(np.random.default_rng(3).standard_normal((300, 700)), cupy.float32)
y = cupy.zeros(300, cupy.float32)
rows, cols = x.shape
def total(x): return x.sum(axis=1)
"""
LINE = "%%kernelmate --args x,y,rows,cols --grid rows --block 128 --ref total"


class Notebook:
    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def run(self, cell: str) -> BaseException | None:
        with capture_output():
            result = self.shell.run_cell(cell)
        return result.error_in_exec or result.error_before_exec

    def good(self, cell: str) -> None:
        error = self.run(cell)
        assert error is None, error

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    shell = InteractiveShell.instance()
    book = Notebook(shell)
    book.good("%load_ext kernelmate")
    yield book
    book.run("%unload_ext kernelmate")
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def state() -> Iterator[NotebookState]:
    state = NotebookState()
    yield state
    state.close()


def compiled_only(state: NotebookState, text: str) -> KernelHandle:
    """A handle of a kernel that is not judged, as no reference could tell what an address must be."""
    kernel = find_kernels(text_unit(text, "<cell>"))[0]
    session = state.session({"backend": "cuda"})
    version = KernelVersion(kernel, contract_for(kernel), session.check(kernel)[0])
    return KernelHandle(kernel.name, "cuda", version, state.preparer(session))


def test_the_kernel_gets_the_arrays_own_addresses(state) -> None:
    import cupy

    where = compiled_only(state, ADDRESSES)
    x, seen = cupy.arange(32, dtype=cupy.float32), cupy.zeros(2, cupy.uint64)
    where(x, seen, 32)
    assert seen.get().tolist() == [x.data.ptr, seen.data.ptr]


def test_torch_tensors_are_used_where_they_are_on_torchs_own_stream(state) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    where = compiled_only(state, ADDRESSES)
    x, seen = torch.arange(32, dtype=torch.float32, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")
    where(x, seen.view(torch.uint64), 32)
    assert seen.tolist() == [x.data_ptr(), seen.data_ptr()]

    scale = compiled_only(state, SCALE)
    with torch.cuda.stream(torch.cuda.Stream()):
        big = torch.ones(1 << 22, device="cuda")
        out = torch.empty_like(big)
        for step in range(20):
            big.mul_(1.5)  # asked for before the launch, on the same stream
            scale[cdiv(1 << 22, 256), 256](big, out, 2.0, 1 << 22)
            assert torch.equal(out, big * 2.0), step


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def test_a_call_takes_no_memory_and_makes_no_copy(state) -> None:
    import cupy

    scale = compiled_only(state, SCALE)
    x, y = cupy.ones(1 << 24, cupy.float32), cupy.zeros(1 << 24, cupy.float32)
    scale(x, y, 2.0, 1 << 24)
    cupy.cuda.Device().synchronize()
    before = cupy.get_default_memory_pool().used_bytes()
    scale(x, y, 3.0, 1 << 24)
    assert cupy.get_default_memory_pool().used_bytes() == before
    assert float(y[-1]) == 3.0
    assert type(scale.raw).__name__ == "RawKernel"


def test_arrays_of_the_host_and_wrong_dtypes_are_refused(state) -> None:
    import cupy

    scale = compiled_only(state, SCALE)
    y = cupy.zeros(8, cupy.float32)
    for x, said in (
        (np.ones(8, np.float32), "host memory"),
        (cupy.ones(8), "float64"),
        (cupy.ones((8, 2), cupy.float32)[:, 0], "contiguous"),
    ):
        with pytest.raises(UsageError, match=said):
            scale(x, y, 1.0, 8)


def test_accepting_changes_the_kernel_under_an_existing_reference(notebook) -> None:
    import cupy

    notebook.good(SETUP)
    notebook.good(f"{LINE} --backend cuda\n{ROW_SUM}")
    held = notebook["row_sum"]
    assert held.verdict.backend == "cuda"
    assert held.verdict.timing.kind == "measured"
    before = held.raw
    notebook.good('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 2')
    notebook.good("%kernelmate accept row_sum 1")
    assert held.raw is not before
    assert held.version.author.startswith("recipe:")
    x, y = notebook["x"], notebook["y"]
    y.fill(0)
    held(x, y, 300, 700)
    cupy.testing.assert_allclose(y, x.sum(axis=1), rtol=1e-4, atol=1e-4)


def test_live_arrays_outlive_hostile_kernels_bit_for_bit(notebook) -> None:
    import cupy

    notebook.good(
        "import cupy\nx = cupy.random.random(400000, dtype=cupy.float32); y = cupy.random.random(400000, dtype=cupy.float32); n = 400000"
    )
    notebook.good("def ref(x): return 2 * x")
    notebook.good("%kernelmate config timeout_s=10")
    x, y = notebook["x"], notebook["y"]
    held = cupy.random.random(1 << 20)
    before = [one.get().tobytes() for one in (x, y, held)]
    addresses = [one.data.ptr for one in (x, y, held)]
    judged = []
    for kind, text in hostile_kernels(HOSTILE, HANGS):
        body = text.split("// ///\n", 2)[-1]
        error = notebook.run(
            f"%%kernelmate twice -q --args x,y,n --grid cdiv(n,256) --block 256 --ref ref --backend cuda\n{body}"
        )
        judged.append((kind.name, "right" if error is None else type(error).__name__))
        assert isinstance(error, KernelFailed) or (error is None and not kind.codes), (kind.name, error)
    assert len(judged) == HOSTILE
    assert [one.get().tobytes() for one in (x, y, held)] == before
    assert [one.data.ptr for one in (x, y, held)] == addresses
    # And the notebook's own context lives on.
    assert float((held * 2).sum()) > 0
    notebook.good("%kernelmate config timeout_s=120")


KERNELS = {
    "right": ROW_SUM,
    "race": ROW_SUM.replace("    __syncthreads();\n    for (int half", "    for (int half"),
    "off by one": ROW_SUM.replace("c < cols;", "c <= cols;"),
    "wrong": ROW_SUM.replace("= part[0]", "= part[1]"),
    "does not compile": ROW_SUM.replace("= part[0]", "= past[0]"),
    "writes outside": ROW_SUM.replace("y[blockIdx.x] =", "y[blockIdx.x + 1] ="),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_notebook_has_the_same_verdict_on_the_emulator(notebook, name) -> None:
    notebook.good(SETUP.replace("(300, 700)", "(37, 96)").replace("zeros(300", "zeros(37"))
    found = []
    for backend in ("cuda", "emulator"):
        error = notebook.run(f"{LINE} --backend {backend} --seed 7 --replace\n{KERNELS[name]}")
        verdict = error.verdict if isinstance(error, KernelFailed) else notebook["row_sum"].verdict
        assert verdict.backend == backend
        codes = [finding.code for finding in verdict.findings if finding.severity == "error"]
        found.append((error is None, verdict.correct, codes))
    assert found[0] == found[1], textwrap.shorten(str(found), 500)
