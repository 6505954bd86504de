"""The fitted part of the prediction: figures that no document states, with what they were fitted to and how well.

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
    """Figures of the model, in clocks of an SM unless said otherwise.

    Attributes:
        launch_floor: microseconds of a launch that does nothing.
        dram_efficiency: share of peak bandwidth that a streaming kernel reaches.
        dram_latency, l2_latency, l1_latency: of a load that L2 misses, that hits L2, that hits L1, waiting included.
        shared_latency: of a load of shared memory without conflicts. shuffle_latency: of an exchange within a warp.
        sfu_latency: of a result of the special function unit.
        issue_latency: mean gap between two instructions of one warp.
        barrier_latency: one barrier of a block; barrier_per_warp: what each of its warps adds.
        block_start: from a block's slot becoming free to its successor's first instruction.
        block_rate: blocks that the whole GPU can start in a clock.
        int_survivors: share of PTX's integer instructions that is left for the integer pipe.
        atomic_rate: sectors on which the whole GPU does atomics in a clock; atomic_place_rate: likewise on one sector.
        divergence_cost: issue slots of one warp whose threads part.
        l2_bytes: bytes that L2 gives or takes in a clock for each SM (on the GPU of the fit).
        partial_store: how many times a sector that is stored to in part costs L2 what a whole one does.
        overlap_norm: where blocks follow each other, parts of the GPU overlap, and their times are joined by this norm;
            alone_norm: where all blocks start together, so that their phases meet the same part at once.
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
    """All that `fit.json` holds: `values`, `provenance` and `error`."""
    text = resources.files("kernelmate.measure").joinpath("fit.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


@cache
def stored_fit() -> Fit:
    """The fit that predictions are made with."""
    return Fit(**stored()["values"])
