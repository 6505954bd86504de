"""The notebook as its user sees it: real JupyterLab, real kernel, real emulator, headless Chromium."""

from __future__ import annotations

import re

from playwright.sync_api import expect

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
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
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


def ask(panel, prompt: str) -> None:
    panel.get_by_role("textbox").fill(prompt)
    panel.get_by_role("button", name="Ask", exact=True).click()


def test_a_prompt_in_the_panel_leads_to_a_candidate_that_is_accepted_and_called(lab, book) -> None:
    lab.write("first.ipynb", cells("%kernelmate panel row_sum"))
    book.open("first.ipynb")
    book.run_all()
    static = book.output(1).first
    expect(static).to_contain_text("clean")
    expect(static.get_by_role("img", name="Correctness per size").first).to_be_visible()
    panel = book.panel("row_sum")
    expect(panel.locator(".km-row")).to_have_count(1)
    expect(panel.locator(".km-charts figure").first).to_be_visible()

    panel.get_by_role("button", name="reduce memory usage").click()
    expect(panel.get_by_role("textbox")).to_have_value("reduce memory usage")
    panel.get_by_role("textbox").press("Enter")
    expect(panel.locator(".km-row").nth(1)).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    best = panel.locator(".km-row", has_text="best")
    expect(best).to_contain_text("512 B ->")
    expect(panel.locator(".km-diff .km-added").first).to_be_visible()
    panel.scroll_into_view_if_needed()
    for figure in panel.locator(".km-charts figure").all()[:3]:
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".main-svg").first).to_be_visible()
    panel.locator(".km-head").scroll_into_view_if_needed()
    book.shot("panel-light", panel)

    panel.get_by_role("button", name="Accept", exact=True).click()
    expect(panel.locator(".km-force")).to_contain_text("recipe:")
    book.run_more(
        "row_sum(x, y, rows, cols); print('right', np.allclose(y, x.sum(axis=1), atol=1e-4), row_sum.version.author)"
    )
    expect(book.page.locator(".jp-OutputArea-output", has_text="right True recipe:")).to_be_visible()

    book.save()
    book.page.reload()
    book.idle()
    again = book.panel("row_sum")
    expect(again.locator(".km-force")).to_contain_text("recipe:")
    expect(again.locator(".km-row", has_text="in force")).to_be_visible()
    expect(again.locator(".km-charts figure").first).to_be_visible()
    again.get_by_role("button", name="Revert").click()
    expect(again.locator(".km-force")).to_contain_text("the cell's own")


def test_the_dark_theme_reaches_outputs_and_panel(lab, book) -> None:
    lab.write("dark.ipynb", cells("%kernelmate panel row_sum"))
    book.open("dark.ipynb")
    book.run_all()
    panel = book.panel("row_sum")
    ask(panel, "reduce memory usage")
    expect(panel.locator(".km-row", has_text="best")).to_be_visible()
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


def test_a_saved_notebook_shows_its_results_without_a_kernel(lab, book) -> None:
    lab.write("saved.ipynb", cells('%kernelmate optimize row_sum "reduce memory usage"'))
    book.open("saved.ipynb")
    book.run_all()
    expect(book.output(2).first).to_contain_text("accepted")
    book.save()
    lab.end_kernels()
    outputs = [one for cell in lab.saved("saved.ipynb")["cells"] for one in cell["outputs"]]
    assert outputs
    for one in outputs:
        assert sum(len(str(value)) for value in one.get("data", {}).values()) < 300_000
        assert not any("widget" in mime for mime in one.get("data", {}))
    # Another person opens it: nothing of it is trusted, and no kernel is wanted.
    (lab.folder / "given.ipynb").write_text(
        (lab.folder / "saved.ipynb").read_text().replace('"python3"', '"none-such"')
    )
    book.page.goto(f"{lab.url}/lab/tree/given.ipynb?token=of-the-tests&reset")
    # JupyterLab may ask which kernel it shall be, and more than once where it has none of that name.
    refuse = book.page.locator(".jp-Dialog").get_by_role("button", name="No Kernel", exact=True)
    for _ in range(6):
        book.page.wait_for_timeout(1000)
        if refuse.count():
            refuse.first.click()
    expect(book.page.get_by_role("img", name="Roofline").first).to_be_visible()
    expect(book.page.get_by_text("accepted").first).to_be_visible()
    expect(book.page.get_by_text("shared memory per block").first).to_be_visible()
    book.shot("reopened")


def test_a_running_search_is_cancelled_at_once_and_the_notebook_goes_on(lab, book) -> None:
    work = "    int w = cols;\n    for (int k = 0; k < 1500; ++k) w = w * 3 + k;\n    if (w == -7) sum += 1.0f;\n"
    slow = KERNEL.replace("    part[threadIdx.x] = sum;", work + "    part[threadIdx.x] = sum;")
    lab.write("cancel.ipynb", cells("%kernelmate panel row_sum", kernel=slow))
    book.open("cancel.ipynb")
    book.run_all()
    panel = book.panel("row_sum")
    ask(panel, "make it faster")
    cancel = panel.get_by_role("button", name="Cancel")
    expect(cancel).to_be_enabled()
    book.page.wait_for_timeout(1500)
    cancel.click()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    expect(panel.locator(".km-notes")).to_contain_text("Stopped")
    book.run_more("row_sum(x, y, rows, cols); print('goes on')")
    expect(book.page.locator(".jp-OutputArea-output", has_text="goes on")).to_be_visible()


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
    ask(first, "reduce memory usage")
    ask(second, "make it faster")
    for panel, words in ((first, "shared memory"), (second, "time")):
        expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled(timeout=180_000)
        expect(panel.locator(".km-row").nth(1)).to_contain_text(words)
    first.locator(".km-row", has_text="best").click()
    first.get_by_role("button", name="Accept", exact=True).click()
    expect(first.locator(".km-force")).to_contain_text("recipe:")
    expect(second.locator(".km-force")).to_contain_text("the cell's own")


def test_cells_of_the_magic_are_shown_as_cuda_and_others_as_python(lab, book) -> None:
    lab.write("colours.ipynb", ["def plain(): return None  # not C", f"{LINE}\n{KERNEL}", "x = 1"])
    book.open("colours.ipynb")
    cell = book.page.locator(".jp-CodeCell").nth(1)

    def coloured(where, text: str) -> list[str]:
        """What the editor's grammar makes of a word: the classes of the elements that hold it alone."""
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


def test_forty_candidates_are_listed_and_walked_through_by_keys(lab, book) -> None:
    many = (
        "from dataclasses import replace\n"
        "import gc\n"
        "from kernelmate_widgets.panel import Panel\n"
        "panel = next(one for one in gc.get_objects() if isinstance(one, Panel))\n"
        "first = panel._judged[0]\n"
        "import time\n"
        "for count in range(1, 41):\n"
        "    panel._judged = [first] * count\n"
        "    panel._show_versions(None)\n"
        "    time.sleep(0.05)\n"
    )
    lab.write("forty.ipynb", cells("%kernelmate panel row_sum"))
    book.open("forty.ipynb")
    book.run_all()
    panel = book.panel("row_sum")
    ask(panel, "reduce memory usage")
    expect(panel.locator(".km-row", has_text="best")).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    # Plotly's own work is over before: it is done once, and nothing of it is done for a candidate that comes in.
    for figure in panel.locator(".km-charts figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".main-svg").first).to_be_visible()
    panel.locator(".km-list").scroll_into_view_if_needed()
    book.page.wait_for_timeout(1000)
    # The longest that the page was busy at a stretch, while forty candidates arrive and the list is walked through.
    book.page.evaluate(
        """() => {
            window.longest = 0;
            new PerformanceObserver(list => { for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration); })
                .observe({ type: "longtask" });
        }"""
    )
    book.run_more(many)
    expect(panel.locator(".km-row")).to_have_count(41)
    rows = panel.locator(".km-list")
    rows.focus()
    for _ in range(10):
        rows.press("ArrowDown")
    rows.press("End")
    expect(panel.locator(".km-row").nth(40)).to_have_class(re.compile("km-selected"))
    longest = book.page.evaluate("() => window.longest")
    # A figure to look at and no limit: how long that is depends on what else the machine does.
    print(f"the page stood still for {longest:.0f} ms at most")


def test_everything_is_reached_by_keys_and_fits_a_narrow_screen(lab, open_page, book_in) -> None:
    page = open_page(width=520, height=2200)
    narrow = book_in(page)
    lab.write("narrow.ipynb", cells("%kernelmate panel row_sum"))
    narrow.open("narrow.ipynb")
    page.keyboard.press("Control+b")  # the file list takes half of such a screen
    narrow.run_all()
    panel = narrow.panel("row_sum")
    box = panel.get_by_role("textbox")
    box.focus()
    page.keyboard.type("reduce memory usage")
    page.keyboard.press("Enter")
    expect(panel.locator(".km-row", has_text="best")).to_be_visible()
    expect(panel.get_by_role("button", name="Ask", exact=True)).to_be_enabled()
    box.focus()
    reached = set()
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.className"))
    for part in ("km-author", "km-go", "km-chip", "km-list", "km-accept", "km-reject", "km-diff"):
        assert part in reached, (part, reached)
    panel.locator(".km-list").focus()
    page.keyboard.press("Enter")
    expect(panel.locator(".km-force")).to_contain_text("recipe:")
    inside, outside = panel.evaluate("it => [it.scrollWidth, it.clientWidth]")
    assert inside <= outside + 1, "nothing sticks out"
    narrow.shot("panel-narrow", panel)
    lab.end_kernels()
