"""A real JupyterLab and a headless Chromium; where either is missing the tests are skipped, and say what to install."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.lab import SIZE, Book, Lab, browser_path

SLOWNESS = float(os.environ.get("KERNELMATE_SLOW_PAGES") or 1)
"""Factor by which pages run slower than on this machine. Tests that pass with 4 also pass on a busy machine."""

HERE = {"127.0.0.1", "localhost", ""}

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytest.importorskip("jupyterlab", reason="jupyterlab is not installed: pip install jupyterlab")

if browser_path() is None:
    pytest.skip("no Chromium here: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter"))
    yield lab
    lab.end_kernels()
    lab.close()


@pytest.fixture(scope="session")
def chromium(driver: Any) -> Iterator[Any]:
    browser = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def requested() -> list[str]:
    """Addresses that pages asked for."""
    return []


@pytest.fixture(autouse=True)
def nothing_leaves_the_machine(requested: list[str]) -> Iterator[None]:
    yield
    local = {"blob", "data"}
    left = [url for url in requested if urlsplit(url).scheme not in local and urlsplit(url).hostname not in HERE]
    assert left == [], "requests that left the machine"


@pytest.fixture(scope="session")
def new_page(chromium: Any, requested: list[str]) -> Callable[[], Any]:
    """Makes pages, each with a context of its own."""

    def new() -> Any:
        page = chromium.new_context(viewport=SIZE).new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: requested.append(request.url))
        if SLOWNESS > 1:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWNESS})
        return page

    return new


@pytest.fixture
def book(lab: Lab, new_page: Callable[[], Any]) -> Iterator[Book]:
    """A page of the test's own, whose kernel ends with it."""
    page, before = new_page(), {one["id"] for one in lab.kernels()}
    yield Book(page, lab)
    page.context.close()
    lab.end_kernels(keep=before)
