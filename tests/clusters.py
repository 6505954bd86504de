"""The kernels of tests/data/clusters, which use the shared memory of a cluster, and one launch of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.records import LaunchShape

FILES = sorted((Path(__file__).parent / "data" / "clusters").glob("*.cu"))


def launches() -> dict[str, Run]:
    """Returns one launch of each kernel, by its file's stem."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(12, 512)).astype(np.float32)
    rows = (
        ArrayArgument("x", values, written=False), ArrayArgument("y", np.zeros_like(values)),
        ScalarArgument("cols", np.int32(512)),
    )  # fmt: skip
    bins, numbers = 1024, rng.integers(0, 1024, 20000).astype(np.int32)
    counted = (
        ArrayArgument("x", numbers, written=False), ArrayArgument("counts", np.zeros(bins, np.int32)),
        ScalarArgument("n", np.int32(numbers.size)), ScalarArgument("bins", np.int32(bins)),
    )  # fmt: skip
    handed = (
        ArrayArgument("x", numbers[:1024].reshape(4, 4, 64), written=False), ArrayArgument("y", np.zeros((4, 4, 64), np.int32)),
        ArrayArgument("total", np.zeros(4, np.int32)),
    )  # fmt: skip
    return {
        "histogram": Run(LaunchShape((16, 1, 1), (128, 1, 1), bins), counted),
        "ring": Run(LaunchShape((16, 1, 1), (64, 1, 1)), handed),
        "softmax": Run(LaunchShape((2, 12, 1), (256, 1, 1), cluster=(2,)), rows),
        "stencil": Run(LaunchShape((4, 12, 1), (128, 1, 1), cluster=(4,)), rows),
    }
