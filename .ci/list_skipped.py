"""Pytest plugin: appends the identifiers of skipped tests, modules and folders to the file that CI_SKIPPED_TESTS names.

Workers of pytest-xdist append as well, since only they see a module that is skipped as a whole: a line may come several times.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


LISTED = Path(os.environ["CI_SKIPPED_TESTS"])


def _note(report: pytest.CollectReport | pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        with LISTED.open("a", encoding="utf-8") as listed:
            listed.write(f"{report.nodeid}\n")


pytest_collectreport = pytest_runtest_logreport = _note
