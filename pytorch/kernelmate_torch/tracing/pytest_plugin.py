"""Pytest plugin: `--kernelmate-trace` and `--kernelmate-require NAME` trace the kernels that the tests launch.

Without these options nothing is imported and nothing is recorded.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernelmate_torch.tracing.report import ProcessReport, RequiredKernel

_FOLDER = "KERNELMATE_TRACE_PYTEST"
"""Environment variable with the folder for records, by which workers of pytest-xdist find it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("kernelmate", "kernels that tests launch")
    group.addoption("--kernelmate-trace", action="store_true", help="Report which kernels the tests launched, and why others did not run.")  # fmt: skip
    group.addoption("--kernelmate-require", action="append", default=[], metavar="NAME", help="Fail if no test launches this kernel; repeatable.")  # fmt: skip
    group.addoption("--kernelmate-share", type=float, default=0.0, metavar="PART", help="Fail if a required kernel has less than this part of the time, from 0 to 1.")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Begins to record, if an option asks for it."""
    if not (config.getoption("--kernelmate-trace") or config.getoption("--kernelmate-require")):
        return
    config.pluginmanager.register(TracedTests(config), "kernelmate-traced-tests")


class TracedTests:
    """The recording of one run of pytest, or of a worker of pytest-xdist, whose controller reports."""

    def __init__(self, config: pytest.Config) -> None:
        from kernelmate_torch.tracing.in_process import begin

        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.required: list[str] = config.getoption("--kernelmate-require")
        self._held = None if self.is_worker else tempfile.TemporaryDirectory(prefix="kernelmate-trace-", ignore_cleanup_errors=True)  # fmt: skip
        if self._held is not None:
            os.environ[_FOLDER] = self._held.name
        self.folder = Path(os.environ[_FOLDER])
        self.reports: list[ProcessReport] = []
        self.checked: list[RequiredKernel] = []
        begin(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Ends the recording; fails the run if a required kernel did not run."""
        from kernelmate_torch.tracing.loading_records import read_records
        from kernelmate_torch.tracing.recording.process import finish
        from kernelmate_torch.tracing.report import check_required, reports

        finish()
        if self.is_worker:
            return
        self.reports = reports(read_records(self.folder), self.required)
        self.checked = check_required(self.reports, self.required, self.config.getoption("--kernelmate-share"))
        if exitstatus == pytest.ExitCode.OK and not all(one.met for one in self.checked):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the report."""
        from kernelmate_torch.tracing.report import lines

        terminalreporter.section("kernels")
        notes = [] if self.reports else ["no test imported PyTorch, so that there is nothing to trace"]
        for line in lines(self.reports, self.checked, "the tests", notes):
            terminalreporter.write_line(line)
        if self._held is not None:
            self._held.cleanup()
            os.environ.pop(_FOLDER, None)
