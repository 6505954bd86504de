"""Launch arguments as CuPy takes them, and launches in clusters by the driver, for which CuPy has no call."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelmate.backends.base import ArrayArgument, ScalarArgument, with_addresses
from kernelmate.backends.launch_objects import TENSOR_MAP_BYTES, TensorMap, tensor_element
from kernelmate.records import LaunchShape
from kernelmate.source import numpy_dtype

Array = npt.NDArray[Any]

COOPERATIVE, CLUSTER_DIMENSION = 2, 4
"""`CU_LAUNCH_ATTRIBUTE_COOPERATIVE` and `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION` of `cuda.h`."""

NON_PORTABLE_CLUSTER = 14
"""`CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED` of `cuda.h`."""

_MAP_ADDRESS = 64

PORTABLE_BLOCKS = 8
"""Cluster size in blocks that every GPU with clusters supports (CUDA C++ Programming Guide, thread block clusters)."""


def numpy_scalar(argument: ScalarArgument, places: Mapping[str, int]) -> Any:
    """Returns a scalar with the same bits in a NumPy dtype: CuPy knows neither bfloat16 nor float8.

    A struct gives its bytes, in which `places` has the addresses of arrays, a tensor map those that the driver makes, and a
    texture or surface its handle, which `places` has by its `object_name`.

    Raises:
        cupy.cuda.driver.CUDADriverError: the driver refuses the tensor map.
    """
    value = argument.value
    if argument.tensor_map is not None:
        return _bytes_by_value(encoded_map(argument.tensor_map, places[argument.tensor_map.array]))
    if argument.texture is not None:
        return np.uint64(places[object_name(argument.name)])
    if type(value) is np.void or argument.addresses:
        raw = np.frombuffer(value.tobytes(), np.uint8).copy()
        with_addresses(raw, argument.addresses, places)
        return _bytes_by_value(raw) if type(value) is np.void else raw.view(np.uint64)[0]
    if value.dtype.kind in "biufc":
        return value
    bits = value.tobytes()
    return np.uint8(bits[0]) if len(bits) == 1 else np.uint16(int.from_bytes(bits, sys.byteorder))


def object_name(argument: str) -> str:
    """Returns the name of a texture or surface object, which differs from the name of its array."""
    return f"{argument} (object)"


def _bytes_by_value(raw: Array) -> Array:
    """Returns bytes as CuPy passes them by value: an array of a single element."""
    return raw.view(np.dtype([("bytes", np.uint8, (raw.size,))])).reshape(())


_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""`CUtensorMapSwizzle` of `cuda.h` by the bytes of the swizzled span."""


def encoded_map(tensor_map: TensorMap, address: int) -> Array:
    """Returns the 128 bytes of a tensor map of an array at a device address, by `cuTensorMapEncodeTiled`.

    Without interleaving and promotion to larger L2 requests, which change no result.

    Raises:
        cupy.cuda.driver.CUDADriverError: the driver refuses it.
    """
    import cupy

    item = numpy_dtype(tensor_map.dtype).itemsize
    rank = len(tensor_map.extents)
    # The driver takes an address that is a multiple of 64.
    held = np.zeros(TENSOR_MAP_BYTES + _MAP_ADDRESS, np.uint8)
    start = -held.ctypes.data % _MAP_ADDRESS
    raw = held[start : start + TENSOR_MAP_BYTES]
    strides = tensor_map.pitches(item)[1:]
    cupy.cuda.driver.check_status(
        _driver_library().cuTensorMapEncodeTiled(
            ctypes.c_void_p(raw.ctypes.data), tensor_element(tensor_map.dtype, item), rank, ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*tensor_map.extents), (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint32 * rank)(*tensor_map.box), (ctypes.c_uint32 * rank)(*tensor_map.steps),
            0, _SWIZZLES[tensor_map.swizzle], 0, int(tensor_map.nan_fill),
        )
    )  # fmt: skip
    return raw.copy()


def _driver_library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def launched_arguments(
    arguments: Sequence[ArrayArgument | ScalarArgument], places: Mapping[str, int]
) -> tuple[Any, ...]:
    """Returns one value for each kernel parameter: addresses for arrays, and scalars as `numpy_scalar` gives them.

    Args:
        arguments: the arguments of the launch.
        places: the device address of each array that is in memory of its own.
    """
    return tuple(
        np.uint64(places[item.name]) if isinstance(item, ArrayArgument) else numpy_scalar(item, places)
        for item in arguments
        if not isinstance(item, ArrayArgument) or item.passed
    )


def device_view(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Returns device memory as a CuPy array."""
    import cupy

    size = math.prod(shape) * dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, max(size, 1), None)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def content_of(argument: ArrayArgument, places: Mapping[str, int]) -> Any:
    """Returns the contents of an array, with the addresses that it has to hold."""
    if not argument.addresses:
        return argument.data
    content = np.ascontiguousarray(argument.data).copy()
    with_addresses(content.reshape(-1).view(np.uint8), argument.addresses, places)
    return content


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute` of `cuda.h`: an id, and a union of 64 bytes at offset 8."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` of `cuda.h`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


def config_for(shape: LaunchShape, stream: int) -> LaunchConfig:
    """Returns the driver's launch configuration; `shape.cluster` has up to three dimensions, missing ones are 1."""
    attributes = (LaunchAttribute * 2)()
    attributes[0].id = CLUSTER_DIMENSION
    for axis, blocks in enumerate((*(shape.cluster or ()), 1, 1, 1)[:3]):
        attributes[0].value[axis] = blocks
    attributes[1].id = COOPERATIVE
    attributes[1].value[0] = 1
    return LaunchConfig(
        (ctypes.c_uint * 3)(*shape.grid), (ctypes.c_uint * 3)(*shape.block), shape.shared_bytes, stream, attributes,
        2 if shape.cooperative else 1,
    )  # fmt: skip


def launch_in_clusters(function: Any, shape: LaunchShape, arguments: Sequence[Any], stream: int) -> None:
    """Launches a cupy.RawKernel with the clusters of `shape`.

    Args:
        function: the kernel, prepared for the launch's shared memory.
        shape: its grid is a multiple of the cluster in every dimension.
        arguments: one NumPy scalar or struct for each parameter; addresses are integers.
        stream: the stream's handle.

    Raises:
        cupy.cuda.driver.CUDADriverError: the driver refuses the launch.
    """
    import cupy

    handle = function.kernel.ptr
    if math.prod(shape.cluster or ()) > PORTABLE_BLOCKS:
        cupy.cuda.driver.funcSetAttribute(handle, NON_PORTABLE_CLUSTER, 1)
    values = [np.atleast_1d(value) for value in arguments]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*(value.ctypes.data for value in values))
    library = _driver_library()
    config = config_for(shape, stream)
    cupy.cuda.driver.check_status(
        library.cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(handle), pointers, None)
    )
