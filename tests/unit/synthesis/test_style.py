"""Style of a written kernel: names, constants, width and launches follow the user's file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Contract, Kernel
from kernelmate.source import contract_for, load_kernel
from kernelmate.source.folding import folded, width_of, wrapped
from kernelmate.suggest.replacement import without_own_helpers, without_unused_numbers
from kernelmate.suggest.untrusted import screen
from kernelmate.synthesis.kernel_text import GUARD, WrittenKernel
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.schedules.windows import with_locals
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

MAP = {"x": "in float32[rows]", "y": "out float32[rows]", "rows": "int32"}
NORM = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
LONG = "{ rows = 6, cols = 900 }, { rows = 3, cols = 7 }"
NORMED = "def reference(x):\n    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)"


def first(kernel: Kernel, contract: Contract, folder: Path) -> WrittenKernel:
    return next(kernels_for(trace(contract, folder), without_own_helpers(kernel), contract))


def file_of(kernel: Kernel, contract: Contract, folder: Path) -> Kernel:
    """The user's file with the first written kernel in it, as it is offered."""
    found, _ = placed(without_own_helpers(kernel), contract, first(kernel, contract, folder))
    return without_unused_numbers(kernel, found)


def with_host(folder: Path, host: str) -> tuple[Kernel, Contract]:
    path = folder / "kernel.cu"
    path.write_text(f"{path.read_text()}\n{host}\n")
    kernel = load_kernel(path)
    return kernel, contract_for(kernel)


def test_locals_have_the_names_that_the_reference_gives_them(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    gate = 1 / (1 + np.exp(-x))\n    rows = gate * x\n    return rows + gate"
    text = first(*make(MAP, reference), tmp_path).definition
    assert "const float gate = " in text
    assert not re.search(r"float rows\b", text)  # a parameter has that name


@pytest.mark.parametrize("word", ["double", "sum", "max"])
def test_names_that_mean_something_in_cuda_are_not_taken_over(word: str, make: Any, tmp_path: Path) -> None:
    reference = f"def reference(x):\n    {word} = x * 3\n    return {word} * {word}"
    assert f"const float {word} =" not in first(*make(MAP, reference), tmp_path).definition


def test_numbers_are_written_by_the_constants_that_the_kernel_used(make: Any, tmp_path: Path) -> None:
    above = "struct Decay {\n  static constexpr float rate = 0.9f;\n};\nconstexpr float kUnused = 0.3f;\n"
    kernel, contract = make(MAP, "np.float32(0.9) * x + 0.3", body="y[0] = Decay::rate * x[0];", above=above)
    text = first(kernel, contract, tmp_path).definition
    assert "Decay::rate * x_i" in text
    assert "0.3f" in text, "a constant that the kernel does not name"


def test_a_reciprocal_root_is_written_as_the_baseline_has_it(make: Any, tmp_path: Path) -> None:
    plain = first(*make(NORM, NORMED, body="y[0] = 1.0f / sqrtf(x[0]);"), tmp_path)
    quick = first(*make(NORM, NORMED, body="y[0] = rsqrtf(x[0]);"), tmp_path)
    assert "1.0f / sqrtf(" in plain.helpers
    assert "rsqrtf" not in plain.helpers
    assert "rsqrtf(" in quick.helpers
    assert "/ sqrtf" not in quick.helpers


def test_a_warp_has_names_or_the_files_own(make: Any, tmp_path: Path) -> None:
    text = file_of(*make(NORM, NORMED, sizes=LONG), tmp_path).unit.text
    assert text.count("0xffffffffu") == 1
    assert "constexpr unsigned int kAllLanes = 0xffffffffu;" in text
    assert "__shfl_xor_sync(kAllLanes, value, offset)" in text
    assert "int offset = kWarpSize / 2;" in text
    named = "constexpr int kWarp = 32;\n__global__ void other(int* p) { p[0] = kWarp; }\n"
    own = file_of(*make(NORM, NORMED, above=named, sizes=LONG), tmp_path).unit.text
    assert "int offset = kWarp / 2;" in own
    assert "kWarpSize" not in own


def test_a_launch_names_the_constant_of_the_block(make: Any, tmp_path: Path) -> None:
    make(NORM, NORMED)
    kernel, contract = with_host(
        tmp_path, "void run(float* x, float* y, int r, int c) { work<<<r, 128>>>(x, y, r, c); }"
    )
    found = file_of(kernel, contract, tmp_path)
    assert "kThreads>>>(x, y, r, c)" in found.unit.text
    assert screen(kernel, found) is None


def test_a_constant_that_only_launches_had_goes(make: Any, tmp_path: Path) -> None:
    make(NORM, NORMED, above="constexpr unsigned kBlock = 128;\n")
    kernel, contract = with_host(
        tmp_path, "void run(float* x, float* y, int r, int c) { work<<<r, kBlock>>>(x, y, r, c); }"
    )
    found = file_of(kernel, contract, tmp_path)
    assert "kBlock" not in found.unit.text
    assert ", kThreads>>>(x, y, r, c)" in found.unit.text
    assert screen(kernel, found) is None


@pytest.mark.parametrize("given", ["#define TPB 64", "const int TPB = 64;", "static constexpr int TPB = 64;"])
def test_a_constant_of_the_block_serves_kernel_and_launches(given: str, make: Any, tmp_path: Path) -> None:
    make(NORM, NORMED, body="y[0] = x[TPB];", block=64, above=f"{given}\n")
    kernel, contract = with_host(
        tmp_path, "void run(float* x, float* y, int r, int c) { work<<<r, TPB>>>(x, y, r, c); }"
    )
    found = file_of(kernel, contract, tmp_path)
    assert given.replace("64", "128") in found.unit.text
    assert "__launch_bounds__(TPB)" in found.unit.text
    assert "kThreads" not in found.unit.text
    assert screen(kernel, found) is None


def test_a_dim3_has_the_names_of_the_kernels_constants(make: Any, tmp_path: Path) -> None:
    make(NORM, NORMED)
    host = "void run(float* x, float* y, int r, int c) {\n  dim3 b(128), g(r);\n  work<<<g, b>>>(x, y, r, c);\n}"
    kernel, contract = with_host(tmp_path, host)
    text = file_of(kernel, contract, tmp_path).unit.text
    assert "dim3 b(kThreads), g((r + kThreads / kLanes - 1) / (kThreads / kLanes));" in text


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("namespace a {", "}", False),
        ("namespace {", "}", True),
        ("namespace a {\nnamespace {", "}", True),
        ("", "", True),
    ],
)
def test_a_launch_names_a_constant_that_it_sees(
    before: str, after: str, named: bool, make: Any, tmp_path: Path
) -> None:
    make(NORM, NORMED, above=f"{before}\n" if before else "")
    end = "}" * (before.count("{") - after.count("}"))
    host = f"{after}\nvoid run(float* x, float* y, int r, int c) {{ work<<<r, 128>>>(x, y, r, c); }}\n{end}"
    kernel, contract = with_host(tmp_path, host)
    assert ("kThreads>>>" in file_of(kernel, contract, tmp_path).unit.text) is named


def test_a_function_that_is_called_once_has_no_barrier_against_earlier_calls(make: Any, tmp_path: Path) -> None:
    above = "    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)"
    text = file_of(*make(NORM, f"def reference(x):\n{above}", sizes="{ rows = 6, cols = 9000 }"), tmp_path).unit.text
    assert "block_sum" in text
    assert "earlier call" not in text
    twice = (
        "def reference(x):\n    c = x - x.mean(axis=1, keepdims=True)\n    return (c**2).sum(axis=1, keepdims=True) * c"
    )
    text = file_of(*make(NORM, twice, sizes="{ rows = 6, cols = 9000 }"), tmp_path).unit.text
    assert "earlier call" in text


def test_a_function_that_a_loop_calls_behind_a_blank_line_keeps_its_barrier(make: Any, tmp_path: Path) -> None:
    helper = f"static __device__ float block_sum(float value) {{\n  {GUARD}\n  return value;\n}}"
    caller = "static __device__ void row(float* x) {\n  for (int i = 0; i < 4; ++i) {\n    x[i] += 1;\n\n    x[i] = block_sum(x[i]);\n  }\n}"
    kernel, contract = make(MAP, "x * 2")
    written = first(kernel, contract, tmp_path)
    definition = written.definition.replace("{", "{\n  row(x);", 1)
    text = placed(kernel, contract, replace(written, definition=definition, helpers=f"{helper}\n\n{caller}"))[
        0
    ].unit.text
    assert GUARD in text


def test_types_have_the_names_of_the_file(make: Any, tmp_path: Path) -> None:
    kernel, contract = make(MAP, "x * 2", above="using real = float;\n")
    kernel = load_kernel(_with(tmp_path / "kernel.cu", ("float* x", "real* x")))
    text = first(kernel, contract, tmp_path).definition
    assert "const real* __restrict__ x" in text
    assert "real at[kPack];" in text


def test_macros_name_numbers_of_the_reference(make: Any, tmp_path: Path) -> None:
    text = first(*make(MAP, "x * 0.25", body="y[0] = QUARTER * x[0];", above="#define QUARTER 0.25f\n"), tmp_path)
    assert "QUARTER" in text.definition


def test_copies_of_halves_are_not_converted(make: Any, tmp_path: Path) -> None:
    halves = {"x": "in float16[h, w]", "y": "out float16[w, h]", "h": "int32", "w": "int32"}
    text = first(*make(halves, "x.T", sizes=SIDES, grid="h", above="#include <cuda_fp16.h>\n"), tmp_path).definition
    assert "half2float" not in text


def _with(path: Path, *changes: tuple[str, str]) -> Path:
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


STENCIL = (
    {"x": "in float32[h, w]", "y": "out float32[h, w]", "h": "int32", "w": "int32"},
    "def reference(x):\n    y = x.copy()\n    y[1:-1] = x[:-2] + x[2:]\n    return y",
)
SIDES = "{ h = 37, w = 53 }, { h = 1, w = 1 }"


def stencil(make: Any, folder: Path, host: str) -> tuple[Kernel, Contract]:
    body = "const int j = blockIdx.x * blockDim.x + threadIdx.x;\nconst int i = blockIdx.y * blockDim.y + threadIdx.y;"
    make(*STENCIL, sizes=SIDES, grid='cdiv(w, block_x)", "cdiv(h, block_y)', body=body, block="[16, 16]")
    return with_host(folder, host)


def test_a_grid_that_stays_keeps_its_text(make: Any, tmp_path: Path) -> None:
    host = "void run(float* x, float* y, int h, int w) {\n  dim3 b(16, 16), g((w + b.x - 1) / b.x, (h + b.y - 1) / b.y);\n  work<<<g, b>>>(x, y, h, w);\n}"
    kernel, contract = stencil(make, tmp_path, host)
    found = file_of(kernel, contract, tmp_path)
    assert found.unit.text.endswith(f"{host}\n")
    assert '// grid = ["cdiv(w, block_x)", "cdiv(h, block_y)"]' in found.unit.text


def test_a_changed_launch_changes_its_dim3_variables(make: Any, tmp_path: Path) -> None:
    make(
        {"x": "in float32[h, w]", "y": "out float32[w, h]", "h": "int32", "w": "int32"}, "x.T", sizes=SIDES,
        grid='cdiv(w, 16)", "cdiv(h, 16)', block="[16, 16]",
    )  # fmt: skip
    host = "void run(float* x, float* y, int h, int w) {\n  dim3 b(16, 16);\n  dim3 g((w + 15) / 16, (h + 15) / 16);\n  work<<<g, b>>>(x, y, h, w);\n}"
    kernel, contract = with_host(tmp_path, host)
    found = file_of(kernel, contract, tmp_path)
    assert "work<<<g, b>>>(x, y, h, w);" in found.unit.text
    assert "dim3 b(kTile, kRows);" in found.unit.text
    assert "dim3 g((w + kTile - 1) / kTile, (h + kTile - 1) / kTile);" in found.unit.text
    assert screen(kernel, found) is None


@pytest.mark.parametrize(("grid", "kept"), [('cdiv(w, 32)", "cdiv(h, 32)', True), ("cdiv(w, 32) * cdiv(h, 32)", False)])
def test_a_transposition_keeps_a_launch_of_tiles_in_two_dimensions(
    grid: str, kept: bool, make: Any, tmp_path: Path
) -> None:
    make(
        {"x": "in float32[h, w]", "y": "out float32[w, h]", "h": "int32", "w": "int32"}, "x.T", sizes=SIDES,
        grid=grid, block="[32, 8]", above="constexpr int kTile = 32;\nconstexpr int kRows = 8;\n",
        body="__shared__ float tile[kTile][kTile];\nfor (int i = 0; i < kTile; i += kRows) tile[i][0] = x[i];",
    )  # fmt: skip
    host = (
        "void run(float* x, float* y, int h, int w) {\n  dim3 b(kTile, kRows);\n"
        "  dim3 g((w + kTile - 1) / kTile, (h + kTile - 1) / kTile);\n  work<<<g, b>>>(x, y, h, w);\n}"
    )
    kernel, contract = with_host(tmp_path, host)
    found = file_of(kernel, contract, tmp_path)
    assert found.unit.text.endswith(f"{host}\n") == kept
    assert ("blockIdx.y * kTile" in found.unit.text) == kept


@pytest.mark.parametrize(
    ("new", "allowed"),
    [("b(32, 8)", True), ("b(h, 8)", True), ("b(system(0), 8)", False), ("b(32, 8); h = 0", False)],
)
def test_only_the_sides_of_a_launchs_dim3_may_change_beside_a_kernel(
    new: str, allowed: bool, make: Any, tmp_path: Path
) -> None:
    host = "void run(float* x, float* y, int h, int w) {\n  dim3 b(16, 16);\n  work<<<h, b>>>(x, y, h, w);\n}"
    kernel, _ = stencil(make, tmp_path, host)
    (tmp_path / "kernel.cu").write_text(kernel.unit.text.replace("b(16, 16)", new))
    finding = screen(kernel, load_kernel(tmp_path / "kernel.cu"))
    assert (finding is None) == allowed


def test_neighbours_are_called_after_where_they_lie(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    p = np.pad(x, 1)\n    return (p[:-2, 1:-1] - p[2:, 1:-1]) ** 2 + (p[1:-1, :-2] - p[1:-1, 2:]) ** 2"
    text = first(*make(STENCIL[0], reference, sizes=SIDES, grid="h"), tmp_path).definition
    assert all(f"const float {name} = " in text for name in ("up", "down", "left", "right"))


def test_the_width_of_a_file_is_kept(make: Any, tmp_path: Path) -> None:
    for longest in (98, 118):
        kernel, contract = make(NORM, NORMED, above=f"// {'-' * (longest - 3)}\n")
        lines = file_of(kernel, contract, tmp_path).unit.text.split("\n")
        assert max(map(len, lines)) <= width_of(kernel.unit.text) == longest + 2


def test_long_statements_are_broken_outside_of_parentheses_and_before_tight_operators() -> None:
    line = "  const bool aligned = columns % 4 == 0 && (address(first) | address(second) | address(third)) % 16 == 0;"
    assert folded(line, 80) == [
        "  const bool aligned =",
        "      columns % 4 == 0 &&",
        "      (address(first) | address(second) | address(third)) % 16 == 0;",
    ]
    assert folded("  if (a_long_condition < limit) target[first_position] = values[second_position];", 60) == [
        "  if (a_long_condition < limit) {",
        "    target[first_position] = values[second_position];",
        "  }",
    ]
    assert folded("  short = 1;", 80) == ["  short = 1;"]


def test_parameters_stand_below_each_other() -> None:
    text = wrapped("__global__ void work(", ["const float* first", "const float* second", "int third"], 60)
    assert text.split("\n") == [
        "__global__ void work(const float* first,",
        "                     const float* second, int third)",
    ]


def test_lengths_and_rows_that_have_a_name_are_not_written_again() -> None:
    lines = ["const int half = dim / 2;", "float* q_row = q + (a + head) * dim;", "q[(a + head) * dim + i + dim / 2] = x[(dim / 2) * i];", "y[n * dim / 2] = 0;"]  # fmt: skip
    assert with_locals(lines)[2:] == ["q_row[i + half] = x[half * i];", "y[n * dim / 2] = 0;"]


def test_a_guarded_statement_with_calls_is_broken_behind_its_condition() -> None:
    line = "  if (first < N) *reinterpret_cast<Results*>(&y[static_cast<size_t>(row) * N + first]) = y_pack;"
    assert folded(line, 80) == [
        "  if (first < N) {",
        "    *reinterpret_cast<Results*>(&y[static_cast<size_t>(row) * N + first]) =",
        "        y_pack;",
        "  }",
    ]


NORMS = "def reference(x):\n    mean = x.mean(axis=1, keepdims=True)\n    centred = x - mean\n    var = (centred**2).mean(axis=1, keepdims=True)\n    return centred / np.sqrt(var + 1e-5) * centred"


def test_passes_over_a_kept_row_share_its_loads_and_the_references_names(make: Any, tmp_path: Path) -> None:
    text = first(*make(NORM, NORMS, sizes=LONG), tmp_path).helpers
    assert text.count("reinterpret_cast<const Pack<kPack>*>(x_row + col)") == 1
    assert text.count("for_each_pack<kPack>(x_packs, x_row, cols, [&](const Pack<kPack>& x_pack") == 3
    assert "auto" not in "".join(
        re.findall(r"\[&?=?\]\(([^)]*)\)", text)
    )  # NVRTC 13.0 compiles no generic lambda in device code
    assert text.count("const float centred = x_pack.at[j] - mean;") == 2  # of the second pass and of the last one
    assert "centred_2" not in text


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("def reference(x, r):\n    held = x + r\n    return held / held.sum(axis=1, keepdims=True)", "x_pack.at[j] + r_pack.at[j]"),
        ("def reference(x, r):\n    held = np.where(r > 0, x, -np.inf)\n    e = np.exp(held - held.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)", "r_pack.at[j] > 0.0f ? x_pack.at[j] : -INFINITY"),
    ],
    ids=["a sum", "a masked value"],
)  # fmt: skip
def test_a_value_of_several_arrays_is_kept_in_place_of_them(
    reference: str, value: str, make: Any, tmp_path: Path
) -> None:
    text = first(*make(NORM | {"r": "in float32[rows, cols]"}, reference, sizes=LONG), tmp_path).helpers
    assert f"held_pack.at[j] = {value};" in text
    assert text.count("x_pack.at[j]") == 1
    assert "struct Kept" not in text


def test_arrays_that_passes_use_apart_are_kept_together(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, r):\n    return (x - x.mean(axis=1, keepdims=True)) * (r - r.mean(axis=1, keepdims=True))"
    )
    text = first(*make(NORM | {"r": "in float32[rows, cols]"}, reference, sizes=LONG), tmp_path).helpers
    assert "struct Kept {\n    Pack x;\n    Pack r;\n  };" in text
    assert "sum_x += kept.x.at[j];" in text
    assert "sum_r += kept.r.at[j];" in text


def test_rows_that_packs_do_not_divide_are_read_side_by_side(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols]", "b": "in float32[cols]", "y": "out float32[rows, cols]", "cols": "int32"}
    text = first(*make(args, "x + b", sizes=LONG, grid="rows"), tmp_path).definition
    assert "for (int column = threadIdx.x; column < cols; column += blockDim.x) {" in text
    assert "y[i] = compute(x[i], b[column]);" in text
    assert "const auto compute = [](float x_i, float b_i) {" in text


def test_what_a_row_has_in_common_is_computed_before_its_elements(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n, c, p]", "w": "in float32[c]", "v": "in float32[c]", "y": "out float32[n, c, p]", "n": "int32", "c": "int32", "p": "int32"}  # fmt: skip
    text = first(*make(args, "x * w[:, None] / np.sqrt(v[:, None])", sizes="{ n = 3, c = 7, p = 9000 }, { n = 2, c = 3, p = 7 }", grid="n * c"), tmp_path).helpers  # fmt: skip
    assert text.index("w[") < text.index("for (int column") < text.index("x_pack")
    assert "const float* x_row = x + row * p;" in text


def test_an_element_of_a_result_is_called_after_it(make: Any, tmp_path: Path) -> None:
    args = {
        "x": "in float32[rows, cols]",
        "total": "out float32[rows, cols]",
        "y": "out float32[rows]",
        "rows": "int32",
        "cols": "int32",
    }
    reference = "def reference(x):\n    total = x * 3\n    return total, (total * total).sum(axis=1)"
    text = first(*make(args, reference, sizes=LONG), tmp_path).helpers
    assert "const float total_i = x_" in text


def test_tiles_of_a_product_are_loaded_by_one_function(make: Any, tmp_path: Path) -> None:
    args = {
        "a": "in float32[m, k]",
        "b": "in float32[k, n]",
        "c": "out float32[m, n]",
        "m": "int32",
        "n": "int32",
        "k": "int32",
    }
    text = first(
        *make(args, "a @ b", sizes="{ m = 64, n = 64, k = 64 }, { m = 5, n = 7, k = 3 }", grid="m"), tmp_path
    ).definition
    assert text.count("*reinterpret_cast<const Pack*>(") == 1
    assert re.findall(r"const Pack (\w)_next = load\(", text) == ["a", "b"]


def test_a_counter_takes_another_letter_and_no_number(make: Any, tmp_path: Path) -> None:
    body = "const int j = blockIdx.x * blockDim.x + threadIdx.x;\nconst int i = blockIdx.y * blockDim.y + threadIdx.y;"
    kernel, contract = make(
        *STENCIL,
        sizes="{ h = 4096, w = 4096 }, { h = 1, w = 1 }",
        grid='cdiv(w, 16)", "cdiv(h, 16)',
        body=body,
        block="[16, 16]",
    )
    texts = [one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    assert any("for (int k = 0; k < kRows; ++k)" in one for one in texts)
    assert not any(re.search(r"\b[ijk]_2\b", one) for one in texts)


def test_numbers_of_rows_are_called_as_in_the_reference_and_rows_have_pointers(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, rows, cols):\n    low = np.floor(np.maximum((np.arange(2 * rows) + 0.5) / 2 - 0.5, 0)).astype(int)\n"
        "    high = np.minimum(low + 1, rows - 1)\n    return x[low] + x[high] * 0.5"
    )
    args = {**NORM, "y": "out float32[2 * rows, cols]"}
    text = first(*make(args, reference, sizes=LONG, grid="2 * rows"), tmp_path)
    text_ = text.helpers + text.definition
    assert "const int high = min(low + 1, rows - 1);" in text_
    assert "long long" not in text_
    assert "fmaxf(" in text_


def test_a_comment_on_a_grid_goes_above_it_where_the_line_has_no_room(make: Any, tmp_path: Path) -> None:
    args = {"x": "in uint8[n]", "counts": "inout uint32[256] ~ zeros", "n": "int32"}
    reference = "def reference(x, counts):\n    return counts + np.bincount(x, minlength=256).astype(np.uint32)"
    kernel, contract = make(
        args, reference, sizes="{ n = 100000 }, { n = 1 }", grid="cdiv(n, 128)", body="atomicAdd(&counts[x[0]], 1u);"
    )
    lines = file_of(kernel, contract, tmp_path).unit.text.split("\n")
    grid = next(place for place, line in enumerate(lines) if line.startswith("// grid ="))
    assert lines[grid - 1].startswith("// # ")
    assert max(map(len, lines)) <= width_of(kernel.unit.text)


def test_long_comments_are_wrapped() -> None:
    assert folded("  // Rows of many elements are read part by part.", 30) == [
        "  // Rows of many elements are",
        "  // read part by part.",
    ]


def test_whole_numbers_among_floats_are_converted_by_the_language(make: Any, tmp_path: Path) -> None:
    args = {
        "q": "in int8[rows, cols]",
        "zero": "in int8[rows]",
        "y": "out float32[rows, cols]",
        "rows": "int32",
        "cols": "int32",
    }
    reference = "def reference(q, zero):\n    return (q.astype(np.float32) - zero.astype(np.float32)[:, None]) * 0.5"
    text = first(*make(args, reference, sizes=LONG), tmp_path)
    assert (text.helpers + text.definition).count("static_cast<float>(") == 1, (
        "of the first one, before both are floats"
    )


def test_a_window_tests_the_position_that_it_reads(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, h, w):\n    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3))\n"
        "    return view.sum(axis=(2, 3))"
    )
    kernel, contract = make(STENCIL[0], reference, sizes=SIDES, grid="h")
    texts = [one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    assert any("const int in_row = row + dy - 1;" in one and "in_row >= 0 && in_row < h" in one for one in texts)


def test_packs_of_several_types_are_called_after_what_they_hold(make: Any, tmp_path: Path) -> None:
    args = {
        "x": "in uint8[rows, cols]",
        "s": "in bfloat16[rows, cols]",
        "y": "out int8[rows, cols]",
        "rows": "int32",
        "cols": "int32",
    }
    reference = "def reference(x, s):\n    return np.where(s > 0, x.astype(np.int8), np.int8(0))"
    text = first(*make(args, reference, sizes=LONG), tmp_path)
    assert {*re.findall(r"\b\w+Pack(?= \{)", text.helpers + text.definition)} == {
        "BytePack",
        "Bfloat16Pack",
        "Int8Pack",
    }


CHANNELS = {
    "x": "in float32[n, c, p]", "w": "in float32[c]", "y": "out float32[n, c, p]", "c": "int32", "groups": "int32", "p": "int32",
}  # fmt: skip
GROUPED = (
    "def reference(x, w, groups):\n    n, c, p = x.shape\n    rows = x.reshape(n, groups, c // groups * p)\n"
    "    mean = rows.sum(axis=2, keepdims=True) / max(rows.shape[2], 1)\n    return (rows - mean).reshape(x.shape) * w[:, None]"
)


def grouped(make: Any, folder: Path, body: str = "") -> tuple[Kernel, Contract]:
    sizes = "{ n = 2, c = 64, groups = 16, p = 1024 }, { n = 3, c = 21, groups = 7, p = 19 }"
    more = 'require = ["groups > 0", "c % groups == 0"]'
    return make(CHANNELS, GROUPED, sizes=sizes, grid='groups", "n', more=more, body=body)


def test_rows_of_several_axes_have_the_contracts_word(make: Any, tmp_path: Path) -> None:
    text = file_of(*grouped(make, tmp_path), tmp_path).unit.text
    index = "const size_t group = static_cast<size_t>(blockIdx.y) * groups + blockIdx.x;  // of all n * groups\n"
    assert index in text
    assert '// grid = ["groups", "n"]' in text
    assert "work_group<" in text
    assert "x_group" in text
    assert "_row" not in text


def test_a_row_of_several_axes_begins_at_a_multiple_of_what_it_has(make: Any, tmp_path: Path) -> None:
    text = first(*grouped(make, tmp_path), tmp_path).helpers
    assert re.search(r"const int first_\w+ = blockIdx\.x \* \(c / groups\);", text)


def test_a_size_that_is_positive_has_no_floor(make: Any, tmp_path: Path) -> None:
    text = first(*grouped(make, tmp_path), tmp_path).helpers
    assert "max(" not in text
    assert "/ columns;" in text


@pytest.mark.parametrize(("more", "floor"), [("", True), ('require = ["cols > 0"]', False)])
def test_a_result_of_an_empty_row_keeps_its_floor(make: Any, tmp_path: Path, more: str, floor: bool) -> None:
    args = {**NORM, "y": "out float32[rows]"}
    reference = "def reference(x, cols):\n    return x.sum(axis=1) / max(cols, 1)"
    text = first(*make(args, reference, more=more), tmp_path).helpers
    assert ("/ max(cols, 1);" in text, "/ cols;" in text) == (floor, not floor)


def test_a_size_that_may_be_zero_keeps_its_floor(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x, cols):\n    return x / max(cols - 1, 1)"
    text = first(*make(NORM, reference), tmp_path)
    assert "max(cols - 1, 1)" in text.definition + text.helpers


def test_a_size_has_the_name_that_the_baseline_gives_it(make: Any, tmp_path: Path) -> None:
    body = "const int each = c / groups;\nconst int length = each * p;\ny[0] = x[length];"
    text = first(*grouped(make, tmp_path, body), tmp_path).helpers
    assert "const int length = c / groups * p;" in text
    assert "/ length;" in text
    mutable = first(*grouped(make, tmp_path, body.replace("const ", "")), tmp_path).helpers
    assert "const int columns = c / groups * p;" in mutable, "a variable may hold another number later"


def test_parts_of_an_array_are_met_by_its_own_name(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, 2 * cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
    reference = "def reference(x):\n    n = x.shape[1] // 2\n    return x[:, :n] * np.tanh(x[:, n:])"
    for one in kernels_for(trace((made := make(args, reference))[1], tmp_path), *made):
        text = one.definition + one.helpers
        assert "= x;" not in text
        assert re.findall(r"reinterpret_cast<size_t>\((\w+)\)", text) == ["x", "y"]
        assert not re.search(r"\(\w+ \* \w+\) \*", text), "a product of products needs no parentheses"


def test_tiles_explain_their_launch_bounds_and_alignment(make: Any, tmp_path: Path) -> None:
    args = {"a": "in float32[m, k]", "b": "in float32[k, n]", "c": "out float32[m, n]"} | dict.fromkeys("mnk", "int32")
    sizes = "{ m = 2048, n = 2048, k = 192 }, { m = 37, n = 53, k = 61 }"
    text = file_of(*make(args, "a @ b", sizes=sizes, grid='cdiv(m, 16)", "cdiv(n, 16)'), tmp_path).unit.text
    assert "__launch_bounds__(kThreads, kMinBlocks)" in text
    assert re.search(r"constexpr int kMinBlocks = \d;  // \w+", text)
    assert re.search(r"constexpr int kPad = kPack;  // \w+", text)
    assert "__align__" not in text


def test_a_count_of_one_is_written_without_a_cast(make: Any, tmp_path: Path) -> None:
    args = {
        "keys": "in int32[rows] ~ integers(0, cols)",
        "y": "inout int32[cols]",
        "rows": "int32",
        "cols": "int32",
    }
    reference = "def reference(keys, y):\n    np.add.at(y, keys, 1)\n    return y"
    text = first(*make(args, reference, body="atomicAdd(&y[keys[0]], 1);"), tmp_path)
    assert re.search(r"atomicAdd\([^;]*, 1\);", text.definition + text.helpers)
    assert "static_cast<int>(1)" not in text.definition + text.helpers


def test_a_row_of_a_table_is_pointed_to_once() -> None:
    path = Path(__file__).resolve().parents[3] / "examples" / "rope.cu"
    kernel = load_kernel(path)
    text = first(kernel, contract_for(kernel), path.parent).definition
    before, _, loop = text.partition("for (")
    for table in ("cosines", "sines"):
        assert re.search(rf"const float\* {table}_row = {table} \+ .* \* half;", before)
        assert f"{table}_row[col]" in loop
    assert "static_cast" not in loop


def test_long_heads_are_wrapped_after_the_parenthesis() -> None:
    front = f"static __device__ __forceinline__ void {'f' * 30}("
    text = wrapped(front, ["const float* first", "const float* second", "const float* third"], 90)
    assert text == f"{front}\n    const float* first, const float* second, const float* third)"


def test_an_element_of_a_pack_is_not_called_after_its_row(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, 2 * cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
    reference = "def reference(x):\n    n = x.shape[1] // 2\n    g = x[:, n:]\n    return x[:, :n] * g * np.tanh(g)"
    assert "row_x" not in first(*make(args, reference), tmp_path).helpers


@pytest.mark.parametrize(("dtype", "kind"), [("uint64", "size_t"), ("int64", "long long")])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_along_64_bit_sizes_have_the_type_of_these(
    dtype: str, kind: str, axis: int, make: Any, tmp_path: Path
) -> None:
    args = {"x": "in float32[rows, cols]", "y": f"out float32[{('cols', 'rows')[axis]}]", "rows": dtype, "cols": dtype}
    reference = f"def reference(x):\n    return x.var(axis={axis})"
    parameters = f"const float* x, float* y, {kind} rows, {kind} cols"
    kernel, contract = make(args, reference, sizes=LONG, parameters=parameters)
    text = file_of(kernel, contract, tmp_path).unit.text
    size = ("rows", "cols")[axis]
    assert re.search(rf"\b{kind} (\w+) = [^;]*;\s[^;]*\b\1 < {size}\b", text)
    assert not re.search(rf"\bint (\w+)\b[^;]*; \1 < {size}", text)
    assert not re.search(rf"min\(\w+, [^()]*\b{size}\b", text)


def test_the_largest_of_a_row_over_a_number_is_no_mean(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    return x / (np.abs(x).max(axis=1, keepdims=True) / 127.0)"
    text = first(*make(NORM, reference, sizes=LONG), tmp_path)
    assert "mean" not in text.definition + text.helpers


def test_long_functions_have_blank_lines_between_their_parts(make: Any, tmp_path: Path) -> None:
    args = {
        "a": "in float32[m, k]",
        "b": "in float32[k, n]",
        "c": "out float32[m, n]",
        "m": "int32",
        "n": "int32",
        "k": "int32",
    }
    long = first(*make(args, "a @ b", sizes="{ m = 64, n = 64, k = 64 }", grid="m"), tmp_path).definition
    assert re.search(r"\n  float sums[^\n]*\n\n(?:  //[^\n]*\n)+  for \(", long)
    assert re.search(r"\n  \}\n\n#pragma unroll\n  for \(", long)
    assert "\n\n\n" not in long
    assert "{\n\n" not in long
    short = first(*make(MAP, "x * 3"), tmp_path).definition
    assert "\n\n" not in short


def test_a_template_that_only_moves_elements_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    block = '// /// kernelmate\n// sizes = [{ n = 100, m = 60 }]\n// grid = "cdiv(n * m, 256)"\n// block = 256\n// instances = ["turn<float>"]\n// reference = "REFERENCE"\n// [args]\n// x = "in float32[n, m]"\n// y = "out float32[m, n]"\n// n = "int32"\n// m = "int32"\n// ///\n'
    head = "template <typename T>\n__global__ void turn(const T* x, T* y, int n, int m) {\n}\n"
    for reference, general in (("x.T", True), ("2 * x.T", False)):
        path.write_text(block.replace("REFERENCE", reference) + head)
        kernel = load_kernel(path)
        text = file_of(kernel, contract_for(kernel), tmp_path).unit.text
        assert ("static_assert" not in text) is general
        assert ("__shared__ T tile" in text) is general


@pytest.mark.parametrize(("operation", "kept"), [("x / t", "z_packs"), ("x + t", "x_packs")])
def test_costly_values_of_a_row_are_kept_in_place_of_its_elements(
    operation: str, kept: str, make: Any, tmp_path: Path
) -> None:
    args = {**NORM, "t": "float32 = 0.7"}
    reference = f"def reference(x, t):\n    z = {operation}\n    e = np.exp(z - z.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)"
    text = first(*make(args, reference, sizes=LONG, grid="rows"), tmp_path).helpers
    assert f" {kept}[" in text
    assert text.count(" / t") == (operation == "x / t")


def test_a_contract_does_not_set_the_width_of_a_file() -> None:
    contract = f"// /// kernelmate\n// sizes = [{'{ n = 1 }, ' * 12}]\n// ///\n"
    assert width_of(f"{contract}// {'-' * 75}\n") == 80
    assert width_of(f"{contract}// {'-' * 95}\n") == 100


def test_the_declaration_of_a_shared_array_is_not_broken_within_brackets() -> None:
    line = "  __shared__ alignas(kPad * sizeof(float)) float a_tile[2][kTileK][kTileM + kPad];"
    first, second = folded(line, 60)
    assert first.endswith(" float")
    assert second == "      a_tile[2][kTileK][kTileM + kPad];"


def test_an_index_of_the_number_of_batches_is_told_apart_from_it(make: Any, tmp_path: Path) -> None:
    args = {"a": "in float32[batch, m, k]", "b": "in float32[batch, k, n]", "c": "out float32[batch, m, n]"}
    args |= dict.fromkeys(("batch", "m", "n", "k"), "int32")
    sizes = "{ batch = 3, m = 64, n = 64, k = 64 }"
    text = first(*make(args, "a @ b", sizes=sizes, grid="batch"), tmp_path).definition
    assert "const int batch_index = " in text
    assert "batch_2" not in text


def test_a_value_converted_from_an_element_is_called_after_its_array(make: Any, tmp_path: Path) -> None:
    args = {"x": "in bfloat16[rows]", "y": "out bfloat16[rows]", "rows": "int32"}
    text = first(*make(args, "x * np.tanh(x)"), tmp_path).definition
    assert "const float x_value = __bfloat162float(x_i);" in text


def test_a_result_is_changed_by_a_quotient_in_place(make: Any, tmp_path: Path) -> None:
    args = {"p": "inout float32[rows]", "v": "inout float32[rows] ~ uniform(0, 1)", "rows": "int32"}
    reference = "def reference(p, v):\n    v = 0.5 * v + 1\n    return p - 0.1 * p / (np.sqrt(v) + 1), v"
    assert "p_i -= 0.1f * p_i / (sqrtf(" in first(*make(args, reference), tmp_path).definition


def test_indices_beside_a_64_bit_size_are_signed_as_it_is_and_constants_stay_int(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows]", "y": "out float32[rows]", "rows": "int64"}
    kernel, contract = make(args, "np.exp(x)", parameters="const float* x, float* y, long long rows")
    text = file_of(kernel, contract, tmp_path).unit.text
    assert "constexpr int kPack = " in text
    assert "const long long base = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;" in text
    assert "size_t base" not in text
    assert "for (int j = 0; j < kPack; ++j)" in text


def test_a_lambda_that_ignores_an_index_along_a_64_bit_size_takes_its_type(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int64", "cols": "int64"}
    parameters = "const float* x, float* y, long long rows, long long cols"
    text = file_of(*make(args, NORMED, sizes=LONG, parameters=parameters), tmp_path).unit.text
    assert "x_pack, long long) {" in text
    assert "x_pack, int) {" not in text


def test_rows_that_are_copied_are_copied_by_packs_and_launches_name_their_size(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[v, cols]", "ids": "in int32[rows] ~ integers(0, v)", "y": "out float32[rows, cols]"}
    args |= {"rows": "int32", "cols": "int32"}
    sizes = "{ rows = 64, cols = 40, v = 9 }, { rows = 3, cols = 7, v = 2 }"
    make(args, "x[ids]", sizes=sizes, grid="cdiv(rows * cols, block)")
    host = "void run(float* p, int* q, int r, int c) {\n  work<<<(r * c + 127) / 128, 128>>>(p, q, p, r, c);\n}"
    text = file_of(*with_host(tmp_path, host), tmp_path).unit.text
    assert "= x_pack;" in text
    assert ".at[j] = " not in text
    assert re.search(r"\(r \* c \+ \w+ \* kPackSize - 1\) / \(\w+ \* kPackSize\)", text)


def test_a_comment_that_moves_above_its_statement_begins_as_a_sentence() -> None:
    line = "  constexpr int kCopies = kThreads / kWarpSize;  // one per warp, so that warps rarely wait"
    assert folded(line, 60)[0] == "  // One per warp, so that warps rarely wait"
    assert (
        folded(f"{line[:47]}  // kPack of them, and a long comment", 60)[0] == "  // kPack of them, and a long comment"
    )


def test_an_element_that_is_counted_has_the_singular_of_its_arrays_name(make: Any, tmp_path: Path) -> None:
    args = {"samples": "in uint8[rows]", "counts": "inout uint32[256] ~ zeros", "rows": "int32"}
    reference = "counts + np.bincount(samples, minlength=256)"
    text = first(*make(args, reference, body="  atomicAdd(counts, 1u);"), tmp_path).definition
    assert "const auto add = [=](unsigned char sample) {" in text


def test_a_loop_with_one_statement_beside_it_is_not_broken_within_its_head() -> None:
    head = "  for (int offset = kWarpSize / 2; offset > 0; offset /= 2)"
    statement = "sum += __shfl_xor_sync(kAllLanes, sum, offset);"
    assert folded(f"{head} {statement}", 80) == [f"{head} {{", f"    {statement}", "  }"]
