"""Times of written matrix products on a GPU, candidate by candidate, beside torch (cuBLAS) in the same run.

    python -m benchmarks.gpu_contraction                       # all of KERNELS at their headline sizes
    python -m benchmarks.gpu_contraction NAME ... --out run.json
    python -m benchmarks.gpu_contraction half_matmul --size m=8192,n=8192,k=8192

Needs an NVIDIA GPU, CuPy and torch. Every text of the schedule is compiled, launched on normal inputs and held against torch's result
(the largest difference, by the largest element); the judge's verdicts are `gpu_synthesis`'s. A time is the median of `ROUNDS` series of
replays of a CUDA graph, of at least `SERIES_MS` each, caches as the launch before left them; torch's series lie between ours.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.large_set import LARGE, ROOT, Listed, listed
from benchmarks.machine import describe, save
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions, Contract, Kernel, Size
from kernelmate.source import argument_shapes, evaluate, launch_shape, scalar_values
from kernelmate.suggest.synthesis import MOST_MEASURED
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

NAIVE = ROOT / "benchmarks" / "naive"
ROUNDS, SERIES_MS, IN_GRAPH = 5, 8.0, 5
MAX_DYNAMIC_SHARED = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of `cuda.h`."""


def _mm(a: Any, b: Any) -> Any:
    """A product of halves added up and left in float, where torch has it."""
    import torch

    try:
        return torch.mm(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return torch.mm(a, b)


def _functional() -> Any:
    from torch.nn import functional

    return functional


KERNELS: dict[str, Callable[..., Any]] = {
    "half_matmul": lambda a, b, **_: a @ b,
    "brain_linear_gelu": lambda x, weight, bias, **_: _functional().gelu(_functional().linear(x, weight, bias), approximate="tanh"),
    "half_scores": lambda q, k, scale, **_: (q * scale) @ k.transpose(1, 2),
    "half_weighted": lambda p, v, **_: p @ v,
    "byte_linear": lambda x, weight, x_scale, weight_scale, **_: __import__("torch")._int_mm(x, weight.t()) * x_scale[:, None] * weight_scale,
    "half_weight_grad": lambda dy, x, **_: _mm(dy.t(), x),
    "half_decode": lambda x, weight, **_: _functional().linear(x, weight),
    "brain_decode": lambda x, weight, residual, **_: __import__("torch").addmm(residual, x, weight),
    "half_decode_relu": lambda x, weight, bias, **_: _functional().linear(x, weight, bias.to(x.dtype)).relu(),
    "half_ragged": lambda a, b, alpha, **_: _mm(a, b) * alpha,
    "byte_weight_linear": lambda x, weight, scale, **_: _functional().linear(x, weight.to(x.dtype)) * scale,
    "matmul": lambda **given: given["A"] @ given["B"],
    "linear_relu": lambda x, weight, bias, **_: _functional().linear(x, weight, bias).relu(),
    "batched_matmul": lambda a, b, **_: a @ b,
}  # fmt: skip
"""The same computation in torch, by kernel; float32 without tf32."""


@dataclass(frozen=True, slots=True)
class Text:
    """One written text, under way to the compiler."""

    schedule: str
    contract: Contract
    compiled: Future[Compiled]


def main() -> int:
    """Print the tables and write them as JSON."""
    options = _options()
    print(describe(), flush=True)
    started, rows = time.monotonic(), []
    with ThreadPoolExecutor(8) as pool:
        asked = [(one, _texts(one, pool, options)) for one in _listed(options.kernels)]
        for one, texts in asked:
            if time.monotonic() - started > options.limit:
                print(f"{one.kernel.name}: not reached in {options.limit:.0f} s")
                continue
            for row in _measured(one, _size(one, options.size), texts):
                rows.append(row)
                print(_line(row), flush=True)
    if options.out is not None:
        save(options.out, {"rows": rows})
    return 0


def _listed(names: Sequence[str]) -> Iterator[Listed]:
    for folder in (NAIVE, LARGE):
        yield from (one for one in listed(folder) if one.kernel.name in (names or KERNELS))


def _texts(one: Listed, pool: ThreadPoolExecutor, options: argparse.Namespace) -> list[Text]:
    """The texts of the kernel's schedule, as many as a search tries."""
    graph: Graph = trace(one.contract, Path(one.kernel.unit.path).parent)
    found = []
    for written in kernels_for(graph, one.kernel, one.contract):
        if options.pattern in written.schedule and len(found) < options.most:
            kernel, contract = placed(one.kernel, one.contract, written)
            found.append(Text(written.schedule, contract, pool.submit(_compiled, kernel)))
    return found


def _compiled(kernel: Kernel) -> Compiled:
    import cupy

    major, minor = cupy.cuda.Device().compute_capability[:-1], cupy.cuda.Device().compute_capability[-1]
    target = find_target(f"sm_{major}{minor}")
    return compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())


def _size(one: Listed, asked: str) -> Size:
    given = dict(pair.split("=") for pair in asked.split(",") if pair)
    return {**one.contract.sizes[0], **{name: int(value) for name, value in given.items()}}


def _measured(one: Listed, size: Size, texts: Sequence[Text]) -> Iterator[dict[str, Any]]:
    """Torch's row first, then ours, the fastest first."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    given = _inputs(one.contract, size)
    theirs = lambda: KERNELS[one.kernel.name](**given)  # noqa: E731
    want = theirs()
    ready: list[tuple[str, Callable[[], None], Any]] = []
    rows: list[dict[str, Any]] = []
    for text in texts:
        done = text.compiled.result()
        if not done.ok:
            rows.append(_row(one, text.schedule, why="; ".join(map(str, done.diagnostics))))
            continue
        ready.append((text.schedule, *_launcher(done, text.contract, size, given)))
    series: dict[str, list[float]] = {schedule: [] for schedule, *_ in ready}
    torch_us: list[float] = []
    graphs = {schedule: _recorded(launch) for schedule, launch, _out in ready}
    torch_graph = _recorded(theirs)
    for _ in range(ROUNDS):
        torch_us.append(_series(torch_graph))
        for schedule, graph in graphs.items():
            series[schedule].append(_series(graph))
    flop = 2.0 * math.prod(_sides(one, size))
    best = statistics.median(torch_us)
    yield _row(one, "torch", us=best, tflops=flop / best / 1e6, ratio=1.0)
    for schedule, launch, out in ready:
        out.zero_()
        launch()
        scale = float(want.float().abs().max())
        off = float((out.float() - want.float().reshape(out.shape)).abs().max()) / scale
        us = statistics.median(series[schedule])
        rows.append(_row(one, schedule, us=us, tflops=flop / us / 1e6, ratio=best / us, off=off))
    yield from sorted(rows, key=lambda row: row["us"] or math.inf)


def _row(one: Listed, schedule: str, **more: Any) -> dict[str, Any]:
    empty = {"us": None, "tflops": None, "ratio": None, "off": None, "why": ""}
    return {"kernel": one.kernel.name, "schedule": schedule, **empty, **more}


def _line(row: dict[str, Any]) -> str:
    if row["us"] is None:
        return f"{row['kernel']:20}{row['schedule']:26}{row['why'][:120]}"
    off = "" if row["off"] is None else f"{row['off']:10.1e}" + ("  WRONG" if not row["off"] < 0.02 else "")
    return f"{row['kernel']:20}{row['schedule']:26}{row['us']:10.1f} us{row['tflops']:9.1f} TFLOP/s{row['ratio']:7.2f} of torch{off}"


def _sides(one: Listed, size: Size) -> list[int]:
    """The sides of the result and of the sum: each size name of the contract's arrays once."""
    shapes = [
        argument.shape for argument in one.contract.args if argument.shape is not None and len(argument.shape) > 1
    ]
    names = dict.fromkeys(side for shape in shapes for side in shape)
    return [int(evaluate(name, size)) for name in names]


def _inputs(contract: Contract, size: Size) -> dict[str, Any]:
    """Arrays as torch tensors on the GPU, and scalars."""
    import torch

    torch.manual_seed(7)
    made: dict[str, Any] = {**scalar_values(contract, size)}
    for name, shape in argument_shapes(contract, size).items():
        dtype = next(one.dtype for one in contract.args if one.name == name)
        if dtype == "int8":
            made[name] = torch.randint(-127, 128, shape, dtype=torch.int8, device="cuda")
        else:
            made[name] = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
    return made


def _launcher(
    compiled: Compiled, contract: Contract, size: Size, given: dict[str, Any]
) -> tuple[Callable[[], None], Any]:
    """A launch of the kernel, and its result."""
    import cupy
    import numpy as np
    import torch
    from cupy.cuda import driver, function

    module = function.Module()
    module.load(compiled.cubin)
    kernel = module.get_function(compiled.lowered_name)
    shape = launch_shape(contract, size)
    if shape.shared_bytes > 0:
        driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, shape.shared_bytes)
    arguments: list[Any] = []
    for one in contract.args:
        value = given.get(one.name, size.get(one.name))
        if one.shape is not None:
            arguments.append(np.uintp(value.data_ptr()))
        else:
            arguments.append(np.dtype(one.dtype).type(size.get(one.value or one.name, value)))
    out = next(given[one.name] for one in contract.args if one.direction == "out")

    def launch() -> None:
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        kernel(shape.grid, shape.block, tuple(arguments), shape.shared_bytes, stream)

    return partial(_keeping, launch, module), out


def _keeping(run: Callable[[], None], _module: object) -> None:
    """Run something while its module stays loaded."""
    run()


def _recorded(run: Callable[[], Any]) -> Any:
    """A CUDA graph of `IN_GRAPH` runs: replayed, it leaves no time of the host between them."""
    import torch

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            run()
    return graph


def _series(graph: Any) -> float:
    """Microseconds of one run, from replays of at least `SERIES_MS`."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(count: int) -> float:
        first.record()
        for _ in range(count):
            graph.replay()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last))

    count = max(1, math.ceil(SERIES_MS / max(timed(1), 1e-3)))
    return 1e3 * timed(count) / count / IN_GRAPH


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="names of kernels; all without")
    parser.add_argument("--size", default="", help="other sizes than the headline's, as in m=8192,n=8192")
    parser.add_argument("--pattern", default="", help="of schedules that are measured")
    parser.add_argument("--most", type=int, default=MOST_MEASURED, help="texts of a kernel")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which no further kernel is begun")
    parser.add_argument("--out", type=Path, help="where to write the table as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
