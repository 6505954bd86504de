"""Tiles of tensor-core matrix products, ranked by estimated time of arithmetic and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.kernel_text import MULTIPROCESSORS, STATIC_BYTES

CHUNK = 16
"""Bytes of a `cp.async` load, and of a matrix row for `ldmatrix`."""
STEP = 32
"""Bytes along the sum's axis per row and `mma.sync`: 16 halves, 32 bytes, 8 floats."""
GROUP = 8
"""Rows of tiles that blocks process together, so that their operands stay in L2."""

BYTES_PER_CLOCK = 40
"""L2 bandwidth per multiprocessor in bytes per cycle: 5.5 to 7 TB/s for the whole GPU at 1.2 to 1.7 GHz."""
PRODUCTS_PER_CLOCK = 1200
"""Multiply-adds of halves per clock and multiprocessor by `mma.sync`: about 60 % of the 2048 by `wgmma`."""
START = 2000
"""Clock cycles until a block's first tile has arrived and to store its results."""

TURN = 100
"""Clock cycles that a warp needs for the addresses of a tile's copies, without overlapping products."""


@dataclass(frozen=True, slots=True)
class TensorTile:
    """A block's results (`m` x `n`), the 16-byte `chunks` of the sum at a time, and its warps along each axis.

    `stages` tiles of all operands are in use or in flight. Warps along `k` share each tile's part of the sum. Of results of several
    products, `lefts` and `rights` are the numbers of arrays with rows and with columns.
    """

    m: int
    n: int
    chunks: int
    warps: tuple[int, int, int]
    stages: int
    lefts: int = 1
    rights: int = 1
    products: int = 1

    @property
    def threads(self) -> int:
        """Threads per block."""
        return 32 * self.warps[0] * self.warps[1] * self.warps[2]

    @property
    def part(self) -> tuple[int, int]:
        """Returns rows and columns of a warp's results."""
        return self.m // self.warps[0], self.n // self.warps[1]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for all stages."""
        return self.stages * self.lines * self.chunks * CHUNK

    @property
    def lines(self) -> int:
        """Rows and columns of all arrays in a stage."""
        return self.lefts * self.m + self.rights * self.n

    @property
    def held(self) -> int:
        """Number of sums in a thread's registers."""
        return self.part[0] * self.part[1] // 32 * self.products

    @property
    def name(self) -> str:
        """Name of the schedule, as part of an author."""
        deep = f"-w{self.warps[0] * self.warps[1] * self.warps[2]}s{self.stages}k{self.chunks * CHUNK}"
        return f"{self.m}x{self.n}{deep}"


TILES = (
    TensorTile(256, 128, 4, (4, 2, 1), 3),
    TensorTile(128, 256, 4, (2, 4, 1), 3),
    TensorTile(256, 128, 8, (4, 2, 1), 3),
    TensorTile(128, 256, 8, (2, 4, 1), 3),
    TensorTile(128, 128, 4, (2, 2, 1), 3),
    TensorTile(128, 128, 8, (2, 2, 1), 3),
    TensorTile(128, 128, 4, (2, 4, 1), 3),
    TensorTile(128, 64, 4, (2, 2, 1), 4),
    TensorTile(64, 128, 4, (2, 2, 1), 4),
    TensorTile(64, 64, 8, (2, 2, 1), 3),
    TensorTile(64, 32, 8, (2, 1, 2), 4),
    TensorTile(32, 64, 8, (1, 2, 2), 4),
    TensorTile(32, 32, 16, (1, 1, 4), 3),
    TensorTile(16, 64, 8, (1, 1, 4), 4),
    TensorTile(16, 32, 16, (1, 1, 4), 4),
)


MOST_SUMS = 128
"""Maximum number of sums in a thread's registers: half of the registers that a thread can have."""
MOST_BYTES = 227 * 1024
"""Maximum bytes of shared memory per block of compute capability 9.0.

Source: CUDA C++ Programming Guide, technical specifications per compute capability.
"""


def ranked(
    m: int, n: int, k: int, batch: int, item: int, *, fixed: bool, arrays: tuple[int, int] = (1, 1), products: int = 1
) -> Sequence[TensorTile]:
    """Returns tiles for a product, probably fastest first.

    Args:
        m: rows of the results.
        n: their columns.
        k: elements of a sum.
        batch: number of matrices of results.
        item: bytes of an element.
        fixed: True if tiles that need dynamic shared memory are left out.
        arrays: the numbers of arrays with rows and with columns.
        products: the number of products of these that a result needs.
    """
    several = (replace(tile, lefts=arrays[0], rights=arrays[1], products=products) for tile in TILES)
    most = STATIC_BYTES if fixed else MOST_BYTES
    usable = [tile for tile in several if tile.shared_bytes <= most and tile.held <= MOST_SUMS]
    return sorted(usable, key=lambda tile: _clocks(tile, m, n, k, batch, item))


def _clocks(tile: TensorTile, m: int, n: int, k: int, batch: int, item: int) -> float:
    """Returns the estimated clock cycles of the busiest multiprocessor."""
    blocks = -(-m // tile.m) * -(-n // tile.n) * batch
    arithmetic = tile.products * tile.m * tile.n * k * item / 2 / PRODUCTS_PER_CLOCK
    traffic = tile.lines * k * item / BYTES_PER_CLOCK
    turns = TURN * k * item / (tile.chunks * CHUNK)
    rounds = -(-blocks // MULTIPROCESSORS)
    return START + rounds * (max(arithmetic, traffic) + turns + START / 4)
