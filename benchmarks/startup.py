"""CPU time of `kernelmate --help`, next to a bare interpreter. Goal: under 0.3 s."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.machine import cpu_seconds

ROUNDS = 15


def main() -> None:
    """Print medians over interleaved runs."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "kernelmate --help": [sys.executable, "-m", "kernelmate", "--help"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            samples[name].append(
                cpu_seconds(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
            )
    for name, values in samples.items():
        print(f"{name:<20} {statistics.median(values):.3f} s CPU (median of {ROUNDS})")
