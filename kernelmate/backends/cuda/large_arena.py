"""Device memory of a large launch: like `Arena`, without copies in host memory.

Arrays come from the GPU, the host, or a fill byte, and guard bands and inputs are compared on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument
from kernelmate.backends.cuda.arena import SCRUB, bands_of, place, random_bytes, written_around
from kernelmate.backends.cuda.exchange import fill_byte
from kernelmate.backends.cuda.launching import content_of
from kernelmate.records import Finding

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""`cudaMemcpyHostToDevice`, `cudaMemcpyDeviceToHost`, `cudaMemcpyDeviceToDevice`."""

HASHED_WORDS = 1 << 23
"""Words hashed per step: temporaries take sixteen bytes for each."""

Take = Callable[[ArrayArgument, int], Any]
"""Function that makes an argument's contents after the launch from their address on the device."""


class LargeArena:
    """One allocation that holds all arrays of a large launch.

    Args:
        arguments: NumPy arrays, CuPy arrays, or results of `exchange.filled`.
        seed: seed of order and distances; 0 keeps the given order.
        take: reads the contents afterwards; None returns arrays of the argument's module.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: the device has too little memory.
    """

    def __init__(self, arguments: Sequence[ArrayArgument], seed: int, take: Take | None = None) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        self._stream = cupy.cuda.get_current_stream()
        self._take = take or self._copied
        self.spans, self._size = place(arguments, seed)
        self._memory = cupy.cuda.alloc(self._size)
        self._bands = [(start, random_bytes(end - start)) for start, end in bands_of(self.spans.values(), self._size)]
        for start, band in self._bands:
            self._copy(self._memory.ptr + start, band.ctypes.data, band.nbytes, TO_DEVICE)
        for span in self.spans.values():
            self._fill(span.argument, self._memory.ptr + span.start)
        self._hashes = {name: self._hash(name) for name, span in self.spans.items() if not span.argument.written}

    def address(self, name: str) -> int:
        """Device address of an argument."""
        return int(self._memory.ptr) + self.spans[name].start

    def read(self) -> tuple[dict[str, Any], tuple[Finding, ...]]:
        """Return the arrays after the launch, and a finding for each with damaged guard bands.

        An unmodified input is returned as the given object.
        """
        arrays = {}
        for name, span in self.spans.items():
            kept = name in self._hashes and self._hash(name) == self._hashes[name]
            arrays[name] = span.argument.data if kept else self._take(span.argument, self.address(name))
        places = []
        for start, band in self._bands:
            after = np.empty_like(band)
            self._copy(after.ctypes.data, self._memory.ptr + start, band.nbytes, TO_HOST)
            self._stream.synchronize()
            places.append(start + np.flatnonzero(after != band))
        return arrays, written_around(self.spans, np.concatenate(places))

    def scrub(self) -> None:
        """Overwrites everything, so that later launches find no data of this one."""
        self._runtime.memsetAsync(self._memory.ptr, SCRUB, self._size, self._stream.ptr)

    def _fill(self, argument: ArrayArgument, to: int) -> None:
        data, byte = argument.data, None if argument.addresses else fill_byte(argument.data)
        if argument.addresses:
            data = content_of(argument, {name: self.address(name) for name in self.spans})
        if not data.nbytes:
            return
        if byte is not None:
            self._runtime.memsetAsync(to, byte, data.nbytes, self._stream.ptr)
        elif isinstance(data, np.ndarray):
            held = np.ascontiguousarray(data)
            self._copy(to, held.ctypes.data, held.nbytes, TO_DEVICE)
            if held is not argument.data:
                self._stream.synchronize()
        else:
            self._copy(to, data.data.ptr, data.nbytes, ON_DEVICE)

    def _copied(self, argument: ArrayArgument, address: int) -> Any:
        import cupy

        data = argument.data
        if isinstance(data, np.ndarray) and not argument.device:
            made: Any = np.empty(data.shape, data.dtype)
            self._copy(made.ctypes.data, address, made.nbytes, TO_HOST)
        else:
            made = cupy.empty(data.shape, data.dtype)
            self._copy(made.data.ptr, address, made.nbytes, ON_DEVICE)
        self._stream.synchronize()
        return made

    def _copy(self, to: int, source: int, count: int, kind: int) -> None:
        if count:
            self._runtime.memcpyAsync(to, source, count, kind, self._stream.ptr)

    def _hash(self, name: str) -> int:
        """Returns a hash of an argument's bytes that any change alters."""
        import cupy

        span = self.spans[name]
        words, total = span.argument.data.nbytes // 4, 0
        held = cupy.ndarray((words,), cupy.uint32, memptr=self._memory + span.start)
        for start in range(0, words, HASHED_WORDS):
            part = held[start : start + HASHED_WORDS].astype(cupy.uint64)
            part += cupy.arange(start + 1, start + 1 + part.size, dtype=cupy.uint64) << np.uint64(32)
            part *= np.uint64(0x9E3779B97F4A7C15)
            part ^= part >> np.uint64(29)
            part *= np.uint64(0xBF58476D1CE4E5B9)
            part ^= part >> np.uint64(32)
            total += int(part.sum())
        rest = span.argument.data.nbytes - 4 * words
        if rest:
            tail = np.empty(rest, np.uint8)
            self._copy(tail.ctypes.data, self.address(name) + 4 * words, rest, TO_HOST)
            self._stream.synchronize()
            total = total * 256**rest + int.from_bytes(tail.tobytes(), "little")
        return total
