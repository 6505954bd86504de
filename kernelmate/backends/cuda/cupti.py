"""Kernel durations from CUPTI's activity records, by ctypes.

CUPTI comes with the wheel nvidia-cuda-cupti and with the CUDA toolkit. Activity records need no permission to read
hardware counters. Only the first 76 bytes of a record are read, which are equal in `CUpti_ActivityKernel9` (CUDA 12.9),
`CUpti_ActivityKernel10` (13.0) and `CUpti_ActivityKernel13` (13.5), checked by `offsetof` on each release's
`cupti_activity.h`; each record is validated by its grid and block, which must be those launched.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernelmate.backends.timed import CuptiUnavailable
from kernelmate.records import LaunchShape

CONCURRENT_KERNEL = 10
"""`CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`, which does not serialise kernels."""

FLUSH_FORCED = 1
"""`CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: also returns buffers that are not full."""

BUFFER_BYTES = 1 << 20
"""Bytes of one record buffer; a record takes about 200."""

MULTIPLE_SUBSCRIBERS = 39
"""`CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED` of `cupti_result.h`."""

FIELDS = {
    "kind": ("<u4", 0),
    "start": ("<u8", 16),
    "end": ("<u8", 24),
    "stream": ("<u4", 48),
    "grid": (("<i4", 3), 52),
    "block": (("<i4", 3), 64),
}
"""Fields read from a kernel's record: type and offset in bytes. Times are nanoseconds."""

READ_BYTES = 76

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def record_dtype(stride: int) -> np.dtype[Any]:
    """Returns the dtype of the read part of records that lie `stride` bytes apart."""
    return np.dtype(
        {
            "names": list(FIELDS),
            "formats": [form for form, _ in FIELDS.values()],
            "offsets": [offset for _, offset in FIELDS.values()],
            "itemsize": stride,
        }
    )


def durations_of(records: np.ndarray[Any, Any], shapes: Sequence[LaunchShape]) -> np.ndarray[Any, Any]:
    """Returns the microseconds of each launch, in the order of `shapes`, which is the launch order.

    Args:
        records: one for each launch, as `record_dtype` has them, in any order.
        shapes: grid and block of each launch.

    Raises:
        CuptiUnavailable: there are more or fewer records than launches, one has no time stamps, or one is of another launch.
    """
    if len(records) != len(shapes):
        raise CuptiUnavailable(f"CUPTI reported {len(records)} kernels, but {len(shapes)} were launched")
    records = records[np.argsort(records["start"], kind="stable")]
    grids = np.array([shape.grid for shape in shapes], np.int32).reshape(-1, 3)
    blocks = np.array([shape.block for shape in shapes], np.int32).reshape(-1, 3)
    if not (np.array_equal(records["grid"], grids) and np.array_equal(records["block"], blocks)):
        raise CuptiUnavailable("CUPTI's records are not those of the launches that were made")
    if not bool(((records["start"] > 0) & (records["end"] > records["start"])).all()):
        raise CuptiUnavailable("CUPTI gave no time stamps")
    return np.asarray((records["end"] - records["start"]).astype(np.float64) / 1e3)


class Tracer:
    """Collects the records of every kernel that this process launches while it is on.

    There is one per process, since CUPTI has one set of callbacks: `tracer()` returns it.

    Attributes:
        is_on: True while records are collected.

    Raises:
        CuptiUnavailable: CUPTI is absent, does not fit the driver, or is taken by a profiler.
    """

    def __init__(self) -> None:
        self._library = load()
        self.is_on = False
        self._lock = threading.Lock()
        self._filled: list[tuple[Any, int]] = []
        self._given: dict[int, Any] = {}
        self._spare: list[Any] = []
        # CUPTI calls these from its own thread for the life of the process.
        self._requested, self._completed = _Requested(self._give), _Completed(self._take)
        self._check(self._library.cuptiActivityRegisterCallbacks(self._requested, self._completed))

    def on(self) -> None:
        """Starts collecting; does nothing if already on.

        Raises:
            CuptiUnavailable: CUPTI refuses.
        """
        if not self.is_on:
            self._check(self._library.cuptiActivityEnable(CONCURRENT_KERNEL))
            self.is_on = True

    def off(self) -> None:
        """Stops collecting, so that launches have no tracing overhead.

        Raises:
            CuptiUnavailable: CUPTI refuses.
        """
        if self.is_on:
            self.is_on = False
            self._check(self._library.cuptiActivityDisable(CONCURRENT_KERNEL))

    def records(self, expected: int) -> np.ndarray[Any, Any]:
        """Returns the records since the last call, of kernels that have ended; the caller must have waited for them.

        Args:
            expected: expected number; if some are missing, CUPTI is also asked for unfinished buffers.

        Raises:
            CuptiUnavailable: CUPTI failed.
        """
        parts: list[np.ndarray[Any, Any]] = []
        for flags in (0, FLUSH_FORCED):
            self._check(self._library.cuptiActivityFlushAll(flags))
            with self._lock:
                filled, self._filled = self._filled, []
            for buffer, valid in filled:
                parts.extend(self._read(buffer, valid))
                with self._lock:
                    self._spare.append(buffer)
            if sum(map(len, parts)) >= expected:
                break
        return concatenated_records(parts)

    def _read(self, buffer: Any, valid: int) -> Iterable[np.ndarray[Any, Any]]:
        """Returns the kernels' records in one buffer."""
        at = ctypes.c_void_p()
        places: list[int] = []
        base = ctypes.addressof(buffer)
        while len(places) < 2 and self._next(buffer, valid, at):
            places.append((at.value or base) - base)
        raw = np.frombuffer(buffer, np.uint8, valid)
        stride = places[1] - places[0] if len(places) == 2 else valid
        if stride >= READ_BYTES and valid % stride == 0:
            alike = raw.view(record_dtype(stride))
            if bool((alike["kind"] == CONCURRENT_KERNEL).all()):
                yield copied_fields(alike)
                return
        at = ctypes.c_void_p()
        while self._next(buffer, valid, at):
            one = raw[(at.value or base) - base :][:READ_BYTES]
            record = one.view(record_dtype(READ_BYTES)) if len(one) == READ_BYTES else None
            if record is not None and record["kind"][0] == CONCURRENT_KERNEL:
                yield copied_fields(record)

    def _next(self, buffer: Any, valid: int, at: ctypes.c_void_p) -> bool:
        return bool(self._library.cuptiActivityGetNextRecord(buffer, ctypes.c_size_t(valid), ctypes.byref(at)) == 0)

    def _give(self, buffer: Any, size: Any, most: Any) -> None:
        with self._lock:
            memory = self._spare.pop() if self._spare else (ctypes.c_uint64 * (BUFFER_BYTES // 8))()
            address = ctypes.addressof(memory)
            self._given[address] = memory
        buffer[0], size[0], most[0] = address, BUFFER_BYTES, 0

    def _take(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        with self._lock:
            self._filled.append((self._given.pop(buffer), valid))

    def _check(self, status: int) -> None:
        if status == 0:
            return
        name = ctypes.c_char_p()
        self._library.cuptiGetResultString(status, ctypes.byref(name))
        words = (name.value or b"").decode(errors="replace") or str(status)
        if status == MULTIPLE_SUBSCRIBERS:
            words += ": a profiler uses it already"
        raise CuptiUnavailable(f"CUPTI refuses ({words})")


def copied_fields(records: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns a contiguous copy of the fields that are read."""
    packed = np.empty(len(records), record_dtype(READ_BYTES))
    for name in FIELDS:
        packed[name] = records[name]
    return packed


def concatenated_records(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Returns the records of several buffers as one array."""
    return np.concatenate(parts) if parts else np.empty(0, record_dtype(READ_BYTES))


def load() -> ctypes.CDLL:
    """Loads the library, wherever it was installed.

    Raises:
        CuptiUnavailable: it is absent, or older than CUDA 12.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cupti").abs_path
    except Exception as error:
        raise CuptiUnavailable("CUPTI is absent (install nvidia-cuda-cupti of the driver's CUDA)") from error
    library = ctypes.CDLL(path)
    library.cuptiActivityGetNextRecord.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    library.cuptiGetResultString.argtypes = (ctypes.c_int, ctypes.c_void_p)
    return library


@functools.cache
def tracer() -> Tracer:
    """Returns this process's tracer.

    Raises:
        CuptiUnavailable: CUPTI is unavailable.
    """
    return Tracer()
