"""Run every benchmark, or those named: `python -m benchmarks [startup] [check] [emulator]`."""

from __future__ import annotations

import sys

from benchmarks import check_overhead, emulator, startup
from benchmarks.machine import describe

BENCHMARKS = {"startup": startup.main, "check": check_overhead.main, "emulator": emulator.main}


def main() -> None:
    """Print the machine, then each benchmark's table."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(describe())
    for name in names:
        print(f"\n# {name}", flush=True)
        BENCHMARKS[name]()


main()
