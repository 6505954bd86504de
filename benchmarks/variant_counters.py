"""Hardware counters of prepared variants: `python -m benchmarks.variant_counters FOLDER OUT.json`.

Needs an NVIDIA GPU, NumPy, CuPy and ncu with permission to read counters, and nothing of KernelMate; the folder is what
`python -m benchmarks.prediction prepare FOLDER` wrote. Each variant is launched once under ncu with empty caches, and
once with caches as an equal launch left them. Metrics that this GPU does not have are left out.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import subprocess
import sys
from pathlib import Path

_L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op"
_LOCAL = "l1tex__t_sectors_pipe_lsu_mem_local_op"
METRICS = {
    "l1_load_sectors": f"{_L1}_ld.sum",
    "l1_load_hits": f"{_L1}_ld_lookup_hit.sum",
    "l1_store_sectors": f"{_L1}_st.sum",
    "l1_store_hits": f"{_L1}_st_lookup_hit.sum",
    "l1_atomic_sectors": f"{_L1}_red.sum",
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "local_load_sectors": f"{_LOCAL}_ld.sum",
    "local_store_sectors": f"{_LOCAL}_st.sum",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_read_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "l2_write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_bytes_read": "dram__bytes_read.sum",
    "dram_bytes_written": "dram__bytes_write.sum",
    "thread_instructions": "smsp__thread_inst_executed.sum",
    "warp_instructions": "smsp__inst_executed.sum",
    "alu_instructions": "sm__inst_executed_pipe_alu.sum",
    "fma_instructions": "sm__inst_executed_pipe_fma.sum",
    "fp64_instructions": "sm__inst_executed_pipe_fp64.sum",
    "xu_instructions": "sm__inst_executed_pipe_xu.sum",
    "lsu_instructions": "sm__inst_executed_pipe_lsu.sum",
    "uniform_instructions": "sm__inst_executed_pipe_uniform.sum",
}
"""Our names, and Nsight Compute's."""


def launch_once(folder: Path) -> None:
    """Every variant once, in the folder's order."""
    import cupy

    from benchmarks.variant_timing import Prepared

    prepared = Prepared(folder)
    for described in prepared.described["variants"]:
        prepared.launch(described)()
        cupy.cuda.runtime.deviceSynchronize()


def known_metrics() -> dict[str, str]:
    """Those of `METRICS` that ncu has for this GPU."""
    done = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, check=False)
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    return {ours: theirs for ours, theirs in METRICS.items() if theirs.rpartition(".")[0] in listed}


def collected(folder: Path, metrics: dict[str, str], caches: str) -> list[dict[str, float | None]]:
    """Ncu's figures of the folder's launches, in order; `caches` is what is done with them before each: `all`, `none`."""
    command = ["ncu", "--clock-control", "none", "--cache-control", caches, "--csv", "--page", "raw", "--print-units", "base",
               "--metrics", ",".join(metrics.values()), sys.executable, "-m",
               "benchmarks.variant_counters", "--launch", str(folder)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]
    symbols = [item["symbol"] for item in json.loads((folder / "variants.json").read_text())["variants"]]
    names = [re.match(r"\w*", row["Kernel Name"])[0] for row in rows]
    same = len(names) == len(symbols) and all(name in symbol for name, symbol in zip(names, symbols, strict=True))
    if done.returncode != 0 or not same:
        sys.exit(f"ncu failed ({done.returncode}; {len(rows)} of {len(symbols)} launches, {names[:3]}):\n"
                 f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}")  # fmt: skip
    return [{name: _number(row.get(theirs, "")) for name, theirs in metrics.items()} for row in rows]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def main(arguments: list[str]) -> int:
    """Collect and write."""
    if arguments[0] == "--launch":
        launch_once(Path(arguments[1]))
        return 0
    folder, out = Path(arguments[0]), Path(arguments[1])
    described = json.loads((folder / "variants.json").read_text())
    metrics = known_metrics()
    print(f"not known to ncu here: {', '.join(sorted(set(METRICS) - set(metrics))) or 'none'}", flush=True)
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    cold, warm = (collected(folder, metrics, caches) for caches in ("all", "none"))
    rows = [
        {"name": item["name"], "cold": one, "warm": other}
        for item, one, other in zip(described["variants"], cold, warm, strict=True)
    ]
    document = {
        "device": gpu.stdout.strip(), "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "compiler": described["compiler"], "metrics": metrics, "variants": rows,
    }  # fmt: skip
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(rows)} variants, {len(metrics)} metrics, written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
