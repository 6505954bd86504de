"""Mistakes put into right kernels."""

from __future__ import annotations

from random import Random

from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.flaws import break_text
from kernelmate_training.corpus.group_processing import draw_group
from kernelmate_training.corpus.judging import Judge

REDUCTION = """// /// kernelmate
// sizes = [{ n = 4096 }, { n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "out + x.sum()"
// [args]
// x = "in float32[n] ~ uniform(0, 1)"
// out = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void total(const float* x, float* out, int n) {
  __shared__ float part[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(&out[0], part[0]);
}
"""


def test_many_kinds_of_mistakes_are_made_and_each_says_how_it_is_put_right() -> None:
    kinds = {}
    for seed in range(200):
        broken = break_text(REDUCTION, Random(seed))
        assert broken is not None
        assert broken.text != REDUCTION
        assert broken.explanation.endswith((".", "`."))
        kinds[broken.kind] = broken
    assert {
        "no-barrier",
        "small-shared",
        "half-the-tree",
        "plain-add",
        "no-semicolon",
        "misspelt",
        "short-grid",
    } <= set(kinds)


def test_the_judge_sees_races_missing_barriers_and_words_of_the_compiler(judge: Judge) -> None:
    judge.begin(1)
    assert judge.judge(REDUCTION).right
    no_barrier = REDUCTION.replace("    __syncthreads();\n  }", "  }")
    assert judge.judge(no_barrier, hunt=True).words.startswith("shared-race: line ")
    small = REDUCTION.replace("part[128]", "part[64]")
    assert judge.judge(small, hunt=True).words.startswith("out-of-bounds-")
    spelt = judge.judge(REDUCTION.replace("= 0.0f;\n  __sync", "= 0.0f;\n  __sink"), hunt=True)
    unknown = judge.judge(REDUCTION.replace("if (threadIdx.x == 0)", "if (tid == 0)"), hunt=True)
    assert unknown.words.startswith("compile-error: line 20: ")
    assert unknown.verdict.correct is False
    assert spelt.right
    wrong = judge.judge(REDUCTION.replace("half > 0", "half > 1"), hunt=True)
    assert wrong.words.startswith("wrong-at-size: wrong values at n=1000: out[0] is ")
    everywhere = judge.judge(REDUCTION.replace("? x[i] :", "? x[i] + 1.0f :"), hunt=True)
    assert everywhere.words.startswith("wrong-values: wrong values at n=1000: out[0] is ")
    short = judge.judge(REDUCTION.replace("cdiv(n, block)", "max(n // block, 1)"), hunt=True)
    assert short.words.startswith("wrong-at-size: wrong values at n=1000: out[0] is ")


def test_most_mistakes_are_seen(judge: Judge) -> None:
    seen = tried = 0
    for number, name in enumerate(("softmax", "matmul", "sum-all", "transpose", "heat-2d", "adam-step")):
        group = draw_group(registry()[name], number, 3)
        judge.begin(group.seed, headline=False)
        for repair in group.repairs:
            tried += 1
            seen += bool(judge.judge(repair.broken.text, hunt=True).words)
    assert tried >= 6
    assert seen >= 0.6 * tried


ROWS = """#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ rows = 64, cols = 96 }, { rows = 5, cols = 7 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "x / cols"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void shares(const float* x, float* y, int rows, int cols) {
  int col = blockIdx.x * 16 + threadIdx.x;
  int row = blockIdx.y * 16 + threadIdx.y;
  float least = 1e30f;
  if (row < rows && col < cols) {
    least = fminf(least, x[row * cols + col]);
    y[row * cols + col] = least / cols;
  }
}
"""


def test_mistakes_lead_to_the_repairs_that_mend_them(judge: Judge) -> None:
    """Those whose repair puts back what was there, or the same in other words."""
    from kernelmate.suggest.codec.base import CodecLaunch, Question
    from kernelmate_training.corpus.group_processing import repairs_of

    judge.begin(1)
    assert judge.judge(ROWS).right
    launch = CodecLaunch(("cdiv(cols, 16)", "cdiv(rows, 16)"), ("16", "16"))
    repairs = {
        "other-layout": "index-order",
        "whole-inverse": "integer-ratio",
        "wrong-start": "neutral-start",
        "no-brace": "missing-token",
    }
    found = {}
    for seed in range(400):
        made = break_text(ROWS, Random(seed))
        assert made is not None
        if made.kind in repairs and made.kind not in found:
            judged = judge.judge(made.text, hunt=True)
            assert judged.verdict.correct is False
            question = Question(made.text, "shares", launch, "correct", task="debug", broken=judged.words)
            _, mending = repairs_of(judge, question, ROWS)
            found[made.kind] = None if mending is None else mending.step[0]
    assert found == repairs
