"""The page of `--html` in a browser."""

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


OVERLAPS = """figure => {
  const boxes = [...figure.querySelectorAll("svg text")].map(it => [it.textContent, it.getBoundingClientRect()]);
  const edge = figure.getBoundingClientRect().left + figure.scrollWidth + 1;
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  return boxes.flatMap(([text, box], index) => [
    ...(box.right > edge ? [`${text} is cut off`] : []),
    ...boxes.slice(index + 1).filter(([, other]) => box.width && other.width && !apart(box, other)).map(([other]) => `${text} | ${other}`),
  ]);
}"""
"""Texts of a chart that are cut off, or drawn over each other."""


@pytest.mark.parametrize("width", [450, 800, 1280])
def test_no_words_of_a_chart_are_over_others_or_cut_off(chromium: Any, address: str, width: int) -> None:
    page = chromium.new_context(viewport={"width": width, "height": 900}).new_page()
    page.goto(address)
    plots = page.locator("figure.plot")
    expect(page.locator("figure.plot:has(.main-svg)")).to_have_count(plots.count(), timeout=60_000)
    assert {title: found for one in plots.all() if (found := one.evaluate(OVERLAPS)) and (title := one.locator("figcaption").inner_text())} == {}  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "charts scroll, the page does not"
    page.context.close()


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
