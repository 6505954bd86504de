"""Timing on a GPU: what is drawn for it, how outputs are held together, and, where there is one, the whole way."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.compiler import find_target
from kernelmate_training.corpus.drafting import array
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.gpu import AGREE, SLACK, _fastest, drawn_stretch, output_difference
from kernelmate_training.corpus.group_processing import draw_group, ratio_of, study, timing_of
from kernelmate_training.corpus.judging import Judge, Rounds


def test_inputs_follow_the_contracts_distribution_at_the_large_size() -> None:
    ids = drawn_stretch(_argument("ids", "int32", "integers(0, vocab)"), 5000, {"vocab": 40})
    assert ids.dtype == np.int32
    assert set(np.unique(ids)) == set(range(40))
    level = drawn_stretch(_argument("level", "bfloat16", "uniform(0.5, 2)"), 100, {"vocab": 40}).astype(np.float64)
    assert level.min() >= 0.5
    assert level.max() <= 2
    assert not drawn_stretch(_argument("sums", "float32", "zeros"), 9, {}).any()


def _argument(name: str, dtype: str, drawn: str):
    from kernelmate.source import contract_for, find_kernels, text_unit

    entry = array(name, "in", dtype, "n", drawn=drawn).entry()
    text = f"// /// kernelmate\n// sizes = [{{ n = 4, vocab = 3 }}]\n// grid = 1\n// block = 32\n// [args]\n// {entry}\n// ///\n__global__ void k(const {'int' if dtype == 'int32' else 'float' if dtype == 'float32' else '__nv_bfloat16'}* {name}) {{}}\n"
    return contract_for(find_kernels(text_unit(text, "k.cu"))[0]).args[0]


def test_rounding_passes_and_work_left_out_does_not() -> None:
    want = np.linspace(-3, 3, 1000, dtype=np.float32)
    assert output_difference(want * np.float32(1 + AGREE / 10), want) == ""
    left_out = want.copy()
    left_out[900:] = 0
    assert output_difference(left_out, want).startswith("off by ")
    assert output_difference(np.where(want > 2, np.nan, want).astype(np.float32), want).startswith("NaN")
    assert output_difference(np.array([1, 2], np.int32), np.array([1, 3], np.int32)) != ""


def test_a_ratio_is_told_by_turns_and_not_by_the_turns_of_one_alone() -> None:
    before, after = Rounds((10.0, 20.0, 30.0), 4), Rounds((5.0, 10.0, 15.0), 4)
    ratio = ratio_of(before, after)
    assert (ratio.kind, ratio.median, ratio.ci95) == ("measured", 2.0, (2.0, 2.0))
    timing = timing_of(after, {"n": 64})
    assert (timing.median_us, timing.runs, timing.ci95_us) == (10.0, 12, (5.0, 15.0))
    assert "n = 64" in timing.notes[0]


def test_only_what_looks_fastest_is_timed_beside_the_first() -> None:
    @dataclass
    class Looked:
        look_us: float

    looked = {0: Looked(100), 2: Looked(90), 3: Looked(100 * SLACK + 1), 5: Looked(20), 7: Looked(101), 8: Looked(50)}
    assert list(_fastest(looked, 2)) == [0, 5, 8]  # type: ignore[arg-type]
    assert list(_fastest(looked, 9)) == [0, 2, 5, 7, 8]  # type: ignore[arg-type]
    assert list(_fastest(looked, None)) == list(looked)  # type: ignore[arg-type]
    assert _fastest({}, 2) == {}


@pytest.mark.gpu
@pytest.mark.skipif(missing_for_gpu() is not None, reason="needs an NVIDIA GPU with CuPy")
@pytest.mark.parametrize("name", ["column-map", "softmax", "matmul", "sum-all", "transpose", "half-map", "gather-rows"])
def test_groups_are_judged_and_timed_on_a_gpu(name: str) -> None:
    from kernelmate_training.corpus.gpu import Gpu

    judge = Judge(find_target("H100 SXM"), Gpu(0))
    found = [study(judge, registry()[name], number, 1) for number in range(4)]
    assert sum(one.right for one in found) == sum(one.texts for one in found)
    rows = [json.loads(row.line) for one in found for row in (*one.rows, *one.rejected)]
    timed = [row for row in rows if row["problem"]["metric"] == "time"]
    assert timed
    assert all(row["verdict"]["speedup"]["kind"] == "measured" and row["judged_on"] == "measured" for row in timed)
    large = draw_group(registry()[name], 0, 1).problem.large
    assert {str(row["problem"]["size"]) for row in timed} > {str(dict(large))}
