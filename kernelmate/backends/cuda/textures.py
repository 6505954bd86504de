"""Texture and surface objects of one launch. Each array that they show is copied to a CUDA array, or to linear memory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelmate.backends.base import ArrayArgument, ScalarArgument
from kernelmate.backends.cuda.launching import device_view, object_name
from kernelmate.backends.launch_objects import Texture
from kernelmate.source import numpy_dtype

_LAYERED, _SURFACE, _GATHER = 1, 2, 8
"""`cudaArrayLayered`, `cudaArraySurfaceLoadStore` and `cudaArrayTextureGather` of `driver_types.h`."""
_KINDS = {"i": 0, "u": 1, "f": 2}
"""`cudaChannelFormatKind` by NumPy's kind of the elements."""
_ARRAY, _LINEAR = 0, 2
"""`cudaResourceTypeArray` and `cudaResourceTypeLinear`."""
_ADDRESSES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
"""`cudaTextureAddressMode`."""
_MOST_GATHERED = 32768
"""Largest extent of an array whose texels can be gathered (CUDA C++ Programming Guide, technical specifications)."""
_ON_DEVICE = 3
"""`cudaMemcpyDeviceToDevice`."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """An array with texture or surface objects: their common view of it, and its offset in the launch's memory."""

    source: Any
    held: Any
    linear: bool
    written: bool


class TextureObjects:
    """The objects of a launch, and the memory that they show; both live as long as this does.

    Args:
        arguments: the arguments of the launch.
        places: the device address of each array.

    Attributes:
        places: `places`, and the handle of each object by its `object_name`.

    Raises:
        cupy.cuda.runtime.CUDARuntimeError: an array or an object cannot be made.
    """

    def __init__(self, arguments: Iterable[ArrayArgument | ScalarArgument], places: Mapping[str, int]) -> None:
        every = tuple(arguments)
        shown = [
            (one.name, one.texture) for one in every if isinstance(one, ScalarArgument) and one.texture is not None
        ]
        arrays = {one.name: one for one in every if isinstance(one, ArrayArgument)}
        surfaces = {texture.array for _, texture in shown if texture.view.surface}
        self._storages: dict[str, _Storage] = {}
        self._objects = []
        self.places = dict(places)
        for name, texture in shown:
            if texture.array not in self._storages:
                argument = arrays[texture.array]
                written = texture.array in surfaces and argument.written
                self._storages[texture.array] = _storage(
                    texture, places[texture.array], texture.array in surfaces, written
                )
            made = _made(texture, self._storages[texture.array])
            self._objects.append(made)
            self.places[object_name(name)] = int(made.ptr)

    def fill(self, stream: Any) -> None:
        """Copies the arrays into the CUDA arrays that the objects refer to."""
        for one in self._storages.values():
            if one.linear:
                _runtime().memcpyAsync(
                    one.held.data.ptr, one.source.data.ptr, one.source.nbytes, _ON_DEVICE, stream.ptr
                )
            else:
                one.held.copy_from(one.source, stream)

    def collect(self, stream: Any) -> None:
        """Copies CUDA arrays that the kernel may have written through surfaces back to the arrays."""
        for one in self._storages.values():
            if one.written:
                one.held.copy_to(one.source, stream)

    def __bool__(self) -> bool:
        return bool(self._objects)


def _runtime() -> Any:
    from cupy.cuda import runtime

    return runtime


def _format(texture: Texture) -> Any:
    from cupy.cuda.texture import ChannelFormatDescriptor

    dtype = numpy_dtype(texture.dtype)
    bits = [8 * dtype.itemsize * (channel < texture.channels) for channel in range(4)]
    return ChannelFormatDescriptor(*bits, _KINDS[dtype.kind])


def _storage(texture: Texture, address: int, surface: bool, written: bool) -> _Storage:
    import cupy
    from cupy.cuda.texture import CUDAarray

    dtype, extents, layered = numpy_dtype(texture.dtype), texture.extents, texture.view.layered
    # CuPy copies an array whose last dimension holds all channels.
    shape = (*([texture.layers] if layered else []), *extents[:0:-1], extents[0] * texture.channels)
    source = device_view(address, shape, dtype)
    if texture.view.buffer:
        return _Storage(source, cupy.empty(shape, dtype), linear=True, written=False)
    sides = (*extents, *([texture.layers] if layered else []))
    gathered = len(extents) == 2 and not layered and not surface and max(extents) <= _MOST_GATHERED
    flags = _LAYERED * layered | _SURFACE * surface | _GATHER * gathered
    return _Storage(source, CUDAarray(_format(texture), *sides, flags=flags), linear=False, written=written)


def _made(texture: Texture, storage: _Storage) -> Any:
    """Returns the texture or surface object."""
    from cupy.cuda.texture import ResourceDescriptor, SurfaceObject, TextureDescriptor, TextureObject

    view = texture.view
    if storage.linear:
        resource = ResourceDescriptor(
            _LINEAR, arr=storage.held, chDesc=_format(texture), sizeInBytes=storage.held.nbytes
        )  # fmt: skip
    else:
        resource = ResourceDescriptor(_ARRAY, cuArr=storage.held)
    if view.surface:
        return SurfaceObject(resource)
    described = TextureDescriptor(
        [_ADDRESSES[mode] for mode in view.addresses[::-1]], int(view.linear), int(view.fraction),
        normalizedCoords=int(view.normalized),
    )  # fmt: skip
    return TextureObject(resource, described)
