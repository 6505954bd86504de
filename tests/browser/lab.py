"""A real JupyterLab in a process of its own, and notebooks in it as their user sees them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.processes import end

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "of-the-tests"
SIZE = {"width": 1400, "height": 2200}
"""Of a page as it is opened, in pixels: high enough for a whole panel."""

WIDTHS = (450, 800, 1280, 1600)
"""Widths of pages, in pixels, at which every screen is looked at."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SHOTS = Path(os.environ.get("KERNELMATE_SCREENSHOTS") or ROOT / "build" / "screenshots")
"""Folder of screenshots; `docs/notebook.md` shows those of a run with KERNELMATE_SCREENSHOTS=docs/images."""


def browser_path() -> str | None:
    """Chromium on this machine; None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def overflow(element: Any) -> float:
    """Pixels by which an element's text is wider than its place, where nothing scrolls it."""
    return float(
        element.evaluate(
            "e => getComputedStyle(e).overflowX === 'visible' || getComputedStyle(e).overflowX === 'hidden'"
            " ? e.scrollWidth - e.clientWidth : 0"
        )
    )


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
        latest = time.monotonic() + 120
        while time.monotonic() < latest:
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

    def end_kernels(self, keep: Collection[str] = ()) -> None:
        for kernel in self.kernels():
            if kernel["id"] in keep:
                continue
            request = urllib.request.Request(f"{self.url}/api/kernels/{kernel['id']}?token={TOKEN}", method="DELETE")
            urllib.request.urlopen(request, timeout=30).close()

    def close(self) -> None:
        end(self.process)
        self.log.close()


class Book:
    """A notebook in the browser."""

    def __init__(self, page: Any, lab: Lab) -> None:
        self.page, self.lab = page, lab

    def open(self, name: str, *, kernel: bool = True) -> None:
        # A workspace of the page's own: JupyterLab asks nothing about those of other pages.
        self.page.goto(f"{self.lab.url}/lab/workspaces/{Path(name).stem}/tree/{name}?token={TOKEN}&reset")
        if kernel:
            self.idle()
        else:
            self.page.locator(".jp-Notebook").wait_for(timeout=60_000)

    def refuse_kernels(self) -> None:
        """JupyterLab may ask which kernel it shall be, and more than once where it has none of that name."""
        refuse = self.page.locator(".jp-Dialog").get_by_role("button", name="No Kernel", exact=True)
        for _ in range(6):
            self.page.wait_for_timeout(500)
            if refuse.count():
                refuse.first.click()

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

    def save(self, name: str) -> None:
        """Save the notebook, and wait until its file was written."""
        file = self.lab.folder / name
        before = file.stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        latest = time.monotonic() + 60
        while file.stat().st_mtime_ns == before:
            assert time.monotonic() < latest, f"{name} was not saved"
            self.page.wait_for_timeout(100)
        self.page.wait_for_timeout(300)  # the file is written, then what else of it there is to be said

    def shot(self, name: str, what: Any = None) -> None:
        """A picture of the page, or of what of an element stands in the notebook's view."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = str(SHOTS / f"{name}.png")
        if what is None:
            self.page.screenshot(path=path)
            return
        for _ in range(2):  # cells that come into view are drawn, and move what is below them
            what.evaluate("element => element.scrollIntoView({ block: 'start' })")
            self.page.wait_for_timeout(300)
        inner, outer = what.bounding_box(), self.page.locator(".jp-WindowedPanel-outer").first.bounding_box()
        left, top = max(inner["x"], outer["x"]), max(inner["y"], outer["y"])
        right = min(inner["x"] + inner["width"], outer["x"] + outer["width"])
        bottom = min(inner["y"] + inner["height"], outer["y"] + outer["height"])
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        self.page.screenshot(path=path, clip=clip)

    def is_dark(self) -> bool:
        return bool(self.page.locator("body").get_attribute("data-jp-theme-light") == "false")

    def theme(self, name: str) -> None:
        wanted = "false" if "Dark" in name else "true"
        if self.is_dark() != ("Dark" in name):
            self.menu("Settings", "Theme")
            self.page.locator(".lm-Menu-itemLabel").get_by_text(name, exact=True).click()
        self.page.locator(f'body[data-jp-theme-light="{wanted}"]').wait_for(state="attached")
