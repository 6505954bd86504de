"""A real IPython shell with the extension loaded, and kernels to put into its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("IPython", reason="IPython is not installed: pip install 'kernelmate[notebook]'")

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from kernelmate.config import Settings

SCALE = """\
// /// kernelmate
// sizes = [{ n = 1024 }, { n = 7 }]
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


@dataclass
class Ran:
    """The result of running a cell.

    Attributes:
        error: what it raised, None where it ended well. text: all that it printed and displayed, as text.
        outputs: what it displayed, each a bundle by mime type.
    """

    result: ExecutionResult
    text: str
    outputs: list[dict[str, Any]]

    @property
    def error(self) -> BaseException | None:
        return self.result.error_in_exec or self.result.error_before_exec


class Notebook:
    """Cells of a notebook, run one after another in one shell, and kernels to write into them."""

    SCALE = SCALE
    ROW_SUM = ROW_SUM

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns

    def run(self, cell: str, *, fails: bool = False) -> Ran:
        with capture_output() as captured:
            result = self.shell.run_cell(cell, store_history=True)
        outputs = [one.data for one in captured.outputs]
        text = "\n".join([captured.stdout, captured.stderr, *(one.get("text/plain", "") for one in outputs)])
        ran = Ran(result, text, outputs)
        assert (ran.error is not None) == fails, text
        return ran

    def completions(self, line: str) -> list[str]:
        from IPython.core.completer import provisionalcompleter

        with provisionalcompleter():
            return [one.text for one in self.shell.Completer.completions(line, len(line))]


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch) -> None:
    """No settings of the person who runs the tests, and a folder of the test's own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("kernelmate.config.user_file", lambda: tmp_path / "no.toml")
    for name in Settings.model_fields:
        monkeypatch.delenv(f"KERNELMATE_{name.upper()}", raising=False)
    monkeypatch.setenv("KERNELMATE_STARTER", "false")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db"))
    monkeypatch.setenv("KERNELMATE_BACKEND", "emulator")


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}), colors="nocolor")
    book = Notebook(shell)
    book.run("%load_ext kernelmate")
    yield book
    from kernelmate_widgets import unload_ipython_extension

    unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


@pytest.fixture
def arrays() -> Callable[[Notebook], None]:
    """Put `x`, `y`, `rows`, `cols` and `reference` into a notebook."""

    def put(book: Notebook) -> None:
        rng = np.random.default_rng(7)
        book.names["x"] = rng.standard_normal((37, 96)).astype(np.float32)
        book.names["y"] = np.zeros(37, np.float32)
        book.run("rows, cols = x.shape\ndef reference(x):\n    return x.sum(axis=1)")

    return put
