"""Fixtures for every test: they protect the user's own history, and no model answers unless a test asks for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kernelmate.suggest.local.serving import ModelServer
from kernelmate.suggest.local.state import default_file
from tests.processes import CORES, on_cores
from tests.sampling import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_report_header,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_report_header",
]

# No time limit: machines are shared, and an example is sometimes interrupted for a second.
settings.register_profile("no deadline", parent=settings.default, deadline=None)
settings.load_profile("no deadline")

SKIPPED_TESTS = os.environ.get("CI_SKIPPED_TESTS")
"""File to which the identifiers of skipped tests, modules and folders are appended, for a later run with more tools."""


def _list_skipped(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Append to the list. Workers of pytest-xdist do it as well: only they see a module that is skipped as a whole."""
    if SKIPPED_TESTS and report.skipped and not hasattr(report, "wasxfail"):
        with Path(SKIPPED_TESTS).open("a", encoding="utf-8") as listed:
            listed.write(f"{report.nodeid}\n")


pytest_collectreport = pytest_runtest_logreport = _list_skipped


@pytest.fixture(scope="session", autouse=True)
def _own_cores() -> Iterator[None]:
    """Each worker of pytest-xdist has cores of its own, and so have the processes that its tests start.

    Sessions let other processes emulate ahead where cores are free, which they are not beside another worker: on two cores a
    verdict took 40 % more CPU time so. A test of those processes asks for all cores: `processes.on_cores`.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers < 2 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = CORES[int(worker.removeprefix("gw")) % len(CORES) :: workers]
    with on_cores(own):
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests and the processes that they start keep their versions in a file of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("KERNELMATE_HISTORY_FILE", str(folder / "history.db"))
        patch.setenv("KERNELMATE_STARTER", "false")
        # For those tests that take every setting out of the environment.
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A model server that tests start is not the user's own, and ends with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        yield
        if default_file().exists():
            ModelServer().stop()


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Processes that tests start hear Ctrl-C where these tests do not, as under nohup or in a shell's background.

    A started program inherits an ignored signal, and Python then installs no handler of its own; it does not inherit a caught one.
    So the signal is caught here by a function that does nothing, which ignores it in this process alone.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Playwright: one for all tests that want a browser, since a process cannot start a second one beside it."""
    playwright_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    playwright_api.expect.set_options(timeout=120_000)
    with playwright_api.sync_playwright() as playwright:
        yield playwright
