"""The worker on a real GPU: warm, replaced at once, bounded, and gone without a trace."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument, UnsupportedInstruction
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions, LaunchShape
from kernelmate.session import Session
from kernelmate.source import find_kernels, launch_shape, load_kernels, parse_contract, text_unit

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.cu"))
_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

alone = pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="it measures the whole GPU, which other tests use at the same time: run it without -n",
)

HEAD = """// /// kernelmate
// sizes = [{ n = 400000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
# The emulator refuses calls of `free`, so these go to the GPU without having been seen by it.
START = (
    "__global__ void twice(const float* x, float* y, int n) {\n  if (n < 0) free((void*)x);\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
)
RIGHT = f"{HEAD}{START}  if (i < n) y[i] = 2 * x[i];\n}}\n"
WAYS_TO_DIE = {
    "illegal address": "if (i < n) y[i + ((size_t)1 << 40)] = x[i];",
    "trap": 'if (i == n / 2) asm volatile("trap;"); if (i < n) y[i] = 2 * x[i];',
    "endless loop": "volatile float* p = y; while (p[0] != 7.0f) p[1] = 1;",
}


def judged(session: Session, text: str):
    (verdict,) = session.bench(find_kernels(text_unit(text, "k.cu"))[-1])
    return verdict


def codes(verdict) -> set[str]:
    return {finding.code for finding in verdict.findings if finding.severity == "error"}


def used_mb() -> int:
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used) >> 20


def settled_mb() -> int:
    """The same once no other test's worker is on its way up or down any more."""
    seen, until = [used_mb()], time.monotonic() + 20
    while (len(seen) < 8 or len(set(seen[-8:])) > 1) and time.monotonic() < until:
        time.sleep(0.25)
        seen.append(used_mb())
    return seen[-1]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3, backend="cuda", timeout_s=8, timing_budget_s=0)) as session:
        assert judged(session, RIGHT).correct is True
        yield session


@alone
@pytest.mark.parametrize("way", WAYS_TO_DIE)
def test_a_death_costs_less_than_two_seconds(session: Session, way: str) -> None:
    def right() -> float:
        began = time.monotonic()
        assert judged(session, RIGHT).correct is True
        return time.monotonic() - began

    right()
    warm = statistics.median(right() for _ in range(3))
    assert judged(session, f"{HEAD}{START}  {WAYS_TO_DIE[way]}\n}}\n").correct is not True
    cost = right() - warm
    print(f"after {way}: {cost:+.2f} s")
    assert cost < 2.0


@alone
def test_what_killed_workers_held_is_free_again() -> None:
    before = settled_mb()
    with Session(load_settings(seed=3, backend="cuda", timeout_s=8, timing_budget_s=0)) as session:
        for text in WAYS_TO_DIE.values():
            judged(session, f"{HEAD}{START}  {text}\n}}\n")
    until = time.monotonic() + 10
    while used_mb() > before + 32 and time.monotonic() < until:
        time.sleep(0.1)
    assert used_mb() <= before + 32


def launched(backend, text: str, threads: int = 32, blocks: int = 1):
    kernel = find_kernels(text_unit(text, "k.cu"))[-1]
    target = find_target(backend.gpu.name)
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    arguments = (ArrayArgument("y", np.zeros(64, np.float32)), ScalarArgument("n", np.int32(3)))
    return backend.load(compiled, target).launch(Run(LaunchShape((blocks, 1, 1), (threads, 1, 1)), arguments))


def test_what_a_kernel_prints_is_in_its_result(backend) -> None:
    text = '#include <cstdio>\n__global__ void k(float* y, int n) { printf("lane %d of %d\\n", threadIdx.x, n); }\n'
    result = launched(backend, text, threads=4)
    assert result.findings == ()
    assert sorted(result.printed.splitlines()) == [f"lane {lane} of 3" for lane in range(4)]


def test_printing_a_flood_is_a_finding_and_costs_nothing(backend) -> None:
    text = (
        "#include <cstdio>\n__global__ void k(float* y, int n) { for (int i = 0; i < 100; i++) "
        'printf("a line of some length %d %d\\n", i, threadIdx.x); }\n'
    )
    result = launched(backend, text, threads=256)
    assert [finding.code for finding in result.findings] == ["output-flood"]
    assert not backend.poisoned


def test_memory_of_kernels_and_their_stacks_is_bounded(backend) -> None:
    grabs = "__global__ void k(float* y, int n) { char* p; int c = 0; while ((p = (char*)malloc(1 << 20))) { p[0] = 1; c++; } y[0] = c; }\n"
    result = launched(backend, grabs, threads=1)
    assert result.findings == ()
    assert 1 <= result.arrays["y"][0] <= 8
    with pytest.raises(UnsupportedInstruction) as caught:
        launched(
            backend,
            "__device__ char pool[200ull << 30];\n__global__ void k(float* y, int n) { pool[n * 1ull << 33] = 1; y[0] = pool[n]; }\n",
        )
    assert caught.value.finding.code == "out-of-memory"


def test_a_process_of_its_own_is_held_to_the_settings_memory() -> None:
    text = RIGHT.replace("n = 400000", "n = 12000000")
    with Session(load_settings(seed=3, backend="cuda", timing_budget_s=0, device_memory_mb=64)) as session:
        verdict = judged(session, text)
        assert codes(verdict) == {"out-of-memory"}
        assert judged(session, RIGHT).correct is True


def test_host_memory_is_bounded_beside_cuda() -> None:
    """In a process of its own, since its limit stays."""
    code = (
        "import numpy as np, cupy\nfrom kernelmate.backends.cuda.backend import CudaBackend\n"
        "from kernelmate.worker.child import _limit\nCudaBackend(); _limit(1 << 30, cuda=True)\n"
        "assert int(cupy.ones(1 << 26, np.uint8).sum(dtype=np.int64)) == 1 << 26\n"
        "try:\n    np.ones(1 << 28)\nexcept MemoryError:\n    print('refused')\n"
        "assert int(cupy.asarray(np.ones(1 << 26, np.uint8)).sum(dtype=np.int64)) == 1 << 26\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ})
    assert done.stdout.strip() == "refused", done.stderr


def test_a_failed_assert_is_told_with_its_condition_and_line(session: Session) -> None:
    text = f"#include <cassert>\n{HEAD}{START}  assert(i < n / 2);\n  if (i < n) y[i] = 2 * x[i];\n}}\n"
    verdict = judged(session, text)
    (finding,) = [one for one in verdict.findings if one.code == "trap"]
    assert "'i < n / 2'" in finding.message
    assert finding.line == text.splitlines().index("  assert(i < n / 2);") + 1


def test_the_driver_agrees_on_resources_and_occupancy_of_every_example(backend) -> None:
    target, seen = find_target(backend.gpu.name), 0
    for path in EXAMPLES:
        for kernel in load_kernels(path):
            contract = parse_contract(kernel)
            if contract is None:
                continue
            for instance in contract.instances or (None,):
                compiled = compile_kernel(
                    kernel, contract.options, instance=instance, target=target, options=CompileOptions()
                )
                module = backend.load(compiled, target)
                for size in contract.sizes:
                    module.ready(launch_shape(contract, size))
                assert backend.take_remarks() == (), path.name
                seen += 1
    assert seen >= 20


def test_torch_in_the_same_process_sees_the_same_memory_and_context() -> None:
    """In a process of its own: what the driver counts must be one context."""
    pytest.importorskip("torch")
    code = (
        "import cupy, torch\nfrom kernelmate.backends.cuda.backend import CudaBackend\n"
        "from cuda.bindings import driver\n"
        "mine = torch.arange(8, dtype=torch.float32, device='cuda')\n"
        "context = driver.cuCtxGetCurrent()[1]\n"
        "backend = CudaBackend()\n"
        "with backend.device:\n"
        "    assert int(driver.cuCtxGetCurrent()[1]) == int(context) != 0, 'a second context'\n"
        "    theirs = cupy.from_dlpack(mine)\n"
        "    assert theirs.data.ptr == mine.data_ptr()\n"
        "    theirs += 1\n"
        "    assert cupy.asarray(mine).data.ptr == mine.data_ptr(), '__cuda_array_interface__'\n"
        "    own = cupy.arange(4.0)\n"
        "    assert torch.from_dlpack(own).data_ptr() == own.data.ptr\n"
        "    assert torch.as_tensor(own, device='cuda').data_ptr() == own.data.ptr\n"
        "torch.cuda.synchronize()\n"
        "print(mine.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ})
    assert done.stdout.strip() == str([float(n) for n in range(1, 9)]), done.stderr
