from __future__ import annotations

import re

import pytest

from kernelmate.source import launch_shape, parse_contract
from kernelmate.suggest.recipes.warp_reduce import RECIPE

SOURCE = """
#define BLOCK 256
// /// kernelmate
// sizes = [{{ n = 1000 }}, {{ n = 1 }}]
// grid = "4"
// block = {block}
// shared = "{shared}"
// [args]
// x = "in float32[n]"
// y = "out float32[4]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  {declaration};
  const int tid = threadIdx.x;
  float sum = 0.0f;
  for (int i = tid; i < n; i += blockDim.x) sum += x[i];
  {store}
  __syncthreads();
  {loop}
  {after}
}}
"""
LOOP = "for (int o = blockDim.x / 2; o > 0; o >>= 1) { if (tid < o) s[tid] += s[tid + o]; __syncthreads(); }"


def source(**parts: str) -> str:
    given = {
        "block": "256",
        "shared": "0",
        "declaration": "__shared__ float s[BLOCK]",
        "store": "s[tid] = sum;",
        "loop": LOOP,
        "after": "if (tid == 0) y[blockIdx.x] = s[0];",
    }
    return SOURCE.format(**(given | parts))


def rewritten(ask, **parts: str) -> str | None:
    found = list(RECIPE.candidates(ask(source(**parts), prompt="use less shared memory")))
    assert len(found) <= 1
    return found[0].kernel.unit.text if found else None


@pytest.mark.parametrize(
    "loop",
    [
        LOOP,
        "for (unsigned int o = blockDim.x >> 1; o > 0; o /= 2) { if (tid < o) { s[tid] += s[tid + o]; } __syncthreads(); }",
        "for (int o = BLOCK / 2; o >= 1; o = o / 2) { if (o > tid) s[tid] = s[tid] + s[o + tid]; __syncthreads(); }",
        "for (int o = 128; o; o >>= 1) { if (tid < o) s[tid] = s[tid + o] + s[tid]; __syncthreads(); }",
        "for (int o = blockDim.x / 2; o > 0; o >>= 1) { __syncthreads(); if (tid < o) s[tid] += s[tid + o]; }",
    ],
)
def test_trees_of_every_usual_spelling_are_recognised(ask, loop: str) -> None:
    text = rewritten(ask, loop=loop)
    assert text is not None
    assert "s[BLOCK]" not in text
    assert text.count("__shfl_xor_sync(0xffffffffu") == 1
    assert "return warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0f);" in text
    assert "sum = block_sum(sum);\n  if (tid == 0) y[blockIdx.x] = sum;" in text
    assert loop not in text
    assert text.count("__syncthreads") == 1


@pytest.mark.parametrize("function", ["fmaxf", "fminf", "max", "min"])
def test_extremes_start_from_what_a_lane_has(ask, function: str) -> None:
    text = rewritten(ask, loop=LOOP.replace("s[tid] += s[tid + o]", f"s[tid] = {function}(s[tid], s[tid + o])"))
    assert text is not None
    name = "warp_max" if "max" in function else "warp_min"
    assert f"{function}(value, __shfl_xor_sync" in text
    assert f"return {name}(lane < blockDim.x / 32 ? partial[lane] : value);" in text


def test_two_arrays_in_one_loop_are_reduced_one_after_the_other(ask) -> None:
    text = rewritten(
        ask,
        declaration="__shared__ float s[BLOCK], q[BLOCK]",
        store="s[tid] = sum; q[tid] = sum * sum;",
        loop="for (int o = blockDim.x / 2; o > 0; o >>= 1) { if (tid < o) { s[tid] += s[tid + o]; q[tid] += q[tid + o]; } __syncthreads(); }",
        after="if (tid == 0) y[blockIdx.x] = s[0] + q[0];",
    )
    assert text is not None
    assert "__shared__ float s[BLOCK]" not in text
    assert "const float s_total = block_sum(sum);\n  const float q_total = block_sum(sum * sum);" in text
    assert "__syncthreads();  // partial is free for the next call" in text
    assert "y[blockIdx.x] = s_total + q_total;" in text


TWICE = """s[tid] = top; __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o >>= 1) { if (tid < o) s[tid] = fmaxf(s[tid], s[tid + o]); __syncthreads(); }
  top = s[0];
  __syncthreads();  // s is used again
  sum += top;
  s[tid] = sum;"""


def test_a_barrier_that_kept_the_array_for_its_readers_goes_with_it(ask) -> None:
    text = rewritten(ask, declaration="__shared__ float s[BLOCK]; float top = 0.0f", store=TWICE)
    assert text is not None
    assert re.search(r"top = block_max\(top\);\s+sum \+= top;\s+sum = block_sum\(sum\);", text)
    assert "s is used again" not in text


def test_a_barrier_between_two_trees_goes_with_both(ask) -> None:
    store = TWICE.replace(
        "  __syncthreads();  // s is used again\n  sum += top;\n", "  sum += top;\n  __syncthreads();  // s is free\n"
    )
    text = rewritten(ask, declaration="__shared__ float s[BLOCK]; float top = 0.0f", store=store)
    assert text is not None
    assert re.search(r"top = block_max\(top\);\s+sum \+= top;\s+sum = block_sum\(sum\);", text)
    close = TWICE.replace("  sum += top;\n", "")
    text = rewritten(ask, declaration="__shared__ float s[BLOCK]; float top = 0.0f", store=close)
    assert text is not None
    assert re.search(r"top = block_max\(top\);\s+sum = block_sum\(sum\);", text)


@pytest.mark.parametrize("before", ["y[tid] = sum;", "other[tid] = sum;", "__threadfence_block();"])
def test_a_barrier_stays_that_others_may_need(ask, before: str) -> None:
    declaration = "__shared__ float s[BLOCK]; __shared__ float other[BLOCK]; float top = 0.0f"
    if "other" not in before:
        declaration = declaration.replace("__shared__ float other[BLOCK]; ", "")
    text = rewritten(ask, declaration=declaration, store=f"{before} {TWICE}")
    assert text is not None
    assert "top = block_max(top);\n  __syncthreads();  // s is used again" in text


def test_dynamic_shared_memory_goes_from_contract_and_launch(ask) -> None:
    host = "void run(float* x, float* y, int n) { k<<<4, 256, 256 * sizeof(float)>>>(x, y, n); }\n"
    text = source(declaration="extern __shared__ float s[]", shared="block * 4") + host
    (candidate,) = RECIPE.candidates(ask(text, prompt="use less shared memory"))
    assert launch_shape(candidate.contract, {"n": 1000}).shared_bytes == 0
    assert "extern" not in candidate.kernel.source
    assert "shared = " not in candidate.kernel.unit.text.partition("__global__")[0]
    assert parse_contract(candidate.kernel, ask(text).contract).shared == "0"
    assert "k<<<4, 256>>>(x, y, n)" in candidate.kernel.unit.text


@pytest.mark.parametrize(
    "parts",
    [
        {"after": "if (tid == 0) y[blockIdx.x] = s[0] + s[1];"},
        {"after": "s[0] = 1.0f;"},
        {"after": "s[0]++;"},
        {"after": "y[0] = *s;"},
        {"after": "float* p = &s[0];"},
        {"after": "s[tid] = 2.0f;"},
        {"store": "s[tid] += sum;"},
        {"store": "s[tid] = sum + s[0];"},
        {"store": "s[n - tid] = sum;"},
        {"store": "if (tid < n) s[tid] = sum;"},
        {"declaration": "__shared__ half s[BLOCK]"},
        {"declaration": "volatile __shared__ float s[BLOCK]"},
        {"declaration": "__shared__ float s[UNKNOWN]"},
        {"block": "32"},
        {"block": "200"},
        {"block": "[16, 16]"},
        {"block": '"min(n, 256)"'},
        {"loop": LOOP.replace("blockDim.x / 2", "64")},
        {"loop": LOOP.replace("o > 0", "o > 32")},
        {"loop": LOOP.replace("+= s[tid + o]", "-= s[tid + o]")},
        {"loop": LOOP.replace("tid < o", "tid < 2 * o")},
        {"loop": LOOP.replace(" __syncthreads();", "")},
        {"loop": LOOP.replace("s[tid + o]", "s[tid + 2 * o]")},
        {"loop": LOOP + " tid = 0;"},
    ],
)
def test_what_is_not_surely_a_tree_stays(ask, parts: dict[str, str]) -> None:
    changed = {**parts}
    if "tid = 0" in parts.get("loop", ""):
        text = source(**changed).replace("const int tid", "int tid")
        assert list(RECIPE.candidates(ask(text))) == []
    else:
        assert rewritten(ask, **changed) is None


def test_names_of_the_file_are_not_taken(ask) -> None:
    text = rewritten(ask, declaration="float warp_sum = 0; __shared__ float s[BLOCK]", store="s[tid] = sum + warp_sum;")
    assert text is not None
    assert "value = warp_sum_(value);" in text
    assert "const float total = block_sum(sum + warp_sum);" in text


@pytest.mark.parametrize("after", ["y[0] = sum + s[0];", "sum += s[0]; y[0] = sum;", "if (n > 4) sum = s[0];"])
def test_a_variable_that_is_read_again_keeps_its_value(ask, after: str) -> None:
    text = rewritten(ask, after=after)
    assert text is not None
    assert "const float total = block_sum(sum);" in text
    assert after.replace("s[0]", "total") in text


@pytest.mark.parametrize("declaration", ["", "const float all = s[0];"])
def test_a_result_that_is_read_outside_of_its_block_stays_in_shared_memory(ask, declaration: str) -> None:
    store, loop = "if (n > 0) { s[tid] = sum;", LOOP + " }"
    assert rewritten(ask, store=store, loop=loop, after=declaration or "y[0] = s[0];") is None


def test_a_variable_that_the_result_is_assigned_to_holds_it(ask) -> None:
    text = rewritten(ask, after="sum = s[0];\n  y[tid] = sum;")
    assert text is not None
    assert "sum = block_sum(sum);\n  y[tid] = sum;" in text


def test_functions_stand_above_the_contract_and_its_comments(ask) -> None:
    text = source().replace("// /// kernelmate", "// Sums up.\n\n// About it.\n// /// kernelmate", 1)
    (candidate,) = RECIPE.candidates(ask(text, prompt="use less shared memory"))
    assert "}\n\n// About it.\n// /// kernelmate" in candidate.kernel.unit.text


def test_the_reason_says_what_is_saved(ask) -> None:
    (candidate,) = RECIPE.candidates(ask(source(), prompt="use less shared memory"))
    assert "896 bytes" in candidate.why
    assert "9 barriers" in candidate.why


def test_a_tree_of_spread_out_threads_is_read_too(judged) -> None:
    source = """
// /// kernelmate
// sizes = [{ rows = 9, cols = 300 }, { rows = 1, cols = 5 }]
// grid = "rows"
// block = 128
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {
  __shared__ float part[128];
  float v = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) v += x[blockIdx.x * cols + c];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (threadIdx.x % (2 * s) == 0) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
    (one,) = judged(source, RECIPE, "use less shared memory")
    assert "v = block_sum(v);" in one.candidate.kernel.source
    assert one.verdict.objective.met is True


def test_the_functions_name_the_length_of_a_warp_by_the_files_constant(ask) -> None:
    text = source().replace("#define BLOCK 256", "#define BLOCK 256\n#define WARP_SIZE 32")
    (candidate,) = RECIPE.candidates(ask(text, prompt="use less shared memory"))
    changed = candidate.kernel.unit.text
    assert "for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)" in changed
    assert "lane < blockDim.x / WARP_SIZE ? partial[lane]" in changed


def test_a_function_that_keeps_its_array_says_that_a_second_call_needs_a_barrier(ask) -> None:
    text = rewritten(ask)
    assert text is not None
    assert "in each of its threads; a second call needs a barrier before it." in text
