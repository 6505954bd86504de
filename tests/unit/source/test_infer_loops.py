"""Inferred sizes are bounded by the iterations of the kernel's loops, for bounds of every form."""

from __future__ import annotations

import pytest

from kernelmate.records import LaunchShape
from kernelmate.source import find_kernels, infer_contract, text_unit
from kernelmate.source.infer_loops import KernelLoops

HEAD = "#define WIDE 64\nconst int TILE = 32;\nstruct Box { int side; float* data; };\n"


def iterations(body: str, sizes: dict[str, int], parameters: str = "const float* x, float* y, int n, int m") -> int:
    kernel = find_kernels(text_unit(f"{HEAD}__global__ void k({parameters}) {{ {body} }}"))[-1]
    contract = infer_contract(kernel)
    loops = KernelLoops(kernel, contract.args, contract.passing, {})
    return loops.iterations(sizes, LaunchShape((8, 1, 1), (128, 1, 1), 0))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("for (int i = 0; i < 64; i++) for (int j = 0; j < WIDE; ++j) y[i] = x[j];", 64 * 64),
        ("for (int i = 0; i < n; i++) y[i] = x[i]; for (int j = 0; j < m; j += TILE) { y[j] = x[j]; }", 1000 + 7),
        ("const int rows = min(n - blockIdx.x * TILE, TILE); for (int i = start; i < rows; i++) y[i] = x[i];", 32),
        ("for (int i = 0; i < (n + TILE - 1) / TILE; i++) { for (int j = 2; j <= 9; j++) y[i] = x[j]; }", 32 * 8),
        ("for (int s = blockDim.x / 2; s > 0; s >>= 1) y[s] = x[s];", 7),
        ("for (unsigned int i = n - 1; i >= 0; --i) y[i] = x[i];", 1000),
        ("for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];", 1),
        ("for (int i = offsets[0]; i < offsets[1]; i++) y[i] = x[i];", 1),
        ("if (n > 3) for (int i = 0; i < n && i < 50; i++) if (x[i] > 0) { y[i] = 1; } else y[i] = 2; y[0] = 1;", 50),
        ("for (int i = 0; n > i; i++) y[i] = x[i];", 1000),
        ("for (int i = 0; i != m; i++) y[i] = x[i];", 200),
        ("y[0] = x[0];", 1),
    ],
)
def test_the_iterations_of_nested_loops_are_multiplied_and_those_of_others_added(body: str, count: int) -> None:
    assert iterations(body, {"n": 1000, "m": 200}) == count


def test_bounds_may_be_fields_and_sides_of_tensors() -> None:
    parameters = "Box box, torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* y"
    body = "const int c = x.size(1); for (int i = 0; i < c; i++) for (int j = 0; j < box.side; j++) y[i] = x[i][j];"
    assert iterations(body, {"side": 12}, parameters) == 12 * 12


def test_sizes_are_halved_by_literal_loops_and_never_where_that_is_of_no_use() -> None:
    loop = "float s = 0; for (int a = 0; a < 64; a++) for (int b = 0; b < 64; b++) s += a * b;"
    store = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = s;"
    launch = "void run(float* y) {{ int n = 65536; k<<<{grid}, 256>>>(y, n); }}"
    for grid, size in (("(n + 255) / 256", 2048), ("256", 65536)):
        text = f"__global__ void k(float* y, int n) {{ {loop} {store} }}\n{launch.format(grid=grid)}"
        assert infer_contract(find_kernels(text_unit(text))[0]).sizes[0] == {"n": size}
