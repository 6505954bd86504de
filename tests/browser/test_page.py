"""The page of `--html` as its reader sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ROOT

KERNEL = """\
// /// kernelmate
// sizes = [{ rows = 8, cols = 300 }]
// grid = "rows"
// block = 128
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    (folder / "row_sum.cu").write_text(KERNEL)
    own = {"KERNELMATE_HISTORY_FILE": str(folder / "h.db"), "KERNELMATE_BACKEND": "emulator", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kernelmate", "optimize", "row_sum.cu", "less shared memory", "--html", "p.html"]
    subprocess.run(command, cwd=folder, env={**os.environ, **own}, check=True, capture_output=True)
    return Path(folder, "p.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answer_fits_a_screen_and_every_chart_is_drawn(chromium: Any, address: str, scheme: Any) -> None:
    page = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme).new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    expect(page.locator(".verdict")).to_contain_text("Ready to accept")
    for title in ("Correctness", "Time", "Occupancy"):
        expect(page.get_by_role("img", name=title, exact=True)).to_be_in_viewport()
    assert page.locator(".auto").bounding_box()["height"] <= 900
    expect(page.locator("figure.plot .main-svg").first).to_be_attached(timeout=60_000)
    assert page.locator("figure.plot").count() == page.locator("figure.plot:has(.main-svg)").count() >= 5
    assert errors == []
    page.context.close()
