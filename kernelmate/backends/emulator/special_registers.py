"""Values of special registers for each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernelmate.backends.emulator.instructions.moves import CLOCKS
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.types import Array

_AXES = {"x": 0, "y": 1, "z": 2}
_FIXED: dict[str, int] = {
    "%gridid": 0,
    "%smid": 0,
    "%nwarpid": 64,
    "%current_graph_exec": 0,
    "%aggr_smem_size": 0,
    "%reserved_smem_offset_begin": 0,
}
_LANE_MASKS: dict[str, Callable[[Array], Array]] = {
    "%lanemask_eq": lambda lane: np.uint64(1) << lane,
    "%lanemask_lt": lambda lane: (np.uint64(1) << lane) - np.uint64(1),
    "%lanemask_le": lambda lane: (np.uint64(2) << lane) - np.uint64(1),
    "%lanemask_gt": lambda lane: ~((np.uint64(2) << lane) - np.uint64(1)),
    "%lanemask_ge": lambda lane: ~((np.uint64(1) << lane) - np.uint64(1)),
}
_VECTORS = frozenset(
    {"%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"}
)
_LAUNCH = frozenset(
    {"%laneid", "%warpid", "%nsmid", "%dynamic_smem_size", "%total_smem_size", "%envreg1", "%envreg2"}
    | {"%is_explicit_cluster", "%cluster_ctarank", "%cluster_nctarank"}
)


def is_known(name: str) -> bool:
    """True if the emulator has the register."""
    base, _, axis = name.partition(".")
    if axis:
        return base in _VECTORS and axis in _AXES
    return name in _FIXED or name in _LANE_MASKS or name in _LAUNCH or name in CLOCKS or name.startswith("%envreg")


class Specials:
    """The special registers of one launch: arrays over the lanes where lanes differ, else numbers.

    `explicit` is 1 if the launch or the kernel gives the shape of a cluster. `workspace` is the address of the grid's
    barrier variable; zero if the launch is not cooperative. `chosen` are values of `LaunchEnvironment.specials`.
    """

    def __init__(
        self, lanes: Lanes, sms: int, shared_bytes: int, dynamic_bytes: int, workspace: int, explicit: int,
        chosen: Mapping[str, tuple[int, int, int]],
    ) -> None:  # fmt: skip
        self._chosen = {name: (np.zeros(lanes.count, np.uint64), values) for name, values in chosen.items()}
        self._lanes = lanes
        self._numbers = {
            **_FIXED,
            "%nsmid": sms,
            "%is_explicit_cluster": explicit,
            "%cluster_nctarank": lanes.cluster_blocks,
            "%dynamic_smem_size": dynamic_bytes,
            "%total_smem_size": shared_bytes,
            "%envreg1": workspace >> 32,
            "%envreg2": workspace & 0xFFFFFFFF,
        }

    def read(self, name: str) -> Array | int:
        """Returns the values that lanes read from a register."""
        base, _, axis = name.partition(".")
        lanes = self._lanes
        if name in self._chosen:
            return self._chosen[name][0]
        if axis:
            return self._vector(base, _AXES[axis])
        if name in _LANE_MASKS:
            return _LANE_MASKS[name](lanes.lane.astype(np.uint64)).astype(np.uint32)
        if name == "%laneid":
            return lanes.lane
        if name == "%cluster_ctarank":
            return lanes.cluster_rank if lanes.cluster_blocks > 1 else 0
        if name == "%warpid":
            return (lanes.thread >> 5).astype(np.uint32)
        return self._numbers.get(name, 0)

    def begin(self) -> None:
        """Fills in values that depend on the blocks of a batch."""
        lanes = self._lanes
        for name, (array, (first, step, limit)) in self._chosen.items():
            number = first + (lanes.thread >> 5 if name == "%warpid" else lanes.block) * step
            array[:] = number.astype(np.uint64) % np.uint64(limit)

    def _vector(self, base: str, axis: int) -> Array | int:
        lanes = self._lanes
        if base == "%tid":
            return lanes.thread_index[axis] if lanes.block_shape[axis] > 1 else 0
        if base == "%ctaid" or (base == "%clusterid" and lanes.cluster_blocks == 1):
            # An array even of one block, so that launches of other grids run the same compiled program.
            return lanes.block_index[axis]
        if base == "%clusterid":
            return lanes.cluster_id[axis]
        if base == "%cluster_ctaid":
            return lanes.cluster_index[axis] if lanes.cluster[axis] > 1 else 0
        sides = {
            "%ntid": lanes.block_shape,
            "%nctaid": lanes.grid_shape,
            "%nclusterid": lanes.cluster_grid,
            "%cluster_nctaid": lanes.cluster,
        }
        return sides[base][axis]
