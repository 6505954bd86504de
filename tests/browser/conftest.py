"""A real JupyterLab and a headless Chromium; where either is missing the tests are skipped, and say what to install."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "of-the-tests"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = {"127.0.0.1", "localhost", ""}

SHOTS = Path(os.environ.get("KERNELMATE_SCREENSHOTS") or ROOT / "build" / "screenshots")
"""Where screenshots are kept: `docs/notebook.md` shows those of a run with KERNELMATE_SCREENSHOTS=docs/images."""

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytest.importorskip("jupyterlab", reason="jupyterlab is not installed: pip install jupyterlab")


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


if browser_path() is None:
    pytest.skip("no Chromium here: apt-get install chromium", allow_module_level=True)


class Lab:
    """A running JupyterLab with a folder of notebooks."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        path = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "KERNELMATE_BACKEND": "emulator",
            "KERNELMATE_HISTORY_FILE": str(home / "history.db"),
            **{f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")},
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "IPYTHONDIR": str(home / "ipython"),
        }
        extensions = home / "share" / "labextensions"
        extensions.mkdir(parents=True)
        (extensions / "kernelmate").symlink_to(ROOT / "widgets" / "labextension")
        environment["JUPYTER_PATH"] = str(extensions.parent)
        settings = home / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={self.port}", f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={folder}", "--ServerApp.allow_root=True", "--ServerApp.port_retries=0",
            "--LabApp.news_url=None", "--ip=127.0.0.1",
        ]  # fmt: skip
        self.log = (home / "lab.log").open("w+")
        self.process = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.url}/api?token={TOKEN}", timeout=2):
                    return
            except OSError:
                assert self.process.poll() is None, Path(self.log.name).read_text()[-3000:]
                time.sleep(0.2)
        raise AssertionError("JupyterLab did not start")

    def write(self, name: str, cells: list[str]) -> None:
        """A notebook without outputs."""
        document = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"c{index}",
                    "metadata": {},
                    "execution_count": None,
                    "outputs": [],
                    "source": text,
                }
                for index, text in enumerate(cells)
            ],
        }
        (self.folder / name).write_text(json.dumps(document))

    def saved(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name).read_text())
        return found

    def kernels(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/kernels?token={TOKEN}", timeout=10) as answer:
            listed: list[dict[str, Any]] = json.load(answer)
        return listed

    def end_kernels(self) -> None:
        for kernel in self.kernels():
            request = urllib.request.Request(f"{self.url}/api/kernels/{kernel['id']}?token={TOKEN}", method="DELETE")
            urllib.request.urlopen(request, timeout=30).close()

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter"))
    yield lab
    lab.close()


class Book:
    """A notebook in the browser."""

    def __init__(self, page: Any, lab: Lab) -> None:
        self.page, self.lab = page, lab

    def open(self, name: str, *, kernel: bool = True) -> None:
        self.page.goto(f"{self.lab.url}/lab/tree/{name}?token={TOKEN}&reset")
        if kernel:
            self.idle()
        else:
            self.page.locator(".jp-Notebook").wait_for(timeout=60_000)

    def idle(self, timeout_s: float = 120) -> None:
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=timeout_s * 1000)

    def menu(self, *names: str) -> None:
        for depth, name in enumerate(names):
            if depth == 0:
                self.page.locator(".lm-MenuBar-itemLabel", has_text=name).first.click()
            else:
                self.page.locator(".lm-Menu-itemLabel").get_by_text(name, exact=True).click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")

    def run_more(self, code: str) -> None:
        """Append a cell and run it."""
        last = self.page.locator(".jp-Notebook .jp-Cell .cm-content").last
        last.click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Control+Enter")

    def output(self, index: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index).locator(".jp-OutputArea-output")

    def panel(self, name: str) -> Any:
        return self.page.locator(f'.km-panel[data-kernel="{name}"]')

    def save(self) -> None:
        self.page.keyboard.press("Control+s")
        self.page.wait_for_timeout(1500)

    def shot(self, name: str, what: Any = None) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        (what or self.page).screenshot(path=str(SHOTS / f"{name}.png"))

    def theme(self, name: str) -> None:
        wanted = "false" if "Dark" in name else "true"
        if self.page.locator("body").get_attribute("data-jp-theme-light") != wanted:
            self.menu("Settings", "Theme")
            self.page.locator(".lm-Menu-itemLabel").get_by_text(name, exact=True).click()
        self.page.locator(f'body[data-jp-theme-light="{wanted}"]').wait_for(state="attached")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=120_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Pages; at the end no request of any of them may have left the machine."""
    asked: list[str] = []
    contexts = []

    def new(width: int = 1400, height: int = 2200) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.append(request.url))
        return page

    yield new
    for context in contexts:
        context.close()
    left = [url for url in asked if urlsplit(url).scheme not in {"blob", "data"} and urlsplit(url).hostname not in HERE]
    assert left == [], "requests that left the machine"


@pytest.fixture
def book_in(lab: Lab) -> Callable[[Any], Book]:
    """A notebook in a page of the test's own."""
    return lambda page: Book(page, lab)


@pytest.fixture
def book(lab: Lab, open_page: Callable[..., Any]) -> Iterator[Book]:
    yield Book(open_page(), lab)
    lab.end_kernels()
