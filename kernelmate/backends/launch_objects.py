"""Objects that a launch gets in place of an array: tensor maps, textures and surfaces."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.records import TextureView


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map (`CUtensorMap`) of a whole array. All tuples have the fastest dimension first.

    Attributes:
        array: name of the array.
        dtype: its dtype, as contracts name it.
        extents: elements of each dimension, one to five.
        box: elements of each dimension that one copy spans.
        steps: distance between copied elements of the box in each dimension; the first is 1.
        swizzle: bytes of the swizzled span of shared memory: 32, 64 or 128; 0 for none.
        nan_fill: elements outside of the array are NaN instead of zero.
    """

    array: str
    dtype: str
    extents: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    nan_fill: bool = False

    def pitches(self, item_bytes: int) -> tuple[int, ...]:
        """Returns the bytes from one element to the next in each dimension."""
        found = [item_bytes]
        for extent in self.extents[:-1]:
            found.append(found[-1] * extent)
        return tuple(found)


TENSOR_MAP_BYTES = 128
"""Bytes of a `CUtensorMap` (cuda.h)."""


_TENSOR_ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16",
)  # fmt: skip
"""Element types in the order of `CUtensorMapDataType` (cuda.h)."""


def tensor_element(dtype: str, item_bytes: int) -> int:
    """Returns the `CUtensorMapDataType` of a dtype; the unsigned integer of its size where it has none."""
    unsigned = f"uint{8 * item_bytes}"
    return _TENSOR_ELEMENTS.index(dtype if dtype in _TENSOR_ELEMENTS else unsigned)


@dataclass(frozen=True, slots=True)
class Texture:
    """A texture or surface object (`cudaTextureObject_t`, `cudaSurfaceObject_t`) of a whole array.

    Attributes:
        array: name of the array.
        dtype: its dtype, as contracts name it.
        shape: its shape.
        view: how the object shows it.
    """

    array: str
    dtype: str
    shape: tuple[int, ...]
    view: TextureView

    @property
    def extents(self) -> tuple[int, ...]:
        """Texels of each coordinate, x first."""
        return self.view.extents(self.shape)[::-1]

    @property
    def channels(self) -> int:
        """Elements of a texel."""
        return self.shape[-1] if self.view.channels else 1

    @property
    def layers(self) -> int:
        """Layers; 1 if there are none."""
        return self.shape[0] if self.view.layered else 1
