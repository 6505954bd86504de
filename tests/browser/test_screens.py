"""Pictures of every screen of the notebook at four widths in both themes, and tests of their layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ROOT, WIDTHS, Book, Lab, overflow
from tests.browser.test_notebook import KERNEL, LINE, SEARCH, ask, cells, height_of, tops_of
from tests.chat_server import ChatServer

pytestmark = pytest.mark.exhaustive(share=0.4)

SLOW = """\
__global__ void slow_sum(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c) sum += x[row * cols + c];
    y[row] = sum;
}
"""
"""One thread per row, which a warp per row makes much faster."""

LARGE = "big = np.ones((600, 300), np.float32)\nsums = np.zeros(600, np.float32)\nmany, wide = big.shape"
SLOW_CELL = f"%%kernelmate --args big,sums,many,wide --grid 'cdiv(many, block)' --block 128 --ref total\n{SLOW}"

SCREENS = {"verdict": 1, "undecided": 2, "explain": 3, "panel": 4, "result": 7}
"""Screens of a notebook with right kernels, and the cells that show them."""

OTHER_SCREENS = {"pipeline": 2, "wrong": 3, "wrong-pipeline": 4, "doctor": 5}
"""Screens of a second notebook, and the cells that show them: each test's share of the work stays small."""

PIPELINES = (ROOT / "examples/pipelines/softmax_pipeline.cu", ROOT / "tests/pipelines/wrong/wrong_stage.cu")
LAYERNORM = "(x - x.mean(axis=1)[:, None]) / np.sqrt(x.var(axis=1)[:, None] + 1e-5) * gain + shift"

THEMES = ("JupyterLab Dark", "JupyterLab Light")
"""The last one stays for the tests that follow."""

HEIGHT, NARROW_HEIGHT = 1400, 2600
"""Height of the page in pixels: of a narrow one, as much as its longest output needs."""

Look = Callable[[str, int], None]
"""Function that is called with a theme and a width in pixels."""


def at_every_width(book: Book, theme: str, look: Look) -> None:
    """Show the page in a theme at each width."""
    book.page.keyboard.press("Escape")
    book.page.set_viewport_size({"width": 1280, "height": HEIGHT})
    book.theme(theme)
    for width in WIDTHS:
        book.page.set_viewport_size({"width": width, "height": HEIGHT if width >= 800 else NARROW_HEIGHT})
        look(theme[11:].lower(), width)


def without_files(book: Book) -> None:
    """Fold the list of files, which takes 300 pixels."""
    book.page.locator(".jp-Notebook .jp-Cell").first.click()
    book.page.keyboard.press("Escape")
    book.page.keyboard.press("Control+b")


def below(one: Any, other: Any) -> float:
    """Pixels from the lower edge of an element to the upper edge of another."""
    return float(other.bounding_box()["y"] - one.bounding_box()["y"] - height_of(one))


@pytest.fixture(scope="module")
def screens(lab: Lab, new_page: Callable[[], Any]) -> Iterator[Book]:
    """A notebook that shows each screen of `SCREENS` once."""
    faster = SEARCH.replace("reduce memory usage", "make it faster")
    more = ("%kernelmate explain row_sum", "%kernelmate panel row_sum", LARGE, SLOW_CELL)
    book = Book(new_page(), lab)
    lab.write("screens.ipynb", cells(faster, *more, faster.replace("row_sum", "slow_sum")))
    book.open("screens.ipynb")
    without_files(book)
    book.run_all()
    panel = book.panel("row_sum")
    expect(panel.locator(".km-row").first).to_be_visible()
    expect(book.output(SCREENS["result"]).first).to_contain_text("slow_sum")
    book.idle()
    ask(panel, "reduce memory usage")
    expect(panel.locator(".km-row", has_text="best").first).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    yield book
    book.page.context.close()
    lab.end_kernels()


@pytest.fixture(scope="module")
def others(lab: Lab, new_page: Callable[[], Any]) -> Iterator[Book]:
    """A notebook that shows each screen of `OTHER_SCREENS` once."""
    wrong = LINE.replace("%%kernelmate", "%%kernelmate bad") + "\n" + KERNEL.replace("part[0];", "part[1];")
    right, bad = (f"%%kernelmate\n{path.read_text()}" for path in PIPELINES)
    (lab.folder / "reference.py").write_text(PIPELINES[0].with_name("reference.py").read_text())
    bad = bad.replace("../reference.py:layernorm", LAYERNORM)
    book, before = Book(new_page(), lab), {one["id"] for one in lab.kernels()}
    lab.write("others.ipynb", cells(right, wrong, bad, "%kernelmate doctor"))
    book.open("others.ipynb")
    without_files(book)
    book.run_all()
    expect(book.output(OTHER_SCREENS["wrong"]).first).to_contain_text("not good")
    book.idle()
    # "Run All" ended with the wrong kernel; an error takes the cells that wait with it, so the doctor comes first.
    for name in ("doctor", "wrong-pipeline"):
        book.page.locator(".jp-Notebook .jp-CodeCell").nth(OTHER_SCREENS[name]).locator(".cm-content").click()
        book.page.keyboard.press("Control+Enter")
    expect(book.output(OTHER_SCREENS["wrong-pipeline"]).first).to_contain_text("not good")
    expect(book.output(OTHER_SCREENS["doctor"]).first).to_contain_text("emulator")
    yield book
    book.page.context.close()
    lab.end_kernels(keep=before)


def cut_off(book: Book, name: str, index: int, theme: str, width: int) -> Iterator[str]:
    """Takes a picture of a screen; says what of it is cut off, too tall or below each other."""
    cell = book.page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    book.shot(f"{name}-{theme}-{width}", cell.locator(".jp-Cell-outputWrapper"))
    outputs = cell.locator(".jp-OutputArea-output:visible")
    widest = max((overflow(outputs.nth(place)) for place in range(outputs.count())), default=0)
    if widest > 1:
        yield f"{name} is cut by {widest:.0f} px at {width} px, {theme}"
    figures = [one.bounding_box() for one in cell.locator(".charts figure:visible").all()]
    if any(box["height"] > 260 for box in figures):
        yield f"charts of {name} are {max(box['height'] for box in figures):.0f} px tall at {width} px"
    if width >= 800 and len(tops_of(cell.locator(".charts figure:visible, .km-result figure"))) > 1:
        yield f"charts of {name} are below each other at {width} px"


@pytest.mark.parametrize("theme", THEMES)
def test_every_screen_fits_four_widths_in_both_themes(screens: Book, theme: str) -> None:
    cut: list[str] = []
    heights: dict[int, float] = {}

    def look(shade: str, width: int) -> None:
        for name, index in SCREENS.items():
            cut.extend(cut_off(screens, name, index, shade, width))
        panel = screens.panel("row_sum")
        verdict, accept = panel.locator(".km-headline"), panel.get_by_role("button", name="Accept", exact=True)
        if not 0 <= below(verdict, accept) <= 20:
            cut.append(f"the panel has Accept {below(verdict, accept):.0f} px below its verdict at {width} px")
        if (
            width < 800
            and panel.locator(".km-folds").bounding_box()["y"] < panel.locator(".km-diff").bounding_box()["y"]
        ):
            cut.append(f"the panel has its folded parts above the changed lines at {width} px")
        result = screens.page.locator(".jp-CodeCell").nth(SCREENS["result"]).locator(".jp-OutputArea")
        heights[width] = height_of(result)
        verdict, accept = result.locator(".verdict"), result.get_by_role("button", name="Accept")
        if width < 480 and not 0 <= below(verdict, accept) <= 20:
            cut.append(f"the result has Accept {below(verdict, accept):.0f} px below its verdict at {width} px")

    at_every_width(screens, theme, look)
    assert cut == []
    assert max(height for width, height in heights.items() if width >= 800) <= 900, "one screen answers"


@pytest.mark.parametrize("theme", THEMES)
def test_pipelines_and_what_is_wrong_fit_four_widths_in_both_themes(others: Book, theme: str) -> None:
    cut: list[str] = []

    def look(shade: str, width: int) -> None:
        for name, index in OTHER_SCREENS.items():
            cut.extend(cut_off(others, name, index, shade, width))

    at_every_width(others, theme, look)
    assert cut == []


def test_the_answer_to_make_it_faster_is_one_screen_with_thirty_changed_lines(screens: Book) -> None:
    screens.page.set_viewport_size({"width": 1280, "height": 1400})
    result = screens.page.locator(".jp-CodeCell").nth(SCREENS["result"])
    changes = result.locator("pre.diff")
    changes.evaluate("it => { while (it.children.length < 40) it.append(it.children[1].cloneNode(true)); }")
    assert changes.evaluate("it => it.clientHeight / it.children[1].offsetHeight") >= 30
    assert height_of(result.locator(".jp-OutputArea")) <= 900


def test_a_wrong_kernel_is_told_once_under_one_name_with_its_line(others: Book) -> None:
    cell = others.page.locator(".jp-Notebook .jp-CodeCell").nth(OTHER_SCREENS["wrong"])
    cell.scroll_into_view_if_needed()
    expect(cell.locator(".finding").first).to_contain_text("y[blockIdx.x] = part[1];")
    expect(cell.get_by_text("not good")).to_have_count(1)
    expect(cell.locator(".jp-OutputArea-output").last).to_contain_text("bad, the name for row_sum, is not bound")


def test_a_pipeline_has_a_line_for_each_stage_and_a_wrong_one_names_it_with_its_store(others: Book) -> None:
    others.page.set_viewport_size({"width": 1280, "height": 1400})
    right, wrong = (
        others.page.locator(".jp-Notebook .jp-CodeCell").nth(OTHER_SCREENS[name])
        for name in ("pipeline", "wrong-pipeline")
    )
    right.scroll_into_view_if_needed()
    expect(right.locator("tr", has_text="row_max")).to_contain_text("right")
    expect(right.locator("tr", has_text="divide")).to_contain_text("not judged")
    wrong.scroll_into_view_if_needed()
    expect(wrong.locator(".verdict")).to_contain_text("wrong on 13 of 14 cases")
    expect(wrong.locator("tr", has_text="statistics")).to_contain_text("WRONG")
    expect(wrong.locator(".finding pre")).to_contain_text("rstd[blockIdx.x] = ")


def test_where_nothing_is_worth_taking_nothing_can_be_accepted_unseen(screens: Book) -> None:
    cell = screens.page.locator(".jp-Notebook .jp-CodeCell").nth(SCREENS["undecided"])
    cell.scroll_into_view_if_needed()
    expect(cell.locator(".verdict")).to_contain_text("No candidate is worth taking")
    expect(cell.get_by_role("button", name="Accept")).to_have_count(0)
    cell.get_by_role("button", name="Show 1").click()
    expect(cell.get_by_role("button", name="Accept 1")).to_be_visible()


def test_a_running_search_fits_four_widths_in_both_themes(lab: Lab, book: Book) -> None:
    with ChatServer('{"analysis": "' + "A warp reads its row at once. " * 400, pause_s=0.2) as model:
        config = f"%kernelmate config -q model_url={model.url}"
        lab.write("running.ipynb", cells(config, "%kernelmate panel row_sum", SEARCH + " --author local"))
        book.open("running.ipynb")
        without_files(book)
        book.run_all()
        running = book.page.locator(".jp-Notebook .jp-CodeCell").nth(4).locator(".jp-Cell-outputWrapper")
        expect(running).to_contain_text("the model writes")
        for theme in THEMES:
            at_every_width(book, theme, lambda shade, width: book.shot(f"running-{shade}-{width}", running))
