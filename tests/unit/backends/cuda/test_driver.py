"""Values from the driver: errors as findings, memory of a kernel, block limits, and launch structures."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from kernelmate.backends.cuda.backend import resource_disagreements
from kernelmate.backends.cuda.launching import LaunchAttribute, LaunchConfig, config_for
from kernelmate.backends.cuda.loading import fault_of
from kernelmate.backends.cuda.memory import DeviceMemory, variable_bytes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.errors import DeviceFailed
from kernelmate.records import Compiled, CompileOptions, FindingCode, LaunchShape, Resources
from kernelmate.source import find_kernels, text_unit


@pytest.mark.parametrize(
    ("status", "traps", "code", "sticky"),
    [
        (700, False, "illegal-address", True),
        (716, False, "misaligned-access", True),
        (719, True, "trap", True),
        (719, False, "illegal-address", True),
        (710, True, "trap", True),
        (715, False, "trap", True),
        (702, False, "hang", True),
        (2, False, "out-of-memory", False),
        (701, False, "launch-failure", False),
        (1, False, "launch-failure", False),
    ],
)
def test_a_status_becomes_its_finding(status: int, traps: bool, code: str, sticky: bool) -> None:
    fault = fault_of(status, "CUDA_ERROR_X: words", traps=traps)
    assert (fault.finding.code, fault.sticky) == (code, sticky)
    assert fault.finding.severity == "error"
    assert "CUDA_ERROR_X: words" in fault.finding.message
    assert code in set(FindingCode)


@pytest.mark.parametrize("status", [46, 214, 220, 226, 709, 805, 810, 999, 12345])
def test_what_no_kernel_causes_is_no_finding(status: int) -> None:
    with pytest.raises(DeviceFailed, match="This says nothing about the kernel") as caught:
        fault_of(status, "CUDA_ERROR_X: words", traps=True)
    assert "CUDA_ERROR_X: words" in caught.value.message
    assert "nvidia-smi" in str(caught.value.hint)


def ptx_of(text: str) -> str:
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return compiled.ptx


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("__device__ char a[1 << 30];", 1 << 30),
        ("__device__ double a[3][5];", 120),
        ("__device__ int a = 7;", 4),
        ("__device__ short b[10]; __device__ long long a[2] = {1, 2};", 36),
        ("", 0),
    ],
)
def test_variables_of_a_module_are_counted(declared: str, size: int) -> None:
    uses = "y[0] = (float)*(char*)&a;" if declared else "y[0] = 1;"
    both = "y[1] = (float)b[3];" if " b[" in declared else ""
    assert variable_bytes(ptx_of(f"{declared}\n__global__ void k(float* y) {{ {uses} {both} }}\n")) == size


def test_stacks_and_variables_beyond_the_limit_are_refused_with_the_setting_to_raise() -> None:
    memory = DeviceMemory(limit=1 << 30, resident_threads=132 * 2048)
    assert memory.refusal("", 1024) is None
    refused = memory.refusal("", 64 << 10)
    assert refused is not None
    assert "65536 bytes of local memory for each of 270336 resident threads" in refused
    assert "device_memory_mb" in refused
    variables = memory.refusal(".global .align 4 .b8 a[2147483648];\n", 0)
    assert variables is not None
    assert "2048 MB; 1024 MB may be taken" in variables


H100 = find_target("H100 SXM")


def told(registers: int, bound: int, largest: int) -> list[str]:
    resources = Resources(registers, 0, 0, 0, 0, bound, 100)
    compiled = Compiled("k", None, "k", "sm_90", "by hand", True, (), resources=resources)
    function = SimpleNamespace(
        num_regs=registers, shared_size_bytes=0, local_size_bytes=0, max_threads_per_block=largest
    )
    return list(resource_disagreements(compiled, H100, function))


# Read from the driver of an H100: 256 for a kernel of 255 registers, 896 for one of 72.
@pytest.mark.parametrize(
    ("registers", "bound", "largest"), [(255, 1024, 256), (72, 1024, 896), (32, 1024, 1024), (40, 512, 512)]
)
def test_the_largest_block_follows_from_registers_and_launch_bounds(registers: int, bound: int, largest: int) -> None:
    assert told(registers, bound, largest) == []


def test_another_largest_block_is_told() -> None:
    assert told(32, 1024, 512) == ["largest block: 1024 by the compiled code, 512 by the driver"]


def test_the_layout_is_that_of_cuda_h() -> None:
    """Sizes and offsets as `sizeof` and `offsetof` give them for CUDA 13.0's header on x86-64."""
    names = ("grid", "block", "shared_bytes", "stream", "attributes", "attribute_count")
    assert [getattr(LaunchConfig, name).offset for name in names] == [0, 12, 24, 32, 40, 48]
    assert ctypes.sizeof(LaunchConfig) == 56
    assert (ctypes.sizeof(LaunchAttribute), LaunchAttribute.value.offset) == (72, 8)


@pytest.mark.parametrize(("cluster", "sides"), [((2,), [2, 1, 1]), ((2, 4), [2, 4, 1]), ((1, 2, 3), [1, 2, 3])])
def test_a_launch_carries_its_cluster_grid_and_block(cluster, sides) -> None:
    config = config_for(LaunchShape((8, 4, 6), (32, 2, 1), 1000, cluster=cluster), 77)
    assert (list(config.grid), list(config.block), config.shared_bytes) == ([8, 4, 6], [32, 2, 1], 1000)
    assert (config.stream, config.attribute_count, config.attributes[0].id) == (77, 1, 4)
    assert list(config.attributes[0].value)[:3] == sides


def test_a_cooperative_one_says_so_too() -> None:
    config = config_for(LaunchShape((2, 1, 1), (32, 1, 1), cooperative=True, cluster=(2,)), 0)
    assert config.attribute_count == 2
    assert (config.attributes[1].id, config.attributes[1].value[0]) == (2, 1)
