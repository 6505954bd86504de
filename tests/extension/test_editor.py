"""The extension as its user sees it: a real VS Code in the browser, the real language server, the real emulator."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chat_server import ELSEWHERE, ChatServer
from tests.extension.vscode import ROOT, Code, Host

expect: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

EXAMPLE = "row_scan.cu"
WASTEFUL = "row_sum.cu"
WRONG = "wrong.cu"
KERNEL_LINE = 16
MARKER = "ran-from-the-workspace"
KEY = "key-of-the-tests-4711"

NOTEBOOK_CELL = """\
%%kernelmate
// /// kernelmate
// sizes = [{ n = 4096 }, { n = 1000 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def example() -> str:
    """The kernel that the walkthrough offers."""
    text = (ROOT / "extension/src/example.ts").read_text()
    found = re.search(r"const EXAMPLE = `\\\n(.*?)`;", text, re.DOTALL)
    assert found is not None
    return found[1]


def notebook(*cells: str) -> str:
    return json.dumps(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {"cell_type": "code", "id": f"c{index}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
                for index, text in enumerate(cells)
            ],
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def host(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("kernels")
    for name in (EXAMPLE, "rawkernel.py", "reference.py"):
        shutil.copy(ROOT / "examples" / name, folder / name)
    text = (folder / EXAMPLE).read_text()
    (folder / "broken.cu").write_text(text.replace("float carry = 0.0f;", "float carry = none;"))
    (folder / WASTEFUL).write_text(example())
    (folder / WRONG).write_text(example().replace("row_sum", "wrong_sum").replace("= part[0];", "= part[1];"))
    (folder / "cells.ipynb").write_text(notebook("%load_ext kernelmate", NOTEBOOK_CELL))
    host = Host(folder, tmp_path_factory.mktemp("home"))
    yield host
    host.close()


@pytest.fixture(scope="module")
def shared(host: Host, window: Callable[[Host], Code]) -> Code:
    return window(host)


@pytest.fixture
def code(shared: Code) -> Code:
    """One window for all tests, each of which begins with nothing open."""
    shared.alone()
    return shared


def test_a_kernel_shows_its_figures_and_a_mistake_its_place(host: Host, code: Code) -> None:
    code.open("broken.cu")
    expect(code.page.locator(".squiggly-error").first).to_be_visible()
    code.go_to(22)
    code.run("Go to Next Problem (Error, Warning, Info)")
    expect(code.page.locator(".marker-widget")).to_contain_text("none")
    code.shot("editor-problem")

    code.open(EXAMPLE)
    expect(code.lens(re.compile(r"\d+ regs .* occupancy"))).to_be_visible()
    code.go_to(KERNEL_LINE, 45)
    code.run("Show or Focus Hover")
    hover = code.page.locator(".monaco-hover:visible")
    expect(hover).to_contain_text("Registers", ignore_case=True)
    expect(hover).to_contain_text("H100")
    code.shot("editor-hover")


def test_a_prompt_leads_to_a_comparison_that_is_accepted_and_undone(host: Host, code: Code) -> None:
    before = (host.folder / WASTEFUL).read_text()
    code.open(WASTEFUL)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()
    expect(code.page.locator(".view-lines").first).to_contain_text("sectors")
    code.shot("editor-benchmark")

    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    expect(code.page.locator(".monaco-diff-editor").first).to_be_visible()
    expect(code.button("Accept")).to_be_visible()
    code.page.wait_for_timeout(1000)
    code.shot("editor-comparison")
    assert (host.folder / WASTEFUL).read_text() == before, "shown is not taken"

    code.button("Accept").click()
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    code.saved(WASTEFUL, lambda text: text != before and "block_sum(sum)" in text and "part[256]" not in text)
    code.page.keyboard.press("Control+z")
    code.saved(WASTEFUL, lambda text: text == before)


def test_results_have_the_notebooks_charts_in_dark_and_in_light(host: Host, code: Code) -> None:
    complaints: list[str] = []
    code.page.on(
        "console", lambda message: complaints.append(message.text) if "Content Security" in message.text else None
    )
    code.open(WASTEFUL)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()
    code.lens(re.compile("regs")).click()
    frame = code.frame(".kernelmate .charts svg:visible")
    expect(frame.locator("h1")).to_have_text("row_sum")
    expect(frame.locator(".verdict")).to_contain_text("clean")
    for title in ("Correctness", "Time", "Occupancy"):
        expect(frame.get_by_role("img", name=title, exact=True)).to_be_visible()
    for theme in ("light", "dark"):
        code.theme(theme)
        code.page.wait_for_timeout(1000)
        code.shot(f"editor-results-{theme}")
    frame.get_by_text("All figures and sizes").click()
    expect(frame.get_by_text("Correctness per size")).to_be_visible()
    colors = {}
    for theme in ("light", "dark"):
        code.theme(theme)
        frame.locator(f"body.vscode-{theme}").wait_for()
        code.page.wait_for_timeout(1000)
        tick = frame.locator("figure .ytick text").first
        colors[theme] = tick.evaluate("element => getComputedStyle(element).fill")
    code.theme("light")
    assert colors["light"] != colors["dark"]
    assert complaints == []


def test_results_keep_what_was_opened_and_lead_to_the_line_of_a_finding(host: Host, code: Code) -> None:
    code.open(WRONG)
    text = (host.folder / WRONG).read_text()
    store = 1 + text[: text.index("= part[1];")].count("\n")
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("WRONG"))).to_be_visible()
    code.lens(re.compile("regs")).click()
    frame = code.frame(".kernelmate .finding")
    frame.get_by_text("Charts, figures and sizes").click()
    expect(frame.locator(".kernelmate .charts svg:visible").first).to_be_visible()
    frame.get_by_role("button", name="Benchmark").click()
    code.page.wait_for_timeout(5000)
    expect(frame.locator(".kernelmate .charts svg:visible").first).to_be_visible()
    expect(frame.get_by_role("button", name="Fix")).to_be_visible()

    frame.get_by_text(f"line {store}").click()
    here = code.page.locator("#status\\.editor\\.selection")
    expect(here).to_contain_text(f"Ln {store}, ")
    # A line above: the result is of an earlier text, and its finding still leads to its line.
    code.go_to(1)
    code.page.keyboard.type("// one line more\n")
    expect(frame.locator("header")).to_contain_text("The text was changed since")
    expect(frame.locator(".finding pre")).to_contain_text(f"{store} |")
    frame.get_by_text(f"line {store}").click()
    expect(here).to_contain_text(f"Ln {store + 1}, ")
    code.shot("editor-stale")
    code.run("File: Revert File")


def test_a_python_file_and_a_notebooks_cell_have_their_kernels(host: Host, code: Code) -> None:
    code.open("rawkernel.py")
    expect(code.lens(re.compile(r"\d+ regs")).first).to_be_visible()
    code.lens("Benchmark").first.click()
    expect(code.lens(re.compile("predicted just now")).first).to_be_visible()
    code.shot("editor-python")

    code.open("cells.ipynb")
    cell = code.page.locator(".notebook-editor .code-cell-row", has_text="twice")
    expect(cell.locator(".codelens-decoration a", has_text=re.compile(r"\d+ regs"))).to_be_visible()
    cell.locator(".codelens-decoration a", has_text="Benchmark").click()
    expect(cell.locator(".codelens-decoration a", has_text=re.compile("predicted just now"))).to_be_visible()
    code.shot("editor-notebook")


def test_a_rejected_candidate_changes_nothing_and_single_changes_can_be_taken(host: Host, code: Code) -> None:
    before = (host.folder / WASTEFUL).read_text()
    code.open(WASTEFUL)
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    comparison = code.page.locator(".monaco-diff-editor")
    expect(code.button("Reject")).to_be_visible()
    code.button("Reject").click()
    expect(comparison).to_have_count(0)
    assert (host.folder / WASTEFUL).read_text() == before

    # The candidate is there still: the results panel shows it again, this time to be taken in part.
    code.lens(re.compile("regs")).click()
    code.frame(".kernelmate").get_by_role("button", name="Diff of 1", exact=True).click()
    expect(comparison.first).to_be_visible()
    after = comparison.locator(".editor.modified")
    # Lines are as wide as the longest: their centre may be behind a scroll bar.
    after.locator(".view-line", has_text="float block_sum(float value)").first.click(position={"x": 4, "y": 4})
    code.page.keyboard.press("Alt+Backspace")
    expect(after.locator(".view-line", has_text="float block_sum(float value)")).to_have_count(0)
    code.page.keyboard.press("Control+Enter")  # the changes that are left
    expect(comparison).to_have_count(0)
    # What was taken is a version of its own, and is judged at once: it lacks a function.
    expect(code.page.locator(".notifications-toasts", has_text="it is judged now")).to_be_visible()
    expect(code.lens(re.compile("does not compile just now"))).to_be_visible()
    code.shot("editor-part")
    code.saved(WASTEFUL, lambda text: "= block_sum(sum);" in text and "float block_sum(float value)" not in text)
    code.page.keyboard.press("Control+z")
    code.saved(WASTEFUL, lambda text: text == before)


def test_keys_stay_in_the_secret_store_and_texts_on_this_machine_until_their_user_agrees(
    chromium: Any, tmp_path: Path, window: Callable[[Host], Code]
) -> None:
    folder, home = tmp_path / "asked", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / WASTEFUL).write_text(example())
    with ChatServer("nothing that can be read", host=ELSEWHERE) as model:
        host = Host(folder, home, **{"kernelmate.modelUrl": model.url, "kernelmate.samples": 1})
        code = window(host)
        code.open(WASTEFUL)
        expect(code.lens("Optimize...")).to_be_visible()
        code.run("KernelMate: Set Key...")
        code.page.locator(".quick-input-list .monaco-list-row", has_text="Model server").click()
        box = code.page.locator(".quick-input-widget input[type=password]")
        box.fill(KEY)
        box.press("Enter")
        expect(code.page.locator(".quick-input-widget")).to_be_hidden()
        code.has_logged("Starting", 2)  # with the key in its environment
        for agreed in (False, True):
            expect(code.lens("Optimize...")).to_be_visible()
            code.lens("Optimize...").click()
            code.page.locator(".quick-input-list .monaco-list-row", has_text="Raise occupancy").click()
            asked = code.frame("h1:has-text('Send this text')")
            expect(asked.locator("table")).to_contain_text(ELSEWHERE)
            expect(asked.locator("pre")).to_contain_text("row_sum")
            shown = asked.locator("pre").inner_text()
            assert KEY not in shown
            if not agreed:
                code.shot("editor-consent")
            asked.get_by_role("button", name="Send this text" if agreed else "Do not send").click()
            if not agreed:
                expect(code.page.locator(".notifications-toasts", has_text="found")).to_be_visible()
                assert model.bodies == [], "a refusal sends nothing"
                code.run("Notifications: Clear All Notifications")
        expect(code.page.locator(".notifications-toasts", has_text="found")).to_be_visible()
        assert model.keys[0] == f"Bearer {KEY}"
        assert "row_sum" in model.asked
        kept = [path for path in home.rglob("*") if path.is_file() and path.suffix in {".json", ".log", ".yaml", ".db"}]
        assert not [path for path in kept if KEY in path.read_text(errors="replace")]
        host.close()


def test_a_server_that_dies_is_started_again_and_said_once(host: Host, code: Code) -> None:
    code.open(EXAMPLE)
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    (server,) = host.servers()
    below = server.children(recursive=True)
    server.kill()
    expect(
        code.page.locator(".notifications-toasts", has_text="ended unexpectedly and was started again")
    ).to_be_visible()
    code.shot("editor-restarted")
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    (again,) = host.servers()
    assert again.pid != server.pid
    assert not [one for one in below if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()


def test_the_walkthrough_leads_from_nothing_to_an_accepted_kernel_by_its_own_buttons(host: Host, code: Code) -> None:
    code.run("Welcome: Open Walkthrough...")
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Start with KernelMate").click()
    page = code.page.locator(".gettingStartedContainer")
    began = time.monotonic()
    for step in ("Install KernelMate", "Open a kernel", "Benchmark it", "Ask for what you want", "Claude as reviewer"):
        expect(page.get_by_text(step).first).to_be_visible()
    page.get_by_text("Open a kernel").first.click()
    code.shot("editor-walkthrough")
    page.get_by_role("button", name="New example kernel").click()
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    expect(code.lens("Benchmark")).to_be_visible()
    page.get_by_text("Benchmark it").first.click()
    page.get_by_role("button", name="Benchmark", exact=True).click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()
    page.get_by_text("Ask for what you want").first.click()
    code.shot("editor-walkthrough-benchmark")
    page.get_by_role("button", name="Optimize", exact=True).click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    expect(code.button("Accept")).to_be_visible()
    code.shot("editor-walkthrough-comparison")
    code.button("Accept").click()
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    expect(code.page.locator(".view-line", has_text="block_sum(sum)").first).to_be_visible()
    code.shot("editor-walkthrough-accepted")
    print(f"from the walkthrough's first page to the accepted kernel: {time.monotonic() - began:.0f} s")


def test_a_saved_notebooks_results_are_shown_without_a_kernel(
    host: Host, code: Code, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The results that KernelMate stored in the notebook are shown, also for a panel that would need its kernel."""
    from kernelmate.config import load_settings
    from kernelmate.session import Session
    from kernelmate.source import find_kernels, text_unit
    from kernelmate_widgets.output import verdict_bundle

    kernel = find_kernels(text_unit(NOTEBOOK_CELL.partition("\n")[2]))[0]
    with Session(load_settings(backend="emulator", history=False, cache_dir=tmp_path)) as session:
        bundle = verdict_bundle(session.bench(kernel), kernel)
    panel = {"application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": "gone"},
             "text/plain": "Panel()"}  # fmt: skip
    document = json.loads(notebook("%load_ext kernelmate", NOTEBOOK_CELL))
    document["cells"][1]["outputs"] = [
        {"output_type": "display_data", "metadata": {}, "data": data} for data in (bundle, panel)
    ]
    (host.folder / "saved.ipynb").write_text(json.dumps(document))
    code.open("saved.ipynb")
    page = code.frame("img[alt='Correctness'], img[alt='Roofline']")
    expect(page.get_by_text("clean").first).to_be_visible()
    expect(page.get_by_text("predicted").first).to_be_visible()
    code.shot("editor-saved")


@pytest.fixture
def untrusted(chromium: Any, tmp_path: Path) -> Iterator[Host]:
    """A folder that nobody trusts, full of things that must not be run."""
    folder, home = tmp_path / "untrusted", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    shutil.copy(ROOT / "examples" / EXAMPLE, folder)
    mark = f"open({str(folder / MARKER)!r}, 'a').write(__name__ + '\\n')\n"
    for module in ("reference.py", "kernelmate_lsp.py", "pygls.py", "sitecustomize.py", "json.py"):
        (folder / module).write_text(mark + "def row_scan(x): return x.cumsum(axis=1)\n")
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho interpreter >> {folder / MARKER}\n")
    python.chmod(0o755)
    (folder / ".vscode").mkdir()
    wanted = {
        "kernelmate.interpreter": [str(python)],
        "kernelmate.path": [str(python)],
        "kernelmate.benchmarkOnSave": True,
    }
    (folder / ".vscode/settings.json").write_text(json.dumps(wanted))
    (folder / "pyproject.toml").write_text("[tool.kernelmate]\nstd = 'c++20'\n")
    trust = {"enabled": True, "startupPrompt": "never", "banner": "always", "emptyWindow": False}
    host = Host(folder, home, **{f"security.workspace.trust.{name}": value for name, value in trust.items()})
    yield host
    host.close()


def test_in_an_untrusted_workspace_kernels_are_compiled_and_nothing_is_run(
    untrusted: Host, window: Callable[[Host], Code]
) -> None:
    code = window(untrusted)
    code.open(EXAMPLE)
    expect(code.page.get_by_text("Restricted Mode", exact=False).first).to_be_visible()
    expect(code.lens(re.compile(r"\d+ regs .* occupancy"))).to_be_visible()
    expect(code.lens("Benchmark")).to_have_count(0)
    code.go_to(1)
    code.page.keyboard.press("Home")
    code.page.keyboard.type("// typed ")
    code.saved(EXAMPLE, lambda text: "// typed " in text)
    code.page.wait_for_timeout(3000)
    expect(code.lens(re.compile("predicted"))).to_have_count(0)
    code.shot("editor-untrusted")
    assert not (untrusted.folder / MARKER).exists(), (untrusted.folder / MARKER).read_text()
    assert str(untrusted.folder) not in untrusted.logged().split("Starting ", 1)[1].split("\n", 1)[0]
