"""Comments that a rewrite made false: what is corrected, and what stays byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.records import Contract
from kernelmate.source import apply_edits, find_kernels, text_unit
from kernelmate.suggest.recipes import ALL
from kernelmate.suggest.recipes.comments import without_stale_comments
from kernelmate.suggest.recipes.sentences import corrected
from kernelmate.suggest.recipes.techniques import ENDED, REWRITTEN, ended_by

CONTRACT = """// /// kernelmate
// sizes = [{ n = 64 }]
// grid = "1"
// block = 256
// reference = "a tree in shared memory"
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
"""
BODY = """__global__ void k(float* x, int n) {
  __shared__ float tree_values[256];
  tree_values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();  // tree_values is complete
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) tree_values[threadIdx.x] += tree_values[threadIdx.x + half];
    __syncthreads();
  }
  x[threadIdx.x] = tree_values[0];
}
"""
CHANGED = """__global__ void k(float* x, int n) {
  x[threadIdx.x] = warp_sum(x[threadIdx.x]);
}
"""


@pytest.fixture
def after() -> Callable[..., str]:
    """`after(head, recipe=..., old=..., new=...)`: the head, and what follows, once the kernel's body was exchanged."""

    def run(head: str, recipe: str = "warp-reduction", old: str = BODY, new: str = CHANGED) -> str:
        kernel = find_kernels(text_unit(head + old, "k.cu"))[0]
        start = kernel.unit.text.index(old)
        changed = apply_edits(kernel, [(start, start + len(old), new)])
        return without_stale_comments(kernel, changed, ENDED[recipe]).unit.text

    return run


@pytest.mark.parametrize(
    ("recipe", "before", "now"),
    [
        ("warp-reduction", "Sum: partial sums, a tree in shared memory per block, one atomic.", "Sum: partial sums, warp shuffles per block, one atomic."),
        ("warp-reduction", "Row sums as a tree in shared memory, one block per row.", "Row sums by warp shuffles, one block per row."),
        ("warp-reduction", "Sums. The tree halves the threads at each step. Thread 0 writes.", "Sums. Thread 0 writes."),
        ("pad-shared-tile", "Transposes. The tile has no padding, so a column is on one bank.", "Transposes. A column of padding spreads the tile's columns over all banks."),
        ("private-histogram", "Histogram: every sample is an atomic addition in global memory.", "Histogram: each block counts in shared memory, then adds its counts to the global ones."),
        ("warp-per-row", "CSR times vector, one thread per row: simple, and unbalanced.", "CSR times vector, one warp per row."),
        ("warp-scan", "Prefix sum: Hillis and Steele's scan between two buffers in shared memory, with a carry.", "Prefix sum: a scan by warp shuffles, with a carry."),
        ("single-pass-moments", "Mean and variance in two passes (no E[x^2], which loses digits).", "Mean and variance in one pass."),
        ("exchange-axes", "Column sums. Loads are uncoalesced, since lanes take neighbouring rows.", "Column sums. Neighbouring threads access neighbouring elements."),
        ("warp-reduction", "Performs a tree-based reduction in shared memory, then writes it.", "Performs a reduction by warp shuffles, then writes it."),
        ("private-histogram", "256-bin histogram with global atomics.", "256-bin histogram."),
        ("warp-scan", "Inclusive scan (Hillis-Steele, double buffered).", "Inclusive scan (a scan by warp shuffles)."),
        ("warp-per-row", "CSR SpMV, scalar version; one thread computes one output row.", "CSR SpMV, scalar version; one warp computes one output row."),
        ("tile-transpose", "Naive transpose. Writes are strided by rows, so they are uncoalesced.", "Naive transpose. A tile in shared memory lets loads and stores both walk along rows."),
        ("online-softmax", "Three passes: largest, sum, quotients.", "Two passes."),
        ("vectorize", "Gain on samples, one element per thread, gains in shared memory.", "Gain on samples, several neighbouring elements per thread, gains in shared memory."),
        ("vectorize", "Each thread handles one element; n is a size.", "Each thread handles several neighbouring elements; n is a size."),
    ],
)  # fmt: skip
def test_the_clause_that_tells_of_the_ended_technique_is_corrected(recipe: str, before: str, now: str) -> None:
    assert corrected(before, ENDED[recipe], (), "k") == now


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("exchange-axes", "Column sums. Loads are coalesced."),
        ("warp-reduction", "Walks a k-d tree of points in global memory."),
        ("pad-shared-tile", "Convolution with zero padding, as in PyTorch."),
        ("pad-shared-tile", "The padding avoids bank conflicts."),
        ("warp-per-row", "y = A x, with one weight per row."),
        ("warp-per-row", "Each thread computes a partial sum."),
        ("private-histogram", "Histogram of bytes."),
        ("single-pass-moments", "Called in both passes of training."),
        ("vectorize", "Every element is divided by n, e.g. the number of pixels."),
        ("vectorize", "Row maxima in an array of one value per thread."),
        ("vectorize", "Scratch holds one element per thread."),
        ("grid-stride", "The buffer keeps one value per thread."),
    ],
)
def test_what_is_still_so_stays(recipe: str, text: str) -> None:
    assert corrected(text, ENDED[recipe], (), "k") == text


def test_a_sentence_on_another_kernel_of_the_file_stays() -> None:
    text = "Two products. The naive one has no access coalesced; the tiled one does."
    ended = ENDED["exchange-axes"]
    assert corrected(text, ended, (), "product_tiled", ("product_naive",)) == text
    now = "Two products. In product_naive, neighbouring threads access neighbouring elements; the tiled one does."
    assert corrected(text, ended, (), "product_naive", ("product_tiled",)) == now


def test_a_sentence_that_names_what_the_kernel_no_longer_declares_goes(after) -> None:
    text = after("// Sums x. tree_values holds one float\n// per thread. n is at most 256.\n")
    assert text.startswith("// Sums x. n is at most 256.\n__global__")
    assert "n is at most" in after("// half of n is at most 256.\n"), "a word of English is no name"


def test_a_sentence_over_two_lines_is_reflowed_to_the_comments_width(after) -> None:
    head = "// Sum of all elements of one array in device memory, with a\n// tree in shared memory, then a single atomic addition.\n"
    assert after(head).startswith(
        "// Sum of all elements of one array in device memory, by\n// warp shuffles, then a single atomic addition.\n__global__"
    )


@pytest.mark.parametrize(
    ("head", "now"),
    [
        ("/* Sum with a tree in shared memory. */\n", "/* Sum by warp shuffles. */\n"),
        ("/* Sum.\n * A tree in shared memory.\n */\n", "/* Sum.\n * Warp shuffles.\n */\n"),
        ("/**\n * Sum, by a tree in shared memory.\n *\n * @param n elements\n */\n", "/**\n * Sum, by warp shuffles.\n *\n * @param n elements\n */\n"),
        ("/* The tree has eight steps. */\n", ""),
        ("/* The tree has eight steps.\n   Sums. */\n", "/* Sums. */\n"),
        ("// Sum.\n//\n// The tree has eight steps.\n", "// Sum.\n"),
        ("/// Sum with a tree in shared memory.\n", "/// Sum by warp shuffles.\n"),
    ],
)  # fmt: skip
def test_every_kind_of_comment_keeps_its_signs(after, head: str, now: str) -> None:
    assert after(head) == now + CHANGED


@pytest.mark.parametrize(
    "head",
    [
        "// Copyright 2026. Licensed under a tree in shared memory.\n",
        "// SPDX-License-Identifier: MIT, a tree in shared memory\n",
        "// | step | a tree in shared memory |\n// |------|-------------------------|\n",
        CONTRACT,
        "// Sums.\n\n" + CONTRACT,
    ],
)
def test_licences_tables_and_contracts_stay(after, head: str) -> None:
    assert after(head) == head + CHANGED


def test_a_comment_directly_above_a_contract_is_corrected_and_the_contract_stays(after) -> None:
    assert (
        after("// Sum with a tree in shared memory.\n" + CONTRACT) == "// Sum by warp shuffles.\n" + CONTRACT + CHANGED
    )


def test_comments_of_other_functions_and_texts_stay(after) -> None:
    head = '// Top.\nint before() {\n  // a tree in shared memory\n  const char* s = "// a tree in shared memory";\n  return s[0];\n}\n'
    assert after(head) == head + CHANGED


def test_a_technique_that_the_kernel_still_uses_is_still_told_of(after) -> None:
    head = "// Sum with a tree in shared memory.\n"
    assert after(head, new=BODY.replace("128", "64")) == head + BODY.replace("128", "64")


def test_comments_beside_code_that_is_gone_go_with_it(after) -> None:
    old = "__global__ void k(float* x) {\n  x[0] = 1;  // first\n  x[1] = 2;  // not padded\n  // the third\n  x[2] = 3;\n}\n"
    new = "__global__ void k(float* x) {\n  x[0] = 1;  // first\n  x[1] = 3;  // not padded\n  // the third\n}\n"
    text = after("", "pad-shared-tile", old, new)
    assert "x[0] = 1;  // first\n" in text
    assert "the third" not in text
    assert "not padded" not in text


def test_comments_that_the_rewrite_itself_brought_stay(after) -> None:
    new = CHANGED.replace("  x[", "  // no tree in shared memory\n  x[", 1)
    assert after("", new=new) == new


def test_techniques_are_listed_of_recipes_that_exist() -> None:
    assert set(ENDED) <= {recipe.name for recipe in ALL}


@pytest.mark.parametrize(
    ("block", "now", "text", "corrected_text"),
    [
        (("256",), ("512",), "Blocks of 256 threads, 1256 threads in all.", "Blocks of 512 threads, 1256 threads in all."),
        (("16", "16"), ("32", "8"), "One tile for 16x16 threads.", "One tile for 32 x 8 threads."),
        (("256",), ("512",), "A table of 256 entries.", "A table of 256 entries."),
        (("256",), ("256",), "Blocks of 256 threads.", "Blocks of 256 threads."),
    ],
)  # fmt: skip
def test_the_length_of_a_block_follows_the_launch(block, now, text: str, corrected_text: str) -> None:
    before, after_ = (Contract(kernel="k", args=(), sizes=(), grid=("1",), block=one) for one in (block, now))
    assert corrected(text, ended_by("block-size", before, after_), (), "k") == corrected_text


def test_offsets_hold_in_a_file_with_letters_beyond_ascii(after) -> None:
    head = "// Größe n: Summe über x. Sum with a tree in shared memory.\n"
    assert after(head) == "// Größe n: Summe über x. Sum by warp shuffles.\n" + CHANGED


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("Layer normalisation, one block per row. Mean and variance in two passes (no E[x^2], which loses digits).", "Layer normalisation."),
        ("Attention of a single head, one block per query. All scores of a query wait in shared memory.", "Attention of a single head."),
        ("Normalisation of groups. NCHW, one block per group; the group is read three times: for its mean, and the result.", "Normalisation of groups. NCHW."),
        ("Matrix transpose through a tile in shared memory: loads walk along rows.", "Matrix transpose."),
    ],
)  # fmt: skip
def test_how_a_replaced_kernel_worked_is_not_told_in_parts_of_sentences(before: str, now: str) -> None:
    text = before
    for one in REWRITTEN:
        text = corrected(text, [one], (), "k")
    assert text == now


@pytest.mark.parametrize(
    ("recipe", "before", "now"),
    [
        ("vectorize", "Each thread handles exactly one element.", "Each thread handles several neighbouring elements."),
        ("grid-stride", "Every thread takes only one element.", "Every thread takes elements at the grid's stride."),
        ("private-histogram", "Counts bytes. Every thread takes one byte and adds it to the global bins atomically.", "Counts bytes. Each block counts in shared memory, then adds its counts to the global ones."),
        ("warp-per-row", "One thread walks one column.", "One warp walks one column."),
        ("warp-per-row", "Serial sum over the rows.", "Sum over the rows."),
        ("online-softmax", "First pass: the largest value of the row.", "One pass finds the maximum and the sum."),
        ("online-softmax", "Second pass: sum of shifted exponentials.", ""),
        ("single-pass-moments", "First pass: the mean.", "One pass finds the mean and the variance."),
    ],
)  # fmt: skip
def test_a_sentence_on_the_work_of_threads_follows_the_rewrite(recipe: str, before: str, now: str) -> None:
    assert corrected(before, ENDED[recipe], (), "k") == now
