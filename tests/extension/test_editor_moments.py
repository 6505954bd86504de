"""Situations in the editor: other languages, edits of other files, suggestions, undo, several folders."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import ChatServer
from tests.extension.test_editor import EXAMPLE, KERNEL_LINE, WASTEFUL, example
from tests.extension.vscode import ROOT, Code, Host
from tests.launched import LAUNCHER, ROWS

expect: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

HEADER = "#pragma once\n__device__ float twice(float v) { return 2.0f * v; }\n"
LAUNCHED = ROWS.replace("row_sum", "launched")
TOASTS = ".notifications-toasts .notification-list-item"


@pytest.fixture(scope="module")
def host(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("moments")
    for name in (EXAMPLE, "rawkernel.py", "reference.py"):
        shutil.copy(ROOT / "examples" / name, folder / name)
    (folder / WASTEFUL).write_text(example())
    (folder / "other.cu").write_text(example().replace("row_sum", "other_sum"))
    (folder / "plain.cuh").write_text(example().replace("row_sum", "plain_sum"))
    (folder / "launched.cu").write_text(LAUNCHED)
    (folder / "launcher.cu").write_text(LAUNCHER.replace("row_sum", "launched"))
    (folder / "lib").mkdir()
    (folder / "lib" / "twice.cuh").write_text(HEADER)
    including = example().replace("// ///\n__global__", '// ///\n#include "twice.cuh"\n__global__')
    (folder / "including.cu").write_text(
        including.replace("row_sum", "with_header").replace("float sum = 0.0f;", "float sum = twice(0.0f);")
    )
    settings = {"kernelmate.inlineCompletion": True, "files.associations": {"plain.cuh": "plaintext", "*.cuh": "cpp"}}
    host = Host(folder, tmp_path_factory.mktemp("home"), **settings)
    yield host
    host.close()


@pytest.fixture(scope="module")
def shared(host: Host, window: Callable[[Host], Code]) -> Code:
    return window(host)


def at_kernel(code: Code, name: str) -> None:
    """Open a file with its kernel in sight; a file that was open before has its earlier place."""
    code.open(name)
    code.go_to(KERNEL_LINE)


@pytest.fixture
def code(shared: Code) -> Code:
    shared.alone()
    return shared


@pytest.mark.parametrize(("name", "begun"), [(EXAMPLE, "carr"), ("rawkernel.py", "cup")])
def test_an_open_list_of_suggestions_brings_no_message(host: Host, code: Code, name: str, begun: str) -> None:
    code.open(name)
    expect(code.lens(re.compile(r"\d+ regs")).first).to_be_visible()
    code.page.locator(".editor-group-container .monaco-editor .view-lines").first.click()
    code.page.keyboard.press("Control+End")
    code.page.keyboard.type(f"\n{begun}")
    rows = code.page.locator(".suggest-widget.visible .monaco-list-row")
    code.page.wait_for_timeout(2000)
    if rows.count() == 0:
        code.page.keyboard.press("Control+Space")
    expect(rows.first).to_be_visible()
    code.page.keyboard.press("ArrowDown")
    code.page.wait_for_timeout(1500)
    expect(code.page.locator(TOASTS)).to_have_count(0)
    assert "nlineCompletion failed" not in host.logged()
    assert "Invalid" not in host.logged()
    code.page.keyboard.press("Escape")
    code.run("File: Revert File")


def test_a_cuda_file_is_served_whatever_its_language_is_called(code: Code) -> None:
    code.open("plain.cuh")
    expect(code.page.locator(".statusbar-item", has_text="Plain Text")).to_be_visible()
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()


def test_after_accept_lens_and_panel_have_the_accepted_verdict_and_after_undo_the_earlier_one(
    host: Host, code: Code
) -> None:
    before = (host.folder / WASTEFUL).read_text()
    at_kernel(code, WASTEFUL)
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    expect(code.button("Accept")).to_be_visible()
    code.page.locator(".monaco-diff-editor .editor.modified .view-line").first.click()
    code.page.keyboard.press("Control+Enter")
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    expect(code.page.locator(TOASTS)).to_have_count(0)
    lens = code.lens(re.compile("predicted just now"))
    expect(lens).to_be_visible()
    expect(lens).not_to_contain_text("before the last change")
    taken = lens.inner_text()
    lens.click()
    frame = code.frame(".kernelmate")
    expect(frame.locator("body")).to_contain_text("The text is candidate")
    expect(frame.locator("body")).not_to_contain_text("changed since")
    code.shot("editor-accepted")

    code.run("View: Focus First Editor Group")
    code.page.keyboard.press("Control+z")
    expect(lens).not_to_have_text(taken)
    expect(lens).not_to_contain_text("before the last change")
    code.page.wait_for_timeout(1000)
    expect(code.page.locator(TOASTS)).to_have_count(0)
    code.saved(WASTEFUL, lambda text: text == before)


def test_accepting_changes_the_launches_in_other_files_too(code: Code) -> None:
    at_kernel(code, "launched.cu")
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Make it faster").click()
    expect(code.button("Accept")).to_be_visible()
    expect(code.page.locator(TOASTS).first).to_contain_text("changes its launch in launcher.cu too")
    code.shot("editor-other-launches")
    code.page.locator(".monaco-diff-editor .editor.modified .view-line").first.click()
    code.page.keyboard.press("Control+Enter")
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    code.saved("launched.cu", lambda text: text != LAUNCHED)
    code.open("launcher.cu")
    code.saved("launcher.cu", lambda text: "launched<<<" in text and "<<<(n + 127) / 128, 128>>>" not in text)
    code.shot("editor-launcher")


def test_an_undo_under_an_open_comparison_takes_its_question_away(host: Host, code: Code) -> None:
    at_kernel(code, WASTEFUL)
    expect(code.lens("Optimize...")).to_be_visible()
    code.go_to(1)
    code.page.keyboard.type("// one line more\n")
    code.go_to(KERNEL_LINE)
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    expect(code.button("Accept")).to_be_visible()
    code.open(WASTEFUL)
    code.page.keyboard.press("Control+z")
    expect(code.page.locator(TOASTS)).to_have_count(0)
    code.run("File: Revert File")


def test_a_result_that_comes_while_another_file_is_open_asks_before_it_is_shown(code: Code) -> None:
    at_kernel(code, WASTEFUL)
    code.lens("Optimize...").click()
    code.page.locator(".quick-input-list .monaco-list-row", has_text="Reduce memory usage").click()
    code.open("other.cu")
    ready = code.page.locator(TOASTS, has_text=f"is ready for {WASTEFUL}")
    expect(ready).to_be_visible()
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    expect(code.page.locator('.tab.active[data-resource-name="other.cu"]')).to_be_visible()
    code.button("Show").click()
    expect(code.page.locator(".monaco-diff-editor").first).to_be_visible()
    code.button("Reject").click()
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)


def test_a_missing_header_is_found_by_the_folder_that_has_it(host: Host, code: Code) -> None:
    code.open("including.cu")
    expect(code.page.locator(".squiggly-warning, .squiggly-error").first).to_be_visible()
    line = next(
        n for n, text in enumerate((host.folder / "including.cu").read_text().split("\n"), 1) if "#include" in text
    )
    code.go_to(line, 12)
    code.page.keyboard.press("Control+.")
    offer = code.page.locator(".action-widget .monaco-list-row", has_text="Add lib to the include path")
    expect(offer).to_be_visible()
    expect(code.page.locator(".action-widget .monaco-list-row", has_text="Fix with_header")).to_have_count(0)
    code.page.wait_for_timeout(300)
    code.page.keyboard.press("Enter")
    expect(code.page.locator(".squiggly-error")).to_have_count(0)
    settings = json.loads((host.folder / ".vscode" / "settings.json").read_text())
    assert settings["kernelmate.includePaths"] == ["lib"]
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()


def test_pages_about_a_kernel_open_beside_it_and_an_earlier_version_is_restored(host: Host, code: Code) -> None:
    at_kernel(code, "other.cu")
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()
    code.go_to(20)
    code.run("KernelMate: Explain What Limits This Kernel")
    page = code.page.locator(".editor-group-container", has=code.page.locator('.tab[data-resource-name*="explain"]'))
    expect(page.locator(".view-lines").first).to_contain_text("what to do")
    code.shot("editor-explain")
    code.open("other.cu")
    code.run("KernelMate: Show PTX and SASS")
    expect(code.page.locator(".view-lines", has_text="ld.param").first).to_be_visible()
    # An instruction has one line, also where the pane is narrow.
    code.page.set_viewport_size({"width": 800, "height": 900})
    listed = code.page.locator(".editor-group-container").last.locator(".view-line")
    expect(listed.filter(has_text=re.compile(r"ld\.param\.u\d+\s%\w+,\s\[param_\d\]")).first).to_be_visible()
    code.shot("editor-sass-narrow")
    code.page.set_viewport_size({"width": 1440, "height": 900})

    code.alone()
    before = (host.folder / "other.cu").read_text()
    at_kernel(code, "other.cu")
    code.page.keyboard.press("End")
    code.page.keyboard.type("\nint more = 1;")
    code.run("KernelMate: Compare with a Judged Version...")
    code.page.locator(".quick-input-list .monaco-list-row", has_text="user").first.click()
    expect(code.button("Accept")).to_be_visible()
    code.button("Accept").click()
    code.saved("other.cu", lambda text: text == before)


def test_an_earlier_prompt_is_offered_again_and_the_status_menu_examines_the_machine(code: Code) -> None:
    asked = "paint it blue"
    at_kernel(code, "other.cu")
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    code.lens("Optimize...").click()
    box = code.page.locator(".quick-input-widget input")
    box.fill(asked)
    expect(code.page.locator(".quick-input-list .monaco-list-row.focused", has_text=asked)).to_be_visible()
    box.press("Enter")
    expect(code.page.locator(TOASTS).first).to_be_visible()
    code.run("Notifications: Clear All Notifications")
    code.lens("Optimize...").click()
    again = code.page.locator(".quick-input-list .monaco-list-row", has_text=asked)
    expect(again).to_contain_text("asked before")
    code.shot("editor-prompts")
    code.page.keyboard.press("Escape")

    code.page.locator("#status\\.languageStatus").first.click()
    menu = code.page.locator(".hover-language-status", has_text="this machine")
    expect(menu.first).to_be_visible()
    code.shot("editor-status-menu")
    menu.get_by_text("Check", exact=True).first.click()
    page = code.page.locator(".editor-group-container", has=code.page.locator('.tab[data-resource-name*="doctor"]'))
    expect(page.locator(".view-lines").first).to_contain_text("compiler")
    code.shot("editor-doctor")


def ask(code: Code, prompt: str) -> None:
    """A prompt by the lens, in the user's own words."""
    expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
    code.lens("Optimize...").click()
    box = code.page.locator(".quick-input-widget input")
    box.fill(prompt)
    expect(code.page.locator(".quick-input-list .monaco-list-row.focused", has_text=prompt)).to_be_visible()
    box.press("Enter")


def test_a_question_is_answered_by_a_page_and_running_work_is_ended_by_its_message(code: Code) -> None:
    at_kernel(code, "other.cu")
    ask(code, "why is it slow?")
    page = code.page.locator(".editor-group-container", has=code.page.locator('.tab[data-resource-name*="explain"]'))
    expect(page.locator(".view-lines").first).to_contain_text("what to do")
    code.alone()
    at_kernel(code, "other.cu")
    ask(code, "make it faster")
    work = code.page.locator(TOASTS, has_text="make it faster")
    expect(work).to_contain_text(re.compile("Less time|compiling|the reference|checking sizes|trying"))
    code.shot("editor-progress")
    work.hover()
    work.locator(".monaco-button", has_text="Cancel").click()
    # A message remains only if candidates were judged: "stopped: 2 judged".
    expect(code.page.locator(TOASTS).filter(has_not_text="stopped:")).to_have_count(0)
    expect(code.page.locator(".monaco-diff-editor")).to_have_count(0)
    code.lens("Benchmark").click()
    expect(code.lens(re.compile("predicted just now"))).to_be_visible()


def test_ghost_text_is_shown_where_the_kernel_with_it_was_judged_right(
    chromium: Any, tmp_path: Path, window: Callable[[Host], Code]
) -> None:
    folder, home = tmp_path / "ghost", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / WASTEFUL).write_text(example())
    line = next(n for n, text in enumerate(example().split("\n"), 1) if "float sum = 0.0f;" in text)
    written = "sum += 0.0f;"
    with ChatServer(json.dumps({"completion": written})) as model:
        host = Host(folder, home, **{"kernelmate.inlineCompletion": True, "kernelmate.modelUrl": model.url})
        code = window(host)
        code.open(WASTEFUL)
        expect(code.lens(re.compile(r"\d+ regs"))).to_be_visible()
        code.go_to(line, 60)
        code.page.keyboard.press("Enter")
        ghost = code.page.locator(".ghost-text-decoration, .ghost-text").first
        expect(ghost).to_contain_text("sum")
        code.shot("editor-ghost-text")
        code.page.keyboard.press("Tab")
        expect(code.page.locator(".view-line", has_text=written).first).to_be_visible()
        host.close()
