"""The device memory of one launch: every array between guard bands, at addresses that differ from run to run.

`Arena` keeps copies in host memory. `LargeArena` keeps none: arrays come from the GPU, the host, or a fill byte, and
guard bands and inputs are compared on the device.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.base import GUARD_BYTES, ArrayArgument, with_addresses
from kernelmate.backends.cuda.exchange import fill_byte
from kernelmate.backends.cuda.launching import content_of
from kernelmate.records import Finding, FindingCode

ALIGNMENT = 256
"""Alignment in bytes of cudaMalloc's allocations, on which kernels may rely."""

SCRUB = 0x3C
"""The byte that overwrites memory before another launch may get it."""

MOST_STEPS = 64
"""Maximum number of random alignment steps before each array, so that its address seldom repeats."""


@dataclass(frozen=True, slots=True)
class ArenaSpan:
    """Place of an argument's bytes in the arena: `start` is past the guard band and the misalignment."""

    argument: ArrayArgument
    start: int

    @property
    def end(self) -> int:
        """The offset one past the array's last byte."""
        return self.start + self.argument.data.nbytes


class Arena:
    """One allocation that holds all arrays of a launch.

    Guard bands of at least `GUARD_BYTES` surround each array, so that a slightly out-of-bounds write is detected and
    harms nothing else. Bands hold random bytes that differ in each run, so no kernel can restore them. Order and
    distances follow the seed.

    Args:
        arguments: the arrays, copied to the device here.
        seed: the seed of order and distances; 0 keeps the given order.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: the device has too little memory.
    """

    def __init__(self, arguments: Sequence[ArrayArgument], seed: int) -> None:
        import cupy

        self.spans, size = array_offsets(arguments, seed)
        self._host = np.empty(size, np.uint8)
        self._bands = gaps_of(self.spans.values(), size)
        for start, end in self._bands:
            self._host[start:end] = random_bytes(end - start)
        for span in self.spans.values():
            self._host[span.start : span.end] = _bytes_of(span.argument.data)
        self.device: Any = cupy.empty(size, cupy.uint8)
        places = {name: self.address(name) for name in self.spans}
        for span in self.spans.values():
            with_addresses(self._host[span.start : span.end], span.argument.addresses, places)
        self.device.set(self._host)

    def address(self, name: str) -> int:
        """Device address of an argument."""
        return int(self.device.data.ptr) + self.spans[name].start

    def restore(self) -> None:
        """Resets every byte to its value from before the launch."""
        self.device.set(self._host)

    def scrub(self) -> None:
        """Overwrites everything, so that later launches find no data of this one."""
        self.device.fill(SCRUB)

    def read(self) -> tuple[dict[str, np.ndarray[Any, Any]], tuple[Finding, ...]]:
        """Returns the arrays after the launch, and a finding for each with writes around it."""
        after = self.device.get()
        arrays = {
            name: after[span.start : span.end].view(span.argument.data.dtype).reshape(span.argument.data.shape).copy()
            for name, span in self.spans.items()
        }
        places = [start + np.flatnonzero(after[start:end] != self._host[start:end]) for start, end in self._bands]
        return arrays, written_around(self.spans, np.concatenate(places))


@functools.cache
def _random() -> np.random.Generator:
    """Creates a random generator seeded by the system; much faster than reading random bytes from the system."""
    return np.random.Generator(np.random.SFC64())


def random_bytes(count: int) -> np.ndarray[Any, Any]:
    """Returns unpredictable bytes."""
    return np.frombuffer(_random().bytes(count), np.uint8)


def _bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array's bytes, without copying if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def gaps_of(spans: Iterable[ArenaSpan], size: int) -> tuple[tuple[int, int], ...]:
    """Returns start and end of every gap between arrays in an arena of `size` bytes, ascending."""
    ordered = sorted(spans, key=lambda span: span.start)
    starts = (0, *(span.end for span in ordered))
    ends = (*(span.start for span in ordered), size)
    return tuple(zip(starts, ends, strict=True))


def array_offsets(arguments: Sequence[ArrayArgument], seed: int) -> tuple[dict[str, ArenaSpan], int]:
    """Returns the offset of each array by name, in bytes, and the total bytes."""
    order, draw = list(arguments), random.Random(seed)  # noqa: S311 -- places, no secrets
    if seed:
        draw.shuffle(order)
    at, spans = 0, {}
    for argument in order:
        at += GUARD_BYTES + (ALIGNMENT * draw.randrange(MOST_STEPS) if seed else 0)
        at = -(-at // ALIGNMENT) * ALIGNMENT
        spans[argument.name] = ArenaSpan(argument, at + argument.misalign * argument.data.itemsize)
        at = spans[argument.name].end
    return spans, at + GUARD_BYTES + ALIGNMENT


def written_around(spans: Mapping[str, ArenaSpan], places: np.ndarray[Any, Any]) -> tuple[Finding, ...]:
    """Returns a finding for each array with written bytes next to it; `places` are offsets of written bytes, ascending."""
    findings: dict[str, Finding] = {}
    for place in places[:4096].tolist():
        span = min(spans.values(), key=lambda s: max(s.start - place, place - s.end + 1))
        name, size = span.argument.name, span.argument.data.nbytes
        if name in findings:
            continue
        offset = (place - span.start) // span.argument.data.itemsize * span.argument.data.itemsize
        where = f"{-offset} bytes before it" if offset < 0 else f"{offset - size} bytes behind its end"
        findings[name] = Finding(
            FindingCode.OUT_OF_BOUNDS_WRITE,
            "error",
            f"a write next to {name} ({size} bytes), {where}",
            buffer=name,
            offset=offset,
        )
    return tuple(findings.values())


TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""`cudaMemcpyHostToDevice`, `cudaMemcpyDeviceToHost`, `cudaMemcpyDeviceToDevice`."""

HASHED_WORDS = 1 << 23
"""Words hashed per step: temporaries take sixteen bytes for each."""

Take = Callable[[ArrayArgument, int], Any]
"""Function that makes an argument's contents after the launch from their address on the device."""


class LargeArena:
    """One allocation that holds all arrays of a large launch.

    Args:
        arguments: NumPy arrays, CuPy arrays, or results of `exchange.filled_array`.
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
        self.spans, self._size = array_offsets(arguments, seed)
        self._memory = cupy.cuda.alloc(self._size)
        self._bands = [(start, random_bytes(end - start)) for start, end in gaps_of(self.spans.values(), self._size)]
        for start, band in self._bands:
            self._copy(self._memory.ptr + start, band.ctypes.data, band.nbytes, TO_DEVICE)
        for span in self.spans.values():
            self._fill(span.argument, self._memory.ptr + span.start)
        self._hashes = {name: self._hash(name) for name, span in self.spans.items() if not span.argument.written}

    def address(self, name: str) -> int:
        """Device address of an argument."""
        return int(self._memory.ptr) + self.spans[name].start

    def read(self) -> tuple[dict[str, Any], tuple[Finding, ...]]:
        """Returns the arrays after the launch, and a finding for each with damaged guard bands.

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
