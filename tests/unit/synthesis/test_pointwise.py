"""Element-wise kernels whose rows are no whole packs, such as pixels of three channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ h = 6, w = 40 }, { h = 3, w = 7 }, { h = 1, w = 1 }"
BODY = (
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= h * w * 3) return;\n"
    "  y[i] = ((float)x[i] / 255.0f - mean[i % 3]) * FACTOR;"
)


PIXELS = {"x": "in uint8[h, w, 3]", "mean": "in float32[3]", "y": "out float32[h, w, 3]", "h": "int32", "w": "int32"}


@pytest.mark.parametrize(("dtype", "channels"), [("float32", 3), ("uint8", 3), ("float32", 6)])
def test_values_for_each_channel_are_read_by_element_beside_packs(
    dtype: str, channels: int, make: Any, tmp_path: Path
) -> None:
    args = {"x": f"in {dtype}[n, {channels}]", "mean": f"in float32[{channels}]", "y": f"out float32[n, {channels}]"}
    kernel, contract = make({**args, "n": "int32"}, "x / 255 - mean", sizes="{ n = 99 }, { n = 5 }", grid="n")
    found = list(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert [one.schedule for one in found] == ["pointwise"]
    text = found[0].definition
    assert f"mean[(base + j) % {channels}]" in text
    assert f"{channels} % kPack" not in text
    assert "mean_pack" not in text


def test_a_row_of_whole_packs_keeps_packs_of_its_vector(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n, 4]", "mean": "in float32[4]", "y": "out float32[n, 4]", "n": "int32"}
    kernel, contract = make(args, "x - mean", sizes="{ n = 99 }, { n = 5 }", grid="n")
    assert "mean_pack" in next(iter(kernels_for(trace(contract, tmp_path), kernel, contract))).definition


@pytest.mark.parametrize("reference", ["x / 255 - mean", "(x / 255 - mean) * np.arange(3)"])
def test_pixels_of_three_channels_are_right(reference: str, make: Any, session: Session) -> None:
    body = BODY.replace("FACTOR", "(i % 3)" if "arange" in reference else "1.0f")
    kernel, _ = make(PIXELS, reference, sizes=SIZES, body=body, grid="cdiv(h * w * 3, block)")
    assert "synthesis:pointwise" in assert_judged_right(session, kernel)
