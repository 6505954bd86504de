"""A browser for the tests of the extension; where a part is missing they are skipped, and say what installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.extension.vscode import HOW, Code, Host, browser_path, lacking


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that was ended by `--maxfail` says so by its exit status: it says nothing of the tests that were left."""
    if session.shouldfail:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


@pytest.fixture(scope="session")
def chromium(request: pytest.FixtureRequest) -> Iterator[Any]:
    missing = lacking()
    if missing is not None:
        pytest.skip(f"{missing}; {HOW}")
    driver = request.getfixturevalue("driver")
    browser = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def window(chromium: Any) -> Iterator[Callable[[Host], Code]]:
    """Opens windows of a host."""
    contexts = []

    def new(host: Host) -> Code:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        return Code(page, host)

    yield new
    for context in contexts:
        context.close()
