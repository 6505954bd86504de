"""Pictures of every screen of the editor at four widths in both themes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.extension.test_editor import WASTEFUL, example
from tests.extension.vscode import ROOT, Code, Host

expect: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

pytestmark = pytest.mark.exhaustive(share=0.4)

WIDTHS = (450, 800, 1280, 1600)
HEIGHT = 900
LINE_PX = 15
"""Height of a changed line."""
WRONG = "wrong.cu"
KERNEL_LINE = 13
PIPELINE, WRONG_PIPELINE = "softmax_pipeline.cu", "wrong_stage.cu"
TRITON = "softmax.py"
SOFTMAX = """\
import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ rows = 64, columns = 781 }, { rows = 3, columns = 1 }]
# require = ["columns <= 1024"]
# grid = "rows"
# options = ["BLOCK=1024"]
# reference = "np.exp(x - x.max(1)[:, None]) / np.exp(x - x.max(1)[:, None]).sum(1)[:, None]"
# [args]
# y = "out float32[rows, columns]"
# x = "in float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def softmax(y, x, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + offsets, mask=offsets < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + tl.program_id(0) * columns + offsets, values / tl.sum(values, axis=0), mask=offsets < columns)
"""


@pytest.fixture(scope="module")
def host(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("screens")
    (folder / WASTEFUL).write_text(example())
    (folder / WRONG).write_text(example().replace("row_sum", "wrong_sum").replace("= part[0];", "= part[1];"))
    for path in (ROOT / "examples/pipelines" / PIPELINE, ROOT / "tests/pipelines/wrong" / WRONG_PIPELINE):
        (folder / path.name).write_text(path.read_text().replace("../reference.py:", "layers.py:"))
        (folder / ("layers.py" if path.name == WRONG_PIPELINE else "reference.py")).write_text(
            (
                path.parent.parent / "reference.py" if path.name == WRONG_PIPELINE else path.with_name("reference.py")
            ).read_text()
        )
    (folder / TRITON).write_text(SOFTMAX)
    host = Host(folder, tmp_path_factory.mktemp("home"))
    yield host
    host.close()


@pytest.fixture(scope="module")
def shared(host: Host, window: Callable[[Host], Code]) -> Code:
    code = window(host)
    code.run("View: Toggle Primary Side Bar Visibility")
    return code


@pytest.fixture
def code(shared: Code) -> Code:
    shared.page.set_viewport_size({"width": 1280, "height": HEIGHT})
    shared.alone()
    return shared


def at_every_width(code: Code, name: str, ready: Callable[[], None] = lambda: None) -> None:
    """Takes a picture of the window in both themes at each width, and calls `ready` before each."""
    for theme in ("dark", "light"):
        code.page.set_viewport_size({"width": 1280, "height": HEIGHT})
        code.theme(theme)
        for width in WIDTHS:
            code.page.set_viewport_size({"width": width, "height": HEIGHT})
            ready()
            code.page.wait_for_timeout(700)
            code.shot(f"editor-{name}-{theme}-{width}")


def benchmarked(code: Code, name: str) -> None:
    code.open(name)
    code.go_to(KERNEL_LINE)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("just now"))).to_be_visible()


def test_lenses_hover_and_explanation(code: Code) -> None:
    benchmarked(code, WASTEFUL)
    at_every_width(code, "lenses")

    for name, line, column, words in (
        ("hover", KERNEL_LINE, 18, "registers"),
        ("hover-access", KERNEL_LINE + 4, 16, "sectors"),
    ):

        def hover(line: int = line, column: int = column, words: str = words) -> None:
            code.go_to(line, column)
            code.run("Show or Focus Hover")
            expect(code.page.locator(".monaco-hover:visible")).to_contain_text(words, ignore_case=True)

        at_every_width(code, name, hover)
    code.go_to(KERNEL_LINE + 4)
    code.run("KernelMate: Explain What Limits This Kernel")
    page = code.page.locator(".editor-group-container", has=code.page.locator('.tab[data-resource-name*="explain"]'))
    expect(page.locator(".view-lines").first).to_contain_text("what to do")
    at_every_width(code, "explain")


def whole(frame: Any) -> None:
    """Waits until nothing of the results is cut off."""
    root = frame.locator("html")
    for _ in range(40):
        over = root.evaluate("root => root.scrollWidth - root.clientWidth")
        if over <= 0:
            return
        root.page.wait_for_timeout(250)  # the window was resized just now
    raise AssertionError(f"{over} pixels are out of view")


def assert_fits(frame: Any) -> None:
    """Checks that nothing of the results is cut off, and that no chart is taller than 260 pixels."""
    whole(frame)
    heights = frame.locator(".kernelmate .charts svg:visible").evaluate_all("all => all.map(one => one.clientHeight)")
    assert heights
    assert max(heights) <= 260


def needs_no_scrolling(frame: Any, lines: int) -> None:
    """Waits until the whole page is in view with so many of the changed lines; these may scroll by themselves."""
    page, changed = frame.locator(".page"), frame.locator("pre.diff")
    for _ in range(40):
        over = page.evaluate("page => page.scrollHeight - page.clientHeight")
        shown = changed.evaluate("lines => lines.clientHeight") // LINE_PX
        if over <= 0 and shown >= lines:
            return
        page.page.wait_for_timeout(250)  # the editor is still laying the panel out
    raise AssertionError(f"{over} pixels are out of view, {shown} changed lines are in view")


def test_results_of_a_kernel(code: Code) -> None:
    benchmarked(code, WASTEFUL)
    code.lens(re.compile("regs")).click()
    frame = code.frame(".kernelmate .charts:visible")
    at_every_width(code, "results", lambda: assert_fits(frame))


def test_a_search_and_its_comparison(code: Code) -> None:
    code.open(WASTEFUL)
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Make it faster").click()
    code.theme("light")
    code.page.wait_for_timeout(2500)
    code.shot("editor-searching-light-1280")
    expect(code.page.locator(".monaco-diff-editor").first).to_be_visible()
    expect(code.button("Accept")).to_be_visible()
    at_every_width(code, "diff")
    code.run("Reject All Changes")  # the file stays open: with it, what is known of it would be gone
    code.run("Notifications: Clear All Notifications")
    code.page.set_viewport_size({"width": 1280, "height": HEIGHT})
    code.page.wait_for_timeout(1500)
    code.lens(re.compile("regs")).click()
    frame = code.frame(".kernelmate .charts:visible")
    needs_no_scrolling(frame, 9)
    at_every_width(code, "search-results", lambda: assert_fits(frame))
    # As large as the window lets it be, the panel has the thirty lines of the notebook's result.
    code.page.set_viewport_size({"width": 1280, "height": HEIGHT})
    code.page.locator(".tab", has_text="results").dblclick()
    needs_no_scrolling(frame, 29)
    code.shot("editor-search-results-large-light-1280")


def test_a_wrong_kernel(code: Code) -> None:
    code.open(WRONG)
    code.go_to(KERNEL_LINE)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("wrong", re.IGNORECASE)).first).to_be_visible()
    at_every_width(code, "wrong")
    code.lens(re.compile("regs|wrong", re.IGNORECASE)).first.click()
    frame = code.frame(".kernelmate .finding")
    expect(frame.locator(".finding pre").first).to_contain_text("= part[1]")
    at_every_width(code, "wrong-results")


def test_pipelines(code: Code) -> None:
    for name, screen, row in ((PIPELINE, "pipeline", "row_max"), (WRONG_PIPELINE, "wrong-pipeline", "statistics")):
        code.open(name)
        code.go_to(5)
        code.lens("Benchmark").first.click()
        expect(code.lens(re.compile("just now|wrong", re.IGNORECASE)).first).to_be_visible()
        at_every_width(code, screen)
        code.page.set_viewport_size({"width": 1280, "height": HEIGHT})
        code.run("KernelMate: Show Results")
        frame = code.frame(f".kernelmate tr:has-text('{row}')")
        at_every_width(code, f"{screen}-results", lambda frame=frame: whole(frame))
        code.alone()


def test_a_triton_kernel(code: Code) -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install 'kernelmate[triton]'")
    code.open(TRITON)
    code.go_to(17)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("just now"))).to_be_visible()
    at_every_width(code, "triton")
    code.lens(re.compile("regs")).click()
    frame = code.frame(".kernelmate .charts:visible")
    at_every_width(code, "triton-results", lambda: assert_fits(frame))


def test_sass_and_history(code: Code) -> None:
    benchmarked(code, WASTEFUL)
    code.run("KernelMate: Compare with a Judged Version...")
    expect(code.page.locator(".quick-input-list .monaco-list-row").first).to_be_visible()
    at_every_width(code, "history", lambda: reopened(code))
    code.page.keyboard.press("Escape")
    code.go_to(KERNEL_LINE + 4)
    code.run("KernelMate: Show PTX and SASS")
    page = code.page.locator(".editor-group-container", has=code.page.locator('.tab[data-resource-name*="sass"]'))
    expect(page.locator(".view-lines").first).to_contain_text("registers")
    at_every_width(code, "sass")


def reopened(code: Code) -> None:
    """Opens the list of judged versions again, which closes with a change of the window."""
    code.page.keyboard.press("Escape")
    code.run("KernelMate: Compare with a Judged Version...")
    row = code.page.locator(".quick-input-list .monaco-list-row").first
    expect(row).to_contain_text(re.compile(r"\d\d:\d\d"))  # when the version was judged, which commands' rows lack
