"""Differences between the times that fresh processes measure, and their causes: `python -m benchmarks.gpu_spread OUT.json`.

Needs an NVIDIA GPU and CuPy. Each of six fresh processes takes durations of some launches block by block, as a timing does,
and keeps them with the spans of the empty kernels beside them. `all pairs` is the same where the last pairs of stamps in the
stream count as well, which lie closer together than those before them. The table is made of that by the product's own arithmetic, so
`python -m benchmarks.gpu_spread OUT.json --read` prints it again without a GPU, after a change of that arithmetic. Goal: warm
durations of six processes agree within 2%.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu_timing import timers
from benchmarks.machine import describe
from kernelmate.backends.cuda.helpers import empty_of
from kernelmate.measure.blocks import midmean, time_of
from kernelmate.measure.timing import settle

PROCESSES, BLOCKS, LEAD, COUNTED = 6, 24, 8, 32
"""Of each launch; a block has so many launches that are not counted, and so many that are."""
CHOSEN = {
    "copy": ("n=4096", "n=262144", "n=4194304", "n=16777216"), "normalize": ("rows=2048 cols=2048",),
    "square_in_place": ("n=65536",), "transpose": ("rows=512 cols=512",), "histogram": ("n=131072",), "chase": (),
    "adamw": (), "dequantize_int8": (), "softmax": (),
}  # fmt: skip
"""Kernels, and their sizes where not all of them."""
GOAL = 0.02


def take(out: Path) -> None:
    """One process's durations: for each launch, its blocks' spans, and those of the empty kernels beside each."""
    rows = []
    for listed, timer in timers():
        name, size = listed.name.split("::")[1], str(listed.size_words)
        if name not in CHOSEN or (CHOSEN[name] and size not in CHOSEN[name]):
            continue
        settle(timer.condition)
        blocks = []
        for number in range(BLOCKS):
            spans, empties = timer.spans([0] * (LEAD + COUNTED), placement=number % timer.placements)
            blocks.append({"spans": spans[LEAD:], "empties": empties})
        rows.append({"kernel": name, "size": size, "blocks": blocks})
    out.write_text(json.dumps(rows))


def table(processes: list[list[dict[str, Any]]]) -> int:
    """Print how far the processes are apart; 1 where one launch is further than the goal."""
    over = before = 0
    print(f"{'':<40}{'as timed':>10}{'all pairs':>12}{'all alike':>12}{'plain median':>14}   by process")
    for rows in zip(*processes, strict=True):
        mine = [time_of([above(block, empty_of) for block in row["blocks"]])[0] for row in rows]
        pairs = [time_of([above(block, all_pairs) for block in row["blocks"]])[0] for row in rows]
        alike = [time_of([above(block, midmean) for block in row["blocks"]])[0] for row in rows]
        plain = [statistics.median(above(block, empty_of) for block in row["blocks"]) for row in rows]
        over += spread(mine) > GOAL
        before += spread(pairs) > GOAL
        label = f"{rows[0]['kernel']} {rows[0]['size']}"
        print(f"{label:<40}{spread(mine):>10.2%}{spread(pairs):>12.2%}{spread(alike):>12.2%}{spread(plain):>14.2%}   {' '.join(f'{one:.3f}' for one in mine)}")  # fmt: skip
    print(
        f"over {GOAL:.0%} on {over} ({before} with all pairs) of {len(processes[0])} launches in {len(processes)} processes"
    )
    return int(over > 0)


def all_pairs(empties: list[float]) -> float:
    """Returns the duration of an empty kernel if the last pairs of time stamps in the stream count as well."""
    return empty_of(empties, tail=0)


def above(block: dict[str, list[float]], empty: Any) -> float:
    """Microseconds that a block's launches take beyond the empty kernels beside it, and what one of those takes."""
    return midmean(block["spans"]) - float(empty(block["empties"])) + EMPTY_US


EMPTY_US = 1.92
"""As on an H100; the same for all, so it matters little to how far they are apart."""


def spread(values: list[float]) -> float:
    """The largest over the smallest, less one."""
    return max(values) / min(values) - 1


def main(arguments: list[str]) -> int:
    """Take and print, or only one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("gpu_spread.json"))
    parser.add_argument("--read", action="store_true", help="print the table of what OUT.json holds")
    parser.add_argument("--take", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.take:
        take(chosen.out)
        return 0
    if not chosen.read:
        part, found = chosen.out.with_suffix(".part"), []
        for _ in range(PROCESSES):
            subprocess.run([sys.executable, "-m", "benchmarks.gpu_spread", str(part), "--take"], check=True)
            found.append(json.loads(part.read_text()))
            part.unlink()
        chosen.out.write_text(json.dumps({"machine": describe(), "processes": found}))
    kept = json.loads(chosen.out.read_text())
    print(kept["machine"])
    return table(kept["processes"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
