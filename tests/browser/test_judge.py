"""Kernels that a notebook made with CuPy, judged in a real JupyterLab; and a panel that is clicked at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, expect

from tests.browser.lab import WIDTHS, Book, Lab, overflow
from tests.browser.test_notebook import KERNEL, SETUP, ask, cells

pytestmark = pytest.mark.exhaustive(share=0.4)

RAW = f"import cupy\nraw = cupy.RawKernel(r'''\nextern \"C\" {KERNEL}''', 'row_sum')"
JUDGE = "%kernelmate judge raw x y rows cols --grid rows --block 128 --reference total"


def test_a_raw_kernel_is_offered_judged_and_asked_about(lab: Lab, book: Book) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed: pip install cupy-cuda13x (it needs no GPU here)")
    lab.write("raw.ipynb", [SETUP, RAW, JUDGE + " --bind fast", "%kernelmate panel fast", "%kernelmate judge rows x"])
    book.open("raw.ipynb")
    book.run_all()
    expect(book.output(1)).to_contain_text("%kernelmate judge raw x y rows cols --grid BLOCKS --block THREADS")
    expect(book.output(2).first).to_contain_text("right")
    expect(book.output(2).first).to_contain_text("line numbers are those of cell [2]")
    expect(book.panel("fast").locator(".km-row")).to_have_count(1)
    expect(book.output(4)).to_contain_text("rows is a int, whose CUDA source cannot be had")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):  # the theme stays for the tests that follow
        book.theme(theme)
        for width in WIDTHS:
            book.page.set_viewport_size({"width": width, "height": 1000})
            book.shot(f"judge-{theme[11:].lower()}-{width}", book.page.locator(".jp-Notebook .jp-CodeCell").nth(1))
            for index in (1, 2):
                assert overflow(book.output(index).first) <= 1, f"output {index} is cut off at {width} px"


def test_what_was_understood_is_shown_as_chips_that_can_be_left_out(lab: Lab, book: Book) -> None:
    prompt = "%kernelmate optimize row_sum 'make it faster, at most 32 registers, no atomics'"
    lab.write("chips.ipynb", cells(prompt, "%kernelmate optimize row_sum xyzzy"))
    book.open("chips.ipynb")
    book.run_all()
    chips = book.output(2).locator(".km-do[class*='km-do-chip']")
    expect(chips).to_have_text(["at most 32 registers ×", "no atomics ×"])
    result = book.output(2).locator(".km-verdict, .kernelmate").first
    expect(result).to_be_visible()
    expect(book.output(2).get_by_text("at most 32 registers ×")).to_have_count(1)
    expect(book.output(2).locator(".kernelmate .chips")).to_have_count(0)
    offered = book.output(3).locator(".km-do[class*='km-do-chip']")
    expect(offered).to_have_count(5)
    expect(book.output(3).first).to_contain_text("Ask instead:")
    expect(book.output(2).first).to_contain_text("Ask again without:")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):  # the theme stays for the tests that follow
        book.theme(theme)
        for width in WIDTHS:
            book.page.set_viewport_size({"width": width, "height": 1000})
            book.shot(f"chips-{theme[11:].lower()}-{width}", book.page.locator(".jp-Notebook .jp-CodeCell").nth(2))
            book.shot(f"offered-{theme[11:].lower()}-{width}", book.page.locator(".jp-Notebook .jp-CodeCell").nth(3))
    chips.first.click()
    expect(chips).to_have_text(["no atomics ×"])
    offered.filter(has_text="reduce memory usage").click()
    expect(book.output(3).locator(".kernelmate").first).to_be_visible()
    expect(book.output(3).get_by_role("button", name="Explain")).to_be_visible()
    book.run_more("print(row_sum.optimization.objective.prompt)")
    expect(book.output(4)).to_contain_text("reduce memory usage")


@pytest.mark.parametrize("seed", [22])
def test_two_hundred_random_clicks_leave_no_exception_and_a_panel_that_works(lab: Lab, book: Book, seed: int) -> None:
    failures: list[str] = []
    book.page.on("pageerror", lambda error: failures.append(str(error)))
    book.page.on("console", lambda one: failures.append(one.text) if _is_ours(one) else None)
    lab.write("clicks.ipynb", cells("%kernelmate panel row_sum"))
    book.open("clicks.ipynb")
    book.run_all()
    panel = book.panel("row_sum")
    expect(panel.locator(".km-row")).to_have_count(1)
    drawn, log = random.Random(seed), Path(lab.log.name)
    before = log.stat().st_size
    assert sum(_act(book, panel, drawn) for _ in range(200)) > 150, "most clicks must meet something"
    panel.get_by_role("textbox").press("Escape")
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled(timeout=120_000)
    ask(panel, "reduce memory usage")
    expect(panel.locator(".km-row", has_text="best")).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    assert panel.locator(".km-error").inner_text() == ""
    assert panel.locator(".km-status").inner_text() == ""
    book.run_more("row_sum(x, y, rows, cols); print(np.allclose(y, total(x), atol=1e-4), row_sum.version is not None)")
    expect(book.output(3)).to_contain_text("True True")
    assert "Traceback" not in book.page.locator(".jp-Notebook").inner_text()
    assert failures == []
    assert "Traceback" not in log.read_text()[before:], "what a widget's handler raises is in the server's log alone"


PROMPTS = (
    "make it faster",
    "reduce memory usage",
    "why is it slow?",
    "undo",
    "accept",
    "xyzzy",
    "in triton",
    "",
    "at most 32 registers, no atomics",
)


def _act(book: Book, panel: Any, drawn: random.Random) -> bool:
    """Clicks what can be clicked, or types into the prompt; an element that goes meanwhile is passed over: then False."""
    if drawn.random() < 0.15:
        box = panel.get_by_role("textbox")
        box.fill(drawn.choice(PROMPTS))
        box.press(drawn.choice(["Enter", "Escape", "Enter"]))
        return True
    if drawn.random() < 0.15:
        panel.locator(".km-list").press(drawn.choice(["ArrowDown", "ArrowUp", "Home", "End", "Enter", "Delete"]))
        return True
    places = panel.locator("button:visible:enabled, .km-row:visible, summary:visible, figure:visible")
    count = places.count()
    try:
        places.nth(drawn.randrange(count)).click(timeout=1_000, force=drawn.random() < 0.3)
    except Error:
        return False
    if drawn.random() < 0.1:
        book.page.wait_for_timeout(300)
    return True


def _is_ours(message: Any) -> bool:
    return message.type == "error" and any(one in message.text for one in ("km-", "anywidget", "kernelmate", "widget"))
