"""The model of L1, L2 and DRAM against an H100's counters: `python -m benchmarks.caches [FAMILY ...]`.

Nothing of the model was fitted to them but the age of stores in L1. The hardware's figures are in `benchmarks/data`, by
`benchmarks.variant_counters`; caches were empty before each launch.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.variant_set import run_arguments, variants
from kernelmate.backends.base import Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.records import CacheEstimate, Counters

MEASURED = Path(__file__).resolve().parent / "data" / "counters_h100.json"
Hardware = Mapping[str, float]
RATES: dict[str, tuple[Callable[[CacheEstimate], float | None], Callable[[Hardware], float]]] = {
    "L1, loads and stores": (lambda it: it.l1_sector_hit_rate, lambda it: it["l1_hit_rate"] / 100),
    "L1, loads": (lambda it: it.l1_load_hit_rate, lambda it: it["l1_load_hits"] / it["l1_load_sectors"]),
    "L2": (lambda it: it.l2_sector_hit_rate, lambda it: it["l2_hit_rate"] / 100),
}
AMOUNTS: dict[str, tuple[Callable[[CacheEstimate], float], Callable[[Hardware], float]]] = {
    "DRAM bytes read": (lambda it: it.dram_bytes_read, lambda it: it["dram_bytes_read"]),
}
SECTORS = {"l1_load_sectors": "global_load_sectors", "l1_store_sectors": "global_store_sectors"}
"""Names of the counters that the hardware and the emulator both count, from ncu's name to the field of `Counters`."""


def emulated(families: list[str]) -> dict[str, Counters]:
    """The counters of every variant."""
    target, found = find_target("H100 SXM"), {}
    for variant in variants(families or None):
        run = Run(variant.shape, run_arguments(variant.arguments()), count=True, check=False)
        counters = EmulatorBackend().load(variant.compile(target), target).run(run).counters
        assert counters is not None, "a counted launch has counters"
        found[variant.name] = counters
    return found


def at(figures: list[float], share: float) -> float:
    """The figure that a share of them does not exceed."""
    return sorted(figures)[min(int(share * len(figures)), len(figures) - 1)]


def row(name: str, ours: CacheEstimate, theirs: Hardware) -> str:
    """One variant's rates, modelled and measured."""
    cells = []
    for label, (model, hardware) in RATES.items():
        modelled, measured = model(ours), hardware(theirs)
        cells.append(f"{label} {'-' if modelled is None else f'{modelled:6.1%}'} {measured:6.1%}")
    return f"{name:<52} {'   '.join(cells)}"


def main(families: list[str]) -> int:
    """Print each variant's rates, then how far off the model is; 1 where counted sectors differ."""
    document: dict[str, Any] = json.loads(MEASURED.read_text())
    print(f"measured on {document['device']}, {document['date']}; emulated on {describe()}")
    print("hit rates, modelled and measured:")
    hardware = {one["name"]: one["cold"] for one in document["variants"]}
    counted = emulated(families)
    for name, counters in counted.items():
        if counters.caches is None:
            print(f"{name:<52} not modelled")
        else:
            print(row(name, counters.caches, hardware[name]))
    modelled = {name: it.caches for name, it in counted.items() if it.caches is not None}
    for label, (model, measure) in RATES.items():
        off = [abs(rate - measure(hardware[name])) for name, it in modelled.items() if (rate := model(it)) is not None]
        print(f"{label:<22} off by {at(off, 0.5):.1%} of sectors (half of {len(off)}), {at(off, 0.9):.1%} (90 %), "
              f"{max(off):.1%} at most; within 5 points on {sum(one <= 0.05 for one in off)}")  # fmt: skip
    for label, (amount, measure) in AMOUNTS.items():
        factors = [
            math.exp(abs(math.log(max(amount(it), 1) / measure(hardware[name])))) for name, it in modelled.items()
        ]
        print(
            f"{label:<22} within a factor of {at(factors, 0.5):.2f} (half), {at(factors, 0.9):.2f} (90 %), {max(factors):.2f}"
        )
    equal = {
        theirs: sum(getattr(it, ours) == hardware[name][theirs] for name, it in counted.items())
        for theirs, ours in SECTORS.items()
    }
    for theirs, count in equal.items():
        print(f"{SECTORS[theirs]:<22} equal on {count} of {len(counted)} variants")
    return 0 if all(count == len(counted) for count in equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
