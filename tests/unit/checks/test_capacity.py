"""Sizes at which a kernel's memory would have to hold more than it does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kernelmate.checks.capacity import (
    block_sizes,
    capacity_sizes,
    compared_numbers,
    further_sizes,
    unlaunchable_sizes,
)
from kernelmate.checks.size_choice import scratch_sizes
from kernelmate.checks.sums import counter_sizes, saturating_sizes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

LISTED = ({"rows": 12, "cols": 160}, {"rows": 3, "cols": 77})
CONTRACT = Contract(
    "k", LISTED, ("rows",), ("64",),
    (Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "float32", ("rows", "cols")),
     Argument("cols", None, "int32")),
)  # fmt: skip
LOOP = "for (int c = threadIdx.x; c < cols; c += 64) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c];"


def version(body: str, above: str = "", **changes) -> Version:
    text = f"{above}\n__global__ void k(const float* x, float* y, int cols) {{ {body} }}\n"
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, replace(CONTRACT, **changes), kernel.unit)


BASELINE = version(LOOP)


def test_each_name_grows_to_several_times_what_is_listed_and_the_others_stay_small() -> None:
    (long,) = capacity_sizes(CONTRACT, LISTED, (*LISTED, {"rows": 257, "cols": 37}))
    assert long["cols"] > 4 * 160
    assert long["cols"] > 4096
    assert long["cols"] % 2 == 1
    assert long["rows"] == 3


def test_what_require_excludes_is_not_tried() -> None:
    narrow = replace(CONTRACT, require=("cols % 64 == 0", "rows <= 12"))
    (long,) = capacity_sizes(narrow, LISTED, LISTED)
    assert long["cols"] % 64 == 0
    assert long["cols"] > 4096
    assert capacity_sizes(replace(CONTRACT, require=("cols <= 160", "rows <= 12")), LISTED, LISTED) == ()


def test_names_that_are_tried_as_large_anyway_do_not_grow() -> None:
    assert capacity_sizes(CONTRACT, LISTED, (*LISTED, {"rows": 20_000, "cols": 20_000})) == ()


@pytest.mark.parametrize(
    "candidate",
    [
        version("float v[8]; for (int k = 0; k < 8; ++k) { int c = threadIdx.x + 64 * k; if (c < cols) v[k] = x[c]; }"
                "for (int k = 0; k < 8; ++k) { int c = threadIdx.x + 64 * k; if (c < cols) y[c] = v[k]; }"),
        version(LOOP, grid=("min(rows, 12)",)),
        version("if (threadIdx.x < cols) y[threadIdx.x] = x[threadIdx.x];"),
    ],
    ids=["registers", "grid", "loop"],
)  # fmt: skip
def test_numbers_of_its_own_or_fewer_loops_are_a_reason(candidate: Version) -> None:
    assert any(size["cols"] > 4096 for size in further_sizes(CONTRACT, LISTED, LISTED, candidate, BASELINE))


def test_nothing_else_is_a_reason() -> None:
    same = version(LOOP.replace("int c", "int column").replace("c ", "column ").replace("+ c]", "+ column]"))
    assert further_sizes(CONTRACT, LISTED, LISTED, same, BASELINE) == ()


def test_numbers_of_the_code_are_met_and_passed_wherever_they_come_from() -> None:
    limit = "template <int N = (9 << 11)> __device__ bool beyond(int n) { return n > N; }"
    odd = version(f"if (beyond<>(cols)) return; {LOOP}", limit)
    assert 18432 in compared_numbers(odd.compiled.ptx) | {one - 1 for one in compared_numbers(odd.compiled.ptx)}
    sizes = further_sizes(CONTRACT, LISTED, LISTED, odd, BASELINE)
    assert {18433, 18434} & {size["cols"] for size in sizes}


def test_bounds_of_loops_over_shared_memory_are_no_size_limits() -> None:
    code = version("""
        __shared__ float tile[48][36];
        for (int i = threadIdx.x; i < 48 * 36; i += 64) tile[i / 36][i % 36] = x[i % cols];
        __syncthreads();
        float sum = 0;
        #pragma unroll 4
        for (int n = 0; n < 48; ++n) sum += tile[n][threadIdx.x % 36];
        y[threadIdx.x] = sum;
    """).compiled.ptx  # fmt: skip
    ends = {int(number) for number in re.findall(r"setp\.ne\.s32\s+%\w+, %\w+, (\d+);", code)}
    assert any(end % (36 * 4) == 0 and end > 257 for end in ends), "the loop counts bytes of shared memory"
    assert not ends & compared_numbers(code)


def test_the_end_of_a_loop_over_elements_is_a_limit_of_sizes() -> None:
    assert 5184 in compared_numbers(version("for (int c = 0; c < 5184; ++c) if (c < cols) y[c] = x[c];").compiled.ptx)


def test_narrow_types_are_a_reason_for_sizes_beyond_them() -> None:
    narrow = version(LOOP.replace("int c", "unsigned short c"))
    assert any(size["cols"] > 1 << 16 for size in further_sizes(CONTRACT, LISTED, LISTED, narrow, BASELINE))


@pytest.mark.parametrize(("mask", "beyond"), [("0xffff", 1 << 16), ("0x7fff", 1 << 15), ("0xf0f0", 0), ("31", 0)])
def test_masked_indices_are_a_reason_for_sizes_beyond_the_mask(mask: str, beyond: int) -> None:
    masked = version(LOOP.replace("= x[blockIdx.x * cols + c]", f"= x[(blockIdx.x * cols + c) & {mask}]"))
    largest = max((size["cols"] for size in further_sizes(CONTRACT, LISTED, LISTED, masked, BASELINE)), default=0)
    assert (largest > beyond) if beyond else (largest < 1 << 15)


REGISTERS = """float v[90];
#pragma unroll
for (int k = 0; k < 90; ++k) { const int c = threadIdx.x + 64 * k; v[k] = c < cols ? x[blockIdx.x * cols + c] : 0; }
#pragma unroll
for (int k = 0; k < 90; ++k) { const int c = threadIdx.x + 64 * k; if (c < cols) y[blockIdx.x * cols + c] = v[89 - k]; }
"""
SHARED = """__shared__ float row[6000];
for (int c = threadIdx.x; c < cols; c += 64) row[c] = x[blockIdx.x * cols + c];
__syncthreads();
for (int c = threadIdx.x; c < cols; c += 64) y[blockIdx.x * cols + c] = row[cols - 1 - c];
"""


@pytest.mark.parametrize(("body", "holds"), [(REGISTERS, 64 * 90), (SHARED, 6000)], ids=["registers", "shared memory"])
def test_rows_longer_than_what_the_kernel_holds_are_tried(body: str, holds: int) -> None:
    sizes = further_sizes(CONTRACT, LISTED, LISTED, version(body), BASELINE)
    assert holds < max(size["cols"] for size in sizes) <= 2 * holds + 64


def test_a_small_tile_adds_no_size() -> None:
    tile = "__shared__ float tile[32][33]; tile[threadIdx.x / 32][threadIdx.x % 32] = 0; __syncthreads();"
    sizes = further_sizes(CONTRACT, LISTED, LISTED, version(f"{tile} {LOOP}"), BASELINE)
    assert all(size["cols"] < 5000 and size["rows"] < 5000 for size in sizes)


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [("min(rows, 3000)", 3000), ("min(cdiv(rows, 4), 2000)", 2000), ("rows", None), ("cdiv(rows, 1)", None)],
)
def test_a_grid_that_stops_to_grow_is_passed(grid: str, blocks: int | None) -> None:
    limited = version(LOOP, grid=(grid,))
    largest = max((size["rows"] for size in further_sizes(CONTRACT, LISTED, LISTED, limited, BASELINE)), default=0)
    if blocks is None:
        assert largest <= 4200
    else:
        assert largest >= blocks * (4 if "cdiv" in grid else 1) * 1.1


SCRATCH_CONTRACT = Contract(
    "k", ({"n": 256},), ("cdiv(n, block)",), ("64",), (Argument("y", "out", "float32", ("n",)),), accumulate="float32"
)


def scratch_version(above: str, body: str) -> Version:
    kernel = find_kernels(text_unit(f"{above}\n__global__ void k(float* y) {{ {body} }}\n", "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, SCRATCH_CONTRACT, kernel.unit)


PLAIN = scratch_version("", "y[threadIdx.x] = 1;")
SCRATCH = scratch_version("__device__ float s[512];", "s[blockIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x];")


def test_a_size_with_more_threads_and_one_with_more_blocks_than_elements_are_tried() -> None:
    assert scratch_sizes(SCRATCH, PLAIN, SCRATCH_CONTRACT.sizes) == ({"n": 1024}, {"n": 65536})


def test_what_listed_sizes_cover_or_the_baseline_has_is_not_tried_again() -> None:
    assert scratch_sizes(SCRATCH, PLAIN, ({"n": 65536},)) == ()
    assert scratch_sizes(SCRATCH, SCRATCH, SCRATCH_CONTRACT.sizes) == ()
    assert scratch_sizes(PLAIN, None, SCRATCH_CONTRACT.sizes) == ()


def test_tables_and_single_variables_are_no_scratch() -> None:
    table = scratch_version("__device__ float s[3] = {1, 2, 3}; __device__ int count;", "y[0] = s[count++ % 3];")
    assert scratch_sizes(table, PLAIN, SCRATCH_CONTRACT.sizes) == ()


def test_sizes_that_the_version_excludes_are_not_tried() -> None:
    bound = replace(SCRATCH, contract=replace(SCRATCH_CONTRACT, require=("n <= 512",)))
    assert scratch_sizes(bound, PLAIN, SCRATCH_CONTRACT.sizes) == ()


def test_a_size_that_makes_nothing_more_is_not_grown() -> None:
    looped = replace(SCRATCH_CONTRACT, sizes=({"n": 256, "steps": 4096}, {"n": 16, "steps": 5}))
    sizes = scratch_sizes(replace(SCRATCH, contract=looped), PLAIN, looped.sizes)
    assert sizes == ({"n": 1024, "steps": 5}, {"n": 65536, "steps": 5})
    fixed = replace(SCRATCH_CONTRACT, sizes=({"n": 256},), grid=("4",))
    assert all(size["n"] <= 1 << 22 for size in scratch_sizes(replace(SCRATCH, contract=fixed), PLAIN, fixed.sizes))


def test_a_size_is_found_at_which_only_the_version_cannot_be_launched() -> None:
    rows = version(LOOP, grid=("1", "rows"))
    assert unlaunchable_sizes(CONTRACT, LISTED, rows, BASELINE) == [{"rows": 65536, "cols": 3}]
    assert unlaunchable_sizes(CONTRACT, LISTED, version(LOOP, grid=("1", "min(rows, 65535)")), BASELINE) == []
    assert unlaunchable_sizes(CONTRACT, LISTED, rows, rows) == []
    wide = [{"rows": 64, "cols": 1 << 20}, *LISTED]  # 65536 of such rows are more than a GPU's memory holds
    assert unlaunchable_sizes(CONTRACT, wide, rows, BASELINE) == []
    planes = version(LOOP, grid=("1", "1", "rows"))
    assert unlaunchable_sizes(CONTRACT, LISTED, planes, BASELINE) == [{"rows": 65536, "cols": 3}]
    assert unlaunchable_sizes(CONTRACT, LISTED, planes, planes) == []
    assert (
        unlaunchable_sizes(
            CONTRACT, LISTED, replace(rows, contract=replace(rows.contract, require=("rows < 9",))), BASELINE
        )
        == []
    )


COUNTED = Contract(
    "k", ({"n": 5000}, {"n": 1}), ("4",), ("64",),
    (Argument("x", "in", "float32", ("n",)), Argument("y", "inout", "int32", ("1",)), Argument("n", None, "int32")),
)  # fmt: skip
COUNT = "for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 256) c += x[i] > 0.0f; atomicAdd(y, (int)c);"


@pytest.mark.parametrize(("counter", "least"), [("unsigned char", 1 << 16), ("int", None), ("unsigned", None)])
def test_a_narrow_counter_of_each_thread_gets_a_size_at_which_it_overflows(counter: str, least: int | None) -> None:
    found = counter_sizes(
        COUNTED, COUNTED.sizes, counting(f"{counter} c = 0; {COUNT}"), counting(f"int c = 0; {COUNT}")
    )
    assert found == ([] if least is None else [{"n": least + 1}])


def counting(body: str, contract: Contract = COUNTED) -> Version:
    types = {a.name: {"int8": "signed char", "float32": "float"}.get(a.dtype, "int") for a in contract.args}
    text = f"__global__ void k(const {types['x']}* x, int* y, int n) {{ {body} }}\n"
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, contract, kernel.unit)


PACKED = "for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 256) if (x[i] > 0) atomicAdd(y, 65537);"


@pytest.mark.parametrize(("read", "wanted"), [("y[0] & 0xffff", [{"n": (1 << 18) + 1}]), ("y[0]", [])])
def test_a_counter_in_half_a_word_gets_a_size_at_which_a_block_passes_it(read: str, wanted: list) -> None:
    assert counter_sizes(COUNTED, COUNTED.sizes, counting(f"{PACKED} y[0] = {read};"), counting(PACKED)) == wanted


BYTES = replace(COUNTED, grid=("1",), args=(Argument("x", "in", "int8", ("n",)), *COUNTED.args[1:]))
SUM = "int s = 0; for (int i = threadIdx.x; i < n; i += 64) s = {}; atomicAdd(y, s);"


@pytest.mark.parametrize(
    ("sum_", "wanted"),
    [
        ("min(s + x[i], 100000)", [{"n": (1 << 16) + 1}]),
        ("(int)fminf((float)s + x[i], 100000.0f)", [{"n": (1 << 16) + 1}]),
        ("s + min((int)x[i], 100)", []),
        ("s + x[i]", []),
    ],
)
def test_a_sum_that_is_limited_gets_a_size_at_which_it_passes_the_limit(sum_: str, wanted: list) -> None:
    mine, plain = (counting(SUM.format(text), BYTES) for text in (sum_, "s + x[i]"))
    assert saturating_sizes(BYTES, BYTES.sizes, mine, plain) == wanted
    assert saturating_sizes(BYTES, BYTES.sizes, mine, mine) == []


GRID = replace(COUNTED, grid=("cdiv(n, block)",))
AT = "int i = {} * 64 + threadIdx.x; if (i < n) y[i] = x[i] > 0;"


@pytest.mark.parametrize(
    ("block", "least"),
    [
        ("(blockIdx.x & 511)", 512),
        ("(blockIdx.x % 300)", 300),
        ("min(blockIdx.x, 999)", 1000),
        ("(blockIdx.x < 2000 ? blockIdx.x : 0)", 2000),
        ("(blockIdx.x == 3000 ? 0 : blockIdx.x)", 3000),
        ("(blockIdx.x >> 10 ? 0 : blockIdx.x)", 1024),
        ("(blockIdx.x & 7)", None),
        ("blockIdx.x", None),
    ],
)
def test_a_limit_of_the_block_index_gets_a_size_with_more_blocks(block: str, least: int | None) -> None:
    mine, plain = (counting(AT.format(text), GRID) for text in (block, "blockIdx.x"))
    found = [-(-size["n"] // 64) for size in block_sizes(GRID, GRID.sizes, mine, plain)]
    assert found == [] if least is None else least < found[0] <= least + 2
    assert block_sizes(GRID, GRID.sizes, mine, mine) == []
    if least is not None:
        assert any(size["n"] > 64 * least for size in further_sizes(GRID, GRID.sizes, GRID.sizes, mine, plain))


@pytest.mark.parametrize(
    ("before", "above"),
    [
        ("__shared__ int held[2]; if (threadIdx.x == 0) { held[0] = 311; held[1] = 9; } __syncthreads();", ""),
        ("", "__constant__ int held[3] = {5, 311, 1 << 20};"),
        ("", "__device__ const short held[3] = {5, 311, 2};"),
    ],
)
def test_sizes_that_a_table_holds_are_tried(before: str, above: str) -> None:
    mine = version(f"{before} if (held[threadIdx.x % 2] == cols) return; {LOOP}", above)
    found = further_sizes(CONTRACT, LISTED, (*LISTED, {"rows": 1, "cols": 4097}), mine, BASELINE)
    assert any(size["cols"] == 311 for size in found)
    assert not any(size["cols"] == 311 for size in further_sizes(CONTRACT, LISTED, LISTED, mine, mine))


@pytest.mark.parametrize("passes", ["24", ""])
def test_a_grid_that_stops_to_grow_is_tried_far_beyond_where_integers_are_new(passes: str) -> None:
    count = f"k < {passes} &&" if passes else ""
    body = (
        f"for (int i = blockIdx.x * 64 + threadIdx.x, k = 0; {count} i < n; ++k, i += gridDim.x * 64) y[i] = x[i] > 0;"
    )
    mine = counting(body, replace(GRID, grid=("min(cdiv(n, block), 64)",)))
    most = max(
        size["n"]
        for size in further_sizes(GRID, GRID.sizes, GRID.sizes, mine, counting(body.replace("24", "(n)"), GRID))
    )
    assert (most > 24 * 64 * 64) == bool(passes)


def test_a_remainder_by_any_number_gives_a_size_beyond_it() -> None:
    mine = version(LOOP.replace("= x[blockIdx.x * cols + c]", "= x[(blockIdx.x * cols + c) % 30011]"))
    assert any(30012 in size.values() for size in further_sizes(CONTRACT, LISTED, LISTED, mine, BASELINE))


def test_a_remainder_by_a_power_of_two_gives_a_size_beyond_it() -> None:
    mine = version(LOOP.replace("= x[blockIdx.x * cols + c]", "= x[(int)(blockIdx.x * cols + c) % 65536]"))
    assert any(65537 in size.values() for size in further_sizes(CONTRACT, LISTED, LISTED, mine, BASELINE))


def test_a_16_bit_load_of_wider_integers_gives_a_size_beyond_it() -> None:
    arguments = (
        Argument("table", "in", "float32", ("vocab",)), Argument("ids", "in", "int32", ("n",)),
        Argument("y", "out", "float32", ("n",)),
    )  # fmt: skip
    listed = ({"vocab": 500, "n": 40},)

    def looked_up(body: str) -> Version:
        text = f"__global__ void k(const float* table, const int* ids, float* y) {{ {body} }}\n"
        kernel = find_kernels(text_unit(text, "k.cu"))[0]
        made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
        assert made.ok, made.diagnostics
        return Version(made, contract, kernel.unit)

    contract = Contract("k", listed, ("n",), ("1",), arguments)
    plain = looked_up("y[blockIdx.x] = table[ids[blockIdx.x]];")
    narrow = looked_up("y[blockIdx.x] = table[ids[blockIdx.x] & 0xffff];")
    sizes = further_sizes(contract, listed, listed, narrow, plain)
    assert any(size["vocab"] >= 131_072 and size["n"] >= 16 for size in sizes)
    assert not any(size["vocab"] > 65_536 for size in further_sizes(contract, listed, listed, plain, plain))


def test_an_offset_in_a_minimum_gives_a_size_beyond_it() -> None:
    limited = version("for (int c = threadIdx.x, e = min(cols, (int)blockIdx.x + 5000); c < e; c += 64) y[c] = x[c];")
    found = further_sizes(CONTRACT, LISTED, LISTED, limited, BASELINE)
    assert max(size["cols"] for size in found) > 5000


def test_lengths_that_a_function_draws_exceed_new_constants_several_times() -> None:
    pages = replace(CONTRACT, inputs="made.py:make", args=(Argument("t", "in", "int32", ("rows", "cols")),))
    table = version(
        "__shared__ float held[128]; held[threadIdx.x & 127] = x[0]; __syncthreads(); y[0] = held[cols & 127];"
    )
    found = further_sizes(pages, LISTED, LISTED, table, BASELINE)
    assert {"rows": 257, "cols": 3} in found
    assert {"rows": 257, "cols": 3} not in further_sizes(CONTRACT, LISTED, LISTED, table, BASELINE)


def test_a_size_just_beyond_a_constant_is_exceeded_for_counts_that_stay_at_it() -> None:
    counted = version("int n = 0; for (int c = 0; c < cols; ++c) { y[c] = x[n]; n += n < 4095; }")
    tried = (*LISTED, {"rows": 3, "cols": 4096})
    assert {"rows": 3, "cols": 4098} in further_sizes(CONTRACT, LISTED, tried, counted, BASELINE)
    assert further_sizes(CONTRACT, LISTED, ({"rows": 5000, "cols": 5000},), counted, BASELINE) == ()
