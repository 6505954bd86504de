"""Time that a notebook's cell adds to a verdict: the cell against the command's own work, both with a warm worker.

`python -m benchmarks.notebook` runs one kernel by turns as `kernelmate bench` judges it and as a cell does, with the same
worker, and prints the ratio of wall times (of runs one after the other, so that what else the machine does meanwhile takes
part in both) and the CPU time that the cell's charts take after the verdict. Then `benchmarks.notebook_page` looks at the
page in a browser. Goals: a cell to its verdict at most 15 % over the command; the first chart within 0.5 s of the verdict;
forty candidates in one panel stay fluid.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import notebook_page
from benchmarks.machine import describe

ROUNDS = 9
KERNEL = """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 512 }, { rows = 37, cols = 853 }]
// grid = "rows"
// block = 128
// reference = "x / x.sum(axis=1, keepdims=True)"
// [args]
// x = "in float32[rows, cols] ~ uniform(1, 2)"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void shares(const float* x, float* y, int rows, int cols) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] / part[0];
}
"""


def main() -> int:
    """Print the tables; 1 where a goal is missed."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from kernelmate.source import find_kernels, text_unit
    from kernelmate_widgets.output import verdict_bundle

    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext kernelmate")
    with tempfile.TemporaryDirectory() as folder:
        shell.run_cell(f"%kernelmate config -q backend=emulator history_file={Path(folder) / 'history.db'}")
        session = shell._kernelmate_magics.notebook.session()  # type: ignore[attr-defined]
        kernel = find_kernels(text_unit(KERNEL))[0]

        def command() -> None:
            session.bench(kernel)

        def cell(options: str = "-q") -> None:
            with capture_output():
                result = shell.run_cell(f"%%kernelmate {options}\n{KERNEL}")
            result.raise_error()

        times = {"command": [], "verdict": [], "shown": []}  # type: dict[str, list[float]]
        cell(), command()
        for turn in range(ROUNDS):
            work = [("command", command), ("verdict", cell), ("shown", lambda: cell(""))]
            for name, one in work if turn % 2 else work[::-1]:
                began = time.perf_counter()
                one()
                times[name].append(time.perf_counter() - began)
        verdicts = session.bench(kernel)
        charts = []
        for _ in range(ROUNDS):
            began = time.process_time()
            verdict_bundle(verdicts, kernel)
            charts.append(time.process_time() - began)
    shell.run_cell("%unload_ext kernelmate")
    middle = {name: statistics.median(values) for name, values in times.items()}
    ratio = {
        name: statistics.median(one / base for one, base in zip(times[name], times["command"], strict=True))
        for name in ("verdict", "shown")
    }
    print(describe())
    print(f"{'judged as the command does':42} {middle['command'] * 1e3:7.0f} ms")
    print(f"{'cell to its verdict':42} {middle['verdict'] * 1e3:7.0f} ms  {ratio['verdict']:.2f}x (goal: 1.15x)")
    print(f"{'cell to its verdict, shown with charts':42} {middle['shown'] * 1e3:7.0f} ms  {ratio['shown']:.2f}x")
    print(f"{'verdict to its charts, CPU':42} {statistics.median(charts) * 1e3:7.0f} ms", flush=True)
    page = notebook_page.measure(KERNEL)
    return 1 if ratio["verdict"] > 1.15 or page == 1 else 0


if __name__ == "__main__":
    sys.exit(main())
