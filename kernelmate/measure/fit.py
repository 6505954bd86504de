"""Fitted constants of the performance model, which no document states, with the data and quality of the fit.

`fit.json` beside this module holds the values, the GPU and the launches behind them, and the error on families of kernels
that were held out; `python -m benchmarks.prediction report --write` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants, in SM clock cycles unless stated otherwise.

    Attributes:
        launch_floor: microseconds of an empty launch.
        dram_efficiency: share of peak bandwidth that a streaming kernel reaches.
        dram_latency, l2_latency, l1_latency: latency of a load that misses L2, hits L2, or hits L1, with queueing.
        shared_latency: latency of a shared-memory load without conflicts.
        shuffle_latency: latency of a warp shuffle.
        sfu_latency: latency of the special function unit.
        issue_latency: mean gap between two instructions of one warp.
        barrier_latency: cost of one block-wide barrier.
        barrier_per_warp: additional cost per warp of the block.
        block_start: time from the end of a block to the first instruction of its successor in the same slot.
        block_rate: blocks that the whole GPU starts per cycle.
        int_survivors: fraction of PTX integer instructions that remain as integer instructions in SASS.
        atomic_rate: sectors per cycle on which the whole GPU performs atomics.
        atomic_place_rate: likewise on a single sector.
        divergence_cost: issue slots that one divergent branch costs a warp.
        l2_bytes: L2 bandwidth in bytes per cycle and SM (on the GPU of the fit).
        partial_store: cost in L2 of a partially written sector, relative to a fully written one.
        overlap_norm: order of the norm that combines the times of overlapping parts of the GPU if blocks follow each
            other.
        alone_norm: likewise if all blocks start together, so that their phases use the same part at once.
    """

    launch_floor: float
    dram_efficiency: float
    dram_latency: float
    l2_latency: float
    l1_latency: float
    shared_latency: float
    shuffle_latency: float
    sfu_latency: float
    issue_latency: float
    barrier_latency: float
    barrier_per_warp: float
    block_start: float
    block_rate: float
    int_survivors: float
    atomic_rate: float
    atomic_place_rate: float
    divergence_cost: float
    l2_bytes: float
    partial_store: float
    overlap_norm: float
    alone_norm: float


@cache
def stored() -> Mapping[str, Any]:
    """Returns the contents of `fit.json`: `values`, `provenance` and `error`."""
    text = resources.files("kernelmate.measure").joinpath("fit.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


@cache
def stored_fit() -> Fit:
    """Returns the fit that predictions use."""
    return Fit(**stored()["values"])
