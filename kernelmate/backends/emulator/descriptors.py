"""Matrices in shared memory as `wgmma` reads them: descriptors, canonical layouts and swizzles.

Source: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Shared Memory SharedLayout", with its sections "Canonical Layouts" and
"Matrix Descriptor Format". A matrix has rows (of A; columns of B) along MN and 32 bytes along K. It consists of chunks of 16
bytes, which are adjacent along K (K-major) or along MN (MN-major). Eight lines of chunks form the repeating pattern of a
swizzle: bits 4 to 6 of an address, or the lower ones of them, are XORed with the bits from 7 on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.types import Array

CHUNK = 16
"""Bytes that are adjacent in every layout."""
_LINES = 8
_INNER_CHUNKS = 2
"""Chunks of a K-major matrix along K."""
_CHUNKS_OF_MODE = (1, 8, 4, 2)
"""Chunks in a line of the pattern by swizzle mode: none, 128, 64 and 32 bytes."""
_ENCODED = (1 << 14) - 1
_START_BITS = 14
_ADDRESS_BITS = 18


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A descriptor's fields without the start address.

    Attributes:
        leading, stride: byte offsets.
        base: phase of the swizzle at the start of its pattern.
        mode: swizzle mode, the index into `_CHUNKS_OF_MODE`.
    """

    leading: int
    stride: int
    base: int
    mode: int

    @staticmethod
    def of(descriptor: int) -> SharedLayout:
        """Returns the layout that a descriptor describes."""
        leading, stride = ((descriptor >> at & _ENCODED) * CHUNK for at in (16, 32))
        return SharedLayout(leading, stride, descriptor >> 49 & 7, descriptor >> 62)

    def offsets(self, extent: int, lines: int, *, transposed: bool) -> Array:
        """Returns the byte offset of each chunk from the start of a matrix, before swizzling.

        Args:
            extent: elements along MN.
            lines: elements along K of an MN-major matrix, which has a line of chunks for each.
            transposed: the matrix is MN-major.

        Returns:
            (extent, 2) offsets if K-major, (lines, extent / 8) if MN-major.
        """
        width = _CHUNKS_OF_MODE[self.mode]
        if not transposed:
            row, chunk = np.arange(extent)[:, None], np.arange(_INNER_CHUNKS)
            along = self.leading if self.mode == 0 else CHUNK
            return np.asarray(row % _LINES * (width * CHUNK) + row // _LINES * self.stride + chunk * along)
        line, chunk = np.arange(lines)[:, None], np.arange(extent // 8)
        # Without a swizzle the two offsets have changed places.
        outer, eighth = (self.stride, self.leading) if self.mode == 0 else (self.leading, self.stride)
        within = line % _LINES * (width * CHUNK) + line // _LINES * eighth
        return np.asarray(within + chunk % width * CHUNK + chunk // width * outer)

    def swizzled(self, addresses: Array) -> Array:
        """Returns the addresses at which the chunks at some addresses of the unswizzled layout are."""
        mask = _CHUNKS_OF_MODE[self.mode] - 1
        phase = ((addresses >> 7) - self.base) & mask
        return np.asarray(addresses ^ (phase << 4))


def addresses_of(descriptors: Array, extent: int, lines: int, *, transposed: bool) -> Array:
    """Returns the shared-memory addresses of all chunks of some matrices, as `SharedLayout.offsets` orders them.

    Returns:
        (matrices, rows, chunks) addresses in bytes, for 64-bit descriptors, one a matrix.
    """
    starts = (descriptors & np.uint64(_ENCODED)).astype(np.int64) * CHUNK
    fields, which = np.unique(descriptors >> np.uint64(_START_BITS), return_inverse=True)
    shape = (lines, extent // 8) if transposed else (extent, _INNER_CHUNKS)
    found = np.empty((len(descriptors), *shape), np.int64)
    for number, field in enumerate(fields):
        layout = SharedLayout.of(int(field) << _START_BITS)
        chosen = which == number
        offsets = layout.offsets(extent, lines, transposed=transposed)
        addresses = (starts[chosen, None, None] + offsets) & ((1 << _ADDRESS_BITS) - 1)
        found[chosen] = layout.swizzled(addresses)
    return found
