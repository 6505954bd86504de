"""The notebook in a real JupyterLab, with a real kernel, the emulator, and headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Error, expect

from tests.browser.lab import SIZE, Book, Lab
from tests.chat_server import ChatServer

pytestmark = pytest.mark.exhaustive(share=0.4)

KERNEL = """\
__global__ void row_sum(const float* x, float* y, int rows, int cols) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    y[blockIdx.x] = part[0];
}
"""
"""Every thread stores the same value at the end, which is worth a note at its line."""

SETUP = """\
%load_ext kernelmate
import numpy as np
x = np.random.default_rng(1).standard_normal((37, 96)).astype(np.float32)
y = np.zeros(37, np.float32)
rows, cols = x.shape
def total(x): return x.sum(axis=1)
"""
LINE = "%%kernelmate --args x,y,rows,cols --grid rows --block 128 --ref total"


def cells(*more: str, kernel: str = KERNEL) -> list[str]:
    return [SETUP, f"{LINE}\n{kernel}", *more]


KEPT = "In use: the cell's own version."
"""Text of a saved panel in which nothing was accepted."""


def ask(panel, prompt: str) -> None:
    panel.get_by_role("textbox").fill(prompt)
    panel.get_by_role("button", name="Ask", exact=True).click()


@pytest.fixture(scope="module")
def kept_open(lab: Lab) -> Iterator[list[Book]]:
    """The notebook with an answered prompt, from one test to the next; empty where the last one did not leave it as it was."""
    kept: list[Book] = []
    yield kept
    for book in kept:
        book.page.context.close()
    lab.end_kernels()


@pytest.fixture
def searched(kept_open: list[Book], lab: Lab, new_page: Callable[[], Any]) -> Iterator[Book]:
    """A notebook with a panel whose prompt has been answered: the best candidate in view, the cell's own version in force."""
    book = kept_open.pop() if kept_open else _searched(Book(new_page(), lab), lab)
    yield book
    if _as_it_was(book):
        kept_open.append(book)
    else:  # the next test has one of its own
        book.page.context.close()
        lab.end_kernels()


def _searched(book: Book, lab: Lab) -> Book:
    lab.write("first.ipynb", cells("%kernelmate panel row_sum"))
    book.open("first.ipynb")
    book.run_all()
    panel = book.panel("row_sum")
    expect(panel.locator(".km-row")).to_have_count(1)
    panel.get_by_role("button", name="reduce memory usage").click()
    expect(panel.get_by_role("textbox")).to_have_value("reduce memory usage")
    panel.get_by_role("textbox").press("Enter")
    expect(panel.locator(".km-row", has_text="best")).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    return book


def _as_it_was(book: Book) -> bool:
    panel = book.panel("row_sum")
    try:
        expect(panel.locator(".km-force")).to_contain_text("the cell's own", timeout=5_000)
        expect(panel.locator(".km-row")).to_have_count(2, timeout=5_000)
        panel.locator(".km-row", has_text="best").click(timeout=5_000)
        expect(panel.locator(".km-detail")).to_have_attribute("aria-busy", "false", timeout=5_000)
        # A page that was loaded again keeps the output that was saved before: JupyterLab forgets which one a kernel may update.
        expect(book.page.locator("[class^='km-kept-']")).to_contain_text(KEPT, timeout=5_000)
    except (AssertionError, Error):
        return False
    return book.page.viewport_size == SIZE and not book.is_dark()


def selected(panel: Any) -> Any:
    return panel.locator(".km-row.km-selected")


def look_at(panel: Any, row: Any) -> None:
    """A click on a version, and its detail in view."""
    row.click()
    expect(row).to_have_class(re.compile("km-selected"))
    expect(panel.locator(".km-detail")).to_have_attribute("aria-busy", "false")


def revert(panel: Any) -> None:
    panel.get_by_role("button", name="Undo").click()
    expect(panel.locator(".km-force")).to_contain_text("the cell's own")


def test_a_prompt_in_the_panel_leads_to_a_candidate_that_is_accepted_and_called(searched: Book) -> None:
    book = searched
    static = book.output(1).first
    expect(static).to_contain_text("clean")
    expect(static.get_by_role("img", name="Correctness").first).to_be_visible()
    panel = book.panel("row_sum")
    expect(panel.locator(".km-row").nth(1)).to_be_visible()
    expect(panel.locator(".km-row", has_text="best")).to_contain_text("512 B ->")
    expect(panel.locator(".km-diff .km-added").first).to_be_visible()
    for title in ("Correctness", "Time", "Occupancy"):
        expect(panel.locator(".km-result figure").get_by_role("img", name=title, exact=True)).to_be_visible()
    book.shot("panel-light", panel)
    # A drawing becomes a chart with details once it is pointed at.
    panel.get_by_text("More charts").click()
    resources = panel.locator(".km-charts figure[data-title='Resources']")
    resources.hover()
    expect(resources.locator(".main-svg").first).to_be_visible()
    resources.locator(".bars .point").first.hover(force=True)  # Plotly listens on a layer above its bars
    expect(resources.locator(".hovertext").first).to_contain_text("baseline")
    panel.locator(".km-head").hover()
    panel.get_by_text("More charts").click()

    panel.get_by_role("button", name="Accept", exact=True).click()
    expect(panel.locator(".km-force")).to_contain_text("recipe:")
    book.run_more(
        "row_sum(x, y, rows, cols); print('right', np.allclose(y, x.sum(axis=1), atol=1e-4), row_sum.version.author)"
    )
    expect(book.page.locator(".jp-OutputArea-output", has_text="right True recipe:")).to_be_visible()
    revert(panel)


def test_a_prompt_that_is_answered_at_once_is_not_read_again_afterwards(searched: Book) -> None:
    panel = searched.panel("row_sum")
    ask(panel, "undo")
    expect(panel.locator(".km-error")).to_contain_text("no earlier version")
    searched.page.wait_for_timeout(1000)  # a prompt is read 0.3 s after its last letter
    expect(panel.locator(".km-wishes")).to_be_empty()
    panel.get_by_role("textbox").fill("")


def test_a_click_on_a_finding_shows_its_line(searched: Book) -> None:
    panel = searched.panel("row_sum")
    look_at(panel, panel.locator(".km-row").first)
    line = panel.locator(".km-finding .km-line").first
    expect(line).to_have_text("line 12")
    line.click()
    here = panel.locator('.km-source .km-here[data-line="12"]')
    expect(here).to_be_in_viewport()
    expect(here).to_contain_text("y[blockIdx.x] = part[0];")


def test_the_dark_theme_reaches_outputs_and_panel(searched: Book) -> None:
    book = searched
    panel = book.panel("row_sum")
    book.theme("JupyterLab Light")  # another test may have left the other one
    light = panel.evaluate("it => getComputedStyle(it).backgroundColor")
    book.theme("JupyterLab Dark")
    expect(panel).to_have_class(re.compile("km-dark"))
    assert panel.evaluate("it => getComputedStyle(it).backgroundColor") != light
    panel.scroll_into_view_if_needed()
    book.shot("panel-dark", panel)
    book.shot("output-dark", book.output(1).first)
    book.theme("JupyterLab Light")
    expect(panel).not_to_have_class(re.compile("km-dark"))
    book.output(1).first.scroll_into_view_if_needed()
    book.shot("output-light", book.page.locator(".jp-CodeCell").nth(1))


def test_everything_is_reached_by_keys_and_fits_a_narrow_screen(searched: Book) -> None:
    page, panel = searched.page, searched.panel("row_sum")
    wide = page.viewport_size
    page.set_viewport_size({"width": 520, "height": 2200})
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.keyboard.press("Control+b")  # the file list takes half of such a screen
    box = panel.get_by_role("textbox")
    box.focus()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.className"))
    for part in ("km-author", "km-go", "km-chip", "km-list", "km-accept", "km-reject", "km-diff"):
        assert part in reached, (part, reached)
    panel.locator(".km-list").focus()
    page.keyboard.press("Enter")
    expect(panel.locator(".km-force")).to_contain_text("recipe:")
    inside, outside = panel.evaluate("it => [it.scrollWidth, it.clientWidth]")
    assert inside <= outside + 1, "nothing sticks out"
    searched.shot("panel-narrow", panel)
    revert(panel)
    page.keyboard.press("Control+b")
    page.set_viewport_size(wide)


FORTY = """\
import gc, pathlib, time
from kernelmate_widgets.panel import Panel
panel = next(one for one in gc.get_objects() if isinstance(one, Panel))
found = panel._listing.found[0]
while len(panel.versions) < 41:
    panel.on_judged(found)
    time.sleep(0.05)
"""


QUEUED = "from kernelmate_widgets.comms import handle_in_main_shell\nhandle_in_main_shell(panel.comm)\n"
"""The panel's requests wait for the running cell, as in front ends without subshells."""


def test_forty_candidates_are_listed_and_walked_through_by_keys_while_a_cell_runs(searched: Book, lab: Lab) -> None:
    book, panel = searched, searched.panel("row_sum")
    book.run_more(FORTY + QUEUED + "while not pathlib.Path('go-on').exists(): time.sleep(0.05)")
    expect(panel.locator(".km-row")).to_have_count(41)
    rows = panel.locator(".km-list")
    rows.focus()
    rows.press("Home")
    for _ in range(10):
        rows.press("ArrowDown")
    expect(selected(panel)).to_have_attribute("data-number", "10")
    # The kernel answers once the cell has ended. Until then nothing of another version takes a click that is meant for this one.
    expect(panel.locator(".km-detail")).to_have_attribute("aria-busy", "true")
    panel.get_by_role("button", name="Reject").click(force=True)
    (lab.folder / "go-on").touch()
    expect(panel.locator(".km-detail")).to_have_attribute("aria-busy", "false")
    panel.get_by_role("button", name="Reject").click()
    expect(panel.locator(".km-aside")).to_have_attribute("data-number", "10")
    rows.press("End")
    expect(selected(panel)).to_have_attribute("data-number", "40")
    expect(selected(panel)).to_be_in_viewport()
    book.run_more("panel._adopt(); panel._refresh()")
    expect(panel.locator(".km-row")).to_have_count(2)


def test_a_page_that_is_loaded_again_shows_the_panel_as_it_is(searched: Book) -> None:
    book = searched
    book.panel("row_sum").get_by_role("button", name="Accept", exact=True).click()
    expect(book.panel("row_sum").locator(".km-force")).to_contain_text("recipe:")
    book.save("first.ipynb")
    book.page.reload()
    book.idle()
    again = book.panel("row_sum")
    expect(again.locator(".km-force")).to_contain_text("recipe:")
    expect(again.locator(".km-row .km-mark", has_text="accepted")).to_be_visible()
    expect(again.locator(".km-result figure").first).to_be_visible()
    expect(book.page.locator("[class^='km-kept-']")).to_be_hidden()  # what is kept for others would say it twice
    revert(again)


def test_a_saved_notebook_shows_results_and_panel_without_a_kernel(
    searched: Book, lab: Lab, new_page: Callable[[], Any]
) -> None:
    # What is kept is drawn after the panel has answered.
    expect(searched.page.locator("[class^='km-kept-']")).to_contain_text(KEPT)
    searched.save("first.ipynb")
    outputs = [one for cell in lab.saved("first.ipynb")["cells"] for one in cell["outputs"]]
    assert outputs
    for one in outputs:
        assert sum(len(str(value)) for value in one.get("data", {}).values()) < 300_000
    # Another person opens it: nothing of it is trusted, and no kernel is wanted.
    text = (lab.folder / "first.ipynb").read_text().replace('"python3"', '"none-such"')
    (lab.folder / "given.ipynb").write_text(text)
    given = Book(new_page(), lab)
    given.open("given.ipynb", kernel=False)
    given.refuse_kernels()
    cells_ = given.page.locator(".jp-Notebook .jp-CodeCell")
    expect(cells_.nth(1).get_by_role("img", name="Occupancy").first).to_be_visible()
    kept = cells_.nth(2).locator("[class^='km-kept-']")
    expect(kept).to_contain_text("Ready to accept")
    expect(kept).to_contain_text("shared memory per block")
    expect(kept).to_contain_text(KEPT)
    expect(kept.get_by_role("img", name="Correctness").first).to_be_visible()
    expect(kept.get_by_role("img", name="Correctness")).to_have_count(1)  # the narrow one stays hidden
    assert kept.locator("pre").first.inner_text().count("\n") > 10, (
        "a changed line is a line without the style sheet too"
    )
    kept.scroll_into_view_if_needed()
    given.shot("reopened")
    given.page.context.close()


def test_a_panel_says_that_its_kernel_is_gone(searched: Book, lab: Lab, new_page: Callable[[], Any]) -> None:
    searched.save("first.ipynb")
    (lab.folder / "gone.ipynb").write_text((lab.folder / "first.ipynb").read_text())
    before = {one["id"] for one in lab.kernels()}
    gone = Book(new_page(), lab)
    gone.open("gone.ipynb")  # with a kernel, which knows nothing of the panel
    expect(gone.page.get_by_text("The panel is here while its kernel runs")).to_be_visible()
    expect(gone.page.locator("[class^='km-kept-']").first).to_be_visible()
    gone.page.context.close()
    lab.end_kernels(keep=before)


def test_what_a_model_writes_is_seen_and_a_running_search_is_cancelled_at_once(lab: Lab, book: Book) -> None:
    work = "    int w = cols;\n    for (int k = 0; k < 1500; ++k) w = w * 3 + k;\n    if (w == -7) sum += 1.0f;\n"
    slow = KERNEL.replace("    part[threadIdx.x] = sum;", work + "    part[threadIdx.x] = sum;")
    with ChatServer('{"analysis": "' + "A warp reads its row at once. " * 400, pause_s=0.05) as model:
        config = f"%kernelmate config -q model_url={model.url}"
        lab.write("cancel.ipynb", cells(config, "%kernelmate panel row_sum", kernel=slow))
        book.open("cancel.ipynb")
        book.run_all()
        panel = book.panel("row_sum")
        cancel = panel.get_by_role("button", name="Stop")
        panel.locator(".km-author").select_option("local")
        ask(panel, "make it faster")
        expect(panel.locator(".km-text")).to_contain_text("A warp reads its row at once.")
        book.shot("panel-writing", panel)
        cancel.click()
        expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    panel.locator(".km-author").select_option("recipes")
    ask(panel, "make it faster")
    expect(cancel).to_be_enabled()
    book.page.wait_for_timeout(1500)
    cancel.click()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    expect(panel.locator(".km-notes")).to_contain_text("stopped")
    book.run_more("row_sum(x, y, rows, cols); print('goes on')")
    expect(book.page.locator(".jp-OutputArea-output", has_text="goes on")).to_be_visible()


def test_a_search_is_stopped_from_a_page_that_was_loaded_again_and_from_a_second_one(
    lab: Lab, book: Book, new_page: Callable[[], Any]
) -> None:
    with ChatServer('{"analysis": "' + "A warp reads its row at once. " * 4000, pause_s=0.05) as model:
        config = f"%kernelmate config -q model_url={model.url}"
        lab.write("again.ipynb", cells(config, "%kernelmate panel row_sum"))
        book.open("again.ipynb")
        book.run_all()
        panel = book.panel("row_sum")
        panel.locator(".km-author").select_option("local")
        ask(panel, "make it faster")
        expect(panel.locator(".km-text")).to_contain_text("A warp reads its row at once.")
        book.save("again.ipynb")
        book.page.reload()
        stop_once_it_writes_on(book.panel("row_sum"))
        second = Book(new_page(), lab)
        second.open("again.ipynb")
        panel = second.panel("row_sum")
        panel.locator(".km-author").select_option("local")
        ask(panel, "make it faster")
        expect(panel.locator(".km-text")).to_contain_text("A warp reads its row at once.")
        book.menu("File", "Close Tab")
        expect(book.panel("row_sum")).to_have_count(0)
        stop_once_it_writes_on(panel)
        second.page.context.close()


def stop_once_it_writes_on(panel: Any) -> None:
    """Stops a search once the kernel has sent its page more text, and waits for the end of the search."""
    expect(panel.locator(".km-text")).to_contain_text("A warp reads its row at once.")
    before = panel.locator(".km-text").inner_text()
    expect(panel.locator(".km-text")).not_to_have_text(before)
    panel.get_by_role("button", name="Stop").click()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    expect(panel.locator(".km-notes")).to_contain_text("stopped")


def test_the_stop_button_ends_the_judging_and_leaves_the_names(lab: Lab, book: Book) -> None:
    work = "    for (int k = 0; k < 200000; ++k) sum = sum * 0.5f + x[(blockIdx.x * cols + k) % (rows * cols)];\n"
    endless = KERNEL.replace("    part[threadIdx.x] = sum;", work + "    part[threadIdx.x] = sum;")
    lab.write("stop.ipynb", [SETUP + "row_sum = None\n", f"{LINE}\n{endless}"])
    book.open("stop.ipynb")
    book.run_all()
    # The first cell is done, however long a busy machine takes to import: it is the second one that is to be stopped.
    expect(book.page.locator(".jp-InputPrompt").nth(0)).to_have_text("[1]:")
    expect(book.page.locator(".jp-InputPrompt").nth(1)).to_have_text("[*]:")
    book.page.wait_for_timeout(3000)
    book.page.locator("[data-command='notebook:interrupt-kernel'], [data-jp-item-name='interrupt']").first.click()
    expect(book.page.locator(".jp-OutputArea-output", has_text="KeyboardInterrupt").first).to_be_visible()
    book.idle()
    book.run_more("print('still', row_sum, x.shape)")
    expect(book.page.locator(".jp-OutputArea-output", has_text="still None (37, 96)")).to_be_visible()


def test_a_failing_kernel_shows_its_line_and_stops_run_all(lab, book) -> None:
    racy = KERNEL.replace("    __syncthreads();\n    for (int half", "    for (int half")
    lab.write("failing.ipynb", cells("print('never', 'reached')", kernel=racy))
    book.open("failing.ipynb")
    book.run_all()
    error = book.page.locator(
        ".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr'], .jp-OutputArea-output",
        has_text="KernelFailed",
    ).last
    expect(error).to_contain_text("shared-race")
    expect(error).not_to_contain_text("Traceback")
    book.shot("failing", book.page.locator(".jp-CodeCell").nth(1))
    book.idle()
    expect(book.page.get_by_text("never reached")).to_have_count(0)


def test_two_panels_work_at_once_and_for_themselves(lab, book) -> None:
    other = KERNEL.replace("row_sum", "other_sum")
    lab.write("two.ipynb", [*cells(), f"{LINE}\n{other}", "%kernelmate panel row_sum", "%kernelmate panel other_sum"])
    book.open("two.ipynb")
    book.run_all()
    first, second = book.panel("row_sum"), book.panel("other_sum")
    expect(second.locator(".km-row")).to_have_count(1)
    for panel in (first, second):  # at 37 rows the launch is most of the time, and nothing makes that faster
        ask(panel, "reduce memory usage")
    for panel in (first, second):
        expect(panel.locator(".km-row").nth(1)).to_contain_text("shared memory")
    expect(first.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    first.locator(".km-row", has_text="best").click()
    first.get_by_role("button", name="Accept", exact=True).click()
    expect(first.locator(".km-force")).to_contain_text("recipe:")
    expect(second.locator(".km-force")).to_contain_text("the cell's own")
    if second.get_by_role("button", name="Stop").is_enabled():
        second.get_by_role("button", name="Stop").click()
    expect(second.get_by_role("button", name="Ask", exact=True)).to_be_enabled()


def test_cells_of_the_magic_are_shown_as_cuda_and_others_as_python(lab, book) -> None:
    lab.write("colours.ipynb", ["def plain(): return None  # not C", f"{LINE}\n{KERNEL}", "x = 1"])
    book.open("colours.ipynb")
    cell = book.page.locator(".jp-CodeCell").nth(1)

    def coloured(where, text: str) -> list[str]:
        """Returns the classes that the editor's grammar gives a word: those of the elements that contain it alone."""
        return where.locator(".cm-line span").evaluate_all(
            "(all, text) => all.filter(one => one.textContent === text).map(one => one.className)", text
        )

    # `for` is a word of both languages; `const` and `float` are C++'s alone.
    expect(cell.locator(".cm-line span", has_text=re.compile("^const$")).first).to_be_visible()
    keyword = coloured(cell, "const")[0]
    assert keyword
    assert keyword == coloured(cell, "if")[0]
    python = book.page.locator(".jp-CodeCell").nth(0)
    assert coloured(python, "def"), "a cell of Python is Python still"
    # A cell becomes CUDA when the magic is typed, and Python again when it is taken away.
    last = book.page.locator(".jp-CodeCell").nth(2)
    last.locator(".cm-content").click()
    book.page.keyboard.press("Control+a")
    book.page.keyboard.insert_text("%%kernelmate\nconst int x = 1;")
    expect(last.locator(".cm-line span", has_text=re.compile("^const$"))).to_have_count(1)
    book.page.keyboard.press("Control+a")
    book.page.keyboard.insert_text("const int x = 1;")
    expect(last.locator(".cm-line span", has_text=re.compile("^const$"))).to_have_count(0)


SEARCH = '%kernelmate optimize row_sum "reduce memory usage"'


def height_of(result: Any) -> float:
    return float(result.evaluate("it => it.getBoundingClientRect().height"))


def tops_of(elements: Any) -> set[int]:
    """Returns the heights at which elements begin: one if they are side by side."""
    return set(elements.evaluate_all("all => all.map(it => Math.round(it.getBoundingClientRect().top))"))


def test_the_answer_fits_a_screen_and_accepting_it_writes_the_cell(lab: Lab, book: Book) -> None:
    lab.write("answer.ipynb", cells(SEARCH, "%kernelmate optimize row_sum 'why is it slow?'"))
    book.open("answer.ipynb")
    book.page.set_viewport_size({"width": 1280, "height": 1400})
    book.page.locator(".jp-Notebook .jp-Cell").first.click()
    book.page.keyboard.press("Control+b")
    book.run_all()
    cell = book.page.locator(".jp-CodeCell").nth(2)
    accept = cell.get_by_role("button", name="Accept 1")
    expect(accept).to_be_enabled()
    result = cell.locator(".jp-OutputArea")
    assert height_of(result) <= 900
    figures = cell.locator(".charts figure:visible")
    expect(figures).to_have_count(3)
    assert len(tops_of(figures)) == 1, "side by side"
    assert all(height_of(one) <= 260 for one in figures.all())
    expect(cell.locator(".verdict")).to_contain_text("Ready to accept")
    book.shot("result-light", result)
    book.theme("JupyterLab Dark")
    book.shot("result-dark", result)
    book.theme("JupyterLab Light")
    # A question is answered, and searches nothing.
    expect(book.output(3).first).to_contain_text("what to do")
    expect(book.page.locator(".jp-CodeCell").nth(3).get_by_role("button", name="Accept 1")).to_have_count(0)

    accept.click()
    expect(cell.locator(".verdict")).to_contain_text("Accepted")
    kernel = book.page.locator(".jp-CodeCell").nth(1).locator(".cm-content")
    expect(kernel).to_contain_text("__shfl")
    expect(kernel).to_contain_text("%%kernelmate --args x,y,rows,cols --grid rows --block 128 --ref total")
    cell.get_by_role("button", name="Undo").click()
    expect(kernel).not_to_contain_text("__shfl")


def test_nothing_of_an_answer_is_cut_off_on_narrow_screens(lab: Lab, book: Book) -> None:
    lab.write("narrow.ipynb", cells(SEARCH))
    book.open("narrow.ipynb")
    book.page.locator(".jp-Notebook .jp-Cell").first.click()
    book.page.keyboard.press("Control+b")
    book.run_all()
    cell = book.page.locator(".jp-CodeCell").nth(2)
    expect(cell.get_by_role("button", name="Accept 1")).to_be_enabled()
    for width in (450, 800):
        book.page.set_viewport_size({"width": width, "height": 2200})
        view = cell.locator(".kernelmate").first
        inside, outside = view.evaluate("it => [it.scrollWidth, it.clientWidth]")
        assert inside <= outside + 1
        for part in cell.locator(".verdict, .charts, td, .why").all():
            inside, outside = part.evaluate("it => [it.scrollWidth, Math.max(it.clientWidth, it.offsetWidth)]")
            assert inside <= outside + 1
        book.shot(f"result-{width}", cell.locator(".jp-OutputArea"))


def test_a_wrong_kernel_is_fixed_by_a_button_and_its_cell_rewritten(lab: Lab, book: Book) -> None:
    racy = KERNEL.replace("    __syncthreads();\n    for (int half", "    for (int half")
    lab.write("fix.ipynb", cells(kernel=racy))
    book.open("fix.ipynb")
    book.run_all()
    cell = book.page.locator(".jp-CodeCell").nth(1)
    fix = cell.get_by_role("button", name="Fix")
    expect(fix).to_be_enabled()
    expect(cell.locator(".finding").first).to_contain_text("want")
    expect(cell.locator(".charts").first).to_be_hidden()
    fix.click()
    cell.get_by_role("button", name="Accept the repair").click()
    expect(cell.locator(".km-said")).to_contain_text("row_sum is bound to the repaired kernel")
    expect(cell.locator(".cm-content")).to_contain_text(re.compile(r"part\[threadIdx\.x\] = sum;\s*__syncthreads\(\);"))
    book.run_more("row_sum(x, y, rows, cols); print('right', np.allclose(y, x.sum(axis=1), atol=1e-4))")
    expect(book.page.locator(".jp-OutputArea-output", has_text="right True")).to_be_visible()


def test_a_panel_says_that_its_kernel_was_restarted_and_two_show_the_same(lab: Lab, book: Book) -> None:
    lab.write("restart.ipynb", cells("%kernelmate panel row_sum", "%kernelmate panel row_sum"))
    book.open("restart.ipynb")
    book.run_all()
    panels = book.panel("row_sum")
    expect(panels).to_have_count(2)
    ask(panels.first, "make it nice")
    for panel in panels.all():
        expect(panel.locator(".km-error")).to_contain_text("Nothing in the prompt was understood")
    book.menu("Kernel", "Restart Kernel…")
    book.page.locator(".jp-Dialog .jp-mod-accept").click()
    for panel in panels.all():
        expect(panel.locator(".km-status")).to_contain_text("The kernel was restarted: run this cell again.")
        expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_disabled()
    book.idle()  # the restart has ended
