"""Exported operators on a GPU: compiled by CuPy's NVRTC, on torch's stream, in CUDA graphs, and as in the emulator."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.records import Kernel, Verdict
from kernelmate.session import Session
from kernelmate.session.exporting import ExportSelection, write_all
from kernelmate.session.operator_export import export_operator
from kernelmate.source import load_kernel

torch: Any = pytest.importorskip("torch", reason="operators need torch: pip install 'kernelmate[torch]'")

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "unit" / "torch" / "kernels"
EXAMPLES = ROOT / "examples"

WIDE = """\
// /// kernelmate
// sizes = [{ n = 20000 }, { n = 15000 }]
// grid = "1"
// block = 256
// shared = "n * 4"
// reference = "x[::-1]"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void wide(const float* x, float* y, int n) {
  extern __shared__ float tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}
"""
TOGETHER = """\
#include <cooperative_groups.h>
// /// kernelmate
// sizes = [{ n = 4096 }]
// grid = "cdiv(n, block)"
// block = 256
// cooperative = true
// reference = "x + x[::-1]"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// between = "scratch float32[n]"
// n = "int32"
// ///
__global__ void together(const float* x, float* y, float* between, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) between[i] = x[n - 1 - i];
  cooperative_groups::this_grid().sync();
  if (i < n) y[i] = x[i] + between[i];
}
"""


class CompilingSession(Session):
    """Compiles in place of judging, which other tests do."""

    def bench(self, kernel: Kernel, *_: Any, **__: Any) -> tuple[Verdict, ...]:
        return tuple(replace(verdict, correct=True) for verdict in self.check(kernel))


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ModuleType]]:
    place = tmp_path_factory.mktemp("operators")
    with CompilingSession(load_settings(backend="emulator", history=False)) as session:

        def load(spec: str, backward: str | None = None) -> ModuleType:
            second = None if backward is None else load_kernel(backward)
            done = export_operator(session, session.settings, ExportSelection(load_kernel(spec), None), second)
            (package,) = {path.partition("/")[0] for path in done.files if path.endswith("_op/__init__.py")}
            if package not in sys.modules:
                write_all(place, done.files, force=True)
                found = importlib.util.spec_from_file_location(package, place / package / "__init__.py")
                assert found is not None
                assert found.loader is not None
                sys.modules[package] = importlib.util.module_from_spec(found)
                found.loader.exec_module(sys.modules[package])
            return sys.modules[package]

        yield load


@pytest.mark.parametrize(
    "spec",
    ["rmsnorm", "swiglu", "matmul::matmul_naive", "histogram", "residual_half", "adamw", "bias_gelu_bf16", "spmv_csr"],
)
def test_the_gpu_gives_the_results_of_the_reference_and_of_the_emulator(spec: str, operator: Callable[..., ModuleType]) -> None:  # fmt: skip
    from kernelmate_torch.operator_cases import contract_cases

    file, _, name = spec.partition("::")
    kernel = load_kernel(str(EXAMPLES / f"{file}.cu") + (f"::{name}" if name else ""))
    module = operator(f"{kernel.unit.path}::{kernel.name}")
    for case in contract_cases(f"{kernel.unit.path}::{kernel.name}"):
        for device in ("cuda", "cpu"):
            arguments = case.arguments(device)
            with torch.no_grad():
                case.check(getattr(module, kernel.name)(*arguments), arguments)


def test_gradients_on_the_gpu_are_those_of_torch(operator: Callable[..., ModuleType]) -> None:
    softmax = operator(str(EXAMPLES / "softmax.cu"), str(KERNELS / "softmax_backward.cu")).softmax
    x = torch.randn(33, 257, device="cuda", requires_grad=True)
    weight = torch.randn_like(x)
    (got,) = torch.autograd.grad((softmax(x) * weight).sum(), x)
    (want,) = torch.autograd.grad((torch.softmax(x, -1) * weight).sum(), x)
    torch.testing.assert_close(got, want)
    compiled = torch.compile(softmax, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.softmax(x, -1))


def test_it_follows_pending_work_of_the_current_stream(operator: Callable[..., ModuleType]) -> None:
    swiglu = operator(str(EXAMPLES / "swiglu.cu")).swiglu
    one = torch.ones(1 << 20, device="cuda")
    # Loaded before the wait: the driver loads a kernel at its first launch, once the GPU has nothing left to do.
    swiglu(one, one)
    late = torch.zeros_like(one)
    late += 3
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # Memory for the stream: what the driver allocates may wait for the kernels before it.
        held = [torch.zeros_like(one) for _ in range(4)]
        del held
        torch.cuda._sleep(1_000_000_000)
        late = torch.zeros_like(one)
        late += 3
        got = swiglu(late, one)
        begun_while_waiting = not stream.query()
    stream.synchronize()
    assert begun_while_waiting
    torch.testing.assert_close(got, torch.nn.functional.silu(late))


def test_a_cuda_graph_captures_it_once_it_is_loaded(operator: Callable[..., ModuleType]) -> None:
    module = operator(str(EXAMPLES / "rmsnorm.cu"))
    module.launching._LOADED.clear()
    x, weight = torch.randn(5, 64, device="cuda"), torch.randn(64, device="cuda")
    with pytest.raises(RuntimeError, match=r"not loaded on cuda:0 yet.*call the operator once before"), torch.cuda.graph(torch.cuda.CUDAGraph()):  # fmt: skip
        module.rmsnorm(x, weight)
    module.KERNEL.load("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module.rmsnorm(x, weight)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (64,), weight, eps=1e-6))


def test_over_48_kilobytes_of_dynamic_shared_memory(operator: Callable[..., ModuleType], tmp_path: Path) -> None:
    (tmp_path / "wide.cu").write_text(WIDE)
    x = torch.randn(20000, device="cuda")
    torch.testing.assert_close(operator(str(tmp_path / "wide.cu")).wide(x), x.flip(0))


def test_a_cooperative_launch_that_does_not_fit_is_refused(operator: Callable[..., ModuleType], tmp_path: Path) -> None:
    (tmp_path / "together.cu").write_text(TOGETHER)
    together = operator(str(tmp_path / "together.cu")).together
    x = torch.randn(4096, device="cuda")
    torch.testing.assert_close(together(x), x + x.flip(0))
    with pytest.raises(ValueError, match="a cooperative launch of 65536 blocks does not fit: this GPU holds"):
        together(torch.zeros(256 * 65536, device="cuda"))


def test_tensors_on_different_devices_are_refused(operator: Callable[..., ModuleType]) -> None:
    rmsnorm = operator(str(EXAMPLES / "rmsnorm.cu")).rmsnorm
    with pytest.raises(ValueError, match="weight is on cpu, and x on cuda:0"):
        rmsnorm(torch.zeros(2, 3, device="cuda"), torch.zeros(3))


def test_denormals_are_kept_as_when_it_was_judged(operator: Callable[..., ModuleType]) -> None:
    scaled = operator(f"{KERNELS / 'scaled.cu'}::scaled").scaled
    x = torch.full((1, 4), 1e-39, device="cuda")
    torch.testing.assert_close(scaled(x, torch.ones(4, device="cuda"), factor=1.0), x, rtol=0, atol=0)
