"""Resources read from a CUBIN, and the occupancy that they allow."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmate.compiler import TARGETS, find_target, last_wave, occupancy, sm_limits, what_would_lift
from kernelmate.compiler.frames import CompileJob
from kernelmate.compiler.process import COMPILER
from kernelmate.compiler.resources import read_resources
from kernelmate.compiler.targets import _SM_LIMITS
from kernelmate.errors import UsageError
from kernelmate.records import LaunchShape, Occupancy, Resources, Target

HEADERS = [
    *(path for entry in sys.path for path in Path(entry).glob("nvidia/cu1?/include/cuda_occupancy.h")),
    *Path("/usr/local").glob("cuda*/include/cuda_occupancy.h"),
]
HEADER = next(iter(HEADERS), None)
SHIM = r"""
#include <string.h>
#include "cuda_occupancy.h"
int blocks(int major, int minor, long shared_sm, long shared_optin, long reserved, int threads_sm, int registers, int max_threads,
           long shared, int block) {
    cudaOccDeviceProp device; cudaOccFuncAttributes kernel; cudaOccDeviceState state; cudaOccResult result;
    memset(&device, 0, sizeof device); memset(&kernel, 0, sizeof kernel); memset(&state, 0, sizeof state);
    device.computeMajor = major; device.computeMinor = minor; device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = threads_sm; device.regsPerBlock = 65536; device.regsPerMultiprocessor = 65536;
    device.warpSize = 32; device.sharedMemPerBlock = 48 * 1024; device.sharedMemPerMultiprocessor = shared_sm; device.numSms = 100;
    device.sharedMemPerBlockOptin = shared_optin; device.reservedSharedMemPerBlock = reserved;
    kernel.maxThreadsPerBlock = max_threads; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; kernel.maxDynamicSharedSizeBytes = shared_optin;
    state.carveoutConfig = 100;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, shared) != CUDA_OCC_SUCCESS) return -1;
    return result.activeBlocksPerMultiprocessor;
}
"""


def resources(registers: int = 32, shared: int = 0, max_threads: int = 1024) -> Resources:
    return Resources(registers, shared, 0, 0, 0, max_threads, 1000)


def shape(threads: int, blocks: int = 1000, shared: int = 0) -> LaunchShape:
    return LaunchShape((blocks, 1, 1), (threads, 1, 1), shared)


def target_of(capability: tuple[int, int]) -> Target:
    return Target("x", "sm_x", capability, 100, 1000, 1, 1.0, 1, 1.0, 1.0, 1.0, "test")


@pytest.mark.skipif(
    HEADER is None or shutil.which("gcc") is None, reason="needs cuda_occupancy.h of a CUDA toolkit, and gcc"
)
def test_100_000_random_configurations_agree_with_nvidias_header(tmp_path) -> None:
    source = tmp_path / "shim.c"
    source.write_text(SHIM)
    library = tmp_path / "shim.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{HEADER.parent}", "-o", library, source], check=True)
    theirs = ctypes.CDLL(str(library)).blocks
    theirs.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        *[ctypes.c_long] * 3,
        *[ctypes.c_int] * 3,
        ctypes.c_long,
        ctypes.c_int,
    ]
    rng = random.Random(20261121)
    different = []
    for capability, limits in _SM_LIMITS.items():
        target = target_of(capability)
        for _ in range(100_000 // len(_SM_LIMITS) + 1):
            registers, threads = rng.randint(1, 255), rng.randint(1, 1024)
            shared = rng.choice([0, rng.randint(0, limits.shared_per_block_optin)])
            want = theirs(
                *capability, limits.shared_per_sm, limits.shared_per_block_optin, limits.shared_reserved,
                limits.threads_per_sm, registers, 1024, shared, threads,
            )  # fmt: skip
            got = occupancy(target, resources(registers), shape(threads, shared=shared)).blocks_per_sm
            if got != want:
                different.append((capability, registers, threads, shared, got, want))
    assert different == []


@pytest.mark.parametrize(
    ("target", "registers", "shared", "threads", "blocks", "limiter"),
    [
        ("H100 SXM", 32, 0, 256, 8, "threads"),
        ("H100 SXM", 64, 0, 256, 4, "registers"),
        ("H100 SXM", 16, 48 * 1024, 256, 4, "shared"),
        ("H100 SXM", 16, 0, 32, 32, "blocks"),
        ("RTX 4090", 32, 0, 256, 6, "threads"),
        ("T4", 32, 0, 1024, 1, "threads"),
    ],
)
def test_the_limiter_is_named(target, registers, shared, threads, blocks, limiter) -> None:
    found = occupancy(find_target(target), resources(registers, shared), shape(threads))
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)


def test_what_cannot_be_launched_has_no_occupancy_and_says_so() -> None:
    h100 = find_target(None)
    for cannot in (
        occupancy(h100, resources(), shape(1056)),
        occupancy(h100, resources(max_threads=256), shape(512)),
        occupancy(h100, resources(shared=228 * 1024), shape(64)),
        occupancy(h100, resources(registers=255), shape(1024)),
    ):
        assert (cannot.theoretical, cannot.limiter, cannot.blocks_per_sm, cannot.waves) == (0.0, "launch", 0, None)


def test_waves_are_rounds_of_blocks_over_the_whole_gpu() -> None:
    h100 = find_target("H100 SXM")
    assert occupancy(h100, resources(), shape(256, blocks=132 * 8 * 3)).waves == 3.0


def test_what_would_lift_names_the_smallest_change_that_helps_and_it_does() -> None:
    h100 = find_target(None)
    told = what_would_lift(h100, resources(registers=72), shape(256))
    assert told[0].startswith("8 registers fewer per thread (64): 37.5% -> 50%")
    assert occupancy(h100, resources(registers=64), shape(256)).theoretical == 0.5
    assert occupancy(h100, resources(registers=65), shape(256)).theoretical == 0.375
    assert any("shared memory" in line for line in what_would_lift(h100, resources(shared=60 * 1024), shape(256)))
    assert any("block of 64 threads" in line for line in what_would_lift(h100, resources(16), shape(32)))
    assert what_would_lift(h100, resources(), shape(256)) == ()


@pytest.mark.parametrize(
    "name", ["h100", "H100 SXM", "nvidia h100 sxm", "sm_90", "SM90", "compute_90", None, "NVIDIA H100 80GB HBM3"]
)
def test_names_of_the_h100(name) -> None:
    assert find_target(name).name == "H100 SXM"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB SXM"),
        ("a100 80gb", "A100 80GB SXM"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("2080ti", "RTX 2080 Ti"),
        ("Tesla T4", "T4"),
        ("L4", "L4"),
        ("L40S", "L40S"),
    ],
)
def test_names_as_people_and_drivers_spell_them(name, found) -> None:
    assert find_target(name).name == found


@pytest.mark.parametrize("name", ["", "RTX", "80GB", "sm_70", "sm_86a", "H1000", "RTX 40"])
def test_what_names_no_gpu_is_refused(name) -> None:
    with pytest.raises(UsageError):
        find_target(name)


@pytest.mark.parametrize(("waves", "full"), [(1.0, 1.0), (1.25, 0.25), (3.0, 1.0), (0.5, 0.5), (None, None)])
def test_the_last_wave_is_as_full_as_it_is(waves, full) -> None:
    assert last_wave(Occupancy(1.0, "threads", 8, waves)) == full


def test_an_architecture_with_a_suffix_is_compiled_as_such() -> None:
    assert (find_target("sm_90a").name, find_target("sm_90a").arch) == ("H100 SXM", "sm_90a")


def test_an_unknown_gpu_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="RTX 4090"):
        find_target("RTX 4091")


def test_the_table_holds_together() -> None:
    for target in TARGETS:
        assert sm_limits(target.capability).warps_per_sm in (32, 48, 64)
        assert target.arch == f"sm_{target.capability[0]}{target.capability[1]}"
        assert target.source
        assert find_target(target.name) == target
    assert find_target("H100 SXM").fp32_tflops == pytest.approx(66.9, rel=0.01)
    assert find_target("RTX 4090").fp32_tflops == pytest.approx(82.6, rel=0.01)
    assert find_target("A100 80GB SXM").fp64_tflops == pytest.approx(9.7, rel=0.01)


KERNELS = {
    "plain": "__global__ void k(float* x) { x[threadIdx.x] *= 2; }",
    "shared": "__global__ void k(float* x) { __shared__ float t[777]; t[threadIdx.x] = x[0]; __syncthreads(); x[0] = t[5]; }",
    "dynamic": "extern __shared__ float t[]; __global__ void k(float* x) { t[threadIdx.x] = x[0]; __syncthreads(); x[0] = t[5]; }",
    "local": "__global__ void k(float* x, int n) { float t[50]; for (int i = 0; i < 50; i++) t[i] = x[i * n]; x[0] = t[n]; }",
    "bounds": "__global__ void __launch_bounds__(192) k(float* x) { x[threadIdx.x] = sqrtf(x[1]); }",
    "printf": '__global__ void k(float* x) { printf("%f", x[0]); }',
    "call": "__device__ __noinline__ float f(float a, int n) { float t[9]; t[n] = a; return t[n + 1]; }\n"
    "__global__ void k(float* x, int n) { float t[20]; t[n] = x[0]; x[0] = f(t[n + 2], n); }",
    "spills": "__global__ void __launch_bounds__(1024, 2) k(const float* x, float* y, int n) { float t[64];\n#pragma unroll\n"
    "for (int i = 0; i < 64; i++) t[i] = x[i * n];\n__syncthreads(); float s = 0;\n#pragma unroll\n"
    "for (int i = 0; i < 64; i++) s += t[i] * t[63 - i] * t[(i * 7) % 64]; y[0] = s; }",
    "double": "__global__ void k(double* x) { x[0] = sin(x[1]) / x[2]; }",
}  # fmt: skip
LIMITS = {"bounds": 192}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_it_agrees_with_ptxas(name: str, arch: str) -> None:
    options = (f"--gpu-architecture={arch}", "--ptxas-options=--verbose", "--std=c++17")
    product = COMPILER.compile(CompileJob(KERNELS[name], "kernel.cu", (), options, ("k",)), 60)
    assert product.ok, product.log
    symbol = product.lowered[0]
    digits = arch.removeprefix("sm_").rstrip("a")
    found = read_resources(product.cubin, symbol, product.log, (int(digits[:-1]), int(digits[-1])))
    part = product.log[product.log.index(f"Compiling entry function '{symbol}'") :]
    used = re.search(r"Used (\d+) registers[^\n]*", part)
    assert found.registers == int(used[1])
    shared = re.search(r"(\d+) bytes smem", used[0])
    assert found.shared_bytes == (int(shared[1]) if shared else 0)
    stack = re.search(r"(\d+) bytes cumulative stack size", used[0])
    frame = re.search(rf"Function properties for {symbol}\n\D*(\d+) bytes stack frame, (\d+)\D+(\d+)", part)
    assert found.local_bytes == max(int(frame[1]), int(stack[1]) if stack else 0)
    assert found.spill_bytes == int(frame[2]) + int(frame[3])
    # An SM of sm_120 holds one such block only, so there nothing has to be spilled for a second.
    assert (found.spill_bytes > 0) == (name == "spills" and arch != "sm_120")
    assert found.max_threads == LIMITS.get(name, 1024)
    assert found.code_bytes % 16 == 0
    assert found.dynamic_shared_bytes == 0


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="not a CUBIN"):
        read_resources(b"\x7fELF\x01", "k", "", (9, 0))
