"""The emulator's counters against the hardware's: `python -m benchmarks.gpu_counters OUT.json [FILE ...]`.

Needs an NVIDIA GPU, CuPy and ncu with permission to read counters. One row for each listed launch of the examples:
global requests and sectors have to be equal; shared wavefronts are shown beside each other, since ptxas may merge
shared accesses that PTX makes one by one.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.launches import listed_launches
from benchmarks.machine import describe
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GLOBAL = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}
SHARED = {
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
METRICS = GLOBAL | SHARED


def hardware(files: list[Path]) -> list[dict[str, float]]:
    """Ncu's counters, one mapping for each launch, in order."""
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS.values()),
               sys.executable, "-m", "benchmarks.gpu_launch", *map(str, files)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    if done.returncode != 0 or not rows:
        sys.exit(f"ncu failed ({done.returncode}):\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return [
        {ours: float(row[theirs].replace(",", "")) for ours, theirs in METRICS.items()}
        for row in rows
        if row["ID"].isdigit()
    ]


def main(arguments: list[str]) -> int:
    """Print the table and write it; 1 where a global counter differs."""
    out, files = Path(arguments[0]), [Path(file) for file in arguments[1:]] or sorted(EXAMPLES.glob("*.cu"))
    target, emulator = find_target("sm_90"), EmulatorBackend()
    measured = hardware(files)
    rows, equal = [], dict.fromkeys(METRICS, 0)
    print(describe())
    launches = list(listed_launches(files, target))
    for listed, theirs in zip(launches, measured, strict=True):
        result = emulator.load(listed.compiled, target).run(replace(listed.run, count=True, check=False))
        ours = {name: getattr(result.counters, name) for name in METRICS}
        for name in METRICS:
            equal[name] += ours[name] == theirs[name]
        off = [f"{name} {ours[name]:,} against {theirs[name]:,.0f}" for name in METRICS if ours[name] != theirs[name]]
        rows.append({"kernel": listed.name, "size": dict(listed.size), "emulated": ours, "measured": theirs})
        print(f"{listed.name:<40} {listed.size_words:<40} {'; '.join(off) or 'all equal'}", flush=True)
    for name, count in equal.items():
        print(f"{name:<26} equal on {count} of {len(rows)} launches")
    out.write_text(json.dumps({"machine": describe(), "launches": rows}, indent=1) + "\n")
    return 0 if all(equal[name] == len(rows) for name in GLOBAL) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
