"""GPU sensors by NVML: temperature, throttle reasons, other processes. Without NVML, their absence is reported."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of `nvmlClocksEventReasons` (nvml.h) that throttle clocks; idle and application clocks do not."""

MOST_NAMED = 4
"""Maximum number of other processes that are named; the rest is counted."""


class Sensors:
    """NVML's view of one GPU.

    Args:
        gpu: its UUID.

    Attributes:
        missing: the reason why NVML is unavailable; None if it is available.
    """

    def __init__(self, gpu: str) -> None:
        self.missing: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
            self._device = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        except ImportError:
            self.missing = "temperature and throttling unknown (install nvidia-ml-py)"
        except Exception as error:  # noqa: BLE001 -- NVML has an exception class for each of its codes
            self.missing = f"temperature and throttling unknown (NVML: {error})"

    def temperature_c(self) -> int | None:
        """Returns the GPU core's temperature in degrees Celsius."""
        if self.missing is not None:
            return None
        try:
            return int(self._nvml.nvmlDeviceGetTemperature(self._device, self._nvml.NVML_TEMPERATURE_GPU))
        except self._nvml.NVMLError:
            return None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Returns the present throttle reasons as text."""
        if self.missing is not None:
            return ()
        read = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = read or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        try:
            return reasons_of(int(read(self._device)))
        except self._nvml.NVMLError:
            return ()

    def others(self) -> tuple[str, ...]:
        """Returns other compute processes on the GPU, as `python3 (pid 123)`, the first few of them.

        The same session's idle spare process is left out.
        """
        if self.missing is not None:
            return ()
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        except self._nvml.NVMLError:
            return ()
        pids = sorted(pid for process in running if not _kept_ready(pid := int(process.pid)))
        return process_names(pids)


def reasons_of(bits: int) -> tuple[str, ...]:
    """Returns names for NVML's bits, without those that do not throttle."""
    return tuple(words for bit, words in THROTTLED.items() if bits & bit)


def process_names(pids: list[int]) -> tuple[str, ...]:
    """Names processes; a process of another container has only a number."""
    shown = tuple(f"{_command(pid)} (pid {pid})" for pid in pids[:MOST_NAMED])
    rest = len(pids) - len(shown)
    return (*shown, f"{rest} more") if rest else shown


def _kept_ready(pid: int) -> bool:
    """Returns True for this process's worker and runner, and for spare ones of the same session.

    Their parent is the same.
    """
    if pid == os.getpid():
        return True
    # A worker leads a process group, which includes its runner.
    sessions = {os.getppid(), _parent_of(os.getpgrp())} - {None}
    if b"kernelmate.worker.child" not in _started_as(pid):
        return False
    parent = _parent_of(pid)
    return parent in sessions or (parent is not None and _parent_of(parent) in sessions)


def _parent_of(pid: int) -> int | None:
    """Returns a process's parent; None if the process does not exist or the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[1])


def _started_as(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a process"


@functools.cache
def sensors(gpu: str) -> Sensors:
    """Returns the sensors of a GPU; loads NVML once."""
    return Sensors(gpu)
