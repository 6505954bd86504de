"""A real VS Code, in a browser: code-server with the packed extension, and what its user does there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.processes import end

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "extension"
VSIX = EXTENSION / "kernelmate.vsix"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "`make extension-test` installs what these tests need"

SHOTS = Path(os.environ.get("KERNELMATE_SCREENSHOTS") or ROOT / "build" / "screenshots")
"""Folder of screenshots; `docs/editor.md` shows those of a run with KERNELMATE_SCREENSHOTS=docs/images."""

SETTINGS = {
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.editorAssociations": {"*.ipynb": "jupyter-notebook"},
    "workbench.tips.enabled": False,
    "chat.commandCenter.enabled": False,
    "chat.disableAIFeatures": True,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoCheckUpdates": False,
    "git.enabled": False,
    "editor.minimap.enabled": False,
    "editor.accessibilitySupport": "off",
    "window.commandCenter": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "kernelmate.interpreter": [sys.executable],
    "kernelmate.backend": "emulator",
    "kernelmate.logLevel": "info",
}


def code_server() -> list[str] | None:
    """Returns the command that starts code-server: the installed copy of `make extension-test`, or one on PATH.

    None without.
    """
    given = os.environ.get("KERNELMATE_CODE_SERVER")
    folder = Path(given) if given else Path(__file__).parent / "editor"
    node, entry = folder / "node/node_modules/node/bin/node", folder / "node_modules/code-server/out/node/entry.js"
    if node.is_file() and entry.is_file():
        return [str(node), str(entry)]
    found = shutil.which("code-server")
    return None if found is None else [found]


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def packed() -> Path | None:
    """The VSIX, made anew where the sources are newer; None where it is not there and cannot be made."""
    sources = [*EXTENSION.glob("*.json"), *EXTENSION.glob("*.mjs"), *EXTENSION.glob("*.md")]
    sources += [
        path for part in ("src", "webview", "media") for path in (EXTENSION / part).rglob("*") if path.is_file()
    ]
    newest = max(path.stat().st_mtime for path in sources)
    if VSIX.is_file() and VSIX.stat().st_mtime >= newest:
        return VSIX
    npm = shutil.which("npm")
    if npm is None or not (EXTENSION / "node_modules").is_dir():
        return None
    subprocess.run([npm, "run", "--silent", "package"], cwd=EXTENSION, check=True, capture_output=True)
    return VSIX


def lacking() -> str | None:
    """Returns the reason that these tests cannot run here; None if they can."""
    if code_server() is None:
        return "code-server is not installed"
    if browser_path() is None:
        return "there is no Chromium (apt-get install chromium)"
    if packed() is None:
        return "the extension is not built, and its tools are not installed"
    return None


class Host:
    """A running code-server with the extension and one folder."""

    def __init__(self, folder: Path, home: Path, **settings: Any) -> None:
        command = code_server()
        assert command is not None
        self.folder, self.home = folder, home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        data, extensions = home / "data", home / "extensions"
        (data / "User").mkdir(parents=True)
        (data / "User" / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
        config = home / "config.yaml"
        config.write_text("auth: none\n")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("VSCODE_", "PORT"))}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lsp"), os.environ.get("PYTHONPATH", "")]),
            "KERNELMATE_CACHE_DIR": str(home / "cache"),
        }
        self.arguments = [
            *command,
            "--config",
            str(config),
            "--user-data-dir",
            str(data),
            "--extensions-dir",
            str(extensions),
        ]
        self.environment = environment
        installed = subprocess.run(
            [*self.arguments, "--install-extension", str(packed())], env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert installed.returncode == 0, installed.stdout + installed.stderr
        more = [
            "--auth",
            "none",
            "--bind-addr",
            f"127.0.0.1:{self.port}",
            "--disable-telemetry",
            "--disable-update-check",
        ]
        self.log = (home / "server.log").open("w+")
        self.process = subprocess.Popen(
            [*self.arguments, *more, str(folder)], env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )  # fmt: skip
        self._await()

    def _await(self) -> None:
        latest = time.monotonic() + 120
        while time.monotonic() < latest:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2):
                    return
            except OSError:
                assert self.process.poll() is None, Path(self.log.name).read_text()[-3000:]
                time.sleep(0.2)
        raise AssertionError("code-server did not start")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?folder={self.folder}"

    def logged(self) -> str:
        """Returns the extension's output channel as text."""
        return "".join(path.read_text() for path in self.home.glob("data/logs/**/*KernelMate.log"))

    def servers(self) -> list[psutil.Process]:
        """The language servers of its windows."""
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "kernelmate_lsp" in one.cmdline():
                    found.append(one)
        return found

    def close(self) -> None:
        end(self.process)
        self.log.close()


class Code:
    """One VS Code window in the browser."""

    def __init__(self, page: Any, host: Host) -> None:
        self.page, self.host = page, host
        self.page.goto(host.url)
        self.page.locator(".monaco-workbench .explorer-folders-view").wait_for()

    def open(self, name: str) -> None:
        """A file of the folder, by the quick open box."""
        tab = self.page.locator(f'.tab[data-resource-name="{name}"]')
        # The box shows what was opened before, then what it finds; it does not see a file that is written meanwhile.
        for _ in range(8):
            if self._choose("Control+p", name, name) and self._soon(tab):
                return
            self.page.keyboard.press("Escape")
        raise AssertionError(f"{name} could not be opened")

    def _choose(self, key: str, typed: str, wanted: str) -> bool:
        """Type into the box that a key opens, and take what is wanted once that is what Enter takes; False where it never is."""
        from playwright.sync_api import TimeoutError as NotShown

        self.page.keyboard.press(key)
        try:
            self.page.locator(".quick-input-widget input").fill(typed, timeout=20_000)
        except NotShown:  # what took the focus meanwhile has closed the box
            return False
        there = self._soon(self.page.locator(".quick-input-list .monaco-list-row.focused", has_text=wanted))
        if there:
            self.page.keyboard.press("Enter")
        return there

    def _soon(self, what: Any) -> bool:
        """True if the element appears within twenty seconds."""
        for _ in range(80):
            if what.count():
                return True
            self.page.wait_for_timeout(250)
        return False

    def run(self, command: str) -> None:
        """A command by its title."""
        for _ in range(8):
            if self._choose("F1", f">{command}", command):
                return
            self.page.keyboard.press("Escape")
        raise AssertionError(f"there is no command {command}")

    def alone(self) -> None:
        """Close what earlier tests have left open."""
        self.run("View: Close All Editors")
        drop = self.page.locator(".monaco-dialog-box .monaco-button", has_text="Don't Save")
        tabs = self.page.locator(".editor-group-container .tab")
        for _ in range(240):
            if drop.count():
                drop.first.click()
            if tabs.count() == 0:
                break
            self.page.wait_for_timeout(250)
        self.run("Notifications: Clear All Notifications")

    def has_logged(self, words: str, times: int) -> None:
        """Wait until the extension has written something so often."""
        for _ in range(240):
            if self.host.logged().count(words) >= times:
                return
            self.page.wait_for_timeout(250)
        raise AssertionError(f"{words!r} is not {times} times in:\n{self.host.logged()}")

    def go_to(self, line: int, column: int = 1) -> None:
        """A line of the active editor; where Enter came before the box had read what was typed, once more.

        The cursor may be there already, so that only a closed box tells that Enter was read.
        """
        there = self.page.locator("#status\\.editor\\.selection", has_text=f"Ln {line}, ")
        box = self.page.locator(".quick-input-widget input")
        for _ in range(8):
            self.page.keyboard.press("Control+g")
            box.fill(f":{line}:{column}")
            self.page.keyboard.press("Enter")
            if self._soon(there) and self._soon(box.and_(self.page.locator(":not(:visible)"))):
                return
            self.page.keyboard.press("Escape")
        raise AssertionError(f"line {line} could not be gone to")

    def lens(self, text: str | re.Pattern[str]) -> Any:
        return self.page.locator(".codelens-decoration a", has_text=text)

    def button(self, text: str) -> Any:
        """Of a notification or a dialog."""
        return self.page.locator(
            ".notifications-toasts .monaco-button, .monaco-dialog-box .monaco-button", has_text=text
        )

    def saved(self, name: str, there: Callable[[str], bool]) -> None:
        """Save the active editor's file until its text is as it should be."""
        text = ""
        for _ in range(20):
            self.page.locator(".editor-group-container.active .monaco-editor .view-lines").first.click()
            self.page.keyboard.press("Control+s")
            self.page.wait_for_timeout(1000)
            text = (self.host.folder / name).read_text()
            if there(text):
                return
        raise AssertionError(f"{name} was saved as:\n{text}")

    def theme(self, kind: str) -> None:
        """`light` or `dark`."""
        wanted = ".monaco-workbench.vs-dark" if kind == "dark" else ".monaco-workbench.vs"
        if self.page.locator(wanted).count() == 0:
            self.run("Preferences: Toggle between Light/Dark Themes")
        self.page.locator(wanted).wait_for()

    def frame(self, ready: str) -> Any:
        """The innermost page of a web view, once it has what is named."""
        frame = self.page.frame_locator("iframe.webview.ready").last.frame_locator("iframe#active-frame")
        frame.locator(ready).first.wait_for()
        return frame

    def shot(self, name: str, what: Any = None) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.mouse.move(2, 2)
        (what or self.page).screenshot(path=str(SHOTS / f"{name}.png"))
