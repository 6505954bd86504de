"""Nsight Compute on request: hardware counters of one launch of the judged code, if the machine permits it."""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kernelmate.records import Counters, HardwareProfile, JudgeTask
from kernelmate.worker.nvidia.tool import ToolFailed, ToolOutput, locate, run

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "global_load_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "global_load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global_store_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "global_store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "global_atomic_requests": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum"
    ),
    "global_bytes_asked": (
        "smsp__sass_data_bytes_mem_global_op_ld.sum", "smsp__sass_data_bytes_mem_global_op_st.sum"
    ),
    "shared_load_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared_store_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "bank_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    "local_sectors": (
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
    ),
    "divergent_branches": ("smsp__sass_branch_targets_threads_divergent.sum",),
    "thread_instructions": ("smsp__thread_inst_executed.sum",),
}  # fmt: skip
"""Nsight Compute metrics that make up each counter; several are summed ("Kernel Profiling Guide", Metrics Reference).

Instructions are SASS, while the emulator's are PTX.
"""

FURTHER: Mapping[str, str] = {
    "duration_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_busy": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_busy": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}
"""Metrics that only hardware has; base units are nanoseconds, bytes and per cent."""

METRICS = (*dict.fromkeys(name for names in COUNTERS.values() for name in names), *FURTHER.values())

OPTIONS = (
    "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw", "--print-units", "base",
    "--print-fp", "--metrics", ",".join(METRICS),
)  # fmt: skip
"""Clocks are not fixed: that needs privileges, and would affect everybody on the GPU."""

STAGE = "profile"

NOT_ALLOWED = "ERR_NVGPUCTRPERM"
_FAILED = re.compile(r"^==(?:ERROR|WARNING)== (.*)$", re.MULTILINE)


def profile(task: JudgeTask, device: int) -> HardwareProfile:
    """Returns hardware counters of the candidate's headline launch.

    Raises:
        ToolFailed: there are none; the message gives the reason in one line.
    """
    answer = run("ncu", OPTIONS, task, device, headline_only=True)
    return read(answer, version(str(locate("ncu"))))


def read(answer: ToolOutput, tool: str) -> HardwareProfile:
    """Reads the counters from Nsight Compute's output.

    Args:
        answer: the answer of the profiler.
        tool: its name and version.

    Raises:
        ToolFailed: it contains none.
    """
    row = _row(answer.text)
    if row is None:
        raise ToolFailed(_why_not(answer))
    counters: dict[str, Any] = {name: _sum(row, metrics) for name, metrics in COUNTERS.items()}
    if all(value is None for value in counters.values()):
        raise ToolFailed(_why_not(answer))
    further = {name: _value(row.get(metric)) for name, metric in FURTHER.items()}
    nanoseconds = further["duration_us"]

    def share(name: str) -> float | None:
        percent = further[name]
        return None if percent is None else percent / 100

    def whole(name: str) -> int | None:
        value = further[name]
        return None if value is None else round(value)

    return HardwareProfile(
        tool=tool,
        counters=Counters("hardware", **counters),
        duration_us=None if nanoseconds is None else nanoseconds / 1e3,
        dram_read_bytes=whole("dram_read_bytes"),
        dram_written_bytes=whole("dram_written_bytes"),
        l1_hit_rate=share("l1_hit_rate"),
        l2_hit_rate=share("l2_hit_rate"),
        achieved_occupancy=share("achieved_occupancy"),
        sm_busy=share("sm_busy"),
        dram_busy=share("dram_busy"),
    )


@lru_cache
def version(program: str) -> str:
    """Returns the profiler's name and version: `ncu 2025.3.1.0`."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "ncu"
    stated = re.search(r"Version (\S+)", done.stdout)
    return f"ncu {stated[1]}" if stated else "ncu"


def _row(text: str) -> dict[str, str] | None:
    """Returns the first launch's metrics by name. Other lines precede the table; its second line holds units."""
    table = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(io.StringIO("\n".join(table)))
    return next((row for row in rows if (row.get("ID") or "").isdigit()), None)


def _sum(row: Mapping[str, str], metrics: tuple[str, ...]) -> int | None:
    values = [_value(row.get(metric)) for metric in metrics]
    known = [value for value in values if value is not None]
    return round(sum(known)) if len(known) == len(values) else None


def _value(text: str | None) -> float | None:
    """Parses a number of the table: `1,234.5`; None for metrics that the GPU does not count (`n/a`, `nan`, empty)."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if value == value else None


def _why_not(answer: ToolOutput) -> str:
    """Returns the reason for missing counters in one line."""
    text = f"{answer.text}\n{answer.errors}"
    if NOT_ALLOWED in text:
        return (
            f"this user may not read the GPU's counters ({NOT_ALLOWED}); an administrator can allow it: "
            f"https://developer.nvidia.com/{NOT_ALLOWED}"
        )
    said = [line for line in _FAILED.findall(text) if not line.startswith("Note:")]
    if said:
        return f"ncu gave no counters: {said[0].strip()}"
    printed = [line for line in text.splitlines() if line.strip()]
    return f"ncu gave no counters (exit code {answer.code}): {printed[-1].strip()[:200] if printed else 'it printed nothing'}"
