from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.source import launch_shape, parse_contract
from kernelmate.suggest.recipes.launch import RECIPE
from kernelmate.suggest.recipes.warp_scan import RECIPE as WARP_SCAN

LINE = """
// /// kernelmate
// sizes = [{{ n = 1000 }}, {{ n = 1 }}]
// grid = "{grid}"
// block = {block}
// shared = {shared}
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void {bounds} k(float* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
  if (i < n) x[i] *= 2.0f;
}}
"""


def line(
    grid: str = "cdiv(n, block)",
    block: int = 256,
    shared: str = "0",
    bounds: str = "",
    body: str = "",
    head: str = "",
    host: str = "",
) -> str:
    return head + LINE.format(grid=grid, block=block, shared=shared, bounds=bounds, body=body) + host


def blocks(ask, source: str, **options) -> list[tuple[int, ...]]:
    return [launch_shape(c.contract, c.contract.sizes[0]).block for c in RECIPE.candidates(ask(source, **options))]


def test_every_block_size_is_tried_nearest_first(ask) -> None:
    tried = [block[0] for block in blocks(ask, line())]
    assert sorted(tried) == [32, 64, 128, 512, 1024]
    assert set(tried[:2]) == {128, 512}


@pytest.mark.parametrize("grid", ["cdiv(n, 256)", "(n + 255) // 256", "cdiv(n, block)", "cdiv(n, block_x)"])
def test_the_grid_follows_the_block(ask, grid: str) -> None:
    for candidate in RECIPE.candidates(ask(line(grid=grid))):
        shape = launch_shape(candidate.contract, {"n": 1000})
        assert shape.grid[0] == -(-1000 // shape.block[0])


def test_a_grid_that_does_not_depend_on_the_block_stays(ask) -> None:
    candidates = list(RECIPE.candidates(ask(line(grid="n"))))
    assert candidates
    assert {candidate.contract.grid for candidate in candidates} == {("n",)}


def test_a_grid_that_names_the_block_in_another_way_is_left_alone(ask) -> None:
    assert blocks(ask, line(grid="n // 256 + 256")) == []


def test_shared_memory_of_so_many_bytes_per_thread_follows(ask) -> None:
    for candidate in RECIPE.candidates(ask(line(shared='"1024"'))):
        shape = launch_shape(candidate.contract, {"n": 1000})
        assert shape.shared_bytes == 4 * shape.threads


@pytest.mark.parametrize(
    "body", ["__shared__ float s[256];", "int half = i & 255;", "int half = 128;", "int w = 0x100;"]
)
def test_a_kernel_that_spells_the_block_out_is_left_alone(ask, body: str) -> None:
    assert blocks(ask, line(body=body)) == []


@pytest.mark.parametrize(
    "head",
    [
        "#define BLOCK 256\n",
        "constexpr int BLOCK = 256;\n",
        "static const int BLOCK = 256;\n",
        "const unsigned int BLOCK = 256u;\n",
    ],
)
def test_a_named_constant_changes_along(ask, head: str) -> None:
    source = line(head=head, body="__shared__ float s[BLOCK]; s[threadIdx.x] = x[0];")
    for candidate in RECIPE.candidates(ask(source)):
        size = launch_shape(candidate.contract, {"n": 1000}).block[0]
        definition = head.replace("256", str(size))
        assert candidate.kernel.unit.text.startswith(definition)


def test_a_constant_that_another_kernel_uses_stays(ask) -> None:
    other = "__global__ void other(float* x) { x[BLOCK] = 0; }\n"
    source = line(head="#define BLOCK 256\n", body="__shared__ float s[BLOCK]; s[threadIdx.x] = x[0];", host=other)
    assert blocks(ask, source, name="k") == []


def test_launch_bounds_and_registers_are_the_limit(ask) -> None:
    assert max(blocks(ask, line(block=128, bounds="__launch_bounds__(512)"))) == (512, 1, 1)
    assert max(blocks(ask, line(block=128), max_threads=640)) == (512, 1, 1)


def test_launches_and_the_contract_in_the_file_follow(ask) -> None:
    host = "void run(float* x, int n) { k<<<(n + 255) / 256, 256>>>(x, n); }\n"
    for candidate in RECIPE.candidates(ask(line(host=host))):
        size = launch_shape(candidate.contract, {"n": 1000}).block[0]
        site = candidate.kernel.launches[0]
        assert site.block == str(size)
        assert "256" not in site.grid or size == 256
        written = parse_contract(candidate.kernel)
        assert written is not None
        assert written.block == candidate.contract.block


def test_only_blocks_that_save_are_tried_for_shared_memory(ask) -> None:
    tried = blocks(ask, line(shared='"block * 4"'), prompt="use less shared memory")
    assert tried
    assert max(tried) < (256, 1, 1)
    assert blocks(ask, line(), prompt="use less shared memory") == []


PLANE = """
// /// kernelmate
// sizes = [{{ w = 100, h = 50 }}]
// grid = ["cdiv(w, {block[0]})", "cdiv(h, {block[1]})"]
// block = {launched}
// [args]
// x = "inout float32[h, w]"
// w = "int32"
// h = "int32"
// ///
__global__ void k(float* x, int w, int h) {{{body}}}
"""

TILES = "\nconstexpr int kTile = 32;\nconstexpr int kRows = 8;" + PLANE.format(
    block=(32, 32),
    launched=[32, 8],
    body="""
  for (int j = threadIdx.y; j < kTile; j += kRows) {
    int c = blockIdx.x * kTile + threadIdx.x, r = blockIdx.y * kTile + j;
    if (c < w && r < h) x[r * w + c] *= 2.0f;
  }
""",
)


def test_each_side_follows_its_own_constant(ask) -> None:
    candidates = list(RECIPE.candidates(ask(TILES)))
    assert candidates
    for candidate in candidates:
        shape = launch_shape(candidate.contract, {"w": 100, "h": 50})
        assert f"kTile = {shape.block[0]};" in candidate.kernel.unit.text
        assert f"kRows = {shape.block[1]};" in candidate.kernel.unit.text
        assert shape.grid[:2] == (-(-100 // shape.block[0]), -(-50 // shape.block[0]))


def test_a_tile_of_one_constant_stays_square(ask) -> None:
    source = TILES.replace("kRows", "kTile").replace("constexpr int kTile = 8;\n", "").replace("[32, 8]", "[32, 32]")
    tried = blocks(ask, source)
    assert tried
    assert all(block[0] == block[1] for block in tried)


def test_wide_and_tall_blocks_are_tried_where_nothing_holds_them(ask) -> None:
    body = """
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (c < w && r < h) x[r * w + c] *= 2.0f;
"""
    source = PLANE.format(block=("block_x", "block_y"), launched=[16, 16], body=body)
    tried = blocks(ask, source)
    assert {(32, 8, 1), (8, 32, 1), (256, 1, 1), (1, 256, 1)} <= set(tried)
    assert (16, 16, 1) not in tried
    assert all(32 <= x * y * z <= 1024 for x, y, z in tried)


def test_the_reason_has_the_numbers(ask) -> None:
    first = next(iter(RECIPE.candidates(ask(line(), occupancy=0.25))))
    assert "threads per block instead of 256" in first.why
    assert "occupancy" in first.why


WARPS = """
constexpr int kLanes = 32;
constexpr int kWarps = 4;
// /// kernelmate
// sizes = [{ n = 8 }]
// grid = "n"
// block = 128
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void __launch_bounds__(kWarps * kLanes) k(float* x, int n) {
  __shared__ float part[kWarps];
  part[threadIdx.x / kLanes] = 0.0f;
}
"""


def test_a_constant_number_of_warps_follows_the_block(ask) -> None:
    found = {one.contract.block[0]: one.kernel.unit.text for one in RECIPE.candidates(ask(WARPS))}
    assert "constexpr int kWarps = 16;" in found["512"]
    assert all("constexpr int kLanes = 32;" in text for text in found.values())


def test_a_number_of_warps_that_another_kernel_uses_too_stays(ask) -> None:
    shared = WARPS + "__global__ void other(float* x) { x[kWarps] = 0.0f; }\n"
    assert not any("kWarps = 16" in one.kernel.unit.text for one in RECIPE.candidates(ask(shared, name="k")))


PIECES = """
// /// kernelmate
// sizes = [{{ n = 8000 }}]
// grid = "cdiv(n, 512)"
// block = 128
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float* x, int n) {{
  const int t = {start};
  for (int j = 0; j < 4; ++j) if (t * 4 + j < n) x[t * 4 + j] = 0.0f;
}}
"""


def test_a_grid_of_several_elements_per_thread_follows_the_block(ask) -> None:
    request = ask(PIECES.format(start="blockIdx.x * blockDim.x + threadIdx.x"))
    grids = {one.contract.block[0]: one.contract.grid[0] for one in RECIPE.candidates(request)}
    assert grids["64"] == "cdiv(n, (block * 4))"


def test_pieces_whose_length_the_kernel_names_stay(ask) -> None:
    request = ask(PIECES.format(start="blockIdx.x * (512 / 4) + threadIdx.x"))
    assert list(RECIPE.candidates(request)) == []


def test_an_output_with_one_element_per_block_holds_the_block(ask) -> None:
    source = PIECES.format(start="blockIdx.x * blockDim.x + threadIdx.x").replace("cdiv(n, 512)", "cdiv(n, 128)")
    assert list(RECIPE.candidates(ask(source))) != []
    assert (
        list(RECIPE.candidates(ask(source.replace("// block = 128", '// block = 128\n// require = ["n >= 128"]'))))
        != []
    )
    assert list(RECIPE.candidates(ask(source.replace("float32[n]", "float32[cdiv(n, 128)]")))) == []


def test_longer_blocks_come_first_where_the_grid_stays(ask) -> None:
    kept = [one.contract.block[0] for one in RECIPE.candidates(ask(WARPS))]
    assert kept == ["256", "64", "512", "32", "1024"]


COUNTED_IN_TEXT = """
  __shared__ float part[32];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float sum = i < n ? x[i] : 0.0f;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (t % 32 == 0) part[t / 32] = sum;
  __syncthreads();
  float total = part[0];
  for (int warp = 1; warp < COUNT; ++warp) total += part[warp];
  if (i < n) y[i] = total;
"""


def test_a_block_whose_warps_are_counted_in_the_text_keeps_its_length(ask, x_to_y) -> None:
    source = x_to_y(COUNTED_IN_TEXT, reference="np.repeat(x.reshape(-1, 256).sum(axis=1), 256)")
    assert list(RECIPE.candidates(ask(source.replace("COUNT", "8")))) == []
    assert list(RECIPE.candidates(ask(source.replace("t / 32]", "t >> 5]").replace("COUNT", "8u")))) == []
    assert list(RECIPE.candidates(ask(source.replace("COUNT", "blockDim.x / 32")))) != []
    # Eight turns over something else say nothing of the block.
    assert list(RECIPE.candidates(ask(source.replace("+= part[warp]", "+= x[warp]").replace("COUNT", "8")))) != []


def test_a_scan_of_warps_gets_another_block_only_where_a_constant_tells_its_warps(ask) -> None:
    path = Path(__file__).resolve().parents[4] / "examples" / "row_scan.cu"
    text = path.read_text()
    request = ask(text.replace("constexpr int kChunk = 256;", "").replace("kChunk", "256"))
    (scan, *_) = WARP_SCAN.candidates(request)
    assert list(RECIPE.candidates(replace(request, kernel=scan.kernel, contract=scan.contract))) == []
    request = ask(text)
    (scan, *_) = WARP_SCAN.candidates(request)
    after = replace(request, kernel=scan.kernel, contract=scan.contract)
    for one in RECIPE.candidates(after):
        assert "warp_totals[kChunk / 32]" in one.kernel.source
        assert f"constexpr int kChunk = {one.contract.block[0]};" in one.kernel.unit.text


SHARED_ROWS = """
// /// kernelmate
// sizes = [{ rows = 5, cols = 640 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 128
// [args]
// x = "inout float32[rows, cols]"
// cols = "int32"
// ///
__global__ void k(float* x, int cols) {
  float* row = x + (size_t)blockIdx.x * cols;
  const int cols4 = (size_t)row % 16 == 0 ? cols / 4 : 0;
  for (int c4 = threadIdx.x; c4 < LOOP; c4 += blockDim.x) row[c4] *= 2.0f;
}
"""


def blocks_of(ask, source: str) -> set[str]:
    return {one.contract.block[0] for one in RECIPE.candidates(ask(source))}


def test_no_block_is_longer_than_its_loops_have_turns(ask) -> None:
    assert blocks_of(ask, SHARED_ROWS.replace("LOOP", "cols")) == {"32", "64", "256", "512"}
    assert blocks_of(ask, SHARED_ROWS.replace("LOOP", "cols4")) == {"32", "64"}


def test_threads_that_share_loops_otherwise_too_may_be_more(ask) -> None:
    by_warps = SHARED_ROWS.replace("c4 += blockDim.x) ", "c4 += blockDim.x / 2) ").replace("LOOP", "cols4")
    assert "1024" in blocks_of(ask, by_warps)


HISTOGRAM = """
// /// kernelmate
// sizes = [{{ n = 1000 }}]
// grid = "cdiv(n, block)"
// block = 256
// [args]
// x = "in uint8[n]"
// counts = "inout int32[{bins}]"
// n = "int32"
// ///
constexpr int {name} = 256;
__global__ void k(const unsigned char* x, int* counts, int n) {{
  __shared__ int mine[{name}];
  for (int bin = threadIdx.x; bin < {name}; bin += blockDim.x) mine[bin] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&mine[x[i]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < {name}; bin += blockDim.x) atomicAdd(&counts[bin], mine[bin]);
}}
"""


def test_the_number_of_bins_is_not_the_length_of_the_block_though_it_equals_it(ask) -> None:
    texts = [one.kernel.unit.text for one in RECIPE.candidates(ask(HISTOGRAM.format(name="Bins", bins=256)))]
    assert len(texts) == 3  # more threads than bins have nothing to do
    assert all("constexpr int Bins = 256;" in text for text in texts)


@pytest.mark.parametrize(("name", "bins"), [("Block", 256), ("Bins", 300)])
def test_another_constant_of_the_length_of_the_block_follows_it(ask, name: str, bins: int) -> None:
    texts = [one.kernel.unit.text for one in RECIPE.candidates(ask(HISTOGRAM.format(name=name, bins=bins)))]
    assert texts
    assert all(f"constexpr int {name} = 256;" not in text for text in texts)
